/* tests/bench/residency_worker.c
 * A worker (worker.h) of the parts "residency" (moves.py), "handover" and "barrier": who has memory that somebody else moves; or,
 * without Sublet, makes the driver's own calls and plain copies that this is held against, and says what it sees of the
 * device's memory.
 *
 *   take BYTES N         N blocks more of BYTES, each filled with a pattern of its own; answer: N
 *   check BYTES 0        the blocks of BYTES are compared with what was written; answer: words compared, words that differ
 *   pin BYTES N          pinned memory for N blocks of BYTES, once; answer: ns it took
 *   copies BYTES PIECE   all blocks of BYTES out to the pinned memory and in again, PIECE bytes a copy; answer: ns out, ns in
 *   out PIECE AT, in PIECE AT   what `copies` does, one way, begun when the monotonic clock shows AT ns, so that two processes begin
 *                        together; answer: the ns it shows at the begin and at the end
 *   own BYTES EXTENT     the driver's own calls for BYTES in extents, with the properties that Sublet's have: exportable, and good for
 *                        GPUDirect RDMA where the device can. Answer: ns of create and map of each and one set-access of all; ns of
 *                        unmap and release; ns in once more, with a set-access for each extent; ns in and out without RDMA
 *   used 0 0             answer: bytes of the device that are not free
 *
 *   -DON_SIM   for the simulated driver: the two kernels are functions here */
#include "worker.h"

/* clang-format off */
#define CALLS(X)                                                                                                       \
	X(cuInit) X(cuDeviceGet) X(cuDevicePrimaryCtxRetain) X(cuCtxSetCurrent) X(cuModuleLoadData)                    \
	X(cuModuleGetFunction) X(cuMemAlloc) X(cuMemHostAlloc) X(cuMemsetD8) X(cuMemGetInfo) X(cuMemcpyDtoH)           \
	X(cuMemcpyDtoHAsync) X(cuMemcpyHtoDAsync) X(cuStreamCreate) X(cuStreamSynchronize) X(cuLaunchKernel)           \
	X(cuMemCreate) X(cuMemRelease) X(cuMemAddressReserve) X(cuMemAddressFree) X(cuMemMap) X(cuMemUnmap)            \
	X(cuMemSetAccess) X(cuDeviceGetAttribute)
/* clang-format on */

DRIVER_TABLE(CALLS)

#ifdef ON_SIM
#include "tools/sim/sim.h"

static const char image[] = "sublet-sim:self";

/* As in tests/gpu/kernels.cu. */
static uint32_t mix(uint64_t index, uint32_t seed)
{
	uint64_t x = index + 0x9e3779b97f4a7c15ull * (seed + 1ull);

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return (uint32_t)(x ^ (x >> 31));
}

static void fill_words(const struct sim_launch *launch, void **params)
{
	uint32_t *words = *(uint32_t **)params[0];

	(void)launch;
	for (uint64_t i = 0; i < *(uint64_t *)params[1]; i++)
		words[i] = mix(i, *(uint32_t *)params[2]);
}
SIM_KERNEL(fill_words, 8, 8, 4);

static void check_words(const struct sim_launch *launch, void **params)
{
	const uint32_t *words = *(uint32_t **)params[0];

	(void)launch;
	for (uint64_t i = 0; i < *(uint64_t *)params[1]; i++)
		**(uint64_t **)params[3] += words[i] != mix(i, *(uint32_t *)params[2]);
}
SIM_KERNEL(check_words, 8, 8, 4, 8);
#else
#include "kernels_ptx.h"
#define image kernels_ptx
#endif

enum { BLOCKS_MAX = 1024, EXTENTS_MAX = 4096 };

static struct block {
	CUdeviceptr at;
	unsigned long long bytes;
	void *pinned;
} blocks[BLOCKS_MAX];
static unsigned long long count;
static CUfunction fill, compare;
static CUstream stream;
static unsigned long long rest_ms; /* before each of `own` */
static CUdeviceptr spoiled; /* a count of words */

static void refuse(const char *why)
{
	fprintf(stderr, "residency_worker: %s\n", why);
	exit(2);
}

/* The pattern of a block is that of its number. */
static void launch(CUfunction function, unsigned long long number)
{
	unsigned long long words = blocks[number].bytes / 4;
	unsigned seed = 1 + (unsigned)number;
	void *params[] = {&blocks[number].at, &words, &seed, &spoiled};

	CHECK(DRV(cuLaunchKernel)(function, 512, 1, 1, 256, 1, 1, 0, stream, params, NULL));
}

static void take(unsigned long long bytes, unsigned long long wanted)
{
	if (count + wanted > BLOCKS_MAX)
		refuse("too many blocks");
	for (unsigned long long i = 0; i < wanted; i++, count++) {
		blocks[count].bytes = bytes;
		CHECK(DRV(cuMemAlloc)(&blocks[count].at, (size_t)bytes));
		launch(fill, count);
	}
	CHECK(DRV(cuStreamSynchronize)(stream));
	printf("%llu\n", wanted);
}

static void check(unsigned long long bytes, unsigned long long unused)
{
	unsigned long long compared = 0, differ = 0;

	(void)unused;
	CHECK(DRV(cuMemsetD8)(spoiled, 0, 8));
	for (unsigned long long i = 0; i < count; i++) {
		if (blocks[i].bytes != bytes)
			continue;
		launch(compare, i);
		compared += bytes / 4;
	}
	CHECK(DRV(cuStreamSynchronize)(stream));
	CHECK(DRV(cuMemcpyDtoH)(&differ, spoiled, 8));
	printf("%llu %llu\n", compared, differ);
}

/* One piece of pinned memory for each block, so that as many bytes cross the same host memory as when Sublet moves them. */
static void pin(unsigned long long bytes, unsigned long long wanted)
{
	uint64_t begin = now_ns();

	for (unsigned long long i = 0; i < count && wanted; i++) {
		if (blocks[i].bytes != bytes || blocks[i].pinned)
			continue;
		CHECK(DRV(cuMemHostAlloc)(&blocks[i].pinned, (size_t)bytes, 0));
		wanted--;
	}
	if (wanted)
		refuse("fewer blocks than were to be pinned");
	printf("%llu\n", (unsigned long long)(now_ns() - begin));
}

/* @bytes: 0 for the blocks of any size. */
static uint64_t copy_all(unsigned long long bytes, unsigned long long piece, int out)
{
	uint64_t begin = now_ns();

	if (!piece)
		refuse("copies of 0 bytes");
	for (unsigned long long i = 0; i < count; i++) {
		if ((bytes && blocks[i].bytes != bytes) || !blocks[i].pinned)
			continue;
		for (unsigned long long done = 0; done < blocks[i].bytes; done += piece) {
			unsigned long long part = blocks[i].bytes - done < piece ? blocks[i].bytes - done : piece;
			char *host = (char *)blocks[i].pinned + done;

			if (out)
				CHECK(DRV(cuMemcpyDtoHAsync)(host, blocks[i].at + done, (size_t)part, stream));
			else
				CHECK(DRV(cuMemcpyHtoDAsync)(blocks[i].at + done, host, (size_t)part, stream));
		}
	}
	CHECK(DRV(cuStreamSynchronize)(stream));
	return now_ns() - begin;
}

static void copies(unsigned long long bytes, unsigned long long piece)
{
	uint64_t out, in;

	out = copy_all(bytes, piece, 1);
	in = copy_all(bytes, piece, 0);
	printf("%llu %llu\n", (unsigned long long)out, (unsigned long long)in);
}

static void copy_at(unsigned long long piece, unsigned long long at_ns, int out)
{
	uint64_t begin;

	do
		begin = now_ns();
	while (begin < at_ns);
	copy_all(0, piece, out);
	printf("%llu %llu\n", (unsigned long long)begin, (unsigned long long)now_ns());
}

static void copy_out(unsigned long long piece, unsigned long long at_ns)
{
	copy_at(piece, at_ns, 1);
}

static void copy_in(unsigned long long piece, unsigned long long at_ns)
{
	copy_at(piece, at_ns, 0);
}

static CUmemGenericAllocationHandle handles[EXTENTS_MAX];

static int can_rdma(void)
{
	int can = 0;

	return DRV(cuDeviceGetAttribute)(&can, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, 0) == CUDA_SUCCESS && can;
}

static uint64_t own_in(CUdeviceptr at, unsigned long long extent, unsigned long long extents, int access_each, int rdma)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location.type = CU_MEM_LOCATION_TYPE_DEVICE};
	CUmemAccessDesc access = {.location.type = CU_MEM_LOCATION_TYPE_DEVICE, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	uint64_t begin;

	prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	prop.allocFlags.gpuDirectRDMACapable = rdma && can_rdma();
	begin = now_ns();
	for (unsigned long long i = 0; i < extents; i++) {
		CHECK(DRV(cuMemCreate)(&handles[i], (size_t)extent, &prop, 0));
		CHECK(DRV(cuMemMap)(at + i * extent, (size_t)extent, 0, handles[i], 0));
		if (access_each)
			CHECK(DRV(cuMemSetAccess)(at + i * extent, (size_t)extent, &access, 1));
	}
	if (!access_each)
		CHECK(DRV(cuMemSetAccess)(at, (size_t)(extents * extent), &access, 1));
	return now_ns() - begin;
}

static uint64_t own_out(CUdeviceptr at, unsigned long long extent, unsigned long long extents)
{
	uint64_t begin = now_ns();

	/* One call for all of it, as Sublet unmaps a block, is no slower than one for each. */
	CHECK(DRV(cuMemUnmap)(at, (size_t)(extents * extent)));
	for (unsigned long long i = 0; i < extents; i++)
		CHECK(DRV(cuMemRelease)(handles[i]));
	return now_ns() - begin;
}

static void rest(unsigned long long milliseconds, unsigned long long unused)
{
	(void)unused;
	rest_ms = milliseconds;
	printf("0\n");
}

static void take_rest(void)
{
	const struct timespec time = {(time_t)(rest_ms / 1000), (long)(rest_ms % 1000 * 1000000)};

	nanosleep(&time, NULL);
}

static void own(unsigned long long bytes, unsigned long long extent)
{
	unsigned long long extents = extent ? bytes / extent : 0;
	uint64_t in, out, in_each, in_bare, out_bare;
	CUdeviceptr at;

	if (!extents || extents > EXTENTS_MAX || extents * extent != bytes)
		refuse("no whole number of extents, or too many");
	CHECK(DRV(cuMemAddressReserve)(&at, (size_t)bytes, 0, 0, 0));
	take_rest();
	in = own_in(at, extent, extents, 0, 1);
	take_rest();
	out = own_out(at, extent, extents);
	take_rest();
	in_each = own_in(at, extent, extents, 1, 1);
	own_out(at, extent, extents);
	take_rest();
	in_bare = own_in(at, extent, extents, 0, 0);
	take_rest();
	out_bare = own_out(at, extent, extents);
	CHECK(DRV(cuMemAddressFree)(at, (size_t)bytes));
	printf("%llu %llu %llu %llu %llu\n", (unsigned long long)in, (unsigned long long)out, (unsigned long long)in_each,
		(unsigned long long)in_bare, (unsigned long long)out_bare);
}

static void used(unsigned long long unused, unsigned long long unused_too)
{
	size_t free_bytes, total;

	(void)unused, (void)unused_too;
	CHECK(DRV(cuMemGetInfo)(&free_bytes, &total));
	printf("%llu\n", (unsigned long long)(total - free_bytes));
}

int main(void)
{
	static const struct worker_command commands[] = {{"take", take}, {"check", check}, {"pin", pin}, {"copies", copies},
		{"out", copy_out}, {"in", copy_in},
		{"own", own}, {"rest", rest}, {"used", used}, {NULL, NULL}};
	CUdevice device;
	CUcontext context;
	CUmodule module;

	resolve_all();
	CHECK(DRV(cuInit)(0));
	CHECK(DRV(cuDeviceGet)(&device, 0));
	CHECK(DRV(cuDevicePrimaryCtxRetain)(&context, device));
	CHECK(DRV(cuCtxSetCurrent)(context));
	CHECK(DRV(cuModuleLoadData)(&module, image));
	CHECK(DRV(cuModuleGetFunction)(&fill, module, "fill_words"));
	CHECK(DRV(cuModuleGetFunction)(&compare, module, "check_words"));
	CHECK(DRV(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
	CHECK(DRV(cuMemAlloc)(&spoiled, 8));
	/* Not kept to one processor: Sublet's thread, which does the moving, would inherit that. */
	return serve(commands);
}
