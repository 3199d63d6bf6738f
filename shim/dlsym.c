/* shim/dlsym.c
 * The part of dlsym and dlvsym that answers; the assembly files in front decide what comes here. The real driver is asked
 * first, always, and only an answer that is a known function of libcuda is replaced: names that merely begin with "cu"
 * (cudnn, curl) and libraries that merely have such names come out as they went in. */
#include <dlfcn.h>

#include "shim/next.h"
#include "shim/shim.h"

typedef void *dlsym_function(void *handle, const char *name);
typedef void *dlvsym_function(void *handle, const char *name, const char *version);

/* Read by the assembly. */
SUBLET_HIDDEN dlsym_function *shim_next_dlsym;
SUBLET_HIDDEN dlvsym_function *shim_next_dlvsym;

SUBLET_HIDDEN void shim_find_next(void);
SUBLET_HIDDEN void *shim_hidden_handle(const char *name);
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

/* Is @name found in the global scope only because this library exports it? Programs probe for a driver that way. */
static bool only_ours(int id)
{
	return id >= 0 && entries[id].wrapper && !real_address(id);
}

/* For RTLD_DEFAULT and RTLD_NEXT: the handle to ask instead, NULL for "the one that was given". */
void *shim_hidden_handle(const char *name)
{
	return only_ours(entry_by_symbol(name)) ? libc_handle() : NULL;
}

static void *answer(void *address, int id, const char *name)
{
	if (!address)
		return NULL;
	if (address == entries[id].wrapper) {
		/* dlopen(NULL) and the like: the global scope, where this library stands in front of the driver. */
		if (only_ours(id))
			return shim_real_dlsym(libc_handle(), name);
		return address;
	}
	shim_see_driver(address);
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
