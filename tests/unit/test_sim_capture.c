/* tests/unit/test_sim_capture.c
 * The simulated driver's stream capture: what becomes of the calls, what a capture forbids to whom, and with which error. */
#include "tests/unit/sim_harness.h"

#include <pthread.h>

static CUstream stream, second;
static CUdeviceptr memory;

static int setup_capture(void **state)
{
	setup(state);
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
	OK(cuMemAlloc(&memory, 4096));
	OK(cuMemsetD8(memory, 0, 4096));
	return 0;
}

static CUstreamCaptureStatus status_of(CUstream s)
{
	CUstreamCaptureStatus status;

	OK(cuStreamIsCapturing(s, &status));
	return status;
}

static void begin(CUstreamCaptureMode mode)
{
	OK(cuStreamBeginCapture(stream, mode));
}

/* The capture was invalidated, and its end says so. */
static void ends_invalid(void)
{
	CUgraph graph;

	assert_int_equal(status_of(stream), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
	FAILS(launch_fill(memory, 1, 1, stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	FAILS(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	assert_null(graph);
	assert_int_equal(status_of(stream), CU_STREAM_CAPTURE_STATUS_NONE);
	OK(launch_fill(memory, 1, 1, stream));
	OK(cuStreamSynchronize(stream));
}

static void capture_notes_and_replays(void **state)
{
	CUgraphNode nodes[8];
	CUgraphNodeType type;
	CUgraphExec exec;
	CUgraph graph;
	size_t count = 8;

	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	assert_int_equal(status_of(stream), CU_STREAM_CAPTURE_STATUS_ACTIVE);
	OK(launch_fill(memory, 4, 7, stream));
	OK(launch_add(memory, 1, 1, stream));
	OK(cuMemcpyDtoDAsync(memory + 64, memory, 16, stream));
	OK(cuMemsetD32Async(memory + 8, 3, 1, stream));
	OK(cuStreamEndCapture(stream, &graph));
	assert_int_equal(word_at(memory), 0); /* nothing ran */
	OK(cuGraphGetNodes(graph, nodes, &count));
	assert_int_equal(count, 4);
	OK(cuGraphNodeGetType(nodes[2], &type));
	assert_int_equal(type, CU_GRAPH_NODE_TYPE_MEMCPY);
	count = 8;
	OK(cuGraphGetEdges(graph, NULL, NULL, NULL, &count));
	assert_int_equal(count, 3);
	OK(cuGraphInstantiate(&exec, graph, 0));
	OK(cuGraphLaunch(exec, stream));
	OK(cuStreamSynchronize(stream));
	assert_int_equal(word_at(memory), 8);
	assert_int_equal(word_at(memory + 64), 8);
	assert_int_equal(word_at(memory + 8), 3);
}

static void capture_forks_and_joins_by_events(void **state)
{
	CUevent fork, join;
	CUgraph graph;
	CUgraphNode roots[4];
	size_t count = 4;

	OK(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
	OK(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
	begin(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	OK(launch_fill(memory, 1, 1, stream));
	OK(cuEventRecord(fork, stream));
	OK(cuStreamWaitEvent(second, fork, 0));
	assert_int_equal(status_of(second), CU_STREAM_CAPTURE_STATUS_ACTIVE);
	OK(launch_fill(memory + 64, 1, 2, second));
	OK(launch_fill(memory + 128, 1, 3, stream));
	FAILS(cuStreamEndCapture(second, &graph), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
	ends_invalid();
	assert_int_equal(status_of(second), CU_STREAM_CAPTURE_STATUS_NONE);

	begin(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	OK(launch_fill(memory, 1, 1, stream));
	OK(cuEventRecord(fork, stream));
	OK(cuStreamWaitEvent(second, fork, 0));
	OK(launch_fill(memory + 64, 1, 2, second));
	FAILS(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
	assert_int_equal(status_of(stream), CU_STREAM_CAPTURE_STATUS_NONE);
	assert_int_equal(status_of(second), CU_STREAM_CAPTURE_STATUS_NONE);

	begin(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	OK(launch_fill(memory, 1, 1, stream));
	OK(cuEventRecord(fork, stream));
	OK(cuStreamWaitEvent(second, fork, 0));
	OK(launch_fill(memory + 64, 1, 2, second));
	OK(cuEventRecord(join, second));
	OK(launch_fill(memory + 128, 1, 3, stream));
	OK(cuStreamWaitEvent(stream, join, 0));
	OK(launch_fill(memory + 192, 1, 4, stream));
	OK(cuStreamEndCapture(stream, &graph));
	OK(cuGraphGetRootNodes(graph, roots, &count));
	assert_int_equal(count, 1);
	count = 0;
	OK(cuGraphGetEdges(graph, NULL, NULL, NULL, &count));
	assert_int_equal(count, 4); /* a diamond */
	/* an event of a capture that ended cannot be asked, nor stood behind */
	FAILS(cuEventQuery(join), CUDA_ERROR_CAPTURED_EVENT);
	FAILS(cuStreamWaitEvent(second, join, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
}

static void capture_of_legacy_stream_is_refused(void **state)
{
	CUgraph graph;

	FAILS(cuStreamBeginCapture(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	FAILS(cuStreamEndCapture(stream, &graph), CUDA_ERROR_ILLEGAL_STATE);
	begin(CU_STREAM_CAPTURE_MODE_RELAXED);
	FAILS(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_ERROR_ILLEGAL_STATE);
	OK(launch_fill(memory, 1, 1, NULL)); /* does not synchronise with a non-blocking stream */
	OK(cuStreamEndCapture(stream, &graph));
}

static void capture_of_blocking_stream_forbids_legacy_stream(void **state)
{
	CUstreamCaptureStatus status;
	CUstream blocking;
	CUgraph graph;

	OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
	OK(cuStreamBeginCapture(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
	FAILS(cuStreamIsCapturing(NULL, &status), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
	assert_int_equal(status_of(blocking), CU_STREAM_CAPTURE_STATUS_ACTIVE); /* asking harms nothing */
	FAILS(launch_fill(memory, 1, 1, NULL), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
	FAILS(cuStreamEndCapture(blocking, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

/* ---- unsafe calls ---- */

static void *unsafe_elsewhere(void *arg)
{
	CUdeviceptr p;

	cuCtxSetCurrent(context);
	*(CUresult *)arg = cuMemAlloc(&p, 4096);
	return NULL;
}

static CUresult in_thread(void *(*run)(void *))
{
	CUresult result = CUDA_ERROR_UNKNOWN;
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, run, &result), 0);
	pthread_join(thread, NULL);
	return result;
}

static void capture_global_forbids_unsafe_calls_to_all_threads(void **state)
{
	CUdeviceptr p;
	CUevent event;

	OK(cuEventCreate(&event, 0));
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	FAILS(cuMemAlloc(&p, 4096), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	ends_invalid();
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	FAILS(in_thread(unsafe_elsewhere), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	ends_invalid();
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	FAILS(cuEventQuery(event), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	ends_invalid();
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	FAILS(cuMemcpyHtoD(memory, "abcd", 4), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	ends_invalid();
}

static void capture_thread_local_forbids_them_to_its_thread_only(void **state)
{
	CUdeviceptr p;

	begin(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	OK(in_thread(unsafe_elsewhere));
	assert_int_equal(status_of(stream), CU_STREAM_CAPTURE_STATUS_ACTIVE);
	FAILS(cuMemAlloc(&p, 4096), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	ends_invalid();
}

/* FACTS: in RELAXED mode copy, synchronise, record, query and cuMemAlloc succeed beside a GLOBAL capture. */
static void capture_global_allows_unsafe_calls_of_relaxed_thread(void **state)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUdeviceptr p;
	CUevent event;
	CUgraph graph;

	OK(cuEventCreate(&event, 0));
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	OK(cuThreadExchangeStreamCaptureMode(&mode));
	assert_int_equal(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
	OK(cuMemcpyHtoD(memory, "abcd", 4));
	OK(cuEventRecord(event, second));
	OK(cuEventQuery(event));
	OK(cuStreamSynchronize(second));
	OK(cuMemAlloc(&p, 4096));
	assert_int_equal(status_of(stream), CU_STREAM_CAPTURE_STATUS_ACTIVE);
	OK(cuThreadExchangeStreamCaptureMode(&mode));
	assert_int_equal(mode, CU_STREAM_CAPTURE_MODE_RELAXED);
	OK(cuStreamEndCapture(stream, &graph));
	mode = (CUstreamCaptureMode)9;
	FAILS(cuThreadExchangeStreamCaptureMode(&mode), CUDA_ERROR_INVALID_VALUE);
}

/* FACTS: context-wide calls fail and invalidate in RELAXED mode too. */
static void capture_relaxed_forbids_context_wide_calls(void **state)
{
	CUevent event;

	OK(cuEventCreate(&event, 0));
	begin(CU_STREAM_CAPTURE_MODE_RELAXED);
	FAILS(cuCtxSynchronize(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	ends_invalid();
	begin(CU_STREAM_CAPTURE_MODE_RELAXED);
	FAILS(cuCtxRecordEvent(context, event), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	ends_invalid();
}

static void capture_forbids_waiting_for_what_is_captured(void **state)
{
	CUevent event;

	OK(cuEventCreate(&event, 0));
	begin(CU_STREAM_CAPTURE_MODE_RELAXED);
	FAILS(cuStreamSynchronize(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	ends_invalid();
	begin(CU_STREAM_CAPTURE_MODE_RELAXED);
	FAILS(cuStreamQuery(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	ends_invalid();
	begin(CU_STREAM_CAPTURE_MODE_RELAXED);
	OK(cuEventRecord(event, stream));
	FAILS(cuEventSynchronize(event), CUDA_ERROR_CAPTURED_EVENT);
	ends_invalid();
}

static void capture_refuses_event_from_outside(void **state)
{
	CUevent event, never;
	CUgraph graph;
	CUgraphNode node;
	CUgraphNodeType type;
	size_t count = 1;

	OK(cuEventCreate(&event, 0));
	OK(cuEventCreate(&never, 0));
	OK(cuEventRecord(event, second));
	begin(CU_STREAM_CAPTURE_MODE_RELAXED);
	OK(cuStreamWaitEvent(stream, never, 0));
	FAILS(cuStreamWaitEvent(stream, event, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
	ends_invalid();
	begin(CU_STREAM_CAPTURE_MODE_RELAXED);
	OK(cuStreamWaitEvent(stream, event, CU_EVENT_WAIT_EXTERNAL));
	OK(cuStreamEndCapture(stream, &graph));
	OK(cuGraphGetNodes(graph, &node, &count));
	OK(cuGraphNodeGetType(node, &type));
	assert_int_equal(type, CU_GRAPH_NODE_TYPE_WAIT_EVENT);
}

static void captures_cannot_be_merged(void **state)
{
	CUevent event;
	CUgraph graph;

	OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	begin(CU_STREAM_CAPTURE_MODE_RELAXED);
	OK(cuStreamBeginCapture(second, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cuEventRecord(event, second));
	FAILS(cuStreamWaitEvent(stream, event, 0), CUDA_ERROR_STREAM_CAPTURE_MERGE);
	FAILS(cuStreamEndCapture(second, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	ends_invalid();
}

static void *end_elsewhere(void *arg)
{
	CUgraph graph;

	cuCtxSetCurrent(context);
	*(CUresult *)arg = cuStreamEndCapture(stream, &graph);
	return NULL;
}

static void capture_ends_in_its_thread_unless_relaxed(void **state)
{
	CUgraph graph;

	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	FAILS(in_thread(end_elsewhere), CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
	OK(cuStreamEndCapture(stream, &graph));
	begin(CU_STREAM_CAPTURE_MODE_RELAXED);
	OK(in_thread(end_elsewhere));
	assert_int_equal(status_of(stream), CU_STREAM_CAPTURE_STATUS_NONE);
}

/* FACTS: VMM calls are accepted during a global capture. */
static void capture_allows_vmm_calls(void **state)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location.type = CU_MEM_LOCATION_TYPE_DEVICE};
	CUmemAccessDesc access = {.location.type = CU_MEM_LOCATION_TYPE_DEVICE, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemGenericAllocationHandle handle;
	CUdeviceptr p;
	CUgraph graph;

	OK(cuMemAddressReserve(&p, 2 << 20, 0, 0, 0));
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	OK(cuMemCreate(&handle, 2 << 20, &prop, 0));
	OK(cuMemMap(p, 2 << 20, 0, handle, 0));
	OK(cuMemSetAccess(p, 2 << 20, &access, 1));
	OK(cuStreamEndCapture(stream, &graph));
}

/* FACTS: a graph captured before an unmap works when new pages are mapped at the same address. */
static void captured_graph_survives_remapping(void **state)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location.type = CU_MEM_LOCATION_TYPE_DEVICE};
	CUmemAccessDesc access = {.location.type = CU_MEM_LOCATION_TYPE_DEVICE, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemGenericAllocationHandle handle;
	CUgraphExec exec;
	CUdeviceptr p;
	CUgraph graph;

	OK(cuMemAddressReserve(&p, 2 << 20, 0, 0, 0));
	for (int round = 0; round < 2; round++) {
		OK(cuMemCreate(&handle, 2 << 20, &prop, 0));
		OK(cuMemMap(p, 2 << 20, 0, handle, 0));
		OK(cuMemSetAccess(p, 2 << 20, &access, 1));
		if (round == 0) {
			begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
			OK(launch_fill(p, 1, 5, stream));
			OK(cuStreamEndCapture(stream, &graph));
			OK(cuGraphInstantiate(&exec, graph, 0));
		}
		OK(cuGraphLaunch(exec, stream));
		OK(cuStreamSynchronize(stream));
		assert_int_equal(word_at(p), 5);
		OK(cuMemUnmap(p, 2 << 20));
		OK(cuMemRelease(handle));
	}
}

static void capture_info_names_graph_and_dependencies(void **state)
{
	CUstreamCaptureStatus status;
	const CUgraphNode *from;
	CUgraph graph, ended;
	CUgraphNode extra, nodes[4];
	cuuint64_t id = 0;
	size_t count = 99;

	begin(CU_STREAM_CAPTURE_MODE_RELAXED);
	OK(cuStreamGetCaptureInfo(stream, &status, &id, &graph, &from, NULL, &count));
	assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
	assert_int_equal(count, 0);
	OK(launch_fill(memory, 1, 1, stream));
	OK(cuStreamGetCaptureInfo(stream, &status, &id, &graph, &from, NULL, &count));
	assert_int_equal(count, 1);
	assert_true(id != 0);
	OK(cuGraphAddEmptyNode(&extra, graph, from, count));
	OK(cuStreamUpdateCaptureDependencies(stream, &extra, NULL, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
	OK(launch_fill(memory, 1, 2, stream));
	OK(cuStreamEndCapture(stream, &ended));
	assert_ptr_equal(ended, graph);
	count = 4;
	OK(cuGraphGetNodes(graph, nodes, &count));
	assert_int_equal(count, 3);
	count = 0;
	OK(cuGraphGetEdges(graph, NULL, NULL, NULL, &count));
	assert_int_equal(count, 2);
	FAILS(cuStreamUpdateCaptureDependencies(stream, &extra, NULL, 1, 0), CUDA_ERROR_ILLEGAL_STATE);
	OK(cuStreamGetCaptureInfo(stream, &status, &id, NULL, NULL, NULL, NULL));
	assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_NONE);
}

static void capture_to_graph_adds_to_it(void **state)
{
	CUgraph graph, ended;
	CUgraphNode root;
	CUgraphExec exec;
	size_t count = 0;

	OK(cuGraphCreate(&graph, 0));
	OK(cuGraphAddEmptyNode(&root, graph, NULL, 0));
	OK(cuStreamBeginCaptureToGraph(stream, graph, &root, NULL, 1, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(launch_fill(memory, 1, 6, stream));
	OK(cuStreamEndCapture(stream, &ended));
	assert_ptr_equal(ended, graph);
	OK(cuGraphGetEdges(graph, NULL, NULL, NULL, &count));
	assert_int_equal(count, 1);
	/* one that fails leaves the graph to its owner */
	OK(cuStreamBeginCaptureToGraph(stream, graph, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_RELAXED));
	FAILS(cuStreamSynchronize(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	FAILS(cuStreamEndCapture(stream, &ended), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	OK(cuGraphInstantiate(&exec, graph, 0));
	OK(cuGraphLaunch(exec, stream));
	OK(cuStreamSynchronize(stream));
	assert_int_equal(word_at(memory), 6);
}

static void capture_notes_graph_launch_and_async_memory(void **state)
{
	CUgraphNode nodes[4];
	CUgraphNodeType type;
	CUgraphExec exec, outer;
	CUdeviceptr p = 0;
	CUgraph graph;
	size_t count = 4;

	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	OK(cuMemAllocAsync(&p, 1 << 20, stream));
	OK(launch_fill(p, 1, 9, stream));
	OK(cuMemcpyDtoDAsync(memory, p, 4, stream));
	OK(cuMemFreeAsync(p, stream));
	OK(cuStreamEndCapture(stream, &graph));
	OK(cuGraphGetNodes(graph, nodes, &count));
	assert_int_equal(count, 4);
	OK(cuGraphNodeGetType(nodes[0], &type));
	assert_int_equal(type, CU_GRAPH_NODE_TYPE_MEM_ALLOC);
	OK(cuGraphNodeGetType(nodes[3], &type));
	assert_int_equal(type, CU_GRAPH_NODE_TYPE_MEM_FREE);
	OK(cuGraphInstantiate(&exec, graph, 0));
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	OK(cuGraphLaunch(exec, stream));
	OK(cuStreamEndCapture(stream, &graph));
	OK(cuGraphInstantiate(&outer, graph, 0));
	OK(cuGraphLaunch(outer, stream));
	OK(cuStreamSynchronize(stream));
	assert_int_equal(word_at(memory), 9);
	/* memory that no graph allocated is not freed in a capture */
	OK(cuMemAllocAsync(&p, 1 << 20, stream));
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	FAILS(cuMemFreeAsync(p, stream), CUDA_ERROR_INVALID_VALUE);
	ends_invalid();
}

static void capture_ends_with_its_stream(void **state)
{
	CUdeviceptr p;

	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	OK(cuStreamDestroy(stream));
	OK(cuMemAlloc(&p, 4096)); /* nothing captures any more */
}

#undef CASE
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup_capture, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(capture_notes_and_replays),
		CASE(capture_forks_and_joins_by_events),
		CASE(capture_of_legacy_stream_is_refused),
		CASE(capture_of_blocking_stream_forbids_legacy_stream),
		CASE(capture_global_forbids_unsafe_calls_to_all_threads),
		CASE(capture_thread_local_forbids_them_to_its_thread_only),
		CASE(capture_global_allows_unsafe_calls_of_relaxed_thread),
		CASE(capture_relaxed_forbids_context_wide_calls),
		CASE(capture_forbids_waiting_for_what_is_captured),
		CASE(capture_refuses_event_from_outside),
		CASE(captures_cannot_be_merged),
		CASE(capture_ends_in_its_thread_unless_relaxed),
		CASE(capture_allows_vmm_calls),
		CASE(captured_graph_survives_remapping),
		CASE(capture_info_names_graph_and_dependencies),
		CASE(capture_to_graph_adds_to_it),
		CASE(capture_notes_graph_launch_and_async_memory),
		CASE(capture_ends_with_its_stream),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
