/* lifecycle/stats.h
 * The counters of one preloaded process, in a page other processes can read.
 *
 * File <session>/proc-<pid>.stats, exactly sizeof(struct stats_page) bytes, space allocated before it is mapped (a full
 * file system must not raise SIGBUS in a framework), mode 0400 (nor must a shell's '>' that cuts it short). Where the file
 * cannot be had the same page is private memory and everything else works. The file goes when the process ends, unless
 * somebody follows the run (SUBLET_FOLLOW=1): then it stays with `state` STATS_ENDED. After kill -9 it stays.
 *
 * Whether its process is there: the mapping itself holds an flock on the file (a lock lives as long as its open file, and a
 * mapping keeps that open), so the kernel drops it with the process or its exec, whatever the pid namespace of who asks.
 * Readers take copies with read: a file cut short under a reader's mapping would kill the reader.
 *
 * No cuda.h here: tools/ includes this header. Written by the process (relaxed atomics), read by anyone; a reader
 * may see counters of different moments. Bytes are bytes; a peak is the largest value its counter had.
 * Raise STATS_VERSION with every change of layout or meaning. */
#ifndef SUBLET_LIFECYCLE_STATS_H
#define SUBLET_LIFECYCLE_STATS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STATS_MAGIC 0x53544154534c4253ull /* "SBLSTATS" */
#define STATS_VERSION 3u
#define STATS_DIR_BYTES_MAX 480 /* longest path of a session folder */
#define STATS_DEVICES 16
#define STATS_RESIDENCIES 4 /* as many as enum policy_residency has (policy/decide.h), in its order */

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
	struct stats_bytes managed; /* managed allocations (whole pages), wherever their bytes are */
	uint64_t residency_bytes[STATS_RESIDENCIES]; /* of these, by where they are */
	struct {
		uint64_t count; /* allocations */
		uint64_t bytes;
	} moved_to[STATS_RESIDENCIES]; /* ever, by where they came to; an undone move counts twice */
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
	uint64_t start_ticks; /* of the process, field 22 of /proc/<pid>/stat; exec keeps it */
	uint64_t page_id;     /* random: tells pages of one pid apart, across reuse and exec */
	uint64_t run_id;      /* SUBLET_RUN, the followed run that the process was started in, or 0 */
	uint32_t locked;      /* 1: the mapping holds a lock; 0: this file system cannot do that */
	uint32_t spare;
	char role[32];        /* SUBLET_ROLE, or empty; ends in NUL */
	char comm[16];        /* the process name; ends in NUL */
	uint32_t active;      /* 1: serves allocations; 0: turned itself off */
	uint32_t device_count;
	uint64_t host_pool_bytes;      /* host extents that this process has created or taken over */
	uint64_t host_pool_free_bytes; /* of these, kept for the next use */
	uint64_t verify_mismatches;    /* SUBLET_VERIFY: restores that found other bytes than were left */
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

/* Make the page of this process in folder @dir (NULL or unusable: private memory, with one line in the log when @dir was
 * given). @role and @run (SUBLET_RUN, hexadecimal) may be NULL. Never fails, never returns NULL; *ret_shared says whether
 * others can see it. May allocate, does not call the driver. The page lives until stats_close. */
struct stats_page *stats_create(const char *dir, const char *role, const char *run, bool *ret_shared);

/* End of the process: marks the page ended, and removes its file unless @keep_file. Safe on NULL. */
void stats_close(struct stats_page *page, bool keep_file);

/* In a forked child: the page belongs to the parent. Lets go of the mapping and leaves the file alone; returns a fresh
 * private page. */
struct stats_page *stats_after_fork(struct stats_page *parent_page);

/* The file of process @pid. False when @room is too small. */
bool stats_path(char *path, size_t room, const char *dir, int pid);

/* Open the page of another process and copy it to *ret_page. Returns a descriptor for stats_read and stats_is_over, which
 * the caller closes; it stays good when the file is removed. -1 with errno set: ENOENT, EACCES, EINVAL (not such a file,
 * truncated, not filled yet), EPROTO (other version). */
int stats_open(const char *dir, int pid, struct stats_page *ret_page);

/* Copy the page as it is now. False, *ret_page as it was, when somebody cut the file short or wrote over it. */
bool stats_read(int fd, struct stats_page *ret_page);

/* Is the process gone that made @page (read from @fd), or has it become another program? Where `locked` is 0 told by pid,
 * which only means something in the process's own pid namespace. */
bool stats_is_over(int fd, const struct stats_page *page);

/* Add or take @bytes (and one allocation) to a counter; keeps the peak. */
void stats_add(struct stats_bytes *counter, uint64_t bytes);
void stats_sub(struct stats_bytes *counter, uint64_t bytes);
/* Undo a stats_sub: what was taken off is there after all, and is no new allocation. */
void stats_unsub(struct stats_bytes *counter, uint64_t bytes);

/* One managed allocation more or less on @device: its pages and what the application asked
 * for. It begins on the device. */
void stats_allocated(struct stats_device *device, uint64_t span_bytes, uint64_t requested_bytes);
void stats_freed(struct stats_device *device, uint64_t span_bytes, uint64_t requested_bytes, unsigned residency);
/* A managed allocation went from one residency to another. */
void stats_moved(struct stats_device *device, uint64_t span_bytes, unsigned from, unsigned to);

#ifdef __cplusplus
}
#endif
#endif
