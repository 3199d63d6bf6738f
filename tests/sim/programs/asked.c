/* tests/sim/programs/asked.c (v1|v2) [per-thread]
 * cuGetProcAddress: the four-argument form of CUDA 11.3, or the five-argument one of CUDA 12 with its status; with or
 * without the per-thread default stream. */
#include <dlfcn.h>

#include "reach.h"

typedef CUresult ask_v1(const char *, void **, int, cuuint64_t);
typedef CUresult ask_v2(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);

static ask_v1 *v1;
static ask_v2 *v2;

static void *ask(const char *name, int version, cuuint64_t flags)
{
	CUdriverProcAddressQueryResult status = (CUdriverProcAddressQueryResult)77;
	void *found = (void *)1;
	CUresult result = v2 ? v2(name, &found, version, flags, &status) : v1(name, &found, version, flags);

	printf("%s %d/%llu -> %d, status %d, %s\n", name, version, (unsigned long long)flags, (int)result, (int)status,
		!found ? "nothing" : found == (void *)1 ? "untouched" : "something");
	return result == CUDA_SUCCESS ? found : NULL;
}

static void compare(cuuint64_t flags)
{
	void *old = ask("cuMemAlloc", 2000, flags), *now = ask("cuMemAlloc", 3020, flags);
	void *begin_old = ask("cuStreamBeginCapture", 10000, flags), *begin = ask("cuStreamBeginCapture", 10010, flags);

	SHOW(old != now);
	SHOW(begin != begin_old);
	SHOW(now == ask("cuMemAlloc", 13000, flags));
	SHOW(ask("cuMemFreeAsync", 11020, 0) != ask("cuMemFreeAsync", 11020, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM));
	SHOW(ask("cuMemAlloc", 3020, 0) == ask("cuMemAlloc", 3020, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM));
	SHOW(ask("cuMemAlloc", 3020, 0) == ask("cuMemAlloc", 3020, CU_GET_PROC_ADDRESS_LEGACY_STREAM));
	ask("cuMemAllocAsync", 11010, flags);
	ask("cuNoSuchFunction", 13000, flags);
	ask("cuMemAlloc", 1000, flags);
	ask("", 12000, flags);
}

int main(int argc, char **argv)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);
	cuuint64_t flags = argc > 2 ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM : CU_GET_PROC_ADDRESS_DEFAULT;
	struct reach cu;

	program_begin();
	if (argc < 2 || !driver)
		return 2;
	if (strcmp(argv[1], "v2") == 0)
		v2 = (ask_v2 *)dlsym(driver, "cuGetProcAddress_v2");
	else
		v1 = (ask_v1 *)dlsym(driver, "cuGetProcAddress");
	/* the function asked for itself: each form gives its own */
	SHOW(ask("cuGetProcAddress", 11030, 0) == dlsym(driver, "cuGetProcAddress"));
	SHOW(ask("cuGetProcAddress", 12000, 0) == dlsym(driver, "cuGetProcAddress_v2"));
	compare(flags);
#define REACH(name, symbol, version, params) cu.name##_ = (CUresult(*) params)ask(#name, version, flags);
	REACH_LIST
#undef REACH
	reach_live(&cu);
	return 0;
}
