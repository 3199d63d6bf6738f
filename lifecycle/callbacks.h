/* lifecycle/callbacks.h
 * Host functions and stream call-backs of the application, each behind a function of ours that says to the gate that a
 * call-back is under way on this thread: gated calls in it must not wait for a hold that waits for it.
 *
 * What a stream runs once is freed when it has run. What a graph keeps may run at any time, also from clones and
 * executables that the driver made, and never says that it is done with: one note per pair of function and argument is
 * kept for the life of the process, and found again when the same pair comes back. */
#ifndef SUBLET_LIFECYCLE_CALLBACKS_H
#define SUBLET_LIFECYCLE_CALLBACKS_H

#include <stdbool.h>

#include <cuda.h>

#include "base/lock.h"
#include "base/map.h"

struct callback;

struct callbacks {
	struct ranked_lock lock; /* RANK_CALLBACKS */
	struct map kept;	 /* hash of the pair -> struct callback, those of one hash chained; under lock */
};

void callbacks_init(struct callbacks *callbacks);
void callbacks_release(struct callbacks *callbacks);

/* What to give to the driver instead of @function and @arg, for one run or to keep. NULL: no memory, give it the pair itself.
 * No driver call. */
struct callback *callback_once(CUhostFn function, void *arg);
struct callback *callback_kept(struct callbacks *callbacks, CUhostFn function, void *arg);
struct callback *callback_of_stream(CUstreamCallback function, void *arg);
/* The driver has refused it. NULL is fine. */
void callback_unused(struct callback *callback);

/* The functions that go with them: @arg is the struct callback. */
void CUDA_CB callback_run(void *arg);
void CUDA_CB callback_run_stream(CUstream stream, CUresult status, void *arg);

/* If the pair is one of ours, put the application's own in its place. */
void callback_reveal(CUhostFn *function, void **arg);

#endif
