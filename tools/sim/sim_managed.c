/* tools/sim/sim_managed.c
 * Advice and prefetching of managed memory, and the profiler's switches. Managed memory stays on the host here, so advice is
 * checked, kept and asked for, and a prefetch is checked and then done at once. */
#include "tools/sim/sim_memory.h"
#include "tools/sim/sim_exec.h"

#include <string.h>

/* ---- rules ---- */

static bool location_ok(const CUmemLocation *location)
{
	switch ((int)location->type) {
	case CU_MEM_LOCATION_TYPE_DEVICE:
		return location->id >= 0 && location->id < sim_config.devices;
	case CU_MEM_LOCATION_TYPE_HOST_NUMA:
		return location->id == 0; /* one node here */
	case CU_MEM_LOCATION_TYPE_HOST:
	case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
		return true;
	default:
		return false;
	}
}

/* Is the whole range of one managed allocation? sim_lock held. */
static struct sim_block *managed(uint64_t address, uint64_t bytes)
{
	struct sim_block *block = sim_block_at(address);

	return block && block->kind == SIM_UVM && bytes && bytes <= block->address + block->bytes - address ? block : NULL;
}

static CUmemLocation of_device(CUdevice device)
{
	CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};

	if (device == CU_DEVICE_CPU)
		location = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_HOST};
	return location;
}

/* ---- prefetch ---- */

static void nothing(void *arg)
{
}

static CUresult prefetch(struct sim_context *ctx, CUdeviceptr ptr, size_t bytes, CUmemLocation location, unsigned flags,
	CUstream stream, bool per_thread)
{
	struct sim_block *block;

	if (flags || !location_ok(&location))
		return location.type == CU_MEM_LOCATION_TYPE_DEVICE && !flags ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim_lock);
	block = managed(ptr, bytes);
	if (block) {
		block->prefetched = location;
		block->prefetch_known = true;
	}
	pthread_mutex_unlock(&sim_lock);
	return block ? sim_submit(ctx, stream, per_thread, nothing, NULL, true) : CUDA_ERROR_INVALID_VALUE;
}

#define PREFETCH_V1 (CUdeviceptr ptr, size_t bytes, CUdevice device, CUstream stream)
#define PREFETCH_V2 (CUdeviceptr ptr, size_t bytes, CUmemLocation location, unsigned int flags, CUstream stream)
SIM_BOTH(cuMemPrefetchAsync, PREFETCH_V1, prefetch(ctx, ptr, bytes, of_device(device), 0, stream, twin))
SIM_BOTH(cuMemPrefetchAsync_v2, PREFETCH_V2, prefetch(ctx, ptr, bytes, location, flags, stream, twin))

/* ---- advice ---- */

static CUresult advise(CUdeviceptr ptr, size_t bytes, CUmem_advise advice, CUmemLocation location)
{
	CUresult result = CUDA_SUCCESS;
	struct sim_block *block;

	if ((int)advice < CU_MEM_ADVISE_SET_READ_MOSTLY || (int)advice > CU_MEM_ADVISE_UNSET_ACCESSED_BY)
		return CUDA_ERROR_INVALID_VALUE;
	/* Documented: the location does not matter to these. */
	if (advice != CU_MEM_ADVISE_SET_READ_MOSTLY && advice != CU_MEM_ADVISE_UNSET_READ_MOSTLY &&
		advice != CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION && !location_ok(&location))
		return location.type == CU_MEM_LOCATION_TYPE_DEVICE ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim_lock);
	block = managed(ptr, bytes);
	if (!block) {
		result = CUDA_ERROR_INVALID_VALUE;
	} else {
		switch ((int)advice) {
		case CU_MEM_ADVISE_SET_READ_MOSTLY:
		case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
			block->read_mostly = advice == CU_MEM_ADVISE_SET_READ_MOSTLY;
			break;
		case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
		case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
			block->preferred_known = advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION;
			block->preferred = location;
			break;
		default: /* who accesses it has everything mapped here already */
			break;
		}
	}
	pthread_mutex_unlock(&sim_lock);
	return result;
}

CUresult CUDAAPI cuMemAdvise(CUdeviceptr ptr, size_t bytes, CUmem_advise advice, CUdevice device)
{
	ENTER_CONTEXT(cuMemAdvise, ctx);
	return advise(ptr, bytes, advice, of_device(device));
}

CUresult CUDAAPI cuMemAdvise_v2(CUdeviceptr ptr, size_t bytes, CUmem_advise advice, CUmemLocation location)
{
	ENTER_CONTEXT(cuMemAdvise_v2, ctx);
	return advise(ptr, bytes, advice, location);
}

static int device_number(bool known, CUmemLocation location)
{
	return !known ? CU_DEVICE_INVALID : location.type == CU_MEM_LOCATION_TYPE_DEVICE ? location.id : CU_DEVICE_CPU;
}

CUresult CUDAAPI cuMemRangeGetAttribute(void *data, size_t data_bytes, CUmem_range_attribute attribute, CUdeviceptr ptr,
	size_t bytes)
{
	CUresult result = CUDA_SUCCESS;
	struct sim_block *block;

	ENTER_CONTEXT(cuMemRangeGetAttribute, ctx);
	if (!data || data_bytes != sizeof(int)) /* the lists of ACCESSED_BY are not kept */
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim_lock);
	block = managed(ptr, bytes);
	if (!block) {
		result = CUDA_ERROR_INVALID_VALUE;
	} else {
		switch ((int)attribute) {
		case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
			*(int *)data = block->read_mostly;
			break;
		case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
			*(int *)data = device_number(block->preferred_known, block->preferred);
			break;
		case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
			*(int *)data = device_number(block->prefetch_known, block->prefetched);
			break;
		default:
			result = CUDA_ERROR_NOT_SUPPORTED;
		}
	}
	pthread_mutex_unlock(&sim_lock);
	return result;
}

/* ---- profiler: nobody collects anything here, and programs mark phases with these ---- */

CUresult CUDAAPI cuProfilerStart(void)
{
	ENTER_CONTEXT(cuProfilerStart, ctx);
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuProfilerStop(void)
{
	ENTER_CONTEXT(cuProfilerStop, ctx);
	return CUDA_SUCCESS;
}
