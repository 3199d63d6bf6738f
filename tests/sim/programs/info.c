/* tests/sim/programs/info.c
 * Free memory as frameworks read it: before and after, at once, the sum adds up, also right behind frees and while work is
 * under way. */
#include "program.h"

static size_t taken(void)
{
	size_t free_bytes = 1, total = 0;

	NEED(cuMemGetInfo(&free_bytes, &total));
	if (free_bytes > total)
		printf("more free than there is\n");
	return total - free_bytes;
}

int main(void)
{
	CUdeviceptr a, b, c[16];
	size_t base, total = 0, device_total = 0, free_bytes;
	CUfunction busy;
	uint32_t milliseconds = 100;
	void *params[] = {&milliseconds};

	program_start();
	NEED(cuMemGetInfo(&free_bytes, &total));
	NEED(cuDeviceTotalMem(&device_total, 0));
	SHOW(total == device_total);
	base = taken();
	printf("at the start: %zu\n", base);
	NEED(cuMemAlloc(&a, 100 * MIB));
	printf("one: %zu MiB\n", (taken() - base) / MIB);
	NEED(cuMemAlloc(&b, 30 * MIB));
	printf("two: %zu MiB\n", (taken() - base) / MIB);
	NEED(cuMemFree(a));
	printf("one gone: %zu MiB\n", (taken() - base) / MIB);
	NEED(cuMemFree(b));
	printf("both gone: %zu\n", taken() - base);
	for (int round = 0; round < 20; round++) {
		for (int i = 0; i < 16; i++)
			NEED(cuMemAlloc(&c[i], 10 * MIB));
		if (taken() - base != 160 * MIB)
			printf("round %d: %zu taken\n", round, taken() - base);
		for (int i = 0; i < 16; i++) {
			NEED(cuMemFree(c[i]));
			if (taken() - base != (size_t)(15 - i) * 10 * MIB)
				printf("round %d, freed %d: %zu taken\n", round, i + 1, taken() - base);
		}
	}
	busy = program_kernel("sim_busy");
	NEED(cuMemAlloc(&a, 100 * MIB));
	NEED(cuLaunchKernel(busy, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	NEED(cuMemFree(a));
	printf("freed behind a kernel: %zu\n", taken() - base);
	TRY(cuMemGetInfo(&free_bytes, NULL));
	TRY(cuMemGetInfo(NULL, &total));
	TRY(cuCtxSetCurrent(NULL));
	TRY(cuMemGetInfo(&free_bytes, &total));
	return 0;
}
