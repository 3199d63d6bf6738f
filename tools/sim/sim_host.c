/* tools/sim/sim_host.c
 * Pinned host memory: allocated here, or the program's own pages made known to the device. Under unified addressing both
 * have one address. */
#include "tools/sim/sim_memory.h"

#include <stdlib.h>

#define HOST_ALLOC_FLAGS (CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED)
#define HOST_REGISTER_FLAGS                                                                                            \
	(CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_IOMEMORY |                     \
		CU_MEMHOSTREGISTER_READ_ONLY)

static CUresult allocate(void **ptr, size_t bytes, unsigned flags, struct sim_context *context)
{
	uint64_t address;
	CUresult result;

	if (!ptr || (flags & ~(unsigned)HOST_ALLOC_FLAGS))
		return CUDA_ERROR_INVALID_VALUE;
	result = sim_capture_check(false);
	if (result == CUDA_SUCCESS)
		result = sim_block_allocate(bytes, SIM_HOST_ALLOC, context, flags, &address);
	if (result == CUDA_SUCCESS)
		*ptr = (void *)(uintptr_t)address;
	return result;
}

CUresult CUDAAPI cuMemHostAlloc(void **ptr, size_t bytes, unsigned int flags)
{
	ENTER_CONTEXT(cuMemHostAlloc, context);
	return allocate(ptr, bytes, flags, context);
}

CUresult CUDAAPI cuMemAllocHost_v2(void **ptr, size_t bytes)
{
	ENTER_CONTEXT(cuMemAllocHost_v2, context);
	return allocate(ptr, bytes, 0, context);
}

CUresult CUDAAPI cuMemFreeHost(void *ptr)
{
	CUresult result;

	ENTER_CONTEXT(cuMemFreeHost, context);
	result = sim_capture_check(false);
	if (result != CUDA_SUCCESS)
		return result;
	sim_wait_device(context->device);
	return sim_block_give_back((uint64_t)(uintptr_t)ptr, SIM_BIT(SIM_HOST_ALLOC));
}

CUresult CUDAAPI cuMemHostRegister_v2(void *ptr, size_t bytes, unsigned int flags)
{
	uint64_t address = (uint64_t)(uintptr_t)ptr;
	struct sim_block *other, *block = NULL;
	CUresult result;

	ENTER_CONTEXT(cuMemHostRegister_v2, context);
	if (!ptr || !bytes || (flags & ~(unsigned)HOST_REGISTER_FLAGS) || !sim_range_ok(address, bytes))
		return CUDA_ERROR_INVALID_VALUE;
	result = sim_capture_check(false);
	if (result != CUDA_SUCCESS)
		return result;
	pthread_mutex_lock(&sim_lock);
	/* Only the registered kind has the error of its own, seen on driver 580. */
	other = sim_block_between(address, address + bytes);
	if (other)
		result = other->kind == SIM_HOST_REGISTERED ? CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED : CUDA_ERROR_INVALID_VALUE;
	else
		block = sim_block_new(address, bytes, SIM_HOST_REGISTERED, context, NULL);
	if (block)
		block->flags = flags;
	else if (!other)
		result = CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_unlock(&sim_lock);
	return result;
}

CUresult CUDAAPI cuMemHostUnregister(void *ptr)
{
	uint64_t address = (uint64_t)(uintptr_t)ptr;

	ENTER_CONTEXT(cuMemHostUnregister, context);
	sim_wait_device(context->device);
	/* Memory of another kind is a wrong argument, as seen of cuMemHostAlloc's; for the rest there is a code of its own. */
	if (!sim_known(address))
		return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
	return sim_block_give_back(address, SIM_BIT(SIM_HOST_REGISTERED));
}

static bool host_kind(const struct sim_block *block)
{
	return block && (block->kind == SIM_HOST_ALLOC || block->kind == SIM_HOST_REGISTERED);
}

CUresult CUDAAPI cuMemHostGetDevicePointer_v2(CUdeviceptr *ret_ptr, void *ptr, unsigned int flags)
{
	bool known;

	ENTER_CONTEXT(cuMemHostGetDevicePointer_v2, context);
	if (!ret_ptr || flags)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim_lock);
	known = host_kind(sim_block_at((uint64_t)(uintptr_t)ptr));
	pthread_mutex_unlock(&sim_lock);
	if (known)
		*ret_ptr = (CUdeviceptr)(uintptr_t)ptr;
	return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuMemHostGetFlags(unsigned int *flags, void *ptr)
{
	struct sim_block *block;
	bool vmm;

	ENTER(cuMemHostGetFlags);
	if (!flags)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim_lock);
	block = sim_block_at((uint64_t)(uintptr_t)ptr);
	/* Driver 580 answers for VMM memory as well, wherever it lies. */
	vmm = !block && sim_mapping_at((uint64_t)(uintptr_t)ptr);
	if (host_kind(block) || vmm)
		*flags = vmm ? 0 : block->flags;
	pthread_mutex_unlock(&sim_lock);
	return host_kind(block) || vmm ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
