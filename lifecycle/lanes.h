/* lifecycle/lanes.h
 * Streams of Sublet's own to copy on, one for each device, in a context that is kept from ending while it is in use. For the moving
 * thread alone. */
#ifndef SUBLET_LIFECYCLE_LANES_H
#define SUBLET_LIFECYCLE_LANES_H

#include <stdbool.h>

#include "lifecycle/residency.h"
#include "lifecycle/stats.h"

/* Those that are in use by one run of moves. */
struct lanes {
	struct lifecycle *lc;
	bool borrowed[STATS_DEVICES];
};

/* Have lc->mover.lanes[device] ready until lanes_close. DRIVER: no context there, or no stream. */
enum sublet_err lanes_open(struct lanes *lanes, int device, struct errinfo *reterr);
void lanes_close(struct lanes *lanes);

/* Make the lane's context current, and again what was before. False: it cannot be. */
bool lanes_enter(struct lifecycle *lc, const struct copy_lane *lane);
void lanes_leave(struct lifecycle *lc);

/* Unit tests: the streams go. */
void lanes_release(struct lifecycle *lc);

#endif
