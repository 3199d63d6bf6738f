/* lifecycle/mover.h
 * Moves many allocations of a process from one residency to another: the pipeline around residency.h. Copies run on a stream
 * of Sublet's own per device; while those of one allocation run, the next is prepared and the one before is committed.
 *
 * A request is done or undone. Host extents for all of it are taken before a byte moves; when something fails later, what has
 * moved is brought back (host copies are kept until the end for that), and what cannot be brought back stays where it is, whole.
 * Not so a discard, and not what SUBLET_VERIFY finds wrong: there the others go on.
 *
 * That is for one process at a time. Where several exchange their room at a barrier host memory may be full, so credits have to come
 * extent by extent, in both directions at once, and host copies go back at each commit (docs/barrier.md, R9 to R11, R16). */
#ifndef SUBLET_LIFECYCLE_MOVER_H
#define SUBLET_LIFECYCLE_MOVER_H

#include <stdbool.h>
#include <stdint.h>

#include "lifecycle/residency.h"
#include "lifecycle/stats.h"

/* Does room on the device come from other processes, while something here is brought to it? */
enum mover_room {
	MOVER_NO_ROOM,	  /* nobody gives any: full is full */
	MOVER_ROOM_COMES, /* others release at this moment: wait for it */
	MOVER_ROOM_CAME,  /* all have released: once more, then full is full */
};

struct mover {
	int room; /* enum mover_room, atomic */
	uint64_t room_until_ns; /* atomic; waited for at most until then */
	struct copy_lane lanes[STATS_DEVICES]; /* lanes.h; the moving thread's */
	bool unsure; /* pages of an earlier move may wait for copies that the driver did not tell the end of; the moving thread's */
	bool stop;   /* atomic: the process ends; no further allocation is begun, those under way get there */
};

struct move_request {
	enum residency target;
	bool discard; /* contents may be lost; required for `empty`, refused for the others. Whether they may be is the caller's to know */
	bool (*selects)(void *arg, const struct allocation *allocation); /* NULL: all. Called under RANK_RECORDS: no lock, no driver call */
	void *arg;
	bool verify; /* as lc->config.verify, which is enough too */
};

struct move_report {
	uint64_t moved_bytes, already_bytes, skipped_bytes;
	uint32_t moved, already, skipped; /* skipped: exposed, or freed meanwhile */
	uint32_t failed;  /* not at the target though selected and not skipped; after an undone request all of them */
	uint64_t copy_ns, total_ns; /* first copy submitted to last one over; all of it */
	uint64_t holes;   /* allocations in host or empty when it was done */
	char text[256];   /* what a person should know: what was skipped and why; empty when there is nothing */
};

/* Do @request. The gate is shut and drained by the caller, and stays so; one thread of the process at a time calls this.
 * Allocations made since the call began are left alone. *ret_report is filled in any case. INVALID: the request contradicts
 * itself; UNSUPPORTED, NOMEM, DRIVER, SYSTEM: the first failure of an allocation. Calls the driver with the thread's capture
 * mode RELAXED, holds no lock meanwhile. */
enum sublet_err mover_move(struct lifecycle *lc, const struct move_request *request, struct move_report *ret_report,
	struct errinfo *reterr);

/* Would @request move anything? Counts in *ret_report what is there already or skipped. No driver call. */
bool mover_would_move(struct lifecycle *lc, const struct move_request *request, struct move_report *ret_report);

/* Allocations in host or empty: as long as there is one the gate stays shut. */
uint64_t mover_holes(struct lifecycle *lc);

/* From now on; COMES holds for @wait_ns at most. Any thread. */
void mover_room(struct lifecycle *lc, enum mover_room room, uint64_t wait_ns);
/* The device is full: after a short while true if it is worth another try. @last_try: false at the first call of a move. */
bool mover_wait_for_room(struct lifecycle *lc, bool *last_try);

/* In a forked child. */
void mover_forget(struct mover *mover);

#endif
