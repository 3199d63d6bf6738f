/* tests/sim/interpose/deepbind.c
 * usage: deepbind PLUGIN [init_past]
 * A program beside a plugin that was opened with RTLD_DEEPBIND: the plugin's calls go to the driver itself, past every
 * preload. With init_past the plugin calls cuInit for it. Prints what the same calls give; those that differ below Sublet
 * on stderr. */
#include <dlfcn.h>

#include "plugin.h"

int main(int argc, char **argv)
{
	bool init_past = argc > 2;
	void *plugin = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_DEEPBIND) : NULL;
	CUdeviceptr ours, theirs, gone;
	CUcontext primary, extra;
	unsigned char back = 0;

	if (!plugin) {
		printf("%s\n", dlerror());
		return 1;
	}
	SAY(init_past ? PLUGIN(plugin, plugin_init)() : (int)cuInit(0));
	SAY(cuDevicePrimaryCtxRetain(&primary, 0));
	SAY(cuCtxSetCurrent(primary));
	if (!init_past)
		PLUGIN(plugin, plugin_work)();

	/* each frees what the other took */
	SAY(cuMemAlloc_v2(&ours, WORK_BYTES));
	SAY(cuMemsetD8_v2(ours, 5, WORK_BYTES));
	SAY(PLUGIN(plugin, plugin_alloc)(&theirs, WORK_BYTES));
	SAY(cuMemFree_v2(theirs));
	fprintf(stderr, "free of the program's memory by the plugin: %d\n", PLUGIN(plugin, plugin_free)(ours));
	fprintf(stderr, "by the program: %d\n", (int)cuMemFree_v2(ours));

	/* a context with memory of the program in it ends, and only the driver knows */
	SAY(cuCtxCreate_v2(&extra, 0, 0));
	SAY(cuMemAlloc_v2(&gone, WORK_BYTES));
	SAY(cuCtxSetCurrent(primary));
	SAY(cuMemAlloc_v2(&ours, WORK_BYTES));
	SAY(cuMemsetD8_v2(ours, 6, WORK_BYTES));
	SAY(PLUGIN(plugin, plugin_destroy)(extra));
	SAY(cuMemcpyDtoH_v2(&back, ours, 1));
	printf("byte %d\n", back);
	SAY(cuMemFree_v2(ours));
	for (int i = 0; i < 4; i++) {
		SAY(cuMemAlloc_v2(&ours, 2 * WORK_BYTES));
		SAY(cuMemsetD8_v2(ours, 7, 2 * WORK_BYTES));
		SAY(cuMemFree_v2(ours));
	}
	SAY(cuCtxSynchronize());
	return 0;
}
