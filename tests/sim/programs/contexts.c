/* tests/sim/programs/contexts.c
 * Two devices, several contexts: memory is the device's and the context's that is current; it ends with its context, also when
 * live allocations are left; a primary context is reset, released, taken again. */
#include "program.h"

static size_t taken(CUcontext context)
{
	size_t free_bytes = 0, total = 0;

	NEED(cuCtxPushCurrent(context));
	NEED(cuMemGetInfo(&free_bytes, &total));
	NEED(cuCtxPopCurrent(NULL));
	return (total - free_bytes) / MIB;
}

static void owner(const char *what, CUdeviceptr at, CUcontext wanted)
{
	CUcontext context = NULL;
	int device = -1;
	CUresult result = cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, at);

	if (result == CUDA_SUCCESS)
		NEED(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at));
	printf("%s: attribute -> %d, context %s, device %d\n", what, (int)result, context == wanted ? "right" : "other", device);
}

static void live_allocations_end_with_their_context(CUcontext primary)
{
	CUcontext more;
	CUdeviceptr in_more[3], in_primary;

	printf("== a context with live allocations is destroyed\n");
	NEED(cuMemAlloc(&in_primary, 10 * MIB));
	NEED(cuMemsetD8(in_primary, 0x42, 10 * MIB));
	TRY(cuCtxCreate(&more, NULL, 0, 0));
	for (int i = 0; i < 3; i++)
		NEED(cuMemAlloc(&in_more[i], 20 * MIB));
	owner("in the new one", in_more[0], more);
	owner("in the primary", in_primary, primary);
	NEED(cuMemFree(in_more[1]));
	printf("taken %zu MiB\n", taken(primary));
	TRY(cuCtxDestroy(more));
	TRY(cuCtxSetCurrent(primary));
	printf("taken %zu MiB\n", taken(primary));
	TRY(cuMemFree(in_more[0]));
	TRY(cuMemFree(in_more[1]));
	TRY(cuMemGetAddressRange(NULL, NULL, in_more[2]));
	TRY(cuCtxSetCurrent(more));
	TRY(cuCtxDestroy(more));
	program_show_bytes("of the primary", in_primary, 10 * MIB);
	TRY(cuMemFree(in_primary));
}

static void memory_is_freed_from_another_context(CUcontext primary)
{
	CUcontext more, popped;
	CUdeviceptr at;

	printf("== freed from another context, and without one\n");
	NEED(cuCtxCreate(&more, NULL, 0, 0));
	NEED(cuMemAlloc(&at, 6 * MIB));
	TRY(cuCtxPopCurrent(&popped));
	SHOW(popped == more);
	TRY(cuCtxGetCurrent(&popped));
	SHOW(popped == primary);
	TRY(cuMemFree(at));
	TRY(cuCtxPushCurrent(more));
	NEED(cuMemAlloc(&at, 6 * MIB));
	NEED(cuCtxSetCurrent(NULL));
	TRY(cuMemFree(at));
	NEED(cuCtxSetCurrent(more));
	printf("taken %zu MiB\n", taken(primary));
	TRY(cuCtxDestroy(more));
	NEED(cuCtxSetCurrent(primary));
	printf("taken %zu MiB\n", taken(primary));
}

static void primary_is_reset(void)
{
	CUcontext context, again;
	CUdeviceptr large, small;
	unsigned flags;
	int active;

	printf("== the primary context of device 1 is reset\n");
	NEED(cuDevicePrimaryCtxRetain(&context, 1));
	NEED(cuDevicePrimaryCtxRetain(&again, 1));
	SHOW(context == again);
	NEED(cuCtxSetCurrent(context));
	NEED(cuMemAlloc(&large, 30 * MIB));
	printf("taken %zu MiB\n", taken(context));
	NEED(cuMemAlloc(&small, 4096));
	TRY(cuDevicePrimaryCtxRelease(1));
	owner("after one release", large, context);
	TRY(cuDevicePrimaryCtxReset(1));
	TRY(cuDevicePrimaryCtxGetState(1, &flags, &active));
	printf("active %d\n", active);
	TRY(cuMemFree(large));
	TRY(cuMemAlloc(&large, 4 * MIB));
	NEED(cuDevicePrimaryCtxRetain(&context, 1));
	NEED(cuCtxSetCurrent(context));
	printf("taken %zu MiB\n", taken(context));
	TRY(cuMemFree(large));
	TRY(cuMemFree(small));
	TRY(cuMemAlloc(&large, 30 * MIB));
	NEED(cuMemsetD8(large, 1, 30 * MIB));
	program_show_bytes("again", large, MIB);
	owner("again", large, context);
	TRY(cuDevicePrimaryCtxRelease(1));
	TRY(cuMemFree(large));
}

int main(void)
{
	CUcontext primary, second;
	CUdeviceptr here, there;
	CUdevice device;
	int count;

	program_begin();
	NEED(cuInit(0));
	NEED(cuDeviceGetCount(&count));
	printf("devices %d\n", count);
	NEED(cuDevicePrimaryCtxRetain(&primary, 0));
	NEED(cuDevicePrimaryCtxRetain(&second, 1));
	NEED(cuCtxSetCurrent(primary));
	NEED(cuMemAlloc(&here, 8 * MIB));
	NEED(cuCtxSetCurrent(second));
	NEED(cuCtxGetDevice(&device));
	printf("current device %d\n", device);
	NEED(cuMemAlloc(&there, 12 * MIB));
	owner("here", here, primary);
	owner("there", there, second);
	printf("taken %zu and %zu MiB\n", taken(primary), taken(second));
	TRY(cuMemFree(here));
	NEED(cuCtxSetCurrent(primary));
	TRY(cuMemFree(there));
	printf("taken %zu and %zu MiB\n", taken(primary), taken(second));
	TRY(cuDevicePrimaryCtxRelease(1));
	TRY(cuMemAlloc(&here, 4 * MIB));
	live_allocations_end_with_their_context(primary);
	memory_is_freed_from_another_context(primary);
	primary_is_reset();
	return 0;
}
