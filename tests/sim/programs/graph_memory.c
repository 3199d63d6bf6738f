/* tests/sim/programs/graph_memory.c
 * Stream-ordered memory inside a capture belongs to the graph. */
#include "program.h"

int main(void)
{
	CUdeviceptr at = 0, kept;
	CUstream stream;
	CUgraph graph = NULL;
	CUgraphExec exec;

	program_start();
	NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	NEED(cuMemAlloc(&kept, 2 * MIB));
	NEED(cuMemsetD8(kept, 0, 2 * MIB));
	NEED(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	TRY(cuMemAllocAsync(&at, 2 * MIB, stream));
	TRY(cuMemsetD8Async(at, 0x47, 2 * MIB, stream));
	TRY(cuMemcpyDtoDAsync(kept, at, 2 * MIB, stream));
	TRY(cuMemFreeAsync(at, stream));
	/* plain memory is not the graph's to free */
	TRY(cuMemFreeAsync(kept, stream));
	if (TRY(cuStreamEndCapture(stream, &graph)) == CUDA_SUCCESS) {
		if (TRY(cuGraphInstantiate(&exec, graph, 0)) == CUDA_SUCCESS) {
			TRY(cuGraphLaunch(exec, stream));
			TRY(cuStreamSynchronize(stream));
			TRY(cuGraphExecDestroy(exec));
		}
		TRY(cuGraphDestroy(graph));
	}
	NEED(cuStreamDestroy(stream));
	TRY(cuMemFree(kept));
	return 0;
}
