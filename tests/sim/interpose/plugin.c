/* tests/sim/interpose/plugin.c
 * A library that is linked with the driver and opened by a program, which decides by its flags whose names it sees. */
#include <dlfcn.h>

#include "plugin.h"

int plugin_symbol(void)
{
	return 11;
}

int cu_plugin_symbol(void)
{
	return 13;
}

/* libcudnn's names begin like the driver's, and some of them look themselves up. */
int cudnnCreate(void)
{
	return dlsym(RTLD_DEFAULT, "cudnnNothing") ? 0 : 17;
}

int plugin_finds_itself(void)
{
	int (*one)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "plugin_symbol");
	int (*two)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "cu_plugin_symbol");

	return (one ? one() : 0) + (two ? two() : 0);
}

void *plugin_lookup(void *handle, const char *symbol)
{
	/* not as the last thing done here: jumped to instead of called, dlsym would take our caller for the asker */
	void *volatile found = dlsym(handle, symbol);

	return found;
}

void plugin_work(void)
{
	WORK();
}

int plugin_init(void)
{
	return (int)cuInit(0);
}

int plugin_alloc(CUdeviceptr *address, size_t bytes)
{
	return (int)cuMemAlloc_v2(address, bytes);
}

int plugin_free(CUdeviceptr address)
{
	return (int)cuMemFree_v2(address);
}

int plugin_destroy(CUcontext context)
{
	return (int)cuCtxDestroy_v2(context);
}
