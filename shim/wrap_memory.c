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
	verdict = memory_alloc(&shim_hot.lifecycle, bytesize, dptr, &result, &why, __builtin_return_address(0));
	if (verdict == MEMORY_PASS) {
		NATIVE_ALLOCATE(result, cuMemAlloc_v2, (dptr, bytesize));
		if (result == CUDA_SUCCESS) {
			native_note(&shim_hot.lifecycle.native, *dptr, bytesize, native_current_device(), why);
			trace_note_native(&shim_hot.lifecycle, false);
		}
	}
	shim_leave();
	return result;
}

static bool free_managed(CUdeviceptr address, bool stream_ordered, CUresult *ret_result)
{
	bool answered;

	shim_enter();
	answered = (stream_ordered ? memory_free_async : memory_free)(&shim_hot.lifecycle, address, ret_result) == MEMORY_ANSWERED;
	shim_leave();
	return answered;
}

CUresult CUDAAPI cuMemFree_v2(CUdeviceptr dptr)
{
	CUresult result;

	if (!shim_active())
		return FORWARD(cuMemFree_v2, (dptr));
	if (free_managed(dptr, false, &result))
		return result;
	NATIVE_GIVE_BACK(result, dptr, cuMemFree_v2, (dptr));
	return result;
}

/* The driver takes memory of cuMemAlloc here too. For managed memory the wait for everything submitted so far covers the
 * wait for this stream; when this stream is being captured the driver is asked, whose refusal of non-graph memory is the
 * right answer. */
#define FREE_ASYNC(symbol, per_thread)                                                                                 \
	do {                                                                                                           \
		CUresult result_;                                                                                      \
		if (!shim_active())                                                                                    \
			return FORWARD(symbol, (dptr, hStream));                                                       \
		if (!native_captured(hStream, per_thread) && free_managed(dptr, true, &result_))                             \
			return result_;                                                                                \
		NATIVE_GIVE_BACK(result_, dptr, symbol, (dptr, hStream));                                              \
		return result_;                                                                                        \
	} while (0)

CUresult CUDAAPI cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream)
{
	FREE_ASYNC(cuMemFreeAsync, false);
}

CUresult CUDAAPI cuMemFreeAsync_ptsz(CUdeviceptr dptr, CUstream hStream)
{
	FREE_ASYNC(cuMemFreeAsync_ptsz, true);
}
