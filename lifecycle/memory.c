/* lifecycle/memory.c
 * Prepare may fail and is undone; publish is the commit. Nothing is findable before it is fully mapped. */
#include "lifecycle/memory.h"

#include "base/log.h"

/* As long as pages on their way back are waited for: 16 GiB take 12 ms (FACTS.md). */
#define SETTLE_NS 200000000ull

struct cache_request {
	struct lifecycle *lc;
	int device;
};

static bool take_from_cache(void *arg, uint64_t bytes, CUmemGenericAllocationHandle *ret_handle)
{
	struct cache_request *request = arg;

	return reclaim_cache_take(request->lc, request->device, bytes, ret_handle);
}

/* What one mapping is given, and the state of the peers that it is from. */
struct rights {
	CUmemAccessDesc list[ACCESS_MAX];
	size_t count;
	uint64_t generation;
};

static void read_rights(struct lifecycle *lc, int device, struct rights *ret_rights)
{
	ret_rights->count =
		contexts_access_list(&lc->contexts, device, ret_rights->list, ACCESS_MAX, &ret_rights->generation);
}

static bool names(const struct rights *rights, int device)
{
	for (size_t i = 0; i < rights->count; i++) {
		if (rights->list[i].location.id == device)
			return true;
	}
	return false;
}

/* Set-access leaves alone what it does not name: who had a right in @before and has none in @now is named as well. */
static void revoke_others(struct rights *now, const struct rights *before)
{
	for (size_t i = 0; i < before->count && now->count < ACCESS_MAX; i++) {
		CUmemAccessDesc gone = before->list[i];

		if (gone.flags == CU_MEM_ACCESS_FLAGS_PROT_NONE || names(now, gone.location.id))
			continue;
		gone.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
		now->list[now->count++] = gone;
	}
}

/* Prepare: a record with mapped pages. @ret_rights: what it was mapped with. */
static enum sublet_err prepare(struct lifecycle *lc, struct allocation *allocation, struct rights *ret_rights,
	struct errinfo *reterr)
{
	struct cache_request request = {lc, allocation->device};
	struct extent_source source = {take_from_cache, &request};

	read_rights(lc, allocation->device, ret_rights);
	return backing_create(&allocation->backing, &lc->driver, &lc->devices[allocation->device].kind, &source,
		allocation->address, allocation->span_bytes, lifecycle_extent_bytes(lc, allocation->device, true), ret_rights->list,
		ret_rights->count, reterr);
}

/* Commit. Peers that were enabled or disabled since the pages were mapped are given or lose their rights first. From here on
 * another thread may end the record's context and with it the record: it is counted before, and not looked at after. */
static enum sublet_err publish(struct lifecycle *lc, struct allocation *allocation, const struct caller *caller,
	struct rights *rights, struct errinfo *reterr)
{
	struct stats_device *stats = &lc->stats->device[allocation->device];
	uint64_t span_bytes = allocation->span_bytes, size_bytes = allocation->size_bytes;
	CUresult result = CUDA_SUCCESS;
	bool published;

	for (;;) {
		struct rights before;

		ranked_lock(&lc->records.lock);
		if (__atomic_load_n(&lc->contexts.peer_generation, __ATOMIC_ACQUIRE) == rights->generation)
			break;
		ranked_unlock(&lc->records.lock);
		before = *rights;
		read_rights(lc, allocation->device, rights);
		revoke_others(rights, &before);
		result = lc->driver.MemSetAccess(allocation->address, span_bytes, rights->list, rights->count);
		if (result != CUDA_SUCCESS) {
			backing_give_back(&allocation->backing, &lc->driver, allocation->address, NULL);
			ledger_done(lc, allocation->device, span_bytes);
			return errinfo_set(reterr, SUBLET_ERR_DRIVER, (int)result,
				"cuMemSetAccess refused the rights of a new peer (driver error %d)", (int)result);
		}
	}
	ledger_made(lc, allocation);
	allocation->rule = client_rule(&lc->client, allocation, caller);
	published = records_publish_locked(&lc->records, allocation);
	ranked_unlock(&lc->records.lock);
	if (published)
		return SUBLET_OK;
	stats_freed(stats, span_bytes, size_bytes, RESIDENCY_DEVICE);
	backing_give_back(&allocation->backing, &lc->driver, allocation->address, NULL);
	return errinfo_set(reterr, SUBLET_ERR_SYSTEM, 0, "the look-up table could not grow");
}

/* *ret_refused: it is not the driver who has no room, but the policy who leaves none. */
static enum sublet_err create(struct lifecycle *lc, struct allocation *allocation, const struct caller *caller, bool *ret_refused,
	struct errinfo *reterr)
{
	const uint64_t span_bytes = allocation->span_bytes;
	const int device = allocation->device;
	struct reclaim_room room;
	struct rights rights;
	enum sublet_err err;
	bool tried_again = false;

	reclaim_room_begin(lc, &room);
	for (;;) {
		err = ledger_take(lc, device, span_bytes, reterr);
		*ret_refused = err != SUBLET_OK;
		if (!err)
			err = prepare(lc, allocation, &rights, reterr);
		if (err && !*ret_refused)
			ledger_done(lc, device, span_bytes);
		/* What the driver did not take back of a failed attempt lies at the address: not again over it. */
		if (err != SUBLET_ERR_NOMEM || allocation->backing.count)
			break;
		if (reclaim_make_room(lc, device, span_bytes, &room))
			continue;
		/* Bytes on their way into the cache are counted twice for a moment, and another thread may be in the middle of a free. */
		if (!*ret_refused || tried_again)
			break;
		reclaim_settle(lc, SETTLE_NS);
		tried_again = true;
	}
	if (err)
		return err;
	return publish(lc, allocation, caller, &rights, reterr);
}

/* cuMemAlloc and cuMemFreeAsync tell the error of a lost context; the calls that do their work here need no context. */
static CUresult error_of_lost(struct lifecycle *lc, CUcontext context)
{
	struct driver_scope scope;
	CUresult result;

	driver_enter(&lc->driver, &scope);
	result = contexts_lost(&lc->contexts, context);
	driver_leave(&lc->driver, &scope);
	return result;
}

enum memory_verdict memory_alloc(struct lifecycle *lc, size_t size_bytes, CUdeviceptr *ret_address, CUresult *ret_result,
	enum stats_native *ret_why, void *return_address)
{
	struct caller caller;
	struct allocation *allocation;
	struct device_state *state;
	struct driver_scope scope;
	struct errinfo error;
	enum sublet_err err;
	CUcontext context = NULL;
	CUdevice device;
	uint64_t granularity, context_id, address, span_bytes;
	bool refused;

	*ret_why = STATS_NATIVE_SMALL;
	if (!ret_address || size_bytes == 0 || size_bytes < lc->config.min_size_bytes)
		return MEMORY_PASS;
	*ret_why = STATS_NATIVE_CAPTURE;
	if (captures_any(&lc->captures))
		return MEMORY_PASS;
	*ret_why = STATS_NATIVE_REFUSED;
	if (lc->driver.CtxGetCurrent(&context) != CUDA_SUCCESS || !context ||
		lc->driver.CtxGetDevice(&device) != CUDA_SUCCESS || !lifecycle_device(lc, device))
		return MEMORY_PASS;
	state = &lc->devices[device];
	/* More than the device has: the driver knows best how to refuse it. */
	if (size_bytes > state->total_bytes)
		return MEMORY_PASS;
	/* A context that is not noted would not be waited for when the memory is freed. */
	context_id = contexts_note(&lc->contexts, context, device);
	if (!context_id || error_of_lost(lc, context) != CUDA_SUCCESS)
		return MEMORY_PASS;
	allocation = records_new(&lc->records);
	if (!allocation)
		return MEMORY_PASS;
	granularity = state->kind.granularity_bytes > GRANULE_BYTES ? state->kind.granularity_bytes : GRANULE_BYTES;
	allocation->size_bytes = size_bytes;
	allocation->span_bytes = (size_bytes + granularity - 1) & ~(granularity - 1);
	allocation->device = device;
	allocation->context = context;
	allocation->context_id = context_id;
	if (!arena_take(&state->arena, allocation->span_bytes, &allocation->address)) {
		log_limited(LOG_MEMORY, LOG_WARN, WHOSE_NONE, "no addresses left on device %d: %llu MiB stay native", device,
			(unsigned long long)(size_bytes >> 20));
		records_recycle(&lc->records, allocation);
		return MEMORY_PASS;
	}

	address = allocation->address;
	span_bytes = allocation->span_bytes;
	caller_find(__atomic_load_n(&lc->caller_wants, __ATOMIC_ACQUIRE), return_address, &caller);
	allocation->site = sites_find(&lc->sites, &caller);
	driver_enter(&lc->driver, &scope);
	err = create(lc, allocation, &caller, &refused, &error);
	driver_leave(&lc->driver, &scope);
	if (err == SUBLET_OK) {
		*ret_address = address;
		*ret_result = CUDA_SUCCESS;
		return MEMORY_ANSWERED;
	}
	reclaim_unpublished(lc, allocation);
	if (refused) {
		log_limited(LOG_MEMORY, LOG_WARN, WHOSE_POLICY, "%s; the program is told that it is out of memory", error.text);
		*ret_result = CUDA_ERROR_OUT_OF_MEMORY;
		return MEMORY_ANSWERED;
	}
	/* Rounded up to whole pages it may not fit where the driver, who packs, still has room. */
	if (err == SUBLET_ERR_NOMEM && span_bytes > size_bytes)
		return MEMORY_PASS;
	if (err == SUBLET_ERR_NOMEM) {
		*ret_result = CUDA_ERROR_OUT_OF_MEMORY;
		return MEMORY_ANSWERED;
	}
	log_limited(LOG_MEMORY, LOG_WARN, WHOSE_DRIVER, "%s; the allocation stays native", error.text);
	return MEMORY_PASS;
}

/* Its free was refused: it is the application's as before, unless its context has ended meanwhile, which did not find it.
 * An end that is still under way will, and then it may be somebody else's record by now. */
static void put_back(struct lifecycle *lc, struct allocation *allocation, const struct allocation_view *was)
{
	uint64_t serial = allocation->serial, context_id = allocation->context_id;
	struct driver_scope scope;
	struct detached again;

	/* Cannot fail: its leaves exist since it was first published. */
	(void)records_reattach(&lc->records, allocation);
	if (contexts_has(&lc->contexts, was->context, context_id) ||
		!records_detach_same(&lc->records, allocation, serial, &again))
		return;
	stats_freed(&lc->stats->device[was->device], was->span_bytes, was->size_bytes, again.view.residency);
	if (!again.allocation) /* the mover has it */
		return;
	driver_enter(&lc->driver, &scope);
	reclaim_free_idle(lc, again.allocation);
	driver_leave(&lc->driver, &scope);
}

static enum memory_verdict free_as(struct lifecycle *lc, CUdeviceptr address, bool stream_ordered, CUresult *ret_result)
{
	const struct allocation_view *view;
	struct detached detached;
	struct driver_scope scope;
	CUcontext context = NULL;

	/* One that waits is told by the wait. */
	if (stream_ordered && records_starts_at(&lc->records, address) &&
		lc->driver.CtxGetCurrent(&context) == CUDA_SUCCESS && context) {
		*ret_result = error_of_lost(lc, context);
		if (*ret_result != CUDA_SUCCESS)
			return MEMORY_ANSWERED;
	}
	if (!records_detach(&lc->records, address, &detached))
		return MEMORY_PASS;
	*ret_result = CUDA_SUCCESS;
	/* One that is being moved is the mover's to give back: nothing in flight uses it but the mover's copies. */
	if (detached.allocation) {
		driver_enter(&lc->driver, &scope);
		*ret_result = reclaim_free(lc, detached.allocation, stream_ordered);
		driver_leave(&lc->driver, &scope);
	}
	if (*ret_result != CUDA_SUCCESS) {
		put_back(lc, detached.allocation, &detached.view);
		return MEMORY_ANSWERED;
	}
	view = &detached.view;
	if (!detached.allocation)
		stats_freed(&lc->stats->device[view->device], view->span_bytes, view->size_bytes, view->residency);
	ledger_settle(lc, false);
	return MEMORY_ANSWERED;
}

enum memory_verdict memory_free(struct lifecycle *lc, CUdeviceptr address, CUresult *ret_result)
{
	return free_as(lc, address, false, ret_result);
}

enum memory_verdict memory_free_async(struct lifecycle *lc, CUdeviceptr address, CUresult *ret_result)
{
	return free_as(lc, address, true, ret_result);
}

/* False: another pair of contexts still gives @revoked (-1: none) its right, and there is nothing to change. */
static bool rights_now(struct lifecycle *lc, int to, int revoked, struct rights *ret_rights)
{
	struct rights before = {.list[0].location = {CU_MEM_LOCATION_TYPE_DEVICE, revoked}, .count = revoked >= 0};

	before.list[0].flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	read_rights(lc, to, ret_rights);
	if (revoked >= 0 && names(ret_rights, revoked))
		return false;
	revoke_others(ret_rights, &before);
	return true;
}

CUresult memory_replay_access(struct lifecycle *lc, int to, int revoked)
{
	struct rights rights;
	struct driver_scope scope;
	CUresult first = CUDA_SUCCESS;

	if (to >= lc->device_count) /* nothing of Sublet's there */
		return CUDA_SUCCESS;
	/* Not an older state over a newer one: who changes peers from here on replays after us. */
	for (;;) {
		if (!rights_now(lc, to, revoked, &rights))
			return CUDA_SUCCESS;
		driver_enter(&lc->driver, &scope);
		ranked_lock(&lc->records.lock);
		if (__atomic_load_n(&lc->contexts.peer_generation, __ATOMIC_ACQUIRE) == rights.generation)
			break;
		ranked_unlock(&lc->records.lock);
		driver_leave(&lc->driver, &scope);
	}
	for (struct allocation *allocation = lc->records.live; allocation; allocation = allocation->next) {
		CUresult result;

		/* What is moving gets its rights from the mover, what is away when it comes back. */
		if (allocation->device != to || allocation->moving || !allocation->backing.count ||
			residency_is_hole(allocation->residency))
			continue;
		result = lc->driver.MemSetAccess(allocation->address, allocation->span_bytes, rights.list, rights.count);
		if (result == CUDA_SUCCESS)
			continue;
		if (first == CUDA_SUCCESS)
			first = result;
		log_limited(LOG_CONTEXT, LOG_WARN, WHOSE_DRIVER,
			"access rights of a managed allocation on device %d could not be changed (error %d)", to, (int)result);
	}
	ranked_unlock(&lc->records.lock);
	driver_leave(&lc->driver, &scope);
	return first;
}
