/* lifecycle/host_pool.h
 * Host memory for bytes that are not on a device: a cache of extents by exact size, created at first use or up front, kept,
 * capped, counted in one ledger.
 *
 * Where the driver has HOST_NUMA memory an extent is a VMM handle that the CPU and the devices may use. It stays mapped at an
 * address of the pool's own, so that a copy needs no mapping, and can be mapped at an allocation's address besides (parked).
 * Elsewhere it is a registered memfd: good for copies, not for parking.
 *
 * Taking, filling and trimming are for one thread at a time (the mover's); giving back is for any. */
#ifndef SUBLET_LIFECYCLE_HOST_POOL_H
#define SUBLET_LIFECYCLE_HOST_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/errors.h"
#include "base/lock.h"
#include "lifecycle/arena.h"
#include "lifecycle/driver.h"

struct lifecycle;

struct host_extent {
	uint64_t address; /* in the pool: what the CPU reads and copies name */
	uint64_t bytes;
	CUmemGenericAllocationHandle handle;
	uint64_t number;  /* for the session, which keeps a descriptor of it; 0: it keeps none */
	uint64_t hash;    /* of its bytes when they came, where contents are verified (struct allocation, `hashed`) */
	uint64_t devices; /* a bit for each that may use it at `address` */
	bool held;        /* the handle is ours to release; false for a registered memfd */
	bool mapped;      /* at `address` */
	bool exposed;     /* the application holds a handle of it: nobody else's bytes go there */
	struct host_extent *next; /* in its allocation, or among the free ones of its size */
	struct host_extent *other_size; /* of the first free one of a size: that of the next size */
};

/* How a session's coordinator takes part; each may be NULL. Called without any lock, by the thread that takes, trims or
 * fills, and may wait for an answer within bounds of its own. */
struct host_pool_hooks {
	/* May this process create @bytes more? False with a sentence in @why: no. */
	bool (*credit)(void *arg, uint64_t bytes, char *why, size_t why_size);
	/* It has @bytes less than it had credit for: destroyed, or not created after all. @extent: its number. */
	void (*give)(void *arg, uint64_t bytes, uint64_t extent);
	/* An extent of exactly @bytes that nobody uses any more, as a descriptor that becomes the caller's. Its credit comes with it,
	 * and its number is @extent from here on. */
	bool (*take)(void *arg, uint64_t bytes, uint64_t extent, int *ret_fd);
	/* It uses extent @extent of @bytes no more, nor its credit: the session may give both to another process. NULL: as give. */
	void (*leave)(void *arg, uint64_t bytes, uint64_t extent);
	/* What was recalled with @serial has been let go of, as far as there was any. */
	void (*recalled)(void *arg, uint64_t serial);
	/* One was created, with number @extent; @fd, which becomes the callee's, keeps its bytes beyond the end of this process. */
	void (*made)(void *arg, uint64_t bytes, uint64_t extent, int fd);
	void *arg;
};

enum host_pool_kind {
	HOST_POOL_UNTRIED,
	HOST_POOL_NUMA,       /* HOST_NUMA extents */
	HOST_POOL_REGISTERED, /* registered memfd: nothing can be parked */
	HOST_POOL_NONE,       /* neither is to be had */
};

/* Another process needs what is only kept here. */
struct host_recall {
	uint64_t bytes;	     /* 0: none does; atomic */
	uint64_t size_bytes; /* extents of this size first */
	uint64_t serial;
};

struct host_pool {
	struct ranked_lock lock; /* RANK_HOST_POOL */
	struct host_extent *free; /* one per size by `other_size`, each with the rest of its size by `next`; under lock */
	uint64_t bytes;          /* all extents of this process; under lock */
	uint64_t free_bytes;     /* those in `free`; under lock */
	uint32_t count, free_count; /* under lock */
	struct host_recall recall; /* under lock */
	struct host_extent *condemned; /* exposed ones that were put back, to be destroyed by the taking thread; under lock */
	struct host_extent *stranded; /* destroyed, but not yet taken back by the driver; the taking thread's */
	uint64_t last_number;     /* the taking thread's */
	enum host_pool_kind kind; /* written by the taking thread, atomic */
	CUmemAllocationProp prop; /* the taking thread's, as what follows */
	bool exportable;
	struct arena arena;      /* pool addresses */
	struct host_pool_hooks hooks;
};

void host_pool_init(struct host_pool *pool);
/* Unit tests: everything is destroyed; no extent may be in use. Calls the driver. */
void host_pool_release(struct lifecycle *lc);
/* In a forked child: forget, without a driver call. */
void host_pool_forget(struct host_pool *pool);
/* Before the first extent is taken. */
void host_pool_set_hooks(struct host_pool *pool, const struct host_pool_hooks *hooks);

/* Is it known that nothing can be parked? No driver call, any thread. */
bool host_pool_cannot_park(const struct host_pool *pool);
/* Can extents be mapped at an allocation's address? Finds out on first use (calls the driver, and needs a current context). */
bool host_pool_can_park(struct lifecycle *lc, int device);

/* An extent of exactly @bytes that @device may use: a kept one, one of the session's, or a new one, for which kept ones of
 * other sizes are destroyed where the cap asks for it. Its content is undefined. NOMEM: the pool is full, and *reterr says what
 * was needed, the cap, and who holds what; UNSUPPORTED, DRIVER, SYSTEM: none can be made. Calls the driver with a current
 * context, holds no lock meanwhile. */
enum sublet_err host_pool_take(struct lifecycle *lc, int device, uint64_t bytes, struct host_extent **ret_extent,
	struct errinfo *reterr);

/* Keep a list of extents, linked by next, for the next use. Nothing maps them but the pool; exposed ones
 * are destroyed at the next take or trim. Any thread, no driver call. */
void host_pool_put(struct lifecycle *lc, struct host_extent *list);

/* Up front: create extents of @extent_bytes until the pool has @bytes in all. Says how far it is, at level info, every second
 * or so. On failure what was made stays. As host_pool_take otherwise. */
enum sublet_err host_pool_fill(struct lifecycle *lc, int device, uint64_t bytes, uint64_t extent_bytes,
	struct errinfo *reterr);

/* Destroy kept extents, at least @bytes of them if there are as many; those of @but bytes each only when nothing else is
 * left. Returns how many bytes went. Calls the driver. */
uint64_t host_pool_trim(struct lifecycle *lc, uint64_t bytes, uint64_t but);

/* Note that another process needs kept extents; one such need at a time, a later one replaces it. False: none is kept, nothing is
 * noted. Any thread, no driver call. */
bool host_pool_recall(struct lifecycle *lc, const struct host_recall *recall);
/* Let go of what is recalled. The taking thread; calls the driver. */
void host_pool_let_go(struct lifecycle *lc);

/* Bytes of the list. */
uint64_t host_extents_bytes(const struct host_extent *list);

#endif
