/* lifecycle/service.h
 * What a request from outside means in this process: hold the gate, move, open it unless holes remain. All of it happens on
 * one thread of Sublet's own, started at the first need, signals blocked, capture mode RELAXED.
 *
 * A client with holes is held softly: a gated call that has waited 1 s gets it served. What is in host memory is parked (no
 * copy) or, where nothing can be parked, restored; what is empty gets fresh pages. Then the gate opens, with one line. What
 * cannot be served is tried again every second for as long as the client is held. */
#ifndef SUBLET_LIFECYCLE_SERVICE_H
#define SUBLET_LIFECYCLE_SERVICE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/errors.h"
#include "base/lock.h"
#include "lifecycle/mover.h"

struct lifecycle;
struct service_job;

#define SERVICE_ALL UINT32_MAX
#define SERVICE_SOFT_AFTER_NS 1000000000ull

enum service_verb { SERVICE_OFFLOAD, SERVICE_PARK, SERVICE_RESTORE, SERVICE_DISCARD };

struct service_request {
	enum service_verb verb;
	uint32_t object;     /* number of a rule, or SERVICE_ALL */
	uint64_t timeout_ns; /* for the hold; 0: 30 s */
};

enum service_thread { SERVICE_NO_THREAD, SERVICE_RUNNING, SERVICE_STOPPED };

struct service {
	struct ranked_lock lock; /* RANK_SERVICE */
	pthread_cond_t changed;  /* a job came or is done, something is wanted, the thread stops */
	struct service_job *head, *tail; /* under lock */
	bool wanted; /* a gated call waits; under lock */
	bool stop;   /* under lock */
	bool busy;   /* inside driver calls; under lock */
	bool held;   /* the gate is shut by this module; written by the thread, under lock */
	enum service_thread thread; /* under lock */
	pthread_t handle;
	/* May the bytes of rule @rule be lost? NULL: of none, there is no policy that says so. */
	bool (*may_discard)(void *arg, uint32_t rule);
	void *may_discard_arg;
};

void service_init(struct lifecycle *lc);
/* At process end: what is held is parked and the gate opened, so that destructors do not wait for ever; after @wait_ns it is
 * opened anyhow. Then the thread makes no further driver call (true), or did not come to an end in time (false). */
bool service_stop(struct lifecycle *lc, uint64_t wait_ns);
/* Unit tests: stop, wait until the thread is gone, open the gate. */
void service_release(struct lifecycle *lc);
/* In a forked child. */
void service_forget(struct service *service);

/* Whom to ask before a discard. Before the first request. */
void service_set_policy(struct lifecycle *lc, bool (*may_discard)(void *arg, uint32_t rule), void *arg);

/* Do @request and wait for the outcome; on any thread, no lock held, not inside a gated call. Nothing to do is success without a
 * hold. *ret_report is filled in any case. Errors of gate_hold and mover_move; INVALID: the object may not be discarded;
 * SYSTEM: no thread, or the process ends. */
enum sublet_err service_do(struct lifecycle *lc, const struct service_request *request, struct move_report *ret_report,
	struct errinfo *reterr);

/* Is the gate shut until somebody restores or parks what is away? */
bool service_held(struct lifecycle *lc);

struct service_object {
	uint32_t rule; /* RULE_NONE: of no known rule */
	uint32_t count;
	uint64_t bytes[RESIDENCY_COUNT];
	uint64_t exposed_bytes; /* of these, what will not move: the application holds handles of its pages */
};

/* Live allocations per rule, in the order of the rules; at most @capacity rows. *ret_count is how many there are. */
void service_objects(struct lifecycle *lc, struct service_object *rows, size_t capacity, size_t *ret_count);

#endif
