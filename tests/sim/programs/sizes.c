/* tests/sim/programs/sizes.c
 * Allocations of every size that is special to somebody: nothing, one byte, what an allocator may round to, either side of
 * 1 MiB and 2 MiB, odd ones, more than the device has, more than there are addresses. First and last byte of each are written
 * and read. */
#include "program.h"

static void one(size_t bytes)
{
	CUdeviceptr at = (CUdeviceptr)77, base = 0;
	size_t size = 0;
	unsigned char ends[2] = {0};
	CUresult result = cuMemAlloc(&at, bytes);

	printf("alloc %zu -> %d\n", bytes, (int)result);
	if (result != CUDA_SUCCESS) {
		printf("  pointer left alone: %s\n", at == 77 ? "yes" : "no");
		return;
	}
	NEED(cuMemsetD8(at, 1, 1));
	NEED(cuMemsetD8(at + bytes - 1, 2, 1));
	NEED(cuMemcpyDtoH(&ends[0], at, 1));
	NEED(cuMemcpyDtoH(&ends[1], at + bytes - 1, 1));
	NEED(cuMemGetAddressRange(&base, &size, at + bytes - 1));
	printf("  aligned %s, ends %d %d, base %s, size %zu\n", at % 512 ? "no" : "yes", ends[0], ends[1],
		base == at ? "right" : "wrong", size);
	TRY(cuMemFree(at));
}

int main(void)
{
	static const size_t sizes[] = {0, 1, 511, 512, 513, 4095, 4096, 65536, MIB - 1, MIB, MIB + 1, 2 * MIB - 1, 2 * MIB,
		2 * MIB + 1, 3 * MIB, 20 * MIB, 64 * MIB + 12345, 600 * MIB, 1024 * MIB, 1024 * MIB + 1, (size_t)1 << 40,
		(size_t)1 << 62, SIZE_MAX};

	program_start();
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		one(sizes[i]);
	TRY(cuMemAlloc(NULL, 4 * MIB));
	TRY(cuMemAlloc(NULL, 4));
	TRY(cuMemFree(0));
	return 0;
}
