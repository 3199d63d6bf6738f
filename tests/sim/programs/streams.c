/* tests/sim/programs/streams.c
 * Order of work over streams, events and host functions, with frees in between; the host function sees the bytes. */
#include "program.h"

static CUfunction fill, add;
static unsigned seen_count;
static uint32_t seen[4];
static uint32_t *mirror;

static void CUDA_CB look(void *user)
{
	seen[seen_count++ % 4] = *mirror + (uint32_t)(uintptr_t)user;
}

int main(void)
{
	CUstream first, second;
	CUevent between, unrecorded;
	CUdeviceptr work, other, temporary;
	float milliseconds = -1;
	int least, greatest;

	program_start();
	fill = program_kernel("sim_fill32");
	add = program_kernel("sim_add32");
	NEED(cuMemHostAlloc((void **)&mirror, 4096, 0));
	NEED(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
	TRY(cuCtxGetStreamPriorityRange(&least, &greatest));
	TRY(cuStreamCreateWithPriority(&second, CU_STREAM_NON_BLOCKING, 0));
	NEED(cuEventCreate(&between, CU_EVENT_DISABLE_TIMING));
	NEED(cuEventCreate(&unrecorded, 0));
	TRY(cuEventQuery(unrecorded));
	NEED(cuMemAlloc(&work, 4 * MIB));
	NEED(cuMemAlloc(&other, 4 * MIB));
	for (int round = 0; round < 10; round++) {
		NEED(cuMemAlloc(&temporary, 2 * MIB));
		NEED(program_launch(fill, work, MIB, (uint32_t)round * 1000, first));
		NEED(program_launch(fill, temporary, 2 * MIB / 4, 7, first));
		NEED(cuEventRecord(between, first));
		NEED(cuMemFree(temporary)); /* behind work that uses it */
		NEED(cuStreamWaitEvent(second, between, 0));
		NEED(program_launch(add, work, MIB, 5, second));
		NEED(cuMemcpyDtoDAsync(other, work, 4 * MIB, second));
		NEED(cuMemcpyDtoHAsync(mirror, other + 4 * MIB - 4, 4, second));
		NEED(cuLaunchHostFunc(second, look, (void *)(uintptr_t)round));
		NEED(cuStreamSynchronize(second));
		printf("round %d: %u calls, saw %u\n", round, seen_count, seen[(seen_count - 1) % 4]);
	}
	TRY(cuEventSynchronize(between));
	TRY(cuEventQuery(between));
	TRY(cuStreamQuery(first));
	TRY(cuEventElapsedTime(&milliseconds, between, unrecorded) == CUDA_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN);
	program_show_bytes("work", work, 4 * MIB);
	program_show_bytes("other", other, 4 * MIB);
	TRY(cuStreamDestroy(first));
	TRY(cuStreamDestroy(first));
	TRY(cuStreamQuery(first));
	TRY(cuEventDestroy(between));
	TRY(cuEventDestroy(between));
	TRY(cuMemFree(work));
	TRY(cuMemFree(other));
	TRY(cuStreamDestroy(second));
	TRY(cuMemFreeHost(mirror));
	return 0;
}
