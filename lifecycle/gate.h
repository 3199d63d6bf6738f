/* lifecycle/gate.h
 * The gate (DESIGN.md 6): while it is shut, calls that make the device touch memory wait before they reach the driver.
 *
 * A gated call marks its thread's slot, then loads the gate. Open: on to the driver, then unmark. Shut: unmark, wait, try
 * again. The closer (gate_hold) shuts, makes the marks of all threads visible with one membarrier, waits for the slots,
 * drains what was submitted, and holds. Nobody waits with a marked slot or a lock.
 *
 *   word               gated call, depth 0    inside a call-back of the driver    inside another gated call
 *   open               passes                 passes                              passes
 *   shut               waits                  passes, counted in `through`        passes: the outer mark is waited for
 *   shut and held      waits                  waits                               cannot be: no slot is marked
 *
 * "Inside a call-back": host functions and stream call-backs are work that the drain waits for, so they must not wait for
 * it. Once held, none can run: launching one is a gated call. Sublet's own threads do not come here (shim/shim.h).
 *
 * Beside all that a call of depth 0, in no call-back, waits in front of the gate while its process has arrived at a phase that has
 * neither begun nor been refused (gate_arrived). Such a call is to the closer one that has not been made yet.
 *
 * Slots are of the process, not of one gate: a thread keeps its slot when a new lifecycle begins (unit tests). */
#ifndef SUBLET_LIFECYCLE_GATE_H
#define SUBLET_LIFECYCLE_GATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/attributes.h"
#include "base/errors.h"
#include "base/lock.h"

struct lifecycle;

/* One thread's. Only the owner writes, but for `kernel` (gate_kernels_gone) and what a dead owner left. All fields atomic.
 * A line of its own: neighbours are written by other threads at every launch. */
struct gate_slot {
	unsigned depth;     /* gated calls under way; above one where a signal handler or an interposer makes one inside another */
	unsigned callbacks; /* of the driver, under way on this thread */
	unsigned waiting;   /* in front of a shut gate */
	int thread;         /* its id; 0: free */
	const char *entry;  /* the entry point last called, a string for good */
	const void *kernel; /* the CUfunction or CUkernel last launched, NULL once its code may be unloaded */
	const char *tag;    /* what the thread has said its allocations are, a string for good, or NULL */
} __attribute__((aligned(64)));

enum gate_bits {
	GATE_SHUT = 1 << 0,
	GATE_HELD = 1 << 1,   /* beside SHUT: drained */
	GATE_ENDED = 1 << 3,  /* alone: the process ends and what is away cannot come back; calls are refused */
	GATE_FENCED = 1 << 2, /* no membarrier here: every gated call makes a full fence, by way of the slow path */
	/* beside any of these, set and cleared by others than the closer */
	GATE_ARRIVED = 1 << 4, /* an event of the program has asked for a phase: calls wait for the answer */
	GATE_KERNELS = 1 << 5, /* the names of kernels matter (lifecycle/kernels.h); makes nobody wait */
	GATE_BESIDE = GATE_ARRIVED | GATE_KERNELS,
};

struct gate {
	unsigned word;    /* enum gate_bits, 0: open; atomic; what waiting calls sleep on */
	unsigned through; /* gated calls of call-backs that passed a shut gate; atomic */
	unsigned holds;   /* atomic; 1 from gate_hold to gate_open */
	unsigned asked;   /* atomic; `wanted` was called in this hold */
	unsigned ending;  /* atomic; no further hold comes about */
	bool fenced;      /* closer only */
	uint64_t held_since_ns; /* atomic */
	uint64_t wanted_after_ns; /* atomic; 0 at the end of the process */
	void (*wanted)(void *arg); /* atomic; written after the two beside it */
	void *wanted_arg;
	struct ranked_lock kernels_lock; /* RANK_KERNELS */
};

/* @fences: as if there were no membarrier (tests; SUBLET_GATE_FENCES=1). Registers the process for membarrier. */
void gate_init(struct gate *gate, bool fences);
void gate_release(struct gate *gate);
/* In a forked child: open, and every slot free but the calling thread's, which counts itself out. */
void gate_forget(struct gate *gate);

extern SUBLET_TLS struct gate_slot *gate_own_slot; /* NULL before a thread's first gated call */

/* gate_enter where it costs nothing but itself, for a thread that has a slot: mark, then load the gate's word (in a statement of
 * its own, as arguments are evaluated in any order), then pass. Ends with gate_leave_own. */
static inline void gate_mark(struct gate_slot *slot)
{
	/* Load and store, not one locked step: nobody else writes it, and a signal handler in between leaves it as it was. */
	__atomic_store_n(&slot->depth, __atomic_load_n(&slot->depth, __ATOMIC_RELAXED) + 1, __ATOMIC_RELAXED);
	/* The compiler keeps the order, the processor need not: the closer's membarrier stands between mark and load. */
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}

static inline void gate_leave_own(struct gate_slot *slot)
{
	__atomic_store_n(&slot->depth, __atomic_load_n(&slot->depth, __ATOMIC_RELAXED) - 1, __ATOMIC_RELEASE);
}

/* False, and unmarked: the gate is not simply open, so gate_enter is due. */
static inline bool gate_pass(struct gate_slot *slot, unsigned word, const char *entry, const void *kernel)
{
	if (SUBLET_UNLIKELY(word)) {
		gate_leave_own(slot);
		return false;
	}
	__atomic_store_n(&slot->entry, entry, __ATOMIC_RELAXED);
	if (kernel)
		__atomic_store_n(&slot->kernel, kernel, __ATOMIC_RELAXED);
	return true;
}

/* Begin a gated call: @entry names it (kept for good), @kernel is what it launches or NULL. Waits while the gate is shut,
 * see above. NULL: it is refused for good (gate_refuse), answer GATE_REFUSAL. Holds no lock, leaves errno alone, is no cancellation point. Ends with gate_leave of what it returned, on the
 * same thread. */
#define GATE_REFUSAL CUDA_ERROR_DEINITIALIZED /* what programs are used to at their end */
struct gate_slot *gate_enter(struct gate *gate, const char *entry, const void *kernel);
void gate_leave(struct gate_slot *slot);

/* Around a call-back that the driver makes. Pass on what begin returned, which may be NULL. */
struct gate_slot *gate_callback_begin(void);
void gate_callback_end(struct gate_slot *slot);

/* The tag of the calling thread (lifecycle/callers/caller.h), kept here since the slot is all that Sublet has per thread. False: no slot
 * could be made. */
const char *gate_tag(void);
bool gate_set_tag(const char *tag);

/* Code is about to be unloaded, or a context to end: kernels are no longer asked for their names. No driver call. */
void gate_kernels_gone(struct gate *gate);

struct gate_timing {
	uint64_t deadline_ns; /* of the first try, slots and drain together; doubled at each */
	uint64_t timeout_ns;  /* of all tries */
};

/* 250 ms, 30 s. */
struct gate_timing gate_timing_default(void);

/* Shut the gate and wait until nothing runs or is about to be submitted. A try that does not get there within its deadline
 * opens the gate again (what it waits for may itself wait for a gated call), and after a while the next begins. SUBLET_OK:
 * held, until gate_open; also when it already was. TIMEOUT: open again, *reterr names the thread and its call, the context
 * and the kernels last launched, or the capture that was in the way. INVALID: another thread is at it.
 * On a thread of Sublet's own, no lock held, no slot marked. Calls the driver: queries events, on failure asks a kernel's
 * name; marks are taken by a thread of their own (lifecycle/drain.h). */
enum sublet_err gate_hold(struct lifecycle *lc, const struct gate_timing *timing, struct errinfo *reterr);
/* End the hold; waiting calls go on. Nothing when there is none. No driver call. */
void gate_open(struct lifecycle *lc);

/* At the end of the process: no hold comes about any more, one that is tried is given up and its gate opened. One that there is
 * stays, and who waits in front of it from now on asks for service at once. */
void gate_no_more_holds(struct gate *gate);
bool gate_is_ending(const struct gate *gate);
/* The process has arrived at a phase, or that has begun or will not: see above. On any thread, under any lock; no driver call. */
void gate_arrived(struct gate *gate, bool arrived);
bool gate_has_arrived(const struct gate *gate);
/* Shall launches come by gate_kernels_matter first? */
void gate_look_at_kernels(struct gate *gate, bool look);
static inline bool gate_kernels_matter(const struct gate *gate)
{
	return (__atomic_load_n(&gate->word, __ATOMIC_ACQUIRE) & GATE_KERNELS) != 0;
}
/* Instead of gate_open: what is away will not come back, and calls that might touch it get an error. */
void gate_refuse(struct gate *gate);

/* The soft hold: once per hold, the first gated call that has waited for @after_ns in front of a held gate calls @wanted. That is
 * on a thread of the application, no lock held, cancellation off: hand the wish to another thread and return. */
void gate_on_wait(struct gate *gate, uint64_t after_ns, void (*wanted)(void *arg), void *arg);

/* Is the gate shut, held or not? */
bool gate_is_shut(const struct gate *gate);

/* ---- between gate.c and hold.c ---- */

/* Change the word and wake who sleeps on it. */
void gate_set(struct gate *gate, unsigned bits);
/* After gate_set: every mark set by a call that has not seen it is visible. False: the kernel refused; fences from now on. */
bool gate_barrier(struct gate *gate);
/* Some marked or, with @waiting, waiting slot; those of threads that are gone are freed on the way. NULL: none. */
const struct gate_slot *gate_busy_slot(bool waiting);
/* Slots in turn, from NULL to NULL. */
const struct gate_slot *gate_next_slot(const struct gate_slot *slot);

#endif
