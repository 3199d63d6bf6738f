/* tools/sim/sim_context_state.c
 * What a context keeps besides its work: limits, preferences, flags, its number, peers. */
#include "tools/sim/sim_priv.h"

#include <stdlib.h>

CUresult CUDAAPI cuCtxGetFlags(unsigned int *flags)
{
	ENTER_CONTEXT(cuCtxGetFlags, context);
	if (!flags)
		return CUDA_ERROR_INVALID_VALUE;
	*flags = context->flags;
	return CUDA_SUCCESS;
}

/* Documented: only flags that may change later, which are the synchronising copies and the core dumps. */
CUresult CUDAAPI cuCtxSetFlags(unsigned int flags)
{
	const unsigned may = CU_CTX_SYNC_MEMOPS | CU_CTX_COREDUMP_ENABLE | CU_CTX_USER_COREDUMP_ENABLE;

	ENTER_CONTEXT(cuCtxSetFlags, context);
	if ((flags ^ context->flags) & ~may & ~(unsigned)CU_CTX_MAP_HOST)
		return CUDA_ERROR_INVALID_VALUE;
	context->flags = flags | CU_CTX_MAP_HOST;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetApiVersion(CUcontext handle, unsigned int *version)
{
	struct sim_context *context;

	ENTER(cuCtxGetApiVersion);
	if (!version)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim_lock);
	context = handle ? sim_context_of(handle) : sim_current();
	pthread_mutex_unlock(&sim_lock);
	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	*version = context->api_version;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetId(CUcontext handle, unsigned long long *id)
{
	struct sim_context *context;

	ENTER(cuCtxGetId);
	if (!id)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim_lock);
	context = handle ? sim_context_of(handle) : sim_current();
	pthread_mutex_unlock(&sim_lock);
	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	*id = context->id;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetLimit(size_t *value, CUlimit limit)
{
	ENTER_CONTEXT(cuCtxGetLimit, context);
	if (!value || limit >= CU_LIMIT_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	if (limit == CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH) /* gone since compute capability 9 */
		return CUDA_ERROR_UNSUPPORTED_LIMIT;
	*value = context->limits[limit];
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxSetLimit(CUlimit limit, size_t value)
{
	ENTER_CONTEXT(cuCtxSetLimit, context);
	switch ((int)limit) {
	case CU_LIMIT_STACK_SIZE:
	case CU_LIMIT_PRINTF_FIFO_SIZE:
	case CU_LIMIT_MALLOC_HEAP_SIZE:
	case CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT:
	case CU_LIMIT_PERSISTING_L2_CACHE_SIZE:
		context->limits[limit] = value;
		return CUDA_SUCCESS;
	case CU_LIMIT_MAX_L2_FETCH_GRANULARITY: /* documented: a hint from 0 to 128 */
		if (value > 128)
			return CUDA_ERROR_INVALID_VALUE;
		context->limits[limit] = value;
		return CUDA_SUCCESS;
	case CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH:
	case CU_LIMIT_SHMEM_SIZE: /* of graphics contexts, to be asked only */
	case CU_LIMIT_CIG_ENABLED:
	case CU_LIMIT_CIG_SHMEM_FALLBACK_ENABLED:
		return CUDA_ERROR_UNSUPPORTED_LIMIT;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult CUDAAPI cuCtxGetCacheConfig(CUfunc_cache *config)
{
	ENTER_CONTEXT(cuCtxGetCacheConfig, context);
	if (!config)
		return CUDA_ERROR_INVALID_VALUE;
	*config = context->cache;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxSetCacheConfig(CUfunc_cache config)
{
	ENTER_CONTEXT(cuCtxSetCacheConfig, context);
	if ((int)config < CU_FUNC_CACHE_PREFER_NONE || (int)config > CU_FUNC_CACHE_PREFER_EQUAL)
		return CUDA_ERROR_INVALID_VALUE;
	context->cache = config;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetSharedMemConfig(CUsharedconfig *config)
{
	ENTER_CONTEXT(cuCtxGetSharedMemConfig, context);
	if (!config)
		return CUDA_ERROR_INVALID_VALUE;
	*config = context->bank;
	return CUDA_SUCCESS;
}

/* Taken and without effect on every device since Maxwell, whose banks have four bytes. */
CUresult CUDAAPI cuCtxSetSharedMemConfig(CUsharedconfig config)
{
	ENTER_CONTEXT(cuCtxSetSharedMemConfig, context);
	if ((int)config < CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE || (int)config > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE)
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxResetPersistingL2Cache(void)
{
	ENTER_CONTEXT(cuCtxResetPersistingL2Cache, context);
	return CUDA_SUCCESS; /* nothing is cached here */
}

CUresult CUDAAPI cuCtxGetExecAffinity(CUexecAffinityParam *param, CUexecAffinityType type)
{
	ENTER_CONTEXT(cuCtxGetExecAffinity, context);
	if (!param)
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
}

/* ---- peers ---- */

static CUresult peer_of(const struct sim_context *context, CUcontext handle, struct sim_context **ret_peer)
{
	*ret_peer = sim_context_of(handle);
	if (!*ret_peer)
		return CUDA_ERROR_INVALID_CONTEXT;
	return (*ret_peer)->device == context->device ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxEnablePeerAccess(CUcontext handle, unsigned int flags)
{
	struct sim_context *peer;
	CUresult result;

	ENTER_CONTEXT(cuCtxEnablePeerAccess, context);
	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim_lock);
	result = peer_of(context, handle, &peer);
	if (result == CUDA_SUCCESS && (context->peers & (1u << peer->device)))
		result = CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
	if (result == CUDA_SUCCESS)
		context->peers |= 1u << peer->device;
	pthread_mutex_unlock(&sim_lock);
	return result;
}

CUresult CUDAAPI cuCtxDisablePeerAccess(CUcontext handle)
{
	struct sim_context *peer;
	CUresult result;

	ENTER_CONTEXT(cuCtxDisablePeerAccess, context);
	pthread_mutex_lock(&sim_lock);
	result = peer_of(context, handle, &peer);
	if (result != CUDA_ERROR_INVALID_CONTEXT && !(context->peers & (1u << peer->device)))
		result = CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
	if (result == CUDA_SUCCESS)
		context->peers &= ~(1u << peer->device);
	pthread_mutex_unlock(&sim_lock);
	return result;
}
