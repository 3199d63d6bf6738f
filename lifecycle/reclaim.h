/* lifecycle/reclaim.h
 * Free keeps cuMemFree's meaning without its stall: the record goes at once, the pages when all work submitted before has
 * finished. One helper thread, started at the first free, polls the marks and gives pages back; it makes its driver calls
 * with its own capture mode RELAXED and blocks all signals.
 *
 *   state of a freed allocation    left by                              driver calls on the way
 *   unmarked                       no capture under way                 cuCtxRecordEvent per context | cuCtxSynchronize
 *   marked                         every mark has passed                cuEventQuery
 *   passed                         pages back                           cuMemUnmap, then cuMemRelease or the extent cache
 *
 * Whole extents of freed allocations are kept in a small capped cache for the next allocation of the same size. */
#ifndef SUBLET_LIFECYCLE_RECLAIM_H
#define SUBLET_LIFECYCLE_RECLAIM_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/lock.h"
#include "lifecycle/backing.h"
#include "lifecycle/driver.h"
#include "lifecycle/stats.h"

struct lifecycle;
struct allocation;
struct host_extent;

#define CACHE_SLOTS 64

struct extent_cache {
	struct {
		CUmemGenericAllocationHandle handle;
		uint64_t bytes;
	} slots[CACHE_SLOTS];
	unsigned count;
	uint64_t bytes;
};

enum reclaim_thread {
	RECLAIM_NO_THREAD,
	RECLAIM_RUNNING,
	RECLAIM_STOPPED,
	RECLAIM_UNAVAILABLE, /* could not be started: frees wait in the caller */
};

struct reclaim {
	struct ranked_lock lock; /* RANK_RECLAIM */
	pthread_cond_t changed;  /* something was freed, finished, or stop was asked */
	struct allocation *head, *tail; /* freed, oldest first; under lock */
	struct allocation *stranded; /* idle, but refused by the driver when offered back; under lock */
	unsigned pending;               /* in the list or in a step; under lock */
	uint64_t generation;            /* rises whenever pages went back; under lock */
	uint64_t returned_bytes;        /* all that went back; under lock */
	unsigned giving_back;           /* threads between "not the application's" and "the driver's"; under lock */
	enum reclaim_thread thread;     /* under lock */
	bool stop;                      /* under lock */
	bool busy;                      /* the helper is inside driver calls; under lock */
	bool forgotten;                 /* in a forked child, whose only thread reads it */
	pthread_t handle;
	struct extent_cache cache[STATS_DEVICES]; /* under lock */
};

void reclaim_init(struct reclaim *reclaim);
/* The helper makes no more driver calls after this returns true; false when it did not stop within @wait_ns. */
bool reclaim_stop(struct reclaim *reclaim, uint64_t wait_ns);
/* Unit tests: stop the helper and wait until it is gone, then release what the parts hold. */
void reclaim_join(struct reclaim *reclaim);
void reclaim_release(struct reclaim *reclaim);
/* In a forked child: nothing is pending, nothing kept, and no helper is there or will be. */
void reclaim_forget(struct reclaim *reclaim);

/* Take over a detached allocation, which is counted as freed from then on. CUDA_SUCCESS, or the error that waiting for its work gave (a lost context): then the
 * allocation is still the caller's. @stream_ordered: as cuMemFreeAsync, which never
 * waits. Calls the driver on the caller's thread inside driver_enter. */
CUresult reclaim_free(struct lifecycle *lc, struct allocation *allocation, bool stream_ordered);

/* As reclaim_free when the work is known to have ended (its context was destroyed): pages go back before this returns. */
void reclaim_free_idle(struct lifecycle *lc, struct allocation *allocation);

/* Take over a detached allocation whose free has been answered: it was being moved then. Never waits, cannot fail. */
void reclaim_take(struct lifecycle *lc, struct allocation *allocation);

/* Take over an allocation that was never findable and whose prepare failed: address and record go back, and what the
 * driver refused to take back (backing not empty) is offered again later. */
void reclaim_unpublished(struct lifecycle *lc, struct allocation *allocation);
/* The same for a single extent that is not mapped. */
void reclaim_strand_extent(struct lifecycle *lc, int device, const struct extent *extent);

/* The same for extents that may still be mapped from @address on; @backing becomes empty. @span_bytes of addresses of
 * @device's arena go back with them, 0: none. */
void reclaim_strand_backing(struct lifecycle *lc, int device, uint64_t address, uint64_t span_bytes, struct backing *backing);

/* The same where work may still use it: it goes back when everything submitted so far has passed, and @host (a list of host
 * extents) to the pool with it. */
void reclaim_take_parts(struct lifecycle *lc, int device, uint64_t address, uint64_t span_bytes, struct backing *backing,
	struct host_extent *host);

/* Offer all that was stranded again now. Calls the driver on the caller's thread inside driver_enter. */
void reclaim_offer_again(struct lifecycle *lc);

/* Around giving @bytes of device memory back to the driver outside this module, so that memory info waits for it and who waits
 * for room sees it. */
void reclaim_returning_begin(struct lifecycle *lc);
void reclaim_returning_end(struct lifecycle *lc, uint64_t bytes);

/* The last capture has ended: queued frees may be marked now. */
void reclaim_kick(struct lifecycle *lc);

/* Before out-of-memory is answered. begin stands before the first attempt that may fail; make_room after each that did: the
 * cached extents of @device (every device when -1) go back, and pending frees are waited for until @bytes have come back,
 * nothing is pending, or lc->config.free_wait_ns have passed since the first of these calls. True when anything came back
 * since the last attempt, so that another makes sense. */
struct reclaim_room {
	uint64_t returned_bytes;
	uint64_t deadline_ns;
};
void reclaim_room_begin(struct lifecycle *lc, struct reclaim_room *room);
bool reclaim_make_room(struct lifecycle *lc, int device, uint64_t bytes, struct reclaim_room *room);

/* Wait until nothing is pending, at most @wait_ns. */
bool reclaim_wait(struct lifecycle *lc, uint64_t wait_ns);

/* Bytes of @device that are freed or kept but not yet the driver's, and the generation they belong to. *ret_settled is
 * false while some are on their way, when neither answer is exact. */
uint64_t reclaim_held_bytes(struct lifecycle *lc, int device, uint64_t *ret_generation, bool *ret_settled);

/* Wait until no pages are on their way back, at most @wait_ns: as long as the driver's unmap and release calls take. */
void reclaim_settle(struct lifecycle *lc, uint64_t wait_ns);

/* An extent of exactly @bytes from the cache. */
bool reclaim_cache_take(struct lifecycle *lc, int device, uint64_t bytes, CUmemGenericAllocationHandle *ret_handle);

#endif
