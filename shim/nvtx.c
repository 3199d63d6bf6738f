/* shim/nvtx.c
 * How copies of NVTX come to call Sublet: each loads the library that NVTX_INJECTION64_PATH names, which `sublet run` sets to
 * this one, and calls what is exported here. The weak pointer of the headers is no other way in: it is hidden in each object, and
 * their search among what is preloaded is switched off. What the variable named before (a profiler) is in SUBLET_NVTX_NEXT: it is
 * loaded, given the same table, and called by whatever Sublet puts in front of it.
 *
 * Called once by each copy, at any time, by several threads at once, perhaps by one within another; no lock. */
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "shim/nvtx_abi.h"
#include "shim/nvtx_ranges.h"
#include "shim/shim.h"

#define NEXT_VARIABLE "SUBLET_NVTX_NEXT"

enum { ENTRIES_MAX = 64 }; /* of a module's table; NVTX 3 has 16 at most */

SUBLET_EXPORT int InitializeInjectionNvtx2(nvtx_get_table *get);
SUBLET_EXPORT int InitializeInjectionNvtxExtension(struct nvtx_extension *extension);

/* A copy's tables, and what was in them. */
struct module {
	nvtx_table table;
	unsigned count;
	nvtx_function *before[ENTRIES_MAX];
};

struct copy {
	struct module modules[NVTX_MODULES + 1];
};

/* ---- what is behind Sublet ---- */

/* A function of the library that stands behind Sublet, NULL where there is none. @must: that it lacks it is worth a line. */
static nvtx_function *find_next(const char *name, nvtx_function *own, bool must)
{
	static int said;
	const char *path = getenv(NEXT_VARIABLE);
	nvtx_function *function;
	void *handle;

	/* what users of NVTX write for "no tool at all" (nvtxInit.h) */
	if (!path || !*path || strcmp(path, "./.") == 0)
		return NULL;
	handle = dlopen(path, RTLD_LAZY); /* as NVTX does, for each copy */
	function = handle ? (nvtx_function *)shim_real_dlsym(handle, name) : NULL;
	if (function == own) /* this very library, by another path */
		return NULL;
	if (!function && must && !__atomic_exchange_n(&said, 1, __ATOMIC_RELAXED)) {
		log_init();
		log_say(LOG_SHIM, LOG_WARN, WHOSE_NONE, "'%.200s', which " NVTX_PATH_VARIABLE " named, %s: it sees no NVTX ranges", path,
			handle ? "is no NVTX tool" : "cannot be loaded");
	}
	return function;
}

/* ---- a copy of NVTX ---- */

/* False: not a copy as it is known here, and nothing is to be changed in it. */
static bool read_copy(nvtx_get_table *get, struct copy *ret)
{
	const struct nvtx_callbacks *callbacks = get ? get(NVTX_TABLE_CALLBACKS) : NULL;

	if (!callbacks || callbacks->struct_size < sizeof(*callbacks) || !callbacks->get_module_table)
		return false;
	for (int m = 1; m <= NVTX_MODULES; m++) {
		struct module *module = &ret->modules[m];

		/* an older one lacks the later modules */
		module->table = NULL;
		module->count = 0;
		if (!callbacks->get_module_table(m, &module->table, &module->count) || !module->table)
			module->count = 0;
		if (module->count > ENTRIES_MAX)
			module->count = ENTRIES_MAX;
		for (unsigned i = 0; i < module->count; i++)
			module->before[i] = module->table[i] ? *module->table[i] : NULL;
	}
	return ret->modules[NVTX_MODULE_CORE].count > 0;
}

static const struct {
	int module;
	unsigned number;
} places[NVTX_FUNCTION_COUNT] = {
#define FUNCTION(name, module, number, returns, params) [NVTX_##name] = {NVTX_MODULE_##module, number},
	NVTX_FUNCTIONS(FUNCTION)
#undef FUNCTION
};

/* Where the copy keeps the pointer of @function, NULL where it has no such function; *ret_before is what was in it. */
static nvtx_function **find_place(const struct copy *copy, int function, nvtx_function **ret_before)
{
	const struct module *module = &copy->modules[places[function].module];
	const unsigned number = places[function].number;

	*ret_before = number < module->count ? module->before[number] : NULL;
	return number < module->count ? module->table[number] : NULL;
}

static bool is_attached(const struct copy *copy)
{
	nvtx_function *before;

	return find_place(copy, NVTX_RangePushA, &before) && nvtx_ranges_has(before);
}

/* What a tool that has refused has left behind; NVTX would have cleared it. */
static void put_back(const struct copy *copy)
{
	for (int m = 1; m <= NVTX_MODULES; m++)
		for (unsigned i = 0; i < copy->modules[m].count; i++)
			if (copy->modules[m].table[i] && *copy->modules[m].table[i] != copy->modules[m].before[i])
				__atomic_store_n(copy->modules[m].table[i], copy->modules[m].before[i], __ATOMIC_RELEASE);
}

/* Put Sublet's functions in front of what the tool has put there. */
static bool attach(const struct copy *copy)
{
	struct nvtx_next next;
	nvtx_function *before, *const *functions;

	for (int f = 0; f < NVTX_FUNCTION_COUNT; f++) {
		nvtx_function **place = find_place(copy, f, &before), *now = place ? *place : NULL;

		next.functions[f] = now != before ? now : NULL;
	}
	functions = nvtx_ranges_for(&next);
	if (!functions) {
		log_limited(LOG_SHIM, LOG_WARN, WHOSE_FRAMEWORK,
			"too many NVTX tools are in this process: no trigger sees the ranges of some libraries");
		return false;
	}
	for (int f = 0; f < NVTX_FUNCTION_COUNT; f++) {
		nvtx_function **place = find_place(copy, f, &before);

		/* domains of a tool are told apart as they are */
		if (place && !((f == NVTX_DomainCreateA || f == NVTX_DomainCreateW) && next.functions[f]))
			__atomic_store_n(place, functions[f], __ATOMIC_RELEASE);
	}
	return true;
}

static void say_version(nvtx_get_table *get)
{
	const struct nvtx_version *version = get(NVTX_TABLE_VERSION);

	if (version && version->struct_size >= sizeof(*version) && version->set_version_of_tool)
		version->set_version_of_tool(NVTX_NEWEST);
}

/* Returns 1, or 0 for "none of the functions of this copy are to be called". */
int InitializeInjectionNvtx2(nvtx_get_table *get)
{
	const int error_before = errno;
	nvtx_initialize *next = (nvtx_initialize *)find_next("InitializeInjectionNvtx2", (nvtx_function *)InitializeInjectionNvtx2, true);
	struct copy copy;
	int taken;

	if (!shim_in_session() || !read_copy(get, &copy)) {
		taken = next ? next(get) : 0;
	} else if (is_attached(&copy)) {
		taken = 1;
	} else {
		taken = next ? next(get) : 0;
		if (!taken) {
			put_back(&copy);
			say_version(get);
		}
		if (attach(&copy)) {
			taken = 1;
			triggers_expect(&shim_triggers);
		}
	}
	errno = error_before;
	return taken;
}

/* Functions of extensions are the tool's alone. Where it has none of the kind the program is told that a tool is there all the same
 * (nvtxDomainIsEnabled is then 1): else some make no ranges at all, as Python's package nvtx does. */
int InitializeInjectionNvtxExtension(struct nvtx_extension *extension)
{
	const int error_before = errno;
	nvtx_initialize_extension *next = (nvtx_initialize_extension *)find_next(
		"InitializeInjectionNvtxExtension", (nvtx_function *)InitializeInjectionNvtxExtension, false);
	int taken = next ? next(extension) : 0;

	if (!taken && shim_in_session() && extension && extension->struct_size >= sizeof(*extension)) {
		/* what one that has refused may have left */
		for (size_t s = 0; s < extension->segments_count; s++)
			memset(extension->segments[s].slots, 0, extension->segments[s].count * sizeof(intptr_t));
		taken = 1;
	}
	errno = error_before;
	return taken;
}
