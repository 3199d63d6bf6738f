/* tools/sim/sim_stream.c
 * Streams: operations with tickets, run in order by one worker each (or by the caller, when the stream is idle and the
 * operation is brief). What must come first on other streams is a list of (stream, ticket). Structs are kept until reset,
 * so that a ticket can always be asked for. Captures live here too, because a stream decides between running and noting. */
#include "tools/sim/sim_priv.h"

#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define DEPS_MAX 64

static struct sim_stream *all_streams;

static int own_tid(void)
{
	return (int)syscall(SYS_gettid);
}

static bool passed(const struct sim_dep *deps, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (deps[i].stream->done < deps[i].ticket)
			return false;
	}
	return true;
}

static void wait_deps(const struct sim_dep *deps, size_t count)
{
	while (!passed(deps, count))
		pthread_cond_wait(&sim_moved, &sim_lock);
}

/* sim_lock held. */
static struct sim_stream *new_stream(struct sim_context *ctx, bool blocking)
{
	struct sim_stream *stream = calloc(1, sizeof(*stream));

	if (!stream)
		return NULL;
	stream->context = ctx;
	stream->blocking = blocking;
	stream->alive = true;
	stream->next = ctx->streams;
	ctx->streams = stream;
	stream->all_next = all_streams;
	all_streams = stream;
	return stream;
}

static struct sim_stream *legacy_of(struct sim_context *ctx)
{
	if (!ctx->legacy)
		ctx->legacy = new_stream(ctx, false);
	return ctx->legacy;
}

static struct sim_stream *per_thread_of(struct sim_context *ctx)
{
	int tid = own_tid();
	struct sim_stream *stream;

	for (stream = ctx->streams; stream; stream = stream->next) {
		if (stream->owner_tid == tid)
			return stream;
	}
	stream = new_stream(ctx, true);
	if (stream)
		stream->owner_tid = tid;
	return stream;
}

struct sim_stream *sim_stream_of(struct sim_context *ctx, CUstream handle, bool per_thread)
{
	if ((!handle && per_thread) || handle == CU_STREAM_PER_THREAD)
		return per_thread_of(ctx);
	if (!handle || handle == CU_STREAM_LEGACY)
		return legacy_of(ctx);
	for (struct sim_stream *stream = all_streams; stream; stream = stream->all_next) {
		if (stream == (struct sim_stream *)handle && stream->alive)
			return stream;
	}
	return NULL;
}

static void run_head(struct sim_stream *stream)
{
	struct sim_op *op = stream->head;

	stream->head = op->next;
	if (!stream->head)
		stream->tail = NULL;
	if (!stream->context->sticky) {
		pthread_mutex_unlock(&sim_lock);
		op->run(op->arg);
		pthread_mutex_lock(&sim_lock);
	}
	stream->done = op->ticket;
	pthread_cond_broadcast(&sim_moved);
	free(op->deps);
	free(op->arg);
	free(op);
}

static void *worker_main(void *arg)
{
	struct sim_stream *stream = arg;

	pthread_mutex_lock(&sim_lock);
	for (;;) {
		struct sim_op *op = stream->head;

		if (op && op->ticket == stream->done + 1 && passed(op->deps, op->dep_count))
			run_head(stream);
		else if (!op && stream->stop)
			break;
		else
			pthread_cond_wait(&sim_moved, &sim_lock);
	}
	stream->worker = false;
	pthread_cond_broadcast(&sim_moved);
	pthread_mutex_unlock(&sim_lock);
	return NULL;
}

static bool start_worker(struct sim_stream *stream)
{
	pthread_attr_t attributes;
	pthread_t thread;
	int error;

	if (stream->worker)
		return true;
	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attributes, 512 * 1024);
	error = pthread_create(&thread, &attributes, worker_main, stream);
	pthread_attr_destroy(&attributes);
	stream->worker = error == 0;
	return stream->worker;
}

/* sim_lock held; gives it up while a brief operation runs here. Takes @arg. */
static CUresult submit(struct sim_stream *stream, void (*run)(void *), void *arg, bool brief, const struct sim_dep *extra,
	size_t extra_count)
{
	struct sim_context *ctx = stream->context;
	struct sim_dep deps[DEPS_MAX];
	size_t count = 0;
	struct sim_op *op;

	for (size_t i = 0; i < extra_count && count < DEPS_MAX; i++) {
		if (extra[i].stream->done < extra[i].ticket)
			deps[count++] = extra[i];
	}
	if (stream == ctx->legacy) {
		for (struct sim_stream *other = ctx->streams; other && count < DEPS_MAX; other = other->next) {
			if (other->blocking && other->done < other->queued)
				deps[count++] = (struct sim_dep){other, other->queued};
		}
	} else if (stream->blocking && ctx->legacy && ctx->legacy->done < ctx->legacy->queued && count < DEPS_MAX) {
		deps[count++] = (struct sim_dep){ctx->legacy, ctx->legacy->queued};
	}
	if (brief && count == 0 && stream->done == stream->queued) {
		uint64_t ticket = ++stream->queued;

		if (run) {
			pthread_mutex_unlock(&sim_lock);
			run(arg);
			pthread_mutex_lock(&sim_lock);
		}
		stream->done = ticket;
		pthread_cond_broadcast(&sim_moved);
		free(arg);
		return CUDA_SUCCESS;
	}
	op = calloc(1, sizeof(*op));
	if (op && count) {
		op->deps = malloc(count * sizeof(*deps));
		if (op->deps)
			memcpy(op->deps, deps, count * sizeof(*deps));
	}
	if (!op || (count && !op->deps) || !start_worker(stream)) {
		if (op)
			free(op->deps);
		free(op);
		free(arg);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	op->run = run;
	op->arg = arg;
	op->dep_count = count;
	op->ticket = ++stream->queued;
	if (stream->tail)
		stream->tail->next = op;
	else
		stream->head = op;
	stream->tail = op;
	pthread_cond_broadcast(&sim_moved);
	return CUDA_SUCCESS;
}

static void nothing(void *arg)
{
}

CUresult sim_submit_typed(struct sim_context *ctx, CUstream handle, bool per_thread, void (*run)(void *), void *arg, bool brief,
	CUgraphNodeType type, size_t arg_bytes)
{
	struct sim_stream *stream;
	CUresult result;

	pthread_mutex_lock(&sim_lock);
	stream = sim_stream_of(ctx, handle, per_thread);
	if (!stream) {
		result = CUDA_ERROR_INVALID_HANDLE;
	} else if (stream->context->sticky) {
		result = stream->context->sticky;
	} else if (stream->capture) {
		result = stream->capture_invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
			 : sim_graph_add(stream->capture, type, run, arg, arg_bytes) ? CUDA_SUCCESS
										      : CUDA_ERROR_OUT_OF_MEMORY;
	} else {
		result = submit(stream, run, arg, brief, NULL, 0);
		arg = NULL;
	}
	pthread_mutex_unlock(&sim_lock);
	free(arg);
	return result;
}

CUresult sim_submit(struct sim_context *ctx, CUstream handle, bool per_thread, void (*run)(void *), void *arg, bool brief)
{
	return sim_submit_typed(ctx, handle, per_thread, run, arg, brief, CU_GRAPH_NODE_TYPE_EMPTY, 0);
}

/* ---- waiting ---- */

static void wait_where(struct sim_context *ctx, int device)
{
	pthread_mutex_lock(&sim_lock);
	/* New streams go to the head of the list and are not part of what was submitted before. */
	for (struct sim_stream *stream = all_streams; stream; stream = stream->all_next) {
		struct sim_dep dep = {stream, stream->queued};

		if (ctx ? stream->context != ctx : stream->context->device != device)
			continue;
		stream->users++;
		wait_deps(&dep, 1);
		stream->users--;
	}
	pthread_mutex_unlock(&sim_lock);
}

void sim_wait_context(struct sim_context *ctx)
{
	wait_where(ctx, 0);
}

void sim_wait_device(int device)
{
	wait_where(NULL, device);
}

CUresult sim_wait_stream(struct sim_context *ctx, CUstream handle, bool per_thread)
{
	struct sim_stream *stream;
	CUresult result = CUDA_SUCCESS;

	pthread_mutex_lock(&sim_lock);
	stream = sim_stream_of(ctx, handle, per_thread);
	if (!stream) {
		result = CUDA_ERROR_INVALID_HANDLE;
	} else if (stream->capture) {
		stream->capture_invalid = true;
		result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	} else {
		struct sim_dep dep;

		/* Waiting for the legacy stream waits for the blocking ones in front of it. */
		if (stream == stream->context->legacy)
			submit(stream, nothing, NULL, true, NULL, 0);
		dep = (struct sim_dep){stream, stream->queued};
		stream->users++;
		wait_deps(&dep, 1);
		stream->users--;
		result = stream->context->sticky;
	}
	pthread_mutex_unlock(&sim_lock);
	return result;
}

/* ---- entry points: streams ---- */

static CUresult create_stream(CUstream *ret_stream, unsigned flags, struct sim_context *ctx)
{
	struct sim_stream *stream;

	if (!ret_stream || flags > CU_STREAM_NON_BLOCKING)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim_lock);
	stream = new_stream(ctx, !(flags & CU_STREAM_NON_BLOCKING));
	pthread_mutex_unlock(&sim_lock);
	*ret_stream = (CUstream)stream;
	return stream ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult CUDAAPI cuStreamCreate(CUstream *stream, unsigned int flags)
{
	ENTER_CONTEXT(cuStreamCreate, ctx);
	return create_stream(stream, flags, ctx);
}

CUresult CUDAAPI cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority)
{
	ENTER_CONTEXT(cuStreamCreateWithPriority, ctx);
	return create_stream(stream, flags, ctx);
}

static CUresult destroy_stream(CUstream handle)
{
	struct sim_stream *stream = NULL;

	pthread_mutex_lock(&sim_lock);
	for (struct sim_stream *s = all_streams; s; s = s->all_next) {
		if (s == (struct sim_stream *)handle && s->alive)
			stream = s;
	}
	if (stream) {
		if (stream->capture && !stream->capture_joined)
			sim_graph_free(stream->capture);
		stream->capture = NULL;
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
	return destroy_stream(stream);
}

CUresult CUDAAPI cuStreamDestroy_v2(CUstream stream)
{
	ENTER(cuStreamDestroy_v2);
	return destroy_stream(stream);
}

static CUresult query_stream(struct sim_context *ctx, CUstream handle, bool per_thread)
{
	struct sim_stream *stream;
	CUresult result;

	pthread_mutex_lock(&sim_lock);
	stream = sim_stream_of(ctx, handle, per_thread);
	result = !stream ? CUDA_ERROR_INVALID_HANDLE : stream->done < stream->queued ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
	pthread_mutex_unlock(&sim_lock);
	return result;
}

/* One body, two names: the stream form and its per-thread twin. */
#define BOTH(symbol, params, body_legacy, body_twin)                                                                   \
	CUresult CUDAAPI symbol params                                                                                 \
	{                                                                                                              \
		ENTER_CONTEXT(symbol, ctx);                                                                            \
		return body_legacy;                                                                                    \
	}                                                                                                              \
	CUresult CUDAAPI symbol##_ptsz params                                                                          \
	{                                                                                                              \
		ENTER_CONTEXT(symbol##_ptsz, ctx);                                                                     \
		return body_twin;                                                                                      \
	}

BOTH(cuStreamQuery, (CUstream stream), query_stream(ctx, stream, false), query_stream(ctx, stream, true))
BOTH(cuStreamSynchronize, (CUstream stream), sim_wait_stream(ctx, stream, false), sim_wait_stream(ctx, stream, true))

struct host_call {
	CUhostFn function;
	void *user;
};

static void run_host(void *arg)
{
	struct host_call *call = arg;

	call->function(call->user);
}

static CUresult host_function(struct sim_context *ctx, CUstream stream, bool per_thread, CUhostFn function, void *user)
{
	struct host_call *call = malloc(sizeof(*call));

	if (!call)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*call = (struct host_call){function, user};
	return sim_submit_typed(ctx, stream, per_thread, run_host, call, false, CU_GRAPH_NODE_TYPE_HOST, sizeof(*call));
}

BOTH(cuLaunchHostFunc, (CUstream stream, CUhostFn fn, void *user), host_function(ctx, stream, false, fn, user),
	host_function(ctx, stream, true, fn, user))

/* ---- events ---- */

struct sim_event {
	struct sim_context *context;
	struct sim_dep deps[DEPS_MAX];
	size_t count;
	struct sim_graph *capture;
	CUstreamCaptureMode capture_mode;
	bool alive;
	struct sim_event *next;
};
static struct sim_event *events;

static struct sim_event *event_of(CUevent handle)
{
	for (struct sim_event *event = events; event; event = event->next) {
		if (event == (struct sim_event *)handle && event->alive && event->context->alive)
			return event;
	}
	return NULL;
}

CUresult CUDAAPI cuEventCreate(CUevent *ret_event, unsigned int flags)
{
	struct sim_event *event;

	ENTER_CONTEXT(cuEventCreate, ctx);
	pthread_mutex_lock(&sim_lock);
	for (event = events; event && (event->alive && event->context->alive); event = event->next)
		;
	if (!event) {
		event = calloc(1, sizeof(*event));
		if (event) {
			event->next = events;
			events = event;
		}
	}
	if (event) {
		event->context = ctx;
		event->count = 0;
		event->capture = NULL;
		event->alive = true;
	}
	pthread_mutex_unlock(&sim_lock);
	*ret_event = (CUevent)event;
	return event ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult destroy_event(CUevent handle)
{
	struct sim_event *event;

	pthread_mutex_lock(&sim_lock);
	event = event_of(handle);
	if (event)
		event->alive = false;
	pthread_mutex_unlock(&sim_lock);
	return event ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult CUDAAPI cuEventDestroy(CUevent event)
{
	ENTER(cuEventDestroy);
	return destroy_event(event);
}

CUresult CUDAAPI cuEventDestroy_v2(CUevent event)
{
	ENTER(cuEventDestroy_v2);
	return destroy_event(event);
}

static CUresult record(struct sim_context *ctx, CUevent handle, CUstream stream_handle, bool per_thread)
{
	struct sim_stream *stream;
	struct sim_event *event;
	CUresult result = CUDA_ERROR_INVALID_HANDLE;

	pthread_mutex_lock(&sim_lock);
	event = event_of(handle);
	stream = sim_stream_of(ctx, stream_handle, per_thread);
	if (event && stream) {
		event->count = 0;
		event->capture = stream->capture;
		event->capture_mode = stream->capture_mode;
		if (!stream->capture) {
			if (stream == ctx->legacy) /* stands behind the blocking streams */
				submit(stream, nothing, NULL, true, NULL, 0);
			event->deps[event->count++] = (struct sim_dep){stream, stream->queued};
		}
		result = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&sim_lock);
	return result;
}

BOTH(cuEventRecord, (CUevent event, CUstream stream), record(ctx, event, stream, false), record(ctx, event, stream, true))

CUresult CUDAAPI cuCtxRecordEvent(CUcontext handle, CUevent event_handle)
{
	struct sim_context *ctx;
	struct sim_event *event;
	CUresult result;

	ENTER(cuCtxRecordEvent);
	result = sim_capture_check(true);
	if (result != CUDA_SUCCESS)
		return result;
	pthread_mutex_lock(&sim_lock);
	ctx = handle ? sim_context_of(handle) : sim_current();
	event = event_of(event_handle);
	if (!ctx)
		result = CUDA_ERROR_INVALID_CONTEXT;
	else if (!event)
		result = CUDA_ERROR_INVALID_HANDLE;
	else if (ctx->sticky)
		result = ctx->sticky;
	if (result == CUDA_SUCCESS) {
		event->count = 0;
		event->capture = NULL;
		for (struct sim_stream *stream = ctx->streams; stream; stream = stream->next) {
			if (stream->done < stream->queued && event->count < DEPS_MAX)
				event->deps[event->count++] = (struct sim_dep){stream, stream->queued};
		}
	}
	pthread_mutex_unlock(&sim_lock);
	return result;
}

CUresult CUDAAPI cuEventQuery(CUevent handle)
{
	struct sim_event *event;
	CUresult result;

	ENTER(cuEventQuery);
	pthread_mutex_lock(&sim_lock);
	event = event_of(handle);
	if (!event)
		result = CUDA_ERROR_INVALID_HANDLE;
	else if (event->context->sticky)
		result = event->context->sticky;
	else
		result = passed(event->deps, event->count) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
	pthread_mutex_unlock(&sim_lock);
	return result;
}

CUresult CUDAAPI cuEventSynchronize(CUevent handle)
{
	struct sim_event *event;
	CUresult result = CUDA_ERROR_INVALID_HANDLE;

	ENTER(cuEventSynchronize);
	pthread_mutex_lock(&sim_lock);
	event = event_of(handle);
	if (event) {
		struct sim_dep deps[DEPS_MAX];
		size_t count = event->count;

		memcpy(deps, event->deps, count * sizeof(*deps));
		for (size_t i = 0; i < count; i++)
			deps[i].stream->users++;
		wait_deps(deps, count);
		for (size_t i = 0; i < count; i++)
			deps[i].stream->users--;
		result = event->context->sticky;
	}
	pthread_mutex_unlock(&sim_lock);
	return result;
}

CUresult CUDAAPI cuEventElapsedTime_v2(float *ms, CUevent start, CUevent end)
{
	ENTER(cuEventElapsedTime_v2);
	*ms = 0.001f; /* no clock in the simulation yet */
	return CUDA_SUCCESS;
}

static CUresult wait_event(struct sim_context *ctx, CUstream stream_handle, bool per_thread, CUevent handle)
{
	struct sim_stream *stream;
	struct sim_event *event;
	CUresult result = CUDA_SUCCESS;

	pthread_mutex_lock(&sim_lock);
	stream = sim_stream_of(ctx, stream_handle, per_thread);
	event = event_of(handle);
	if (!stream || !event) {
		result = CUDA_ERROR_INVALID_HANDLE;
	} else if (event->capture) { /* the stream joins the capture the event was recorded in */
		if (!stream->capture) {
			stream->capture = event->capture;
			stream->capture_mode = event->capture_mode;
			stream->capture_joined = true;
			stream->capture_invalid = false;
		}
	} else {
		result = submit(stream, nothing, NULL, true, event->deps, event->count);
	}
	pthread_mutex_unlock(&sim_lock);
	return result;
}

BOTH(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned int flags), wait_event(ctx, stream, false, event),
	wait_event(ctx, stream, true, event))

/* ---- capture ---- */

CUresult CUDAAPI cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
	CUstreamCaptureMode before = *sim_thread_mode();

	ENTER(cuThreadExchangeStreamCaptureMode);
	*sim_thread_mode() = *mode;
	*mode = before;
	return CUDA_SUCCESS;
}

CUresult sim_capture_check(bool always)
{
	CUresult result = CUDA_SUCCESS;

	pthread_mutex_lock(&sim_lock);
	for (struct sim_stream *stream = all_streams; stream; stream = stream->all_next) {
		bool forbidden = always || (*sim_thread_mode() == CU_STREAM_CAPTURE_MODE_GLOBAL &&
						   stream->capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL);

		if (!stream->capture || !forbidden)
			continue;
		stream->capture_invalid = true;
		result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	pthread_mutex_unlock(&sim_lock);
	return result;
}

static CUresult begin(struct sim_context *ctx, CUstream handle, bool per_thread, CUstreamCaptureMode mode)
{
	struct sim_stream *stream;
	CUresult result = CUDA_SUCCESS;

	pthread_mutex_lock(&sim_lock);
	stream = sim_stream_of(ctx, handle, per_thread);
	if (!stream)
		result = CUDA_ERROR_INVALID_HANDLE;
	else if (stream == ctx->legacy)
		result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	else if (stream->capture)
		result = CUDA_ERROR_ILLEGAL_STATE;
	if (result == CUDA_SUCCESS) {
		stream->capture = sim_graph_new();
		stream->capture_mode = mode;
		stream->capture_invalid = stream->capture_joined = false;
		if (!stream->capture)
			result = CUDA_ERROR_OUT_OF_MEMORY;
	}
	pthread_mutex_unlock(&sim_lock);
	return result;
}

BOTH(cuStreamBeginCapture_v2, (CUstream stream, CUstreamCaptureMode mode), begin(ctx, stream, false, mode),
	begin(ctx, stream, true, mode))

static CUresult end(struct sim_context *ctx, CUstream handle, bool per_thread, CUgraph *ret_graph)
{
	struct sim_stream *stream;
	struct sim_graph *graph = NULL;
	CUresult result = CUDA_SUCCESS;

	pthread_mutex_lock(&sim_lock);
	stream = sim_stream_of(ctx, handle, per_thread);
	if (!stream)
		result = CUDA_ERROR_INVALID_HANDLE;
	else if (!stream->capture || stream->capture_joined)
		result = CUDA_ERROR_ILLEGAL_STATE;
	if (result == CUDA_SUCCESS) {
		bool invalid = false;

		graph = stream->capture;
		for (struct sim_stream *s = all_streams; s; s = s->all_next) {
			if (s->capture != graph)
				continue;
			invalid |= s->capture_invalid;
			s->capture = NULL;
			s->capture_joined = s->capture_invalid = false;
		}
		if (invalid) {
			sim_graph_free(graph);
			graph = NULL;
			result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
		}
		*ret_graph = (CUgraph)graph;
	}
	pthread_mutex_unlock(&sim_lock);
	return result;
}

BOTH(cuStreamEndCapture, (CUstream stream, CUgraph *graph), end(ctx, stream, false, graph), end(ctx, stream, true, graph))

static CUresult is_capturing(struct sim_context *ctx, CUstream handle, bool per_thread, CUstreamCaptureStatus *status)
{
	struct sim_stream *stream;

	pthread_mutex_lock(&sim_lock);
	stream = sim_stream_of(ctx, handle, per_thread);
	if (stream)
		*status = !stream->capture	   ? CU_STREAM_CAPTURE_STATUS_NONE
			  : stream->capture_invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
						    : CU_STREAM_CAPTURE_STATUS_ACTIVE;
	pthread_mutex_unlock(&sim_lock);
	return stream ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

BOTH(cuStreamIsCapturing, (CUstream stream, CUstreamCaptureStatus *status), is_capturing(ctx, stream, false, status),
	is_capturing(ctx, stream, true, status))

/* ---- control ---- */

uint64_t sim_live_streams(void)
{
	uint64_t count = 0;

	for (struct sim_stream *stream = all_streams; stream; stream = stream->all_next)
		count += stream->alive && stream->context->alive && stream != stream->context->legacy && !stream->owner_tid;
	return count;
}

uint64_t sim_live_events(void)
{
	uint64_t count = 0;

	for (struct sim_event *event = events; event; event = event->next)
		count += event->alive && event->context->alive;
	return count;
}

void sim_streams_drop_all(void)
{
	pthread_mutex_lock(&sim_lock);
	for (struct sim_stream *stream = all_streams; stream; stream = stream->all_next)
		stream->stop = true;
	pthread_cond_broadcast(&sim_moved);
	for (struct sim_stream *stream = all_streams; stream; stream = stream->all_next) {
		while (stream->worker)
			pthread_cond_wait(&sim_moved, &sim_lock);
	}
	while (all_streams) {
		struct sim_stream *stream = all_streams;

		all_streams = stream->all_next;
		free(stream);
	}
	while (events) {
		struct sim_event *event = events;

		events = event->next;
		free(event);
	}
	for (struct sim_context *ctx = sim_contexts; ctx; ctx = ctx->next)
		ctx->streams = ctx->legacy = NULL;
	pthread_mutex_unlock(&sim_lock);
}
