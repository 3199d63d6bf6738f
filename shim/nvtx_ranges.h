/* shim/nvtx_ranges.h
 * The functions that copies of NVTX get in place of their own. They carry nothing that says which copy calls, so there is a set of
 * them for each set of functions that a tool behind Sublet has put into some copy, of which there are few. */
#ifndef SUBLET_SHIM_NVTX_RANGES_H
#define SUBLET_SHIM_NVTX_RANGES_H

#include <stdbool.h>

#include "lifecycle/triggers.h"
#include "shim/nvtx_abi.h"

enum nvtx_number {
#define NUMBER(name, module, number, returns, params) NVTX_##name,
	NVTX_FUNCTIONS(NUMBER)
#undef NUMBER
		NVTX_FUNCTION_COUNT
};

/* What of one copy of NVTX a tool behind Sublet wants to be called; NULL: not that. */
struct nvtx_next {
	nvtx_function *functions[NVTX_FUNCTION_COUNT];
};

extern struct triggers shim_triggers;

/* The functions for copies in which @next is behind Sublet, by enum nvtx_number. Kept for good. NULL: there is no further set. */
nvtx_function *const *nvtx_ranges_for(const struct nvtx_next *next);

/* Is @function one of Sublet's? */
bool nvtx_ranges_has(nvtx_function *function);

#endif
