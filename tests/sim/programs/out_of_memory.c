/* tests/sim/programs/out_of_memory.c
 * A device is filled to the last piece, refuses, and takes again what was freed: at once, as frameworks retry. */
#include "program.h"

#define MOST 64

int main(void)
{
	CUdeviceptr held[MOST], extra = 5, pool;
	CUmemGenericAllocationHandle handle;
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
	size_t count = 0, free_bytes, total;
	CUresult result = CUDA_SUCCESS;
	CUstream stream;

	program_start();
	while (count < MOST && (result = cuMemAlloc(&held[count], 100 * MIB)) == CUDA_SUCCESS)
		count++;
	printf("%zu pieces, then %d\n", count, (int)result);
	NEED(cuMemGetInfo(&free_bytes, &total));
	printf("left: %zu\n", free_bytes);
	TRY(cuMemAlloc(&extra, 100 * MIB));
	SHOW(extra == 5);
	TRY(cuMemAlloc(&extra, 24 * MIB));
	TRY(cuMemAlloc(&held[count], 2 * MIB));
	TRY(cuMemAlloc(&held[count], 4096));
	TRY(cuMemCreate(&handle, 2 * MIB, &prop, 0));
	TRY(cuMemFree(extra));
	for (int i = 0; i < 20; i++) {
		NEED(cuMemFree(held[i % count]));
		result = cuMemAlloc(&held[i % count], 100 * MIB);
		if (result != CUDA_SUCCESS)
			printf("retry %d -> %d\n", i, (int)result);
	}
	/* room made by one kind serves every other kind */
	NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	NEED(cuMemFree(held[0]));
	TRY(cuMemAllocAsync(&pool, 100 * MIB, stream));
	NEED(cuMemFreeAsync(pool, stream));
	NEED(cuStreamSynchronize(stream));
	TRY(cuMemCreate(&handle, 100 * MIB, &prop, 0));
	NEED(cuMemRelease(handle));
	TRY(cuMemAlloc(&held[0], 100 * MIB));
	/* two of a hundred for one of two hundred */
	NEED(cuMemFree(held[1]));
	NEED(cuMemFree(held[3]));
	TRY(cuMemAlloc(&held[1], 200 * MIB));
	held[3] = 0;
	program_show_bytes("untouched neighbour", held[2], 4096);
	for (size_t i = 0; i < count; i++)
		NEED(cuMemFree(held[i]));
	NEED(cuMemGetInfo(&free_bytes, &total));
	printf("all back: %zu\n", total - free_bytes);
	TRY(cuMemAlloc(&extra, total));
	TRY(cuMemFree(extra));
	return 0;
}
