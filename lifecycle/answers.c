/* lifecycle/answers.c
 * Queries only: no state changes here. */
#include "lifecycle/answers.h"

#define SETTLE_TRIES 16
#define SETTLE_NS 200000000ull

bool answer_address_range(struct lifecycle *lc, CUdeviceptr address, CUdeviceptr *ret_base, size_t *ret_size)
{
	struct allocation_view view;

	if (!records_view(&lc->records, address, &view))
		return false;
	if (ret_base)
		*ret_base = view.address;
	if (ret_size)
		*ret_size = view.size_bytes;
	return true;
}

/* Write the record's answer to @attribute; false when the driver's is the right one. */
static bool fill(const struct allocation_view *view, void *data, CUpointer_attribute attribute, CUdeviceptr address)
{
	switch ((int)attribute) { /* int: the header grows, and unknown values come from applications */
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		*(CUcontext *)data = view->context;
		return true;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		*(unsigned int *)data = CU_MEMORYTYPE_DEVICE;
		return true;
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
		*(CUdeviceptr *)data = address;
		return true;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		*(int *)data = view->device;
		return true;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
		*(CUdeviceptr *)data = view->address;
		return true;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		*(size_t *)data = view->size_bytes;
		return true;
	default:
		return false;
	}
}

bool answer_pointer_attribute(struct lifecycle *lc, void *data, CUpointer_attribute attribute, CUdeviceptr address,
	CUresult *ret_result)
{
	struct allocation_view view;

	if (!data)
		return false;
	if (!records_view(&lc->records, address, &view)) {
		*ret_result = CUDA_ERROR_INVALID_VALUE;
		return lifecycle_owns(lc, address, 1);
	}
	if (attribute == CU_POINTER_ATTRIBUTE_BUFFER_ID)
		*ret_result = lc->driver.PointerGetAttribute(data, attribute, view.address);
	else if (fill(&view, data, attribute, address))
		*ret_result = CUDA_SUCCESS;
	else
		return false;
	return true;
}

CUdeviceptr answer_pointer_to_ask(struct lifecycle *lc, CUdeviceptr address)
{
	static char no_device_memory;
	struct allocation_view view;

	if (!lifecycle_owns(lc, address, 1) || records_view(&lc->records, address, &view))
		return address;
	return (CUdeviceptr)(uintptr_t)&no_device_memory;
}

void answer_pointer_attributes(struct lifecycle *lc, unsigned int count, const CUpointer_attribute *attributes, void **data,
	CUdeviceptr address)
{
	struct allocation_view view;

	if (!attributes || !data || !records_view(&lc->records, address, &view))
		return;
	for (unsigned int i = 0; i < count; i++) {
		if (!data[i])
			continue;
		if (attributes[i] == CU_POINTER_ATTRIBUTE_BUFFER_ID)
			lc->driver.PointerGetAttribute(data[i], attributes[i], view.address);
		else
			fill(&view, data[i], attributes[i], address);
	}
}

CUresult answer_memory_info(struct lifecycle *lc, size_t *ret_free, size_t *ret_total)
{
	CUdevice device;
	CUresult result;

	/* Pages on their way are in neither sum or in both: read until none were, within bounds. */
	for (int i = 0;; i++) {
		uint64_t before, after, held;
		bool settled_before, settled_after;
		bool known = lc->driver.CtxGetDevice(&device) == CUDA_SUCCESS && device >= 0 && device < lc->device_count;

		if (!known)
			return lc->driver.MemGetInfo(ret_free, ret_total);
		reclaim_held_bytes(lc, device, &before, &settled_before);
		result = lc->driver.MemGetInfo(ret_free, ret_total);
		if (result != CUDA_SUCCESS)
			return result;
		held = reclaim_held_bytes(lc, device, &after, &settled_after);
		if (i < SETTLE_TRIES && (!settled_before || !settled_after || before != after)) {
			/* Releasing 16 GiB takes 12 ms (FACTS.md); counting them twice or not at all lasts as long. */
			reclaim_settle(lc, SETTLE_NS);
			continue;
		}
		if (ret_free && ret_total)
			*ret_free = held < *ret_total - *ret_free ? *ret_free + held : *ret_total;
		return CUDA_SUCCESS;
	}
}
