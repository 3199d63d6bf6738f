/* lifecycle/coordinator_judge.c
 * Which processes a barrier is about, and whether what they would move fits, before any of it moves (docs/barrier.md, R7 and R8).
 * Both by what they say of themselves (struct message_needs). */
#include "lifecycle/coordinator_priv.h"

#include <stdio.h>
#include <string.h>

#include "base/size.h"

#define UNIT_BYTES (2ull << 20) /* all extents are multiples of it */

/* ---- devices ---- */

bool devices_have(const struct message_devices *devices, const unsigned char *uuid)
{
	for (uint32_t i = 0; i < devices->count; i++)
		if (memcmp(devices->uuid[i], uuid, PROTOCOL_UUID_BYTES) == 0)
			return true;
	return false;
}

bool devices_meet(const struct message_devices *one, const struct message_devices *other)
{
	for (uint32_t i = 0; i < one->count; i++)
		if (devices_have(other, one->uuid[i]))
			return true;
	return false;
}

struct device_phase *device_phase_of(struct coordinator *c, const unsigned char *uuid)
{
	struct barrier *barrier = &c->barrier;

	for (uint32_t i = 0; i < barrier->devices_count; i++)
		if (memcmp(barrier->devices[i].uuid, uuid, PROTOCOL_UUID_BYTES) == 0)
			return &barrier->devices[i];
	if (barrier->devices_count == DEVICES_MAX)
		return NULL;
	/* what its processes were told when they joined */
	barrier->devices[barrier->devices_count] = (struct device_phase){.phase = barrier->phase};
	memcpy(barrier->devices[barrier->devices_count].uuid, uuid, PROTOCOL_UUID_BYTES);
	return &barrier->devices[barrier->devices_count++];
}

uint32_t phase_on(const struct coordinator *c, const unsigned char *uuid)
{
	for (uint32_t i = 0; i < c->barrier.devices_count; i++)
		if (memcmp(c->barrier.devices[i].uuid, uuid, PROTOCOL_UUID_BYTES) == 0)
			return c->barrier.devices[i].phase;
	return c->barrier.phase;
}

uint32_t phase_of(const struct coordinator *c, const struct peer *peer)
{
	return peer && peer->needs.devices.count ? phase_on(c, peer->needs.devices.uuid[0]) : c->barrier.phase;
}

/* ---- who takes part ---- */

static bool is_about(struct coordinator *c, const struct peer *peer)
{
	for (uint32_t i = 0; i < peer->needs.devices.count; i++) {
		const struct device_phase *device = device_phase_of(c, peer->needs.devices.uuid[i]);

		if (!device || device->in_barrier)
			return true;
	}
	return false;
}

void judge_add_devices(struct coordinator *c, const struct peer *peer)
{
	for (uint32_t i = 0; i < peer->needs.devices.count; i++) {
		struct device_phase *device = device_phase_of(c, peer->needs.devices.uuid[i]);

		if (device)
			device->in_barrier = true;
	}
}

void judge_participants(struct coordinator *c)
{
	bool more = true;

	for (struct peer *peer = c->peers; peer; peer = peer->next) {
		if (!peer->in_barrier)
			continue;
		if (c->barrier.all)
			judge_add_devices(c, peer);
		else
			peer->in_barrier = false, peer->candidate = true;
	}
	/* who shares a device with one that is held is held, and so on */
	while (more && !c->barrier.all) {
		more = false;
		for (struct peer *peer = c->peers; peer; peer = peer->next) {
			if (!peer->candidate || !is_about(c, peer))
				continue;
			peer->candidate = false;
			peer->in_barrier = more = true;
			judge_add_devices(c, peer);
		}
	}
	for (struct peer *peer = c->peers; peer; peer = peer->next)
		peer->candidate = false;
}

/* ---- does it fit ---- */

struct sums {
	uint64_t free_bytes, leaves_bytes, comes_bytes;
	const struct peer *most; /* of what comes */
	uint64_t most_bytes;
};

static void sum_up(const struct coordinator *c, const unsigned char *uuid, struct sums *ret)
{
	uint64_t room = credits_room(c, uuid);
	bool asked = false;

	*ret = (struct sums){0};
	for (const struct peer *peer = c->peers; peer; peer = peer->next) {
		for (uint32_t i = 0; peer->in_barrier && i < peer->needs.devices.count; i++) {
			const struct message_need *need = &peer->needs.need[i];

			if (memcmp(peer->needs.devices.uuid[i], uuid, PROTOCOL_UUID_BYTES) != 0)
				continue;
			/* each has given back what it kept before it looked: who looked last has seen it all */
			if (need->free_bytes > ret->free_bytes)
				ret->free_bytes = need->free_bytes;
			asked |= need->free_bytes > 0;
			/* what the ledger was told last may be older by what is freed and not worth telling */
			if (room != UINT64_MAX)
				room -= need->used_bytes < room ? need->used_bytes : room;
			ret->leaves_bytes += need->leaves_bytes;
			ret->comes_bytes += need->comes_bytes;
			if (need->comes_bytes > ret->most_bytes) {
				ret->most_bytes = need->comes_bytes;
				ret->most = peer;
			}
		}
	}
	/* nobody could say: then the barrier tries */
	if (!asked || ret->free_bytes > room)
		ret->free_bytes = asked ? room : UINT64_MAX;
}

/* The first device that has not the room for what comes to it. */
static bool lacks_device(struct coordinator *c, char *text, size_t room)
{
	for (uint32_t d = 0; d < c->barrier.devices_count; d++) {
		char who[128], comes[16], leaves[16], left[16];
		struct sums sums;

		sum_up(c, c->barrier.devices[d].uuid, &sums);
		if (!sums.most || sums.free_bytes == UINT64_MAX || sums.comes_bytes <= sums.free_bytes + sums.leaves_bytes)
			continue;
		snprintf(text, room, "%s: %s come to the device in all, %s leave it and %s are free (of the policy's capacity, where it has one); the rest is native, stays in this phase, or is of others",
			peer_name(sums.most, who, sizeof(who)), size_format(sums.comes_bytes, comes, sizeof(comes)),
			size_format(sums.leaves_bytes, leaves, sizeof(leaves)), size_format(sums.free_bytes, left, sizeof(left)));
		return true;
	}
	return false;
}

/* Room that extents can change places through: what is free on the devices is counted as one, so with several it may be too much, and
 * then the exchange finds out. */
static uint64_t slack_bytes(struct coordinator *c, uint64_t host_free)
{
	uint64_t slack = host_free;

	for (uint32_t d = 0; d < c->barrier.devices_count; d++) {
		struct sums sums;

		sum_up(c, c->barrier.devices[d].uuid, &sums);
		if (sums.free_bytes != UINT64_MAX)
			slack += sums.free_bytes;
	}
	for (const struct peer *peer = c->peers; peer; peer = peer->next)
		for (uint32_t i = 0; peer->in_barrier && i < peer->needs.devices.count; i++)
			slack += peer->needs.need[i].discards_bytes;
	return slack;
}

enum verdict judge(struct coordinator *c, char *text, size_t room)
{
	const uint64_t used = pool_used_bytes(c), cap = c->pool.cap_bytes;
	uint64_t host_free = cap + c->pool.orphan_bytes, takes = 0, gives = 0, largest = 0;
	const struct peer *most = NULL;
	char who[128], bytes[16], left[16], all[16];

	if (lacks_device(c, text, room))
		return VERDICT_NO_DEVICE;
	for (const struct peer *peer = c->peers; peer; peer = peer->next) {
		/* who takes no part lets go of what it keeps as well (coordinator_pool.c), and has said with its plan what that is */
		if (!peer->dropped && peer->fd >= 0 && peer->joined)
			host_free += peer->needs.host_kept_bytes;
		if (!peer->in_barrier)
			continue;
		takes += peer->needs.host_takes_bytes;
		gives += peer->needs.host_gives_bytes;
		largest = peer->needs.largest_bytes > largest ? peer->needs.largest_bytes : largest;
		if (!most || peer->needs.host_takes_bytes > most->needs.host_takes_bytes)
			most = peer;
	}
	/* more may be in use than the cap, as after a time without a coordinator */
	host_free = host_free > used ? host_free - used : 0;
	if (takes <= host_free)
		return VERDICT_MOVE;
	if (takes <= host_free + gives && slack_bytes(c, host_free) + UNIT_BYTES >= 2 * largest)
		return VERDICT_EXCHANGE;
	snprintf(text, room, "%s: %s have to go to the host pool in all, which has room for %s of its %s%s; raise host_pool or SUBLET_HOST_POOL",
		peer_name(most, who, sizeof(who)), size_format(takes, bytes, sizeof(bytes)), size_format(host_free, left, sizeof(left)),
		size_format(cap, all, sizeof(all)), takes <= host_free + gives ? ", too little to exchange even one extent" : "");
	return VERDICT_NO_HOST;
}
