/* tests/sim/programs/busy_free.c
 * Memory is freed while kernels that write to it are running or queued, and memory of the same size is taken at once: the
 * late writes must not land in it. Kernels in other streams and contexts of the device count too. */
#include "program.h"

#define ROUNDS 6

static void launch_late(CUfunction busy_write, CUdeviceptr to, size_t bytes, uint32_t value, CUstream stream)
{
	size_t words = bytes / 4;
	uint32_t milliseconds = 15;
	void *params[] = {&to, &words, &value, &milliseconds};

	NEED(cuLaunchKernel(busy_write, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
}

/* @kernel is of the context that launches: @elsewhere, or @here when that is NULL. */
static void round_of(CUfunction kernel, CUstream stream, CUcontext elsewhere, CUcontext here)
{
	const size_t bytes = 4 * MIB;
	CUdeviceptr first, second;
	uint32_t ends[2];

	NEED(cuMemAlloc(&first, bytes));
	if (elsewhere)
		NEED(cuCtxPushCurrent(elsewhere));
	launch_late(kernel, first, bytes, 0xdead, stream);
	launch_late(kernel, first, bytes, 0xbeef, stream);
	if (elsewhere)
		NEED(cuCtxPopCurrent(NULL));
	NEED(cuCtxSetCurrent(here));
	NEED(cuMemFree(first));
	NEED(cuMemAlloc(&second, bytes));
	NEED(cuMemsetD32(second, 0x600d, bytes / 4));
	NEED(cuCtxSynchronize());
	if (elsewhere) {
		NEED(cuCtxPushCurrent(elsewhere));
		NEED(cuCtxSynchronize());
		NEED(cuCtxPopCurrent(NULL));
	}
	NEED(cuMemcpyDtoH(&ends[0], second, 4));
	NEED(cuMemcpyDtoH(&ends[1], second + bytes - 4, 4));
	printf("new memory holds %x %x\n", ends[0], ends[1]);
	NEED(cuMemFree(second));
}

int main(void)
{
	CUcontext primary = program_start(), more;
	CUfunction kernel = program_kernel("sim_busy_write");
	CUstream stream;

	NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (int i = 0; i < ROUNDS; i++)
		round_of(kernel, i % 2 ? stream : NULL, NULL, primary);
	NEED(cuCtxCreate(&more, NULL, 0, 0));
	kernel = program_kernel("sim_busy_write");
	NEED(cuCtxSetCurrent(primary));
	for (int i = 0; i < ROUNDS; i++)
		round_of(kernel, NULL, more, primary);
	TRY(cuStreamSynchronize(stream));
	TRY(cuCtxDestroy(more));
	return 0;
}
