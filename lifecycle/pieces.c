/* lifecycle/pieces.c
 * Each call ends as it began or one extent further. A copy is waited for before its source goes. */
#include "lifecycle/pieces.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "lifecycle/lifecycle.h"
#include "lifecycle/trace_note.h"

#define LOOK_NS 50000ull

static enum sublet_err refused(const struct allocation *allocation, const char *step, CUresult result, struct errinfo *reterr)
{
	return errinfo_set(reterr, result == CUDA_ERROR_OUT_OF_MEMORY ? SUBLET_ERR_NOMEM : SUBLET_ERR_DRIVER, (int)result,
		"one extent of %llu MiB at 0x%llx: %s refused (driver error %d)", (unsigned long long)(allocation->span_bytes >> 20),
		(unsigned long long)allocation->address, step, (int)result);
}

/* The link that holds the end of the list of host extents, and how many are before it. */
static struct host_extent **end_of_list(struct allocation *allocation, uint32_t *ret_count)
{
	struct host_extent **end = &allocation->host;

	*ret_count = 0;
	while (*end) {
		end = &(*end)->next;
		++*ret_count;
	}
	return end;
}

/* Who reads the list under RANK_RECORDS (needs.c, for a plan on the thread that reads messages) does not go on into the pool's. */
static void hang(struct lifecycle *lc, struct host_extent **end, struct host_extent *host)
{
	ranked_lock(&lc->records.lock);
	*end = host;
	ranked_unlock(&lc->records.lock);
}

static uint64_t offset_of(const struct allocation *allocation, uint32_t index)
{
	uint64_t offset = 0;

	for (uint32_t i = 0; i < index; i++)
		offset += allocation->backing.extents[i].bytes;
	return offset;
}

static void become(struct lifecycle *lc, struct allocation *allocation, enum residency to)
{
	ranked_lock(&lc->records.lock);
	if (!allocation->dead)
		stats_moved(&lc->stats->device[allocation->device], allocation->span_bytes, allocation->residency, to);
	trace_note_become(lc, allocation, to, 0, false);
	allocation->residency = to;
	allocation->buffer_id = ++lc->records.next_buffer_id;
	ranked_unlock(&lc->records.lock);
}

/* @ret_over: nothing of ours runs any more, whatever became of it. */
static CUresult copy(struct lifecycle *lc, const struct copy_lane *lane, uint64_t to, uint64_t from, uint64_t bytes, bool *ret_over)
{
	struct context_mark done = {0};
	CUresult result = lc->driver.MemcpyAsync(to, from, bytes, lane->stream);

	*ret_over = result != CUDA_SUCCESS;
	if (result != CUDA_SUCCESS)
		return result;
	result = contexts_mark_stream(&lc->contexts, lane->context_id, lane->stream, &done);
	if (result == CUDA_SUCCESS) {
		while ((result = contexts_mark_query_borrowed(&lc->contexts, &done)) == CUDA_ERROR_NOT_READY)
			clock_sleep_ns(LOOK_NS);
		context_mark_give_back(&lc->contexts, &done);
	}
	if (result != CUDA_SUCCESS) {
		const CUresult end = lc->driver.StreamSynchronize(lane->stream);

		*ret_over = end == CUDA_SUCCESS || context_says_lost(end);
	} else {
		*ret_over = true;
	}
	return result;
}

/* An extent that is unmapped, or never was, goes back to the driver; what it refuses is offered again later. */
static void let_go(struct lifecycle *lc, int device, struct extent *extent)
{
	const uint64_t bytes = extent->bytes;

	reclaim_returning_begin(lc);
	if (lc->driver.MemRelease(extent->handle) != CUDA_SUCCESS)
		reclaim_strand_extent(lc, device, extent);
	extent->held = false;
	reclaim_returning_end(lc, bytes);
}

/* All of them have left: what is left of the backing is their places. */
static void all_out(struct lifecycle *lc, struct allocation *allocation)
{
	struct backing none;

	ranked_lock(&lc->records.lock);
	backing_take_over(&none, &allocation->backing);
	ranked_unlock(&lc->records.lock);
	backing_give_back(&none, &lc->driver, allocation->address, NULL);
}

enum sublet_err piece_out(struct lifecycle *lc, struct copy_lane *lane, struct allocation *allocation, uint64_t *ret_bytes,
	struct errinfo *reterr)
{
	struct host_extent **end, *host;
	struct extent *extent;
	enum sublet_err err;
	uint64_t at;
	uint32_t index;
	CUresult result;
	bool over;

	end = end_of_list(allocation, &index);
	extent = &allocation->backing.extents[index];
	at = allocation->address + offset_of(allocation, index);
	err = host_pool_take(lc, allocation->device, extent->bytes, &host, reterr);
	if (err)
		return err;
	if (allocation->residency == RESIDENCY_DEVICE)
		become(lc, allocation, RESIDENCY_HOST);
	result = copy(lc, lane, host->address, at, extent->bytes, &over);
	if (result != CUDA_SUCCESS && !over) {
		struct backing none = {0};

		reclaim_take_parts(lc, allocation->device, allocation->address, 0, &none, host);
		lc->mover.unsure = true;
	} else if (result != CUDA_SUCCESS) {
		host_pool_put(lc, host);
	}
	if (result != CUDA_SUCCESS)
		return refused(allocation, "the copy", result, reterr);
	result = lc->driver.MemUnmap(at, extent->bytes);
	if (result != CUDA_SUCCESS) {
		host_pool_put(lc, host);
		return refused(allocation, "cuMemUnmap", result, reterr);
	}
	*ret_bytes = extent->bytes;
	extent->mapped = false;
	let_go(lc, allocation->device, extent);
	if (!index)
		allocation->hashed = lc->config.verify;
	if (allocation->hashed)
		residency_note_hash(host);
	host->next = NULL;
	hang(lc, end, host);
	if (index + 1 == allocation->backing.count)
		all_out(lc, allocation);
	return SUBLET_OK;
}

/* Places for all of an allocation that is in host memory. */
static bool make_places(struct lifecycle *lc, struct allocation *allocation, uint32_t count)
{
	struct backing places;
	uint32_t i = 0;

	if (!backing_room(&places, count))
		return false;
	for (const struct host_extent *host = allocation->host; host; host = host->next)
		places.extents[i++].bytes = host->bytes;
	ranked_lock(&lc->records.lock);
	backing_take_over(&allocation->backing, &places);
	ranked_unlock(&lc->records.lock);
	return true;
}

/* Without any of its extents on the device it is `host` again, and nothing else. */
static void drop_places(struct lifecycle *lc, struct allocation *allocation, uint32_t in_host)
{
	if (in_host == allocation->backing.count)
		all_out(lc, allocation);
}

/* What came to the device in vain. @over: no copy writes into it any more. */
static void send_back(struct lifecycle *lc, const struct allocation *allocation, struct extent *extent, uint64_t at, bool over)
{
	struct backing alone;

	(void)backing_room(&alone, 1); /* needs no heap */
	alone.single = *extent;
	extent->held = extent->mapped = false;
	if (!over) {
		reclaim_take_parts(lc, allocation->device, at, 0, &alone, NULL);
		lc->mover.unsure = true;
		return;
	}
	reclaim_returning_begin(lc);
	if (backing_give_back(&alone, &lc->driver, at, NULL) != CUDA_SUCCESS)
		reclaim_strand_backing(lc, allocation->device, at, 0, &alone);
	reclaim_returning_end(lc, extent->bytes);
}

enum sublet_err piece_in(struct lifecycle *lc, struct copy_lane *lane, struct allocation *allocation, uint64_t *ret_bytes,
	struct errinfo *reterr)
{
	CUmemAccessDesc access[ACCESS_MAX];
	const char *step = "cuMemSetAccess";
	struct host_extent **end, *host;
	uint64_t at, bytes, generation;
	struct extent *extent;
	uint32_t count;
	size_t access_count;
	CUresult result;
	bool over = true;

	end_of_list(allocation, &count);
	if (!allocation->backing.count && !make_places(lc, allocation, count))
		return errinfo_set(reterr, SUBLET_ERR_SYSTEM, 0, "no host memory for the list of %u extents", count);
	if (!count) { /* none has left */
		become(lc, allocation, RESIDENCY_DEVICE);
		*ret_bytes = 0;
		return SUBLET_OK;
	}
	for (end = &allocation->host; (*end)->next; end = &(*end)->next)
		;
	host = *end;
	bytes = host->bytes;
	if (allocation->hashed && !residency_is_as_noted(host)) {
		__atomic_fetch_add(&lc->stats->verify_mismatches, 1, __ATOMIC_RELAXED);
		drop_places(lc, allocation, count);
		return errinfo_set(reterr, SUBLET_ERR_SYSTEM, 0,
			"SUBLET_VERIFY: %llu MiB of the allocation at 0x%llx are not the bytes that were offloaded; it stays in host memory",
			(unsigned long long)(bytes >> 20), (unsigned long long)allocation->address);
	}
	extent = &allocation->backing.extents[count - 1];
	at = allocation->address + offset_of(allocation, count - 1);
	result = backing_add(&allocation->backing, count - 1, &lc->driver, &lc->devices[allocation->device].kind, bytes, at, &step);
	if (result != CUDA_SUCCESS) {
		if (extent->held) /* the driver did not take it back */
			reclaim_strand_extent(lc, allocation->device, extent);
		extent->held = false;
		drop_places(lc, allocation, count);
		return refused(allocation, step, result, reterr);
	}
	access_count = contexts_access_list(&lc->contexts, allocation->device, access, ACCESS_MAX, &generation);
	step = "cuMemSetAccess";
	result = lc->driver.MemSetAccess(at, bytes, access, access_count);
	if (result == CUDA_SUCCESS) {
		step = "the copy";
		result = copy(lc, lane, at, host->address, bytes, &over);
	}
	if (result != CUDA_SUCCESS) {
		send_back(lc, allocation, extent, at, over);
		drop_places(lc, allocation, count);
		return refused(allocation, step, result, reterr);
	}
	hang(lc, end, NULL);
	host_pool_put(lc, host);
	if (!allocation->host) {
		become(lc, allocation, RESIDENCY_DEVICE);
		allocation->hashed = false;
	}
	*ret_bytes = bytes;
	return SUBLET_OK;
}
