/* tests/bench/sim_launch.c
 * A worker (worker.h) over the simulated driver: what one launch of its no-op kernel costs. Every nanosecond of it is
 * processor time, so what Sublet adds to a gated call can be seen without a GPU.
 *
 *   launch N      N x cuLaunchKernel     answer: nanoseconds for all of them
 *   launch_ex N   N x cuLaunchKernelEx   the same */
#include "worker.h"

/* clang-format off */
#define CALLS(X)                                                                                                       \
	X(cuInit) X(cuDeviceGet) X(cuDevicePrimaryCtxRetain) X(cuCtxSetCurrent) X(cuModuleLoadData)                    \
	X(cuModuleGetFunction) X(cuMemAlloc) X(cuStreamCreate) X(cuStreamSynchronize) X(cuLaunchKernel)                \
	X(cuLaunchKernelEx)
/* clang-format on */

DRIVER_TABLE(CALLS)

static CUfunction noop;
static CUstream stream;

static void launch(unsigned long long count, unsigned long long unused)
{
	uint64_t begin;

	(void)unused;
	for (int i = 0; i < 2000; i++)
		CHECK(DRV(cuLaunchKernel)(noop, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
	CHECK(DRV(cuStreamSynchronize)(stream));
	begin = now_ns();
	for (unsigned long long i = 0; i < count; i++)
		CHECK(DRV(cuLaunchKernel)(noop, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
	begin = now_ns() - begin;
	CHECK(DRV(cuStreamSynchronize)(stream));
	printf("%llu\n", (unsigned long long)begin);
}

static void launch_ex(unsigned long long count, unsigned long long unused)
{
	CUlaunchConfig config = {.gridDimX = 1,
		.gridDimY = 1,
		.gridDimZ = 1,
		.blockDimX = 1,
		.blockDimY = 1,
		.blockDimZ = 1,
		.hStream = stream};
	uint64_t begin;

	(void)unused;
	for (int i = 0; i < 2000; i++)
		CHECK(DRV(cuLaunchKernelEx)(&config, noop, NULL, NULL));
	CHECK(DRV(cuStreamSynchronize)(stream));
	begin = now_ns();
	for (unsigned long long i = 0; i < count; i++)
		CHECK(DRV(cuLaunchKernelEx)(&config, noop, NULL, NULL));
	begin = now_ns() - begin;
	CHECK(DRV(cuStreamSynchronize)(stream));
	printf("%llu\n", (unsigned long long)begin);
}

int main(void)
{
	static const struct worker_command commands[] = {{"launch", launch}, {"launch_ex", launch_ex}, {NULL, NULL}};
	CUdevice device;
	CUcontext context;
	CUmodule module;
	CUdeviceptr block;

	resolve_all();
	CHECK(DRV(cuInit)(0));
	CHECK(DRV(cuDeviceGet)(&device, 0));
	CHECK(DRV(cuDevicePrimaryCtxRetain)(&context, device));
	CHECK(DRV(cuCtxSetCurrent)(context));
	CHECK(DRV(cuModuleLoadData)(&module, "sublet-sim:builtin"));
	CHECK(DRV(cuModuleGetFunction)(&noop, module, "sim_noop"));
	CHECK(DRV(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
	CHECK(DRV(cuMemAlloc)(&block, (size_t)8 << 20)); /* so that Sublet has something to manage */
	CHECK(DRV(cuLaunchKernel)(noop, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
	CHECK(DRV(cuStreamSynchronize)(stream));
	stay_on_one_processor();
	return serve(commands);
}
