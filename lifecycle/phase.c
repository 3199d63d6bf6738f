/* lifecycle/phase.c
 * The moves of a phase are those of the mover, one request for each residency that is a target. What leaves the device goes
 * first, so that its room is there for what comes, here and in the other processes. */
#include "lifecycle/phase.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/size.h"
#include "lifecycle/exchange.h"
#include "lifecycle/lifecycle.h"
#include "lifecycle/trace_note.h"
#include "lifecycle/needs.h"

struct wish {
	struct lifecycle *lc;
	const struct service_request *request;
	bool back; /* to where it was at the hold */
	enum residency target;
};

static enum residency wanted(const struct wish *wish, const struct allocation *allocation)
{
	const struct service *service = &wish->lc->service;

	if (wish->back)
		return allocation->before;
	if (!service->wants)
		return allocation->residency;
	return service->wants(service->wants_arg, allocation, wish->request->phase, wish->request->arrived);
}

/* Under RANK_RECORDS. */
static bool selects(void *arg, const struct allocation *allocation)
{
	const struct wish *wish = arg;

	/* made since the hold: nobody has planned for it, and no way back is known */
	if (!allocation->noted)
		return false;
	return allocation->residency != wish->target && wanted(wish, allocation) == wish->target;
}

static void add(struct move_report *sum, const struct move_report *one)
{
	sum->moved_bytes += one->moved_bytes;
	sum->moved += one->moved;
	sum->skipped += one->skipped;
	sum->skipped_bytes += one->skipped_bytes;
	sum->failed += one->failed;
	sum->copy_ns += one->copy_ns;
	sum->total_ns += one->total_ns;
	sum->holes = one->holes;
	if (!sum->text[0])
		memcpy(sum->text, one->text, sizeof(sum->text));
}

static enum residency wanted_of(void *arg, const struct allocation *allocation)
{
	const struct wish *wish = arg;

	return allocation->noted || wish->request->step == PROTOCOL_STEP_PLAN ? wanted(wish, allocation) : allocation->residency;
}

static void tell_needs(struct lifecycle *lc, struct wish *wish)
{
	const struct needs_wish needs = {.wanted = wanted_of, .arg = wish};

	if (wish->request->needs)
		needs_count(lc, &needs, wish->request->step == PROTOCOL_STEP_HOLD, wish->request->needs);
}

static enum sublet_err exchange(struct lifecycle *lc, struct wish *wish, struct move_report *report, struct errinfo *reterr)
{
	const struct exchange exchange = {.wanted = wanted_of, .arg = wish, .says_stuck = lc->service.says_stuck};

	return exchange_run(lc, &exchange, report, reterr);
}

/* Counted, not moved. */
static void plan(struct lifecycle *lc, const struct service_request *request, struct move_report *report)
{
	struct wish wish = {.lc = lc, .request = request};

	*report = (struct move_report){0};
	ranked_lock(&lc->records.lock);
	for (const struct allocation *allocation = lc->records.live; allocation; allocation = allocation->next) {
		enum residency target = wanted(&wish, allocation);

		report->holes += residency_is_hole(allocation->residency);
		if (target == allocation->residency || !residency_change(allocation->residency, target) ||
			(allocation->exposed && !residency_is_hole(allocation->residency)))
			continue;
		report->moved++;
		report->moved_bytes += allocation->span_bytes;
	}
	ranked_unlock(&lc->records.lock);
}

static void note(struct lifecycle *lc)
{
	ranked_lock(&lc->records.lock);
	for (struct allocation *allocation = lc->records.live; allocation; allocation = allocation->next) {
		allocation->before = allocation->residency;
		allocation->noted = true;
	}
	ranked_unlock(&lc->records.lock);
}

static enum sublet_err move_to(struct lifecycle *lc, struct wish *wish, enum residency target, struct move_report *report,
	struct errinfo *reterr)
{
	const struct move_request move = {
		.target = target, .discard = target == RESIDENCY_EMPTY, .selects = selects, .arg = wish};
	struct move_report one;
	enum sublet_err err;

	wish->target = target;
	if (!mover_would_move(lc, &move, &one)) {
		report->holes = one.holes;
		return SUBLET_OK;
	}
	err = mover_move(lc, &move, &one, reterr);
	add(report, &one);
	return err;
}

static enum sublet_err move_each(struct lifecycle *lc, struct wish *wish, const enum residency *targets, size_t count,
	struct move_report *report, struct errinfo *reterr)
{
	enum sublet_err err = SUBLET_OK;

	*report = (struct move_report){0};
	for (size_t i = 0; !err && i < count; i++)
		err = move_to(lc, wish, targets[i], report, reterr);
	return err;
}

/* What was discarded comes back as pages without content. The policy allows that, at a boundary that now was none: whoever reads on in
 * the old phase has to know. */
static void tell_lost(struct lifecycle *lc, struct move_report *report)
{
	uint64_t bytes = 0;
	uint32_t count = 0;
	char size[16];

	ranked_lock(&lc->records.lock);
	for (const struct allocation *allocation = lc->records.live; allocation; allocation = allocation->next) {
		if (!allocation->noted || allocation->residency != RESIDENCY_EMPTY || allocation->before == RESIDENCY_EMPTY)
			continue;
		bytes += allocation->span_bytes;
		count++;
	}
	ranked_unlock(&lc->records.lock);
	if (!count)
		return;
	snprintf(report->text, sizeof(report->text), "%s in %u allocations had been discarded before it failed: they come back without their content",
		size_format(bytes, size, sizeof(size)), count);
	log_say(LOG_RESIDENCY, LOG_WARN, WHOSE_NONE, "a phase did not begin, and %s", report->text);
}

/* Whatever can be; what cannot stays where it is, and the first reason is told. What was empty has fresh pages at most, which nobody
 * has written while the gate was shut. */
static enum sublet_err reverse(struct lifecycle *lc, const struct service_request *request, struct move_report *report,
	struct errinfo *reterr)
{
	static const enum residency targets[] = {RESIDENCY_EMPTY, RESIDENCY_HOST, RESIDENCY_PARKED, RESIDENCY_DEVICE};
	struct wish wish = {.lc = lc, .request = request, .back = true};
	enum sublet_err first = SUBLET_OK;

	*report = (struct move_report){0};
	tell_lost(lc, report);
	if (lc->service.exchanges) {
		struct move_report one;

		first = exchange(lc, &wish, &one, reterr);
		add(report, &one);
	}
	for (size_t i = 0; i < sizeof(targets) / sizeof(targets[0]); i++) {
		enum sublet_err err = move_to(lc, &wish, targets[i], report, first ? NULL : reterr);

		first = first ? first : err;
	}
	return first;
}

enum sublet_err phase_step(struct lifecycle *lc, const struct service_request *request, struct move_report *report,
	struct errinfo *reterr)
{
	/* what is discarded goes last: the way back from that has no content */
	static const enum residency out[] = {RESIDENCY_HOST, RESIDENCY_PARKED, RESIDENCY_EMPTY}, in[] = {RESIDENCY_DEVICE};
	struct wish wish = {.lc = lc, .request = request};

	if (request->step != PROTOCOL_STEP_PLAN) /* that is not on the service thread */
		trace_note_device_free(lc);
	switch (request->step) {
	case PROTOCOL_STEP_PLAN:
		plan(lc, request, report);
		tell_needs(lc, &wish);
		return SUBLET_OK;
	case PROTOCOL_STEP_HOLD:
		lc->service.exchanges = false;
		note(lc);
		tell_needs(lc, &wish);
		*report = (struct move_report){.holes = mover_holes(lc)};
		return SUBLET_OK;
	case PROTOCOL_STEP_EXCHANGE:
		lc->service.exchanges = true;
		return exchange(lc, &wish, report, reterr);
	case PROTOCOL_STEP_RELEASE:
		return move_each(lc, &wish, out, sizeof(out) / sizeof(out[0]), report, reterr);
	case PROTOCOL_STEP_ACQUIRE:
		return move_each(lc, &wish, in, 1, report, reterr);
	case PROTOCOL_STEP_REVERSE:
		return reverse(lc, request, report, reterr);
	case PROTOCOL_STEP_REOPEN:
	case PROTOCOL_STEP_ROOM:
	case PROTOCOL_STEP_OPEN:
	case PROTOCOL_STEP_COUNT:
		break;
	}
	*report = (struct move_report){.holes = mover_holes(lc)};
	return SUBLET_OK;
}
