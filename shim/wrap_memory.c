/* shim/wrap_memory.c
 * GROUP(MEMORY): cuMemAlloc and the frees that may meet what it returned. */
#include "shim/native_note.h"
#include "shim/shim.h"

#include "lifecycle/memory.h"

CUresult CUDAAPI cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
	enum stats_native why;
	enum memory_verdict verdict;
	CUresult result;

	if (!shim_active())
		return FORWARD(cuMemAlloc_v2, (dptr, bytesize));
	shim_enter();
	verdict = memory_alloc(&shim_lifecycle, bytesize, dptr, &result, &why);
	if (verdict == MEMORY_PASS) {
		NATIVE_ALLOCATE(result, cuMemAlloc_v2, (dptr, bytesize));
		if (result == CUDA_SUCCESS)
			native_note(&shim_lifecycle.native, *dptr, bytesize, native_current_device(), why);
	}
	shim_leave();
	return result;
}

static bool free_managed(CUdeviceptr address, CUresult *ret_result)
{
	bool answered;

	shim_enter();
	answered = memory_free(&shim_lifecycle, address, ret_result) == MEMORY_ANSWERED;
	shim_leave();
	return answered;
}

CUresult CUDAAPI cuMemFree_v2(CUdeviceptr dptr)
{
	CUresult result;

	if (!shim_active())
		return FORWARD(cuMemFree_v2, (dptr));
	if (free_managed(dptr, &result))
		return result;
	NATIVE_GIVE_BACK(result, dptr, cuMemFree_v2, (dptr));
	return result;
}

/* The driver takes memory of cuMemAlloc here too. For managed memory the wait for everything submitted so far covers the
 * wait for this stream; inside a capture the driver is asked, whose refusal of non-graph memory is the right answer. */
static bool free_managed_async(CUdeviceptr address, CUresult *ret_result)
{
	return !captures_any(&shim_lifecycle.captures) && free_managed(address, ret_result);
}

CUresult CUDAAPI cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream)
{
	CUresult result;

	if (!shim_active())
		return FORWARD(cuMemFreeAsync, (dptr, hStream));
	if (free_managed_async(dptr, &result))
		return result;
	NATIVE_GIVE_BACK(result, dptr, cuMemFreeAsync, (dptr, hStream));
	return result;
}

CUresult CUDAAPI cuMemFreeAsync_ptsz(CUdeviceptr dptr, CUstream hStream)
{
	CUresult result;

	if (!shim_active())
		return FORWARD(cuMemFreeAsync_ptsz, (dptr, hStream));
	if (free_managed_async(dptr, &result))
		return result;
	NATIVE_GIVE_BACK(result, dptr, cuMemFreeAsync_ptsz, (dptr, hStream));
	return result;
}
