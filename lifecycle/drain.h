/* lifecycle/drain.h
 * Has everything ended that was submitted so far? Marks in every context of the process, taken at once and asked about
 * later: a free waits for its own, a hold for all. */
#ifndef SUBLET_LIFECYCLE_DRAIN_H
#define SUBLET_LIFECYCLE_DRAIN_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lifecycle/contexts.h"

struct lifecycle;

/* contexts_mark with captures held off meanwhile; returns as it does. NOT_READY: something is being captured. */
CUresult drain_mark(struct lifecycle *lc, struct context_mark *marks, size_t capacity, uint32_t *ret_count);

/* Give marks back as they pass, the last first. CUDA_SUCCESS: all have passed, also those of contexts that are lost and run
 * nothing. NOT_READY: marks[*count - 1] has not. NOT_SUPPORTED: an error that says less, mark again; none is left. */
CUresult drain_passed(struct lifecycle *lc, struct context_mark *marks, uint32_t *count);

void drain_give_up(struct lifecycle *lc, struct context_mark *marks, uint32_t *count);

/* ---- a drain with a deadline ----
 * Recording waits where the queue of a stream is full, and a synchronise as long as there is work: what they wait for may in
 * turn wait for the gate. So a thread of its own makes these calls (started at the first hold, all signals blocked), and the
 * closer goes on when its time is over. */

#define DRAIN_MARKS_MAX 256 /* contexts; a process has one or two per device */

struct drainer {
	unsigned asked, done;	/* jobs so far; atomic, slept on */
	unsigned stop;		/* atomic */
	unsigned calling;	/* the thread is inside driver calls; atomic */
	bool started;		/* closer only */
	pthread_t thread;
	/* Of the job that is done, the thread's until then. */
	CUresult result;
	struct context_mark marks[DRAIN_MARKS_MAX];
	uint32_t count;
};

/* Wait until everything has ended that was submitted to any context before the call. CUDA_SUCCESS: it has. NOT_READY: something
 * is being captured. CUDA_ERROR_TIMEOUT: not by @until_ns; then *ret_context (NULL where that is not known) still
 * has work. Otherwise an error that the driver gave until then instead of telling. One caller at a time, inside
 * driver_enter. */
CUresult drainer_drain(struct lifecycle *lc, uint64_t until_ns, CUcontext *ret_context);

/* The thread makes no further driver call once this returns true; false: it is still inside one after @wait_ns. */
bool drainer_stop(struct drainer *drainer, uint64_t wait_ns);
/* Unit tests: stop it, wait until it is gone, and give its marks back. */
void drainer_join(struct lifecycle *lc);
/* In a forked child. */
void drainer_forget(struct drainer *drainer);

/* Wait between two looks at something: 20 us at first (most ends come at once), up to 1 ms beside long kernels. False: it is
 * past @until_ns. @pause_ns begins as 0. */
bool drain_pause(uint64_t *pause_ns, uint64_t until_ns);

#endif
