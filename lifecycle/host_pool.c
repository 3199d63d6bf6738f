/* lifecycle/host_pool.c
 * Creating is page faults (309 ms for 1 GiB, FACTS.md), taking a kept extent is nothing: what exists is destroyed only to make
 * room under the cap. The free list needs no heap, so that giving back cannot fail. */
#include "lifecycle/host_pool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file_room.h"
#include "base/log.h"
#include "base/size.h"
#include "base/text.h"
#include "lifecycle/lifecycle.h"
#include "lifecycle/trace_note.h"

/* Addresses cost nothing; what the arena cannot have is halved until it fits. */
#define POOL_ADDRESSES (16ull << 40)
#define POOL_ADDRESSES_LEAST (64ull << 30)

#define PROGRESS_NS 1000000000ull

void host_pool_init(struct host_pool *pool)
{
	memset(pool, 0, sizeof(*pool));
	ranked_lock_init(&pool->lock, RANK_HOST_POOL);
}

void host_pool_forget(struct host_pool *pool)
{
	pool->free = pool->condemned = pool->stranded = NULL;
	pool->recall = (struct host_recall){0};
	pool->bytes = pool->free_bytes = 0;
	pool->count = pool->free_count = 0;
	pool->kind = HOST_POOL_NONE;
	memset(&pool->hooks, 0, sizeof(pool->hooks));
}

void host_pool_set_hooks(struct host_pool *pool, const struct host_pool_hooks *hooks)
{
	pool->hooks = *hooks;
}

uint64_t host_extents_bytes(const struct host_extent *list)
{
	uint64_t bytes = 0;

	for (; list; list = list->next)
		bytes += list->bytes;
	return bytes;
}

/* Caller holds the lock. */
static void publish_locked(struct lifecycle *lc)
{
	__atomic_store_n(&lc->stats->host_pool_bytes, lc->host_pool.bytes, __ATOMIC_RELAXED);
	__atomic_store_n(&lc->stats->host_pool_free_bytes, lc->host_pool.free_bytes, __ATOMIC_RELAXED);
	trace_note_host_pool(lc);
}

/* ---- the kind ---- */

static bool has(struct lifecycle *lc, int device, CUdevice_attribute attribute)
{
	int value = 0;

	return lc->driver.DeviceGetAttribute(&value, attribute, device) == CUDA_SUCCESS && value != 0;
}

static void destroy(struct lifecycle *lc, struct host_extent *extent);

/* Is HOST_NUMA memory as described by pool->prop to be had? One 2 MiB extent is made and given back. */
static CUresult try_numa(struct lifecycle *lc)
{
	struct host_pool *pool = &lc->host_pool;
	size_t granularity = 0;
	struct host_extent *probe;
	CUresult result = lc->driver.MemGetAllocationGranularity(&granularity, &pool->prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);

	if (result != CUDA_SUCCESS || granularity == 0 || GRANULE_BYTES % granularity)
		return result != CUDA_SUCCESS ? result : CUDA_ERROR_NOT_SUPPORTED;
	probe = calloc(1, sizeof(*probe));
	if (!probe)
		return CUDA_ERROR_OUT_OF_MEMORY;
	probe->bytes = GRANULE_BYTES;
	result = lc->driver.MemCreate(&probe->handle, GRANULE_BYTES, &pool->prop, 0);
	probe->held = result == CUDA_SUCCESS;
	destroy(lc, probe);
	return result;
}

static bool probe_numa(struct lifecycle *lc, int device)
{
	struct host_pool *pool = &lc->host_pool;
	bool fds = has(lc, device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED) &&
		   lc->driver.MemExportToShareableHandle && lc->driver.MemImportFromShareableHandle;
	int node = 0;

	if (!has(lc, device, CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED))
		return false;
	/* -1: this system has no NUMA, and then the id must be 0. */
	if (lc->driver.DeviceGetAttribute(&node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, device) != CUDA_SUCCESS || node < 0)
		node = 0;
	memset(&pool->prop, 0, sizeof(pool->prop));
	pool->prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
	pool->prop.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
	pool->prop.location.id = node;
	for (int step = 0; step < 2; step++) {
		CUresult result;

		pool->exportable = fds && step == 0;
		pool->prop.requestedHandleTypes =
			pool->exportable ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE;
		result = try_numa(lc);
		/* A full node says nothing about the kind; the first real extent will say so again. */
		if (result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY)
			return true;
	}
	return false;
}

/* Find out once; what fails for lack of addresses is tried again with the next request. */
static enum sublet_err ensure_kind(struct lifecycle *lc, int device, struct errinfo *reterr)
{
	struct host_pool *pool = &lc->host_pool;
	enum sublet_err err;

	if (pool->kind == HOST_POOL_UNTRIED && probe_numa(lc, device)) {
		err = arena_init(&pool->arena, &lc->driver, &lc->arena_lock,
			POOL_ADDRESSES < lc->config.arena_bytes ? POOL_ADDRESSES : lc->config.arena_bytes,
			POOL_ADDRESSES_LEAST < lc->config.arena_bytes ? POOL_ADDRESSES_LEAST : lc->config.arena_bytes, reterr);
		if (err)
			return err;
		__atomic_store_n(&pool->kind, HOST_POOL_NUMA, __ATOMIC_RELAXED);
	}
	if (pool->kind == HOST_POOL_UNTRIED) {
		__atomic_store_n(&pool->kind,
			lc->driver.MemHostRegister && lc->driver.MemHostUnregister ? HOST_POOL_REGISTERED : HOST_POOL_NONE, __ATOMIC_RELAXED);
		log_say(LOG_RESIDENCY, LOG_INFO, WHOSE_DRIVER, "no HOST_NUMA memory: nothing can be parked (sublet doctor says more)");
	}
	if (pool->kind == HOST_POOL_NONE)
		return errinfo_set(reterr, SUBLET_ERR_UNSUPPORTED, 0, "this driver has neither HOST_NUMA memory nor cuMemHostRegister: nothing can be kept in host memory");
	return SUBLET_OK;
}

bool host_pool_cannot_park(const struct host_pool *pool)
{
	const int kind = __atomic_load_n(&pool->kind, __ATOMIC_RELAXED);

	return kind == HOST_POOL_REGISTERED || kind == HOST_POOL_NONE;
}

bool host_pool_can_park(struct lifecycle *lc, int device)
{
	struct errinfo error;

	return ensure_kind(lc, device, &error) == SUBLET_OK && lc->host_pool.kind == HOST_POOL_NUMA;
}

/* ---- one extent ---- */

/* Let @device (and the CPU) use a mapped extent. */
static CUresult admit(struct lifecycle *lc, struct host_extent *extent, int device)
{
	CUmemAccessDesc access[2] = {
		{.location = {.type = CU_MEM_LOCATION_TYPE_HOST}, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
		{.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
	};
	CUresult result;

	if (!extent->held || (extent->devices >> device & 1))
		return CUDA_SUCCESS;
	result = lc->driver.MemSetAccess(extent->address, extent->bytes, access, 2);
	if (result == CUDA_SUCCESS)
		extent->devices |= 1ull << device;
	return result;
}

/* The driver lets go of it; what it refuses to take back is offered again later. Counters are the caller's. */
static void destroy(struct lifecycle *lc, struct host_extent *extent)
{
	struct host_pool *pool = &lc->host_pool;

	if (extent->mapped && extent->held) {
		extent->mapped = lc->driver.MemUnmap(extent->address, extent->bytes) != CUDA_SUCCESS;
		if (!extent->mapped)
			arena_return(&pool->arena, extent->address, extent->bytes);
	} else if (extent->mapped) {
		/* Pages that the driver still knows stay: it would take another mapping at their address for them. */
		extent->mapped = lc->driver.MemHostUnregister((void *)(uintptr_t)extent->address) != CUDA_SUCCESS;
		if (!extent->mapped)
			munmap((void *)(uintptr_t)extent->address, extent->bytes);
	}
	if (extent->held && !extent->mapped)
		extent->held = lc->driver.MemRelease(extent->handle) != CUDA_SUCCESS;
	if (!extent->held && !extent->mapped) {
		free(extent);
		return;
	}
	log_limited(LOG_RESIDENCY, LOG_WARN, WHOSE_DRIVER,
		"a host extent of %llu MiB could not be given back; it is tried again later",
		(unsigned long long)(extent->bytes >> 20));
	extent->next = pool->stranded;
	pool->stranded = extent;
}

static void retry_stranded(struct lifecycle *lc)
{
	struct host_extent *list = lc->host_pool.stranded;

	lc->host_pool.stranded = NULL;
	while (list) {
		struct host_extent *next = list->next;

		destroy(lc, list);
		list = next;
	}
}

/* Map a held handle at a fresh address of the pool, for the CPU and @device. */
static CUresult map_held(struct lifecycle *lc, struct host_extent *extent, int device, const char **ret_step)
{
	struct host_pool *pool = &lc->host_pool;
	CUresult result;

	*ret_step = "the pool's addresses are used up: cuMemMap";
	if (!arena_take(&pool->arena, extent->bytes, &extent->address))
		return CUDA_ERROR_OUT_OF_MEMORY;
	*ret_step = "cuMemMap";
	result = lc->driver.MemMap(extent->address, extent->bytes, 0, extent->handle, 0);
	if (result != CUDA_SUCCESS) {
		arena_return(&pool->arena, extent->address, extent->bytes);
		return result;
	}
	extent->mapped = true;
	*ret_step = "cuMemSetAccess";
	return admit(lc, extent, device);
}

static CUresult create_numa(struct lifecycle *lc, struct host_extent *extent, int device, const char **ret_step)
{
	CUresult result;

	*ret_step = "cuMemCreate";
	result = lc->driver.MemCreate(&extent->handle, extent->bytes, &lc->host_pool.prop, 0);
	if (result != CUDA_SUCCESS)
		return result;
	extent->held = true;
	return map_held(lc, extent, device, ret_step);
}

/* A memfd and not anonymous memory, so that another process can be given it. */
static CUresult create_registered(struct lifecycle *lc, struct host_extent *extent, int *ret_fd, const char **ret_step)
{
	void *pages = MAP_FAILED;
	CUresult result;
	int fd = memfd_create("sublet-host", MFD_CLOEXEC);

	*ret_step = "memfd_create";
	if (fd < 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (file_extend(fd, extent->bytes) == 0)
		pages = mmap(NULL, extent->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
	if (pages == MAP_FAILED) {
		close(fd);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*ret_step = "cuMemHostRegister";
	result = lc->driver.MemHostRegister(pages, extent->bytes, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
	if (result != CUDA_SUCCESS) {
		munmap(pages, extent->bytes);
		close(fd);
		return result;
	}
	extent->address = (uint64_t)(uintptr_t)pages;
	extent->mapped = true;
	*ret_fd = fd;
	return CUDA_SUCCESS;
}

/* ---- the free list ---- */

/* Where the first free extent of @bytes hangs, or would. Caller holds the lock. */
static struct host_extent **first_of_size(struct host_pool *pool, uint64_t bytes)
{
	struct host_extent **link = &pool->free;

	while (*link && (*link)->bytes != bytes)
		link = &(*link)->other_size;
	return link;
}

/* Caller holds the lock. */
static struct host_extent *unlink_first(struct lifecycle *lc, struct host_extent **link)
{
	struct host_pool *pool = &lc->host_pool;
	struct host_extent *extent = *link;

	if (!extent)
		return NULL;
	if (extent->next)
		extent->next->other_size = extent->other_size;
	*link = extent->next ? extent->next : extent->other_size;
	extent->next = extent->other_size = NULL;
	pool->free_bytes -= extent->bytes;
	pool->free_count--;
	publish_locked(lc);
	return extent;
}

static struct host_extent *take_free(struct lifecycle *lc, uint64_t bytes)
{
	struct host_extent *extent;

	ranked_lock(&lc->host_pool.lock);
	extent = unlink_first(lc, first_of_size(&lc->host_pool, bytes));
	ranked_unlock(&lc->host_pool.lock);
	return extent;
}

void host_pool_put(struct lifecycle *lc, struct host_extent *list)
{
	struct host_pool *pool = &lc->host_pool;

	ranked_lock(&pool->lock);
	while (list) {
		struct host_extent *extent = list, **link = first_of_size(pool, extent->bytes);

		list = extent->next;
		if (extent->exposed) {
			extent->next = pool->condemned;
			pool->condemned = extent;
			continue;
		}
		extent->next = *link;
		extent->other_size = NULL;
		if (*link) {
			extent->other_size = (*link)->other_size;
			(*link)->other_size = NULL;
		}
		*link = extent;
		pool->free_bytes += extent->bytes;
		pool->free_count++;
	}
	publish_locked(lc);
	ranked_unlock(&pool->lock);
}

/* Count @bytes of one extent more, or less. */
static void count(struct lifecycle *lc, int64_t bytes)
{
	struct host_pool *pool = &lc->host_pool;

	ranked_lock(&pool->lock);
	pool->bytes += (uint64_t)bytes;
	pool->count += bytes > 0 ? 1 : -1;
	publish_locked(lc);
	ranked_unlock(&pool->lock);
}

/* The free extent to destroy first: of the largest size that is not @but, of @but only when there is no other. Caller holds
 * the lock. */
static struct host_extent **first_to_go(struct host_pool *pool, uint64_t but)
{
	struct host_extent **best = NULL;

	for (struct host_extent **link = &pool->free; *link; link = &(*link)->other_size) {
		if (!best || (*best)->bytes == but || ((*link)->bytes != but && (*link)->bytes > (*best)->bytes))
			best = link;
	}
	return best;
}

/* One that is in no list any more ends. Returns its bytes. */
static uint64_t end_extent(struct lifecycle *lc, struct host_extent *extent)
{
	struct host_pool *pool = &lc->host_pool;
	const uint64_t bytes = extent->bytes, number = extent->number;

	destroy(lc, extent);
	count(lc, -(int64_t)bytes);
	if (pool->hooks.give)
		pool->hooks.give(pool->hooks.arg, bytes, number);
	return bytes;
}

/* Returns the bytes of them. */
static uint64_t end_condemned(struct lifecycle *lc)
{
	struct host_pool *pool = &lc->host_pool;
	struct host_extent *list;
	uint64_t gone = 0;

	ranked_lock(&pool->lock);
	list = pool->condemned;
	pool->condemned = NULL;
	ranked_unlock(&pool->lock);
	while (list) {
		struct host_extent *next = list->next;

		gone += end_extent(lc, list);
		list = next;
	}
	return gone;
}

uint64_t host_pool_trim(struct lifecycle *lc, uint64_t bytes, uint64_t but)
{
	struct host_pool *pool = &lc->host_pool;
	uint64_t gone;

	retry_stranded(lc);
	gone = end_condemned(lc);
	while (gone < bytes) {
		struct host_extent *extent, **link;

		ranked_lock(&pool->lock);
		link = first_to_go(pool, but);
		extent = link ? unlink_first(lc, link) : NULL;
		ranked_unlock(&pool->lock);
		if (!extent)
			break;
		gone += end_extent(lc, extent);
	}
	return gone;
}

bool host_pool_recall(struct lifecycle *lc, const struct host_recall *recall)
{
	struct host_pool *pool = &lc->host_pool;
	bool noted;

	ranked_lock(&pool->lock);
	noted = pool->free != NULL;
	if (noted) {
		pool->recall.size_bytes = recall->size_bytes;
		pool->recall.serial = recall->serial;
		__atomic_store_n(&pool->recall.bytes, recall->bytes, __ATOMIC_RELEASE);
	}
	ranked_unlock(&pool->lock);
	return noted;
}

/* The driver lets go of it, the session keeps its bytes for whom it gives them to. Returns how many they are. */
static uint64_t leave(struct lifecycle *lc, struct host_extent *extent)
{
	struct host_pool *pool = &lc->host_pool;
	const uint64_t bytes = extent->bytes, number = extent->number;

	if (!number || !pool->hooks.leave)
		return end_extent(lc, extent);
	destroy(lc, extent);
	count(lc, -(int64_t)bytes);
	pool->hooks.leave(pool->hooks.arg, bytes, number);
	return bytes;
}

void host_pool_let_go(struct lifecycle *lc)
{
	struct host_pool *pool = &lc->host_pool;
	struct host_recall recall;
	uint64_t gone = 0;

	/* looked at in loops, where it is hardly ever asked for */
	if (!__atomic_load_n(&pool->recall.bytes, __ATOMIC_ACQUIRE))
		return;
	ranked_lock(&pool->lock);
	recall = pool->recall;
	__atomic_store_n(&pool->recall.bytes, 0, __ATOMIC_RELAXED);
	ranked_unlock(&pool->lock);
	while (gone < recall.bytes) {
		struct host_extent *extent, **link;

		ranked_lock(&pool->lock);
		link = first_of_size(pool, recall.size_bytes);
		if (!*link)
			link = first_to_go(pool, 0);
		extent = link ? unlink_first(lc, link) : NULL;
		ranked_unlock(&pool->lock);
		if (!extent)
			break;
		gone += leave(lc, extent);
	}
	if (pool->hooks.recalled)
		pool->hooks.recalled(pool->hooks.arg, recall.serial);
}

void host_pool_release(struct lifecycle *lc)
{
	struct host_pool *pool = &lc->host_pool;

	host_pool_trim(lc, UINT64_MAX, 0);
	retry_stranded(lc);
	if (pool->arena.lock)
		arena_release(&pool->arena, &lc->driver);
	ranked_lock_release(&pool->lock);
}

/* ---- taking ---- */

/* "it holds 3.00 GiB, of which 1.00 GiB are free in other sizes" and by whom, as far as this process knows. */
static enum sublet_err say_full(struct lifecycle *lc, uint64_t bytes, const char *why, struct errinfo *reterr)
{
	struct host_pool *pool = &lc->host_pool;
	char needed[16], cap[16], used[16], kept[16];
	uint64_t all, idle;
	uint32_t used_count;

	/* the session's own numbers, who has them, and the fix: they need the room */
	if (why[0])
		return errinfo_set(reterr, SUBLET_ERR_NOMEM, 0, "no room in the host pool for %s more: %s",
			size_format(bytes, needed, sizeof(needed)), why);
	ranked_lock(&pool->lock);
	all = pool->bytes;
	idle = pool->free_bytes;
	used_count = pool->count - pool->free_count;
	ranked_unlock(&pool->lock);
	return errinfo_set(reterr, SUBLET_ERR_NOMEM, 0,
		"no room in the host pool for %s more: the cap is %s, and this process holds %s in %u extents and keeps %s",
		size_format(bytes, needed, sizeof(needed)),
		lc->config.host_pool_bytes ? size_format(lc->config.host_pool_bytes, cap, sizeof(cap)) : "the session's",
		size_format(all - idle, used, sizeof(used)), used_count, size_format(idle, kept, sizeof(kept)));
}

/* Room for @bytes more under the cap of this process and by the session's ledger; where it may @trim, kept extents of other
 * sizes make it. */
static enum sublet_err take_credit(struct lifecycle *lc, uint64_t bytes, bool trim, struct errinfo *reterr)
{
	struct host_pool *pool = &lc->host_pool;
	const uint64_t cap = lc->config.host_pool_bytes;
	char why[PROTOCOL_TEXT_BYTES] = "";

	if (cap && pool->bytes + bytes > cap && trim && bytes <= cap)
		host_pool_trim(lc, pool->bytes + bytes - cap, bytes);
	if (cap && pool->bytes + bytes > cap)
		return say_full(lc, bytes, why, reterr);
	if (!pool->hooks.credit || pool->hooks.credit(pool->hooks.arg, bytes, why, sizeof(why)))
		return SUBLET_OK;
	if (trim && host_pool_trim(lc, bytes, bytes) && pool->hooks.credit(pool->hooks.arg, bytes, why, sizeof(why)))
		return SUBLET_OK;
	why[sizeof(why) - 1] = '\0';
	return say_full(lc, bytes, why, reterr);
}

static enum sublet_err cannot_make(uint64_t bytes, const char *step, CUresult result, struct errinfo *reterr)
{
	return errinfo_set(reterr, result == CUDA_ERROR_OUT_OF_MEMORY ? SUBLET_ERR_NOMEM : SUBLET_ERR_DRIVER, (int)result,
		"no host extent of %llu MiB: %s refused (driver error %d)", (unsigned long long)(bytes >> 20), step, (int)result);
}

/* One that another process of the session has let go of. */
static struct host_extent *take_of_session(struct lifecycle *lc, int device, uint64_t bytes)
{
	struct host_pool *pool = &lc->host_pool;
	struct host_extent *extent;
	const char *step;
	const uint64_t number = ++pool->last_number;
	CUresult result;
	int fd;

	if (pool->kind != HOST_POOL_NUMA || !pool->exportable || !pool->hooks.take ||
		!pool->hooks.take(pool->hooks.arg, bytes, number, &fd))
		return NULL;
	extent = calloc(1, sizeof(*extent));
	result = CUDA_ERROR_OUT_OF_MEMORY;
	if (extent) {
		extent->bytes = bytes;
		extent->number = number;
		result = lc->driver.MemImportFromShareableHandle(&extent->handle, (void *)(intptr_t)fd,
			CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
		extent->held = result == CUDA_SUCCESS;
	}
	close(fd);
	if (result == CUDA_SUCCESS)
		result = map_held(lc, extent, device, &step);
	if (result == CUDA_SUCCESS)
		return extent;
	log_limited(LOG_RESIDENCY, LOG_WARN, WHOSE_DRIVER, "a host extent of the session could not be taken over (error %d)",
		(int)result);
	if (extent)
		destroy(lc, extent);
	if (pool->hooks.give)
		pool->hooks.give(pool->hooks.arg, bytes, number);
	return NULL;
}

/* Tell the session of a new extent. Without it the extent works all the same, its bytes just end with this process. */
static void share(struct lifecycle *lc, struct host_extent *extent, int fd)
{
	struct host_pool *pool = &lc->host_pool;

	if (pool->hooks.made && fd < 0 && pool->exportable &&
		lc->driver.MemExportToShareableHandle(&fd, extent->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) != CUDA_SUCCESS)
		fd = -1;
	if (fd < 0)
		return;
	if (!pool->hooks.made) {
		close(fd);
		return;
	}
	extent->number = ++pool->last_number;
	pool->hooks.made(pool->hooks.arg, extent->bytes, extent->number, fd);
}

static enum sublet_err create(struct lifecycle *lc, int device, uint64_t bytes, bool trim, struct host_extent **ret_extent,
	struct errinfo *reterr)
{
	struct host_pool *pool = &lc->host_pool;
	struct host_extent *extent;
	const char *step;
	CUresult result;
	enum sublet_err err = take_credit(lc, bytes, trim, reterr);
	int fd = -1;

	if (err)
		return err;
	extent = calloc(1, sizeof(*extent));
	if (!extent) {
		err = errinfo_set(reterr, SUBLET_ERR_SYSTEM, 0, "no memory for the note of a host extent");
		goto give;
	}
	extent->bytes = bytes;
	result = pool->kind == HOST_POOL_NUMA ? create_numa(lc, extent, device, &step)
					      : create_registered(lc, extent, &fd, &step);
	if (result == CUDA_SUCCESS) {
		count(lc, (int64_t)bytes);
		share(lc, extent, fd);
		*ret_extent = extent;
		return SUBLET_OK;
	}
	err = cannot_make(bytes, step, result, reterr);
	destroy(lc, extent);
give:
	if (pool->hooks.give)
		pool->hooks.give(pool->hooks.arg, bytes, 0);
	return err;
}

enum sublet_err host_pool_take(struct lifecycle *lc, int device, uint64_t bytes, struct host_extent **ret_extent,
	struct errinfo *reterr)
{
	struct host_extent *extent;
	CUresult result;
	enum sublet_err err = ensure_kind(lc, device, reterr);

	if (err)
		return err;
	end_condemned(lc);
	extent = take_free(lc, bytes);
	if (extent) {
		result = admit(lc, extent, device);
		if (result != CUDA_SUCCESS) {
			host_pool_put(lc, extent);
			return cannot_make(bytes, "cuMemSetAccess", result, reterr);
		}
	} else {
		extent = take_of_session(lc, device, bytes);
		if (extent)
			count(lc, (int64_t)bytes);
	}
	if (!extent)
		return create(lc, device, bytes, true, ret_extent, reterr);
	*ret_extent = extent;
	return SUBLET_OK;
}

enum sublet_err host_pool_fill(struct lifecycle *lc, int device, uint64_t bytes, uint64_t extent_bytes,
	struct errinfo *reterr)
{
	struct host_pool *pool = &lc->host_pool;
	uint64_t said = clock_now_ns();
	char now[16], all[16];
	enum sublet_err err = ensure_kind(lc, device, reterr);

	while (!err && pool->bytes < bytes) {
		struct host_extent *extent;

		/* Without trimming: what was filled a moment ago would go, and come again for ever. */
		err = create(lc, device, extent_bytes, false, &extent, reterr);
		if (err)
			break;
		host_pool_put(lc, extent);
		if (clock_now_ns() - said >= PROGRESS_NS || pool->bytes >= bytes) {
			said = clock_now_ns();
			log_say(LOG_RESIDENCY, LOG_INFO, WHOSE_NONE, "host pool: %s of %s", size_format(pool->bytes, now, sizeof(now)),
				size_format(bytes, all, sizeof(all)));
		}
	}
	return err;
}
