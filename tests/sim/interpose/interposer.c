/* tests/sim/interpose/interposer.c
 * Another preload of the kind that Sublet is: its own dlsym answers a few names of the driver with its own functions, which
 * count and call on. The true dlsym it finds with dlvsym and the version that the architecture began with. Compiled also
 * with HOOKS_ONLY: no dlsym of its own, its functions find the next ones with dlsym(RTLD_NEXT). At the end it tells on
 * stderr how often each was called. */
#include <dlfcn.h>
#include <string.h>
#include <unistd.h>

#include "work.h"

#ifdef __aarch64__
#define FIRST_VERSION "GLIBC_2.17"
#else
#define FIRST_VERSION "GLIBC_2.2.5"
#endif

#define HOOKS(X)                                                                                                       \
	X(cuMemAlloc_v2, (CUdeviceptr *address, size_t bytes), (address, bytes))                                       \
	X(cuMemFree_v2, (CUdeviceptr address), (address))                                                              \
	X(cuMemGetInfo_v2, (size_t *free_bytes, size_t *total_bytes), (free_bytes, total_bytes))                       \
	X(cuMemsetD8_v2, (CUdeviceptr address, unsigned char value, size_t bytes), (address, value, bytes))            \
	X(cuGetProcAddress_v2,                                                                                         \
		(const char *name, void **found, int version, cuuint64_t flags, CUdriverProcAddressQueryResult *status), \
		(name, found, version, flags, status))

static struct {
	const char *name;
	unsigned count;
	void *next;
} hooks[] = {
#define X(symbol, params, args) {#symbol, 0, NULL},
	HOOKS(X)
#undef X
};

enum {
#define X(symbol, params, args) HOOK_##symbol,
	HOOKS(X)
#undef X
};

static void *find_next(void *handle, const char *name)
{
#ifdef HOOKS_ONLY
	return dlsym(handle, name);
#else
	static void *(*next)(void *, const char *);

	if (!next)
		next = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", FIRST_VERSION);
	return next ? next(handle, name) : NULL;
#endif
}

#pragma GCC visibility push(default)
#define X(symbol, params, args)                                                                                        \
	CUresult symbol params                                                                                         \
	{                                                                                                              \
		hooks[HOOK_##symbol].count++;                                                                          \
		if (!hooks[HOOK_##symbol].next)                                                                        \
			hooks[HOOK_##symbol].next = find_next(RTLD_NEXT, #symbol);                                     \
		return ((__typeof__(&symbol))hooks[HOOK_##symbol].next)args;                                           \
	}
HOOKS(X)
#undef X

#ifndef HOOKS_ONLY
void *dlsym(void *handle, const char *name)
{
#define X(symbol, params, args)                                                                                        \
	if (strcmp(name, #symbol) == 0) {                                                                              \
		void *next = find_next(handle, name);                                                                  \
                                                                                                                       \
		if (next && next != (void *)symbol)                                                                    \
			hooks[HOOK_##symbol].next = next;                                                              \
		return next ? (void *)symbol : NULL;                                                                   \
	}
	HOOKS(X)
#undef X
	return find_next(handle, name);
}
#endif
#pragma GCC visibility pop

__attribute__((destructor)) static void tell(void)
{
	char line[128];

	for (size_t i = 0; i < sizeof(hooks) / sizeof(hooks[0]); i++) {
		int length = snprintf(line, sizeof(line), "interposer: %s %u\n", hooks[i].name, hooks[i].count);

		if (write(STDERR_FILENO, line, (size_t)length) < 0)
			return;
	}
}
