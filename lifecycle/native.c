/* lifecycle/native.c
 * Handle values are reused by the driver once their last reference is released, although a mapping may still hold the
 * memory; so mappings point to the object, not to the value. */
#include "lifecycle/native.h"

#include <stdlib.h>
#include <string.h>

struct native_block {
	uint64_t bytes;
	int device;
	enum stats_native kind;
};

struct native_handle {
	CUmemGenericAllocationHandle value;
	uint64_t bytes;
	int device;
	enum stats_native kind;
	unsigned references; /* creates and retains not yet released */
	unsigned mappings;
};

struct native_mapping {
	uint64_t address, bytes;
	struct native_handle *handle; /* NULL: imported */
};

void native_init(struct native *native, struct granules *granules, struct stats_page *stats, int device_count)
{
	memset(native, 0, sizeof(*native));
	native->granules = granules;
	native->stats = stats;
	native->device_count = device_count;
	ranked_lock_init(&native->lock, RANK_NATIVE);
}

static void free_mapping(void *value)
{
	struct native_mapping *mapping = value;

	if (mapping->handle && --mapping->handle->mappings == 0 && mapping->handle->references == 0)
		free(mapping->handle);
	free(mapping);
}

static void free_handle(void *value)
{
	struct native_handle *handle = value;

	if (handle->mappings == 0)
		free(handle);
	else
		handle->references = 0; /* goes with its last mapping */
}

void native_release(struct native *native)
{
	map_clear(&native->blocks, free);
	map_clear(&native->handles, free_handle);
	map_clear(&native->mappings, free_mapping);
	ranked_lock_release(&native->lock);
}

static struct stats_bytes *counter(struct native *native, int device, enum stats_native kind)
{
	if (device < 0 || device >= native->device_count || kind == STATS_NATIVE_PINNED)
		device = 0;
	return &native->stats->device[device].native[kind];
}

static void note(struct native *native, uint64_t key, uint64_t bytes, int device, enum stats_native kind,
	void (*count)(struct stats_bytes *, uint64_t))
{
	struct native_block *block, *old;

	if (!key)
		return;
	block = malloc(sizeof(*block));
	if (!block)
		return;
	*block = (struct native_block){bytes, device, kind};
	ranked_lock(&native->lock);
	/* An address that is still noted was taken back by a call we do not see. */
	old = map_take(&native->blocks, key);
	if (old)
		stats_sub(counter(native, old->device, old->kind), old->bytes);
	if (map_put(&native->blocks, key, block)) {
		count(counter(native, device, kind), bytes);
		block = NULL;
	}
	ranked_unlock(&native->lock);
	free(old);
	free(block);
}

void native_note(struct native *native, uint64_t key, uint64_t bytes, int device, enum stats_native kind)
{
	note(native, key, bytes, device, kind, stats_add);
}

struct native_taken native_take(struct native *native, uint64_t key)
{
	struct native_taken taken = {.key = key};
	struct native_block *block;

	ranked_lock(&native->lock);
	block = map_take(&native->blocks, key);
	if (block) {
		stats_sub(counter(native, block->device, block->kind), block->bytes);
		taken = (struct native_taken){key, block->bytes, block->device, block->kind, true};
	}
	ranked_unlock(&native->lock);
	free(block);
	return taken;
}

void native_untake(struct native *native, const struct native_taken *taken)
{
	if (taken->known)
		note(native, taken->key, taken->bytes, taken->device, taken->kind, stats_unsub);
}

/* Caller holds the lock. Frees @handle when the driver has dropped the memory. */
static void settle(struct native *native, struct native_handle *handle)
{
	if (handle->references || handle->mappings)
		return;
	stats_sub(counter(native, handle->device, handle->kind), handle->bytes);
	free(handle);
}

void native_vmm_created(struct native *native, CUmemGenericAllocationHandle value, uint64_t bytes,
	const CUmemAllocationProp *prop)
{
	struct native_handle *handle = calloc(1, sizeof(*handle)), *stale;
	bool on_device = prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE;

	if (!handle)
		return;
	handle->value = value;
	handle->bytes = bytes;
	/* The id of a host location is a NUMA node, not a device (HAMi-core 187). */
	handle->device = on_device ? prop->location.id : 0;
	handle->kind = on_device ? STATS_NATIVE_VMM : STATS_NATIVE_PINNED;
	handle->references = 1;
	ranked_lock(&native->lock);
	stale = map_take(&native->handles, value);
	if (stale) {
		stale->references = 0;
		settle(native, stale);
	}
	if (map_put(&native->handles, value, handle)) {
		stats_add(counter(native, handle->device, handle->kind), bytes);
		handle = NULL;
	}
	ranked_unlock(&native->lock);
	free(handle);
}

void native_vmm_retained(struct native *native, CUmemGenericAllocationHandle value, uint64_t address)
{
	struct native_mapping *mapping;
	struct native_handle *handle;

	ranked_lock(&native->lock);
	handle = map_get(&native->handles, value);
	if (!handle) {
		/* Released by the application and still mapped: retaining brings the value back. */
		mapping = granules_find(native->granules, address, GRANULE_FOREIGN);
		if (mapping && mapping->handle && mapping->handle->references == 0 &&
			map_put(&native->handles, value, mapping->handle)) {
			handle = mapping->handle;
			handle->value = value;
		}
	}
	if (handle)
		handle->references++;
	ranked_unlock(&native->lock);
}

void native_vmm_released(struct native *native, CUmemGenericAllocationHandle value)
{
	struct native_handle *handle;

	ranked_lock(&native->lock);
	handle = map_get(&native->handles, value);
	if (handle && --handle->references == 0) {
		map_take(&native->handles, value);
		settle(native, handle);
	}
	ranked_unlock(&native->lock);
}

/* The bytes of the mapping that began at @address, 0 when none did. Caller holds the lock. */
static uint64_t drop_mapping(struct native *native, uint64_t address)
{
	struct native_mapping *mapping = map_take(&native->mappings, address);
	uint64_t bytes;

	if (!mapping)
		return 0;
	bytes = mapping->bytes;
	granules_clear(native->granules, address, bytes);
	if (mapping->handle) {
		mapping->handle->mappings--;
		settle(native, mapping->handle);
	}
	free(mapping);
	return bytes;
}

void native_vmm_mapped(struct native *native, uint64_t address, uint64_t bytes, CUmemGenericAllocationHandle value)
{
	struct native_mapping *mapping = calloc(1, sizeof(*mapping));

	if (!mapping)
		return;
	mapping->address = address;
	mapping->bytes = bytes;
	ranked_lock(&native->lock);
	/* One that is still noted was unmapped by a call we did not see. */
	(void)drop_mapping(native, address);
	mapping->handle = map_get(&native->handles, value);
	if (map_put(&native->mappings, address, mapping)) {
		if (mapping->handle)
			mapping->handle->mappings++;
		/* Other granularities than 2 MiB are counted but not findable by address. */
		(void)granules_set(native->granules, address, bytes, mapping, GRANULE_FOREIGN);
		mapping = NULL;
	}
	ranked_unlock(&native->lock);
	free(mapping);
}

void native_vmm_unmapped(struct native *native, uint64_t address, uint64_t bytes)
{
	uint64_t end = address + bytes, dropped;

	ranked_lock(&native->lock);
	while (address < end && (dropped = drop_mapping(native, address)))
		address += dropped;
	ranked_unlock(&native->lock);
}
