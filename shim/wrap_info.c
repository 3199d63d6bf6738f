/* shim/wrap_info.c
 * GROUP(INFO): questions about memory. */
#include "shim/shim.h"

#include "lifecycle/answers.h"

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
