/* tools/sim/sim_event.c
 * Events: a list of (stream, ticket) that must have passed, and the time at which it did. Of an event recorded in a capture
 * the nodes it stands behind are kept instead. */
#include "tools/sim/sim_exec.h"

#include <stdlib.h>
#include <string.h>

#include "base/list.h"

static struct sim_event *events;

struct sim_event *sim_event_of(CUevent handle)
{
	for (struct sim_event *event = events; event; event = event->next) {
		if (event == (struct sim_event *)handle && event->alive && event->context->alive)
			return event;
	}
	return NULL;
}

/* sim_lock held: as if it had never been recorded. */
static void forget(struct sim_event *event)
{
	if (event->capture)
		sim_capture_unref(event->capture);
	free(event->tips);
	event->capture = NULL;
	event->tips = NULL;
	event->tip_count = event->dep_count = 0;
	event->recorded = false;
	event->at_ns = 0;
	event->generation++;
}

#define FLAGS (CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS)

CUresult CUDAAPI cuEventCreate(CUevent *ret_event, unsigned int flags)
{
	struct sim_event *event;

	ENTER_CONTEXT(cuEventCreate, ctx);
	/* An event for other processes cannot keep times. */
	if (!ret_event || flags & ~(unsigned)FLAGS || (flags & CU_EVENT_INTERPROCESS && !(flags & CU_EVENT_DISABLE_TIMING)))
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim_lock);
	for (event = events; event && event->alive && event->context->alive; event = event->next)
		;
	if (!event) {
		event = calloc(1, sizeof(*event));
		if (event) {
			event->next = events;
			events = event;
		}
	}
	if (event) {
		forget(event);
		event->context = ctx;
		event->flags = flags;
		event->alive = true;
		*ret_event = (CUevent)event;
	}
	pthread_mutex_unlock(&sim_lock);
	return event ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult destroy(CUevent handle)
{
	struct sim_event *event;

	pthread_mutex_lock(&sim_lock);
	event = sim_event_of(handle);
	if (event) {
		event->alive = false;
		forget(event);
	}
	pthread_mutex_unlock(&sim_lock);
	return event ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult CUDAAPI cuEventDestroy(CUevent event)
{
	ENTER(cuEventDestroy);
	return destroy(event);
}

CUresult CUDAAPI cuEventDestroy_v2(CUevent event)
{
	ENTER(cuEventDestroy_v2);
	return destroy(event);
}

/* ---- record ---- */

struct stamp {
	struct sim_event *event;
	uint64_t generation;
};

static void note_time(const struct stamp *stamp, uint64_t ns)
{
	pthread_mutex_lock(&sim_lock);
	if (stamp->event->generation == stamp->generation)
		stamp->event->at_ns = ns;
	pthread_mutex_unlock(&sim_lock);
}

static void run_stamp(void *arg)
{
	note_time(arg, sim_clock_now());
}

static uint64_t run_stamp_timed(void *arg, struct sim_context *ctx, uint64_t ready_ns)
{
	note_time(arg, ready_ns);
	return ready_ns;
}

static const struct sim_work_kind stamp_kind = {
	.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD, .run = run_stamp, .run_timed = run_stamp_timed};

static bool depend(struct sim_event *event, struct sim_stream *stream)
{
	if (!list_room(&event->deps, event->dep_count, &event->dep_capacity, sizeof(*event->deps)))
		return false;
	event->deps[event->dep_count++] = (struct sim_dep){stream, stream->queued};
	return true;
}

CUresult sim_event_record_on(struct sim_event *event, struct sim_stream *stream)
{
	struct stamp stamp;
	struct sim_work work = {&stamp_kind, &stamp, sizeof(stamp), true};
	CUresult result = CUDA_SUCCESS;

	forget(event);
	stamp = (struct stamp){event, event->generation};
	/* Without times only the place in the queue counts; the legacy stream's is behind the blocking streams. */
	if (!(event->flags & CU_EVENT_DISABLE_TIMING) || stream == stream->context->legacy)
		result = sim_enqueue(stream, &work, NULL, 0);
	if (result == CUDA_SUCCESS && !depend(event, stream))
		result = CUDA_ERROR_OUT_OF_MEMORY;
	event->recorded = result == CUDA_SUCCESS;
	return result;
}

static CUresult record_in_capture(struct sim_event *event, struct sim_stream *stream)
{
	struct sim_node **tips = NULL;

	if (stream->capture->invalid)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (stream->tip_count) {
		tips = malloc(stream->tip_count * sizeof(*tips));
		if (!tips)
			return CUDA_ERROR_OUT_OF_MEMORY;
		memcpy(tips, stream->tips, stream->tip_count * sizeof(*tips));
	}
	forget(event);
	event->capture = stream->capture;
	event->capture->references++;
	event->tips = tips;
	event->tip_count = stream->tip_count;
	event->recorded = true;
	return CUDA_SUCCESS;
}

static CUresult record(struct sim_context *ctx, CUevent handle, CUstream stream_handle, bool per_thread, unsigned flags)
{
	struct sim_stream *stream;
	struct sim_event *event;
	CUresult result;

	if (flags & ~(unsigned)CU_EVENT_RECORD_EXTERNAL)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim_lock);
	event = sim_event_of(handle);
	stream = sim_stream_of(ctx, stream_handle, per_thread);
	result = event && stream ? sim_stream_usable(stream) : CUDA_ERROR_INVALID_HANDLE;
	if (result == CUDA_SUCCESS && event->context != stream->context)
		result = CUDA_ERROR_INVALID_HANDLE;
	if (result == CUDA_SUCCESS) {
		struct sim_work work = sim_event_record_work(&event);

		result = !stream->capture			? sim_event_record_on(event, stream)
			 : flags & CU_EVENT_RECORD_EXTERNAL ? sim_capture_note(stream, &work, NULL)
							    : record_in_capture(event, stream);
	}
	pthread_mutex_unlock(&sim_lock);
	return result;
}

SIM_BOTH(cuEventRecord, (CUevent event, CUstream stream), record(ctx, event, stream, twin, 0))
SIM_BOTH(cuEventRecordWithFlags, (CUevent event, CUstream stream, unsigned int flags),
	record(ctx, event, stream, twin, flags))

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
	/* As a record on each of them would. Not tried on hardware; the worse of the two is simulated. */
	for (struct sim_stream *stream = ctx ? ctx->streams : NULL; stream; stream = stream->next)
		sim_stream_wait_for_room(stream);
	event = sim_event_of(event_handle);
	if (!ctx)
		result = CUDA_ERROR_INVALID_CONTEXT;
	else if (!event)
		result = CUDA_ERROR_INVALID_HANDLE;
	else
		result = ctx->sticky;
	if (result == CUDA_SUCCESS) {
		bool fine = true;

		forget(event);
		for (struct sim_stream *stream = ctx->streams; stream && fine; stream = stream->next)
			fine = sim_stream_idle(stream) || depend(event, stream);
		event->recorded = fine;
		result = fine ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	}
	pthread_mutex_unlock(&sim_lock);
	return result;
}

CUresult CUDAAPI cuCtxWaitEvent(CUcontext handle, CUevent event_handle)
{
	struct sim_context *ctx;
	struct sim_event *event;
	CUresult result;

	ENTER(cuCtxWaitEvent);
	result = sim_capture_check(true);
	if (result != CUDA_SUCCESS)
		return result;
	pthread_mutex_lock(&sim_lock);
	ctx = handle ? sim_context_of(handle) : sim_current();
	event = sim_event_of(event_handle);
	result = !ctx ? CUDA_ERROR_INVALID_CONTEXT : !event ? CUDA_ERROR_INVALID_HANDLE : ctx->sticky;
	if (result == CUDA_SUCCESS && event->capture)
		result = CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
	for (struct sim_stream *stream = result == CUDA_SUCCESS ? ctx->streams : NULL; stream; stream = stream->next) {
		result = sim_enqueue_marker(stream, event->deps, event->dep_count);
		if (result != CUDA_SUCCESS)
			break;
	}
	pthread_mutex_unlock(&sim_lock);
	return result;
}

/* ---- questions ---- */

/* sim_lock held: may the host ask about @event now? */
static CUresult askable(struct sim_event *event)
{
	if (!event)
		return CUDA_ERROR_INVALID_HANDLE;
	if (event->capture) {
		event->capture->invalid |= !event->capture->ended;
		return CUDA_ERROR_CAPTURED_EVENT;
	}
	return event->context->sticky;
}

CUresult CUDAAPI cuEventQuery(CUevent handle)
{
	struct sim_event *event;
	CUresult result;

	ENTER(cuEventQuery);
	result = sim_capture_check(false);
	if (result != CUDA_SUCCESS)
		return result;
	pthread_mutex_lock(&sim_lock);
	event = sim_event_of(handle);
	result = askable(event);
	if (result == CUDA_SUCCESS && !sim_deps_passed(event->deps, event->dep_count))
		result = CUDA_ERROR_NOT_READY;
	pthread_mutex_unlock(&sim_lock);
	return result;
}

CUresult CUDAAPI cuEventSynchronize(CUevent handle)
{
	struct sim_event *event;
	CUresult result;

	ENTER(cuEventSynchronize);
	result = sim_capture_check(false);
	if (result != CUDA_SUCCESS)
		return result;
	pthread_mutex_lock(&sim_lock);
	event = sim_event_of(handle);
	result = askable(event);
	if (result == CUDA_SUCCESS && event->dep_count) {
		/* A copy: the event may be recorded anew by others meanwhile, which this wait is not about. */
		size_t count = event->dep_count;
		struct sim_context *ctx = event->context;
		struct sim_dep *deps = malloc(count * sizeof(*deps));

		if (deps) {
			memcpy(deps, event->deps, count * sizeof(*deps));
			sim_deps_wait(deps, count);
			result = ctx->sticky;
		} else {
			result = CUDA_ERROR_OUT_OF_MEMORY;
		}
		free(deps);
	}
	pthread_mutex_unlock(&sim_lock);
	sim_pools_settle();
	return result;
}

static CUresult elapsed(float *ret_ms, CUevent start_handle, CUevent end_handle)
{
	struct sim_event *start, *end;
	CUresult result;

	if (!ret_ms)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim_lock);
	start = sim_event_of(start_handle);
	end = sim_event_of(end_handle);
	result = askable(start);
	if (result == CUDA_SUCCESS)
		result = askable(end);
	if (result == CUDA_SUCCESS && ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING || !start->recorded ||
					      !end->recorded || start->context->device != end->context->device))
		result = CUDA_ERROR_INVALID_HANDLE;
	if (result == CUDA_SUCCESS && !(sim_deps_passed(start->deps, start->dep_count) &&
					      sim_deps_passed(end->deps, end->dep_count)))
		result = CUDA_ERROR_NOT_READY;
	if (result == CUDA_SUCCESS) {
		/* Recorded on a whole context: no operation notes the time. */
		if (!start->at_ns)
			start->at_ns = sim_clock_now();
		if (!end->at_ns)
			end->at_ns = sim_clock_now();
		*ret_ms = (float)(sim_clock_scaled((double)(int64_t)(end->at_ns - start->at_ns)) / 1e6);
	}
	pthread_mutex_unlock(&sim_lock);
	return result;
}

CUresult CUDAAPI cuEventElapsedTime(float *ms, CUevent start, CUevent end)
{
	ENTER(cuEventElapsedTime);
	return elapsed(ms, start, end);
}

CUresult CUDAAPI cuEventElapsedTime_v2(float *ms, CUevent start, CUevent end)
{
	ENTER(cuEventElapsedTime_v2);
	return elapsed(ms, start, end);
}

/* ---- wait ---- */

static CUresult wait_event(struct sim_context *ctx, CUstream stream_handle, bool per_thread, CUevent handle, unsigned flags)
{
	struct sim_stream *stream;
	struct sim_event *event;
	CUresult result;

	if (flags & ~(unsigned)CU_EVENT_WAIT_EXTERNAL)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim_lock);
	stream = sim_stream_of(ctx, stream_handle, per_thread);
	event = sim_event_of(handle);
	result = stream && event ? sim_stream_usable(stream) : CUDA_ERROR_INVALID_HANDLE;
	if (result != CUDA_SUCCESS) {
		;
	} else if (stream->capture && flags & CU_EVENT_WAIT_EXTERNAL) {
		struct sim_work work = sim_event_wait_work(&event);

		result = sim_capture_note(stream, &work, NULL);
	} else if (event->capture) {
		result = sim_capture_join(stream, event->capture, event->tips, event->tip_count);
	} else if (stream->capture) {
		/* A wait for an event that was never recorded has no effect, in a capture too. */
		if (event->recorded) {
			stream->capture->invalid = true;
			result = CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
		}
	} else {
		result = sim_enqueue_marker(stream, event->deps, event->dep_count);
	}
	pthread_mutex_unlock(&sim_lock);
	return result;
}

SIM_BOTH(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned int flags),
	wait_event(ctx, stream, twin, event, flags))

/* ---- as nodes of graphs ---- */

static void run_record(void *arg)
{
	struct sim_event *event = *(struct sim_event **)arg;

	pthread_mutex_lock(&sim_lock);
	if (event->alive) {
		/* The node itself stands for all before it: when it runs, that is done. */
		forget(event);
		event->recorded = true;
		event->at_ns = sim_clock_now();
	}
	pthread_mutex_unlock(&sim_lock);
}

static void run_wait(void *arg)
{
	struct sim_event *event = *(struct sim_event **)arg;

	pthread_mutex_lock(&sim_lock);
	if (event->alive)
		sim_deps_wait(event->deps, event->dep_count);
	pthread_mutex_unlock(&sim_lock);
}

static const struct sim_work_kind record_kind = {.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD, .run = run_record};
static const struct sim_work_kind wait_kind = {.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT, .run = run_wait};

struct sim_work sim_event_record_work(struct sim_event **event)
{
	return (struct sim_work){&record_kind, event, sizeof(*event), false};
}

struct sim_work sim_event_wait_work(struct sim_event **event)
{
	return (struct sim_work){&wait_kind, event, sizeof(*event), false};
}

/* ---- control ---- */

uint64_t sim_live_events(void)
{
	uint64_t count = 0;

	for (struct sim_event *event = events; event; event = event->next)
		count += event->alive && event->context->alive;
	return count;
}

void sim_events_end(struct sim_context *ctx)
{
	for (struct sim_event *event = events; event; event = event->next) {
		if (event->alive && event->context == ctx) {
			event->alive = false;
			forget(event);
		}
	}
}

void sim_events_drop_all(void)
{
	while (events) {
		struct sim_event *event = events;

		events = event->next;
		forget(event);
		free(event->deps);
		free(event);
	}
}
