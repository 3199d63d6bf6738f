/* tests/sim/programs/copies.c
 * Sets and copies of every kind at the edges of allocations: first byte, last byte, one too many, none; from one allocation
 * into its neighbour; into memory that is gone. An odd size ends inside a page, so what lies behind it is tried far outside
 * only. */
#include "program.h"

static unsigned char host[8192];
static CUdeviceptr a, b;
static const size_t bytes = 6 * MIB;

static void show(const char *what)
{
	printf("-- %s\n", what);
	program_show_bytes("  a", a, bytes);
	program_show_bytes("  b", b, bytes);
}

static void sets(void)
{
	NEED(cuMemsetD8(a, 0, bytes));
	NEED(cuMemsetD8(b, 0, bytes));
	TRY(cuMemsetD8(a, 0x11, 1));
	TRY(cuMemsetD8(a + bytes - 1, 0x12, 1));
	TRY(cuMemsetD8(a + bytes - 1, 0x13, 2));
	TRY(cuMemsetD8(a, 0x14, 0));
	TRY(cuMemsetD16(a + 2, 0x1516, bytes / 2 - 2));
	TRY(cuMemsetD16(a + bytes - 2, 0x17, 2));
	TRY(cuMemsetD32(b, 0x18191a1b, bytes / 4));
	TRY(cuMemsetD32(b + bytes - 4, 0x1c, 2));
	TRY(cuMemsetD8Async(b + 100, 0x1d, 1000, NULL));
	TRY(cuMemsetD16Async(b + 2000, 0x1e1f, 1000, NULL));
	TRY(cuMemsetD32Async(b + bytes - 400, 0x20212223, 100, NULL));
	TRY(cuMemsetD8Async(b, 0x24, bytes + 1, NULL));
	TRY(cuStreamSynchronize(NULL));
	show("sets");
}

static void copies(void)
{
	for (size_t i = 0; i < sizeof(host); i++)
		host[i] = (unsigned char)(i * 7);
	TRY(cuMemcpyHtoD(a, host, sizeof(host)));
	TRY(cuMemcpyHtoD(a + bytes - 100, host, 100));
	TRY(cuMemcpyHtoD(a + bytes - 100, host, 101));
	TRY(cuMemcpyHtoD(a + 1, host, 1));
	TRY(cuMemcpyHtoD(a, host, 0));
	TRY(cuMemcpyDtoD(b, a, bytes));
	TRY(cuMemcpyDtoD(b + 1, a, bytes));
	TRY(cuMemcpyDtoD(b, a + 1, bytes));
	TRY(cuMemcpyDtoD(b + bytes / 2, a, bytes / 2));
	TRY(cuMemcpy(a + 4096, b, 4096));
	TRY(cuMemcpy(a + bytes - 4096, b, 4096));
	TRY(cuMemcpy(a + bytes - 4096, b, 4097));
	memset(host, 0, sizeof(host));
	TRY(cuMemcpyDtoH(host, a + bytes - sizeof(host), sizeof(host)));
	printf("host sum %016llx\n", (unsigned long long)program_sum(host, sizeof(host)));
	TRY(cuMemcpyDtoH(host, a + bytes - sizeof(host) + 1, sizeof(host)));
	show("copies");
}

static void copies_in_streams(void)
{
	CUstream stream;

	NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	TRY(cuMemcpyHtoDAsync(a, host, sizeof(host), stream));
	TRY(cuMemcpyDtoDAsync(b, a, sizeof(host), stream));
	TRY(cuMemcpyAsync(b + bytes - sizeof(host), b, sizeof(host), stream));
	TRY(cuMemcpyDtoHAsync(host, b + bytes - sizeof(host), sizeof(host), stream));
	TRY(cuMemcpyDtoDAsync(b + bytes - 1, a, 2, stream));
	TRY(cuMemcpyHtoDAsync(a + bytes - 1, host, 2, stream));
	TRY(cuStreamSynchronize(stream));
	printf("host sum %016llx\n", (unsigned long long)program_sum(host, sizeof(host)));
	TRY(cuStreamDestroy(stream));
	show("copies in streams");
}

static void blocks(void)
{
	CUDA_MEMCPY2D flat = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = a, .srcPitch = 1024,
		.dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = b, .dstPitch = 2048, .WidthInBytes = 1000, .Height = 1000};
	CUDA_MEMCPY3D deep = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = a, .srcPitch = 512, .srcHeight = 8,
		.dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = b, .dstPitch = 512, .dstHeight = 8, .WidthInBytes = 512,
		.Height = 8, .Depth = 4};

	TRY(cuMemcpy2D(&flat));
	TRY(cuMemcpy2DUnaligned(&flat));
	flat.Height = 4000; /* past the end of b */
	TRY(cuMemcpy2D(&flat));
	TRY(cuMemcpy3D(&deep));
	TRY(cuMemsetD2D8(a, 4096, 0x31, 4096, 100));
	TRY(cuMemsetD2D32(a + 4096, 4096, 0x32, 1, 100));
	TRY(cuMemsetD2D8(b, 4096, 0x33, 4096, 10000));
	show("blocks");
}

/* Whatever lies next to what: a run over the end of one allocation must not reach into another. */
static void neighbours(void)
{
	enum { COUNT = 8 };
	CUdeviceptr row[COUNT];
	unsigned char byte;
	int hit = 0;

	for (int i = 0; i < COUNT; i++) {
		NEED(cuMemAlloc(&row[i], 2 * MIB));
		NEED(cuMemsetD8(row[i], (unsigned char)i, 2 * MIB));
	}
	for (int i = 0; i < COUNT; i++) {
		CUresult over = cuMemsetD8(row[i] + MIB, 0xee, 2 * MIB);
		CUresult across = cuMemcpyDtoD(row[i] + MIB, row[(i + 1) % COUNT], 2 * MIB);

		printf("over the end %d, across %d\n", (int)over, (int)across);
	}
	for (int i = 0; i < COUNT; i++) {
		NEED(cuMemcpyDtoH(&byte, row[i], 1));
		hit += byte != i;
		NEED(cuMemcpyDtoH(&byte, row[i] + 2 * MIB - 1, 1));
		hit += byte != i;
		NEED(cuMemFree(row[i]));
	}
	printf("neighbours hit: %d\n", hit);
}

int main(void)
{
	program_start();
	NEED(cuMemAlloc(&a, bytes));
	NEED(cuMemAlloc(&b, bytes));
	sets();
	copies();
	copies_in_streams();
	blocks();
	neighbours();
	return 0;
}
