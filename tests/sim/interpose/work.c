/* tests/sim/interpose/work.c
 * usage: work HOW
 * A program that opens the driver itself and finds its functions in the way HOW. */
#include <dlfcn.h>
#include <string.h>

#include "work.h"

/* The two versions that glibc gives dlsym: programs built before 2.34 ask for the first, newer ones for the second. */
#ifdef __aarch64__
__asm__(".symver old_dlsym, dlsym@GLIBC_2.17");
#else
__asm__(".symver old_dlsym, dlsym@GLIBC_2.2.5");
#endif
__asm__(".symver new_dlsym, dlsym@GLIBC_2.34");
extern void *old_dlsym(void *handle, const char *name);
extern void *new_dlsym(void *handle, const char *name);

static void *driver;
static __typeof__(&cuGetProcAddress_v2) get_proc;
static __typeof__(&cuGetProcAddress) get_proc_old;

static void *by_old(const char *symbol)
{
	return old_dlsym(driver, symbol);
}

static void *by_new(const char *symbol)
{
	return new_dlsym(driver, symbol);
}

static void *by_default(const char *symbol)
{
	return dlsym(RTLD_DEFAULT, symbol);
}

static void *by_next(const char *symbol)
{
	return dlsym(RTLD_NEXT, symbol);
}

/* The name that cuGetProcAddress knows: without the suffix. */
static const char *base_of(const char *symbol)
{
	static char base[64];
	size_t length = strlen(symbol);

	snprintf(base, sizeof(base), "%s", symbol);
	if (length > 3 && strcmp(symbol + length - 3, "_v2") == 0)
		base[length - 3] = '\0';
	return base;
}

static void *by_proc(const char *symbol)
{
	void *found = NULL;

	return get_proc(base_of(symbol), &found, 12000, 0, NULL) == CUDA_SUCCESS ? found : NULL;
}

static void *by_old_proc(const char *symbol)
{
	void *found = NULL;

	return get_proc_old(base_of(symbol), &found, 11030, 0) == CUDA_SUCCESS ? found : NULL;
}

static int run(void *(*find)(const char *))
{
	struct work_calls calls;

	if (work_find(&calls, find) != 0)
		return 1;
	WORK(calls.);
	return 0;
}

int main(int argc, char **argv)
{
	const char *how = argc == 2 ? argv[1] : "";
	bool everywhere = strcmp(how, "default") == 0 || strcmp(how, "next") == 0;

	driver = dlopen("libcuda.so.1", RTLD_NOW | (everywhere ? RTLD_GLOBAL : RTLD_LOCAL));
	if (!driver) {
		printf("%s\n", dlerror());
		return 1;
	}
	if (strcmp(how, "old") == 0)
		return run(by_old);
	if (strcmp(how, "new") == 0)
		return run(by_new);
	if (strcmp(how, "default") == 0)
		return run(by_default);
	if (strcmp(how, "next") == 0)
		return run(by_next);
	if (strncmp(how, "proc", 4) == 0) {
		get_proc = (__typeof__(get_proc))dlsym(driver, "cuGetProcAddress_v2");
		if (strcmp(how, "proc") == 0)
			return run(by_proc);
		/* cudart asks cuGetProcAddress for itself, in both of its ABIs, and goes on with the answers */
		if (strcmp(how, "proc_of_proc") == 0 && get_proc("cuGetProcAddress", (void **)&get_proc_old, 11030, 0, NULL) ==
							       CUDA_SUCCESS &&
			get_proc_old("cuGetProcAddress", (void **)&get_proc, 12000, 0) == CUDA_SUCCESS)
			return run(by_proc) + run(by_old_proc);
	}
	printf("usage: work old|new|default|next|proc|proc_of_proc\n");
	return 2;
}
