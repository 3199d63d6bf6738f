/* tests/sim/programs/own_vmm.c
 * A program that maps its memory itself, beside plain allocations: reserve, create, map in pieces, set access, remap, read
 * back, the mistakes of each step, and everything back. */
#include "program.h"

static const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
	.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
	.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
static const CUmemAccessDesc both_ways = {{.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

int main(void)
{
	CUmemGenericAllocationHandle piece[3], retained;
	CUmemAllocationProp seen;
	CUdeviceptr range, plain, base;
	size_t granularity = 0, size, free_before, free_after, total;
	unsigned long long flags;
	const size_t step = 4 * MIB;

	program_start();
	NEED(cuMemGetInfo(&free_before, &total));
	NEED(cuMemAlloc(&plain, 8 * MIB));
	NEED(cuMemsetD8(plain, 0x77, 8 * MIB));
	TRY(cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	TRY(cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
	printf("granularity %zu\n", granularity);
	TRY(cuMemAddressReserve(&range, 8 * step, 0, 0, 0));
	for (int i = 0; i < 3; i++)
		TRY(cuMemCreate(&piece[i], step, &prop, 0));
	TRY(cuMemCreate(&retained, step + 1, &prop, 0));
	TRY(cuMemMap(range, step, 0, piece[0], 0));
	TRY(cuMemMap(range + step, step, 0, piece[1], 0));
	TRY(cuMemMap(range + step, step, 0, piece[2], 0));
	TRY(cuMemMap(range + 2 * step, step, 2 * MIB, piece[2], 0));
	TRY(cuMemMap(range + 2 * step, 2 * MIB, 0, piece[2], 0));
	TRY(cuMemsetD8(range, 1, 1));
	TRY(cuMemSetAccess(range, 2 * step, &both_ways, 1));
	TRY(cuMemSetAccess(range, 3 * step, &both_ways, 1));
	TRY(cuMemGetAccess(&flags, &both_ways.location, range));
	TRY(cuMemsetD32(range, 0x41424344, 2 * step / 4));
	TRY(cuMemcpyDtoD(range + step, plain, 4 * MIB));
	program_show_bytes("mapped", range, 2 * step);
	TRY(cuMemGetAddressRange(&base, &size, range + step + 5));
	TRY(cuMemRetainAllocationHandle(&retained, (void *)(uintptr_t)(range + 5)));
	SHOW(retained == piece[0]);
	TRY(cuMemGetAllocationPropertiesFromHandle(&seen, piece[0]));
	printf("type %d, device %d, handles %d\n", (int)seen.type, seen.location.id, (int)seen.requestedHandleTypes);
	TRY(cuMemRelease(retained));
	TRY(cuMemRelease(piece[0]));
	/* the mapping keeps the memory */
	program_show_bytes("released", range, step);
	TRY(cuMemUnmap(range, step / 2));
	TRY(cuMemUnmap(range, 2 * step));
	TRY(cuMemsetD8(range, 1, 1));
	/* another address, the same bytes */
	TRY(cuMemMap(range + 5 * step, step, 0, piece[1], 0));
	TRY(cuMemSetAccess(range + 5 * step, step, &both_ways, 1));
	program_show_bytes("moved", range + 5 * step, step);
	TRY(cuMemFree(range + 5 * step));
	TRY(cuMemAddressFree(range, step));
	TRY(cuMemUnmap(range + 5 * step, step));
	TRY(cuMemRelease(piece[1]));
	TRY(cuMemRelease(piece[2]));
	TRY(cuMemAddressFree(range, 8 * step));
	program_show_bytes("plain", plain, 8 * MIB);
	TRY(cuMemFree(plain));
	NEED(cuMemGetInfo(&free_after, &total));
	printf("left over %zu\n", free_before - free_after);
	return 0;
}
