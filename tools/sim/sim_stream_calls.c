/* tools/sim/sim_stream_calls.c
 * Entry points of streams: making and ending them, questions, attributes, host functions. Ordering is in sim_stream.c. */
#include "tools/sim/sim_exec.h"

#include <stdlib.h>
#include <string.h>

#define PRIORITY_GREATEST (-5)

static CUresult create(CUstream *ret_stream, unsigned flags, int priority, struct sim_context *ctx)
{
	struct sim_stream *stream;

	if (!ret_stream || flags & ~(unsigned)CU_STREAM_NON_BLOCKING)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim_lock);
	stream = sim_stream_new(ctx, !(flags & CU_STREAM_NON_BLOCKING));
	if (stream) {
		stream->flags = flags;
		/* Priorities out of range are clamped, as documented. */
		stream->priority = priority > 0 ? 0 : priority < PRIORITY_GREATEST ? PRIORITY_GREATEST : priority;
		*ret_stream = (CUstream)stream;
	}
	pthread_mutex_unlock(&sim_lock);
	return stream ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult CUDAAPI cuStreamCreate(CUstream *stream, unsigned int flags)
{
	ENTER_CONTEXT(cuStreamCreate, ctx);
	return create(stream, flags, 0, ctx);
}

CUresult CUDAAPI cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority)
{
	ENTER_CONTEXT(cuStreamCreateWithPriority, ctx);
	return create(stream, flags, priority, ctx);
}

CUresult CUDAAPI cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
	ENTER_CONTEXT(cuCtxGetStreamPriorityRange, ctx);
	if (least)
		*least = 0;
	if (greatest)
		*greatest = PRIORITY_GREATEST;
	return CUDA_SUCCESS;
}

static CUresult destroy(CUstream handle)
{
	struct sim_stream *stream = NULL;

	pthread_mutex_lock(&sim_lock);
	for (struct sim_stream *s = sim_all_streams; s; s = s->all_next) {
		/* The default streams are not the caller's to destroy. */
		if (s == (struct sim_stream *)handle && s->alive && !s->owner && s != s->context->legacy)
			stream = s;
	}
	if (stream) {
		sim_capture_abandon(stream);
		stream->alive = false;
		stream->stop = true; /* the worker ends when the queue is empty */
		pthread_cond_broadcast(&sim_moved);
	}
	pthread_mutex_unlock(&sim_lock);
	return stream ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult CUDAAPI cuStreamDestroy(CUstream stream)
{
	ENTER(cuStreamDestroy);
	return destroy(stream);
}

CUresult CUDAAPI cuStreamDestroy_v2(CUstream stream)
{
	ENTER(cuStreamDestroy_v2);
	return destroy(stream);
}

static CUresult query(struct sim_context *ctx, CUstream handle, bool per_thread)
{
	struct sim_stream *stream;
	CUresult result = sim_capture_check(false);

	if (result != CUDA_SUCCESS)
		return result;
	pthread_mutex_lock(&sim_lock);
	stream = sim_stream_of(ctx, handle, per_thread);
	result = sim_stream_uncaptured(stream);
	if (result == CUDA_SUCCESS && !sim_stream_idle(stream))
		result = CUDA_ERROR_NOT_READY;
	/* The legacy stream stands behind the blocking ones. */
	if (result == CUDA_SUCCESS && stream == stream->context->legacy) {
		for (struct sim_stream *s = stream->context->streams; s; s = s->next) {
			if (s->blocking && !sim_stream_idle(s))
				result = CUDA_ERROR_NOT_READY;
		}
	}
	pthread_mutex_unlock(&sim_lock);
	return result;
}

static CUresult synchronize(struct sim_context *ctx, CUstream handle, bool per_thread)
{
	CUresult result = sim_capture_check(false);

	if (result == CUDA_SUCCESS)
		result = sim_wait_stream(ctx, handle, per_thread);
	sim_pools_settle();
	return result;
}

SIM_BOTH(cuStreamQuery, (CUstream stream), query(ctx, stream, twin))
SIM_BOTH(cuStreamSynchronize, (CUstream stream), synchronize(ctx, stream, twin))

/* ---- getters ---- */

enum fact { FACT_PRIORITY, FACT_FLAGS, FACT_ID, FACT_DEVICE, FACT_CONTEXT };

static CUresult get(struct sim_context *ctx, CUstream handle, bool per_thread, enum fact fact, void *ret)
{
	struct sim_stream *stream;

	if (!ret)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim_lock);
	stream = sim_stream_of(ctx, handle, per_thread);
	pthread_mutex_unlock(&sim_lock);
	if (!stream)
		return CUDA_ERROR_INVALID_HANDLE;
	switch (fact) {
	case FACT_PRIORITY:
		*(int *)ret = stream->priority;
		break;
	case FACT_FLAGS:
		*(unsigned *)ret = stream->flags;
		break;
	case FACT_ID:
		*(unsigned long long *)ret = stream->id;
		break;
	case FACT_DEVICE:
		*(CUdevice *)ret = stream->context->device;
		break;
	case FACT_CONTEXT:
		*(CUcontext *)ret = (CUcontext)stream->context;
		break;
	}
	return CUDA_SUCCESS;
}

SIM_BOTH(cuStreamGetPriority, (CUstream stream, int *priority), get(ctx, stream, twin, FACT_PRIORITY, priority))
SIM_BOTH(cuStreamGetFlags, (CUstream stream, unsigned int *flags), get(ctx, stream, twin, FACT_FLAGS, flags))
SIM_BOTH(cuStreamGetId, (CUstream stream, unsigned long long *id), get(ctx, stream, twin, FACT_ID, id))
SIM_BOTH(cuStreamGetDevice, (CUstream stream, CUdevice *device), get(ctx, stream, twin, FACT_DEVICE, device))
SIM_BOTH(cuStreamGetCtx, (CUstream stream, CUcontext *ret), get(ctx, stream, twin, FACT_CONTEXT, ret))

static CUresult contexts_of(struct sim_context *ctx, CUstream stream, bool per_thread, CUcontext *ret, CUgreenCtx *green)
{
	if (green)
		*green = NULL;
	return get(ctx, stream, per_thread, FACT_CONTEXT, ret);
}

CUresult CUDAAPI cuStreamGetCtx_v2(CUstream stream, CUcontext *ret, CUgreenCtx *green)
{
	ENTER_CONTEXT(cuStreamGetCtx_v2, ctx);
	return contexts_of(ctx, stream, false, ret, green);
}

CUresult CUDAAPI cuStreamGetCtx_v2_ptsz(CUstream stream, CUcontext *ret, CUgreenCtx *green)
{
	ENTER_CONTEXT(cuStreamGetCtx_v2_ptsz, ctx);
	return contexts_of(ctx, stream, true, ret, green);
}

/* ---- attributes ---- */

static bool of_streams(CUstreamAttrID id)
{
	return id == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW || id == CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY ||
	       id == CU_LAUNCH_ATTRIBUTE_PRIORITY || id == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP ||
	       id == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN || id == CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING;
}

static CUresult attribute(struct sim_context *ctx, CUstream handle, bool per_thread, CUstreamAttrID id,
	CUstreamAttrValue *ret_value, const CUstreamAttrValue *value)
{
	struct sim_stream *stream;
	CUresult result = CUDA_SUCCESS;

	if ((!ret_value && !value) || !of_streams(id))
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim_lock);
	stream = sim_stream_of(ctx, handle, per_thread);
	if (!stream)
		result = CUDA_ERROR_INVALID_HANDLE;
	else if (id == CU_LAUNCH_ATTRIBUTE_PRIORITY && value)
		stream->priority = value->priority;
	else if (id == CU_LAUNCH_ATTRIBUTE_PRIORITY)
		ret_value->priority = stream->priority;
	else if (value)
		result = sim_attributes_set(&stream->attributes, id, value);
	else
		sim_attributes_get(stream->attributes, id, ret_value);
	pthread_mutex_unlock(&sim_lock);
	return result;
}

SIM_BOTH(cuStreamGetAttribute, (CUstream stream, CUstreamAttrID id, CUstreamAttrValue *ret),
	attribute(ctx, stream, twin, id, ret, NULL))
SIM_BOTH(cuStreamSetAttribute, (CUstream stream, CUstreamAttrID id, const CUstreamAttrValue *value),
	attribute(ctx, stream, twin, id, NULL, value))

static CUresult copy_attributes(struct sim_context *ctx, CUstream to_handle, CUstream from_handle, bool per_thread)
{
	struct sim_stream *to, *from;
	CUresult result = CUDA_ERROR_INVALID_HANDLE;

	pthread_mutex_lock(&sim_lock);
	to = sim_stream_of(ctx, to_handle, per_thread);
	from = sim_stream_of(ctx, from_handle, per_thread);
	if (to && from) {
		to->priority = from->priority;
		result = sim_attributes_copy(&to->attributes, from->attributes);
	}
	pthread_mutex_unlock(&sim_lock);
	return result;
}

SIM_BOTH(cuStreamCopyAttributes, (CUstream to, CUstream from), copy_attributes(ctx, to, from, twin))

CUresult sim_attributes_set(struct sim_attributes **list, CUlaunchAttributeID id, const CUlaunchAttributeValue *value)
{
	if ((int)id <= 0 || (int)id >= (int)CU_LAUNCH_ATTRIBUTE_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	if (!*list)
		*list = calloc(1, sizeof(**list));
	if (!*list)
		return CUDA_ERROR_OUT_OF_MEMORY;
	(*list)->value[id] = *value;
	(*list)->set |= 1u << id;
	return CUDA_SUCCESS;
}

void sim_attributes_get(const struct sim_attributes *list, CUlaunchAttributeID id, CUlaunchAttributeValue *ret)
{
	memset(ret, 0, sizeof(*ret));
	if (id == CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY)
		ret->syncPolicy = CU_SYNC_POLICY_AUTO;
	if (list && (int)id > 0 && (int)id < (int)CU_LAUNCH_ATTRIBUTE_MAX && list->set & (1u << id))
		*ret = list->value[id];
}

CUresult sim_attributes_copy(struct sim_attributes **to, const struct sim_attributes *from)
{
	if (!from) {
		free(*to);
		*to = NULL;
		return CUDA_SUCCESS;
	}
	if (!*to)
		*to = malloc(sizeof(**to));
	if (!*to)
		return CUDA_ERROR_OUT_OF_MEMORY;
	**to = *from;
	return CUDA_SUCCESS;
}

/* ---- host functions ---- */

static void run_host(void *arg)
{
	CUDA_HOST_NODE_PARAMS *call = arg;

	call->fn(call->userData);
}

static const struct sim_work_kind host_kind = {.type = CU_GRAPH_NODE_TYPE_HOST, .run = run_host};

struct sim_work sim_host_work(CUDA_HOST_NODE_PARAMS *call)
{
	return (struct sim_work){&host_kind, call, sizeof(*call), false};
}

static CUresult host_function(struct sim_context *ctx, CUstream stream, bool per_thread, CUhostFn function, void *user)
{
	CUDA_HOST_NODE_PARAMS call = {function, user};
	struct sim_work work = sim_host_work(&call);

	return function ? sim_submit_work(ctx, stream, per_thread, &work) : CUDA_ERROR_INVALID_VALUE;
}

SIM_BOTH(cuLaunchHostFunc, (CUstream stream, CUhostFn fn, void *user), host_function(ctx, stream, twin, fn, user))

struct callback {
	CUstreamCallback function;
	CUstream stream;
	void *user;
	struct sim_context *context;
};

/* Unlike a host function it runs after an error too, and is told of it; here the error comes with the run before. */
static void run_callback(void *arg)
{
	struct callback *call = arg;

	call->function(call->stream, call->context->sticky, call->user);
}

static const struct sim_work_kind callback_kind = {.type = CU_GRAPH_NODE_TYPE_HOST, .run = run_callback, .always = true};

static CUresult callback(struct sim_context *ctx, CUstream handle, bool per_thread, CUstreamCallback function, void *user,
	unsigned flags)
{
	struct callback call = {function, handle, user, ctx};
	struct sim_work work = {&callback_kind, &call, sizeof(call), false};
	struct sim_stream *stream;
	CUresult result;

	if (!function || flags)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim_lock);
	stream = sim_stream_of(ctx, handle, per_thread);
	result = sim_stream_uncaptured(stream); /* documented: callbacks are not captured */
	if (result == CUDA_SUCCESS)
		result = sim_enqueue(stream, &work, NULL, 0);
	pthread_mutex_unlock(&sim_lock);
	return result;
}

SIM_BOTH(cuStreamAddCallback, (CUstream stream, CUstreamCallback function, void *user, unsigned int flags),
	callback(ctx, stream, twin, function, user, flags))

static CUresult attach(struct sim_context *ctx, CUstream handle, bool per_thread, CUdeviceptr ptr, unsigned flags)
{
	struct sim_stream *stream;
	struct sim_block *block;
	CUresult result;

	if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST && flags != CU_MEM_ATTACH_SINGLE)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim_lock);
	stream = sim_stream_of(ctx, handle, per_thread);
	block = sim_block_at(ptr);
	/* To one stream: not the legacy one. Host and managed memory are the same bytes here, so only the order counts. */
	if (!stream)
		result = CUDA_ERROR_INVALID_HANDLE;
	else if (!block || block->kind != SIM_UVM || (flags == CU_MEM_ATTACH_SINGLE && stream == stream->context->legacy))
		result = CUDA_ERROR_INVALID_VALUE;
	else
		result = sim_stream_uncaptured(stream);
	if (result == CUDA_SUCCESS)
		result = sim_enqueue_marker(stream, NULL, 0);
	pthread_mutex_unlock(&sim_lock);
	return result;
}

SIM_BOTH(cuStreamAttachMemAsync, (CUstream stream, CUdeviceptr ptr, size_t length, unsigned int flags),
	attach(ctx, stream, twin, ptr, flags))
