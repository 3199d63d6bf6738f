/* lifecycle/pieces.h
 * An allocation's way between device and host memory one extent at a time, where neither has room for all of it (docs/barrier.md).
 *
 * On the way it is `host`, as nothing may touch it, and has a backing: its first extents are in host memory, as many as `host` has, the
 * others on the device where they belong. Out takes the first that is on the device, in brings back the last that left, so each
 * undoes the other, and a way that ends in the middle can be gone on with in either direction.
 *
 * The gate is shut, the allocation is `moving`, and one thread (the mover's) makes these calls, with the lane's context current. */
#ifndef SUBLET_LIFECYCLE_PIECES_H
#define SUBLET_LIFECYCLE_PIECES_H

#include <stdbool.h>

#include "lifecycle/records.h"
#include "lifecycle/residency.h"

/* Is it between the two? Caller holds RANK_RECORDS, or it is moving. */
static inline bool pieces_between(const struct allocation *allocation)
{
	return allocation->residency == RESIDENCY_HOST && allocation->backing.count > 0;
}

/* One extent of an allocation that is on the device, or between, leaves: copied, unmapped, released. Behind the last it is in host
 * memory. NOMEM: the host pool has no room; then, as with DRIVER and SYSTEM, nothing has changed but that it may be between with
 * all of its extents on the device. *ret_bytes: of the extent. */
enum sublet_err piece_out(struct lifecycle *lc, struct copy_lane *lane, struct allocation *allocation, uint64_t *ret_bytes,
	struct errinfo *reterr);

/* One extent of an allocation that is in host memory, or between, comes back; its host extent goes to the pool. Behind the last it is
 * on the device, its rights as they were when each extent came. NOMEM: the device has no room. As above otherwise; with
 * SUBLET_VERIFY also SYSTEM: these are not the bytes that left. */
enum sublet_err piece_in(struct lifecycle *lc, struct copy_lane *lane, struct allocation *allocation, uint64_t *ret_bytes,
	struct errinfo *reterr);

#endif
