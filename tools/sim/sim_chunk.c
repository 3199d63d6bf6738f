/* tools/sim/sim_chunk.c
 * Physical device (or pool) memory outside VMM: a memfd of whole 2 MiB pages mapped at one address, handed out in ranges.
 * A chunk is one large allocation, or 2 MiB that small ones share, as on hardware, or a piece of a pool. Being a memfd makes
 * it shareable by legacy IPC and by pools. Everything here is called with sim_lock held. */
#include "tools/sim/sim_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/list.h"

#define RANGE_ALIGN 512ull

static uint64_t next_serial = 1;

void *sim_map_aligned(uint64_t bytes, int fd)
{
	uint64_t base, area;
	void *map = mmap(NULL, bytes + SIM_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (map == MAP_FAILED)
		return NULL;
	area = (uint64_t)(uintptr_t)map;
	base = (area + SIM_PAGE - 1) & ~(SIM_PAGE - 1);
	if (base > area)
		munmap(map, base - area);
	munmap((void *)(base + bytes), area + SIM_PAGE - base);
	map = mmap((void *)base, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
	if (map == MAP_FAILED)
		munmap((void *)base, bytes);
	return map == MAP_FAILED ? NULL : map;
}

int sim_physical_file(uint64_t physical, uint64_t bytes)
{
	char name[96];
	int fd;

	snprintf(name, sizeof(name), "sublet-sim-%s-%llu", sim_machine_token(), (unsigned long long)physical);
	fd = memfd_create(name, MFD_CLOEXEC);
	if (fd >= 0 && ftruncate(fd, (off_t)bytes) != 0) {
		close(fd);
		fd = -1;
	}
	return fd;
}

struct sim_chunk *sim_chunk_new(int location, uint64_t bytes, struct sim_pool *pool)
{
	struct sim_chunk *chunk = calloc(1, sizeof(*chunk));
	void *map = NULL;

	bytes = (bytes + SIM_PAGE - 1) & ~(SIM_PAGE - 1);
	if (!chunk)
		return NULL;
	*chunk = (struct sim_chunk){.bytes = bytes, .location = location, .pool = pool, .fd = -1};
	chunk->physical = sim_machine_take(location, bytes);
	if (chunk->physical)
		chunk->fd = sim_physical_file(chunk->physical, bytes);
	if (chunk->fd >= 0)
		map = sim_map_aligned(bytes, chunk->fd);
	chunk->address = (uint64_t)(uintptr_t)map;
	if (!map) {
		sim_chunk_free(chunk);
		return NULL;
	}
	return chunk;
}

void sim_chunk_free(struct sim_chunk *chunk)
{
	if (chunk->address)
		munmap((void *)chunk->address, chunk->bytes);
	if (chunk->fd >= 0)
		close(chunk->fd);
	if (chunk->physical)
		sim_machine_unref(chunk->physical);
	free(chunk->ranges);
	free(chunk);
}

bool sim_chunk_take(struct sim_chunk *chunk, uint64_t bytes, const struct sim_stream *stream, uint64_t *ret_address)
{
	uint64_t at = 0;
	size_t i;

	bytes = (bytes + RANGE_ALIGN - 1) & ~(RANGE_ALIGN - 1);
	/* What the same stream freed may be used again in its order, before the free was reached. */
	for (i = 0; stream && i < chunk->range_count; i++) {
		struct sim_range *range = &chunk->ranges[i];

		if (range->freed_on == stream && range->bytes >= bytes) {
			range->freed_on = NULL;
			range->serial = next_serial++;
			*ret_address = chunk->address + range->offset;
			return true;
		}
	}
	for (i = 0; i < chunk->range_count && chunk->ranges[i].offset - at < bytes; i++)
		at = chunk->ranges[i].offset + chunk->ranges[i].bytes;
	if (chunk->bytes - at < bytes ||
		!list_room(&chunk->ranges, chunk->range_count, &chunk->range_capacity, sizeof(*chunk->ranges)))
		return false;
	memmove(&chunk->ranges[i + 1], &chunk->ranges[i], (chunk->range_count - i) * sizeof(*chunk->ranges));
	chunk->ranges[i] = (struct sim_range){at, bytes, next_serial++, NULL};
	chunk->range_count++;
	*ret_address = chunk->address + at;
	return true;
}

static size_t range_at(const struct sim_chunk *chunk, uint64_t address)
{
	size_t i = 0;

	while (i < chunk->range_count && chunk->address + chunk->ranges[i].offset != address)
		i++;
	return i;
}

static void drop_range(struct sim_chunk *chunk, size_t i)
{
	memmove(&chunk->ranges[i], &chunk->ranges[i + 1], (chunk->range_count - i - 1) * sizeof(*chunk->ranges));
	chunk->range_count--;
}

void sim_chunk_return(struct sim_chunk *chunk, uint64_t address)
{
	size_t i = range_at(chunk, address);

	if (i < chunk->range_count)
		drop_range(chunk, i);
}

uint64_t sim_chunk_return_later(struct sim_chunk *chunk, uint64_t address, const struct sim_stream *stream)
{
	struct sim_range *range = &chunk->ranges[range_at(chunk, address)];

	range->freed_on = stream;
	return range->serial;
}

void sim_chunk_settle(struct sim_chunk *chunk, uint64_t serial)
{
	for (size_t i = 0; i < chunk->range_count; i++) {
		if (chunk->ranges[i].serial == serial) {
			drop_range(chunk, i);
			return;
		}
	}
}
