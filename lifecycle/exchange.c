/* lifecycle/exchange.c
 * One extent out, one in, and so on. Whoever waits here holds nothing that another waits for. */
#include "lifecycle/exchange.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "lifecycle/lanes.h"
#include "lifecycle/lifecycle.h"
#include "lifecycle/pieces.h"

struct run {
	struct lifecycle *lc;
	const struct exchange *exchange;
	struct move_report *report;
	struct lanes lanes;
	struct residency_move *moves;
	size_t count, at[2]; /* at: the first that may have a way to go, out and in */
	bool stuck; /* as it was said last */
};

static bool is_out(const struct residency_move *move)
{
	return move->to != RESIDENCY_DEVICE;
}

static bool has_arrived(const struct residency_move *move)
{
	return move->allocation->residency == move->to && !pieces_between(move->allocation);
}

/* What goes by extents, and where to. */
static bool goes(const struct exchange *exchange, const struct allocation *allocation, enum residency *ret_to)
{
	const enum residency wanted = exchange->wanted(exchange->arg, allocation);
	const bool between = pieces_between(allocation);

	if (allocation->exposed && !residency_is_hole(allocation->residency))
		return false;
	*ret_to = wanted == RESIDENCY_PARKED ? RESIDENCY_HOST : wanted;
	if (wanted == RESIDENCY_EMPTY)
		return false;
	return *ret_to == RESIDENCY_DEVICE ? allocation->residency == RESIDENCY_HOST : between || allocation->residency == RESIDENCY_DEVICE;
}

/* Caller holds RANK_RECORDS. */
static void choose_locked(struct run *run)
{
	struct lifecycle *lc = run->lc;
	enum residency to;

	for (struct allocation *allocation = lc->records.live; allocation; allocation = allocation->next) {
		if (!goes(run->exchange, allocation, &to))
			continue;
		run->moves[run->count++] = (struct residency_move){
			.allocation = allocation,
			.lane = &lc->mover.lanes[allocation->device],
			.from = allocation->residency,
			.to = to,
			.generation = UINT64_MAX, /* its extents come at different times: rights are given once more when all are there */
		};
		allocation->moving = true;
		allocation->buffer_id = ++lc->records.next_buffer_id;
	}
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

static void say(struct run *run, bool stuck)
{
	if (stuck != run->stuck && run->exchange->says_stuck)
		run->exchange->says_stuck(run->lc, stuck);
	run->stuck = stuck;
}

/* The first that has a way to go in that direction; those that were freed meanwhile have none. */
static struct residency_move *next_move(struct run *run, bool out)
{
	for (size_t *at = &run->at[out]; *at < run->count; ++*at) {
		struct residency_move *move = &run->moves[*at];

		if (is_out(move) != out || move->skipped || has_arrived(move))
			continue;
		move->skipped = !residency_still_wanted(run->lc, move);
		if (!move->skipped)
			return move;
	}
	return NULL;
}

static enum sublet_err one_extent(struct run *run, struct residency_move *move, struct errinfo *reterr)
{
	const uint64_t begun = clock_now_ns();
	uint64_t bytes = 0;
	enum sublet_err err = lanes_open(&run->lanes, move->allocation->device, reterr);

	if (err)
		return err;
	if (!lanes_enter(run->lc, move->lane))
		return errinfo_set(reterr, SUBLET_ERR_DRIVER, 0, "the context of device %d cannot be made current",
			move->allocation->device);
	err = is_out(move) ? piece_out(run->lc, move->lane, move->allocation, &bytes, reterr)
			   : piece_in(run->lc, move->lane, move->allocation, &bytes, reterr);
	lanes_leave(run->lc);
	if (err)
		return err;
	run->report->moved_bytes += bytes;
	run->report->copy_ns += clock_now_ns() - begun;
	return SUBLET_OK;
}

static enum sublet_err exchange_all(struct run *run, struct errinfo *reterr)
{
	bool last_try = false;

	for (;;) {
		struct residency_move *out = next_move(run, true), *in = next_move(run, false);
		struct errinfo out_error, in_error;
		enum sublet_err out_err = SUBLET_ERR_NOMEM, in_err = SUBLET_ERR_NOMEM;

		host_pool_let_go(run->lc);
		if (!out && !in)
			return SUBLET_OK;
		if (__atomic_load_n(&run->lc->mover.stop, __ATOMIC_ACQUIRE))
			return errinfo_set(reterr, SUBLET_ERR_SYSTEM, 0, "the process ends");
		if (out)
			out_err = one_extent(run, out, &out_error);
		if (in)
			in_err = one_extent(run, in, &in_error);
		/* a step forward on one side is one, whatever the other says; what is wrong there will be so again */
		if ((out_err && out_err != SUBLET_ERR_NOMEM) || (in_err && in_err != SUBLET_ERR_NOMEM)) {
			*reterr = out_err && out_err != SUBLET_ERR_NOMEM ? out_error : in_error;
			return reterr->code;
		}
		if (!out_err || !in_err) {
			last_try = false;
			say(run, false);
			continue;
		}
		say(run, true);
		if (mover_wait_for_room(run->lc, &last_try))
			continue;
		*reterr = out ? out_error : in_error;
		return reterr->code;
	}
}

static void report_on(struct run *run)
{
	for (size_t i = 0; i < run->count; i++) {
		const struct residency_move *move = &run->moves[i];

		if (move->skipped) {
			run->report->skipped++;
			run->report->skipped_bytes += move->allocation->span_bytes;
		} else if (has_arrived(move)) {
			run->report->moved++;
		} else {
			run->report->failed++;
		}
	}
}

/* ---- what needs no copy ---- */

struct place {
	const struct exchange *exchange;
	enum residency from, to;
};

static bool is_in_the_way(void *arg, const struct allocation *allocation)
{
	const struct place *place = arg;
	const enum residency wanted = place->exchange->wanted(place->exchange->arg, allocation);

	if (place->to == RESIDENCY_EMPTY)
		return wanted == RESIDENCY_EMPTY && allocation->residency != RESIDENCY_EMPTY;
	return allocation->residency == RESIDENCY_PARKED && wanted == RESIDENCY_DEVICE;
}

static enum sublet_err clear_away(struct lifecycle *lc, const struct exchange *exchange, enum residency to,
	struct move_report *report, struct errinfo *reterr)
{
	struct place place = {.exchange = exchange, .to = to};
	const struct move_request request = {.target = to, .discard = to == RESIDENCY_EMPTY, .selects = is_in_the_way, .arg = &place};
	struct move_report one;
	enum sublet_err err;

	if (!mover_would_move(lc, &request, &one))
		return SUBLET_OK;
	err = mover_move(lc, &request, &one, reterr);
	/* what was parked is counted when it is on the device */
	if (to == RESIDENCY_EMPTY) {
		report->moved += one.moved;
		report->moved_bytes += one.moved_bytes;
	}
	return err;
}

enum sublet_err exchange_run(struct lifecycle *lc, const struct exchange *exchange, struct move_report *ret_report,
	struct errinfo *reterr)
{
	struct run run = {.lc = lc, .exchange = exchange, .report = ret_report, .lanes = {.lc = lc}};
	const uint64_t begun = clock_now_ns();
	struct driver_scope scope;
	enum sublet_err err;

	*ret_report = (struct move_report){0};
	err = clear_away(lc, exchange, RESIDENCY_EMPTY, ret_report, reterr);
	if (!err)
		err = clear_away(lc, exchange, RESIDENCY_HOST, ret_report, reterr);
	if (!err)
		err = choose(&run, reterr);
	if (!err && run.count) {
		driver_enter(&lc->driver, &scope);
		err = exchange_all(&run, reterr);
		report_on(&run);
		for (size_t i = 0; i < run.count; i++)
			residency_settle(lc, &run.moves[i]);
		driver_leave(&lc->driver, &scope);
		lanes_close(&run.lanes);
		say(&run, false);
	}
	free(run.moves);
	ledger_settle(lc, true);
	ret_report->holes = mover_holes(lc);
	ret_report->total_ns = clock_now_ns() - begun;
	return err;
}

/* ---- back to one place ---- */

static enum residency of_between(void *arg, const struct allocation *allocation)
{
	const enum residency *to = arg;

	return pieces_between(allocation) ? *to : allocation->residency;
}

static bool any_between(struct lifecycle *lc)
{
	bool any = false;

	ranked_lock(&lc->records.lock);
	for (const struct allocation *allocation = lc->records.live; allocation && !any; allocation = allocation->next)
		any = pieces_between(allocation);
	ranked_unlock(&lc->records.lock);
	return any;
}

bool exchange_settle(struct lifecycle *lc)
{
	static const enum residency ways[] = {RESIDENCY_DEVICE, RESIDENCY_HOST};

	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]) && any_between(lc); i++) {
		enum residency to = ways[i];
		const struct exchange exchange = {.wanted = of_between, .arg = &to};
		struct move_report report;
		struct errinfo error;

		(void)exchange_run(lc, &exchange, &report, &error);
	}
	return !any_between(lc);
}
