/* tests/sim/programs/captures.c
 * Stream capture in each mode: what an allocation, a free, an info query and a synchronise inside it answer, whether the
 * capture lives, and what its graph does later. */
#include "program.h"

static CUfunction fill, add;

static const char *status_of(CUstream stream)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	static const char *const names[] = {"none", "active", "invalidated"};
	CUresult result = cuStreamIsCapturing(stream, &status);

	return result == CUDA_SUCCESS && status <= 2 ? names[status] : "error";
}

static void finish(CUstream stream, CUdeviceptr work, int replays)
{
	CUgraph graph = NULL;
	CUgraphExec exec;
	size_t nodes = 0;

	if (TRY(cuStreamEndCapture(stream, &graph)) != CUDA_SUCCESS) {
		SHOW(graph == NULL);
		return;
	}
	NEED(cuGraphGetNodes(graph, NULL, &nodes));
	printf("nodes %zu\n", nodes);
	if (TRY(cuGraphInstantiate(&exec, graph, 0)) == CUDA_SUCCESS) {
		for (int i = 0; i < replays; i++)
			NEED(cuGraphLaunch(exec, stream));
		NEED(cuStreamSynchronize(stream));
		program_show_bytes("after the graph", work, MIB);
		TRY(cuGraphExecDestroy(exec));
	}
	TRY(cuGraphDestroy(graph));
}

static void mode(const char *name, CUstreamCaptureMode mode, size_t bytes, CUstreamCaptureMode thread_mode)
{
	CUdeviceptr work, before, inside = 0, free_bytes_of_none = 0;
	CUstreamCaptureMode exchanged = thread_mode;
	size_t free_bytes, total;
	CUstream stream;

	printf("== %s, %zu bytes, thread mode %d\n", name, bytes, (int)thread_mode);
	NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	NEED(cuMemAlloc(&work, 2 * MIB));
	NEED(cuMemsetD8(work, 0, 2 * MIB));
	NEED(cuMemAlloc(&before, bytes));
	NEED(cuThreadExchangeStreamCaptureMode(&exchanged));
	TRY(cuStreamBeginCapture(stream, mode));
	TRY(program_launch(add, work, MIB / 4, 3, stream));
	printf("alloc -> %d, capture %s\n", (int)cuMemAlloc(&inside, bytes), status_of(stream));
	TRY(cuMemGetInfo(&free_bytes, &total));
	TRY(program_launch(add, work, MIB / 4, 4, stream));
	/* In a capture that forbids it a free is refused and ends the capture. Not tried: under Sublet it is queued, which no
	 * program can be worse off with (a collector of garbage frees at any time, also during another thread's capture). */
	if (mode == CU_STREAM_CAPTURE_MODE_RELAXED || thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
		printf("free -> %d, capture %s\n", (int)cuMemFree(before), status_of(stream));
	TRY(cuMemFree(free_bytes_of_none));
	TRY(program_launch(add, work, MIB / 4, 5, stream));
	finish(stream, work, 3);
	NEED(cuThreadExchangeStreamCaptureMode(&exchanged));
	if (inside)
		TRY(cuMemFree(inside));
	/* freed inside or not, according to what was printed above */
	printf("once more -> %d\n", (int)cuMemFree(before));
	TRY(cuMemFree(work));
	NEED(cuStreamDestroy(stream));
}

/* Only captured work: the graph is replayed with its memory in use, freed and taken again. */
static void replay(void)
{
	CUdeviceptr work, other;
	CUstream stream;
	CUgraph graph;
	CUgraphExec exec;

	printf("== replay\n");
	NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	NEED(cuMemAlloc(&work, 4 * MIB));
	NEED(cuMemAlloc(&other, 4 * MIB));
	NEED(cuMemsetD8(work, 0, 4 * MIB));
	NEED(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	NEED(program_launch(add, work, MIB, 1, stream));
	NEED(cuMemcpyDtoDAsync(other, work, 4 * MIB, stream));
	NEED(cuMemsetD32Async(other + 4 * MIB - 4, 0x55, 1, stream));
	NEED(cuStreamEndCapture(stream, &graph));
	NEED(cuGraphInstantiate(&exec, graph, 0));
	for (int i = 0; i < 5; i++) {
		CUdeviceptr unrelated;

		NEED(cuMemAlloc(&unrelated, 4 * MIB));
		NEED(program_launch(fill, unrelated, MIB, 99, stream));
		NEED(cuGraphLaunch(exec, stream));
		NEED(cuMemFree(unrelated));
	}
	NEED(cuStreamSynchronize(stream));
	program_show_bytes("work", work, 4 * MIB);
	program_show_bytes("other", other, 4 * MIB);
	TRY(cuMemFree(work));
	TRY(cuMemFree(other));
	NEED(cuGraphExecDestroy(exec));
	NEED(cuGraphDestroy(graph));
	NEED(cuStreamDestroy(stream));
}

static void mistakes(void)
{
	CUstream stream;
	CUgraph graph = NULL;
	CUdeviceptr held;
	size_t free_bytes, total;

	printf("== mistakes\n");
	NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	TRY(cuStreamEndCapture(stream, &graph));
	TRY(cuStreamBeginCapture(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL));
	TRY(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	TRY(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	TRY(cuStreamSynchronize(stream));
	printf("capture %s\n", status_of(stream));
	TRY(cuStreamEndCapture(stream, &graph));
	TRY(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	TRY(cuCtxSynchronize());
	printf("capture %s\n", status_of(stream));
	TRY(cuStreamEndCapture(stream, &graph));
	/* the stream goes in the middle of it: frees must not wait for ever */
	TRY(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	TRY(cuStreamDestroy(stream));
	NEED(cuMemAlloc(&held, 8 * MIB));
	TRY(cuMemFree(held));
	NEED(cuMemGetInfo(&free_bytes, &total));
	printf("taken %zu\n", total - free_bytes);
}

int main(void)
{
	program_start();
	fill = program_kernel("sim_fill32");
	add = program_kernel("sim_add32");
	for (int bytes = 0; bytes < 2; bytes++) {
		size_t size = bytes ? 4 * MIB : 4096;

		mode("global", CU_STREAM_CAPTURE_MODE_GLOBAL, size, CU_STREAM_CAPTURE_MODE_GLOBAL);
		mode("thread-local", CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, size, CU_STREAM_CAPTURE_MODE_GLOBAL);
		mode("relaxed", CU_STREAM_CAPTURE_MODE_RELAXED, size, CU_STREAM_CAPTURE_MODE_GLOBAL);
		mode("global", CU_STREAM_CAPTURE_MODE_GLOBAL, size, CU_STREAM_CAPTURE_MODE_RELAXED);
	}
	replay();
	mistakes();
	return 0;
}
