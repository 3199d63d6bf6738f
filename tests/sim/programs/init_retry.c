/* tests/sim/programs/init_retry.c
 * The first start fails, as it does while a device is being reset or another container has it; calls made too early fail, and
 * the next start is as good as the first would have been. */
#include "program.h"

int main(void)
{
	CUdeviceptr at = 3;
	CUcontext context;
	size_t free_bytes, total;
	int version = 0;

	program_begin();
	TRY(cuMemAlloc(&at, 4 * MIB));
	TRY(cuMemFree(at));
	TRY(cuMemGetInfo(&free_bytes, &total));
	TRY(cuMemGetAddressRange(NULL, NULL, 4096));
	TRY(cuDriverGetVersion(&version));
	TRY(cuInit(0));
	TRY(cuDevicePrimaryCtxRetain(&context, 0));
	TRY(cuMemAlloc(&at, 4 * MIB));
	SHOW(at == 3);
	TRY(cuInit(1));
	TRY(cuInit(0));
	TRY(cuInit(0));
	TRY(cuDevicePrimaryCtxRetain(&context, 0));
	TRY(cuCtxSetCurrent(context));
	TRY(cuMemAlloc(&at, 4 * MIB));
	TRY(cuMemsetD8(at, 1, 4 * MIB));
	TRY(cuMemFree(at));
	return 0;
}
