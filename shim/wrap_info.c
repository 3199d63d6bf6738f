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
	result = answer_memory_info(&shim_lifecycle, free, total);
	shim_leave();
	return result;
}

CUresult CUDAAPI cuMemGetAddressRange_v2(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr)
{
	if (shim_active() && answer_address_range(&shim_lifecycle, dptr, pbase, psize))
		return CUDA_SUCCESS;
	return FORWARD(cuMemGetAddressRange_v2, (pbase, psize, dptr));
}

CUresult CUDAAPI cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
	CUresult result;

	if (shim_active() && answer_pointer_attribute(&shim_lifecycle, data, attribute, ptr, &result))
		return result;
	return FORWARD(cuPointerGetAttribute, (data, attribute, ptr));
}

CUresult CUDAAPI cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute *attributes, void **data, CUdeviceptr ptr)
{
	CUresult result = FORWARD(cuPointerGetAttributes, (numAttributes, attributes, data, ptr));

	if (result == CUDA_SUCCESS && shim_active())
		answer_pointer_attributes(&shim_lifecycle, numAttributes, attributes, data, ptr);
	return result;
}
