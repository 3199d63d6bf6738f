/* shim/wrap_export.c
 * GROUP(EXPORT): the application gets hold of pages behind managed addresses. What it holds keeps them alive beyond the
 * free, and with them what is written there. */
#include "shim/shim.h"

/* Freed, or between two allocations: memory of cuMemAlloc would be gone, the pages here may still be on their way back. */
static bool nobodys(CUdeviceptr address, size_t bytes)
{
	struct allocation_view view;
	bool live;

	if (!shim_active() || !lifecycle_owns(&shim_lifecycle, address, bytes))
		return false;
	SHIM_OWN(live = records_view(&shim_lifecycle.records, address, &view));
	return !live;
}

static void expose(CUresult result, uint64_t address, uint64_t bytes)
{
	if (result == CUDA_SUCCESS && shim_active())
		SHIM_OWN(records_expose(&shim_lifecycle.records, address, bytes));
}

CUresult CUDAAPI cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
{
	CUresult result;

	if (nobodys((CUdeviceptr)(uintptr_t)addr, 1))
		return CUDA_ERROR_INVALID_VALUE;
	result = FORWARD(cuMemRetainAllocationHandle, (handle, addr));
	if (result == CUDA_SUCCESS && shim_active())
		SHIM_OWN(native_vmm_retained(&shim_lifecycle.native, *handle, (uint64_t)(uintptr_t)addr));
	expose(result, (uint64_t)(uintptr_t)addr, 1);
	return result;
}

CUresult CUDAAPI cuMemGetHandleForAddressRange(void *handle, CUdeviceptr dptr, size_t size, CUmemRangeHandleType handleType,
	unsigned long long flags)
{
	CUresult result;

	if (nobodys(dptr, size))
		return CUDA_ERROR_INVALID_VALUE;
	result = FORWARD(cuMemGetHandleForAddressRange, (handle, dptr, size, handleType, flags));
	expose(result, dptr, size);
	return result;
}
