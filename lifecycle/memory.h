/* lifecycle/memory.h
 * Device memory on stable addresses: the verbs behind cuMemAlloc and cuMemFree. */
#ifndef SUBLET_LIFECYCLE_MEMORY_H
#define SUBLET_LIFECYCLE_MEMORY_H

#include "lifecycle/lifecycle.h"

enum memory_verdict {
	MEMORY_ANSWERED, /* *ret_result is what the application gets */
	MEMORY_PASS,     /* the driver's own call is right */
};

/* cuMemAlloc of @size_bytes. Managed from min_size up, with a device of VMM, a current context that is not lost and no
 * capture under way; PASS otherwise, and then *ret_why says how the driver's memory is to be counted. Out of memory is
 * answered only after pending frees were waited for and kept extents given back; *ret_address is set on CUDA_SUCCESS only.
 * @return_address: of the entry point, by which the calling library is found; may be NULL.
 * Calls the driver, holds no lock meanwhile. Source: cuMemAlloc; DESIGN.md 5. */
enum memory_verdict memory_alloc(struct lifecycle *lc, size_t size_bytes, CUdeviceptr *ret_address, CUresult *ret_result,
	enum stats_native *ret_why, void *return_address);

/* cuMemFree of @address. PASS for whatever is not the start of a managed allocation. The answer is CUDA_SUCCESS, or the
 * error of a lost context, as the driver's own call would give it; then the allocation stays. */
enum memory_verdict memory_free(struct lifecycle *lc, CUdeviceptr address, CUresult *ret_result);
/* The same for cuMemFreeAsync: never waits for anything, whatever this driver lacks. The lost context is the current one. */
enum memory_verdict memory_free_async(struct lifecycle *lc, CUdeviceptr address, CUresult *ret_result);

/* Give live allocations of device @to the rights that peers now have (or no longer have) there. @revoked: the device that
 * lost its right, -1 when one was gained. Returns the driver's first refusal; the rest is done all the same. Calls the
 * driver under RANK_RECORDS: enabling peers is rare, set-access does not wait for work, and no allocation may be published
 * in between. */
CUresult memory_replay_access(struct lifecycle *lc, int to, int revoked);

#endif
