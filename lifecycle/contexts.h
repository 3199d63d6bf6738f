/* lifecycle/contexts.h
 * The contexts of this process as far as seen (creation, retain, or current at an allocation), and which device may
 * access which other's memory. Each context has a small stock of events, so that a free can leave a mark in it. */
#ifndef SUBLET_LIFECYCLE_CONTEXTS_H
#define SUBLET_LIFECYCLE_CONTEXTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/lock.h"
#include "lifecycle/driver.h"
#include "lifecycle/stats.h"

#define CONTEXT_EVENTS_KEPT 32 /* per context; more are made and destroyed as needed */

struct context {
	CUcontext handle;
	int device;
	uint64_t id; /* never reused, unlike the handle */
	bool primary;
	unsigned dying;  /* destroy, release or reset calls under way: no driver call may name it */
	unsigned users; /* threads that name it to the driver without the lock */
	CUevent spare[CONTEXT_EVENTS_KEPT];
	unsigned spare_count;
};

/* `from`'s kernels may access memory of device `to`; one per pair of contexts. */
struct peer {
	CUcontext from_context, to_context;
	int from, to;
	uint64_t next_id; /* of the contexts when it was enabled */
};

struct contexts {
	struct ranked_lock primary_lock; /* RANK_PRIMARY; held over the driver's retain, release and reset */
	struct ranked_lock lock; /* RANK_CONTEXTS */
	const struct driver *driver;
	struct context *list; /* under lock */
	size_t count, capacity;
	struct peer *peers; /* under lock */
	size_t peer_count, peer_capacity;
	uint64_t next_id;
	uint64_t peer_generation; /* atomic; rises with every change of `peers` */
};

/* An event recorded in one context. */
struct context_mark {
	CUevent event; /* NULL: the context was dying when the mark was taken */
	CUcontext handle;
	uint64_t context_id;
};

void contexts_init(struct contexts *contexts, const struct driver *driver);
/* Destroys spare events when @call_driver. */
void contexts_release(struct contexts *contexts, bool call_driver);
/* In a forked child. */
void contexts_forget(struct contexts *contexts);

/* Note @handle on @device; a known one is left alone. Its id, never used again, or 0 when memory ran out. No driver call. */
uint64_t contexts_note(struct contexts *contexts, CUcontext handle, int device);
/* Is the context known that @id was given for, by that id or, since an end of it was undone, by an earlier one? */
bool contexts_has(struct contexts *contexts, CUcontext handle, uint64_t id);
/* The error of @handle when it is lost, else CUDA_SUCCESS: asked of an event of its own, since the calls that allocate by
 * hand do not tell. Holds RANK_CONTEXTS across driver calls that return at once (event create, query). */
CUresult contexts_lost(struct contexts *contexts, CUcontext handle);
/* @handle is its device's primary context; which one that is (NULL when not seen). */
void contexts_primary(struct contexts *contexts, CUcontext handle);
CUcontext contexts_primary_of(struct contexts *contexts, int device);
/* The end of a context, from before the driver is asked to destroy or reset it. The driver uses handles again, other
 * threads may have the next one before this call is back: an end covers what was known when it began and nothing else. */
struct context_end {
	CUcontext handle;
	uint64_t before_id;
	uint64_t capture_moment; /* captures_moment when it began; lifecycle.c sets and reads it */
};
/* From here on no other thread names the context to the driver, and what waits for its work goes on waiting. Ends of one
 * context may overlap (releases of a primary). Waits for a mark or a synchronise in it that is under way. */
void contexts_end_begin(struct contexts *contexts, CUcontext handle, struct context_end *end);
/* The driver refused, or somebody still holds it. */
void contexts_end_undo(struct contexts *contexts, const struct context_end *end);
/* It is gone: its work has ended, its events went with it. */
void contexts_drop(struct contexts *contexts, const struct context_end *end);

/* Record one event per known context (cuCtxRecordEvent: all work submitted to it so far). The caller has excluded
 * captures (captures_exclude). Writes up to @capacity marks, *ret_count of them. Returns
 *   CUDA_SUCCESS              marks cover everything that still runs
 *   CUDA_ERROR_NOT_SUPPORTED  no such call, more contexts than @capacity, or an error: synchronising tells which
 *   CUDA_ERROR_NOT_READY      something is being captured after all: mark later
 * A context that was destroyed unseen is dropped. Holds no lock of its own across driver calls: recording waits where the
 * queue of a stream is full. */
CUresult contexts_mark(struct contexts *contexts, struct context_mark *marks, size_t capacity, size_t *ret_count);
/* Does this error say that a context is lost for good, so that nothing of it runs any more? */
bool context_says_lost(CUresult result);
/* CUDA_SUCCESS passed, CUDA_ERROR_NOT_READY not yet, CUDA_ERROR_NOT_SUPPORTED: mark again (the context was dying and
 * lived), else the context's error. A context that is gone has passed. */
CUresult context_mark_query(struct contexts *contexts, const struct context_mark *mark);
/* Take the event back into its context's stock, or destroy it. */
void context_mark_give_back(struct contexts *contexts, struct context_mark *mark);

/* Borrow a living context of @device: the one with id @wanted where there is one, else the primary one, else any. NULL: none. Its
 * end waits until it is returned. */
CUcontext contexts_borrow(struct contexts *contexts, int device, uint64_t wanted, uint64_t *ret_id);
void contexts_return(struct contexts *contexts, uint64_t id);
/* Record an event of the borrowed context @id in @stream, which is of that context. On failure *ret_mark has no event. Holds
 * RANK_CONTEXTS across driver calls that return at once. */
CUresult contexts_mark_stream(struct contexts *contexts, uint64_t id, CUstream stream, struct context_mark *ret_mark);
/* As context_mark_query, for a mark in a context that is still borrowed: also while its end waits for the loan. */
CUresult contexts_mark_query_borrowed(struct contexts *contexts, const struct context_mark *mark);

/* Wait for all work of every known context (cuCtxSynchronize). Never while anything captures. CUDA_SUCCESS: nothing
 * submitted so far runs any more; contexts that are lost do not count, but the error of one on @device is in *ret_own, as
 * the driver's own free would give it. CUDA_ERROR_NOT_READY: something was captured. Otherwise a context's refusal. */
CUresult contexts_synchronize(struct contexts *contexts, int device, CUresult *ret_own);

/* Peer access as cuCtxEnablePeerAccess and -Disable leave it. False when memory ran out. */
bool contexts_peer_enable(struct contexts *contexts, CUcontext from_context, CUcontext to_context, int from, int to);
void contexts_peer_disable(struct contexts *contexts, CUcontext from_context, CUcontext to_context);
/* Drop those of @handle that were enabled before @before_id was given away: the next context of the handle is noted, and
 * takes an id, before it can have any. Caller holds the lock of the contexts. */
void contexts_forget_peers(struct contexts *contexts, CUcontext handle, uint64_t before_id);
/* A bit for each device (below 64) with a known context. */
uint64_t contexts_devices(struct contexts *contexts);
/* Device of a known context, -1 otherwise. */
int contexts_device_of(struct contexts *contexts, CUcontext handle);
/* Fill @access with the device's own right and every enabled peer's; at most @capacity. Returns how many;
 * *ret_generation is the state they were read in. */
size_t contexts_access_list(struct contexts *contexts, int device, CUmemAccessDesc *access, size_t capacity,
	uint64_t *ret_generation);

#endif
