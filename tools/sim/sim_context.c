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

static struct sim_context *make(int device, unsigned flags, bool primary)
{
	struct sim_context *context = calloc(1, sizeof(*context));

	if (!context)
		return NULL;
	context->device = device;
	context->flags = flags;
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

	if (!ret_context)
		return CUDA_ERROR_INVALID_VALUE;
	if (device < 0 || device >= sim_config.devices)
		return CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&sim_lock);
	context = make(device, flags, false);
	pthread_mutex_unlock(&sim_lock);
	if (!context || thread_state.depth == STACK_MAX)
		return CUDA_ERROR_OUT_OF_MEMORY;
	thread_state.stack[thread_state.depth++] = context;
	*ret_context = (CUcontext)context;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device)
{
	ENTER(cuCtxCreate_v2);
	return create(context, flags, device);
}

CUresult CUDAAPI cuCtxCreate_v3(CUcontext *context, CUexecAffinityParam *params, int count, unsigned int flags, CUdevice device)
{
	ENTER(cuCtxCreate_v3);
	return create(context, flags, device);
}

CUresult CUDAAPI cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *params, unsigned int flags, CUdevice device)
{
	ENTER(cuCtxCreate_v4);
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

CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext *ret_context, CUdevice device)
{
	struct sim_context *context;

	ENTER(cuDevicePrimaryCtxRetain);
	if (!ret_context)
		return CUDA_ERROR_INVALID_VALUE;
	if (device < 0 || device >= sim_config.devices)
		return CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&sim_lock);
	context = primary_of(device);
	if (!context)
		context = make(device, 0, true);
	if (context) {
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
	pthread_mutex_lock(&sim_lock);
	context = primary_of(device);
	*flags = context ? context->flags : 0;
	*active = context && context->alive;
	pthread_mutex_unlock(&sim_lock);
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned int flags)
{
	ENTER(cuDevicePrimaryCtxSetFlags_v2);
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetCurrent(CUcontext *ret_context)
{
	ENTER(cuCtxGetCurrent);
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

CUresult CUDAAPI cuCtxPushCurrent_v2(CUcontext handle)
{
	bool known;

	ENTER(cuCtxPushCurrent_v2);
	pthread_mutex_lock(&sim_lock);
	known = sim_context_of(handle) != NULL;
	pthread_mutex_unlock(&sim_lock);
	if (!known || thread_state.depth == STACK_MAX)
		return CUDA_ERROR_INVALID_CONTEXT;
	thread_state.stack[thread_state.depth++] = (struct sim_context *)handle;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxPopCurrent_v2(CUcontext *ret_context)
{
	ENTER(cuCtxPopCurrent_v2);
	if (!thread_state.depth)
		return CUDA_ERROR_INVALID_CONTEXT;
	thread_state.depth--;
	if (ret_context)
		*ret_context = (CUcontext)thread_state.stack[thread_state.depth];
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetDevice(CUdevice *device)
{
	ENTER(cuCtxGetDevice);
	if (!sim_current())
		return CUDA_ERROR_INVALID_CONTEXT;
	*device = sim_current()->device;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetFlags(unsigned int *flags)
{
	ENTER_CONTEXT(cuCtxGetFlags, context);
	*flags = context->flags;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetApiVersion(CUcontext handle, unsigned int *version)
{
	ENTER(cuCtxGetApiVersion);
	*version = 3020;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxSynchronize(void)
{
	CUresult result;

	ENTER_CONTEXT(cuCtxSynchronize, context);
	result = sim_capture_check(true);
	if (result != CUDA_SUCCESS)
		return result;
	sim_wait_context(context);
	sim_pools_settle();
	return context->sticky;
}

CUresult CUDAAPI cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
	ENTER(cuDeviceCanAccessPeer);
	*can = device != peer;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxEnablePeerAccess(CUcontext handle, unsigned int flags)
{
	struct sim_context *peer;
	CUresult result = CUDA_SUCCESS;

	ENTER_CONTEXT(cuCtxEnablePeerAccess, context);
	pthread_mutex_lock(&sim_lock);
	peer = sim_context_of(handle);
	if (!peer || peer->device == context->device)
		result = peer ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_INVALID_CONTEXT;
	else if (context->peers & (1u << peer->device))
		result = CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
	else
		context->peers |= 1u << peer->device;
	pthread_mutex_unlock(&sim_lock);
	return result;
}

CUresult CUDAAPI cuCtxDisablePeerAccess(CUcontext handle)
{
	struct sim_context *peer;
	CUresult result = CUDA_SUCCESS;

	ENTER_CONTEXT(cuCtxDisablePeerAccess, context);
	pthread_mutex_lock(&sim_lock);
	peer = sim_context_of(handle);
	if (!peer || !(context->peers & (1u << peer->device)))
		result = CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
	else
		context->peers &= ~(1u << peer->device);
	pthread_mutex_unlock(&sim_lock);
	return result;
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
