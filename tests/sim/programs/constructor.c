/* tests/sim/programs/constructor.c
 * The driver is started before main and given the last memory back after it, as objects of static life do. */
#include "program.h"

static CUdeviceptr held;

__attribute__((constructor)) static void before(void)
{
	program_start();
	TRY(cuMemAlloc(&held, 6 * MIB));
	TRY(cuMemsetD8(held, 0x81, 6 * MIB));
}

__attribute__((destructor)) static void after(void)
{
	CUdeviceptr more;

	program_show_bytes("after main", held, 6 * MIB);
	TRY(cuMemAlloc(&more, 4 * MIB));
	TRY(cuMemFree(more));
	TRY(cuMemFree(held));
	TRY(cuMemFree(held));
}

int main(void)
{
	CUdeviceptr at;

	TRY(cuMemAlloc(&at, 2 * MIB));
	TRY(cuMemFree(at));
	return 0;
}
