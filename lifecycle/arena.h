/* lifecycle/arena.h
 * The addresses of one device: one large reservation, from which allocations take ranges. An address is handed out again
 * only after arena_return, which the owner calls when the pages behind it are unmapped.
 * The last freed range of the wanted size is reused first (programs that free and allocate in turn keep their addresses,
 * as they do under the driver's own allocator), then fresh addresses are cut, then freed ranges are merged.
 * Behind every range lie ARENA_GAP_BYTES that nothing is ever mapped at: the driver refuses a copy or a set that runs over
 * the end of plain memory, but lets one run from a mapping into the next (FACTS: one copy over several extents works). */
#ifndef SUBLET_LIFECYCLE_ARENA_H
#define SUBLET_LIFECYCLE_ARENA_H

#include <stdbool.h>
#include <stdint.h>

#include "base/lock.h"
#include "base/map.h"
#include "lifecycle/driver.h"

#define ARENA_GAP_BYTES (2ull << 20)

struct arena {
	struct ranked_lock *lock; /* RANK_ARENA, shared by the arenas of a process */
	uint64_t base;            /* 0: no reservation */
	uint64_t size_bytes;
	uint64_t used_bytes;      /* addresses below base + used_bytes have been cut at least once */
	uint64_t free_bytes;      /* in by_size; under lock */
	struct map by_size;       /* size in bytes -> struct arena_bucket; under lock */
};

/* Reserve addresses: @want_bytes, halved until the driver has room, but not below @least_bytes (both multiples of 2 MiB).
 * Calls the driver (cuMemAddressReserve), holds no lock. DRIVER or NOMEM: no reservation, nothing to release. */
enum sublet_err arena_init(struct arena *arena, const struct driver *driver, struct ranked_lock *lock, uint64_t want_bytes,
	uint64_t least_bytes, struct errinfo *reterr);

/* Free the reservation; everything in it must be unmapped. Calls the driver. */
void arena_release(struct arena *arena, const struct driver *driver);

/* Take @bytes (a multiple of 2 MiB) of addresses, and a gap behind them. False when none are left. Takes the lock, never calls the driver. */
bool arena_take(struct arena *arena, uint64_t bytes, uint64_t *ret_address);
/* Give a range back, exactly as it was taken. If memory for the list runs out the range is lost, which costs only
 * addresses. */
void arena_return(struct arena *arena, uint64_t address, uint64_t bytes);

#endif
