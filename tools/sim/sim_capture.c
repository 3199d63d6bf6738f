/* tools/sim/sim_capture.c
 * Stream capture: which stream is in which capture and behind which nodes, what a capture forbids to whom, and with which
 * error. The rules are those of cuStreamBeginCapture and cuThreadExchangeStreamCaptureMode in cuda.h; whatever breaks one
 * also invalidates the capture. */
#include "tools/sim/sim_exec.h"

#include <stdlib.h>
#include <string.h>

#include "base/list.h"

unsigned sim_captures_active;

void sim_capture_unref(struct sim_capture *capture)
{
	if (--capture->references == 0)
		free(capture);
}

/* ---- what others may do meanwhile ---- */

CUresult CUDAAPI cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
	CUstreamCaptureMode before = *sim_thread_mode();

	ENTER(cuThreadExchangeStreamCaptureMode);
	if (!mode || (unsigned)*mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	*sim_thread_mode() = *mode;
	*mode = before;
	return CUDA_SUCCESS;
}

/* Does @capture forbid unsafe calls to this thread? */
static bool forbids(const struct sim_capture *capture)
{
	CUstreamCaptureMode mode = *sim_thread_mode();

	if (mode == CU_STREAM_CAPTURE_MODE_RELAXED)
		return false;
	if (capture->owner == sim_thread_id())
		return capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
	return mode == CU_STREAM_CAPTURE_MODE_GLOBAL && capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

CUresult sim_capture_check(bool always)
{
	CUresult result = CUDA_SUCCESS;

	if (!__atomic_load_n(&sim_captures_active, __ATOMIC_ACQUIRE))
		return result;
	pthread_mutex_lock(&sim_lock);
	for (struct sim_stream *stream = sim_all_streams; stream; stream = stream->all_next) {
		if (!stream->capture || (!always && !forbids(stream->capture)))
			continue;
		stream->capture->invalid = true;
		result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	pthread_mutex_unlock(&sim_lock);
	return result;
}

/* ---- the place of a stream in its capture ---- */

static void leave(struct sim_stream *stream)
{
	sim_capture_unref(stream->capture);
	stream->capture = NULL;
	stream->tip_count = 0;
}

static bool add_tip(struct sim_stream *stream, struct sim_node *node)
{
	for (size_t i = 0; i < stream->tip_count; i++) {
		if (stream->tips[i] == node)
			return true;
	}
	if (!list_room(&stream->tips, stream->tip_count, &stream->tip_capacity, sizeof(*stream->tips)))
		return false;
	stream->tips[stream->tip_count++] = node;
	return true;
}

CUresult sim_capture_note(struct sim_stream *stream, const struct sim_work *work, struct sim_node **ret_node)
{
	struct sim_node *node;

	if (stream->capture->invalid)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	node = sim_node_add(stream->capture->graph, work, stream->tips, NULL, stream->tip_count);
	if (!node)
		return CUDA_ERROR_OUT_OF_MEMORY;
	stream->tip_count = 0;
	if (ret_node)
		*ret_node = node;
	return add_tip(stream, node) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult sim_capture_join(struct sim_stream *stream, struct sim_capture *capture, struct sim_node *const *tips, size_t count)
{
	if (capture->ended) {
		/* The work of that event is in a graph now: nothing outside can stand behind it. */
		if (stream->capture)
			stream->capture->invalid = true;
		return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
	}
	if (stream == stream->context->legacy) {
		capture->invalid = true;
		return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	}
	if (stream->capture && stream->capture != capture) {
		stream->capture->invalid = capture->invalid = true;
		return CUDA_ERROR_STREAM_CAPTURE_MERGE;
	}
	if (capture->invalid)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (!stream->capture) {
		stream->capture = capture;
		stream->tip_count = 0;
		capture->references++;
	}
	for (size_t i = 0; i < count; i++) {
		if (!add_tip(stream, tips[i]))
			return CUDA_ERROR_OUT_OF_MEMORY;
	}
	return CUDA_SUCCESS;
}

void sim_capture_forget(const struct sim_node *node)
{
	for (struct sim_stream *stream = sim_captures_active ? sim_all_streams : NULL; stream; stream = stream->all_next) {
		for (size_t i = 0; i < stream->tip_count; i++) {
			if (stream->tips[i] == node)
				stream->tips[i--] = stream->tips[--stream->tip_count];
		}
	}
}

/* Every stream leaves @capture. */
static void dissolve(struct sim_capture *capture)
{
	capture->references++;
	for (struct sim_stream *stream = sim_all_streams; stream; stream = stream->all_next) {
		if (stream->capture == capture)
			leave(stream);
	}
	if (!capture->ended)
		__atomic_sub_fetch(&sim_captures_active, 1, __ATOMIC_RELEASE);
	capture->ended = true;
	sim_capture_unref(capture);
}

void sim_capture_abandon(struct sim_stream *stream)
{
	struct sim_capture *capture = stream->capture;

	if (!capture)
		return;
	capture->invalid = true;
	if (stream != capture->origin) {
		leave(stream);
		return;
	}
	if (!capture->callers_graph)
		sim_graph_free(capture->graph);
	dissolve(capture);
}

/* ---- begin and end ---- */

static CUresult begin(struct sim_context *ctx, CUstream handle, bool per_thread, CUstreamCaptureMode mode, CUgraph graph,
	const CUgraphNode *from, size_t from_count)
{
	static uint64_t last_id;
	struct sim_capture *capture = NULL;
	struct sim_stream *stream;
	CUresult result;

	if ((unsigned)mode > CU_STREAM_CAPTURE_MODE_RELAXED || (from_count && !from))
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim_lock);
	stream = sim_stream_of(ctx, handle, per_thread);
	result = stream ? stream->context->sticky : CUDA_ERROR_INVALID_HANDLE;
	if (result == CUDA_SUCCESS && stream == stream->context->legacy)
		result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	if (result == CUDA_SUCCESS && stream->capture)
		result = CUDA_ERROR_ILLEGAL_STATE;
	for (size_t i = 0; result == CUDA_SUCCESS && i < from_count; i++) {
		struct sim_node *node = sim_node_of(from[i]);

		if (!node || node->graph != (struct sim_graph *)graph)
			result = CUDA_ERROR_INVALID_VALUE;
	}
	if (result == CUDA_SUCCESS) {
		capture = calloc(1, sizeof(*capture));
		result = capture ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (result == CUDA_SUCCESS) {
		*capture = (struct sim_capture){.graph = graph ? (struct sim_graph *)graph : sim_graph_new(),
			.callers_graph = graph != NULL, .id = ++last_id, .owner = sim_thread_id(), .mode = mode,
			.origin = stream, .references = 1};
		stream->capture = capture;
		stream->tip_count = 0;
		__atomic_add_fetch(&sim_captures_active, 1, __ATOMIC_RELEASE);
		for (size_t i = 0; i < from_count && result == CUDA_SUCCESS; i++)
			result = add_tip(stream, (struct sim_node *)from[i]) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
		if (!capture->graph || result != CUDA_SUCCESS) {
			sim_capture_abandon(stream);
			result = CUDA_ERROR_OUT_OF_MEMORY;
		}
	}
	pthread_mutex_unlock(&sim_lock);
	return result;
}

SIM_BOTH(cuStreamBeginCapture, (CUstream stream), begin(ctx, stream, twin, CU_STREAM_CAPTURE_MODE_GLOBAL, NULL, NULL, 0))

CUresult CUDAAPI cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode)
{
	ENTER_CONTEXT(cuStreamBeginCapture_v2, ctx);
	return begin(ctx, stream, false, mode, NULL, NULL, 0);
}

CUresult CUDAAPI cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode)
{
	ENTER_CONTEXT(cuStreamBeginCapture_v2_ptsz, ctx);
	return begin(ctx, stream, true, mode, NULL, NULL, 0);
}

static CUresult begin_to_graph(struct sim_context *ctx, CUstream stream, bool per_thread, CUgraph graph,
	const CUgraphNode *from, size_t count, CUstreamCaptureMode mode)
{
	bool known;

	pthread_mutex_lock(&sim_lock);
	known = sim_graph_of(graph) != NULL;
	pthread_mutex_unlock(&sim_lock);
	return known ? begin(ctx, stream, per_thread, mode, graph, from, count) : CUDA_ERROR_INVALID_VALUE;
}

SIM_BOTH(cuStreamBeginCaptureToGraph,
	(CUstream stream, CUgraph graph, const CUgraphNode *from, const CUgraphEdgeData *data, size_t count,
		CUstreamCaptureMode mode),
	begin_to_graph(ctx, stream, twin, graph, from, count, mode))

/* Is all that the forked streams noted in front of what the origin does last? */
static bool joined(const struct sim_capture *capture)
{
	const struct sim_stream *origin = capture->origin;

	for (struct sim_stream *stream = sim_all_streams; stream; stream = stream->all_next) {
		if (stream->capture != capture || stream == origin)
			continue;
		for (size_t i = 0; i < stream->tip_count; i++) {
			bool reached = false;

			for (size_t j = 0; j < origin->tip_count && !reached; j++)
				reached = sim_node_reaches(stream->tips[i], origin->tips[j]);
			if (!reached)
				return false;
		}
	}
	return true;
}

static CUresult end(struct sim_context *ctx, CUstream handle, bool per_thread, CUgraph *ret_graph)
{
	struct sim_capture *capture;
	struct sim_stream *stream;
	CUresult result = CUDA_SUCCESS;

	if (!ret_graph)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim_lock);
	stream = sim_stream_of(ctx, handle, per_thread);
	capture = stream ? stream->capture : NULL;
	if (!stream) {
		result = CUDA_ERROR_INVALID_HANDLE;
	} else if (!capture) {
		result = CUDA_ERROR_ILLEGAL_STATE;
	} else if (stream != capture->origin) {
		capture->invalid = true;
		result = CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
	} else if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->owner != sim_thread_id()) {
		result = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
	} else {
		struct sim_graph *graph = capture->graph;
		bool callers = capture->callers_graph;

		result = capture->invalid   ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
			 : !joined(capture) ? CUDA_ERROR_STREAM_CAPTURE_UNJOINED
					    : CUDA_SUCCESS;
		dissolve(capture);
		*ret_graph = result == CUDA_SUCCESS ? (CUgraph)graph : NULL;
		if (result != CUDA_SUCCESS && !callers)
			sim_graph_free(graph);
	}
	pthread_mutex_unlock(&sim_lock);
	return result;
}

SIM_BOTH(cuStreamEndCapture, (CUstream stream, CUgraph *graph), end(ctx, stream, twin, graph))

/* ---- questions ---- */

struct capture_info {
	CUstreamCaptureStatus *status;
	cuuint64_t *id;
	CUgraph *graph;
	const CUgraphNode **from;
	const CUgraphEdgeData **data;
	size_t *count;
};

static CUresult info(struct sim_context *ctx, CUstream handle, bool per_thread, const struct capture_info *ret)
{
	static const CUgraphEdgeData plain[64]; /* captures make default edges only */
	struct sim_stream *stream;
	CUresult result = CUDA_SUCCESS;

	if (!ret->status)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim_lock);
	stream = sim_stream_of(ctx, handle, per_thread);
	if (!stream)
		result = CUDA_ERROR_INVALID_HANDLE;
	/* The legacy stream is not usable while a stream it synchronises with is captured; asking harms nothing. */
	for (struct sim_stream *s = stream && stream == stream->context->legacy ? stream->context->streams : NULL; s;
		s = s->next) {
		if (s->capture && s->blocking)
			result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	}
	if (result == CUDA_SUCCESS) {
		struct sim_capture *capture = stream->capture;
		bool active = capture && !capture->invalid;

		*ret->status = active	 ? CU_STREAM_CAPTURE_STATUS_ACTIVE
			       : capture ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
					 : CU_STREAM_CAPTURE_STATUS_NONE;
		if (ret->id && active)
			*ret->id = capture->id;
		if (ret->graph && active)
			*ret->graph = (CUgraph)capture->graph;
		if (ret->from && active)
			*ret->from = (const CUgraphNode *)stream->tips;
		if (ret->count && active)
			*ret->count = stream->tip_count;
		if (ret->data && active) {
			*ret->data = plain;
			if (stream->tip_count > sizeof(plain) / sizeof(plain[0]))
				result = CUDA_ERROR_NOT_SUPPORTED;
		}
	}
	pthread_mutex_unlock(&sim_lock);
	return result;
}

#define INFO(symbol, twin, params, ...)                                                                                \
	CUresult CUDAAPI symbol params                                                                                 \
	{                                                                                                              \
		const struct capture_info ret = {__VA_ARGS__};                                                         \
		ENTER_CONTEXT(symbol, ctx);                                                                            \
		return info(ctx, stream, twin, &ret);                                                                  \
	}
#define V0 (CUstream stream, CUstreamCaptureStatus *status)
#define V1 (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id)
#define V2                                                                                                             \
	(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph, const CUgraphNode **from,     \
		size_t *count)
#define V3                                                                                                             \
	(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph, const CUgraphNode **from,     \
		const CUgraphEdgeData **data, size_t *count)
INFO(cuStreamIsCapturing, false, V0, status, NULL, NULL, NULL, NULL, NULL)
INFO(cuStreamIsCapturing_ptsz, true, V0, status, NULL, NULL, NULL, NULL, NULL)
INFO(cuStreamGetCaptureInfo, false, V1, status, id, NULL, NULL, NULL, NULL)
INFO(cuStreamGetCaptureInfo_ptsz, true, V1, status, id, NULL, NULL, NULL, NULL)
INFO(cuStreamGetCaptureInfo_v2, false, V2, status, id, graph, from, NULL, count)
INFO(cuStreamGetCaptureInfo_v2_ptsz, true, V2, status, id, graph, from, NULL, count)
INFO(cuStreamGetCaptureInfo_v3, false, V3, status, id, graph, from, data, count)
INFO(cuStreamGetCaptureInfo_v3_ptsz, true, V3, status, id, graph, from, data, count)

/* ---- dependencies by hand ---- */

static CUresult update(struct sim_context *ctx, CUstream handle, bool per_thread, const CUgraphNode *from, size_t count,
	unsigned flags)
{
	struct sim_stream *stream;
	CUresult result;

	if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES || (count && !from))
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim_lock);
	stream = sim_stream_of(ctx, handle, per_thread);
	result = !stream		   ? CUDA_ERROR_INVALID_HANDLE
		 : !stream->capture	   ? CUDA_ERROR_ILLEGAL_STATE
		 : stream->capture->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
					    : CUDA_SUCCESS;
	for (size_t i = 0; result == CUDA_SUCCESS && i < count; i++) {
		struct sim_node *node = sim_node_of(from[i]);

		if (!node || node->graph != stream->capture->graph)
			result = CUDA_ERROR_INVALID_VALUE;
	}
	if (result == CUDA_SUCCESS && flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES)
		stream->tip_count = 0;
	for (size_t i = 0; result == CUDA_SUCCESS && i < count; i++)
		result = add_tip(stream, (struct sim_node *)from[i]) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_unlock(&sim_lock);
	return result;
}

SIM_BOTH(cuStreamUpdateCaptureDependencies, (CUstream stream, CUgraphNode *from, size_t count, unsigned int flags),
	update(ctx, stream, twin, from, count, flags))

CUresult CUDAAPI cuStreamUpdateCaptureDependencies_v2(CUstream stream, CUgraphNode *from, const CUgraphEdgeData *data,
	size_t count, unsigned int flags)
{
	ENTER_CONTEXT(cuStreamUpdateCaptureDependencies_v2, ctx);
	return update(ctx, stream, false, from, count, flags);
}

CUresult CUDAAPI cuStreamUpdateCaptureDependencies_v2_ptsz(CUstream stream, CUgraphNode *from, const CUgraphEdgeData *data,
	size_t count, unsigned int flags)
{
	ENTER_CONTEXT(cuStreamUpdateCaptureDependencies_v2_ptsz, ctx);
	return update(ctx, stream, true, from, count, flags);
}
