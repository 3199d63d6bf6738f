/* shim/wrap_native.c
 * GROUP(NATIVE): memory the driver keeps to itself. The driver's call, then a note; nothing here changes an answer. */
#include "shim/native_note.h"
#include "shim/shim.h"

static void note(uint64_t key, uint64_t bytes, enum stats_native kind)
{
	shim_enter();
	native_note(&shim_hot.lifecycle.native, key, bytes, native_current_device(), kind);
	trace_note_native(&shim_hot.lifecycle, false);
	shim_leave();
}

/* One body for what allocates: @key and @bytes are looked at after success only. */
#define ALLOCATING(symbol, args, key, bytes, kind)                                                                     \
	do {                                                                                                           \
		CUresult result_;                                                                                      \
		if (!shim_active())                                                                                    \
			return FORWARD(symbol, args);                                                                  \
		if ((kind) == STATS_NATIVE_PINNED) /* host memory: no page of a device helps */                        \
			result_ = FORWARD(symbol, args);                                                               \
		else                                                                                                   \
			NATIVE_ALLOCATE(result_, symbol, args);                                                        \
		if (result_ == CUDA_SUCCESS)                                                                           \
			note((uint64_t)(uintptr_t)(key), bytes, kind);                                                 \
		return result_;                                                                                        \
	} while (0)

#define GIVING_BACK(symbol, args, key)                                                                                 \
	do {                                                                                                           \
		CUresult result_;                                                                                      \
		if (!shim_active())                                                                                    \
			return FORWARD(symbol, args);                                                                  \
		NATIVE_GIVE_BACK(result_, key, symbol, args);                                                          \
		return result_;                                                                                        \
	} while (0)

CUresult CUDAAPI cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes, size_t Height,
	unsigned int ElementSizeBytes)
{
	ALLOCATING(cuMemAllocPitch_v2, (dptr, pPitch, WidthInBytes, Height, ElementSizeBytes), *dptr, *pPitch * Height,
		STATS_NATIVE_PITCHED);
}

CUresult CUDAAPI cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags)
{
	ALLOCATING(cuMemAllocManaged, (dptr, bytesize, flags), *dptr, bytesize, STATS_NATIVE_MANAGED);
}

/* Inside a capture the stream-ordered calls add a node and give no memory: the graph's pool is the driver's. */
#define POOL_ALLOCATING(symbol, args, stream, per_thread)                                                              \
	do {                                                                                                           \
		if (shim_active() && native_captured(stream, per_thread))                                                     \
			return FORWARD(symbol, args);                                                                  \
		ALLOCATING(symbol, args, *dptr, bytesize, STATS_NATIVE_POOL);                                          \
	} while (0)

CUresult CUDAAPI cuMemAllocAsync(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
	POOL_ALLOCATING(cuMemAllocAsync, (dptr, bytesize, hStream), hStream, false);
}

CUresult CUDAAPI cuMemAllocAsync_ptsz(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
	POOL_ALLOCATING(cuMemAllocAsync_ptsz, (dptr, bytesize, hStream), hStream, true);
}

CUresult CUDAAPI cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream)
{
	POOL_ALLOCATING(cuMemAllocFromPoolAsync, (dptr, bytesize, pool, hStream), hStream, false);
}

CUresult CUDAAPI cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream)
{
	POOL_ALLOCATING(cuMemAllocFromPoolAsync_ptsz, (dptr, bytesize, pool, hStream), hStream, true);
}

CUresult CUDAAPI cuMemHostAlloc(void **pp, size_t bytesize, unsigned int Flags)
{
	ALLOCATING(cuMemHostAlloc, (pp, bytesize, Flags), *pp, bytesize, STATS_NATIVE_PINNED);
}

CUresult CUDAAPI cuMemAllocHost(void **pp, unsigned int bytesize)
{
	ALLOCATING(cuMemAllocHost, (pp, bytesize), *pp, bytesize, STATS_NATIVE_PINNED);
}

CUresult CUDAAPI cuMemAllocHost_v2(void **pp, size_t bytesize)
{
	ALLOCATING(cuMemAllocHost_v2, (pp, bytesize), *pp, bytesize, STATS_NATIVE_PINNED);
}

CUresult CUDAAPI cuMemFreeHost(void *p)
{
	GIVING_BACK(cuMemFreeHost, (p), p);
}

CUresult CUDAAPI cuMemHostRegister(void *p, size_t bytesize, unsigned int Flags)
{
	ALLOCATING(cuMemHostRegister, (p, bytesize, Flags), p, bytesize, STATS_NATIVE_PINNED);
}

CUresult CUDAAPI cuMemHostRegister_v2(void *p, size_t bytesize, unsigned int Flags)
{
	ALLOCATING(cuMemHostRegister_v2, (p, bytesize, Flags), p, bytesize, STATS_NATIVE_PINNED);
}

CUresult CUDAAPI cuMemHostUnregister(void *p)
{
	GIVING_BACK(cuMemHostUnregister, (p), p);
}

/* ---- arrays: the driver's layout is its own, so this is what the texels need, not what the driver takes ---- */

static uint64_t element_bytes(CUarray_format format, unsigned int channels)
{
	switch ((int)format) { /* int: block-compressed and video formats are left to the default */
	case CU_AD_FORMAT_UNSIGNED_INT8:
	case CU_AD_FORMAT_SIGNED_INT8:
		return channels;
	case CU_AD_FORMAT_UNSIGNED_INT16:
	case CU_AD_FORMAT_SIGNED_INT16:
	case CU_AD_FORMAT_HALF:
		return 2ull * channels;
	case CU_AD_FORMAT_UNSIGNED_INT32:
	case CU_AD_FORMAT_SIGNED_INT32:
	case CU_AD_FORMAT_FLOAT:
		return 4ull * channels;
	default:
		return 1;
	}
}

static uint64_t at_least_one(uint64_t value)
{
	return value ? value : 1;
}

static uint64_t array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d)
{
	return at_least_one(d->Width) * at_least_one(d->Height) * at_least_one(d->Depth) * element_bytes(d->Format, d->NumChannels);
}

CUresult CUDAAPI cuArrayCreate_v2(CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR *d)
{
	ALLOCATING(cuArrayCreate_v2, (pHandle, d), *pHandle,
		at_least_one(d->Width) * at_least_one(d->Height) * element_bytes(d->Format, d->NumChannels), STATS_NATIVE_ARRAY);
}

CUresult CUDAAPI cuArray3DCreate_v2(CUarray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *d)
{
	ALLOCATING(cuArray3DCreate_v2, (pHandle, d), *pHandle, array_bytes(d), STATS_NATIVE_ARRAY);
}

CUresult CUDAAPI cuArrayDestroy(CUarray hArray)
{
	GIVING_BACK(cuArrayDestroy, (hArray), hArray);
}

CUresult CUDAAPI cuMipmappedArrayCreate(CUmipmappedArray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned int levels)
{
	/* Each level has a quarter of the one before (an eighth in 3-D): a third more than the first, at most. */
	ALLOCATING(cuMipmappedArrayCreate, (pHandle, d, levels), *pHandle,
		array_bytes(d) + (levels > 1 ? array_bytes(d) / 3 : 0), STATS_NATIVE_ARRAY);
}

CUresult CUDAAPI cuMipmappedArrayDestroy(CUmipmappedArray hMipmappedArray)
{
	GIVING_BACK(cuMipmappedArrayDestroy, (hMipmappedArray), hMipmappedArray);
}

/* ---- the application's own VMM ----
 * To the driver managed memory is VMM memory, to the application it is memory of cuMemAlloc, which these calls refuse: they
 * would take the pages from under a record, or the address of the next allocation. */

static bool managed(CUdeviceptr address, size_t bytes)
{
	return shim_active() && lifecycle_owns(&shim_hot.lifecycle, address, bytes);
}

CUresult CUDAAPI cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,
	unsigned long long flags)
{
	CUresult result;

	if (!shim_active())
		return FORWARD(cuMemCreate, (handle, size, prop, flags));
	NATIVE_ALLOCATE(result, cuMemCreate, (handle, size, prop, flags));
	if (result == CUDA_SUCCESS)
		SHIM_OWN(native_vmm_created(&shim_hot.lifecycle.native, *handle, size, prop));
	return result;
}

CUresult CUDAAPI cuMemRelease(CUmemGenericAllocationHandle handle)
{
	/* Noted before: the driver may hand the value to another thread before the call has returned here. A release that the
	 * driver refuses was not of a handle that counts. */
	if (shim_active())
		SHIM_OWN(native_vmm_released(&shim_hot.lifecycle.native, handle));
	return FORWARD(cuMemRelease, (handle));
}

CUresult CUDAAPI cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
	unsigned long long flags)
{
	CUresult result;

	if (managed(ptr, size))
		return CUDA_ERROR_INVALID_VALUE;
	result = FORWARD(cuMemMap, (ptr, size, offset, handle, flags));
	if (result == CUDA_SUCCESS && shim_active())
		SHIM_OWN(native_vmm_mapped(&shim_hot.lifecycle.native, ptr, size, handle));
	return result;
}

CUresult CUDAAPI cuMemUnmap(CUdeviceptr ptr, size_t size)
{
	CUresult result;

	if (!shim_active())
		return FORWARD(cuMemUnmap, (ptr, size));
	if (managed(ptr, size))
		return CUDA_ERROR_INVALID_VALUE;
	/* After the call: a refused unmap leaves the mapping, and who reuses the address is the application itself. */
	result = FORWARD(cuMemUnmap, (ptr, size));
	if (result == CUDA_SUCCESS)
		SHIM_OWN(native_vmm_unmapped(&shim_hot.lifecycle.native, ptr, size));
	return result;
}

CUresult CUDAAPI cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count)
{
	if (managed(ptr, size))
		return CUDA_ERROR_INVALID_VALUE;
	return FORWARD(cuMemSetAccess, (ptr, size, desc, count));
}

CUresult CUDAAPI cuMemAddressFree(CUdeviceptr ptr, size_t size)
{
	if (managed(ptr, size))
		return CUDA_ERROR_INVALID_VALUE;
	return FORWARD(cuMemAddressFree, (ptr, size));
}
