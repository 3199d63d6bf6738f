/* tools/sim/sim_copy.h
 * Copies and sets as work, for the calls that make them, for captures and for graph nodes. Nothing here takes ownership;
 * @buffer is the caller's, aligned to 16, and must live until the work was submitted. */
#ifndef SUBLET_TOOLS_SIM_SIM_COPY_H
#define SUBLET_TOOLS_SIM_SIM_COPY_H

#include "tools/sim/sim_exec.h"

#define SIM_COPY_INLINE_MAX ((size_t)64 << 10) /* of pageable memory, travels with the command */
#define SIM_COPY_BYTES_MAX 512
#define SIM_SET_BYTES_MAX 128

uint64_t sim_copy_source(const CUDA_MEMCPY3D *c), sim_copy_target(const CUDA_MEMCPY3D *c);
/* @buffer: SIM_COPY_BYTES_MAX. Fails with INVALID_VALUE (shape, or memory
 * that is not there) and NOT_SUPPORTED (arrays). */
CUresult sim_copy_work(struct sim_context *ctx, const CUDA_MEMCPY3D *c, void *buffer, struct sim_work *work);
void sim_copy_describe(const struct sim_work *work, CUDA_MEMCPY3D *ret);
/* Must the caller of an asynchronous copy wait for it? So it is with pageable memory, but for small sources, which are
 * taken into the command here: *@ret_heap is freed when the work was submitted. */
bool sim_copy_settle(struct sim_work *work, void **ret_heap);
/* @buffer: SIM_SET_BYTES_MAX. */
CUresult sim_set_work(struct sim_context *ctx, const CUDA_MEMSET_NODE_PARAMS *s, void *buffer, struct sim_work *work);
void sim_set_describe(const struct sim_work *work, CUDA_MEMSET_NODE_PARAMS *ret);

#endif
