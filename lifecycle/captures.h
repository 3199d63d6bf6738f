/* lifecycle/captures.h
 * Which streams are being captured in this process. While there is one, cuMemAlloc goes to the driver (whose answer there
 * is part of its meaning) and nothing context-wide may be called.
 *
 * cuCtxRecordEvent during a capture fails and invalidates it (FACTS.md), whatever the thread's mode. So the begin of a
 * capture and our context-wide calls exclude each other: both run under RANK_CAPTURE, the one lock of this library that
 * is held across driver calls. Those calls return at once (0.2 us measured for cuCtxRecordEvent) but where the queue of a
 * stream is full: then the begin of a capture waits as long, and nothing else does. */
#ifndef SUBLET_LIFECYCLE_CAPTURES_H
#define SUBLET_LIFECYCLE_CAPTURES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/lock.h"
#include "lifecycle/driver.h"

struct capture {
	CUstream stream; /* CU_STREAM_PER_THREAD for the per-thread default stream */
	int thread;      /* its thread id, else 0 */
	CUcontext context; /* the stream's */
	uint64_t begun; /* the moment it began */
};

struct captures {
	struct ranked_lock lock; /* RANK_CAPTURE */
	const struct driver *driver;
	struct capture *list; /* under lock */
	size_t count, capacity;
	CUcontext beginning; /* of the capture that is about to begin; under lock */
	bool overflow;   /* a capture could not be noted: treated as capturing for ever. Under lock */
	uint64_t moment; /* rises with every begin; atomic, written under lock */
	unsigned active; /* atomic copy of count (plus overflow), read without the lock */
};

void captures_init(struct captures *captures, const struct driver *driver);
void captures_release(struct captures *captures);
/* In a forked child: CUDA is gone, so are the captures. */
void captures_forget(struct captures *captures);

/* Cheap, any thread. A capture that begins right after may be missed: use captures_exclude where that matters. */
bool captures_any(const struct captures *captures);

/* Hold off the begin of captures. Returns false, holding nothing, when one is under way, or somebody else has been at it for
 * a millisecond: later, then. After true the caller makes its context-wide calls and then calls captures_admit. */
bool captures_exclude(struct captures *captures);
void captures_admit(struct captures *captures);

/* The same question, when nothing is to be held off; in *ret_one (may be NULL), zeroed where it was not noted, one of them. */
bool captures_under_way(struct captures *captures, struct capture *ret_one);

/* Around the driver's begin call: lock, call, note on success. @per_thread: the _ptsz twin, whose stream 0 is the
 * thread's own. */
void captures_begin_lock(struct captures *captures, CUstream stream, bool per_thread);
void captures_begin_unlock(struct captures *captures, CUresult result, CUstream stream, bool per_thread);

/* Now, counted in begins. Read before a call that ends a capture or destroys its stream: when that is back, the handle may
 * already be another thread's new stream, whose capture began later. */
uint64_t captures_moment(const struct captures *captures);

/* After the driver's end call, which began at @moment: asks the driver whether @stream still captures, since an end that fails may have ended it
 * or not. Returns true when this was the last capture. */
bool captures_end(struct captures *captures, uint64_t moment, CUresult result, CUstream stream, bool per_thread);

/* @stream or every stream of @context is gone, by a call that began at @moment. Return as captures_end. */
bool captures_stream_gone(struct captures *captures, uint64_t moment, CUstream stream);
bool captures_context_gone(struct captures *captures, uint64_t moment, CUcontext context);

#endif
