/* lifecycle/needs.c
 * Sums over the records. What cannot be told is 0: then the barrier tries, and finds out. */
#include "lifecycle/needs.h"

#include <string.h>

#include "base/clock.h"
#include "lifecycle/answers.h"
#include "lifecycle/lanes.h"
#include "lifecycle/lifecycle.h"
#include "lifecycle/pieces.h"

/* Numbers here of the devices in the order of @ret. */
static void list(struct lifecycle *lc, struct message_devices *ret, int *numbers)
{
	const uint64_t with_context = contexts_devices(&lc->contexts);

	memset(ret, 0, sizeof(*ret));
	for (int d = 0; d < lc->device_count && ret->count < PROTOCOL_DEVICES; d++) {
		CUuuid uuid;

		if (!(with_context >> d & 1) || !lc->driver.DeviceGetUuid || lc->driver.DeviceGetUuid(&uuid, d) != CUDA_SUCCESS)
			continue;
		memcpy(ret->uuid[ret->count], uuid.bytes, sizeof(ret->uuid[0]));
		numbers[ret->count++] = d;
	}
}

void needs_devices(struct lifecycle *lc, struct message_devices *ret)
{
	int numbers[PROTOCOL_DEVICES];

	if (lc->client.without_gpu) { /* nor a driver to ask */
		memset(ret, 0, sizeof(*ret));
		return;
	}
	list(lc, ret, numbers);
}

static uint64_t largest_of(const struct allocation *allocation)
{
	uint64_t largest = 0;

	for (uint32_t i = 0; i < allocation->backing.count; i++)
		largest = allocation->backing.extents[i].bytes > largest ? allocation->backing.extents[i].bytes : largest;
	for (const struct host_extent *host = allocation->host; host; host = host->next)
		largest = host->bytes > largest ? host->bytes : largest;
	return largest;
}

/* One allocation on its way. What is between two places is here as it was at the hold: none is then, or it stays a hole. */
static void add(const struct allocation *allocation, enum residency to, struct message_need *need, struct message_needs *needs)
{
	const uint64_t bytes = allocation->span_bytes;
	const enum residency from = allocation->residency;
	const bool has_host = from == RESIDENCY_PARKED || from == RESIDENCY_HOST;
	const bool wants_host = to == RESIDENCY_PARKED || to == RESIDENCY_HOST;
	uint64_t largest;

	if (from == to || !residency_change(from, to) || (allocation->exposed && !residency_is_hole(from)))
		return;
	if (need && from == RESIDENCY_DEVICE)
		need->leaves_bytes += bytes;
	if (need && from == RESIDENCY_DEVICE && to == RESIDENCY_EMPTY)
		need->discards_bytes += bytes;
	if (need && to == RESIDENCY_DEVICE)
		need->comes_bytes += bytes;
	if (wants_host && !has_host)
		needs->host_takes_bytes += bytes;
	if (has_host && !wants_host)
		needs->host_gives_bytes += bytes;
	/* what is discarded, or changes its mapping alone, takes no room on the way */
	if (from != RESIDENCY_DEVICE && to != RESIDENCY_DEVICE)
		return;
	largest = from == RESIDENCY_EMPTY || to == RESIDENCY_EMPTY ? 0 : largest_of(allocation);
	needs->largest_bytes = largest > needs->largest_bytes ? largest : needs->largest_bytes;
}

#define ROOM_NS 200000000ull /* the process is drained, so what was freed goes at once */

/* Also finds out what kind of host memory there is, which what is wanted depends on. What is freed or kept here becomes the driver's
 * before: another process may be the one that needs it. */
static uint64_t free_bytes_of(struct lifecycle *lc, struct lanes *lanes, int device)
{
	struct reclaim_room room;
	struct errinfo error;
	size_t free_bytes = 0, total = 0;

	if (lanes_open(lanes, device, &error) || !lanes_enter(lc, &lc->mover.lanes[device]))
		return 0;
	(void)host_pool_can_park(lc, device);
	reclaim_room_begin(lc, &room);
	room.deadline_ns = clock_now_ns() + ROOM_NS;
	(void)reclaim_make_room(lc, device, UINT64_MAX, &room);
	if (answer_device_memory(lc, &free_bytes, &total) != CUDA_SUCCESS)
		free_bytes = 0;
	lanes_leave(lc);
	return free_bytes;
}

void needs_count(struct lifecycle *lc, const struct needs_wish *wish, bool asks_free, struct message_needs *ret)
{
	struct lanes lanes = {.lc = lc};
	int numbers[PROTOCOL_DEVICES];

	memset(ret, 0, sizeof(*ret));
	list(lc, &ret->devices, numbers);
	for (uint32_t i = 0; asks_free && i < ret->devices.count; i++) {
		ret->need[i].free_bytes = free_bytes_of(lc, &lanes, numbers[i]);
		ret->need[i].used_bytes = ledger_used_bytes(lc, numbers[i]);
	}
	lanes_close(&lanes);
	ranked_lock(&lc->records.lock);
	for (const struct allocation *allocation = lc->records.live; allocation; allocation = allocation->next) {
		struct message_need *need = NULL;

		for (uint32_t i = 0; i < ret->devices.count; i++)
			if (numbers[i] == allocation->device)
				need = &ret->need[i];
		add(allocation, wish->wanted(wish->arg, allocation), need, ret);
	}
	ranked_unlock(&lc->records.lock);
	ranked_lock(&lc->host_pool.lock);
	ret->host_kept_bytes = lc->host_pool.free_bytes;
	ranked_unlock(&lc->host_pool.lock);
}
