/* tests/sim/programs/reach.h
 * One short life of a program, through function pointers that were got in one way or another. */
#ifndef REACH_H
#define REACH_H

#include "program.h"

/* name, exported symbol, version that asks cuGetProcAddress for it, parameters */
#define REACH_LIST                                                                                                     \
	REACH(cuInit, "cuInit", 2000, (unsigned))                                                                      \
	REACH(cuDeviceGet, "cuDeviceGet", 2000, (CUdevice *, int))                                                     \
	REACH(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", 7000, (CUcontext *, CUdevice))                     \
	REACH(cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2", 11000, (CUdevice))                            \
	REACH(cuCtxSetCurrent, "cuCtxSetCurrent", 4000, (CUcontext))                                                   \
	REACH(cuMemAlloc, "cuMemAlloc_v2", 3020, (CUdeviceptr *, size_t))                                              \
	REACH(cuMemFree, "cuMemFree_v2", 3020, (CUdeviceptr))                                                          \
	REACH(cuMemGetInfo, "cuMemGetInfo_v2", 3020, (size_t *, size_t *))                                             \
	REACH(cuMemGetAddressRange, "cuMemGetAddressRange_v2", 3020, (CUdeviceptr *, size_t *, CUdeviceptr))           \
	REACH(cuMemsetD8Async, "cuMemsetD8Async", 3020, (CUdeviceptr, unsigned char, size_t, CUstream))                \
	REACH(cuStreamSynchronize, "cuStreamSynchronize", 2000, (CUstream))                                            \
	REACH(cuMemcpyDtoH, "cuMemcpyDtoH_v2", 3020, (void *, CUdeviceptr, size_t))

struct reach {
#define REACH(name, symbol, version, params) CUresult(*name##_) params;
	REACH_LIST
#undef REACH
};

static inline void reach_live(const struct reach *cu)
{
	CUdeviceptr large = 0, larger = 0, small = 0, base = 0;
	size_t free_before, free_between, free_after, total, size = 0;
	CUcontext context;
	CUdevice device;
	unsigned char bytes[3] = {0};

	NEED(cu->cuInit_(0));
	NEED(cu->cuDeviceGet_(&device, 0));
	NEED(cu->cuDevicePrimaryCtxRetain_(&context, device));
	NEED(cu->cuCtxSetCurrent_(context));
	NEED(cu->cuMemGetInfo_(&free_before, &total));
	TRY(cu->cuMemAlloc_(&large, 4 * MIB));
	TRY(cu->cuMemAlloc_(&larger, 8 * MIB));
	NEED(cu->cuMemGetInfo_(&free_between, &total));
	printf("total %zu, taken %zu\n", total, free_before - free_between);
	TRY(cu->cuMemAlloc_(&small, 4096));
	TRY(cu->cuMemGetAddressRange_(&base, &size, large + 12345));
	printf("range: base %s, size %zu\n", base == large ? "right" : "wrong", size);
	TRY(cu->cuMemsetD8Async_(larger, 0x5a, 8 * MIB, NULL));
	TRY(cu->cuMemsetD8Async_(larger + 8 * MIB - 1, 0x5b, 1, NULL));
	TRY(cu->cuStreamSynchronize_(NULL));
	TRY(cu->cuMemcpyDtoH_(bytes, larger + 8 * MIB - sizeof(bytes), sizeof(bytes)));
	printf("last bytes %02x %02x %02x\n", bytes[0], bytes[1], bytes[2]);
	TRY(cu->cuMemFree_(small));
	TRY(cu->cuMemFree_(large));
	TRY(cu->cuMemFree_(larger));
	TRY(cu->cuMemFree_(larger));
	NEED(cu->cuMemGetInfo_(&free_after, &total));
	printf("left over %zu\n", free_before - free_after);
	TRY(cu->cuDevicePrimaryCtxRelease_(device));
}

#endif
