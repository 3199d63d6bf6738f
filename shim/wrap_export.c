/* shim/wrap_export.c
 * GROUP(EXPORT): the application gets hold of pages behind managed addresses. What it holds keeps them alive beyond the
 * free, and with them what is written there. */
#include "shim/shim.h"

/* Freed, or between two allocations: memory of cuMemAlloc would be gone, the pages here may still be on their way back. */
static bool nobodys(CUdeviceptr address, size_t bytes)
{
	struct allocation_view view;
	bool live;

	if (!shim_active() || !lifecycle_owns(&shim_hot.lifecycle, address, bytes))
		return false;
	SHIM_OWN(live = records_view(&shim_hot.lifecycle.records, address, &view));
	return !live;
}

/* The pages that the application is given are those it would have next: none at all while they are away, and while they move
 * perhaps the ones that just leave. So whoever asks about managed memory waits for them in front of the gate, like a call that
 * touches it, and is marked until they are known to be exposed. */
static bool is_managed(CUdeviceptr address, size_t bytes)
{
	return shim_active() && lifecycle_owns(&shim_hot.lifecycle, address, bytes);
}

#define THROUGH_GATE(symbol, address, bytes, call)                                                                     \
	do {                                                                                                           \
		struct gate_slot *slot_;                                                                               \
		CUresult result_;                                                                                      \
                                                                                                                       \
		if (!is_managed(address, bytes))                                                                       \
			return call;                                                                                   \
		slot_ = gate_enter(&shim_hot.lifecycle.gate, #symbol, NULL);                                               \
		if (!slot_)                                                                                            \
			return GATE_REFUSAL;                                                                           \
		result_ = call;                                                                                        \
		gate_leave(slot_);                                                                                     \
		return result_;                                                                                        \
	} while (0)

static void expose(CUresult result, uint64_t address, uint64_t bytes)
{
	if (result == CUDA_SUCCESS && shim_active())
		SHIM_OWN(records_expose(&shim_hot.lifecycle.records, address, bytes));
}

static CUresult retain(CUmemGenericAllocationHandle *handle, void *addr)
{
	CUresult result;

	if (nobodys((CUdeviceptr)(uintptr_t)addr, 1))
		return CUDA_ERROR_INVALID_VALUE;
	result = FORWARD(cuMemRetainAllocationHandle, (handle, addr));
	if (result == CUDA_SUCCESS && shim_active())
		SHIM_OWN(native_vmm_retained(&shim_hot.lifecycle.native, *handle, (uint64_t)(uintptr_t)addr));
	expose(result, (uint64_t)(uintptr_t)addr, 1);
	return result;
}

CUresult CUDAAPI cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
{
	THROUGH_GATE(cuMemRetainAllocationHandle, (CUdeviceptr)(uintptr_t)addr, 1, retain(handle, addr));
}

static CUresult handle_for_range(void *handle, CUdeviceptr dptr, size_t size, CUmemRangeHandleType type, unsigned long long flags)
{
	CUresult result;

	if (nobodys(dptr, size))
		return CUDA_ERROR_INVALID_VALUE;
	result = FORWARD(cuMemGetHandleForAddressRange, (handle, dptr, size, type, flags));
	expose(result, dptr, size);
	return result;
}

CUresult CUDAAPI cuMemGetHandleForAddressRange(void *handle, CUdeviceptr dptr, size_t size, CUmemRangeHandleType handleType,
	unsigned long long flags)
{
	THROUGH_GATE(cuMemGetHandleForAddressRange, dptr, size, handle_for_range(handle, dptr, size, handleType, flags));
}
