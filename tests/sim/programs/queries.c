/* tests/sim/programs/queries.c
 * What a program can ask about its memory: range and attributes at the first, a middle and the last byte, behind the end,
 * after the free, of host memory and of nothing; one by one and several at once. */
#include "program.h"

static CUcontext context;

static void attributes(const char *what, CUdeviceptr start, size_t bytes, CUdeviceptr at)
{
	CUdeviceptr base = 0, device_pointer = 0;
	unsigned type = 0, managed = 9, mapped = 9;
	unsigned long long id = 0, id_again = 0;
	CUcontext owner = NULL;
	int ordinal = -1;
	size_t size = 0;

	printf("-- %s, byte %lld\n", what, (long long)(at - start));
	TRY(cuMemGetAddressRange(&base, &size, at));
	printf("   base %s, size %zu\n", base == start ? "right" : "other", size);
	TRY(cuMemGetAddressRange(NULL, &size, at));
	TRY(cuMemGetAddressRange(&base, NULL, at));
	if (TRY(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, at)) == CUDA_SUCCESS)
		SHOW(owner == context);
	if (TRY(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at)) == CUDA_SUCCESS)
		printf("   type %u\n", type);
	if (TRY(cuPointerGetAttribute(&device_pointer, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, at)) == CUDA_SUCCESS)
		SHOW(device_pointer == at);
	if (TRY(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at)) == CUDA_SUCCESS)
		printf("   device %d\n", ordinal);
	if (TRY(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, at)) == CUDA_SUCCESS)
		printf("   managed %u\n", managed);
	if (TRY(cuPointerGetAttribute(&mapped, CU_POINTER_ATTRIBUTE_MAPPED, at)) == CUDA_SUCCESS)
		printf("   mapped %u\n", mapped);
	base = 0;
	if (TRY(cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, at)) == CUDA_SUCCESS)
		SHOW(base == start);
	if (TRY(cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, at)) == CUDA_SUCCESS)
		printf("   size %zu\n", size);
	if (TRY(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, at)) == CUDA_SUCCESS) {
		NEED(cuPointerGetAttribute(&id_again, CU_POINTER_ATTRIBUTE_BUFFER_ID, start));
		SHOW(id == id_again);
	}
	TRY(cuPointerGetAttribute(&type, (CUpointer_attribute)9999, at));
	TRY(cuPointerGetAttribute(&type, (CUpointer_attribute)0, at));
	TRY(cuPointerGetAttribute(NULL, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at));
}

static void several(const char *what, CUdeviceptr start, CUdeviceptr at)
{
	CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_RANGE_SIZE, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
		CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_IS_MANAGED};
	size_t size = 0;
	unsigned type = 0, managed = 0;
	CUdeviceptr base = 0;
	int ordinal = 0;
	void *data[] = {&size, &type, &base, &ordinal, &managed};
	CUresult result = cuPointerGetAttributes(sizeof(which) / sizeof(which[0]), which, data, at);

	printf("-- %s at once -> %d\n", what, (int)result);
	if (result == CUDA_SUCCESS)
		printf("   size %zu, type %u, base %s, device %d, managed %u\n", size, type,
			base == start ? "right" : base ? "other" : "none", ordinal, managed);
}

static void allocation(const char *what, size_t bytes)
{
	CUdeviceptr start;
	unsigned long long before = 0, after = 0;

	NEED(cuMemAlloc(&start, bytes));
	NEED(cuPointerGetAttribute(&before, CU_POINTER_ATTRIBUTE_BUFFER_ID, start));
	attributes(what, start, bytes, start);
	attributes(what, start, bytes, start + bytes / 2);
	attributes(what, start, bytes, start + bytes - 1);
	several(what, start, start + bytes - 1);
	TRY(cuMemFree(start));
	printf("-- %s, freed\n", what);
	TRY(cuMemGetAddressRange(NULL, NULL, start));
	TRY(cuPointerGetAttribute(&after, CU_POINTER_ATTRIBUTE_BUFFER_ID, start));
	TRY(cuPointerGetAttribute(&after, CU_POINTER_ATTRIBUTE_RANGE_SIZE, start));
	several(what, start, start);
	NEED(cuMemAlloc(&start, bytes));
	NEED(cuPointerGetAttribute(&after, CU_POINTER_ATTRIBUTE_BUFFER_ID, start));
	/* who caches registrations by address tells a new allocation by its id */
	SHOW(before != after);
	NEED(cuMemFree(start));
}

int main(void)
{
	static char plain_host[64];
	void *pinned;

	context = program_start();
	allocation("large", 8 * MIB);
	allocation("odd", 5 * MIB + 777);
	allocation("small", 4096);
	NEED(cuMemHostAlloc(&pinned, 4 * MIB, 0));
	several("pinned", (CUdeviceptr)(uintptr_t)pinned, (CUdeviceptr)(uintptr_t)pinned + 5);
	NEED(cuMemFreeHost(pinned));
	several("pageable", 0, (CUdeviceptr)(uintptr_t)plain_host);
	several("null", 0, 0);
	return 0;
}
