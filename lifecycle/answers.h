/* lifecycle/answers.h
 * What an application hears about managed memory: the same as about memory of cuMemAlloc, in every residency. */
#ifndef SUBLET_LIFECYCLE_ANSWERS_H
#define SUBLET_LIFECYCLE_ANSWERS_H

#include "lifecycle/lifecycle.h"

/* cuMemGetAddressRange: base and requested size. False: not a managed address, ask the driver. Either may be NULL. */
bool answer_address_range(struct lifecycle *lc, CUdeviceptr address, CUdeviceptr *ret_base, size_t *ret_size);

/* cuPointerGetAttribute. False: ask the driver. Answered from the record: context, memory type, device pointer, device
 * ordinal, range start and size. The buffer id is the driver's own at the start of the allocation: one per mapping, so
 * registration caches notice a change of pages; while the pages are elsewhere it is one of Sublet's, new with each departure,
 * and the rest is what the driver said of them on the device. Everything else is the driver's truth about VMM memory.
 * INVALID_VALUE where Sublet's address is no allocation. */
bool answer_pointer_attribute(struct lifecycle *lc, void *data, CUpointer_attribute attribute, CUdeviceptr address,
	CUresult *ret_result);

/* The address to ask the driver about in cuPointerGetAttributes: @address, or where Sublet's is no allocation, one that is
 * none for the driver either, whose answers are then the defaults. */
CUdeviceptr answer_pointer_to_ask(struct lifecycle *lc, CUdeviceptr address);
/* cuPointerGetAttributes, after the driver has filled @data: put the record's answers in their places. */
void answer_pointer_attributes(struct lifecycle *lc, unsigned int count, const CUpointer_attribute *attributes, void **data,
	CUdeviceptr address);

/* The current context's device: the driver's free bytes, and those that are freed or kept here but not yet back. Never more than the
 * total. Returns the driver's error unchanged. */
CUresult answer_device_memory(struct lifecycle *lc, size_t *ret_free, size_t *ret_total);
/* cuMemGetInfo: the same. Where the policy gives this process's role a budget: that, and what this process leaves of it,
 * whatever others hold (lifecycle/ledger.h). Returns the driver's error unchanged. */
CUresult answer_memory_info(struct lifecycle *lc, size_t *ret_free, size_t *ret_total);
/* cuDeviceTotalMem: the device's, or the budget where that is less. */
CUresult answer_total_memory(struct lifecycle *lc, size_t *ret_bytes, CUdevice device);

#endif
