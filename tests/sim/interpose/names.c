/* tests/sim/interpose/names.c
 * usage: names WHAT [PLUGIN]
 * Look-ups that have nothing to do with the driver, or only nearly, printed; then the usual work, so that the process is
 * one in which Sublet serves. Not linked with the driver. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plugin.h"

static void *driver;

static void *from_driver(const char *symbol)
{
	return dlsym(driver, symbol);
}

static void work(void)
{
	struct work_calls calls;

	driver = dlopen("libcuda.so.1", RTLD_NOW);
	if (!driver || work_find(&calls, from_driver) != 0)
		return;
	WORK(calls.);
}

static void yes(const char *what, int is)
{
	printf("%s: %s\n", what, is ? "yes" : "no");
}

static int is_of(const void *address, const char *library)
{
	Dl_info info;

	return address && dladdr(address, &info) && info.dli_fname && strstr(info.dli_fname, library) != NULL;
}

static void next_twice(void)
{
	int (*one)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open");
	int (*two)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open");
	int fd = two ? two("/dev/null", O_RDONLY) : -1;

	yes("same open twice", one && one == two);
	yes("it opens", fd >= 0);
	close(fd);
}

static void chain(void)
{
	int (*step)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "chain_step");
	int (*cu_step)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "cu_chain_step");

	printf("steps %d %d\n", step ? step() : -1, cu_step ? cu_step() : -1);
}

static void cudnn(const char *path)
{
	void *plugin = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
	int (*of_handle)(void) = plugin ? PLUGIN(plugin, cudnnCreate) : NULL;
	int (*of_null)(void) = PLUGIN(NULL, cudnnCreate);

	yes("one cudnnCreate", of_handle && of_handle == of_null);
	printf("it returns %d\n", of_handle ? of_handle() : -1);
}

static void local_plugin(const char *path)
{
	void *plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);

	if (!plugin) {
		printf("%s\n", dlerror());
		return;
	}
	printf("finds itself %d\n", PLUGIN(plugin, plugin_finds_itself)());
	yes("program finds it", dlsym(RTLD_DEFAULT, "plugin_symbol") != NULL);
	/* the driver is in the plugin's own scope, and in nobody else's */
	yes("plugin finds the driver", PLUGIN(plugin, plugin_lookup)(RTLD_DEFAULT, "cuMemAlloc_v2") != NULL);
	yes("plugin finds the driver behind itself", PLUGIN(plugin, plugin_lookup)(RTLD_NEXT, "cuMemAlloc_v2") != NULL);
	yes("program finds the driver", dlsym(RTLD_DEFAULT, "cuMemAlloc_v2") != NULL);
	yes("behind itself", dlsym(RTLD_NEXT, "cuMemAlloc_v2") != NULL);
	PLUGIN(plugin, plugin_work)();
}

/* libpthread.so.0 and libdl.so.2 are empty since glibc 2.34; what they had is found through them all the same. */
static void merged_libraries(void)
{
	void *threads = dlopen("libpthread.so.0", RTLD_NOW), *loading = dlopen("libdl.so.2", RTLD_NOW);

	yes("both there", threads && loading);
	yes("pthread_create", threads && is_of(dlsym(threads, "pthread_create"), "libc.so.6"));
	yes("dlopen", loading && is_of(dlsym(loading, "dlopen"), "libc.so.6"));
}

static void opened_locally(void)
{
	void *handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

	yes("cuInit of the driver", handle && dlsym(handle, "cuInit"));
	dlerror();
	yes("cuInit of everybody", dlsym(RTLD_DEFAULT, "cuInit") != NULL);
	yes("dlerror says so", dlerror() != NULL);
	yes("cuInit behind", dlsym(RTLD_NEXT, "cuInit") != NULL);
}

static void clean_dlerror(void)
{
	void *handle = dlopen("libcuda.so.1", RTLD_NOW);
	const char *error;

	dlerror();
	yes("cuInit", handle && dlsym(handle, "cuInit"));
	error = dlerror();
	printf("dlerror: %s\n", error ? error : "nothing");
	yes("a name that this driver lacks", handle && dlsym(handle, "cuMemcpyBatchAsync_v2"));
	yes("dlerror says so", dlerror() != NULL);
}

static void namespace(void)
{
	void *other = dlmopen(LM_ID_NEWLM, "libcuda.so.1", RTLD_NOW);
	__typeof__(&cuInit) init = other ? (__typeof__(&cuInit))dlsym(other, "cuInit") : NULL;
	__typeof__(&cuMemAlloc_v2) alloc = other ? (__typeof__(&cuMemAlloc_v2))dlsym(other, "cuMemAlloc_v2") : NULL;
	CUdeviceptr address;

	yes("there", init && alloc);
	if (!init || !alloc)
		return;
	SAY(init(0));
	SAY(alloc(&address, WORK_BYTES)); /* no context */
}

static void small_tls(const char *path)
{
	void *plugin = dlopen(path, RTLD_NOW);

	printf("%s\n", plugin ? "opened" : dlerror());
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "", *plugin = argc > 2 ? argv[2] : "";

	if (strcmp(what, "next_twice") == 0)
		next_twice();
	else if (strcmp(what, "chain") == 0)
		chain();
	else if (strcmp(what, "cudnn") == 0)
		cudnn(plugin);
	else if (strcmp(what, "local_plugin") == 0)
		local_plugin(plugin);
	else if (strcmp(what, "merged_libraries") == 0)
		merged_libraries();
	else if (strcmp(what, "opened_locally") == 0)
		opened_locally();
	else if (strcmp(what, "clean_dlerror") == 0)
		clean_dlerror();
	else if (strcmp(what, "namespace") == 0)
		namespace();
	else if (strcmp(what, "small_tls") == 0)
		small_tls(plugin);
	else if (strcmp(what, "children") == 0)
		printf("children %d %d\n", system("/bin/true"), system("exit 3"));
	else
		return 2;
	fflush(stdout);
	work();
	return 0;
}
