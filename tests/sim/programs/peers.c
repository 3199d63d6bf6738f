/* tests/sim/programs/peers.c
 * Two devices that may reach each other's memory, or may not (any more): allocations made before and after the switch. */
#include "program.h"

static CUcontext contexts[2];
static CUdeviceptr early, late;

static void across(const char *what)
{
	CUdeviceptr own;

	NEED(cuCtxSetCurrent(contexts[1]));
	NEED(cuMemAlloc(&own, 4 * MIB));
	printf("-- %s\n", what);
	TRY(cuMemcpyDtoD(own, early, 4 * MIB));
	TRY(cuMemcpyPeer(own, contexts[1], early, contexts[0], 4 * MIB));
	if (late)
		TRY(cuMemcpyDtoD(own, late, 4 * MIB));
	program_show_bytes("copy", own, 4 * MIB);
	NEED(cuMemFree(own));
}

int main(void)
{
	int can = 0;

	program_begin();
	NEED(cuInit(0));
	for (int i = 0; i < 2; i++)
		NEED(cuDevicePrimaryCtxRetain(&contexts[i], i));
	TRY(cuDeviceCanAccessPeer(&can, 1, 0));
	printf("can %d\n", can);
	NEED(cuCtxSetCurrent(contexts[0]));
	NEED(cuMemAlloc(&early, 4 * MIB));
	NEED(cuMemsetD8(early, 0x21, 4 * MIB));
	NEED(cuCtxSetCurrent(contexts[1]));
	TRY(cuCtxEnablePeerAccess(contexts[0], 0));
	TRY(cuCtxEnablePeerAccess(contexts[0], 0));
	TRY(cuCtxEnablePeerAccess(contexts[1], 0));
	TRY(cuCtxEnablePeerAccess(NULL, 0));
	across("enabled");
	NEED(cuCtxSetCurrent(contexts[0]));
	NEED(cuMemAlloc(&late, 4 * MIB));
	NEED(cuMemsetD8(late, 0x22, 4 * MIB));
	across("allocated after it was enabled");
	TRY(cuCtxDisablePeerAccess(contexts[0]));
	TRY(cuCtxDisablePeerAccess(contexts[0]));
	TRY(cuCtxEnablePeerAccess(contexts[0], 0));
	across("enabled again");
	TRY(cuDevicePrimaryCtxReset(0));
	NEED(cuDevicePrimaryCtxRetain(&contexts[0], 0));
	NEED(cuCtxSetCurrent(contexts[1]));
	TRY(cuMemFree(early));
	TRY(cuMemFree(late));
	return 0;
}
