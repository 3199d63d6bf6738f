/* shim/dlsym.c
 * The part of dlsym and dlvsym that answers; the assembly files in front decide what comes here. The real driver is asked
 * first, always, and only an answer that is a known function of libcuda is replaced: names that merely begin with "cu"
 * (cudnn, curl) and libraries that merely have such names come out as they went in. */
#include <dlfcn.h>
#include <link.h>
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
SUBLET_HIDDEN void *shim_pseudo_handle(void *handle, const char *name, const char *version, const void *caller);
SUBLET_HIDDEN void *shim_own_lookup(void *handle, const char *name, const char *version, const void *caller);
SUBLET_HIDDEN void *shim_dlsym(void *handle, const char *name);
SUBLET_HIDDEN void *shim_dlvsym(void *handle, const char *name, const char *version);

void shim_find_next(void)
{
	/* Two threads may do this at once and find the same. dlsym first: the entry of dlvsym calls it too. */
	__atomic_store_n(&shim_next_dlsym, (dlsym_function *)next_definition("dlsym"), __ATOMIC_RELEASE);
	__atomic_store_n(&shim_next_dlvsym, (dlvsym_function *)next_definition("dlvsym"), __ATOMIC_RELEASE);
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

static void *own_handle(void)
{
	static void *handle;
	Dl_info info;

	if (!__atomic_load_n(&handle, __ATOMIC_ACQUIRE) && dladdr(&shim_next_dlsym, &info) != 0)
		__atomic_store_n(&handle, dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD), __ATOMIC_RELEASE);
	return handle;
}

static struct link_map *object_of(const void *address)
{
	void *map = NULL;
	Dl_info info;

	return dladdr1 && dladdr1(address, &info, &map, RTLD_DL_LINKMAP) ? map : NULL;
}

/* Does the object, or a library that it needs, define @name? A plugin opened RTLD_LOCAL finds what it was linked with in
 * a scope that nobody else sees. */
static bool in_scope_of(const struct link_map *map, const char *name)
{
	/* the program itself has no name, and its scope is the global one */
	void *handle = map && *map->l_name ? dlopen(map->l_name, RTLD_LAZY | RTLD_NOLOAD) : NULL;
	bool found = handle && shim_next_dlsym(handle, name);

	if (handle)
		dlclose(handle);
	return found;
}

/* For RTLD_DEFAULT and RTLD_NEXT: the handle to ask instead, NULL for "the one that was given". Programs probe for a driver
 * that way; a name of it that only this library has in the global scope (libcuda is not loaded, or opened RTLD_LOCAL) is
 * to be found by those only who have the driver in a scope of their own. To them, and to what was opened after the driver
 * and asks for the next one, the next dlsym would give the driver's own. RTLD_NEXT asked from here searches what comes
 * after this library. @caller is an address in the object that asks. */
void *shim_pseudo_handle(void *handle, const char *name, const char *version, const void *caller)
{
	int id = entry_by_symbol(name);
	const struct link_map *asker;
	bool everywhere;

	(void)version;
	if (id < 0 || !entries[id].wrapper)
		return NULL;
	everywhere = shim_next_dlsym(RTLD_NEXT, name) != NULL;
	if (everywhere && handle == RTLD_DEFAULT)
		return NULL;
	asker = object_of(caller);
	/* an interposer behind this library stands before the driver, and is to reach it */
	if (everywhere && !shim_comes_after_driver(asker))
		return NULL;
	if (in_scope_of(asker, name))
		return own_handle();
	return everywhere ? NULL : libc_handle();
}

/* dlvsym of "dlsym" itself: glibc's would pass over ours, which has no version, and whoever asked (an interposer in front,
 * with dlvsym(RTLD_NEXT, "dlsym", ...)) would look the driver up behind our back. NULL: not such a question. @caller is an
 * address in the object that asks. */
void *shim_own_lookup(void *handle, const char *name, const char *version, const void *caller)
{
	bool sym = strcmp(name, "dlsym") == 0, vsym = strcmp(name, "dlvsym") == 0;

	if ((!sym && !vsym) || (handle != RTLD_DEFAULT && handle != RTLD_NEXT) ||
		!shim_next_dlvsym(RTLD_DEFAULT, name, version))
		return NULL;
	if (handle == RTLD_NEXT && !next_comes_before_us(object_of(caller)))
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
