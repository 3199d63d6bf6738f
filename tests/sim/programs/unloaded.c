/* tests/sim/programs/unloaded.c
 * The driver library is opened, used and closed, twice, and opened twice at once: whatever is unloaded meanwhile, the next use
 * works. */
#include <dlfcn.h>

#include "reach.h"

static void *open_driver(struct reach *cu)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);

	if (!driver)
		exit(99);
#define REACH(name, symbol, version, params) cu->name##_ = (CUresult(*) params)dlsym(driver, symbol);
	REACH_LIST
#undef REACH
	return driver;
}

int main(void)
{
	struct reach cu, again;
	void *first, *second;

	program_begin();
	first = open_driver(&cu);
	printf("dlclose unused -> %d\n", dlclose(first));
	for (int i = 0; i < 2; i++) {
		first = open_driver(&cu);
		second = open_driver(&again);
		SHOW(first == second);
		SHOW(cu.cuMemAlloc_ == again.cuMemAlloc_);
		reach_live(&cu);
		printf("dlclose -> %d\n", dlclose(first));
		reach_live(&again);
		printf("dlclose -> %d\n", dlclose(second));
	}
	return 0;
}
