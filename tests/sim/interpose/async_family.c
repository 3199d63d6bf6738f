/* tests/sim/interpose/async_family.c
 * Calls that preloads have been found not to know: stream-ordered allocation, the extended launch. */
#include <string.h>

#include "work.h"

int main(void)
{
	uint32_t value = 0x01010101, back[4] = {0};
	CUlaunchAttribute cluster = {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, .value.clusterDim = {1, 1, 1}};
	CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, NULL, &cluster, 1};
	size_t words = WORK_BYTES / sizeof(value);
	void *params[3];
	CUdeviceptr pooled, big;
	CUfunction fill;
	CUmodule module;

	WORK();
	SAY(cuMemAllocAsync(&pooled, 2 * WORK_BYTES, NULL));
	SAY(cuMemAlloc_v2(&big, WORK_BYTES));
	SAY(cuModuleLoadData(&module, "sublet-sim:builtin"));
	SAY(cuModuleGetFunction(&fill, module, "sim_fill32"));
	memcpy(params, (void *[]){&big, &words, &value}, sizeof(params));
	SAY(cuLaunchKernelEx(&config, fill, params, NULL));
	SAY(cuMemcpyDtoH_v2(back, big + WORK_BYTES - sizeof(back), sizeof(back)));
	printf("last word %x\n", back[3]);
	SAY(cuMemFreeAsync(pooled, NULL));
	SAY(cuMemFree_v2(big));
	SAY(cuCtxSynchronize());
	return 0;
}
