/* tools/sim/sim_array.c
 * CUDA arrays as far as their memory: made, described, measured and destroyed. Their bytes count on the device; copies and
 * textures of them are not simulated. */
#include "tools/sim/sim_memory.h"

#include <stdlib.h>

struct sim_array {
	CUDA_ARRAY3D_DESCRIPTOR descriptor;
	struct sim_context *context;
	struct sim_chunk *chunk;
	uint64_t bytes;
	struct sim_array *next;
};
static struct sim_array *arrays;

/* Bytes of one channel of the formats that are not packed; 0: a format that is not simulated. */
static uint64_t channel_bytes(CUarray_format format)
{
	switch ((int)format) {
	case CU_AD_FORMAT_UNSIGNED_INT8:
	case CU_AD_FORMAT_SIGNED_INT8:
		return 1;
	case CU_AD_FORMAT_UNSIGNED_INT16:
	case CU_AD_FORMAT_SIGNED_INT16:
	case CU_AD_FORMAT_HALF:
		return 2;
	case CU_AD_FORMAT_UNSIGNED_INT32:
	case CU_AD_FORMAT_SIGNED_INT32:
	case CU_AD_FORMAT_FLOAT:
		return 4;
	default:
		return 0;
	}
}

static CUresult create(struct sim_context *context, CUarray *ret_array, const CUDA_ARRAY3D_DESCRIPTOR *given)
{
	uint64_t element, rows;
	struct sim_array *array;
	CUresult result;

	if (!ret_array || !given || !given->Width || (given->Depth && !given->Height && !(given->Flags & CUDA_ARRAY3D_LAYERED)) ||
		(given->NumChannels != 1 && given->NumChannels != 2 && given->NumChannels != 4))
		return CUDA_ERROR_INVALID_VALUE;
	if (given->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING))
		return CUDA_ERROR_NOT_SUPPORTED;
	element = channel_bytes(given->Format) * given->NumChannels;
	if (!element)
		return CUDA_ERROR_NOT_SUPPORTED;
	rows = (given->Height ? given->Height : 1) * (given->Depth ? given->Depth : 1);
	if (given->Width > 1 << 20 || given->Height > 1 << 20 || given->Depth > 1 << 20)
		return CUDA_ERROR_INVALID_VALUE; /* beyond every limit of the device's attributes */
	result = sim_capture_check(false);
	if (result != CUDA_SUCCESS)
		return result;
	array = calloc(1, sizeof(*array));
	if (!array)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*array = (struct sim_array){.descriptor = *given, .context = context, .bytes = given->Width * element * rows};
	pthread_mutex_lock(&sim_lock);
	array->chunk = sim_chunk_new(context->device, array->bytes, NULL);
	if (array->chunk) {
		array->next = arrays;
		arrays = array;
	}
	pthread_mutex_unlock(&sim_lock);
	if (!array->chunk) {
		free(array);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*ret_array = (CUarray)array;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *descriptor)
{
	CUDA_ARRAY3D_DESCRIPTOR full = {0};

	ENTER_CONTEXT(cuArrayCreate_v2, context);
	if (!descriptor)
		return CUDA_ERROR_INVALID_VALUE;
	full.Width = descriptor->Width;
	full.Height = descriptor->Height;
	full.Format = descriptor->Format;
	full.NumChannels = descriptor->NumChannels;
	return create(context, array, &full);
}

CUresult CUDAAPI cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *descriptor)
{
	ENTER_CONTEXT(cuArray3DCreate_v2, context);
	return create(context, array, descriptor);
}

/* sim_lock held; NULL: no such array. */
static struct sim_array **place_of(CUarray handle)
{
	struct sim_array **at = &arrays;

	while (*at && *at != (struct sim_array *)handle)
		at = &(*at)->next;
	return *at ? at : NULL;
}

static void drop(struct sim_array **at)
{
	struct sim_array *array = *at;

	*at = array->next;
	sim_chunk_free(array->chunk);
	free(array);
}

CUresult CUDAAPI cuArrayDestroy(CUarray handle)
{
	struct sim_array **at;

	ENTER_CONTEXT(cuArrayDestroy, context);
	sim_wait_device(context->device);
	pthread_mutex_lock(&sim_lock);
	at = place_of(handle);
	if (at)
		drop(at);
	pthread_mutex_unlock(&sim_lock);
	return at ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult describe(CUarray handle, CUDA_ARRAY3D_DESCRIPTOR *ret)
{
	struct sim_array **at;

	pthread_mutex_lock(&sim_lock);
	at = place_of(handle);
	if (at)
		*ret = (*at)->descriptor;
	pthread_mutex_unlock(&sim_lock);
	return at ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult CUDAAPI cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *descriptor, CUarray handle)
{
	ENTER_CONTEXT(cuArray3DGetDescriptor_v2, context);
	return descriptor ? describe(handle, descriptor) : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *descriptor, CUarray handle)
{
	CUDA_ARRAY3D_DESCRIPTOR full;
	CUresult result;

	ENTER_CONTEXT(cuArrayGetDescriptor_v2, context);
	if (!descriptor)
		return CUDA_ERROR_INVALID_VALUE;
	result = describe(handle, &full);
	if (result == CUDA_SUCCESS)
		*descriptor = (CUDA_ARRAY_DESCRIPTOR){full.Width, full.Height, full.Format, full.NumChannels};
	return result;
}

CUresult CUDAAPI cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *requirements, CUarray handle, CUdevice device)
{
	struct sim_array **at;

	ENTER_CONTEXT(cuArrayGetMemoryRequirements, context);
	if (!requirements)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim_lock);
	at = place_of(handle);
	if (at)
		*requirements = (CUDA_ARRAY_MEMORY_REQUIREMENTS){.size = (*at)->chunk->bytes, .alignment = SIM_PAGE};
	pthread_mutex_unlock(&sim_lock);
	return at ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

void sim_arrays_drop(const struct sim_context *context)
{
	struct sim_array **at = &arrays;

	while (*at) {
		if (!context || (*at)->context == context)
			drop(at);
		else
			at = &(*at)->next;
	}
}
