/* tests/sim/programs/per_thread.c
 * Compiled for the per-thread default stream: cuda.h turns the names into their _ptsz and _ptds twins. */
#define CUDA_API_PER_THREAD_DEFAULT_STREAM

#include <pthread.h>

#include "program.h"

static CUcontext context;
static CUdeviceptr results;

static void *work(void *arg)
{
	uint32_t index = (uint32_t)(uintptr_t)arg;
	CUdeviceptr own, pool;
	CUfunction fill, add;
	CUstream none = NULL;

	NEED(cuCtxSetCurrent(context));
	fill = program_kernel("sim_fill32");
	add = program_kernel("sim_add32");
	NEED(cuMemAlloc(&own, 2 * MIB));
	NEED(cuMemAllocAsync(&pool, 2 * MIB, none));
	NEED(program_launch(fill, own, 2 * MIB / 4, index, none));
	NEED(program_launch(add, own, 2 * MIB / 4, 100, none));
	NEED(cuMemcpyDtoDAsync(pool, own, 2 * MIB, none));
	NEED(cuMemcpyDtoDAsync(results + index * 4, pool + 2 * MIB - 4, 4, none));
	NEED(cuMemFreeAsync(pool, none));
	NEED(cuMemFreeAsync(own, none));
	NEED(cuStreamSynchronize(none));
	return NULL;
}

int main(void)
{
	pthread_t threads[4];
	uint32_t host[4] = {0};
	CUstream none = NULL;
	CUgraph graph;
	CUgraphExec exec;

	context = program_start();
	NEED(cuMemAlloc(&results, 2 * MIB));
	for (uintptr_t i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, work, (void *)i);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	NEED(cuMemcpyDtoH(host, results, sizeof(host)));
	printf("%u %u %u %u\n", host[0], host[1], host[2], host[3]);
	/* the per-thread stream can be captured, the legacy one cannot */
	TRY(cuStreamBeginCapture(none, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	TRY(cuMemsetD32Async(results, 77, 4, none));
	TRY(cuStreamEndCapture(none, &graph));
	TRY(cuGraphInstantiate(&exec, graph, 0));
	TRY(cuGraphLaunch(exec, none));
	TRY(cuStreamSynchronize(none));
	NEED(cuMemcpyDtoH(host, results, sizeof(host)));
	printf("%u %u %u %u\n", host[0], host[1], host[2], host[3]);
	TRY(cuMemFree(results));
	return 0;
}
