/* lifecycle/residency.c
 * All changes share one commit: unmap what is at the address, map `fresh` there. They differ in what `fresh` is and how its
 * bytes come to be there, which is the table's column `prepare`. */
#include "lifecycle/residency.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/size.h"
#include "lifecycle/lifecycle.h"
#include "lifecycle/trace_note.h"
#include "lifecycle/pieces.h"

/* Between two looks at a mark. A 256 MiB copy takes 5 ms, and others are queued behind it. */
#define LOOK_NS 100000ull

/* What was missing, and who has it, as far as this process sees. */
static enum sublet_err no_room(struct lifecycle *lc, const struct residency_move *move, CUresult result, struct errinfo *reterr)
{
	const struct allocation *allocation = move->allocation;
	const struct stats_device *stats = &lc->stats->device[allocation->device];
	char needed[16], left[16], own[16];
	size_t free_bytes = 0, total = 0;

	if (lc->driver.MemGetInfo(&free_bytes, &total) != CUDA_SUCCESS)
		free_bytes = 0;
	free_bytes += backing_held_bytes(&move->fresh); /* what it has had of it already goes back */
	return errinfo_set(reterr, SUBLET_ERR_NOMEM, (int)result,
		"%s needs %s of device %d, which has %s free; this process has %s of managed memory there, the rest is native or of others",
		residency_change(move->from, move->to)->name, size_format(allocation->span_bytes, needed, sizeof(needed)),
		allocation->device, size_format(free_bytes, left, sizeof(left)),
		size_format(__atomic_load_n(&stats->residency_bytes[RESIDENCY_DEVICE], __ATOMIC_RELAXED), own, sizeof(own)));
}

static enum sublet_err refused(struct lifecycle *lc, const struct residency_move *move, const char *step, CUresult result,
	struct errinfo *reterr)
{
	if (result == CUDA_ERROR_OUT_OF_MEMORY && move->to == RESIDENCY_DEVICE)
		return no_room(lc, move, result, reterr);
	return errinfo_set(reterr, result == CUDA_ERROR_OUT_OF_MEMORY ? SUBLET_ERR_NOMEM : SUBLET_ERR_DRIVER, (int)result,
		"%s of %llu MiB at 0x%llx: %s refused (driver error %d)", residency_change(move->from, move->to)->name,
		(unsigned long long)(move->allocation->span_bytes >> 20), (unsigned long long)move->allocation->address, step,
		(int)result);
}

/* ---- copies ---- */

static CUresult copy(struct lifecycle *lc, struct residency_move *move, uint64_t to, uint64_t from, uint64_t bytes)
{
	CUresult result = lc->driver.MemcpyAsync(to, from, bytes, move->lane->stream);

	move->copying = move->copying || result == CUDA_SUCCESS;
	return result;
}

/* The mark that residency_wait looks at. */
static enum sublet_err mark(struct lifecycle *lc, struct residency_move *move, struct errinfo *reterr)
{
	CUresult result = contexts_mark_stream(&lc->contexts, move->lane->context_id, move->lane->stream, &move->done);

	return result == CUDA_SUCCESS ? SUBLET_OK : refused(lc, move, "cuEventRecord", result, reterr);
}

/* Wait until no copy of ours runs on the lane any more. False: the driver will not say, though the context is not lost. */
static bool quiesce(struct lifecycle *lc, struct residency_move *move)
{
	CUresult result = lc->driver.StreamSynchronize(move->lane->stream);

	return result == CUDA_SUCCESS || context_says_lost(result);
}

enum sublet_err residency_wait(struct lifecycle *lc, struct residency_move *move, struct errinfo *reterr)
{
	CUresult result;

	if (!move->copying)
		return SUBLET_OK;
	while ((result = contexts_mark_query_borrowed(&lc->contexts, &move->done)) == CUDA_ERROR_NOT_READY)
		clock_sleep_ns(LOOK_NS);
	context_mark_give_back(&lc->contexts, &move->done);
	if (result != CUDA_SUCCESS)
		return refused(lc, move, "the copy", result, reterr);
	move->copying = false;
	return SUBLET_OK;
}

/* ---- contents ---- */

static uint64_t hash_of(const struct host_extent *extent)
{
	return XXH3_64bits((const void *)(uintptr_t)extent->address, extent->bytes);
}

void residency_note_hash(struct host_extent *extent)
{
	extent->hash = hash_of(extent);
}

bool residency_is_as_noted(const struct host_extent *extent)
{
	return extent->hash == hash_of(extent);
}

static void note_hashes(struct allocation *allocation, struct host_extent *list)
{
	for (; list; list = list->next)
		residency_note_hash(list);
	allocation->hashed = true;
}

static enum sublet_err check_hashes(struct lifecycle *lc, struct residency_move *move, struct errinfo *reterr)
{
	const struct allocation *allocation = move->allocation;
	uint64_t offset = 0;

	if (!move->verify || !allocation->hashed)
		return SUBLET_OK;
	for (const struct host_extent *extent = allocation->host; extent; extent = extent->next) {
		if (!residency_is_as_noted(extent)) {
			move->mismatch = true;
			__atomic_fetch_add(&lc->stats->verify_mismatches, 1, __ATOMIC_RELAXED);
			errinfo_set(reterr, SUBLET_ERR_SYSTEM, 0,
				"SUBLET_VERIFY: %llu MiB at 0x%llx + 0x%llx are not the bytes that were offloaded; the allocation stays in host memory",
				(unsigned long long)(extent->bytes >> 20), (unsigned long long)allocation->address,
				(unsigned long long)offset);
			log_say(LOG_RESIDENCY, LOG_ERROR, WHOSE_SUBLET, "%s", reterr->text);
			return reterr->code;
		}
		offset += extent->bytes;
	}
	return SUBLET_OK;
}

/* ---- prepare ---- */

/* The extent size of an allocation that is made anew. On the device nothing is copied into it now, and whoever discards it will not
 * have it copied later. */
static uint64_t cut_at(const struct lifecycle *lc, const struct residency_move *move, uint64_t offset)
{
	const struct allocation *allocation = move->allocation;
	uint64_t cut = lifecycle_extent_bytes(lc, allocation->device, move->to != RESIDENCY_DEVICE);
	uint64_t rest = allocation->span_bytes - offset;

	return rest < cut ? rest : cut;
}

static size_t access_of(struct lifecycle *lc, const struct residency_move *move, CUmemAccessDesc *access,
	uint64_t *ret_generation)
{
	return contexts_access_list(&lc->contexts, move->allocation->device, access, ACCESS_MAX, ret_generation);
}

/* Freed memory and the cache are this process's own: they come back before a step counts as refused, as for a new allocation. */
static bool worth_another_try(struct lifecycle *lc, struct residency_move *move, CUresult result, uint64_t missing,
	struct reclaim_room *room)
{
	return result == CUDA_ERROR_OUT_OF_MEMORY && (reclaim_make_room(lc, move->allocation->device, missing, room) ||
							     mover_wait_for_room(lc, &move->last_try));
}

/* Device extents of the sizes of @host (of cut_at where it is NULL), mapped from @at on. Each copy is submitted as soon as
 * its extent is there, so that making the next one overlaps it. Where nothing is written into them one call gives access to all
 * of them: 32 calls took longer than making 32 GiB did (docs/measurements.md). */
static enum sublet_err bring_in(struct lifecycle *lc, struct residency_move *move, const struct host_extent *host, uint64_t at,
	struct errinfo *reterr)
{
	const struct allocation *allocation = move->allocation;
	const struct driver *driver = &lc->driver;
	const bool fills = host || lc->config.poisons;
	CUmemAccessDesc access[ACCESS_MAX];
	size_t access_count = access_of(lc, move, access, &move->generation);
	struct reclaim_room room;
	uint64_t offset = 0, opened = 0;
	uint32_t count = 0;

	reclaim_room_begin(lc, &room);
	for (const struct host_extent *extent = host; extent; extent = extent->next)
		count++;
	for (uint64_t end = 0; !host && end < allocation->span_bytes; count++)
		end += cut_at(lc, move, end);
	if (!backing_room(&move->fresh, count))
		return errinfo_set(reterr, SUBLET_ERR_SYSTEM, 0, "no host memory for %u extents", count);
	for (uint32_t i = 0; i < count; i++) {
		uint64_t bytes = host ? host->bytes : cut_at(lc, move, offset), rest = allocation->span_bytes - offset;
		const char *step;
		CUresult result;

		do {
			result = backing_add(&move->fresh, i, driver, &lc->devices[allocation->device].kind, bytes, at + offset, &step);
		} while (!move->fresh.extents[i].held && worth_another_try(lc, move, result, rest, &room));
		if (result == CUDA_SUCCESS && (fills || i + 1 == count)) {
			step = "cuMemSetAccess";
			do {
				result = driver->MemSetAccess(at + opened, offset + bytes - opened, access, access_count);
			} while (worth_another_try(lc, move, result, rest, &room));
			opened = offset + bytes;
		}
		if (result == CUDA_SUCCESS && host) {
			step = "cuMemcpyAsync";
			result = copy(lc, move, at + offset, host->address, bytes);
			host = host->next;
		} else if (result == CUDA_SUCCESS && fills) {
			step = "cuMemsetD8Async";
			result = driver->MemsetD8Async(at + offset, lc->config.poison, bytes, move->lane->stream);
			move->copying = move->copying || result == CUDA_SUCCESS;
		}
		if (result != CUDA_SUCCESS)
			return refused(lc, move, step, result, reterr);
		offset += bytes;
	}
	return move->copying ? mark(lc, move, reterr) : SUBLET_OK;
}

/* Nothing is mapped at the address, so the new pages go there at once. */
static enum sublet_err prepare_in(struct lifecycle *lc, struct residency_move *move, struct errinfo *reterr)
{
	enum sublet_err err = check_hashes(lc, move, reterr);

	return err ? err : bring_in(lc, move, move->allocation->host, move->allocation->address, reterr);
}

static enum sublet_err prepare_staged(struct lifecycle *lc, struct residency_move *move, struct errinfo *reterr)
{
	const struct allocation *allocation = move->allocation;

	if (!arena_take(&lc->devices[allocation->device].arena, allocation->span_bytes, &move->staging)) {
		move->staging = 0;
		return errinfo_set(reterr, SUBLET_ERR_NOMEM, 0, "no addresses left on device %d to stage %llu MiB", allocation->device,
			(unsigned long long)(allocation->span_bytes >> 20));
	}
	return bring_in(lc, move, allocation->host, move->staging, reterr);
}

/* `fresh` is the mapping of @host at the address. */
static enum sublet_err map_of_host(struct residency_move *move, const struct host_extent *host, struct errinfo *reterr)
{
	uint32_t count = 0;

	for (const struct host_extent *extent = host; extent; extent = extent->next)
		count++;
	if (!backing_room(&move->fresh, count))
		return errinfo_set(reterr, SUBLET_ERR_SYSTEM, 0, "no host memory for %u extents", count);
	for (uint32_t i = 0; i < count; i++, host = host->next)
		move->fresh.extents[i] = (struct extent){.handle = host->handle, .bytes = host->bytes};
	return SUBLET_OK;
}

static enum sublet_err prepare_out(struct lifecycle *lc, struct residency_move *move, struct errinfo *reterr)
{
	uint64_t at = move->allocation->address;
	enum sublet_err err;

	for (const struct host_extent *host = move->host; host && !move->host_ready; host = host->next) {
		CUresult result = copy(lc, move, host->address, at, host->bytes);

		if (result != CUDA_SUCCESS)
			return refused(lc, move, "cuMemcpyAsync", result, reterr);
		at += host->bytes;
	}
	err = move->copying ? mark(lc, move, reterr) : SUBLET_OK;
	if (!err && move->to == RESIDENCY_PARKED)
		err = map_of_host(move, move->host, reterr);
	return err;
}

static enum sublet_err prepare_parked(struct lifecycle *lc, struct residency_move *move, struct errinfo *reterr)
{
	enum sublet_err err = check_hashes(lc, move, reterr);

	return err ? err : map_of_host(move, move->allocation->host, reterr);
}

static enum sublet_err prepare_parked_anew(struct lifecycle *lc, struct residency_move *move, struct errinfo *reterr)
{
	for (const struct host_extent *host = move->host; host && lc->config.poisons; host = host->next)
		memset((void *)(uintptr_t)host->address, lc->config.poison, host->bytes);
	return map_of_host(move, move->host, reterr);
}

static enum sublet_err prepare_hole(struct lifecycle *lc, struct residency_move *move, struct errinfo *reterr)
{
	return SUBLET_OK;
}

static const struct residency_change changes[] = {
	/* from, to, name, host extents are taken, prepare                      driver calls: prepare | commit | after it */
	{RESIDENCY_DEVICE, RESIDENCY_PARKED, "park", true, prepare_out},
	/*     copy per extent | unmap; map per extent, set-access | release per extent */
	{RESIDENCY_DEVICE, RESIDENCY_HOST, "offload", true, prepare_out},
	/*     copy per extent | unmap | release per extent */
	{RESIDENCY_DEVICE, RESIDENCY_EMPTY, "discard", false, prepare_hole},
	/*     none | unmap | release per extent */
	{RESIDENCY_PARKED, RESIDENCY_DEVICE, "restore", false, prepare_staged},
	/*     create, map, set-access, copy per extent | unmap staging; unmap; map per extent, set-access | none */
	{RESIDENCY_PARKED, RESIDENCY_HOST, "offload", false, prepare_hole},
	/*     none | unmap | none */
	{RESIDENCY_PARKED, RESIDENCY_EMPTY, "discard", false, prepare_hole},
	/*     none | unmap | none */
	{RESIDENCY_HOST, RESIDENCY_DEVICE, "restore", false, prepare_in},
	/*     create, map, set-access, copy per extent | none | none */
	{RESIDENCY_HOST, RESIDENCY_PARKED, "park", false, prepare_parked},
	/*     none | map per extent, set-access | none */
	{RESIDENCY_HOST, RESIDENCY_EMPTY, "discard", false, prepare_hole},
	/*     none | none | none */
	{RESIDENCY_EMPTY, RESIDENCY_DEVICE, "restore", false, prepare_in},
	/*     create, map per extent, set-access | none | none */
	{RESIDENCY_EMPTY, RESIDENCY_PARKED, "park", true, prepare_parked_anew},
	/*     none | map per extent, set-access | none */
};

const struct residency_change *residency_change(enum residency from, enum residency to)
{
	for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
		if (changes[i].from == from && changes[i].to == to)
			return &changes[i];
	}
	return NULL;
}

enum sublet_err residency_take(struct lifecycle *lc, struct residency_move *move, struct errinfo *reterr)
{
	const struct allocation *allocation = move->allocation;
	struct host_extent **tail = &move->host;
	uint64_t offset = 0;

	if (!residency_change(move->from, move->to)->takes_host || move->host_ready)
		return SUBLET_OK;
	for (uint32_t i = 0; offset < allocation->span_bytes; i++) {
		uint64_t bytes = move->from == RESIDENCY_DEVICE ? allocation->backing.extents[i].bytes : cut_at(lc, move, offset);
		enum sublet_err err = host_pool_take(lc, allocation->device, bytes, tail, reterr);

		if (err) {
			host_pool_put(lc, move->host);
			move->host = NULL;
			return err;
		}
		tail = &(*tail)->next;
		offset += bytes;
	}
	return SUBLET_OK;
}

enum sublet_err residency_prepare(struct lifecycle *lc, struct residency_move *move, struct errinfo *reterr)
{
	move->since_ns = clock_now_ns();
	return residency_change(move->from, move->to)->prepare(lc, move, reterr);
}

/* ---- commit ---- */

/* Unmap what is mapped of @backing and give its handles back; @span_bytes of addresses become free with that. What the driver
 * refuses is the reclaimer's to offer again. */
static void release(struct lifecycle *lc, struct backing *backing, int device, uint64_t address, uint64_t span_bytes)
{
	uint64_t bytes = backing_held_bytes(backing);

	reclaim_returning_begin(lc);
	if (backing_give_back(backing, &lc->driver, address, NULL) != CUDA_SUCCESS)
		reclaim_strand_backing(lc, device, address, span_bytes, backing);
	else if (span_bytes)
		arena_return(&lc->devices[device].arena, address, span_bytes);
	reclaim_returning_end(lc, bytes);
}

/* From now on the allocation is @to, with @mapping (NULL: nothing) at its address. What was there before goes back. */
static void become(struct lifecycle *lc, struct residency_move *move, enum residency to, struct backing *mapping)
{
	struct allocation *allocation = move->allocation;
	const bool in_host = to == RESIDENCY_PARKED || to == RESIDENCY_HOST, fresh_bytes = !move->host_ready;
	struct host_extent *spare = NULL;
	struct backing old;

	ranked_lock(&lc->records.lock);
	backing_take_over(&old, &allocation->backing);
	if (mapping)
		backing_take_over(&allocation->backing, mapping);
	if (!in_host) {
		spare = allocation->host;
		allocation->host = NULL;
	} else if (move->host) {
		allocation->host = move->host;
		move->host = NULL;
	}
	if (!allocation->dead)
		stats_moved(&lc->stats->device[allocation->device], allocation->span_bytes, allocation->residency, to);
	trace_note_become(lc, allocation, to, move->since_ns, move->failed);
	allocation->residency = to;
	allocation->buffer_id = ++lc->records.next_buffer_id;
	ranked_unlock(&lc->records.lock);
	if (spare) {
		move->host = spare;
		move->host_ready = true;
	}
	release(lc, &old, allocation->device, allocation->address, 0);
	/* Kernels write where it is parked. On the device the old hashes stay for the way back (host_ready). */
	if (to == RESIDENCY_PARKED || to == RESIDENCY_EMPTY || (to == RESIDENCY_HOST && fresh_bytes))
		allocation->hashed = false;
	if (to == RESIDENCY_HOST && fresh_bytes && move->verify)
		note_hashes(allocation, allocation->host);
}

bool residency_still_wanted(struct lifecycle *lc, const struct residency_move *move)
{
	const struct allocation *allocation = move->allocation;
	bool wanted;

	ranked_lock(&lc->records.lock);
	/* Exposed pages stay. Where there are none the way back is open, or the gate would be shut for ever. */
	wanted = !allocation->dead && (!allocation->exposed || residency_is_hole(allocation->residency));
	ranked_unlock(&lc->records.lock);
	return wanted;
}

enum sublet_err residency_commit(struct lifecycle *lc, struct residency_move *move, struct errinfo *reterr)
{
	struct allocation *allocation = move->allocation;
	CUmemAccessDesc access[ACCESS_MAX];
	size_t access_count = 0;
	const char *step = "cuMemUnmap", *back_step;
	CUresult result = CUDA_SUCCESS;
	enum sublet_err err;

	if (!residency_still_wanted(lc, move))
		return errinfo_set(reterr, SUBLET_ERR_INVALID, 0,
			"the allocation at 0x%llx was freed, or its pages exported, while it was being moved",
			(unsigned long long)allocation->address);
	if (move->staging) {
		result = backing_unmap(&move->fresh, &lc->driver, move->staging);
		if (result != CUDA_SUCCESS)
			return refused(lc, move, step, result, reterr);
		arena_return(&lc->devices[allocation->device].arena, move->staging, allocation->span_bytes);
		move->staging = 0;
	}
	if (allocation->backing.count && !pieces_between(allocation)) /* else extent by extent, as it becomes what it shall be */
		result = backing_unmap(&allocation->backing, &lc->driver, allocation->address);
	if (result != CUDA_SUCCESS)
		return refused(lc, move, step, result, reterr);
	if (move->fresh.count && !move->fresh.extents[0].mapped) {
		access_count = access_of(lc, move, access, &move->generation);
		result = backing_map(&move->fresh, &lc->driver, allocation->address, access, access_count, &step);
	}
	if (result == CUDA_SUCCESS) {
		become(lc, move, move->to, &move->fresh);
		return SUBLET_OK;
	}
	err = refused(lc, move, step, result, reterr);
	/* Backwards. Nothing was at the address of what came from host memory or nowhere. */
	if (allocation->backing.count && backing_map(&allocation->backing, &lc->driver, allocation->address, access, access_count,
						 &back_step) != CUDA_SUCCESS) {
		log_limited(LOG_RESIDENCY, LOG_ERROR, WHOSE_DRIVER,
			"%s, and %s refused the old pages too: %llu MiB at 0x%llx wait in host memory, with the gate shut", reterr->text,
			back_step, (unsigned long long)(allocation->span_bytes >> 20), (unsigned long long)allocation->address);
		become(lc, move, RESIDENCY_HOST, NULL);
	}
	return err;
}

void residency_undo(struct lifecycle *lc, struct residency_move *move)
{
	const struct allocation *allocation = move->allocation;
	bool over = !move->copying || quiesce(lc, move);

	context_mark_give_back(&lc->contexts, &move->done);
	move->copying = false;
	if (!over) {
		reclaim_take_parts(lc, allocation->device, move->staging ? move->staging : allocation->address,
			move->staging ? allocation->span_bytes : 0, &move->fresh, move->host);
		lc->mover.unsure = true;
		move->host = NULL;
	} else if (move->staging)
		release(lc, &move->fresh, allocation->device, move->staging, allocation->span_bytes);
	else if (move->fresh.count)
		release(lc, &move->fresh, allocation->device, allocation->address, 0);
	move->staging = 0;
	host_pool_put(lc, move->host);
	move->host = NULL;
	move->host_ready = false;
}

/* Peers that came or went since. A refusal is said, as memory_replay_access says it. */
static void replay_peers(struct lifecycle *lc, struct residency_move *move)
{
	const struct allocation *allocation = move->allocation;
	CUmemAccessDesc access[ACCESS_MAX];
	size_t count = access_of(lc, move, access, &move->generation);
	CUresult result = CUDA_SUCCESS;

	if (allocation->backing.count && !pieces_between(allocation))
		result = lc->driver.MemSetAccess(allocation->address, allocation->span_bytes, access, count);
	if (result != CUDA_SUCCESS)
		log_limited(LOG_CONTEXT, LOG_WARN, WHOSE_DRIVER,
			"access rights of a managed allocation on device %d could not be changed (error %d)", allocation->device, (int)result);
}

void residency_settle(struct lifecycle *lc, struct residency_move *move)
{
	struct allocation *allocation = move->allocation;
	bool dead;

	host_pool_put(lc, move->host);
	move->host = NULL;
	/* A change of peers leaves out what is moving, so it is looked at in the moment in which this ends. */
	for (;;) {
		ranked_lock(&lc->records.lock);
		dead = allocation->dead;
		if (dead || __atomic_load_n(&lc->contexts.peer_generation, __ATOMIC_ACQUIRE) == move->generation)
			break;
		ranked_unlock(&lc->records.lock);
		replay_peers(lc, move);
	}
	allocation->moving = false;
	if (!allocation->host)
		allocation->hashed = false;
	ranked_unlock(&lc->records.lock);
	if (dead)
		reclaim_take(lc, allocation);
}
