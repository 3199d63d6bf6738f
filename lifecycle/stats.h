/* lifecycle/stats.h
 * The counters of one preloaded process, in a page other processes can map and read.
 *
 * File <session>/proc-<pid>.stats, exactly sizeof(struct stats_page) bytes, mode 0600, space allocated before it is
 * mapped (a full file system must not raise SIGBUS in a framework). Where the file cannot be had the same page
 * is private memory and everything else works. The file goes when the process ends, unless somebody follows
 * the run (SUBLET_FOLLOW=1): then it stays with `state` STATS_ENDED. After kill -9 it stays: a reader tells by
 * pid and start_ticks, and removes it.
 *
 * No cuda.h here: tools/ includes this header. Written by the process (relaxed atomics), read by anyone; a reader
 * may see counters of different moments. Bytes are bytes; a peak is the largest value its counter had.
 * Raise STATS_VERSION with every change of layout or meaning. */
#ifndef SUBLET_LIFECYCLE_STATS_H
#define SUBLET_LIFECYCLE_STATS_H

#include <stdbool.h>
#include <stdint.h>

#define STATS_MAGIC 0x53544154534c4253ull /* "SBLSTATS" */
#define STATS_VERSION 1u
#define STATS_DEVICES 16

enum stats_state {
	STATS_RUNNING = 1,
	STATS_ENDED = 2,
};

/* Why device memory is native, or which host memory is pinned. Names: stats_native_name(). */
enum stats_native {
	STATS_NATIVE_SMALL,   /* cuMemAlloc below min_size */
	STATS_NATIVE_CAPTURE, /* cuMemAlloc while a stream is being captured */
	STATS_NATIVE_REFUSED, /* cuMemAlloc that Sublet could not serve from its arena */
	STATS_NATIVE_PITCHED,
	STATS_NATIVE_MANAGED, /* cuMemAllocManaged: the driver moves it itself */
	STATS_NATIVE_POOL,    /* stream-ordered: bytes handed out, not what the pool keeps */
	STATS_NATIVE_ARRAY,
	STATS_NATIVE_VMM,     /* cuMemCreate by the application itself */
	STATS_NATIVE_PINNED,  /* host bytes: cuMemHostAlloc, cuMemAllocHost, cuMemHostRegister */
	STATS_NATIVE_COUNT
};

struct stats_bytes {
	uint64_t bytes;
	uint64_t peak_bytes;
	uint64_t count;       /* live */
	uint64_t total_count; /* ever */
};

struct stats_device {
	struct stats_bytes managed; /* device bytes mapped for managed allocations (whole pages) */
	uint64_t requested_bytes;   /* what the application asked for in them */
	uint64_t pending_bytes;     /* freed by the application, pages not yet given back */
	uint64_t cached_bytes;      /* extents kept for the next allocation */
	struct stats_bytes native[STATS_NATIVE_COUNT]; /* PINNED is counted in device 0 */
};

struct stats_page {
	uint64_t magic;
	uint32_t version;
	uint32_t size_bytes; /* of this struct */
	int32_t pid;
	uint32_t state; /* enum stats_state */
	uint64_t start_ticks; /* of the process, field 22 of /proc/<pid>/stat */
	char role[32];        /* SUBLET_ROLE, or empty; ends in NUL */
	char comm[16];        /* the process name; ends in NUL */
	uint32_t active;      /* 1: serves allocations; 0: turned itself off */
	uint32_t device_count;
	uint64_t lookups_mapped;  /* answers replaced by the pointer the driver gave */
	uint64_t lookups_by_name; /* answers replaced by (name, version, flags): the driver gave an unknown pointer */
	uint64_t lookups_unknown; /* names or pointers newer than Sublet's list, handed out untouched */
	struct stats_device device[STATS_DEVICES];
};

#ifdef __cplusplus
extern "C" {
#endif

/* "small", "pool", ...; never NULL for a valid value. */
const char *stats_native_name(enum stats_native kind);

/* Make the page of this process in folder @dir (NULL or unusable: private memory). Never fails, never returns NULL;
 * *ret_shared says whether others can see it. May allocate, does not call the driver. The page lives until stats_close. */
struct stats_page *stats_create(const char *dir, const char *role, bool *ret_shared);

/* End of the process: marks the page ended, and removes its file unless @keep_file. Safe on NULL. */
void stats_close(struct stats_page *page, bool keep_file);

/* In a forked child: the page belongs to the parent. Lets go of the mapping and leaves the file alone; returns a fresh
 * private page. */
struct stats_page *stats_after_fork(struct stats_page *parent_page);

/* Map the page of another process, read-only. NULL with errno set: ENOENT, EACCES, EINVAL (not such a file, truncated),
 * EPROTO (other version). The caller unmaps with stats_unmap. */
const struct stats_page *stats_open(const char *dir, int pid);
void stats_unmap(const struct stats_page *page);

/* Add or take @bytes (and one allocation) to a counter; keeps the peak. */
void stats_add(struct stats_bytes *counter, uint64_t bytes);
void stats_sub(struct stats_bytes *counter, uint64_t bytes);
/* Undo a stats_sub: what was taken off is there after all, and is no new allocation. */
void stats_unsub(struct stats_bytes *counter, uint64_t bytes);

#ifdef __cplusplus
}
#endif
#endif
