/* lifecycle/service.h
 * What a request from outside means in this process: hold the gate, move, open it unless holes remain. All of it happens on
 * one thread of Sublet's own, started at the first need, signals blocked, capture mode RELAXED.
 *
 * A client with holes is held softly: a gated call that has waited 1 s gets it served. What is in host memory is parked (no
 * copy) or, where nothing can be parked, restored; what is empty gets fresh pages. Then the gate opens, with one line. What
 * cannot be served is tried again every second for as long as the client is held.
 *
 * Whatever opens a gate leaves one with holes held softly, and from a barrier's hold on nothing is served here until that barrier lets
 * go (docs/barrier.md, R15 and R17): else a gated call steps into a hole, or runs while pages move.
 *
 * The end of a process is no reason to bring back what nobody will look at. The gate stays shut, and the first call of an exit
 * handler or destructor that waits in front of it is served at once; what cannot be served within bounds is refused. */
#ifndef SUBLET_LIFECYCLE_SERVICE_H
#define SUBLET_LIFECYCLE_SERVICE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/errors.h"
#include "base/lock.h"
#include "lifecycle/mover.h"
#include "lifecycle/protocol.h"

struct lifecycle;
struct service_job;

#define SERVICE_ALL UINT32_MAX
#define SERVICE_SOFT_AFTER_NS 1000000000ull
#define SERVICE_END_NS 5000000000ull /* at the end of the process: for a move under way, and for calls that wait */

enum service_verb { SERVICE_OFFLOAD, SERVICE_PARK, SERVICE_RESTORE, SERVICE_DISCARD, SERVICE_STEP /* of a barrier, phase.h */ };

struct service_request {
	enum service_verb verb;
	uint32_t object;     /* number of a rule, or SERVICE_ALL */
	uint64_t timeout_ns; /* for the hold; 0: 30 s */
	enum protocol_step step; /* STEP: the rest as well */
	uint32_t phase;
	bool arrived;
	uint64_t patience_ns; /* STEP_HOLD: calls that wait are served after that, whatever the barrier does */
	struct message_needs *needs; /* STEP_PLAN, STEP_HOLD: filled */
};

enum service_thread { SERVICE_NO_THREAD, SERVICE_RUNNING, SERVICE_STOPPED };

struct service {
	struct ranked_lock lock; /* RANK_SERVICE */
	pthread_cond_t changed;  /* a job came or is done, something is wanted, the thread stops */
	struct service_job *head, *tail; /* under lock */
	bool wanted; /* a gated call waits; under lock */
	bool recalled; /* host extents are; under lock */
	bool stop;   /* the thread is to end; under lock */
	bool ending; /* the process ends: no request any more; under lock */
	uint64_t end_ns; /* when waiting calls are refused; 0: none has waited yet; the thread's */
	bool busy;   /* inside driver calls; under lock */
	bool held;   /* the gate is shut by this module; written by the thread, under lock */
	/* Calls that wait are not served before; 0: no barrier, or the gate was opened in it; the thread's. */
	uint64_t barrier_until_ns;
	enum service_thread thread; /* under lock */
	pthread_t handle;
	/* May the bytes of rule @rule be lost? NULL: of none, there is no policy that says so. */
	bool (*may_discard)(void *arg, uint32_t rule);
	void *may_discard_arg;
	/* Where an allocation shall be in a phase; NULL: where it is. */
	enum residency (*wants)(void *arg, const struct allocation *allocation, uint32_t phase, bool arrived);
	void *wants_arg;
	void (*says_stuck)(struct lifecycle *lc, bool stuck); /* exchange.h */
	bool exchanges; /* this barrier does, so the way back does too; the thread's */
};

/* After gate_init. */
void service_init(struct lifecycle *lc);
/* At process end: no request is served any more, a hold that has not come about is given up, and a move under way ends with the
 * allocation it is at (for that SERVICE_END_NS are waited, else @wait_ns). The gate is open, unless bytes are away: then the thread
 * goes on for those that wait in front of it, on whose behalf alone it calls the driver, and opens it when all is back. False: it did
 * not come to rest in time, or its lock is held by this very thread (a signal handler that ends the process); then calls are
 * refused where bytes are away. */
bool service_stop(struct lifecycle *lc, uint64_t wait_ns);
/* Unit tests: stop, wait until the thread is gone, open the gate. */
void service_release(struct lifecycle *lc);
/* In a forked child. */
void service_forget(struct service *service);

/* Whom to ask before a discard. Before the first request. */
void service_set_policy(struct lifecycle *lc, bool (*may_discard)(void *arg, uint32_t rule), void *arg);
/* Who says what a phase wants (phase.h). Before the first request. */
void service_set_wants(struct lifecycle *lc,
	enum residency (*wants)(void *arg, const struct allocation *allocation, uint32_t phase, bool arrived), void *arg,
	void (*says_stuck)(struct lifecycle *lc, bool stuck));

/* Do @request and wait for the outcome; on any thread, no lock held, not inside a gated call. Nothing to do is success without a
 * hold. *ret_report is filled in any case. Errors of gate_hold and mover_move; INVALID: the object may not be discarded;
 * or a barrier is under way; SYSTEM: no thread, or the process ends. */
enum sublet_err service_do(struct lifecycle *lc, const struct service_request *request, struct move_report *ret_report,
	struct errinfo *reterr);

/* Have the thread let go of the host extents that are recalled (host_pool.h), between two moves when it is at one. False: there is no
 * thread, as nothing has been moved yet or the process ends. */
bool service_let_go(struct lifecycle *lc);

/* Is the gate shut until somebody restores or parks what is away? */
bool service_held(struct lifecycle *lc);

struct service_object {
	uint32_t rule; /* RULE_NONE: of no known rule */
	uint32_t count;
	uint64_t bytes[RESIDENCY_COUNT];
	uint64_t exposed_bytes; /* of these, what will not move: the application holds handles of its pages */
};

/* Live allocations per rule, in the order of the rules; at most @capacity rows. *ret_count is how many were filled, or, when it is
 * above @capacity, no less than are needed: some rules are left out then. */
void service_objects(struct lifecycle *lc, struct service_object *rows, size_t capacity, size_t *ret_count);

#endif
