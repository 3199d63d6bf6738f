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

/* Of memory whose pages are not on the device, or on their way: what the driver says of VMM memory that is (H200, driver
 * 580). Asked about parked pages it would say that they are the host's, and about a hole that there is nothing. */
static CUresult fill_away(struct lifecycle *lc, const struct allocation_view *view, void *data, CUpointer_attribute attribute)
{
	const CUmemAllocationProp *prop = &lc->devices[view->device].kind.prop;
	CUmemAccessDesc access[ACCESS_MAX];
	CUdevice current;
	uint64_t generation;

	switch ((int)attribute) {
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
	case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
		/* The driver counts from 1: the highest bit keeps the two apart. */
		*(unsigned long long *)data = view->buffer_id | 1ull << 63;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MAPPED:
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
		*(unsigned int *)data = 1;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
	case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
		*(unsigned int *)data = 0;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
		*(unsigned int *)data = prop->allocFlags.gpuDirectRDMACapable;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
		*(unsigned long long *)data = prop->requestedHandleTypes;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
		*(CUmemoryPool *)data = NULL;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
		*(CUdeviceptr *)data = view->address;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
		*(size_t *)data = view->span_bytes;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
		*(CUDA_POINTER_ATTRIBUTE_P2P_TOKENS *)data = (CUDA_POINTER_ATTRIBUTE_P2P_TOKENS){0};
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
		*(unsigned int *)data = 0;
		if (lc->driver.CtxGetDevice(&current) != CUDA_SUCCESS)
			current = view->device;
		for (size_t i = contexts_access_list(&lc->contexts, view->device, access, ACCESS_MAX, &generation); i-- > 0;) {
			if (access[i].location.id == current)
				*(unsigned int *)data = CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE;
		}
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_HOST_POINTER: /* device memory has none; in a list of attributes it is NULL */
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

/* Write the record's answer to @attribute, or an error to *ret_result; false when the driver's is the right one. */
static bool fill(struct lifecycle *lc, const struct allocation_view *view, void *data, CUpointer_attribute attribute,
	CUdeviceptr address, CUresult *ret_result)
{
	*ret_result = CUDA_SUCCESS;
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
		break;
	}
	if (view->residency != RESIDENCY_DEVICE || view->moving)
		*ret_result = fill_away(lc, view, data, attribute);
	else if (attribute == CU_POINTER_ATTRIBUTE_BUFFER_ID)
		*ret_result = lc->driver.PointerGetAttribute(data, attribute, view->address);
	else
		return false;
	return true;
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
	return fill(lc, &view, data, attribute, address, ret_result);
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
		CUresult result;

		/* An error of one attribute is no error of the list; what has no value is NULL there. */
		if (data[i] && fill(lc, &view, data[i], attributes[i], address, &result) && result != CUDA_SUCCESS &&
			attributes[i] == CU_POINTER_ATTRIBUTE_HOST_POINTER)
			*(void **)data[i] = NULL;
	}
}

CUresult answer_device_memory(struct lifecycle *lc, size_t *ret_free, size_t *ret_total)
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

CUresult answer_memory_info(struct lifecycle *lc, size_t *ret_free, size_t *ret_total)
{
	uint64_t budget;
	CUdevice device;
	CUresult result;

	/* what is on its way back is this process's own until it is there, so nothing is waited for under a budget */
	if (!ret_free || !ret_total || !ledger_budget(lc, UINT64_MAX, &budget))
		return answer_device_memory(lc, ret_free, ret_total);
	result = lc->driver.MemGetInfo(ret_free, ret_total);
	if (result == CUDA_SUCCESS && lc->driver.CtxGetDevice(&device) == CUDA_SUCCESS && device >= 0 && device < lc->device_count)
		(void)ledger_memory_info(lc, device, *ret_total, ret_free, ret_total);
	return result;
}

CUresult answer_total_memory(struct lifecycle *lc, size_t *ret_bytes, CUdevice device)
{
	CUresult result = lc->driver.DeviceTotalMem(ret_bytes, device);
	uint64_t budget;

	if (result == CUDA_SUCCESS && device < lc->device_count && ledger_budget(lc, *ret_bytes, &budget))
		*ret_bytes = budget;
	return result;
}
