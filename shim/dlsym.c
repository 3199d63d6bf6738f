/* shim/dlsym.c
 * The part of dlsym and dlvsym that answers; the assembly files in front decide what comes here. The real driver is asked
 * first, always, and only an answer that is a known function of libcuda is replaced: names that merely begin with "cu"
 * (cudnn, curl) and libraries that merely have such names come out as they went in. */
#include <dlfcn.h>
#include <string.h>

#include "shim/next.h"
#include "shim/shim.h"

/* Weak: musl has none. */
extern int dladdr1(const void *address, Dl_info *info, void **extra, int flags) __attribute__((weak));

typedef void *dlsym_function(void *handle, const char *name);
typedef void *dlvsym_function(void *handle, const char *name, const char *version);

/* Read by the assembly, and by shim_find_next before it has run. */
SUBLET_HIDDEN dlsym_function *shim_next_dlsym;
SUBLET_HIDDEN dlvsym_function *shim_next_dlvsym;

SUBLET_HIDDEN void shim_find_next(void);
SUBLET_HIDDEN void *shim_hidden_handle(const char *name);
SUBLET_HIDDEN void *shim_own_lookup(void *handle, const char *name, const char *version, const void *caller);
SUBLET_HIDDEN void *shim_dlsym(void *handle, const char *name);
SUBLET_HIDDEN void *shim_dlvsym(void *handle, const char *name, const char *version);

void shim_find_next(void)
{
	/* Two threads may do this at once and find the same. */
	__atomic_store_n(&shim_next_dlvsym, (dlvsym_function *)next_definition("dlvsym"), __ATOMIC_RELEASE);
	__atomic_store_n(&shim_next_dlsym, (dlsym_function *)next_definition("dlsym"), __ATOMIC_RELEASE);
}

void *shim_real_dlsym(void *handle, const char *name)
{
	if (!shim_next_dlsym)
		shim_find_next();
	return shim_next_dlsym ? shim_next_dlsym(handle, name) : NULL;
}

/* A handle of a library that has no cu* name: asking it gives NULL and sets dlerror as a failed look-up does. */
static void *libc_handle(void)
{
	static void *handle;

	if (!__atomic_load_n(&handle, __ATOMIC_ACQUIRE))
		__atomic_store_n(&handle, dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD), __ATOMIC_RELEASE);
	return handle;
}

/* For RTLD_DEFAULT and RTLD_NEXT: the handle to ask instead, NULL for "the one that was given". Programs probe for a driver
 * that way; a name of it that only this library has in the global scope (libcuda is not loaded, or opened RTLD_LOCAL) is
 * not to be found. RTLD_NEXT asked from here searches what comes after this library. */
void *shim_hidden_handle(const char *name)
{
	int id = entry_by_symbol(name);

	if (id < 0 || !entries[id].wrapper || shim_next_dlsym(RTLD_NEXT, name))
		return NULL;
	return libc_handle();
}

/* dlvsym of "dlsym" itself: glibc's would pass over ours, which has no version, and whoever asked (an interposer in front,
 * with dlvsym(RTLD_NEXT, "dlsym", ...)) would look the driver up behind our back. NULL: not such a question. @caller is an
 * address in the object that asks. */
void *shim_own_lookup(void *handle, const char *name, const char *version, const void *caller)
{
	bool sym = strcmp(name, "dlsym") == 0, vsym = strcmp(name, "dlvsym") == 0;
	void *asker = NULL;
	Dl_info info;

	if ((!sym && !vsym) || (handle != RTLD_DEFAULT && handle != RTLD_NEXT) ||
		!shim_next_dlvsym(RTLD_DEFAULT, name, version))
		return NULL;
	if (handle == RTLD_NEXT &&
		(!dladdr1 || !dladdr1(caller, &info, &asker, RTLD_DL_LINKMAP) || !next_comes_before_us(asker)))
		return NULL;
	return sym ? (void *)dlsym : (void *)dlvsym;
}

static void *answer(void *address, int id, const char *name)
{
	if (!address)
		return NULL;
	if (address == entries[id].wrapper) {
		/* dlopen(NULL) and the like: the global scope, where this library stands in front of the driver. Or an interposer
		 * behind us has bound the name to us. */
		if (!shim_driver_loaded())
			return shim_real_dlsym(libc_handle(), name);
		return address;
	}
	return shim_answer(address, id, name, NULL, NULL);
}

void *shim_dlsym(void *handle, const char *name)
{
	int id = entry_by_symbol(name);
	void *address = shim_next_dlsym(handle, name);

	/* Asked again, because what the loader was asked meanwhile has taken the place of this failure in dlerror. */
	if (!address && id >= 0 && shim_say_no_driver())
		address = shim_next_dlsym(handle, name);
	return id < 0 ? address : answer(address, id, name);
}

void *shim_dlvsym(void *handle, const char *name, const char *version)
{
	int id = entry_by_symbol(name);
	void *address = shim_next_dlvsym(handle, name, version);

	return id < 0 ? address : answer(address, id, name);
}
