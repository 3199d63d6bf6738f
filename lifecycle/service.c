/* lifecycle/service.c
 * Jobs are done in the order they came. The gate is shut and opened here alone, on the service thread. */
#include "lifecycle/service.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/size.h"
#include "lifecycle/exchange.h"
#include "lifecycle/gate.h"
#include "lifecycle/lifecycle.h"
#include "lifecycle/phase.h"
#include "lifecycle/trace_note.h"

#define HOLD_DEADLINE_NS 250000000ull
#define HOLD_TIMEOUT_NS 30000000000ull

/* On the stack of who waits for it. */
struct service_job {
	const struct service_request *request;
	struct move_report *report;
	struct errinfo *error;
	enum sublet_err err;
	bool done; /* under the lock */
	struct service_job *next;
};

/* On a thread of the application, in front of the gate. */
static void call_waits(void *arg)
{
	struct lifecycle *lc = arg;

	ranked_lock(&lc->service.lock);
	lc->service.wanted = true;
	pthread_cond_broadcast(&lc->service.changed);
	ranked_unlock(&lc->service.lock);
}

void service_init(struct lifecycle *lc)
{
	struct service *service = &lc->service;
	pthread_condattr_t attributes;

	memset(service, 0, sizeof(*service));
	ranked_lock_init(&service->lock, RANK_SERVICE);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&service->changed, &attributes);
	pthread_condattr_destroy(&attributes);
	/* Once, while nobody waits: those in front of the gate read it. */
	gate_on_wait(&lc->gate, SERVICE_SOFT_AFTER_NS, call_waits, lc);
}

void service_set_policy(struct lifecycle *lc, bool (*may_discard)(void *, uint32_t), void *arg)
{
	lc->service.may_discard = may_discard;
	lc->service.may_discard_arg = arg;
}

void service_set_wants(struct lifecycle *lc,
	enum residency (*wants)(void *arg, const struct allocation *allocation, uint32_t phase, bool arrived), void *arg,
	void (*says_stuck)(struct lifecycle *lc, bool stuck))
{
	lc->service.wants = wants;
	lc->service.wants_arg = arg;
	lc->service.says_stuck = says_stuck;
}

void service_forget(struct service *service)
{
	service->head = service->tail = NULL;
	service->wanted = service->recalled = service->busy = service->held = false;
	service->stop = service->ending = true;
	service->thread = SERVICE_STOPPED;
}

/* Caller holds the lock, and has it again. */
static void wait_changed(struct service *service, uint64_t ns)
{
	uint64_t until = clock_now_ns() + ns;
	struct timespec deadline = {.tv_sec = (time_t)(until / 1000000000ull), .tv_nsec = (long)(until % 1000000000ull)};

	pthread_cond_timedwait(&service->changed, &service->lock.mutex, &deadline);
}

bool service_held(struct lifecycle *lc)
{
	bool held;

	ranked_lock(&lc->service.lock);
	held = lc->service.held;
	ranked_unlock(&lc->service.lock);
	return held;
}

/* ---- the gate ---- */

static void set_held(struct lifecycle *lc, bool held)
{
	ranked_lock(&lc->service.lock);
	lc->service.held = held;
	if (!held) {
		lc->service.wanted = false;
		lc->service.barrier_until_ns = 0;
	}
	pthread_cond_broadcast(&lc->service.changed);
	ranked_unlock(&lc->service.lock);
}

/* @deadline_ns: of the first try. */
static enum sublet_err hold(struct lifecycle *lc, uint64_t deadline_ns, uint64_t timeout_ns, struct errinfo *reterr)
{
	const struct gate_timing timing = {deadline_ns, timeout_ns ? timeout_ns : HOLD_TIMEOUT_NS};
	enum sublet_err err;

	if (lc->service.held)
		return SUBLET_OK;
	err = gate_hold(lc, &timing, reterr);
	if (!err)
		set_held(lc, true);
	return err;
}

static void open_unless_holes(struct lifecycle *lc, uint64_t holes)
{
	if (!lc->service.held || holes)
		return;
	set_held(lc, false);
	gate_open(lc);
}

/* ---- requests ---- */

struct selection {
	struct lifecycle *lc;
	uint32_t object;
	bool discard;
	int residency; /* -1: any */
};

static bool may_discard(struct lifecycle *lc, uint32_t rule)
{
	return rule != RULE_NONE && lc->service.may_discard && lc->service.may_discard(lc->service.may_discard_arg, rule);
}

static bool selects(void *arg, const struct allocation *allocation)
{
	const struct selection *selection = arg;

	if (selection->object != SERVICE_ALL && allocation->rule != selection->object)
		return false;
	if (selection->residency >= 0 && (int)allocation->residency != selection->residency)
		return false;
	return !selection->discard || may_discard(selection->lc, allocation->rule);
}

static enum residency target_of(enum service_verb verb)
{
	switch (verb) {
	case SERVICE_OFFLOAD:
		return RESIDENCY_HOST;
	case SERVICE_PARK:
		return RESIDENCY_PARKED;
	case SERVICE_RESTORE:
		return RESIDENCY_DEVICE;
	case SERVICE_DISCARD:
	case SERVICE_STEP:
		break;
	}
	return RESIDENCY_EMPTY;
}

static const char *verb_name(enum service_verb verb)
{
	static const char *const names[] = {
		[SERVICE_OFFLOAD] = "offload", [SERVICE_PARK] = "park", [SERVICE_RESTORE] = "restore", [SERVICE_DISCARD] = "discard"};

	return names[verb];
}

static bool moves(enum protocol_step step)
{
	return step == PROTOCOL_STEP_EXCHANGE || step == PROTOCOL_STEP_RELEASE || step == PROTOCOL_STEP_ACQUIRE || step == PROTOCOL_STEP_REVERSE;
}

/* All processes are held or none is: one try here, the barrier has the next one made by all. */
static enum sublet_err serve_step(struct lifecycle *lc, const struct service_request *request, struct move_report *report,
	struct errinfo *reterr)
{
	enum sublet_err err = SUBLET_OK;

	*report = (struct move_report){0};
	if (request->step == PROTOCOL_STEP_HOLD) {
		lc->service.barrier_until_ns = clock_now_ns() + request->patience_ns;
		err = hold(lc, request->timeout_ns, request->timeout_ns, reterr);
	}
	if (!err && moves(request->step) && !lc->service.barrier_until_ns)
		err = errinfo_set(reterr, SUBLET_ERR_INVALID, 0, "its gate has been opened since the hold, so nothing moves");
	if (!err)
		err = phase_step(lc, request, report, reterr);
	if (err && request->step == PROTOCOL_STEP_HOLD)
		lc->service.barrier_until_ns = 0;
	if (request->step == PROTOCOL_STEP_OPEN || request->step == PROTOCOL_STEP_REOPEN) {
		lc->service.barrier_until_ns = 0;
		open_unless_holes(lc, report->holes);
	}
	return err;
}

static enum sublet_err serve(struct lifecycle *lc, const struct service_request *request, struct move_report *report,
	struct errinfo *reterr)
{
	struct selection selection = {lc, request->object, request->verb == SERVICE_DISCARD, -1};
	const struct move_request move = {
		.target = target_of(request->verb),
		.discard = selection.discard,
		.selects = selects,
		.arg = &selection,
	};
	char size[16];
	enum sublet_err err;

	if (request->verb == SERVICE_STEP)
		return serve_step(lc, request, report, reterr);
	*report = (struct move_report){0};
	/* Accepted before it began. What would move has its place noted, and the gate is the barrier's. */
	if (clock_now_ns() < lc->service.barrier_until_ns)
		return errinfo_set(reterr, SUBLET_ERR_INVALID, 0,
			"the session is between two phases; try again when the next has begun");
	if (selection.discard && request->object != SERVICE_ALL && !may_discard(lc, request->object))
		return errinfo_set(reterr, SUBLET_ERR_INVALID, 0,
			"the policy does not say that the bytes of this object may be lost: offload it, or give it the class 'regenerable'");
	/* what an exchange has left between two places is no mover's, and would keep the gate shut */
	if (lc->service.held)
		exchange_settle(lc);
	/* A hold costs the application a stop; a repeated request needs none. */
	if (!mover_would_move(lc, &move, report)) {
		open_unless_holes(lc, report->holes); /* the last one may have been freed */
		return SUBLET_OK;
	}
	err = hold(lc, HOLD_DEADLINE_NS, request->timeout_ns, reterr);
	if (err)
		return err;
	err = mover_move(lc, &move, report, reterr);
	open_unless_holes(lc, report->holes);
	log_say(LOG_RESIDENCY, LOG_INFO, WHOSE_NONE, "%s: %s in %u allocations moved in %llu ms, %u failed, %s",
		verb_name(request->verb), size_format(report->moved_bytes, size, sizeof(size)),
		report->moved, (unsigned long long)(report->total_ns / CLOCK_NS_PER_MS), report->failed,
		lc->service.held ? "held" : "open");
	return err;
}

/* A call has waited long enough: park what is in host memory, fill what is empty, whichever way fits. */
static enum sublet_err fill_holes(struct lifecycle *lc, enum residency from, enum residency first, enum residency second,
	struct move_report *report, struct errinfo *reterr)
{
	struct selection selection = {lc, SERVICE_ALL, false, (int)from};
	struct move_request move = {.target = first, .selects = selects, .arg = &selection};
	enum sublet_err err = mover_move(lc, &move, report, reterr);

	if (!err)
		return err;
	move.target = second;
	return mover_move(lc, &move, report, reterr);
}

static bool is_ending(struct lifecycle *lc)
{
	bool ending;

	ranked_lock(&lc->service.lock);
	ending = lc->service.ending;
	ranked_unlock(&lc->service.lock);
	return ending;
}

/* Nothing waits for ever while the process ends. Room may come yet, as others end too; any other error stays. */
static void refuse_at_the_end(struct lifecycle *lc, enum sublet_err err, uint64_t holes, const char *why)
{
	struct service *service = &lc->service;

	if (!is_ending(lc))
		return;
	if (!service->end_ns)
		service->end_ns = clock_now_ns() + SERVICE_END_NS;
	if (err == SUBLET_ERR_NOMEM && clock_now_ns() < service->end_ns)
		return;
	log_say(LOG_RESIDENCY, LOG_ERROR, WHOSE_NONE,
		"the process ends, and %llu allocations can neither be parked nor restored: calls that touch memory are refused from here on",
		(unsigned long long)holes);
	log_say(LOG_RESIDENCY, LOG_ERROR, WHOSE_NONE, "%s", why);
	set_held(lc, false);
	gate_refuse(&lc->gate);
}

static void serve_waiting(struct lifecycle *lc)
{
	const uint64_t begun_ns = clock_now_ns();
	struct move_report host, empty;
	struct errinfo error = {0};
	char host_size[16], empty_size[16];
	enum sublet_err err, err_empty;
	bool settled;

	/* no step of a barrier comes any more once the process ends */
	if (!lc->service.held || (clock_now_ns() < lc->service.barrier_until_ns && !is_ending(lc)))
		return;
	lc->service.barrier_until_ns = 0; /* what it left is served now, so its steps come too late */
	settled = exchange_settle(lc);
	err = fill_holes(lc, RESIDENCY_HOST, RESIDENCY_PARKED, RESIDENCY_DEVICE, &host, &error);
	err_empty = fill_holes(lc, RESIDENCY_EMPTY, RESIDENCY_DEVICE, RESIDENCY_PARKED, &empty, err ? NULL : &error);
	if (!err && !err_empty && !settled) /* what the mover leaves alone */
		err = errinfo_set(&error, SUBLET_ERR_NOMEM, 0, "neither memory has room for all of what an exchange has left between them");
	open_unless_holes(lc, empty.holes);
	trace_note_soft_service(lc, begun_ns, host.moved_bytes + empty.moved_bytes, err ? err : err_empty);
	if (!lc->service.held)
		log_say(LOG_RESIDENCY, is_ending(lc) ? LOG_INFO : LOG_WARN, WHOSE_FRAMEWORK,
			"the gate opens for those that wait in front of it: %s came back from host memory, %s of fresh pages were made",
			size_format(host.moved_bytes, host_size, sizeof(host_size)),
			size_format(empty.moved_bytes, empty_size, sizeof(empty_size)));
	else if (err || err_empty)
		log_limited(LOG_RESIDENCY, LOG_ERROR, WHOSE_NONE,
			"calls wait in front of the shut gate, and %llu allocations can neither be parked nor restored: %s",
			(unsigned long long)empty.holes, error.text);
	if (lc->service.held)
		refuse_at_the_end(lc, err ? err : err_empty, empty.holes, error.text);
}

/* ---- the thread ---- */

static struct service_job *next_job(struct service *service)
{
	struct service_job *job = service->head;

	if (job) {
		service->head = job->next;
		if (!service->head)
			service->tail = NULL;
	}
	return job;
}

/* Something to do, or nothing any more. Caller holds the lock. False: stop. */
static bool wait_for_work(struct service *service)
{
	/* What could not be served is tried again at this rate. */
	bool tried = service->wanted;

	while (!service->stop && !service->head) {
		if (service->recalled || (service->wanted && !tried))
			return true;
		if (tried) {
			wait_changed(service, SERVICE_SOFT_AFTER_NS);
			tried = false;
		} else {
			pthread_cond_wait(&service->changed, &service->lock.mutex);
		}
	}
	return !service->stop;
}

static void *service_main(void *arg)
{
	struct lifecycle *lc = arg;
	struct service *service = &lc->service;
	struct driver_scope scope;
	bool entered = false;

	pthread_setname_np(pthread_self(), "sublet-service");
	if (lc->config.thread_begins)
		lc->config.thread_begins();
	ranked_lock(&service->lock);
	while (wait_for_work(service)) {
		const bool recalled = service->recalled;
		struct service_job *job = recalled ? NULL : next_job(service);

		service->recalled = false;
		service->busy = true;
		ranked_unlock(&service->lock);
		/* For good: no thread but this one makes these calls. */
		if (!entered)
			driver_enter(&lc->driver, &scope);
		entered = true;
		if (recalled)
			host_pool_let_go(lc);
		else if (job)
			job->err = serve(lc, job->request, job->report, job->error);
		else
			serve_waiting(lc);
		ranked_lock(&service->lock);
		service->busy = false;
		if (job)
			job->done = true;
		pthread_cond_broadcast(&service->changed);
	}
	service->thread = SERVICE_STOPPED;
	pthread_cond_broadcast(&service->changed);
	ranked_unlock(&service->lock);
	return NULL;
}

/* Caller holds the lock. */
static enum sublet_err ensure_thread(struct lifecycle *lc, struct errinfo *reterr)
{
	struct service *service = &lc->service;
	sigset_t all, before;
	int error;

	if (service->stop || service->ending)
		return errinfo_set(reterr, SUBLET_ERR_SYSTEM, 0, "the process ends");
	if (service->thread == SERVICE_RUNNING)
		return SUBLET_OK;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(&service->handle, NULL, service_main, lc);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (error)
		return errinfo_set(reterr, SUBLET_ERR_SYSTEM, 0, "no thread to serve requests on (%s)",
			error == EAGAIN ? "thread limit reached" : "pthread_create failed");
	service->thread = SERVICE_RUNNING;
	return SUBLET_OK;
}

enum sublet_err service_do(struct lifecycle *lc, const struct service_request *request, struct move_report *ret_report,
	struct errinfo *reterr)
{
	struct service *service = &lc->service;
	struct service_job job = {.request = request, .report = ret_report, .error = reterr};

	*ret_report = (struct move_report){0};
	ranked_lock(&service->lock);
	job.err = ensure_thread(lc, reterr);
	if (!job.err) {
		if (service->tail)
			service->tail->next = &job;
		else
			service->head = &job;
		service->tail = &job;
		pthread_cond_broadcast(&service->changed);
		while (!job.done && service->thread == SERVICE_RUNNING)
			pthread_cond_wait(&service->changed, &service->lock.mutex);
		if (!job.done)
			job.err = errinfo_set(reterr, SUBLET_ERR_SYSTEM, 0, "the process ends");
	}
	ranked_unlock(&service->lock);
	return job.err;
}

bool service_let_go(struct lifecycle *lc)
{
	struct service *service = &lc->service;
	bool runs;

	ranked_lock(&service->lock);
	runs = service->thread == SERVICE_RUNNING && !service->stop;
	service->recalled |= runs;
	pthread_cond_broadcast(&service->changed);
	ranked_unlock(&service->lock);
	return runs;
}

/* Caller holds the lock. */
static void refuse_queued(struct service *service)
{
	struct service_job *job;

	while ((job = next_job(service))) {
		job->err = errinfo_set(job->error, SUBLET_ERR_SYSTEM, 0, "the process ends");
		job->done = true;
	}
	pthread_cond_broadcast(&service->changed);
}

bool service_stop(struct lifecycle *lc, uint64_t wait_ns)
{
	struct service *service = &lc->service;
	const uint64_t begun = clock_now_ns();
	bool quiet, held;

	__atomic_store_n(&lc->mover.stop, true, __ATOMIC_RELEASE);
	gate_no_more_holds(&lc->gate);
	/* Held by this thread itself when the process ends in a signal handler. */
	if (!ranked_lock_within(&service->lock, wait_ns)) {
		if (gate_is_shut(&lc->gate))
			gate_refuse(&lc->gate);
		return false;
	}
	service->ending = true;
	refuse_queued(service);
	while (service->busy && clock_now_ns() - begun < (service->held ? SERVICE_END_NS : wait_ns))
		wait_changed(service, CLOCK_NS_PER_MS);
	quiet = !service->busy;
	held = service->held;
	service->stop = !held || !quiet;
	/* From here on the mover works for those that wait. */
	__atomic_store_n(&lc->mover.stop, service->stop, __ATOMIC_RELEASE);
	pthread_cond_broadcast(&service->changed);
	ranked_unlock(&service->lock);
	if (held && !quiet)
		gate_refuse(&lc->gate); /* the driver does not come back, and bytes are on their way */
	else if (!held)
		gate_open(lc); /* one that no request has asked for */
	return quiet;
}

void service_release(struct lifecycle *lc)
{
	struct service *service = &lc->service;
	bool started;

	ranked_lock(&service->lock);
	started = service->thread != SERVICE_NO_THREAD;
	service->stop = true; /* a request under way is done to its end */
	pthread_cond_broadcast(&service->changed);
	ranked_unlock(&service->lock);
	if (started)
		pthread_join(service->handle, NULL);
	gate_open(lc);
	pthread_cond_destroy(&service->changed);
	ranked_lock_release(&service->lock);
}

/* ---- objects ---- */

/* The row of @rule among @filled ones in order; NULL when there is none and no room for it. */
static struct service_object *row_of(struct service_object *rows, size_t capacity, size_t *filled, uint32_t rule)
{
	size_t at = 0;

	while (at < *filled && rows[at].rule < rule)
		at++;
	if (at < *filled && rows[at].rule == rule)
		return &rows[at];
	if (*filled == capacity)
		return NULL;
	memmove(&rows[at + 1], &rows[at], (*filled - at) * sizeof(*rows));
	rows[at] = (struct service_object){.rule = rule};
	++*filled;
	return &rows[at];
}

void service_objects(struct lifecycle *lc, struct service_object *rows, size_t capacity, size_t *ret_count)
{
	size_t filled = 0, left_out = 0;

	ranked_lock(&lc->records.lock);
	for (const struct allocation *allocation = lc->records.live; allocation; allocation = allocation->next) {
		struct service_object *row = row_of(rows, capacity, &filled, allocation->rule);

		if (!row) {
			left_out++;
			continue;
		}
		row->count++;
		row->bytes[allocation->residency] += allocation->span_bytes;
		row->exposed_bytes += allocation->exposed ? allocation->span_bytes : 0;
	}
	ranked_unlock(&lc->records.lock);
	*ret_count = filled + left_out;
}
