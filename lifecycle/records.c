/* lifecycle/records.c
 * Records come in chunks that stay for the life of the process. */
#include "lifecycle/records.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define CHUNK_BYTES (256 * 1024)

struct records_chunk {
	struct records_chunk *next;
	struct allocation items[];
};

#define CHUNK_ITEMS ((CHUNK_BYTES - sizeof(struct records_chunk)) / sizeof(struct allocation))

void records_init(struct records *records, struct granules *granules)
{
	memset(records, 0, sizeof(*records));
	records->granules = granules;
	ranked_lock_init(&records->lock, RANK_RECORDS);
	history_init(&records->history);
}

void records_release(struct records *records)
{
	while (records->chunks) {
		struct records_chunk *chunk = records->chunks;

		records->chunks = chunk->next;
		munmap(chunk, CHUNK_BYTES);
	}
	history_release(&records->history);
	ranked_lock_release(&records->lock);
	memset(records, 0, sizeof(*records));
}

/* mmap, not malloc: a wrapper may run inside an allocator that is itself being initialised. */
static bool refill(struct records *records)
{
	struct records_chunk *chunk =
		mmap(NULL, CHUNK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (chunk == MAP_FAILED)
		return false;
	chunk->next = records->chunks;
	records->chunks = chunk;
	for (size_t i = 0; i < CHUNK_ITEMS; i++) {
		chunk->items[i].next = records->stock;
		records->stock = &chunk->items[i];
	}
	return true;
}

struct allocation *records_new(struct records *records)
{
	struct allocation *allocation = NULL;

	ranked_lock(&records->lock);
	if (records->stock || refill(records)) {
		allocation = records->stock;
		records->stock = allocation->next;
		allocation->next = allocation->previous = NULL;
		allocation->mark_count = 0;
		allocation->marked = allocation->exposed = false;
		allocation->moving = allocation->dead = allocation->hashed = allocation->noted = false;
		allocation->residency = RESIDENCY_DEVICE;
		allocation->host = NULL;
		allocation->rule = RULE_NONE;
		allocation->site = NULL;
		allocation->group = NULL;
		allocation->buffer_id = 0;
		allocation->serial = ++records->next_serial;
	}
	ranked_unlock(&records->lock);
	return allocation;
}

void records_recycle(struct records *records, struct allocation *allocation)
{
	ranked_lock(&records->lock);
	allocation->state = ALLOCATION_UNUSED;
	allocation->previous = NULL;
	allocation->next = records->stock;
	records->stock = allocation;
	ranked_unlock(&records->lock);
}

bool records_publish_locked(struct records *records, struct allocation *allocation)
{
	if (!granules_set(records->granules, allocation->address, allocation->span_bytes, allocation, GRANULE_MANAGED))
		return false;
	if (allocation->state == ALLOCATION_DETACHED)
		history_unfreed(allocation->group, allocation->since_ns);
	else
		history_add(&records->history, allocation);
	allocation->state = ALLOCATION_LIVE;
	allocation->previous = NULL;
	allocation->next = records->live;
	if (records->live)
		records->live->previous = allocation;
	records->live = allocation;
	records->live_count++;
	return true;
}

static struct allocation_view view_of(const struct allocation *allocation)
{
	return (struct allocation_view){
		.address = allocation->address,
		.size_bytes = allocation->size_bytes,
		.span_bytes = allocation->span_bytes,
		.serial = allocation->serial,
		.rule = allocation->rule,
		.device = allocation->device,
		.context = allocation->context,
		.residency = allocation->residency,
		.moving = allocation->moving,
		.buffer_id = allocation->buffer_id,
	};
}

static void detach_locked(struct records *records, struct allocation *allocation, struct detached *ret)
{
	granules_clear(records->granules, allocation->address, allocation->span_bytes);
	history_freed(allocation->group, allocation->since_ns);
	if (allocation->previous)
		allocation->previous->next = allocation->next;
	else
		records->live = allocation->next;
	if (allocation->next)
		allocation->next->previous = allocation->previous;
	allocation->next = allocation->previous = NULL;
	allocation->state = ALLOCATION_DETACHED;
	records->live_count--;
	allocation->dead = allocation->moving;
	*ret = (struct detached){allocation->moving ? NULL : allocation, view_of(allocation)};
}

bool records_detach(struct records *records, uint64_t address, struct detached *ret)
{
	struct allocation *allocation;
	bool starts_there;

	if (!granules_find(records->granules, address, GRANULE_MANAGED))
		return false;
	ranked_lock(&records->lock);
	allocation = granules_find(records->granules, address, GRANULE_MANAGED);
	starts_there = allocation && allocation->address == address;
	if (starts_there)
		detach_locked(records, allocation, ret);
	ranked_unlock(&records->lock);
	return starts_there;
}

bool records_reattach(struct records *records, struct allocation *allocation)
{
	bool published;

	ranked_lock(&records->lock);
	published = records_publish_locked(records, allocation);
	ranked_unlock(&records->lock);
	return published;
}

bool records_detach_same(struct records *records, struct allocation *allocation, uint64_t serial, struct detached *ret)
{
	bool same;

	ranked_lock(&records->lock);
	same = allocation->state == ALLOCATION_LIVE && allocation->serial == serial;
	if (same)
		detach_locked(records, allocation, ret);
	ranked_unlock(&records->lock);
	return same;
}

bool records_detach_of_context(struct records *records, const struct context_end *end, struct detached *ret)
{
	struct allocation *allocation;

	ranked_lock(&records->lock);
	for (allocation = records->live; allocation; allocation = allocation->next) {
		if (!end || (allocation->context == end->handle && allocation->context_id < end->before_id))
			break;
	}
	if (allocation)
		detach_locked(records, allocation, ret);
	ranked_unlock(&records->lock);
	return allocation != NULL;
}

void records_expose(struct records *records, uint64_t address, uint64_t bytes)
{
	uint64_t end = address + bytes < address ? UINT64_MAX : address + bytes;

	ranked_lock(&records->lock);
	while (address < end) {
		struct allocation *allocation = granules_find(records->granules, address, GRANULE_MANAGED);

		/* A range of the driver's never spans a hole, so what follows memory that is not managed is not either. */
		if (!allocation)
			break;
		allocation->exposed = true;
		address = allocation->address + allocation->span_bytes;
	}
	ranked_unlock(&records->lock);
}

bool records_view(struct records *records, uint64_t address, struct allocation_view *ret_view)
{
	struct allocation *allocation;
	bool inside = false;

	if (!granules_find(records->granules, address, GRANULE_MANAGED))
		return false;
	ranked_lock(&records->lock);
	allocation = granules_find(records->granules, address, GRANULE_MANAGED);
	if (allocation && address - allocation->address < allocation->size_bytes) {
		*ret_view = view_of(allocation);
		inside = true;
	}
	ranked_unlock(&records->lock);
	return inside;
}

bool records_starts_at(struct records *records, uint64_t address)
{
	struct allocation_view view;

	return records_view(records, address, &view) && view.address == address;
}
