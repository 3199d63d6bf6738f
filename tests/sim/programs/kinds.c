/* tests/sim/programs/kinds.c
 * Memory of every other kind beside plain one: pools, managed, pitched, pinned, registered, and frees that cross the kinds. */
#include "program.h"

static CUstream stream;

static void pools(void)
{
	CUdeviceptr at[4], from_pool, plain;
	CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
	CUmemoryPool pool = NULL, normal = NULL;

	printf("== pools\n");
	for (int i = 0; i < 4; i++) {
		TRY(cuMemAllocAsync(&at[i], 3 * MIB, stream));
		TRY(cuMemsetD8Async(at[i], (unsigned char)(i + 1), 3 * MIB, stream));
	}
	TRY(cuStreamSynchronize(stream));
	program_show_bytes("fourth", at[3], 3 * MIB);
	TRY(cuMemFreeAsync(at[0], stream));
	TRY(cuMemFreeAsync(at[1], NULL));
	TRY(cuMemFree(at[2]));
	TRY(cuMemFreeAsync(at[3] + 512, stream));
	TRY(cuMemFreeAsync(at[3], stream));
	TRY(cuStreamSynchronize(stream));
	TRY(cuMemFreeAsync(at[3], stream));
	TRY(cuMemAllocAsync(&at[0], 0, stream));
	if (TRY(cuMemPoolCreate(&pool, &props)) == CUDA_SUCCESS) {
		if (TRY(cuMemAllocFromPoolAsync(&from_pool, 4 * MIB, pool, stream)) == CUDA_SUCCESS)
			TRY(cuMemFreeAsync(from_pool, stream));
		TRY(cuStreamSynchronize(stream));
		TRY(cuMemPoolTrimTo(pool, 0));
		TRY(cuMemPoolDestroy(pool));
	}
	if (TRY(cuDeviceGetDefaultMemPool(&normal, 0)) == CUDA_SUCCESS)
		TRY(cuMemPoolTrimTo(normal, 0));
	/* plain memory may be given to the stream-ordered free */
	NEED(cuMemAlloc(&plain, 4 * MIB));
	NEED(cuMemsetD8Async(plain, 9, 4 * MIB, stream));
	TRY(cuMemFreeAsync(plain, stream));
	TRY(cuStreamSynchronize(stream));
	TRY(cuMemFree(plain));
}

static void unified(void)
{
	CUdeviceptr at;
	unsigned managed = 0;

	printf("== managed\n");
	TRY(cuMemAllocManaged(&at, 4 * MIB, CU_MEM_ATTACH_GLOBAL));
	memset((void *)(uintptr_t)at, 0x3c, 4 * MIB);
	TRY(cuMemsetD8(at + 4 * MIB - 1, 0x3d, 1));
	program_show_bytes("managed", at, 4 * MIB);
	TRY(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, at));
	printf("managed %u\n", managed);
	TRY(cuStreamAttachMemAsync(stream, at, 0, CU_MEM_ATTACH_SINGLE));
	TRY(cuMemFree(at));
	TRY(cuMemFree(at));
}

static void pitched(void)
{
	CUdeviceptr at;
	size_t pitch = 0;

	printf("== pitched\n");
	TRY(cuMemAllocPitch(&at, &pitch, 1000, 3000, 4));
	SHOW(pitch >= 1000 && pitch % 16 == 0);
	TRY(cuMemsetD8(at, 0x4d, pitch * 3000));
	TRY(cuMemFree(at));
	TRY(cuMemAllocPitch(&at, &pitch, 0, 10, 4));
}

static void pinned(void)
{
	unsigned char *area = aligned_alloc(4096, 2 * MIB), *host;
	CUdeviceptr device, mapped;
	unsigned flags;

	printf("== host\n");
	TRY(cuMemHostAlloc((void **)&host, 2 * MIB, CU_MEMHOSTALLOC_DEVICEMAP));
	TRY(cuMemHostGetDevicePointer(&mapped, host, 0));
	TRY(cuMemHostGetFlags(&flags, host));
	NEED(cuMemAlloc(&device, 2 * MIB));
	memset(host, 0x51, 2 * MIB);
	TRY(cuMemcpyHtoDAsync(device, host, 2 * MIB, stream));
	TRY(cuMemsetD8Async(mapped, 0x52, MIB, stream));
	TRY(cuStreamSynchronize(stream));
	printf("%x %x\n", host[0], host[2 * MIB - 1]);
	program_show_bytes("device", device, 2 * MIB);
	memset(area, 0x53, 2 * MIB);
	TRY(cuMemHostRegister(area, 2 * MIB, 0));
	TRY(cuMemHostRegister(area, 2 * MIB, 0));
	TRY(cuMemcpyDtoHAsync(area, device, 2 * MIB, stream));
	TRY(cuStreamSynchronize(stream));
	printf("%x %x\n", area[0], area[2 * MIB - 1]);
	TRY(cuMemFreeHost(area));
	TRY(cuMemHostUnregister(area));
	TRY(cuMemHostUnregister(area));
	TRY(cuMemHostUnregister(host));
	TRY(cuMemFree(device));
	TRY(cuMemFreeHost(host));
	TRY(cuMemAllocHost((void **)&host, 8192));
	TRY(cuMemFreeHost(host));
	free(area);
}

/* Large memory is left out: legacy handles of it are refused under Sublet (the driver's own answer for VMM memory). */
static void legacy_handles(void)
{
	CUipcMemHandle handle;
	CUdeviceptr at;

	printf("== legacy handles\n");
	NEED(cuMemAlloc(&at, 4096));
	TRY(cuIpcGetMemHandle(&handle, at));
	TRY(cuIpcGetMemHandle(&handle, 0));
	TRY(cuIpcCloseMemHandle(at));
	TRY(cuMemFree(at));
}

int main(void)
{
	size_t free_bytes, total;

	program_start();
	NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	pools();
	unified();
	pitched();
	pinned();
	legacy_handles();
	NEED(cuMemGetInfo(&free_bytes, &total));
	printf("taken %zu\n", total - free_bytes);
	return 0;
}
