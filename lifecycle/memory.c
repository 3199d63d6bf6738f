/* lifecycle/memory.c
 * Prepare may fail and is undone; publish is the commit. Nothing is findable before it is fully mapped. */
#include "lifecycle/memory.h"

#include "base/log.h"

struct cache_request {
	struct lifecycle *lc;
	int device;
};

static bool take_from_cache(void *arg, uint64_t bytes, CUmemGenericAllocationHandle *ret_handle)
{
	struct cache_request *request = arg;

	return reclaim_cache_take(request->lc, request->device, bytes, ret_handle);
}

/* Prepare: a record with mapped pages. @ret_generation: the peers it was mapped for. */
static enum sublet_err prepare(struct lifecycle *lc, struct allocation *allocation, uint64_t *ret_generation,
	struct errinfo *reterr)
{
	struct cache_request request = {lc, allocation->device};
	struct extent_source source = {take_from_cache, &request};
	CUmemAccessDesc access[ACCESS_MAX];
	size_t access_count =
		contexts_access_list(&lc->contexts, allocation->device, access, ACCESS_MAX, ret_generation);

	return backing_create(&allocation->backing, &lc->driver, &lc->devices[allocation->device].kind, &source,
		allocation->address, allocation->span_bytes, lifecycle_extent_bytes(lc, allocation->device), access, access_count,
		reterr);
}

/* Commit. Peers enabled since the pages were mapped are given their rights first. From here on another thread may end the
 * record's context and with it the record: it is counted before, and not looked at after. */
static enum sublet_err publish(struct lifecycle *lc, struct allocation *allocation, uint64_t generation,
	struct errinfo *reterr)
{
	struct stats_device *stats = &lc->stats->device[allocation->device];
	uint64_t span_bytes = allocation->span_bytes, size_bytes = allocation->size_bytes;
	CUresult result = CUDA_SUCCESS;
	bool published;

	for (;;) {
		CUmemAccessDesc access[ACCESS_MAX];
		size_t count;

		ranked_lock(&lc->records.lock);
		if (__atomic_load_n(&lc->contexts.peer_generation, __ATOMIC_ACQUIRE) == generation)
			break;
		ranked_unlock(&lc->records.lock);
		count = contexts_access_list(&lc->contexts, allocation->device, access, ACCESS_MAX, &generation);
		result = lc->driver.MemSetAccess(allocation->address, span_bytes, access, count);
		if (result != CUDA_SUCCESS) {
			backing_give_back(&allocation->backing, &lc->driver, allocation->address, NULL);
			return errinfo_set(reterr, SUBLET_ERR_DRIVER, (int)result,
				"cuMemSetAccess refused the rights of a new peer (driver error %d)", (int)result);
		}
	}
	stats_allocated(stats, span_bytes, size_bytes);
	allocation->rule = client_rule(&lc->client, allocation);
	published = records_publish_locked(&lc->records, allocation);
	ranked_unlock(&lc->records.lock);
	if (published)
		return SUBLET_OK;
	stats_freed(stats, span_bytes, size_bytes, RESIDENCY_DEVICE);
	backing_give_back(&allocation->backing, &lc->driver, allocation->address, NULL);
	return errinfo_set(reterr, SUBLET_ERR_SYSTEM, 0, "the look-up table could not grow");
}

static enum sublet_err create(struct lifecycle *lc, struct allocation *allocation, struct errinfo *reterr)
{
	struct reclaim_room room;
	uint64_t peers;
	enum sublet_err err;

	reclaim_room_begin(lc, &room);
	do {
		err = prepare(lc, allocation, &peers, reterr);
		/* What the driver did not take back of a failed attempt lies at the address: not again over it. */
	} while (err == SUBLET_ERR_NOMEM && !allocation->backing.count &&
		 reclaim_make_room(lc, allocation->device, allocation->span_bytes, &room));
	if (err)
		return err;
	return publish(lc, allocation, peers, reterr);
}

enum memory_verdict memory_alloc(struct lifecycle *lc, size_t size_bytes, CUdeviceptr *ret_address, CUresult *ret_result,
	enum stats_native *ret_why)
{
	struct allocation *allocation;
	struct device_state *state;
	struct driver_scope scope;
	struct errinfo error;
	enum sublet_err err;
	CUcontext context = NULL;
	CUdevice device;
	uint64_t granularity, context_id, address, span_bytes;

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
	if (!context_id)
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
	driver_enter(&lc->driver, &scope);
	err = create(lc, allocation, &error);
	driver_leave(&lc->driver, &scope);
	if (err == SUBLET_OK) {
		*ret_address = address;
		*ret_result = CUDA_SUCCESS;
		return MEMORY_ANSWERED;
	}
	reclaim_unpublished(lc, allocation);
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

static enum memory_verdict free_as(struct lifecycle *lc, CUdeviceptr address, bool stream_ordered, CUresult *ret_result)
{
	const struct allocation_view *view;
	struct detached detached;
	struct driver_scope scope;

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
		/* Cannot fail: its leaves exist since it was first published. */
		(void)records_reattach(&lc->records, detached.allocation);
		return MEMORY_ANSWERED;
	}
	view = &detached.view;
	stats_freed(&lc->stats->device[view->device], view->span_bytes, view->size_bytes, view->residency);
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

void memory_replay_access(struct lifecycle *lc, int to, int revoked)
{
	CUmemAccessDesc access[ACCESS_MAX];
	uint64_t generation;
	struct driver_scope scope;
	size_t count = contexts_access_list(&lc->contexts, to, access, ACCESS_MAX - 1, &generation);

	if (revoked >= 0) {
		for (size_t i = 0; i < count; i++) {
			if (access[i].location.id == revoked) /* another pair of contexts still has it */
				return;
		}
		access[count] = access[0];
		access[count].location.id = revoked;
		access[count++].flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
	}
	driver_enter(&lc->driver, &scope);
	ranked_lock(&lc->records.lock);
	for (struct allocation *allocation = lc->records.live; allocation; allocation = allocation->next) {
		CUresult result;

		/* What is moving gets its rights from the mover, what is away when it comes back. */
		if (allocation->device != to || allocation->moving || !allocation->backing.count)
			continue;
		result = lc->driver.MemSetAccess(allocation->address, allocation->span_bytes, access, count);
		if (result != CUDA_SUCCESS)
			log_limited(LOG_CONTEXT, LOG_WARN, WHOSE_DRIVER,
				"access rights of a managed allocation on device %d could not be changed (error %d)", to, (int)result);
	}
	ranked_unlock(&lc->records.lock);
	driver_leave(&lc->driver, &scope);
}
