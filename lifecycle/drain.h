/* lifecycle/drain.h
 * Has everything ended that was submitted so far? Marks in every context of the process, taken at once and asked about
 * later: a free waits for its own, a hold for all. */
#ifndef SUBLET_LIFECYCLE_DRAIN_H
#define SUBLET_LIFECYCLE_DRAIN_H

#include <stddef.h>
#include <stdint.h>

#include "lifecycle/contexts.h"

struct lifecycle;

/* contexts_mark with captures held off meanwhile; returns as it does. NOT_READY: something is being captured. */
CUresult drain_mark(struct lifecycle *lc, struct context_mark *marks, size_t capacity, uint32_t *ret_count);

/* Give marks back as they pass, the last first. CUDA_SUCCESS: all have passed, also those of contexts that are lost and run
 * nothing. NOT_READY: marks[*count - 1] has not. NOT_SUPPORTED: an error that says less, mark again; none is left. */
CUresult drain_passed(struct lifecycle *lc, struct context_mark *marks, uint32_t *count);

void drain_give_up(struct lifecycle *lc, struct context_mark *marks, uint32_t *count);

#endif
