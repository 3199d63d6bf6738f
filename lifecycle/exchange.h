/* lifecycle/exchange.h
 * Bytes that leave the device and bytes that come to it change places extent by extent, where neither memory has room for all of
 * either: each extent that leaves makes room on the device, each that comes back makes room in the host pool, here and in the other
 * processes of the session. No direction is done first; the one goes on that finds room (docs/barrier.md, R8 to R10). */
#ifndef SUBLET_LIFECYCLE_EXCHANGE_H
#define SUBLET_LIFECYCLE_EXCHANGE_H

#include <stdbool.h>

#include "lifecycle/mover.h"

struct exchange {
	/* Where an allocation shall be. Called under RANK_RECORDS: no lock, no driver call. */
	enum residency (*wanted)(void *arg, const struct allocation *allocation);
	void *arg;
	/* Neither direction finds room, or one does again; without a lock. NULL: nobody wants to know. */
	void (*says_stuck)(struct lifecycle *lc, bool stuck);
};

/* Discard what shall be empty, then exchange between device and host memory until all is where it shall be, but that what shall
 * be parked is `host`, and what is empty stays so: both are mover_move's afterwards, and need no room that others wait for.
 * Waits for room as mover_wait_for_room says. NOMEM: no more comes; with that, and any other error, allocations may be left between
 * (pieces.h), which another exchange goes on with, in whichever direction. As mover_move otherwise. */
enum sublet_err exchange_run(struct lifecycle *lc, const struct exchange *exchange, struct move_report *ret_report,
	struct errinfo *reterr);

/* Bring what is between to one place or the other, whichever has room now. False: neither has; it stays a hole. */
bool exchange_settle(struct lifecycle *lc);

#endif
