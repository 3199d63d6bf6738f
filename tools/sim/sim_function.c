/* tools/sim/sim_function.c
 * Questions about kernels: names, parameter layouts, attributes, occupancy. The figures are those of a device of compute
 * capability 9.0 and of a kernel with 32 registers. */
#include "tools/sim/sim_exec.h"

#define THREADS_MAX 1024
#define SM_COUNT 132
#define SM_THREADS 2048
#define SM_BLOCKS 32
#define SM_SHARED (228 << 10)
#define BLOCK_SHARED_MAX (227 << 10) /* opt-in; 48 KiB without */
#define BLOCK_SHARED_RESERVED 1024   /* that the system takes of each block */

/* FACTS: the runtime passes CUkernel handles as CUfunction; launches take them, cuFunc queries of parameters do not. */
static struct sim_function *strictly(const void *handle, bool kernel)
{
	struct sim_function *function = sim_function_of(handle);

	return function && (function->library != NULL) == kernel ? function : NULL;
}

/* ---- names and parameters ---- */

static CUresult name_of(const struct sim_function *function, const char **ret_name)
{
	if (!ret_name)
		return CUDA_ERROR_INVALID_VALUE;
	if (!function)
		return CUDA_ERROR_INVALID_HANDLE;
	*ret_name = function->info->name;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuFuncGetName(const char **name, CUfunction function)
{
	ENTER(cuFuncGetName);
	return name_of(sim_function_of(function), name);
}

CUresult CUDAAPI cuKernelGetName(const char **name, CUkernel kernel)
{
	ENTER(cuKernelGetName);
	return name_of(strictly(kernel, true), name);
}

static CUresult param(const struct sim_function *function, size_t index, size_t *ret_offset, size_t *ret_bytes)
{
	if (!function)
		return CUDA_ERROR_INVALID_HANDLE;
	if (index >= function->info->param_count || !ret_offset)
		return CUDA_ERROR_INVALID_VALUE;
	*ret_offset = function->offset[index];
	if (ret_bytes)
		*ret_bytes = function->info->param_bytes[index];
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuFuncGetParamInfo(CUfunction function, size_t index, size_t *offset, size_t *bytes)
{
	ENTER(cuFuncGetParamInfo);
	return param(strictly(function, false), index, offset, bytes);
}

CUresult CUDAAPI cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t *offset, size_t *bytes)
{
	ENTER(cuKernelGetParamInfo);
	return param(strictly(kernel, true), index, offset, bytes);
}

/* ---- loading ---- */

CUresult CUDAAPI cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction handle)
{
	ENTER(cuFuncIsLoaded);
	if (!state || !strictly(handle, false))
		return state ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE;
	*state = CU_FUNCTION_LOADING_STATE_LOADED;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuFuncLoad(CUfunction handle)
{
	ENTER(cuFuncLoad);
	return strictly(handle, false) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult CUDAAPI cuKernelGetFunction(CUfunction *ret_function, CUkernel handle)
{
	struct sim_function *kernel = strictly(handle, true);
	CUresult result;

	ENTER_CONTEXT(cuKernelGetFunction, ctx);
	if (!ret_function || !kernel)
		return ret_function ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim_lock);
	*ret_function = (CUfunction)sim_function_in(kernel, ctx);
	result = *ret_function ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_unlock(&sim_lock);
	return result;
}

/* ---- attributes ---- */

static CUresult get(const struct sim_function *function, CUfunction_attribute attribute, int *ret)
{
	if (!ret)
		return CUDA_ERROR_INVALID_VALUE;
	if (!function)
		return CUDA_ERROR_INVALID_HANDLE;
	switch (attribute) {
	case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
		*ret = THREADS_MAX;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
	case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
	case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
	case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA:
	case CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET:
		*ret = 0;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_NUM_REGS:
		*ret = 32;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_PTX_VERSION:
	case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
		*ret = 90;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
		*ret = function->dynamic_shared_bytes;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
		*ret = function->carveout;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
	case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
	case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
		*ret = function->cluster[attribute - CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH];
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
		*ret = function->non_portable_cluster;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
		*ret = function->cluster_policy;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_MAX:
		break;
	}
	return CUDA_ERROR_INVALID_VALUE;
}

static CUresult set(struct sim_function *function, CUfunction_attribute attribute, int value)
{
	if (!function)
		return CUDA_ERROR_INVALID_HANDLE;
	if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES && value >= 0 && value <= BLOCK_SHARED_MAX)
		function->dynamic_shared_bytes = value;
	else if (attribute == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT && value >= -1 && value <= 100)
		function->carveout = value;
	else if (attribute >= CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH &&
		 attribute <= CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH && value >= 0)
		function->cluster[attribute - CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH] = value;
	else if (attribute == CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED)
		function->non_portable_cluster = value != 0;
	else if (attribute == CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE && value >= 0 && value <= 2)
		function->cluster_policy = value;
	else
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuFuncGetAttribute(int *ret, CUfunction_attribute attribute, CUfunction function)
{
	ENTER(cuFuncGetAttribute);
	return get(sim_function_of(function), attribute, ret);
}

CUresult CUDAAPI cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value)
{
	ENTER(cuFuncSetAttribute);
	return set(sim_function_of(function), attribute, value);
}

CUresult CUDAAPI cuKernelGetAttribute(int *ret, CUfunction_attribute attribute, CUkernel kernel, CUdevice device)
{
	ENTER(cuKernelGetAttribute);
	if (device < 0 || device >= sim_config.devices)
		return CUDA_ERROR_INVALID_DEVICE;
	return get(strictly(kernel, true), attribute, ret);
}

CUresult CUDAAPI cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice device)
{
	ENTER(cuKernelSetAttribute);
	if (device < 0 || device >= sim_config.devices)
		return CUDA_ERROR_INVALID_DEVICE;
	return set(strictly(kernel, true), attribute, value);
}

static CUresult prefer(const struct sim_function *function, unsigned config, unsigned last)
{
	return !function ? CUDA_ERROR_INVALID_HANDLE : config <= last ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuFuncSetCacheConfig(CUfunction function, CUfunc_cache config)
{
	ENTER(cuFuncSetCacheConfig);
	return prefer(sim_function_of(function), config, CU_FUNC_CACHE_PREFER_EQUAL);
}

CUresult CUDAAPI cuFuncSetSharedMemConfig(CUfunction function, CUsharedconfig config)
{
	ENTER(cuFuncSetSharedMemConfig);
	return prefer(sim_function_of(function), config, CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE);
}

CUresult CUDAAPI cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice device)
{
	ENTER(cuKernelSetCacheConfig);
	return prefer(strictly(kernel, true), config, CU_FUNC_CACHE_PREFER_EQUAL);
}

/* ---- occupancy ---- */

int sim_blocks_per_processor(const struct sim_function *function, int threads, size_t shared_bytes)
{
	int warps = (threads + 31) / 32, blocks;

	if (threads <= 0 || threads > THREADS_MAX || shared_bytes > (size_t)function->dynamic_shared_bytes)
		return 0;
	blocks = SM_THREADS / 32 / warps;
	if (blocks > SM_BLOCKS)
		blocks = SM_BLOCKS;
	if (blocks > (int)(SM_SHARED / (shared_bytes + BLOCK_SHARED_RESERVED)))
		blocks = (int)(SM_SHARED / (shared_bytes + BLOCK_SHARED_RESERVED));
	return blocks;
}

static CUresult active_blocks(int *ret, CUfunction handle, int threads, size_t shared_bytes)
{
	const struct sim_function *function = sim_function_of(handle);

	if (!ret || threads <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (!function)
		return CUDA_ERROR_INVALID_HANDLE;
	*ret = sim_blocks_per_processor(function, threads, shared_bytes);
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuOccupancyMaxActiveBlocksPerMultiprocessor(int *ret, CUfunction function, int threads, size_t shared_bytes)
{
	ENTER_CONTEXT(cuOccupancyMaxActiveBlocksPerMultiprocessor, ctx);
	return active_blocks(ret, function, threads, shared_bytes);
}

CUresult CUDAAPI cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *ret, CUfunction function, int threads,
	size_t shared_bytes, unsigned int flags)
{
	ENTER_CONTEXT(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, ctx);
	return flags > CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE ? CUDA_ERROR_INVALID_VALUE
							      : active_blocks(ret, function, threads, shared_bytes);
}

static CUresult potential(int *ret_grid, int *ret_threads, CUfunction handle, CUoccupancyB2DSize shared_for, size_t shared_bytes,
	int limit)
{
	const struct sim_function *function = sim_function_of(handle);
	int best = 0, best_threads = 0;

	if (!ret_grid || !ret_threads)
		return CUDA_ERROR_INVALID_VALUE;
	if (!function)
		return CUDA_ERROR_INVALID_HANDLE;
	for (int threads = limit > 0 && limit < THREADS_MAX ? limit : THREADS_MAX; threads > 0; threads -= 32) {
		size_t shared = shared_for ? shared_for(threads) : shared_bytes;
		int blocks = sim_blocks_per_processor(function, threads, shared);

		if (blocks * threads > best) {
			best = blocks * threads;
			best_threads = threads;
			*ret_grid = blocks * SM_COUNT;
		}
	}
	*ret_threads = best_threads;
	return best ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuOccupancyMaxPotentialBlockSize(int *grid, int *threads, CUfunction function, CUoccupancyB2DSize shared_for,
	size_t shared_bytes, int limit)
{
	ENTER_CONTEXT(cuOccupancyMaxPotentialBlockSize, ctx);
	return potential(grid, threads, function, shared_for, shared_bytes, limit);
}

CUresult CUDAAPI cuOccupancyMaxPotentialBlockSizeWithFlags(int *grid, int *threads, CUfunction function,
	CUoccupancyB2DSize shared_for, size_t shared_bytes, int limit, unsigned int flags)
{
	ENTER_CONTEXT(cuOccupancyMaxPotentialBlockSizeWithFlags, ctx);
	return potential(grid, threads, function, shared_for, shared_bytes, limit);
}

CUresult CUDAAPI cuOccupancyAvailableDynamicSMemPerBlock(size_t *ret, CUfunction handle, int blocks, int threads)
{
	const struct sim_function *function = sim_function_of(handle);
	size_t bytes;

	ENTER_CONTEXT(cuOccupancyAvailableDynamicSMemPerBlock, ctx);
	if (!ret || blocks <= 0 || threads <= 0 || threads > THREADS_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	if (!function)
		return CUDA_ERROR_INVALID_HANDLE;
	bytes = SM_SHARED / (size_t)blocks;
	bytes = bytes > BLOCK_SHARED_RESERVED ? bytes - BLOCK_SHARED_RESERVED : 0;
	*ret = bytes > BLOCK_SHARED_MAX ? BLOCK_SHARED_MAX : bytes;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuOccupancyMaxPotentialClusterSize(int *ret, CUfunction handle, const CUlaunchConfig *config)
{
	const struct sim_function *function = sim_function_of(handle);

	ENTER_CONTEXT(cuOccupancyMaxPotentialClusterSize, ctx);
	if (!ret || !config)
		return CUDA_ERROR_INVALID_VALUE;
	if (!function)
		return CUDA_ERROR_INVALID_HANDLE;
	*ret = function->non_portable_cluster ? 16 : 8;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuOccupancyMaxActiveClusters(int *ret, CUfunction handle, const CUlaunchConfig *config)
{
	const struct sim_function *function = sim_function_of(handle);
	unsigned cluster = 1;

	ENTER_CONTEXT(cuOccupancyMaxActiveClusters, ctx);
	if (!ret || !config)
		return CUDA_ERROR_INVALID_VALUE;
	if (!function)
		return CUDA_ERROR_INVALID_HANDLE;
	for (unsigned i = 0; i < config->numAttrs; i++) {
		if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
			cluster = config->attrs[i].value.clusterDim.x * config->attrs[i].value.clusterDim.y *
				  config->attrs[i].value.clusterDim.z;
	}
	if (!cluster || cluster > (function->non_portable_cluster ? 16u : 8u))
		return CUDA_ERROR_INVALID_CLUSTER_SIZE;
	*ret = SM_COUNT *
	       sim_blocks_per_processor(function, (int)(config->blockDimX * config->blockDimY * config->blockDimZ),
		       config->sharedMemBytes) /
	       (int)cluster;
	return CUDA_SUCCESS;
}
