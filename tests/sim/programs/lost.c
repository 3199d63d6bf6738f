/* tests/sim/programs/lost.c
 * A kernel touches what is not there: the context is lost, every call about memory says so, and a reset makes all well. */
#include "program.h"

static void calls(CUdeviceptr held, CUdeviceptr other)
{
	size_t free_bytes, total;
	CUdeviceptr at = 0;

	TRY(cuMemAlloc(&at, 4 * MIB));
	TRY(cuMemAlloc(&at, 4096));
	TRY(cuMemAllocAsync(&at, 4 * MIB, NULL));
	TRY(cuMemGetInfo(&free_bytes, &total));
	TRY(cuMemFreeAsync(held, NULL));
	TRY(cuMemFree(held));
	TRY(cuMemFree(other));
	TRY(cuMemsetD8(held, 1, 4096));
	TRY(cuCtxSynchronize());
	TRY(cuStreamSynchronize(NULL));
}

int main(void)
{
	CUcontext context = program_start(), other;
	CUfunction fill = program_kernel("sim_fill32");
	CUdeviceptr nowhere, held, small, again;

	NEED(cuMemAlloc(&held, 4 * MIB));
	NEED(cuMemAlloc(&small, 4096));
	NEED(cuMemAddressReserve(&nowhere, 2 * MIB, 0, 0, 0));
	TRY(program_launch(fill, nowhere, 1, 1, NULL));
	printf("synchronised -> %d\n", (int)cuCtxSynchronize());
	calls(held, small);
	printf("== another context\n");
	NEED(cuDevicePrimaryCtxRetain(&other, 1));
	NEED(cuCtxSetCurrent(other));
	TRY(cuMemAlloc(&again, 4 * MIB));
	TRY(cuMemsetD8(again, 2, 4 * MIB));
	program_show_bytes("there", again, 4 * MIB);
	TRY(cuMemFree(again));
	printf("== after the reset\n");
	TRY(cuDevicePrimaryCtxReset(0));
	NEED(cuDevicePrimaryCtxRetain(&context, 0));
	NEED(cuCtxSetCurrent(context));
	TRY(cuMemFree(held));
	TRY(cuMemAlloc(&held, 4 * MIB));
	TRY(cuMemsetD8(held, 3, 4 * MIB));
	program_show_bytes("here", held, 4 * MIB);
	TRY(cuMemFree(held));
	TRY(cuMemAddressFree(nowhere, 2 * MIB));
	return 0;
}
