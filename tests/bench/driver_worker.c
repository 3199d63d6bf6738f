/* tests/bench/driver_worker.c
 * A worker (worker.h) on a real GPU.
 *
 *   launch N            N launches of an empty kernel; answer: nanoseconds until the last call returned
 *   pairs BYTES N       N x (cuMemAlloc, cuMemFree); answer: total ns, then N alloc times, then N free times
 *   free_beside BYTES MS  cuMemFree of a block that a kernel keeps writing for MS ms, a new block taken and written
 * meanwhile; answer: key=value words (see free_beside below) */
#include "worker.h"

#include "kernels_ptx.h"

/* clang-format off */
#define CALLS(X)                                                                                                       \
	X(cuInit) X(cuDeviceGet) X(cuDevicePrimaryCtxRetain) X(cuCtxSetCurrent) X(cuCtxSynchronize)                    \
	X(cuModuleLoadData) X(cuModuleGetFunction) X(cuMemAlloc) X(cuMemFree) X(cuMemGetInfo) X(cuMemsetD8)            \
	X(cuMemcpyDtoH) X(cuStreamCreate) X(cuStreamSynchronize) X(cuStreamQuery) X(cuLaunchKernel)
/* clang-format on */

DRIVER_TABLE(CALLS)

enum { PAIRS_MAX = 4096 };

static CUfunction null_kernel, fill_words, check_words, hold_words;
static CUstream stream, busy;
static CUdeviceptr cells; /* 4 words of 8 bytes */

static void launch(unsigned long long count, unsigned long long unused)
{
	uint64_t begin;

	(void)unused;
	for (int i = 0; i < 500; i++)
		CHECK(DRV(cuLaunchKernel)(null_kernel, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL));
	CHECK(DRV(cuStreamSynchronize)(stream));
	begin = now_ns();
	for (unsigned long long i = 0; i < count; i++)
		CHECK(DRV(cuLaunchKernel)(null_kernel, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL));
	begin = now_ns() - begin;
	CHECK(DRV(cuStreamSynchronize)(stream));
	printf("%llu\n", (unsigned long long)begin);
}

static void pairs(unsigned long long bytes, unsigned long long count)
{
	static uint64_t alloc_ns[PAIRS_MAX], free_ns[PAIRS_MAX];
	uint64_t begin, t0, t1, t2;
	CUdeviceptr at;

	if (count > PAIRS_MAX)
		count = PAIRS_MAX;
	begin = now_ns();
	for (unsigned long long i = 0; i < count; i++) {
		t0 = now_ns();
		CHECK(DRV(cuMemAlloc)(&at, (size_t)bytes));
		t1 = now_ns();
		CHECK(DRV(cuMemFree)(at));
		t2 = now_ns();
		alloc_ns[i] = t1 - t0;
		free_ns[i] = t2 - t1;
	}
	printf("%llu", (unsigned long long)(now_ns() - begin));
	for (unsigned long long i = 0; i < count; i++)
		printf(" %llu", (unsigned long long)alloc_ns[i]);
	for (unsigned long long i = 0; i < count; i++)
		printf(" %llu", (unsigned long long)free_ns[i]);
	printf("\n");
}

/* free_ns     the cuMemFree
 * alloc_ns    the cuMemAlloc of the new block after it
 * rose        bytes by which free memory rose across the free
 * busy_after_free, busy_after_fill  did the kernel still run then?
 * foreign     words of the old block that somebody else wrote while the kernel had it
 * rounds      times the kernel wrote the old block
 * spoiled     words of the new block that are not what was written there
 * kernel_ns   launch to end of the kernel */
static void free_beside(unsigned long long bytes, unsigned long long busy_ms)
{
	unsigned long long words = bytes / 4, busy_ns = busy_ms * 1000000ull, result[4] = {0};
	CUdeviceptr old_block, new_block, result_at = cells, spoiled_at = cells + 16;
	unsigned seed = 3, new_seed = 77;
	void *hold_params[] = {&old_block, &words, &busy_ns, &seed, &result_at};
	void *fill_params[] = {&new_block, &words, &new_seed};
	void *check_params[] = {&new_block, &words, &new_seed, &spoiled_at};
	size_t free_before, free_after, total;
	uint64_t begin, t0, t1, t2, t3;
	int busy_after_free, busy_after_fill;

	CHECK(DRV(cuMemsetD8)(cells, 0, 32));
	CHECK(DRV(cuMemAlloc)(&old_block, (size_t)bytes));
	CHECK(DRV(cuCtxSynchronize)());
	CHECK(DRV(cuMemGetInfo)(&free_before, &total));
	begin = now_ns();
	CHECK(DRV(cuLaunchKernel)(hold_words, 32, 1, 1, 256, 1, 1, 0, busy, hold_params, NULL));
	t0 = now_ns();
	CHECK(DRV(cuMemFree)(old_block));
	t1 = now_ns();
	busy_after_free = DRV(cuStreamQuery)(busy) == CUDA_ERROR_NOT_READY;
	CHECK(DRV(cuMemGetInfo)(&free_after, &total));
	t2 = now_ns();
	CHECK(DRV(cuMemAlloc)(&new_block, (size_t)bytes));
	t3 = now_ns();
	CHECK(DRV(cuLaunchKernel)(fill_words, 64, 1, 1, 256, 1, 1, 0, stream, fill_params, NULL));
	CHECK(DRV(cuStreamSynchronize)(stream));
	busy_after_fill = DRV(cuStreamQuery)(busy) == CUDA_ERROR_NOT_READY;
	CHECK(DRV(cuStreamSynchronize)(busy));
	begin = now_ns() - begin;
	CHECK(DRV(cuLaunchKernel)(check_words, 64, 1, 1, 256, 1, 1, 0, stream, check_params, NULL));
	CHECK(DRV(cuStreamSynchronize)(stream));
	CHECK(DRV(cuMemcpyDtoH)(result, cells, 32));
	CHECK(DRV(cuMemFree)(new_block));
	CHECK(DRV(cuCtxSynchronize)());
	printf("free_ns=%llu alloc_ns=%llu rose=%lld busy_after_free=%d busy_after_fill=%d foreign=%llu rounds=%llu "
	       "spoiled=%llu "
	       "kernel_ns=%llu\n",
		(unsigned long long)(t1 - t0), (unsigned long long)(t3 - t2),
		(long long)free_after - (long long)free_before, busy_after_free, busy_after_fill, result[0], result[1],
		result[2], (unsigned long long)begin);
}

int main(void)
{
	static const struct worker_command commands[] = {
		{"launch", launch}, {"pairs", pairs}, {"free_beside", free_beside}, {NULL, NULL}};
	unsigned long long words = 1024, none[1] = {0};
	unsigned seed = 1;
	CUdevice device;
	CUcontext context;
	CUmodule module;
	CUdeviceptr block;
	void *fill_params[] = {&block, &words, &seed};
	void *check_params[] = {&block, &words, &seed, &cells};
	void *hold_params[] = {&block, &words, none, &seed, &cells};

	resolve_all();
	CHECK(DRV(cuInit)(0));
	CHECK(DRV(cuDeviceGet)(&device, 0));
	CHECK(DRV(cuDevicePrimaryCtxRetain)(&context, device));
	CHECK(DRV(cuCtxSetCurrent)(context));
	CHECK(DRV(cuModuleLoadData)(&module, kernels_ptx));
	CHECK(DRV(cuModuleGetFunction)(&null_kernel, module, "null_kernel"));
	CHECK(DRV(cuModuleGetFunction)(&fill_words, module, "fill_words"));
	CHECK(DRV(cuModuleGetFunction)(&check_words, module, "check_words"));
	CHECK(DRV(cuModuleGetFunction)(&hold_words, module, "hold_words"));
	CHECK(DRV(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
	CHECK(DRV(cuStreamCreate)(&busy, CU_STREAM_NON_BLOCKING));
	CHECK(DRV(cuMemAlloc)(&cells, 32));
	CHECK(DRV(cuMemAlloc)(&block, (size_t)8 << 20)); /* so that Sublet has something to manage */
	/* every kernel once: loading one is slow, and waits for the device */
	CHECK(DRV(cuLaunchKernel)(null_kernel, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL));
	CHECK(DRV(cuLaunchKernel)(fill_words, 1, 1, 1, 256, 1, 1, 0, stream, fill_params, NULL));
	CHECK(DRV(cuLaunchKernel)(check_words, 1, 1, 1, 256, 1, 1, 0, stream, check_params, NULL));
	CHECK(DRV(cuLaunchKernel)(hold_words, 1, 1, 1, 256, 1, 1, 0, busy, hold_params, NULL));
	CHECK(DRV(cuCtxSynchronize)());
	stay_on_one_processor();
	return serve(commands);
}
