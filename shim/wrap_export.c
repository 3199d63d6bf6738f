/* shim/wrap_export.c
 * GROUP(EXPORT): the application gets hold of pages behind managed addresses. What it holds keeps them alive beyond the
 * free, and with them what is written there. */
#include "shim/shim.h"

static void expose(CUresult result, uint64_t address, uint64_t bytes)
{
	if (result == CUDA_SUCCESS && shim_active())
		records_expose(&shim_lifecycle.records, address, bytes);
}

CUresult CUDAAPI cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
{
	CUresult result = FORWARD(cuMemRetainAllocationHandle, (handle, addr));

	if (result == CUDA_SUCCESS && shim_active())
		native_vmm_retained(&shim_lifecycle.native, *handle, (uint64_t)(uintptr_t)addr);
	expose(result, (uint64_t)(uintptr_t)addr, 1);
	return result;
}

CUresult CUDAAPI cuMemGetHandleForAddressRange(void *handle, CUdeviceptr dptr, size_t size, CUmemRangeHandleType handleType,
	unsigned long long flags)
{
	CUresult result = FORWARD(cuMemGetHandleForAddressRange, (handle, dptr, size, handleType, flags));

	expose(result, dptr, size);
	return result;
}
