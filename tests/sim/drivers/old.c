/* tests/sim/drivers/old.c
 * A libcuda.so.1 as before CUDA 10: plain memory works, of virtual memory management and stream capture it has no names. With
 * -DEMPTY it is a library of that name and nothing else. No cuda.h: its types would be those of a newer driver. */
#ifndef EMPTY
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT int cuInit(unsigned flags)
{
	return flags ? 1 : 0;
}

EXPORT int cuDriverGetVersion(int *version)
{
	*version = 9020;
	return 0;
}

EXPORT int cuDeviceGetCount(int *count)
{
	*count = 1;
	return 0;
}

EXPORT int cuDeviceGet(int *device, int ordinal)
{
	*device = ordinal;
	return ordinal ? 101 : 0;
}

EXPORT int cuDevicePrimaryCtxRetain(void **context, int device)
{
	static int primary;

	*context = &primary;
	return device;
}

EXPORT int cuDevicePrimaryCtxRelease_v2(int device)
{
	return device;
}

EXPORT int cuCtxSetCurrent(void *context)
{
	return context ? 0 : 201;
}

EXPORT int cuMemAlloc_v2(unsigned long long *address, size_t bytes)
{
	*address = (unsigned long long)malloc(bytes);
	return *address ? 0 : 2;
}

EXPORT int cuMemFree_v2(unsigned long long address)
{
	static unsigned long long last;
	int twice = address == last;

	if (!twice)
		free((void *)address);
	last = address;
	return twice;
}

EXPORT int cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
	*free_bytes = *total = (size_t)1 << 30;
	return 0;
}

EXPORT int cuMemGetAddressRange_v2(unsigned long long *base, size_t *size, unsigned long long address)
{
	(void)base, (void)size, (void)address;
	return 500;
}

EXPORT int cuMemsetD8Async(unsigned long long to, unsigned char value, size_t count, void *stream)
{
	(void)stream;
	memset((void *)to, value, count);
	return 0;
}

EXPORT int cuStreamSynchronize(void *stream)
{
	return stream ? 400 : 0;
}

EXPORT int cuMemcpyDtoH_v2(void *to, unsigned long long from, size_t count)
{
	memcpy(to, (void *)from, count);
	return 0;
}
#endif
