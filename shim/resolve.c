/* shim/resolve.c
 * Finds the process's libcuda, keeps the addresses of its exports, and answers cuGetProcAddress.
 *
 * No lock in here: a look-up may come from a constructor, with the loader's lock held, while another thread waits for that
 * lock inside dlopen. The table is filled aside and published once; who comes second drops his. */
#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "shim/next.h"
#include "shim/shim.h"

#define ADDRESS_PLACES 2048

struct real_table {
	void *real[ENTRY_COUNT]; /* what a wrapper calls: the next one in the chain of interposers, or the driver's own */
	void *own[ENTRY_COUNT];  /* the driver's own */
	unsigned short by_address[ADDRESS_PLACES]; /* id plus one; 0 is empty */
};

static struct real_table *table;
static const struct link_map *driver_map; /* of the libcuda that the table was read from, set before it */

bool is_libcuda(const char *path)
{
	const char *name = path ? strrchr(path, '/') : NULL;

	name = name ? name + 1 : path;
	return name && strncmp(name, "libcuda.so", 10) == 0;
}

static unsigned address_place(const void *address)
{
	uintptr_t value = (uintptr_t)address;

	return (unsigned)((value >> 4) * 2654435761u >> 7) % ADDRESS_PLACES;
}

static bool is_row(const struct real_table *t, int id, const void *address)
{
	return t->real[id] == address || t->own[id] == address;
}

static int by_address(const struct real_table *t, const void *address)
{
	for (unsigned place = address_place(address); t->by_address[place]; place = (place + 1) % ADDRESS_PLACES) {
		if (is_row(t, t->by_address[place] - 1, address))
			return t->by_address[place] - 1;
	}
	return -1;
}

/* Several names of one function: the first stays findable by address, the others by their row. */
static void note_address(struct real_table *t, const void *address, int id)
{
	unsigned place = address_place(address);

	if (by_address(t, address) >= 0)
		return;
	while (t->by_address[place])
		place = (place + 1) % ADDRESS_PLACES;
	t->by_address[place] = (unsigned short)(id + 1);
}

/* @path is loaded: NOLOAD only takes a reference, which also keeps the addresses valid for good. Another link namespace
 * (dlmopen) has its own copy and is not found here; its programs keep the driver's pointers.
 *
 * What the driver exports is read from its tables; only for those names is the chain of interposers asked, so that none of
 * the look-ups fails and leaves its text in dlerror. An interposer behind us may answer with our own wrapper, to which
 * the loader has bound its name for a function of its own: then that function is next. */
static void load_table(const char *path)
{
	struct real_table *fresh, *expected = NULL;
	struct link_map *map = NULL;
	void *handle = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
	int found = 0;

	if (!handle || dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0)
		return;
	fresh = calloc(1, sizeof(*fresh));
	if (!fresh)
		return;
	for (int id = 0; id < ENTRY_COUNT; id++) {
		void *own = definition_in(map, entries[id].symbol), *chained;

		if (!own)
			continue;
		chained = shim_real_dlsym(handle, entries[id].symbol);
		if (chained && chained == entries[id].wrapper)
			chained = next_definition(entries[id].symbol);
		fresh->own[id] = own;
		note_address(fresh, own, id);
		fresh->real[id] = chained ? chained : own;
		note_address(fresh, fresh->real[id], id);
		found++;
	}
	if (fresh->real[ENTRY_cuInit])
		__atomic_store_n(&driver_map, map, __ATOMIC_RELAXED);
	if (!fresh->real[ENTRY_cuInit] ||
		!__atomic_compare_exchange_n(&table, &expected, fresh, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
		free(fresh);
		return;
	}
	__atomic_store_n(&shim_hot.real_addresses, fresh->real, __ATOMIC_RELEASE);
	log_init();
	log_say(LOG_SHIM, LOG_DEBUG, WHOSE_NONE, "driver library '%s', %d of %d known entry points", path, found,
		(int)ENTRY_COUNT);
}

#define PATH_BYTES 512

static int find_loaded(struct dl_phdr_info *info, size_t size, void *arg)
{
	size_t length = info->dlpi_name ? strlen(info->dlpi_name) : 0;

	(void)size;
	if (!is_libcuda(info->dlpi_name) || length >= PATH_BYTES)
		return 0;
	memcpy(arg, info->dlpi_name, length + 1);
	return 1;
}

static struct real_table *current_table(void)
{
	struct real_table *t = __atomic_load_n(&table, __ATOMIC_ACQUIRE);
	char path[PATH_BYTES];

	if (SUBLET_LIKELY(t != NULL))
		return t;
	/* Linked directly: nobody asked for a symbol, but the library is there. The search ends before dlopen is called,
	 * which takes the lock that the search holds. */
	if (shim_depth < SHIM_LOADING && dl_iterate_phdr(find_loaded, path) == 1) {
		shim_depth += SHIM_LOADING;
		load_table(path);
		shim_depth -= SHIM_LOADING;
	}
	return __atomic_load_n(&table, __ATOMIC_ACQUIRE);
}

void *real_address_slow(int id)
{
	struct real_table *t = current_table();

	return t ? t->real[id] : NULL;
}

static bool is_first(int *said)
{
	return __atomic_exchange_n(said, 1, __ATOMIC_RELAXED) == 0;
}

bool shim_say_no_driver(void)
{
	static int said;
	char path[PATH_BYTES];

	/* While the table is being filled, its look-ups may come back here through an interposer. */
	if (__atomic_load_n(&table, __ATOMIC_ACQUIRE) || __atomic_load_n(&said, __ATOMIC_RELAXED) || shim_depth >= SHIM_LOADING ||
		!shim_in_session())
		return false;
	/* Loaded and without a table: no cuInit in it. */
	if (current_table() || dl_iterate_phdr(find_loaded, path) != 1 || !is_first(&said))
		return true;
	log_init();
	log_say(LOG_SHIM, LOG_WARN, WHOSE_DRIVER,
		"off in this process: '%s' is no driver, it has no cuInit (check LD_LIBRARY_PATH for stubs)", path);
	return true;
}

void *own_address(int id)
{
	struct real_table *t = current_table();

	return t ? t->own[id] : NULL;
}

CUresult shim_no_driver(void)
{
	(void)shim_say_no_driver();
	/* What a missing or too old libcuda means in the driver's own terms. */
	return __atomic_load_n(&table, __ATOMIC_ACQUIRE) ? CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND
						       : CUDA_ERROR_SHARED_OBJECT_INIT_FAILED;
}

bool shim_driver_loaded(void)
{
	return current_table() != NULL;
}

bool shim_comes_after_driver(const struct link_map *map)
{
	return shim_driver_loaded() && next_comes_after(map, __atomic_load_n(&driver_map, __ATOMIC_RELAXED));
}

/* Look-ups come before the start, so they are counted here and copied into the page when there is one. */
enum lookup {
	LOOKUP_MAPPED,
	LOOKUP_BY_NAME,
	LOOKUP_UNKNOWN,
	LOOKUP_COUNT
};

static uint64_t lookups[LOOKUP_COUNT];

static void count(enum lookup kind)
{
	__atomic_fetch_add(&lookups[kind], 1, __ATOMIC_RELAXED);
	if (__atomic_load_n(&shim_hot.state, __ATOMIC_ACQUIRE) == SHIM_ACTIVE)
		shim_publish_lookups(shim_hot.lifecycle.stats);
}

void shim_publish_lookups(struct stats_page *page)
{
	__atomic_store_n(&page->lookups_mapped, __atomic_load_n(&lookups[LOOKUP_MAPPED], __ATOMIC_RELAXED), __ATOMIC_RELAXED);
	__atomic_store_n(&page->lookups_by_name, __atomic_load_n(&lookups[LOOKUP_BY_NAME], __ATOMIC_RELAXED), __ATOMIC_RELAXED);
	__atomic_store_n(&page->lookups_unknown, __atomic_load_n(&lookups[LOOKUP_UNKNOWN], __ATOMIC_RELAXED), __ATOMIC_RELAXED);
}

void *shim_answer(void *address, int candidate, const char *name, bool (*ask_again)(void *, void *), void *arg)
{
	struct real_table *t = address ? current_table() : NULL;
	int id = candidate;

	if (!t)
		return address;
	/* The row that was asked for first: several exports may be one function, and only the row tells the ABI. */
	if (id < 0 || !is_row(t, id, address))
		id = by_address(t, address);
	if (id >= 0) {
		if (!entries[id].wrapper)
			return address;
		count(LOOKUP_MAPPED);
		return entries[id].wrapper;
	}
	for (int i = 0; i < ENTRY_COUNT; i++) {
		if (entries[i].wrapper == address) /* a driver that binds to this library's exports: already ours */
			return address;
	}
	/* An address that is not an export. If its ABI is known, the row's wrapper serves it through the export of that row. */
	if (ask_again && candidate >= 0 && t->real[candidate] && ask_again(arg, address)) {
		if (!entries[candidate].wrapper)
			return address;
		count(LOOKUP_BY_NAME);
		log_say(LOG_SHIM, LOG_DEBUG, WHOSE_NONE, "'%s' resolved to an unknown address; answered by name as %s", name,
			entries[candidate].symbol);
		return entries[candidate].wrapper;
	}
	if (ask_again) {
		count(LOOKUP_UNKNOWN);
		log_say(LOG_SHIM, LOG_DEBUG, WHOSE_NONE, "'%s' is newer than the list of CUDA %d.%d; handed out untouched", name,
			ENTRIES_CUDA_VERSION / 1000, ENTRIES_CUDA_VERSION % 1000 / 10);
	}
	return address;
}

struct request {
	const char *name;
	int version;
	cuuint64_t flags;
};

/* Up to the list's own version every ABI is a row. Beyond it, the answer is known only if it is the one that version gets. */
static bool known_abi(void *arg, void *address)
{
	const struct request *request = arg;
	void *again = NULL;
	CUresult result = CUDA_ERROR_NOT_FOUND;

	if (request->version <= ENTRIES_CUDA_VERSION)
		return true;
	if (real_address(ENTRY_cuGetProcAddress_v2))
		result = REAL(cuGetProcAddress_v2)(request->name, &again, ENTRIES_CUDA_VERSION, request->flags, NULL);
	else if (real_address(ENTRY_cuGetProcAddress))
		result = REAL(cuGetProcAddress)(request->name, &again, ENTRIES_CUDA_VERSION, request->flags);
	return result == CUDA_SUCCESS && again == address;
}

static void replace_answer(const char *name, void **pfn, int version, cuuint64_t flags)
{
	struct request request = {name, version, flags};
	int known_version = version < ENTRIES_CUDA_VERSION ? version : ENTRIES_CUDA_VERSION;

	if (name && pfn && *pfn)
		*pfn = shim_answer(*pfn, entry_by_request(name, known_version, flags), name, known_abi, &request);
}

CUresult CUDAAPI cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags)
{
	CUresult result = FORWARD(cuGetProcAddress, (symbol, pfn, cudaVersion, flags));

	if (result == CUDA_SUCCESS)
		replace_answer(symbol, pfn, cudaVersion, flags);
	return result;
}

CUresult CUDAAPI cuGetProcAddress_v2(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags,
	CUdriverProcAddressQueryResult *symbolStatus)
{
	CUresult result = FORWARD(cuGetProcAddress_v2, (symbol, pfn, cudaVersion, flags, symbolStatus));

	if (result == CUDA_SUCCESS)
		replace_answer(symbol, pfn, cudaVersion, flags);
	return result;
}

/* A process without a device is an ordinary member of a session, and wrong flags are the program's affair. */
static void say_init_failed(CUresult result)
{
	static int said;
	const char *name = NULL;

	if (__atomic_load_n(&shim_hot.state, __ATOMIC_ACQUIRE) != SHIM_NEW || result == CUDA_ERROR_INVALID_VALUE ||
		!shim_in_session() || !current_table() || !is_first(&said))
		return;
	if (real_address(ENTRY_cuGetErrorName) && REAL(cuGetErrorName)(result, &name) != CUDA_SUCCESS)
		name = NULL;
	log_init();
	log_say(LOG_SHIM, result == CUDA_ERROR_NO_DEVICE ? LOG_INFO : LOG_WARN, WHOSE_DRIVER,
		"cuInit failed (%s, error %d); nothing is served until one succeeds (does nvidia-smi work?)",
		name ? name : "unknown", (int)result);
}

CUresult CUDAAPI cuInit(unsigned int Flags)
{
	CUresult result;

	__atomic_store_n(&shim_init_asked, true, __ATOMIC_RELEASE);
	result = FORWARD(cuInit, (Flags));

	if (result == CUDA_SUCCESS)
		shim_start();
	else
		say_init_failed(result);
	return result;
}

/* Tables pass through untouched: one of them hashes the function addresses of the others (INTEGRITY_CHECK). */
CUresult CUDAAPI cuGetExportTable(const void **ppExportTable, const CUuuid *pExportTableId)
{
	CUresult result = FORWARD(cuGetExportTable, (ppExportTable, pExportTableId));

	if (pExportTableId && log_wants(LOG_SHIM, LOG_DEBUG)) {
		const unsigned char *b = (const unsigned char *)pExportTableId->bytes;

		log_say(LOG_SHIM, LOG_DEBUG, WHOSE_NONE, "export table %02x%02x%02x%02x-%02x%02x-%02x%02x-...: %d", b[0], b[1], b[2],
			b[3], b[4], b[5], b[6], b[7], (int)result);
	}
	return result;
}
