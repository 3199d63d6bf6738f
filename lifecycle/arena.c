/* lifecycle/arena.c
 * Free ranges live in stacks by exact size. Merging is rare (the reservation is tens of times the device's memory), so it
 * may cost a sort. */
#include "lifecycle/arena.h"

#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "lifecycle/granules.h"

struct arena_bucket {
	uint64_t bytes; /* of each range */
	uint64_t *addresses;
	size_t count, capacity;
};

struct range {
	uint64_t address, bytes;
};

enum sublet_err arena_init(struct arena *arena, const struct driver *driver, struct ranked_lock *lock, uint64_t want_bytes,
	uint64_t least_bytes, struct errinfo *reterr)
{
	CUresult result = CUDA_ERROR_UNKNOWN;

	memset(arena, 0, sizeof(*arena));
	arena->lock = lock;
	for (uint64_t bytes = want_bytes; bytes >= least_bytes; bytes /= 2) {
		CUdeviceptr base = 0;

		bytes -= bytes % GRANULE_BYTES;
		result = driver->MemAddressReserve(&base, bytes, GRANULE_BYTES, 0, 0);
		if (result == CUDA_SUCCESS && base % GRANULE_BYTES == 0) {
			arena->base = base;
			arena->size_bytes = bytes;
			return SUBLET_OK;
		}
		if (result == CUDA_SUCCESS) { /* not as aligned as asked for: useless here */
			driver->MemAddressFree(base, bytes);
			result = CUDA_ERROR_NOT_SUPPORTED;
			break;
		}
	}
	return errinfo_set(reterr, SUBLET_ERR_DRIVER, (int)result, "no address range of %llu MiB could be reserved (driver error %d)",
		(unsigned long long)(least_bytes >> 20), (int)result);
}

static void free_bucket(void *value)
{
	struct arena_bucket *bucket = value;

	free(bucket->addresses);
	free(bucket);
}

void arena_release(struct arena *arena, const struct driver *driver)
{
	if (arena->base)
		driver->MemAddressFree(arena->base, arena->size_bytes);
	map_clear(&arena->by_size, free_bucket);
	memset(arena, 0, sizeof(*arena));
}

static bool push_range(struct arena *arena, uint64_t address, uint64_t bytes)
{
	struct arena_bucket *bucket = map_get(&arena->by_size, bytes);

	if (!bucket) {
		bucket = calloc(1, sizeof(*bucket));
		if (!bucket)
			return false;
		bucket->bytes = bytes;
		if (!map_put(&arena->by_size, bytes, bucket)) {
			free(bucket);
			return false;
		}
	}
	if (!list_room(&bucket->addresses, bucket->count, &bucket->capacity, sizeof(*bucket->addresses)))
		return false;
	bucket->addresses[bucket->count++] = address;
	arena->free_bytes += bytes;
	return true;
}

static bool pop_range(struct arena *arena, uint64_t bytes, uint64_t *ret_address)
{
	struct arena_bucket *bucket = map_get(&arena->by_size, bytes);

	if (!bucket || bucket->count == 0)
		return false;
	*ret_address = bucket->addresses[--bucket->count];
	arena->free_bytes -= bytes;
	return true;
}

struct gather {
	struct range *ranges;
	size_t count;
};

static void count_ranges(uint64_t key, void *value, void *arg)
{
	(void)key;
	*(size_t *)arg += ((struct arena_bucket *)value)->count;
}

static void gather_ranges(uint64_t key, void *value, void *arg)
{
	struct arena_bucket *bucket = value;
	struct gather *gather = arg;

	(void)key;
	for (size_t i = 0; i < bucket->count; i++)
		gather->ranges[gather->count++] = (struct range){bucket->addresses[i], bucket->bytes};
}

static int by_address(const void *a, const void *b)
{
	uint64_t x = ((const struct range *)a)->address, y = ((const struct range *)b)->address;

	return x < y ? -1 : x > y;
}

/* Merge neighbours, cut @bytes off the smallest that fits, put the rest back. */
static bool merge_and_take(struct arena *arena, uint64_t bytes, uint64_t *ret_address)
{
	size_t total = 0, merged = 0, best;
	struct gather gather = {0};

	if (arena->free_bytes < bytes)
		return false;
	map_each(&arena->by_size, count_ranges, &total);
	gather.ranges = malloc(total * sizeof(*gather.ranges));
	if (!gather.ranges)
		return false;
	map_each(&arena->by_size, gather_ranges, &gather);
	qsort(gather.ranges, gather.count, sizeof(*gather.ranges), by_address);
	for (size_t i = 1; i < gather.count; i++) {
		struct range *last = &gather.ranges[merged];

		if (last->address + last->bytes == gather.ranges[i].address)
			last->bytes += gather.ranges[i].bytes;
		else
			gather.ranges[++merged] = gather.ranges[i];
	}
	merged += gather.count > 0;
	best = merged;
	for (size_t i = 0; i < merged; i++) {
		if (gather.ranges[i].bytes >= bytes && (best == merged || gather.ranges[i].bytes < gather.ranges[best].bytes))
			best = i;
	}
	map_clear(&arena->by_size, free_bucket);
	arena->free_bytes = 0;
	if (best < merged) {
		*ret_address = gather.ranges[best].address;
		gather.ranges[best].address += bytes;
		gather.ranges[best].bytes -= bytes;
	}
	for (size_t i = 0; i < merged; i++) {
		if (gather.ranges[i].bytes)
			(void)push_range(arena, gather.ranges[i].address, gather.ranges[i].bytes);
	}
	free(gather.ranges);
	return best < merged;
}

bool arena_take(struct arena *arena, uint64_t bytes, uint64_t *ret_address)
{
	bool found;

	bytes += ARENA_GAP_BYTES;
	ranked_lock(arena->lock);
	found = pop_range(arena, bytes, ret_address);
	if (!found && arena->size_bytes - arena->used_bytes >= bytes) {
		*ret_address = arena->base + arena->used_bytes;
		arena->used_bytes += bytes;
		found = true;
	}
	if (!found)
		found = merge_and_take(arena, bytes, ret_address);
	ranked_unlock(arena->lock);
	return found;
}

void arena_return(struct arena *arena, uint64_t address, uint64_t bytes)
{
	ranked_lock(arena->lock);
	(void)push_range(arena, address, bytes + ARENA_GAP_BYTES);
	ranked_unlock(arena->lock);
}
