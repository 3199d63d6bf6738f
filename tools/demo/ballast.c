/* tools/demo/ballast.c
 * Takes device memory until only as much is left as the paper's device has, and keeps it while its input is open. */
#include "tools/demo/program.h"

int main(int argc, char **argv)
{
	struct object *left;
	size_t free_bytes, total_bytes;
	CUdeviceptr address;
	struct order order;

	program_open(argc, argv);
	left = program_object("left");
	CHECK(cuMemGetInfo(&free_bytes, &total_bytes));
	if (free_bytes > left->bytes)
		CHECK(cuMemAlloc(&address, free_bytes - left->bytes));
	program_done();
	while (program_next(&order))
		program_done();
	return 0;
}
