/* tools/sim/sim_pool_calls.c
 * Pools as objects: which one is current, properties, attributes, access. */
#include "tools/sim/sim_pool.h"

/* Where memory of @location lies, as pools see it. */
static CUresult place_of(const CUmemLocation *location, int *ret_place)
{
	switch ((int)location->type) {
	case CU_MEM_LOCATION_TYPE_DEVICE:
		*ret_place = location->id;
		return location->id >= 0 && location->id < sim_config.devices ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
	case CU_MEM_LOCATION_TYPE_HOST_NUMA:
		if (location->id != 0) /* one node here */
			return CUDA_ERROR_INVALID_VALUE;
		break;
	case CU_MEM_LOCATION_TYPE_HOST:
		break;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
	*ret_place = SIM_HOST;
	return CUDA_SUCCESS;
}

static CUresult pool_at(CUmemoryPool *ret_pool, CUmemLocation location, bool want_default)
{
	struct sim_pool *pool;
	CUresult result;
	int place;

	if (!ret_pool)
		return CUDA_ERROR_INVALID_VALUE;
	result = place_of(&location, &place);
	if (result != CUDA_SUCCESS)
		return result;
	if (sim_config.without_pools)
		return CUDA_ERROR_NOT_SUPPORTED;
	pthread_mutex_lock(&sim_lock);
	pool = want_default ? sim_pool_default(place) : sim_pool_current(place);
	pthread_mutex_unlock(&sim_lock);
	*ret_pool = (CUmemoryPool)pool;
	return pool ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult make_current(CUmemLocation location, CUmemoryPool handle)
{
	struct sim_pool *pool;
	CUresult result;
	int place;

	result = place_of(&location, &place);
	if (result != CUDA_SUCCESS)
		return result;
	pthread_mutex_lock(&sim_lock);
	pool = sim_pool_of(handle);
	if (!pool || pool->location != place || pool->imported) /* documented: the pool must be local to the place */
		result = CUDA_ERROR_INVALID_VALUE;
	else
		sim_pool_current_of[place + 1] = pool;
	pthread_mutex_unlock(&sim_lock);
	return result;
}

static CUmemLocation of_device(CUdevice device)
{
	return (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
}

CUresult CUDAAPI cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device)
{
	ENTER(cuDeviceGetDefaultMemPool);
	return pool_at(pool, of_device(device), true);
}

CUresult CUDAAPI cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device)
{
	ENTER(cuDeviceGetMemPool);
	return pool_at(pool, of_device(device), false);
}

CUresult CUDAAPI cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool)
{
	ENTER(cuDeviceSetMemPool);
	return make_current(of_device(device), pool);
}

/* Pools of managed memory are not simulated. */
static CUresult type_ok(CUmemAllocationType type)
{
	return type == CU_MEM_ALLOCATION_TYPE_PINNED ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult CUDAAPI cuMemGetDefaultMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type)
{
	ENTER(cuMemGetDefaultMemPool);
	if (!location)
		return CUDA_ERROR_INVALID_VALUE;
	return type_ok(type) == CUDA_SUCCESS ? pool_at(pool, *location, true) : type_ok(type);
}

CUresult CUDAAPI cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type)
{
	ENTER(cuMemGetMemPool);
	if (!location)
		return CUDA_ERROR_INVALID_VALUE;
	return type_ok(type) == CUDA_SUCCESS ? pool_at(pool, *location, false) : type_ok(type);
}

CUresult CUDAAPI cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool)
{
	ENTER(cuMemSetMemPool);
	if (!location)
		return CUDA_ERROR_INVALID_VALUE;
	return type_ok(type) == CUDA_SUCCESS ? make_current(*location, pool) : type_ok(type);
}

CUresult CUDAAPI cuMemPoolCreate(CUmemoryPool *ret_pool, const CUmemPoolProps *props)
{
	struct sim_pool *pool;
	CUresult result;
	int location;

	ENTER(cuMemPoolCreate);
	if (!ret_pool || !props || props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED)
		return CUDA_ERROR_INVALID_VALUE;
	if (sim_config.without_pools)
		return CUDA_ERROR_NOT_SUPPORTED;
	result = place_of(&props->location, &location);
	if (result != CUDA_SUCCESS)
		return result;
	if (props->location.type == CU_MEM_LOCATION_TYPE_HOST && props->handleTypes != CU_MEM_HANDLE_TYPE_NONE)
		return CUDA_ERROR_INVALID_VALUE;
	if (props->handleTypes & CU_MEM_HANDLE_TYPE_FABRIC)
		return CUDA_ERROR_NOT_PERMITTED; /* no IMEX channel */
	if (props->handleTypes & ~(unsigned)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_INVALID_VALUE;
	if (props->handleTypes && sim_config.without_fd)
		return CUDA_ERROR_NOT_SUPPORTED;
	pthread_mutex_lock(&sim_lock);
	pool = sim_pool_new(props, location);
	pthread_mutex_unlock(&sim_lock);
	*ret_pool = (CUmemoryPool)pool;
	return pool ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult CUDAAPI cuMemPoolDestroy(CUmemoryPool handle)
{
	struct sim_pool *pool;
	CUresult result = CUDA_SUCCESS;

	ENTER(cuMemPoolDestroy);
	pthread_mutex_lock(&sim_lock);
	pool = sim_pool_of(handle);
	if (!pool || pool->is_default) {
		result = CUDA_ERROR_INVALID_VALUE;
	} else {
		for (int d = 0; d <= SIM_DEVICES_MAX; d++) {
			if (sim_pool_current_of[d] == pool)
				sim_pool_current_of[d] = NULL;
		}
		pool->destroyed = true;
		sim_pool_drop_if_over(pool);
	}
	pthread_mutex_unlock(&sim_lock);
	return result;
}

CUresult CUDAAPI cuMemPoolTrimTo(CUmemoryPool handle, size_t keep)
{
	struct sim_pool *pool;

	ENTER(cuMemPoolTrimTo);
	pthread_mutex_lock(&sim_lock);
	pool = sim_pool_of(handle);
	if (pool)
		sim_pool_trim(pool, keep);
	pthread_mutex_unlock(&sim_lock);
	return pool ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void *value)
{
	struct sim_pool *pool;
	CUresult result;

	ENTER(cuMemPoolGetAttribute);
	if (!value)
		return CUDA_ERROR_INVALID_VALUE;
	result = sim_capture_check(false); /* reported of hardware: the question invalidates a global capture */
	if (result != CUDA_SUCCESS)
		return result;
	pthread_mutex_lock(&sim_lock);
	pool = sim_pool_of(handle);
	if (!pool) {
		result = CUDA_ERROR_INVALID_VALUE;
	} else {
		switch ((int)attribute) {
		case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
		case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
		case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
			*(int *)value = pool->reuse[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES];
			break;
		case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
			*(cuuint64_t *)value = pool->threshold;
			break;
		case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
			*(cuuint64_t *)value = pool->reserved;
			break;
		case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
			*(cuuint64_t *)value = pool->reserved_high;
			break;
		case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
			*(cuuint64_t *)value = pool->used;
			break;
		case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
			*(cuuint64_t *)value = pool->used_high;
			break;
		default:
			result = CUDA_ERROR_INVALID_VALUE;
		}
	}
	pthread_mutex_unlock(&sim_lock);
	return result;
}

CUresult CUDAAPI cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void *value)
{
	struct sim_pool *pool;
	CUresult result = CUDA_SUCCESS;

	ENTER(cuMemPoolSetAttribute);
	if (!value)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim_lock);
	pool = sim_pool_of(handle);
	switch (pool ? (int)attribute : 0) {
	case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
		pool->reuse[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES] = *(int *)value != 0;
		break;
	case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
		pool->threshold = *(cuuint64_t *)value;
		break;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
	case CU_MEMPOOL_ATTR_USED_MEM_HIGH: /* only to zero, which means: from now on */
		if (*(cuuint64_t *)value)
			result = CUDA_ERROR_INVALID_VALUE;
		else if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH)
			pool->used_high = pool->used;
		else
			pool->reserved_high = pool->reserved;
		break;
	default: /* the current values are the driver's own */
		result = CUDA_ERROR_INVALID_VALUE;
	}
	pthread_mutex_unlock(&sim_lock);
	return result;
}

static uint32_t access_bit(const CUmemLocation *location)
{
	if (location->type == CU_MEM_LOCATION_TYPE_DEVICE)
		return location->id >= 0 && location->id < sim_config.devices ? 1u << location->id : 0;
	return location->type == CU_MEM_LOCATION_TYPE_HOST || location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA ? SIM_POOL_HOST_BIT : 0;
}

CUresult CUDAAPI cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc *list, size_t count)
{
	struct sim_pool *pool;
	CUresult result = CUDA_SUCCESS;
	uint32_t own, readable;

	ENTER(cuMemPoolSetAccess);
	if (!list || !count)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim_lock);
	pool = sim_pool_of(handle);
	own = !pool ? 0 : pool->location == SIM_HOST ? SIM_POOL_HOST_BIT : 1u << pool->location;
	readable = pool ? pool->readable : 0;
	for (size_t i = 0; i < count; i++) {
		uint32_t bit = access_bit(&list[i].location);

		/* A pool's own device keeps its access, and pools know no read-only. */
		if (!pool || !bit || (bit == own && list[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) ||
			(bit == SIM_POOL_HOST_BIT && own != SIM_POOL_HOST_BIT) ||
			(list[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && list[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE))
			result = bit || !pool ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_DEVICE;
		readable = list[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE ? readable & ~bit : readable | bit;
	}
	if (result == CUDA_SUCCESS)
		pool->readable = readable;
	pthread_mutex_unlock(&sim_lock);
	return result;
}

CUresult CUDAAPI cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool handle, CUmemLocation *location)
{
	struct sim_pool *pool;
	uint32_t bit;

	ENTER(cuMemPoolGetAccess);
	if (!flags || !location)
		return CUDA_ERROR_INVALID_VALUE;
	bit = access_bit(location);
	pthread_mutex_lock(&sim_lock);
	pool = sim_pool_of(handle);
	if (pool && bit)
		*flags = pool->readable & bit ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
	pthread_mutex_unlock(&sim_lock);
	return pool && bit ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
