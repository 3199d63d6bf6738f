/* tools/sim/sim_context.c
 * Contexts, the current one of each thread, peers. Context structs are never freed: a stale handle must be refused, not
 * followed. */
#include "tools/sim/sim_priv.h"

#include <stdlib.h>
#include <string.h>

#define STACK_MAX 32

struct thread_state {
	struct sim_context *stack[STACK_MAX];
	int depth;
	CUstreamCaptureMode mode;
};
static __thread struct thread_state thread_state;

struct sim_context *sim_contexts;

CUstreamCaptureMode *sim_thread_mode(void)
{
	return &thread_state.mode;
}

struct sim_context *sim_current(void)
{
	struct sim_context *context = thread_state.depth ? thread_state.stack[thread_state.depth - 1] : NULL;

	return context && context->alive ? context : NULL;
}

struct sim_context *sim_context_of(CUcontext handle)
{
	for (struct sim_context *context = sim_contexts; context; context = context->next) {
		if (context == (struct sim_context *)handle && context->alive)
			return context;
	}
	return NULL;
}

/* Flags that a program may ask for; the driver adds MAP_HOST, which has meant nothing since CUDA 11. */
#define FLAGS_ASKED                                                                                                    \
	(CU_CTX_SCHED_MASK | CU_CTX_MAP_HOST | CU_CTX_LMEM_RESIZE_TO_MAX | CU_CTX_COREDUMP_ENABLE |                     \
		CU_CTX_USER_COREDUMP_ENABLE | CU_CTX_SYNC_MEMOPS)

static bool flags_ok(unsigned flags)
{
	unsigned schedule = flags & CU_CTX_SCHED_MASK;

	return !(flags & ~(unsigned)FLAGS_ASKED) && (schedule & (schedule - 1)) == 0;
}

/* As an H200 with driver 580 has them; 0: not a limit of this device. */
static void default_limits(size_t *limits)
{
	limits[CU_LIMIT_STACK_SIZE] = 1024;
	limits[CU_LIMIT_PRINTF_FIFO_SIZE] = 8650752;
	limits[CU_LIMIT_MALLOC_HEAP_SIZE] = 8388608;
	limits[CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048;
	limits[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64;
	limits[CU_LIMIT_PERSISTING_L2_CACHE_SIZE] = 11796480;
	limits[CU_LIMIT_SHMEM_SIZE] = 232448;
}

static void set_defaults(struct sim_context *context, unsigned flags)
{
	static uint64_t next_id = 1;

	context->id = next_id++;
	context->flags = flags | CU_CTX_MAP_HOST;
	context->api_version = 3020;
	context->cache = CU_FUNC_CACHE_PREFER_NONE;
	context->bank = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;
	default_limits(context->limits);
}

static struct sim_context *make(int device, unsigned flags, bool primary)
{
	struct sim_context *context = calloc(1, sizeof(*context));

	if (!context)
		return NULL;
	set_defaults(context, flags);
	context->device = device;
	context->primary = primary;
	context->alive = true;
	context->next = sim_contexts;
	sim_contexts = context;
	return context;
}

static struct sim_context *primary_of(int device)
{
	for (struct sim_context *context = sim_contexts; context; context = context->next) {
		if (context->primary && context->device == device)
			return context;
	}
	return NULL;
}

/* Ends the work and the memory of a context; streams go with it. */
static void end(struct sim_context *context)
{
	sim_wait_context(context);
	pthread_mutex_lock(&sim_lock);
	context->alive = false;
	context->sticky = CUDA_SUCCESS;
	context->peers = 0;
	sim_streams_end(context);
	sim_memory_drop(context);
	pthread_mutex_unlock(&sim_lock);
}

static CUresult create(CUcontext *ret_context, unsigned flags, CUdevice device)
{
	struct sim_context *context;

	if (!ret_context || !flags_ok(flags))
		return CUDA_ERROR_INVALID_VALUE;
	if (device < 0 || device >= sim_config.devices)
		return CUDA_ERROR_INVALID_DEVICE;
	if (thread_state.depth == STACK_MAX)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_lock(&sim_lock);
	context = make(device, flags, false);
	pthread_mutex_unlock(&sim_lock);
	if (!context)
		return CUDA_ERROR_OUT_OF_MEMORY;
	context->attached = 1;
	thread_state.stack[thread_state.depth++] = context;
	*ret_context = (CUcontext)context;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxCreate(CUcontext *context, unsigned int flags, CUdevice device)
{
	ENTER(cuCtxCreate);
	return create(context, flags, device);
}

CUresult CUDAAPI cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device)
{
	ENTER(cuCtxCreate_v2);
	return create(context, flags, device);
}

/* Execution affinity needs MPS, and graphics contexts need graphics: neither is here. */
CUresult CUDAAPI cuCtxCreate_v3(CUcontext *context, CUexecAffinityParam *params, int count, unsigned int flags, CUdevice device)
{
	ENTER(cuCtxCreate_v3);
	if (count < 0 || (count > 0 && !params))
		return CUDA_ERROR_INVALID_VALUE;
	return count ? CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY : create(context, flags, device);
}

CUresult CUDAAPI cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *params, unsigned int flags, CUdevice device)
{
	ENTER(cuCtxCreate_v4);
	if (params && params->cigParams)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (params && params->numExecAffinityParams)
		return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
	return create(context, flags, device);
}

static CUresult destroy(CUcontext handle)
{
	struct sim_context *context;

	pthread_mutex_lock(&sim_lock);
	context = sim_context_of(handle);
	pthread_mutex_unlock(&sim_lock);
	if (!context || context->primary)
		return CUDA_ERROR_INVALID_CONTEXT;
	end(context);
	if (thread_state.depth && thread_state.stack[thread_state.depth - 1] == context)
		thread_state.depth--;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxDestroy(CUcontext context)
{
	ENTER(cuCtxDestroy);
	return destroy(context);
}

CUresult CUDAAPI cuCtxDestroy_v2(CUcontext context)
{
	ENTER(cuCtxDestroy_v2);
	return destroy(context);
}

/* Usage counts, deprecated since CUDA 4: the last detach destroys. */
CUresult CUDAAPI cuCtxAttach(CUcontext *ret_context, unsigned int flags)
{
	ENTER_CONTEXT(cuCtxAttach, context);
	if (!ret_context || flags)
		return CUDA_ERROR_INVALID_VALUE;
	context->attached++;
	*ret_context = (CUcontext)context;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxDetach(CUcontext handle)
{
	struct sim_context *context = sim_current();

	ENTER(cuCtxDetach);
	if (!context || context != (struct sim_context *)handle || context->primary)
		return CUDA_ERROR_INVALID_CONTEXT;
	return --context->attached ? CUDA_SUCCESS : destroy(handle);
}

/* sim_lock held. */
static struct sim_context *primary_made(CUdevice device)
{
	struct sim_context *context = primary_of(device);

	if (!context) {
		context = make(device, 0, true);
		if (context)
			context->alive = false;
	}
	return context;
}

CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext *ret_context, CUdevice device)
{
	struct sim_context *context;

	ENTER(cuDevicePrimaryCtxRetain);
	if (!ret_context)
		return CUDA_ERROR_INVALID_VALUE;
	if (device < 0 || device >= sim_config.devices)
		return CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&sim_lock);
	context = primary_made(device);
	if (context) {
		if (!context->alive) /* a new life, with the flags that were set for it */
			set_defaults(context, context->flags);
		context->alive = true;
		context->retained++;
		*ret_context = (CUcontext)context;
	}
	pthread_mutex_unlock(&sim_lock);
	return context ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult primary_release(CUdevice device, bool reset)
{
	struct sim_context *context;
	bool last = false;

	pthread_mutex_lock(&sim_lock);
	context = primary_of(device);
	if (context && context->alive) {
		if (!reset && context->retained)
			context->retained--;
		last = reset || context->retained == 0;
	}
	pthread_mutex_unlock(&sim_lock);
	if (!context || (!reset && !context->alive))
		return CUDA_ERROR_INVALID_CONTEXT;
	if (last)
		end(context);
	if (reset)
		context->retained = 0;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDevicePrimaryCtxRelease(CUdevice device)
{
	ENTER(cuDevicePrimaryCtxRelease);
	return primary_release(device, false);
}

CUresult CUDAAPI cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
	ENTER(cuDevicePrimaryCtxRelease_v2);
	return primary_release(device, false);
}

CUresult CUDAAPI cuDevicePrimaryCtxReset(CUdevice device)
{
	ENTER(cuDevicePrimaryCtxReset);
	return primary_release(device, true);
}

CUresult CUDAAPI cuDevicePrimaryCtxReset_v2(CUdevice device)
{
	ENTER(cuDevicePrimaryCtxReset_v2);
	return primary_release(device, true);
}

CUresult CUDAAPI cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active)
{
	struct sim_context *context;

	ENTER(cuDevicePrimaryCtxGetState);
	if (!flags || !active)
		return CUDA_ERROR_INVALID_VALUE;
	if (device < 0 || device >= sim_config.devices)
		return CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&sim_lock);
	context = primary_of(device);
	*flags = context ? context->flags & ~(unsigned)CU_CTX_MAP_HOST : 0;
	*active = context && context->alive;
	pthread_mutex_unlock(&sim_lock);
	return CUDA_SUCCESS;
}

static CUresult primary_flags(CUdevice device, unsigned flags)
{
	struct sim_context *context;

	if (device < 0 || device >= sim_config.devices)
		return CUDA_ERROR_INVALID_DEVICE;
	if (!flags_ok(flags))
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim_lock);
	context = primary_made(device);
	if (context)
		context->flags = flags | CU_CTX_MAP_HOST;
	pthread_mutex_unlock(&sim_lock);
	return context ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult CUDAAPI cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned int flags)
{
	ENTER(cuDevicePrimaryCtxSetFlags);
	return primary_flags(device, flags);
}

CUresult CUDAAPI cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned int flags)
{
	ENTER(cuDevicePrimaryCtxSetFlags_v2);
	return primary_flags(device, flags);
}

CUresult CUDAAPI cuCtxGetCurrent(CUcontext *ret_context)
{
	ENTER(cuCtxGetCurrent);
	if (!ret_context)
		return CUDA_ERROR_INVALID_VALUE;
	*ret_context = (CUcontext)sim_current();
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxSetCurrent(CUcontext handle)
{
	ENTER(cuCtxSetCurrent);
	if (handle) {
		bool known;

		pthread_mutex_lock(&sim_lock);
		known = sim_context_of(handle) != NULL;
		pthread_mutex_unlock(&sim_lock);
		if (!known)
			return CUDA_ERROR_INVALID_CONTEXT;
	}
	if (thread_state.depth)
		thread_state.depth--;
	if (handle)
		thread_state.stack[thread_state.depth++] = (struct sim_context *)handle;
	return CUDA_SUCCESS;
}

static CUresult push(CUcontext handle)
{
	bool known;

	pthread_mutex_lock(&sim_lock);
	known = sim_context_of(handle) != NULL;
	pthread_mutex_unlock(&sim_lock);
	if (!known || thread_state.depth == STACK_MAX)
		return CUDA_ERROR_INVALID_CONTEXT;
	thread_state.stack[thread_state.depth++] = (struct sim_context *)handle;
	return CUDA_SUCCESS;
}

static CUresult pop(CUcontext *ret_context)
{
	if (!thread_state.depth)
		return CUDA_ERROR_INVALID_CONTEXT;
	thread_state.depth--;
	if (ret_context)
		*ret_context = (CUcontext)thread_state.stack[thread_state.depth];
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxPushCurrent(CUcontext handle)
{
	ENTER(cuCtxPushCurrent);
	return push(handle);
}

CUresult CUDAAPI cuCtxPushCurrent_v2(CUcontext handle)
{
	ENTER(cuCtxPushCurrent_v2);
	return push(handle);
}

CUresult CUDAAPI cuCtxPopCurrent(CUcontext *ret_context)
{
	ENTER(cuCtxPopCurrent);
	return pop(ret_context);
}

CUresult CUDAAPI cuCtxPopCurrent_v2(CUcontext *ret_context)
{
	ENTER(cuCtxPopCurrent_v2);
	return pop(ret_context);
}

/* The context of a handle, or the current one for NULL; NULL: none. */
static struct sim_context *named_or_current(CUcontext handle)
{
	struct sim_context *context = handle ? NULL : sim_current();

	if (handle) {
		pthread_mutex_lock(&sim_lock);
		context = sim_context_of(handle);
		pthread_mutex_unlock(&sim_lock);
	}
	return context;
}

static CUresult device_of(const struct sim_context *context, CUdevice *device)
{
	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!device)
		return CUDA_ERROR_INVALID_VALUE;
	*device = context->device;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetDevice(CUdevice *device)
{
	ENTER(cuCtxGetDevice);
	return device_of(sim_current(), device);
}

CUresult CUDAAPI cuCtxGetDevice_v2(CUdevice *device, CUcontext handle)
{
	ENTER(cuCtxGetDevice_v2);
	return device_of(named_or_current(handle), device);
}

static CUresult synchronize(struct sim_context *context)
{
	CUresult result = sim_capture_check(true);

	if (result != CUDA_SUCCESS)
		return result;
	sim_wait_context(context);
	sim_pools_settle();
	return context->sticky;
}

CUresult CUDAAPI cuCtxSynchronize(void)
{
	ENTER_CONTEXT(cuCtxSynchronize, context);
	return synchronize(context);
}

CUresult CUDAAPI cuCtxSynchronize_v2(CUcontext handle)
{
	struct sim_context *context;

	ENTER(cuCtxSynchronize_v2);
	context = named_or_current(handle);
	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	return context->sticky ? context->sticky : synchronize(context);
}

void sim_contexts_drop_all(void)
{
	while (sim_contexts) {
		struct sim_context *context = sim_contexts;

		sim_contexts = context->next;
		free(context);
	}
	memset(&thread_state, 0, sizeof(thread_state));
}
