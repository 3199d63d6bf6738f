/* lifecycle/mover.c
 * Runs on one thread; what other threads do meanwhile (free, expose, change peers) meets the flags of the records. */
#include "lifecycle/mover.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/size.h"
#include "lifecycle/lanes.h"
#include "lifecycle/lifecycle.h"
#include "lifecycle/pieces.h"

/* Submitted and not yet committed: enough to keep the link busy while two allocations are mapped and unmapped, and no more,
 * since what is committed late gives its pages back late. */
#define AHEAD_BYTES (512ull << 20)
#define AHEAD_LEAST 2u

/* Pages on their way back to the driver are waited for so long: 16 GiB take 12 ms (FACTS.md). */
#define SETTLE_NS 200000000ull
#define LEAST(a, b) ((a) < (b) ? (a) : (b))

struct run {
	struct lifecycle *lc;
	const struct move_request *request;
	struct move_report *report;
	struct residency_move *moves;
	size_t count;
	struct lanes lanes;
	uint64_t first_copy_ns, last_copy_ns;
	struct errinfo first; /* failure */
	enum sublet_err err;
};

void mover_forget(struct mover *mover)
{
	memset(mover, 0, sizeof(*mover));
	mover->stop = true;
}

/* ---- room ---- */

#define ROOM_LOOK_NS 300000ull

void mover_room(struct lifecycle *lc, enum mover_room room, uint64_t wait_ns)
{
	__atomic_store_n(&lc->mover.room_until_ns, clock_now_ns() + wait_ns, __ATOMIC_RELAXED);
	__atomic_store_n(&lc->mover.room, room, __ATOMIC_RELEASE);
}

bool mover_wait_for_room(struct lifecycle *lc, bool *last_try)
{
	const int room = __atomic_load_n(&lc->mover.room, __ATOMIC_ACQUIRE);

	host_pool_let_go(lc); /* who gives room may itself wait for these */
	if (__atomic_load_n(&lc->mover.stop, __ATOMIC_ACQUIRE))
		return false;
	if (room == MOVER_ROOM_COMES && clock_now_ns() < __atomic_load_n(&lc->mover.room_until_ns, __ATOMIC_RELAXED)) {
		clock_sleep_ns(ROOM_LOOK_NS);
		return true;
	}
	/* it may have come between the try and the word that it has */
	if (room == MOVER_NO_ROOM || *last_try)
		return false;
	*last_try = true;
	return true;
}

/* ---- choosing ---- */

uint64_t mover_holes(struct lifecycle *lc)
{
	uint64_t holes = 0;

	ranked_lock(&lc->records.lock);
	for (const struct allocation *allocation = lc->records.live; allocation; allocation = allocation->next)
		holes += residency_is_hole(allocation->residency);
	ranked_unlock(&lc->records.lock);
	return holes;
}

static void count_skipped(struct move_report *report, const struct allocation *allocation)
{
	report->skipped++;
	report->skipped_bytes += allocation->span_bytes;
}

/* What the request is about, marked as moving. Caller holds RANK_RECORDS; there is room for every live allocation, or with
 * run->moves NULL they are only counted. */
static void choose_locked(struct run *run)
{
	struct lifecycle *lc = run->lc;
	struct move_report *report = run->report;
	const struct move_request *request = run->request;

	for (struct allocation *allocation = lc->records.live; allocation; allocation = allocation->next) {
		if (request->selects && !request->selects(request->arg, allocation))
			continue;
		if (!residency_change(allocation->residency, request->target)) {
			report->already++;
			report->already_bytes += allocation->span_bytes;
			continue;
		}
		if (allocation->exposed && !residency_is_hole(allocation->residency)) {
			count_skipped(report, allocation);
			if (!report->text[0])
				snprintf(report->text, sizeof(report->text),
					"left where it is: 0x%llx of %llu MiB, whose pages the application holds a handle of",
					(unsigned long long)allocation->address, (unsigned long long)(allocation->span_bytes >> 20));
			continue;
		}
		if (pieces_between(allocation) && request->target != RESIDENCY_EMPTY) {
			count_skipped(report, allocation);
			if (!report->text[0])
				snprintf(report->text, sizeof(report->text),
					"left where it is: 0x%llx of %llu MiB, which is in both memories until one has room for all of it",
					(unsigned long long)allocation->address, (unsigned long long)(allocation->span_bytes >> 20));
			continue;
		}
		if (!run->moves) {
			run->count++;
			continue;
		}
		run->moves[run->count++] = (struct residency_move){
			.allocation = allocation,
			.lane = &lc->mover.lanes[allocation->device],
			.from = allocation->residency,
			.to = request->target,
			.verify = request->verify || lc->config.verify,
			.generation = __atomic_load_n(&lc->contexts.peer_generation, __ATOMIC_ACQUIRE),
		};
		allocation->moving = true;
		allocation->buffer_id = ++lc->records.next_buffer_id;
	}
}

bool mover_would_move(struct lifecycle *lc, const struct move_request *request, struct move_report *ret_report)
{
	struct run run = {.lc = lc, .request = request, .report = ret_report};

	*ret_report = (struct move_report){0};
	ranked_lock(&lc->records.lock);
	choose_locked(&run);
	for (const struct allocation *allocation = lc->records.live; allocation; allocation = allocation->next)
		ret_report->holes += residency_is_hole(allocation->residency);
	ranked_unlock(&lc->records.lock);
	return run.count > 0;
}

static enum sublet_err choose(struct run *run, struct errinfo *reterr)
{
	struct records *records = &run->lc->records;
	size_t room = 0;

	for (;;) {
		ranked_lock(&records->lock);
		if (run->moves && records->live_count <= room) {
			choose_locked(run);
			ranked_unlock(&records->lock);
			return SUBLET_OK;
		}
		room = records->live_count + 16; /* for those that are made before the lock is had again */
		ranked_unlock(&records->lock);
		free(run->moves);
		run->moves = calloc(room, sizeof(*run->moves));
		if (!run->moves)
			return errinfo_set(reterr, SUBLET_ERR_SYSTEM, 0, "no host memory for a list of %zu allocations", room);
	}
}

/* ---- one allocation ---- */

static void note_failure(struct run *run, const struct errinfo *error)
{
	if (!run->err) {
		run->err = error->code;
		run->first = *error;
	}
	log_limited(LOG_RESIDENCY, LOG_WARN, WHOSE_NONE, "%s", error->text);
}

static enum sublet_err no_context(const struct residency_move *move, struct errinfo *reterr)
{
	return errinfo_set(reterr, SUBLET_ERR_DRIVER, 0, "the context of device %d cannot be made current",
		move->allocation->device);
}

static enum sublet_err take(struct run *run, struct residency_move *move, struct errinfo *reterr)
{
	enum sublet_err err = lanes_open(&run->lanes, move->allocation->device, reterr);

	if (err)
		return err;
	if (!lanes_enter(run->lc, move->lane))
		return no_context(move, reterr);
	if (move->to == RESIDENCY_PARKED && !host_pool_can_park(run->lc, move->allocation->device))
		err = errinfo_set(reterr, SUBLET_ERR_UNSUPPORTED, 0,
			"nothing can be parked: this driver has no HOST_NUMA memory (sublet doctor says more); offload instead");
	else
		err = residency_take(run->lc, move, reterr);
	lanes_leave(run->lc);
	return err;
}

static enum sublet_err prepare(struct run *run, struct residency_move *move, struct errinfo *reterr)
{
	enum sublet_err err;

	if (!lanes_enter(run->lc, move->lane))
		return no_context(move, reterr);
	err = residency_prepare(run->lc, move, reterr);
	lanes_leave(run->lc);
	if (move->copying && !run->first_copy_ns)
		run->first_copy_ns = clock_now_ns();
	return err;
}

/* Nothing of a move that has not been committed is left but the allocation as it is. */
static void undo(struct run *run, struct residency_move *move)
{
	bool entered = lanes_enter(run->lc, move->lane);

	residency_undo(run->lc, move);
	if (entered)
		lanes_leave(run->lc);
}

static enum sublet_err finish(struct run *run, struct residency_move *move, struct errinfo *reterr)
{
	bool copied = move->copying;
	enum sublet_err err;

	if (!lanes_enter(run->lc, move->lane))
		return no_context(move, reterr);
	err = residency_wait(run->lc, move, reterr);
	if (!err && copied)
		run->last_copy_ns = clock_now_ns();
	if (!err)
		err = residency_commit(run->lc, move, reterr);
	move->committed = !err;
	lanes_leave(run->lc);
	return err;
}

/* ---- all of them ---- */

/* One did not get there. True: the others go on. A discard has no way back, and what SUBLET_VERIFY found wrong stays wrong. */
static bool fails_alone(struct run *run, struct residency_move *move, const struct errinfo *error)
{
	undo(run, move);
	/* Freed or exposed meanwhile: no fault of the request. */
	move->skipped = error->code == SUBLET_ERR_INVALID;
	move->failed = !move->skipped;
	if (move->failed)
		note_failure(run, error);
	return move->skipped || move->mismatch || run->request->discard;
}

static bool stopped(const struct run *run)
{
	return __atomic_load_n(&run->lc->mover.stop, __ATOMIC_ACQUIRE);
}

/* True: all are where they should be, or failed alone. */
static bool move_all(struct run *run)
{
	struct errinfo error;
	uint64_t ahead_bytes = 0;
	size_t next = 0, oldest = 0;
	bool going_on = true;

	while (oldest < run->count && going_on) {
		struct residency_move *move;

		host_pool_let_go(run->lc);
		/* Handlers of its end may want the bytes yet, so each allocation is left in one piece and in one place. */
		if (next < run->count && stopped(run)) {
			run->err = errinfo_set(&run->first, SUBLET_ERR_SYSTEM, 0, "the process ends");
			while (next < run->count)
				run->moves[next++].skipped = true;
		}
		if (next < run->count && (ahead_bytes < AHEAD_BYTES || next - oldest < AHEAD_LEAST)) {
			move = &run->moves[next++];
			ahead_bytes += move->allocation->span_bytes;
			move->begun = true;
			if (!move->skipped && prepare(run, move, &error))
				going_on = fails_alone(run, move, &error);
			continue;
		}
		move = &run->moves[oldest++];
		if (!move->begun)
			continue;
		ahead_bytes -= move->allocation->span_bytes;
		if (!move->failed && !move->skipped && finish(run, move, &error))
			going_on = fails_alone(run, move, &error);
	}
	return going_on;
}

/* Back to where it came from. What cannot be brought back stays where it is, whole. */
static void bring_back(struct run *run, struct residency_move *move)
{
	struct residency_move back = {
		.allocation = move->allocation,
		.lane = move->lane,
		.from = move->allocation->residency,
		.to = move->from,
		.generation = move->generation,
		.host = move->host,
		.host_ready = move->host_ready,
		.failed = true,
	};
	struct errinfo error;

	move->host = NULL;
	if (take(run, &back, &error) || prepare(run, &back, &error) || finish(run, &back, &error)) {
		undo(run, &back);
		log_limited(LOG_RESIDENCY, LOG_WARN, WHOSE_NONE, "%s; it could not be brought back and stays %s", error.text,
			back.from == RESIDENCY_HOST ? "in host memory" : "where it is");
	}
	*move = back;
}

static void undo_all(struct run *run)
{
	for (size_t i = run->count; i-- > 0;) {
		struct residency_move *move = &run->moves[i];

		if (!move->committed && !move->failed && !move->skipped)
			undo(run, move);
		if (!move->skipped && move->allocation->residency != move->from)
			bring_back(run, move);
		move->failed = !move->skipped;
	}
}

/* Host extents for all, before a byte moves. */
static bool take_all(struct run *run)
{
	struct errinfo error;

	for (size_t i = 0; i < run->count && !stopped(run); i++) {
		struct residency_move *move = &run->moves[i];

		/* Perhaps its context has ended meanwhile, and the allocation with it. */
		move->skipped = !residency_still_wanted(run->lc, move);
		if (!move->skipped && take(run, move, &error)) {
			move->skipped = !residency_still_wanted(run->lc, move);
			if (move->skipped)
				continue;
			note_failure(run, &error);
			return false;
		}
	}
	return true;
}

static void report_on(struct run *run)
{
	struct move_report *report = run->report;

	for (size_t i = 0; i < run->count; i++) {
		const struct residency_move *move = &run->moves[i];

		if (move->skipped) {
			count_skipped(report, move->allocation);
		} else if (move->failed) {
			report->failed++;
		} else {
			report->moved++;
			report->moved_bytes += move->allocation->span_bytes;
		}
	}
	if (run->first_copy_ns && run->last_copy_ns > run->first_copy_ns)
		report->copy_ns = run->last_copy_ns - run->first_copy_ns;
}

static enum sublet_err contradiction(const struct lifecycle *lc, const struct move_request *request, struct errinfo *reterr)
{
	if ((unsigned)request->target >= RESIDENCY_COUNT)
		return errinfo_set(reterr, SUBLET_ERR_INVALID, 0, "%d is no residency", (int)request->target);
	if (request->discard != (request->target == RESIDENCY_EMPTY))
		return errinfo_set(reterr, SUBLET_ERR_INVALID, 0,
			request->discard ? "a discard that keeps bytes: ask for an offload" : "bytes would be lost: ask for a discard");
	if (!lc->driver.StreamCreate || !lc->driver.StreamDestroy || !lc->driver.StreamSynchronize || !lc->driver.EventRecord ||
		!lc->driver.MemcpyAsync || (lc->config.poisons && !lc->driver.MemsetD8Async))
		return errinfo_set(reterr, SUBLET_ERR_UNSUPPORTED, 0, "this libcuda lacks the calls for streams and copies: nothing can be moved");
	return SUBLET_OK;
}

enum sublet_err mover_move(struct lifecycle *lc, const struct move_request *request, struct move_report *ret_report,
	struct errinfo *reterr)
{
	struct run run = {.lc = lc, .request = request, .report = ret_report, .lanes = {.lc = lc}};
	const uint64_t begun = clock_now_ns();
	struct driver_scope scope;

	*ret_report = (struct move_report){0};
	run.err = contradiction(lc, request, &run.first);
	if (!run.err)
		run.err = choose(&run, &run.first);
	if (!run.err && run.count) {
		driver_enter(&lc->driver, &scope);
		/* What an earlier move could not unmap may lie where this one wants to map. */
		if (lc->mover.unsure)
			lc->mover.unsure = !reclaim_wait(lc, LEAST(lc->config.free_wait_ns, SETTLE_NS));
		reclaim_offer_again(lc);
		reclaim_settle(lc, SETTLE_NS);
		if (!take_all(&run) || !move_all(&run))
			undo_all(&run);
		report_on(&run);
		for (size_t i = 0; i < run.count; i++)
			residency_settle(lc, &run.moves[i]);
		driver_leave(&lc->driver, &scope);
		lanes_close(&run.lanes);
	}
	free(run.moves);
	ledger_settle(lc, true);
	ret_report->holes = mover_holes(lc);
	ret_report->total_ns = clock_now_ns() - begun;
	if (run.err && reterr)
		*reterr = run.first;
	return run.err;
}
