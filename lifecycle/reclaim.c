/* lifecycle/reclaim.c
 * Every mark covers all contexts of the process, so marks pass in the order they were taken and the list is a queue. */
#include "lifecycle/reclaim.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "lifecycle/drain.h"
#include "lifecycle/lifecycle.h"

/* A refusal that was not of the moment is asked about again at this rate. */
#define STRANDED_RETRY_NS 1000000000ull

/* How long a free looks whether its marks pass at once. */
#define PASS_SOON_NS 30000ull

enum step {
	STEP_EMPTY,
	STEP_NOT_READY, /* work is still running, or something is being captured */
	STEP_REFUSED,   /* the driver does not tell, and no context says that it is lost */
	STEP_DONE,
};

void reclaim_init(struct reclaim *reclaim)
{
	pthread_condattr_t attributes;

	memset(reclaim, 0, sizeof(*reclaim));
	ranked_lock_init(&reclaim->lock, RANK_RECLAIM);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&reclaim->changed, &attributes);
	pthread_condattr_destroy(&attributes);
}

/* Wait for `changed`, at most @ns. Caller holds the lock. The rank mask stays set meanwhile, which is right: the thread
 * owns the lock again when this returns. */
static void wait_changed(struct reclaim *reclaim, uint64_t ns)
{
	uint64_t until = clock_now_ns() + ns;
	struct timespec deadline = {.tv_sec = (time_t)(until / 1000000000ull), .tv_nsec = (long)(until % 1000000000ull)};

	if (reclaim->forgotten) {
		clock_sleep_ns(ns);
		return;
	}
	pthread_cond_timedwait(&reclaim->changed, &reclaim->lock.mutex, &deadline);
}

/* Caller holds the lock. Nobody waits in a forked child, and the threads that waited in its parent would be waited for:
 * glibc lets no second group of waiters be woken before the first has left (seen with glibc 2.36). */
static void tell_changed(struct reclaim *reclaim)
{
	if (!reclaim->forgotten)
		pthread_cond_broadcast(&reclaim->changed);
}

bool reclaim_stop(struct reclaim *reclaim, uint64_t wait_ns)
{
	uint64_t deadline = clock_now_ns() + wait_ns;
	bool quiet;

	/* Held by this thread itself when the process ends in a signal handler: then the helper will not get it either. */
	if (!ranked_lock_within(&reclaim->lock, wait_ns))
		return false;
	reclaim->stop = true;
	tell_changed(reclaim);
	while (reclaim->busy && clock_now_ns() < deadline)
		wait_changed(reclaim, 1000000);
	quiet = !reclaim->busy;
	ranked_unlock(&reclaim->lock);
	return quiet;
}

void reclaim_join(struct reclaim *reclaim)
{
	bool running = reclaim->thread == RECLAIM_RUNNING;

	reclaim_stop(reclaim, UINT64_MAX / 4);
	if (running)
		pthread_join(reclaim->handle, NULL);
}

void reclaim_release(struct reclaim *reclaim)
{
	pthread_cond_destroy(&reclaim->changed);
	ranked_lock_release(&reclaim->lock);
}

void reclaim_forget(struct reclaim *reclaim)
{
	reclaim->head = reclaim->tail = reclaim->stranded = NULL;
	reclaim->pending = 0;
	reclaim->thread = RECLAIM_STOPPED;
	reclaim->stop = true;
	reclaim->busy = false;
	reclaim->giving_back = 0;
	reclaim->forgotten = true;
	memset(reclaim->cache, 0, sizeof(reclaim->cache));
}

/* Device memory that comes back with it: none of what is parked or away. */
static void add_pending(struct lifecycle *lc, const struct allocation *allocation)
{
	__atomic_fetch_add(&lc->stats->device[allocation->device].pending_bytes, backing_held_bytes(&allocation->backing),
		__ATOMIC_RELAXED);
}

/* Leave marks for all work submitted so far. CUDA_ERROR_NOT_READY: a capture is under way, try again later. Another error
 * is that of a context of the allocation's device: it is marked all the same when that context is lost and runs nothing.
 * Without @may_wait nothing is waited for: NOT_READY where only synchronising would tell. */
static CUresult mark(struct lifecycle *lc, struct allocation *allocation, bool may_wait)
{
	CUresult result, own = CUDA_SUCCESS;
	uint32_t count = 0;

	if (!lc->config.free_sync)
		result = drain_mark(lc, allocation->marks, MARKS_MAX, &count);
	else
		result = captures_under_way(&lc->captures, NULL) ? CUDA_ERROR_NOT_READY : CUDA_ERROR_NOT_SUPPORTED;
	/* As the driver's own free does it. A capture that another thread begins between the check above and this call could
	 * be invalidated; holding captures off for as long as a synchronise lasts could hang, which is worse. */
	if (result == CUDA_ERROR_NOT_SUPPORTED && !may_wait)
		return CUDA_ERROR_NOT_READY;
	if (result == CUDA_ERROR_NOT_SUPPORTED)
		result = contexts_synchronize(&lc->contexts, allocation->device, &own);
	if (result == CUDA_SUCCESS) {
		allocation->mark_count = count;
		allocation->marked = true;
	}
	return result == CUDA_SUCCESS ? own : result;
}

/* Has all work passed that may use it? After an error that does not tell it is marked again. */
static bool passed(struct lifecycle *lc, struct allocation *allocation)
{
	CUresult result = drain_passed(lc, allocation->marks, &allocation->mark_count);

	if (result == CUDA_ERROR_NOT_SUPPORTED)
		allocation->marked = false;
	return result == CUDA_SUCCESS;
}

struct cache_sink {
	struct lifecycle *lc;
	int device;
};

static bool cache_put(void *arg, const struct extent *extent)
{
	const struct cache_sink *sink = arg;
	struct lifecycle *lc = sink->lc;
	struct extent_cache *cache = &lc->reclaim.cache[sink->device];
	bool kept = false;

	ranked_lock(&lc->reclaim.lock);
	if (!lc->reclaim.stop && cache->count < CACHE_SLOTS && cache->bytes + extent->bytes <= lc->config.cache_bytes) {
		cache->slots[cache->count].handle = extent->handle;
		cache->slots[cache->count++].bytes = extent->bytes;
		cache->bytes += extent->bytes;
		__atomic_store_n(&lc->stats->device[sink->device].cached_bytes, cache->bytes, __ATOMIC_RELAXED);
		kept = true;
	}
	ranked_unlock(&lc->reclaim.lock);
	return kept;
}

/* Caller holds the lock. What was counted up before a fork is not counted in the child. */
static void count_down(const struct reclaim *reclaim, unsigned *count)
{
	if (!reclaim->forgotten || *count)
		(*count)--;
}

/* @bytes went back meanwhile (0 at the begin). */
static void set_giving_back(struct reclaim *reclaim, bool begin, uint64_t bytes)
{
	ranked_lock(&reclaim->lock);
	if (begin) {
		reclaim->giving_back++;
	} else {
		count_down(reclaim, &reclaim->giving_back);
		reclaim->generation++;
		reclaim->returned_bytes += bytes;
		tell_changed(reclaim);
	}
	ranked_unlock(&reclaim->lock);
}

void reclaim_returning_begin(struct lifecycle *lc)
{
	set_giving_back(&lc->reclaim, true, 0);
}

void reclaim_returning_end(struct lifecycle *lc, uint64_t bytes)
{
	set_giving_back(&lc->reclaim, false, bytes);
}

static void ensure_thread(struct lifecycle *lc);

/* What the driver will not take back now is kept and offered again: its address is not used meanwhile. */
static void strand(struct lifecycle *lc, struct allocation *allocation)
{
	ranked_lock(&lc->reclaim.lock);
	allocation->next = lc->reclaim.stranded;
	lc->reclaim.stranded = allocation;
	ensure_thread(lc);
	tell_changed(&lc->reclaim);
	ranked_unlock(&lc->reclaim.lock);
}

/* Pages back. The address is handed out again only now. */
static CUresult try_give_back(struct lifecycle *lc, struct allocation *allocation)
{
	struct cache_sink cache = {lc, allocation->device};
	struct extent_sink sink = {cache_put, &cache};
	/* An extent that others hold a handle of is not given to anybody else. */
	CUresult result =
		backing_give_back(&allocation->backing, &lc->driver, allocation->address, allocation->exposed ? NULL : &sink);

	if (result != CUDA_SUCCESS) {
		strand(lc, allocation);
		return result;
	}
	/* Only now does nothing of ours reach its host extents any more. */
	for (struct host_extent *host = allocation->host; host; host = host->next)
		host->exposed = host->exposed || allocation->exposed;
	host_pool_put(lc, allocation->host);
	allocation->host = NULL;
	if (allocation->span_bytes)
		arena_return(&lc->devices[allocation->device].arena, allocation->address, allocation->span_bytes);
	records_recycle(&lc->records, allocation);
	return result;
}

static void give_back(struct lifecycle *lc, struct allocation *allocation)
{
	struct stats_device *stats = &lc->stats->device[allocation->device];
	uint64_t bytes = backing_held_bytes(&allocation->backing);
	CUresult result;

	set_giving_back(&lc->reclaim, true, 0);
	result = try_give_back(lc, allocation);
	if (result != CUDA_SUCCESS)
		log_limited(LOG_MEMORY, LOG_WARN, WHOSE_DRIVER,
			"freed allocation of %llu MiB could not be given back (error %d); it is tried again later",
			(unsigned long long)(bytes >> 20), (int)result);
	__atomic_fetch_sub(&stats->pending_bytes, bytes, __ATOMIC_RELAXED);
	set_giving_back(&lc->reclaim, false, result == CUDA_SUCCESS ? bytes : 0);
}

/* Offer what is stranded again; each once. */
static void retry_stranded(struct lifecycle *lc)
{
	struct allocation *list;

	ranked_lock(&lc->reclaim.lock);
	list = lc->reclaim.stranded;
	lc->reclaim.stranded = NULL;
	/* In one with taking them: who finds none left and settles knows that they are not on their way either. */
	for (const struct allocation *one = list; one; one = one->next)
		lc->reclaim.giving_back++;
	ranked_unlock(&lc->reclaim.lock);
	while (list) {
		struct allocation *next = list->next;
		uint64_t bytes = backing_held_bytes(&list->backing);

		if (try_give_back(lc, list) != CUDA_SUCCESS)
			bytes = 0;
		set_giving_back(&lc->reclaim, false, bytes);
		list = next;
	}
}

void reclaim_offer_again(struct lifecycle *lc)
{
	retry_stranded(lc);
}

void reclaim_unpublished(struct lifecycle *lc, struct allocation *allocation)
{
	if (!allocation->backing.count) {
		arena_return(&lc->devices[allocation->device].arena, allocation->address, allocation->span_bytes);
		records_recycle(&lc->records, allocation);
	} else {
		strand(lc, allocation);
	}
}

/* NULL: no memory left even for a note of it, the handles stay with the process. */
static struct allocation *note_of(struct lifecycle *lc, int device, uint64_t address, uint64_t span_bytes,
	struct backing *backing)
{
	struct allocation *allocation = records_new(&lc->records);

	if (!allocation)
		return NULL;
	allocation->device = device;
	allocation->address = address;
	allocation->span_bytes = span_bytes;
	backing_take_over(&allocation->backing, backing);
	return allocation;
}

void reclaim_strand_backing(struct lifecycle *lc, int device, uint64_t address, uint64_t span_bytes, struct backing *backing)
{
	struct allocation *allocation = note_of(lc, device, address, span_bytes, backing);

	if (allocation)
		strand(lc, allocation);
}

void reclaim_take_parts(struct lifecycle *lc, int device, uint64_t address, uint64_t span_bytes, struct backing *backing,
	struct host_extent *host)
{
	struct allocation *allocation = note_of(lc, device, address, span_bytes, backing);

	if (!allocation)
		return;
	allocation->host = host;
	reclaim_take(lc, allocation);
}

void reclaim_strand_extent(struct lifecycle *lc, int device, const struct extent *extent)
{
	struct backing backing;

	(void)backing_room(&backing, 1); /* needs no heap */
	backing.single = *extent;
	reclaim_strand_backing(lc, device, 0, 0, &backing);
}

/* Bring the oldest freed allocation one step on. Any thread; the lock is not held on entry. */
static enum step reclaim_step(struct lifecycle *lc)
{
	struct reclaim *reclaim = &lc->reclaim;
	struct allocation *allocation;
	struct driver_scope scope;
	enum step step = STEP_DONE;
	CUresult marked = CUDA_SUCCESS;

	ranked_lock(&reclaim->lock);
	allocation = reclaim->head;
	if (!allocation) {
		ranked_unlock(&reclaim->lock);
		return STEP_EMPTY;
	}
	reclaim->head = allocation->next;
	if (!reclaim->head)
		reclaim->tail = NULL;
	ranked_unlock(&reclaim->lock);

	driver_enter(&lc->driver, &scope);
	if (!allocation->marked)
		marked = mark(lc, allocation, true); /* the free has been answered: an error has nobody left to go to */
	if (allocation->marked && passed(lc, allocation))
		give_back(lc, allocation);
	else if (allocation->marked || marked == CUDA_ERROR_NOT_READY)
		step = STEP_NOT_READY;
	else
		step = STEP_REFUSED;
	driver_leave(&lc->driver, &scope);

	ranked_lock(&reclaim->lock);
	if (step == STEP_DONE) {
		count_down(reclaim, &reclaim->pending);
		tell_changed(reclaim);
	} else {
		allocation->next = reclaim->head;
		reclaim->head = allocation;
		if (!reclaim->tail)
			reclaim->tail = allocation;
	}
	ranked_unlock(&reclaim->lock);
	return step;
}

static void *reclaim_main(void *arg)
{
	struct lifecycle *lc = arg;
	struct reclaim *reclaim = &lc->reclaim;
	uint64_t pause_ns = 0;

	pthread_setname_np(pthread_self(), "sublet-reclaim");
	if (lc->config.thread_begins)
		lc->config.thread_begins();
	ranked_lock(&reclaim->lock);
	for (;;) {
		enum step step;

		while (!reclaim->stop && !reclaim->head && !reclaim->stranded)
			pthread_cond_wait(&reclaim->changed, &reclaim->lock.mutex);
		if (!reclaim->stop && !reclaim->head)
			wait_changed(reclaim, STRANDED_RETRY_NS);
		if (reclaim->stop)
			break;
		reclaim->busy = true;
		ranked_unlock(&reclaim->lock);
		step = reclaim_step(lc);
		if (step == STEP_EMPTY) {
			struct driver_scope scope;

			driver_enter(&lc->driver, &scope);
			retry_stranded(lc);
			driver_leave(&lc->driver, &scope);
		}
		ranked_lock(&reclaim->lock);
		reclaim->busy = false;
		if (reclaim->stop)
			break;
		/* 20 us at first (a free is often followed by an allocation that wants the pages), 1 ms beside long kernels. */
		if (step == STEP_NOT_READY || step == STEP_REFUSED) {
			pause_ns = pause_ns ? pause_ns * 2 : 20000;
			if (pause_ns > 1000000)
				pause_ns = 1000000;
			ranked_unlock(&reclaim->lock);
			clock_sleep_ns(pause_ns);
			ranked_lock(&reclaim->lock);
		} else {
			pause_ns = 0;
		}
	}
	reclaim->thread = RECLAIM_STOPPED;
	reclaim->busy = false;
	tell_changed(reclaim);
	ranked_unlock(&reclaim->lock);
	return NULL;
}

/* Caller holds the lock. */
static void ensure_thread(struct lifecycle *lc)
{
	struct reclaim *reclaim = &lc->reclaim;
	int error;

	if (reclaim->stop || (reclaim->thread != RECLAIM_NO_THREAD && reclaim->thread != RECLAIM_UNAVAILABLE))
		return;
	error = thread_start(&reclaim->handle, reclaim_main, lc);
	reclaim->thread = error ? RECLAIM_UNAVAILABLE : RECLAIM_RUNNING;
	if (error)
		log_limited(LOG_MEMORY, LOG_WARN, WHOSE_NONE, "no helper thread (%s): frees wait for running work",
			error == EAGAIN ? "thread limit reached" : "pthread_create failed");
}

/* Without a helper the caller does its work, as long as it takes: the driver's own free would wait as well. What the driver
 * refuses to tell about is left to the next one who comes. */
static void drain_here(struct lifecycle *lc)
{
	for (;;) {
		enum step step = reclaim_step(lc);

		if (step == STEP_EMPTY || step == STEP_REFUSED || captures_any(&lc->captures))
			return;
		if (step == STEP_NOT_READY)
			clock_sleep_ns(50000);
	}
}

/* Is the work that may use it over, or about to be? Then the pages go back before the free returns, as the driver's own
 * free leaves it: another process may have been told that they are there. An idle context takes some microseconds to pass a
 * mark. */
static bool passes_soon(struct lifecycle *lc, struct allocation *allocation)
{
	uint64_t until = clock_now_ns() + PASS_SOON_NS;

	while (allocation->marked) {
		if (passed(lc, allocation))
			return true;
		if (clock_now_ns() >= until)
			break;
	}
	return false;
}

/* Behind the others. True: the caller has to do the work. */
static bool queue(struct lifecycle *lc, struct allocation *allocation, bool here)
{
	struct reclaim *reclaim = &lc->reclaim;

	allocation->next = NULL;
	ranked_lock(&reclaim->lock);
	if (reclaim->tail)
		reclaim->tail->next = allocation;
	else
		reclaim->head = allocation;
	reclaim->tail = allocation;
	reclaim->pending++;
	ensure_thread(lc);
	here = here || reclaim->thread != RECLAIM_RUNNING || reclaim->stop;
	tell_changed(reclaim);
	ranked_unlock(&reclaim->lock);
	return here;
}

CUresult reclaim_free(struct lifecycle *lc, struct allocation *allocation, bool stream_ordered)
{
	CUresult result = mark(lc, allocation, !stream_ordered);

	if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY) {
		drain_give_up(lc, allocation->marks, &allocation->mark_count);
		allocation->marked = false;
		return result;
	}
	ledger_freed(lc, allocation);
	if (result == CUDA_SUCCESS && passes_soon(lc, allocation))
		give_back(lc, allocation);
	else if (queue(lc, allocation, lc->config.free_sync && !stream_ordered))
		drain_here(lc);
	return CUDA_SUCCESS;
}

void reclaim_take(struct lifecycle *lc, struct allocation *allocation)
{
	struct driver_scope scope;

	driver_enter(&lc->driver, &scope);
	add_pending(lc, allocation);
	/* Unmarked: the helper, or whoever waits for room, marks it. */
	if (queue(lc, allocation, false))
		drain_here(lc);
	driver_leave(&lc->driver, &scope);
}

void reclaim_free_idle(struct lifecycle *lc, struct allocation *allocation)
{
	add_pending(lc, allocation);
	give_back(lc, allocation);
}

void reclaim_kick(struct lifecycle *lc)
{
	bool here;

	ranked_lock(&lc->reclaim.lock);
	here = lc->reclaim.head && lc->reclaim.thread != RECLAIM_RUNNING;
	tell_changed(&lc->reclaim);
	ranked_unlock(&lc->reclaim.lock);
	if (here)
		drain_here(lc);
}

static void drop_cache(struct lifecycle *lc, int device)
{
	for (;;) {
		struct extent_cache *cache = &lc->reclaim.cache[device];
		struct extent extent = {.held = true};

		ranked_lock(&lc->reclaim.lock);
		if (cache->count == 0) {
			ranked_unlock(&lc->reclaim.lock);
			return;
		}
		extent.handle = cache->slots[--cache->count].handle;
		extent.bytes = cache->slots[cache->count].bytes;
		cache->bytes -= extent.bytes;
		__atomic_store_n(&lc->stats->device[device].cached_bytes, cache->bytes, __ATOMIC_RELAXED);
		lc->reclaim.giving_back++;
		ranked_unlock(&lc->reclaim.lock);
		if (lc->driver.MemRelease(extent.handle) != CUDA_SUCCESS)
			reclaim_strand_extent(lc, device, &extent);
		set_giving_back(&lc->reclaim, false, extent.bytes);
	}
}

/* Caller holds the lock. Wait until nothing is pending, @bytes more than @returned went back, or the time is over. */
static void wait_returned(struct lifecycle *lc, uint64_t returned, uint64_t bytes, uint64_t deadline)
{
	struct reclaim *reclaim = &lc->reclaim;

	while (reclaim->pending && reclaim->returned_bytes - returned < bytes && clock_now_ns() < deadline &&
	       !captures_any(&lc->captures)) {
		if (reclaim->thread == RECLAIM_RUNNING && !reclaim->stop) {
			wait_changed(reclaim, 1000000);
			continue;
		}
		ranked_unlock(&reclaim->lock);
		if (reclaim_step(lc) != STEP_DONE)
			clock_sleep_ns(50000);
		ranked_lock(&reclaim->lock);
	}
}

bool reclaim_wait(struct lifecycle *lc, uint64_t wait_ns)
{
	bool empty;

	ranked_lock(&lc->reclaim.lock);
	wait_returned(lc, 0, UINT64_MAX, clock_now_ns() + wait_ns);
	empty = lc->reclaim.pending == 0;
	ranked_unlock(&lc->reclaim.lock);
	return empty;
}

void reclaim_room_begin(struct lifecycle *lc, struct reclaim_room *room)
{
	ranked_lock(&lc->reclaim.lock);
	*room = (struct reclaim_room){lc->reclaim.returned_bytes, 0};
	ranked_unlock(&lc->reclaim.lock);
}

static void empty_caches(struct lifecycle *lc, int device)
{
	struct driver_scope scope;

	driver_enter(&lc->driver, &scope);
	for (int d = 0; d < lc->device_count; d++) {
		if (device < 0 || d == device)
			drop_cache(lc, d);
	}
	retry_stranded(lc);
	driver_leave(&lc->driver, &scope);
}

bool reclaim_make_room(struct lifecycle *lc, int device, uint64_t bytes, struct reclaim_room *room)
{
	struct reclaim *reclaim = &lc->reclaim;
	bool changed;

	if (!room->deadline_ns)
		room->deadline_ns = clock_now_ns() + lc->config.free_wait_ns;
	else if (clock_now_ns() >= room->deadline_ns)
		return false;
	empty_caches(lc, device);
	ranked_lock(&reclaim->lock);
	wait_returned(lc, room->returned_bytes, bytes, room->deadline_ns);
	ranked_unlock(&reclaim->lock);
	/* What was freed meanwhile may have gone into the cache. */
	empty_caches(lc, device);
	ranked_lock(&reclaim->lock);
	changed = reclaim->returned_bytes != room->returned_bytes;
	room->returned_bytes = reclaim->returned_bytes;
	ranked_unlock(&reclaim->lock);
	return changed;
}

uint64_t reclaim_held_bytes(struct lifecycle *lc, int device, uint64_t *ret_generation, bool *ret_settled)
{
	uint64_t held;

	ranked_lock(&lc->reclaim.lock);
	held = lc->reclaim.cache[device].bytes +
	       __atomic_load_n(&lc->stats->device[device].pending_bytes, __ATOMIC_RELAXED);
	*ret_generation = lc->reclaim.generation;
	*ret_settled = lc->reclaim.giving_back == 0;
	ranked_unlock(&lc->reclaim.lock);
	return held;
}

void reclaim_settle(struct lifecycle *lc, uint64_t wait_ns)
{
	uint64_t deadline = clock_now_ns() + wait_ns;

	ranked_lock(&lc->reclaim.lock);
	while (lc->reclaim.giving_back && clock_now_ns() < deadline)
		wait_changed(&lc->reclaim, 1000000);
	ranked_unlock(&lc->reclaim.lock);
}

bool reclaim_cache_take(struct lifecycle *lc, int device, uint64_t bytes, CUmemGenericAllocationHandle *ret_handle)
{
	struct extent_cache *cache = &lc->reclaim.cache[device];
	bool found = false;

	ranked_lock(&lc->reclaim.lock);
	for (unsigned i = cache->count; i-- > 0 && !found;) {
		if (cache->slots[i].bytes != bytes)
			continue;
		*ret_handle = cache->slots[i].handle;
		cache->bytes -= bytes;
		cache->slots[i] = cache->slots[--cache->count];
		__atomic_store_n(&lc->stats->device[device].cached_bytes, cache->bytes, __ATOMIC_RELAXED);
		lc->reclaim.generation++;
		found = true;
	}
	ranked_unlock(&lc->reclaim.lock);
	return found;
}
