/* tests/sim/programs/wrong_frees.c
 * Frees that are mistakes get the driver's error, and what they might have hit is still there. */
#include "program.h"

static CUmemGenericAllocationHandle handle, retained;
static const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
	.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
static const CUmemAccessDesc read_only = {{.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}, CU_MEM_ACCESS_FLAGS_PROT_READ};

static void mistakes(const char *what, size_t bytes)
{
	CUdeviceptr a, b, twice;

	printf("-- %s\n", what);
	NEED(cuMemAlloc(&a, bytes));
	NEED(cuMemAlloc(&b, bytes));
	NEED(cuMemsetD8(a, 0xaa, bytes));
	NEED(cuMemsetD8(b, 0xbb, bytes));
	TRY(cuMemFree(a + 1));
	TRY(cuMemFree(a + bytes / 2));
	TRY(cuMemFree(a + bytes - 1));
	TRY(cuMemFreeAsync(a + 512, NULL));
	TRY(cuMemFreeHost((void *)(uintptr_t)a));
	TRY(cuMemHostUnregister((void *)(uintptr_t)a));
	TRY(cuMemUnmap(a, bytes));
	TRY(cuMemUnmap(a, 2 * MIB));
	TRY(cuMemSetAccess(a, 2 * MIB, &read_only, 1));
	TRY(cuMemMap(a, 2 * MIB, 0, handle, 0));
	TRY(cuMemAddressFree(a, bytes));
	program_show_bytes("still there", a, bytes);
	TRY(cuMemFree(a));
	TRY(cuMemFree(a));
	TRY(cuMemFree(a + bytes / 2));
	TRY(cuMemFreeAsync(a, NULL));
	TRY(cuMemUnmap(a, 2 * MIB));
	TRY(cuMemSetAccess(a, 2 * MIB, &read_only, 1));
	TRY(cuMemMap(a, 2 * MIB, 0, handle, 0));
	TRY(cuMemRetainAllocationHandle(&retained, (void *)(uintptr_t)a));
	TRY(cuCtxSynchronize());
	program_show_bytes("the other", b, bytes);
	twice = b;
	TRY(cuMemFreeAsync(b, NULL));
	TRY(cuCtxSynchronize());
	TRY(cuMemFree(twice));
}

int main(void)
{
	static char host[64];
	void *pinned;
	CUdeviceptr a;

	program_start();
	NEED(cuMemCreate(&handle, 2 * MIB, &prop, 0));
	mistakes("large", 6 * MIB);
	mistakes("odd", 3 * MIB + 1111);
	mistakes("small", 64 * KIB);
	printf("-- never device memory\n");
	TRY(cuMemFree((CUdeviceptr)(uintptr_t)host));
	TRY(cuMemFree(1));
	TRY(cuMemFree(~(CUdeviceptr)0));
	TRY(cuMemFree((CUdeviceptr)1 << 46));
	NEED(cuMemHostAlloc(&pinned, 4 * MIB, 0));
	TRY(cuMemFree((CUdeviceptr)(uintptr_t)pinned));
	TRY(cuMemFreeHost(pinned));
	TRY(cuMemFreeHost(pinned));
	printf("-- without a context\n");
	NEED(cuMemAlloc(&a, 4 * MIB));
	NEED(cuCtxSetCurrent(NULL));
	TRY(cuMemAlloc(&a, 4 * MIB));
	TRY(cuMemAlloc(&a, 4));
	TRY(cuMemFree(0));
	return 0;
}
