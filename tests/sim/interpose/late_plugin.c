/* tests/sim/interpose/late_plugin.c
 * usage: late_plugin PLUGIN
 * A plugin that is opened after the driver and asks for the next definition: in its own scope, where no preload is. */
#include <dlfcn.h>

#include "plugin.h"

int main(int argc, char **argv)
{
	void *plugin = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
	__typeof__(&cuMemAlloc_v2) next;
	CUdeviceptr address = 0;

	if (!plugin) {
		printf("%s\n", dlerror());
		return 1;
	}
	next = (__typeof__(next))PLUGIN(plugin, plugin_lookup)(RTLD_NEXT, "cuMemAlloc_v2");
	if (!next) {
		printf("not found\n");
		return 1;
	}
	WORK();
	SAY(next(&address, WORK_BYTES));
	SAY(cuMemFree_v2(address));
	return 0;
}
