/* tools/sim/sim_pool.h
 * A pool of stream-ordered memory, for sim_pool.c, which takes and gives, and sim_pool_calls.c, which answers for it.
 * sim_lock is held by the caller. */
#ifndef SUBLET_TOOLS_SIM_SIM_POOL_H
#define SUBLET_TOOLS_SIM_SIM_POOL_H

#include "tools/sim/sim_memory.h"

struct sim_pool {
	bool is_default, destroyed, imported;
	CUmemPoolProps props;
	int location;
	struct sim_chunk *chunks;
	int reuse[3]; /* follow event dependencies, opportunistic, internal dependencies */
	uint64_t threshold, used, used_high, reserved, reserved_high;
	uint64_t blocks;
	uint32_t readable; /* devices, and SIM_POOL_HOST_BIT */
	struct sim_pool *next;
};
#define SIM_POOL_HOST_BIT (1u << 31)

struct sim_pool *sim_pool_new(const CUmemPoolProps *props, int location); /* NULL: no memory, as the next two */
struct sim_pool *sim_pool_default(int location);			   /* SIM_HOST has one too */
struct sim_pool *sim_pool_current(int location);
struct sim_pool *sim_pool_of(CUmemoryPool handle); /* NULL: no such pool, or destroyed */
/* Empty chunks go until at most @keep bytes are reserved. */
void sim_pool_trim(struct sim_pool *pool, uint64_t keep);
/* A destroyed pool goes when nothing of it is in use. */
void sim_pool_drop_if_over(struct sim_pool *pool);
extern struct sim_pool *sim_pool_current_of[SIM_DEVICES_MAX + 1]; /* [0] is host; NULL: the default one */

#endif
