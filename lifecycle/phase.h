/* lifecycle/phase.h
 * One process's part in a barrier (DESIGN.md 6): what the coming phase wants of its allocations, the hold, the moves, the way back.
 * Each step is a request to the service (service.h), whose thread alone shuts and opens the gate.
 *
 * From a hold to the opening of the gate calls that wait are not served: what they touch may be on its way. Should the
 * coordinator go in between, they are after `patience`.
 * Neighbours: lifecycle/coordinator_barrier.c asks for the steps, in that order. */
#ifndef SUBLET_LIFECYCLE_PHASE_H
#define SUBLET_LIFECYCLE_PHASE_H

#include "lifecycle/protocol.h"
#include "lifecycle/residency.h"
#include "lifecycle/service.h"

struct lifecycle;

/* Do one step on the service thread; @held: the gate is shut already. For PLAN the report says what would be moved, and nothing is.
 * Errors of mover_move. */
enum sublet_err phase_step(struct lifecycle *lc, const struct service_request *request, struct move_report *report,
	struct errinfo *reterr);

#endif
