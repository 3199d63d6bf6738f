/* shim/wrap_info.c
 * GROUP(INFO): questions about memory. */
#include "shim/shim.h"

#include <limits.h>

#include "lifecycle/answers.h"

/* Is there a budget, so that the driver's answer is not the right one? The amount does not matter. */
static bool has_budget(void)
{
	uint64_t bytes;

	return shim_active() && ledger_budget(&shim_hot.lifecycle, UINT64_MAX, &bytes);
}

/* As much as the form with 32 bits can say. */
static unsigned int in_32_bits(size_t bytes)
{
	return bytes < UINT_MAX ? (unsigned int)bytes : UINT_MAX;
}

CUresult CUDAAPI cuMemGetInfo(unsigned int *free, unsigned int *total)
{
	size_t free_bytes, total_bytes;
	CUresult result;

	if (!has_budget() || !free || !total)
		return FORWARD(cuMemGetInfo, (free, total));
	SHIM_OWN(result = answer_memory_info(&shim_hot.lifecycle, &free_bytes, &total_bytes));
	if (result == CUDA_SUCCESS) {
		*free = in_32_bits(free_bytes);
		*total = in_32_bits(total_bytes);
	}
	return result;
}

CUresult CUDAAPI cuDeviceTotalMem(unsigned int *bytes, CUdevice dev)
{
	size_t total_bytes;
	CUresult result;

	if (!has_budget() || !bytes)
		return FORWARD(cuDeviceTotalMem, (bytes, dev));
	SHIM_OWN(result = answer_total_memory(&shim_hot.lifecycle, &total_bytes, dev));
	if (result == CUDA_SUCCESS)
		*bytes = in_32_bits(total_bytes);
	return result;
}

CUresult CUDAAPI cuMemGetInfo_v2(size_t *free, size_t *total)
{
	CUresult result;

	if (!shim_active() || !free || !total)
		return FORWARD(cuMemGetInfo_v2, (free, total));
	shim_enter();
	result = answer_memory_info(&shim_hot.lifecycle, free, total);
	shim_leave();
	return result;
}

CUresult CUDAAPI cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev)
{
	CUresult result;

	if (!shim_active() || !bytes)
		return FORWARD(cuDeviceTotalMem_v2, (bytes, dev));
	SHIM_OWN(result = answer_total_memory(&shim_hot.lifecycle, bytes, dev));
	return result;
}

CUresult CUDAAPI cuMemGetAddressRange_v2(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr)
{
	bool answered;

	if (shim_active()) {
		SHIM_OWN(answered = answer_address_range(&shim_hot.lifecycle, dptr, pbase, psize));
		if (answered)
			return CUDA_SUCCESS;
		/* Freed, or behind the last byte: the driver would answer from pages that are still on their way back. */
		if (lifecycle_owns(&shim_hot.lifecycle, dptr, 1))
			return CUDA_ERROR_NOT_FOUND;
	}
	return FORWARD(cuMemGetAddressRange_v2, (pbase, psize, dptr));
}

CUresult CUDAAPI cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
	CUresult result;
	bool answered = false;

	if (shim_active())
		SHIM_OWN(answered = answer_pointer_attribute(&shim_hot.lifecycle, data, attribute, ptr, &result));
	if (answered)
		return result;
	return FORWARD(cuPointerGetAttribute, (data, attribute, ptr));
}

CUresult CUDAAPI cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute *attributes, void **data, CUdeviceptr ptr)
{
	CUdeviceptr ask;
	CUresult result;

	if (!shim_active())
		return FORWARD(cuPointerGetAttributes, (numAttributes, attributes, data, ptr));
	SHIM_OWN(ask = answer_pointer_to_ask(&shim_hot.lifecycle, ptr));
	result = FORWARD(cuPointerGetAttributes, (numAttributes, attributes, data, ask));
	if (result == CUDA_SUCCESS)
		SHIM_OWN(answer_pointer_attributes(&shim_hot.lifecycle, numAttributes, attributes, data, ptr));
	return result;
}
