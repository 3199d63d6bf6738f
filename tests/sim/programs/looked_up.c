/* tests/sim/programs/looked_up.c
 * dlopen and dlsym of the exported names; the program is not linked with the driver. */
#include <dlfcn.h>

#include "reach.h"

static unsigned missing_count;

static void missing(const char *symbol, bool there)
{
	if (!there) {
		printf("the driver has no %s\n", symbol);
		missing_count++;
	}
}

int main(void)
{
	void *driver;
	struct reach cu;

	program_begin();
	/* Programs probe for a driver like this. Only before it is loaded: afterwards the library that stands in front of it
	 * answers for it in the global scope, also where the driver was opened for its opener alone. */
	SHOW(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2") == NULL);
	SHOW(dlerror() != NULL);
	driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!driver) {
		printf("no driver: %s\n", dlerror());
		return 1;
	}
#define REACH(name, symbol, version, params) cu.name##_ = (CUresult(*) params)dlsym(driver, symbol);
	REACH_LIST
#undef REACH
#define REACH(name, symbol, version, params) missing(symbol, cu.name##_ != NULL);
	REACH_LIST
#undef REACH
	if (missing_count)
		return 3;
	SHOW(dlsym(driver, "cuNoSuchFunction") == NULL);
	SHOW(dlsym(driver, "cuMemAlloc_v2") == dlsym(driver, "cuMemAlloc_v2"));
	reach_live(&cu);
	printf("dlclose -> %d\n", dlclose(driver));
	return 0;
}
