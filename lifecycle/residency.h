/* lifecycle/residency.h
 * Where the bytes of an allocation are, and every way from one place to another (DESIGN.md 5). A change has two steps.
 * Prepare may fail and is undone: host extents, device extents, mappings at the final address where nothing is mapped there,
 * or at a staging address where something is, copies begun. Commit swaps what is mapped; one that fails is run backwards, and
 * if that fails too the allocation is `host`, where its bytes lie complete.
 *
 * The gate is shut for as long as a change lasts, so nothing uses the pages but these copies. One thread makes changes. */
#ifndef SUBLET_LIFECYCLE_RESIDENCY_H
#define SUBLET_LIFECYCLE_RESIDENCY_H

#include <stdbool.h>
#include <stdint.h>

#include "lifecycle/backing.h"
#include "lifecycle/contexts.h"
#include "policy/decide.h"

struct lifecycle;
struct allocation;
struct host_extent;

enum residency {
	RESIDENCY_DEVICE = POLICY_DEVICE,
	RESIDENCY_PARKED = POLICY_PARKED,
	RESIDENCY_HOST = POLICY_HOST,
	RESIDENCY_EMPTY = POLICY_EMPTY,
	RESIDENCY_COUNT = POLICY_RESIDENCY_COUNT
};

/* Nothing is mapped at the address. */
static inline bool residency_is_hole(enum residency residency)
{
	return residency == RESIDENCY_HOST || residency == RESIDENCY_EMPTY;
}

/* What copies of one device run on. The context is borrowed while it is in use (contexts_borrow). */
struct copy_lane {
	CUcontext context;
	uint64_t context_id; /* 0: no stream yet */
	CUstream stream;
};

/* One allocation on its way. Zero behind the first fields before residency_take. */
struct residency_move {
	struct allocation *allocation; /* `moving` */
	struct copy_lane *lane;        /* of its device; its context is current in every call below */
	enum residency from, to;
	bool verify;
	uint64_t generation;      /* of the peers (contexts.h) whose rights it has where it is mapped; read when it was chosen */
	/* --- */
	struct host_extent *host; /* taken for it; after a commit those that it no longer needs */
	bool host_ready;          /* `host` holds its bytes already: a way back, with nothing to copy */
	struct backing fresh;     /* what will be mapped */
	uint64_t staging;         /* where `fresh` is mapped meanwhile, 0: nowhere, or at the final address */
	struct context_mark done; /* behind its copies */
	bool copying;             /* submitted, not yet waited for */
	bool begun, committed, skipped, failed; /* the mover's */
	uint64_t since_ns;        /* its prepare began */
	bool last_try;            /* of waiting for room (mover_wait_for_room) */
	bool mismatch;            /* verify: the bytes are not those that were left */
};

struct residency_change {
	enum residency from, to;
	const char *name;
	bool takes_host; /* as many host extents as it has, or will have, extents */
	enum sublet_err (*prepare)(struct lifecycle *lc, struct residency_move *move, struct errinfo *reterr);
};

/* The row for a pair, NULL where there is nothing to do: from a place to itself, or from `empty` to `host`. */
const struct residency_change *residency_change(enum residency from, enum residency to);

/* First part of prepare, before anything else of a request, so that a full pool is told before a byte has moved: the host
 * extents. NOMEM and others as host_pool_take; then nothing is taken. */
enum sublet_err residency_take(struct lifecycle *lc, struct residency_move *move, struct errinfo *reterr);

/* The rest of prepare; copies are submitted, not waited for. On failure residency_undo is due. */
enum sublet_err residency_prepare(struct lifecycle *lc, struct residency_move *move, struct errinfo *reterr);

/* Wait for the copies. DRIVER: they failed, undo. */
enum sublet_err residency_wait(struct lifecycle *lc, struct residency_move *move, struct errinfo *reterr);

/* False: it was freed since it was chosen, or its pages are exposed and would go. Takes RANK_RECORDS. */
bool residency_still_wanted(struct lifecycle *lc, const struct residency_move *move);

/* Swap. On success the allocation is `to`, and what it had on the device is the driver's again. On failure residency_undo is
 * due, and the allocation is what it was, or `host`. INVALID: it was freed or exposed meanwhile. Takes RANK_RECORDS; calls the
 * driver without it. */
enum sublet_err residency_commit(struct lifecycle *lc, struct residency_move *move, struct errinfo *reterr);

/* Give back what was prepared. What the driver refuses to take is offered again by the reclaimer. */
void residency_undo(struct lifecycle *lc, struct residency_move *move);

/* Verify: the bytes of one extent, when they have come and before they leave. */
void residency_note_hash(struct host_extent *extent);
bool residency_is_as_noted(const struct host_extent *extent);

/* The end of a move that nobody will want back, done or undone: host extents return to the pool, and the allocation is the
 * application's again, or the reclaimer's when it was freed meanwhile. Not to be looked at after. */
void residency_settle(struct lifecycle *lc, struct residency_move *move);

#endif
