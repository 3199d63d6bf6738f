/* lifecycle/coordinator_ledger.c
 * The ledger of device bytes: of each device, told apart by UUID since every process numbers them in its own way, how much each process
 * has credit for, and how much all may have by the policy.
 *
 * Credit is taken in slabs, so some of it is idle. Before anybody is refused all others are asked to give back theirs: what is then
 * still there is used. A process that has more than it may, by a move or from before this coordinator, keeps it; nobody is given
 * anything until there is room again.
 * Messages only mark what they change; who waits is answered, and what is gone is freed, in credits_tick between two rounds: an answer
 * that cannot be sent drops a peer. */
#include "lifecycle/coordinator_priv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/size.h"

enum { ROWS_MAX = 1024 /* more devices than a node has: whoever names more makes them up */, HOLDERS_SHOWN = 3 };

static const struct policy_header *policy_of(const struct coordinator *c)
{
	return c->policy_fd >= 0 ? c->policy.header : NULL;
}

static uint64_t capacity_of(const struct coordinator *c, const struct device_row *row)
{
	return policy_of(c) ? policy_amount_bytes(&policy_of(c)->capacity, row->total_bytes) : 0;
}

static uint64_t reserve_of(const struct coordinator *c, const struct device_row *row)
{
	return policy_of(c) ? policy_amount_bytes(&policy_of(c)->reserve, row->total_bytes) : 0;
}

/* What managed memory may have; UINT64_MAX: as much as there is. */
static uint64_t limit_of(const struct coordinator *c, const struct device_row *row)
{
	const uint64_t capacity = capacity_of(c, row), reserve = reserve_of(c, row);

	if (!policy_of(c) || !policy_amount_given(&policy_of(c)->capacity))
		return UINT64_MAX;
	return reserve < capacity ? capacity - reserve : 0;
}

/* ---- rows and shares ---- */

static struct device_row *find_row(struct coordinator *c, const struct message_device_use *use)
{
	struct device_row *row;

	for (row = c->devices.rows; row; row = row->next)
		if (memcmp(row->uuid, use->uuid, sizeof(row->uuid)) == 0)
			return row;
	row = c->devices.rows_count < ROWS_MAX ? calloc(1, sizeof(*row)) : NULL;
	if (!row)
		return NULL;
	memcpy(row->uuid, use->uuid, sizeof(row->uuid));
	row->total_bytes = use->total_bytes;
	row->next = c->devices.rows;
	c->devices.rows = row;
	c->devices.rows_count++;
	return row;
}

static struct device_share *share_of(const struct device_row *row, const struct peer *peer)
{
	struct device_share *share = row->shares;

	while (share && share->peer != peer)
		share = share->next;
	return share;
}

static struct device_share *find_share(struct device_row *row, struct peer *peer)
{
	struct device_share *share = share_of(row, peer), **end = &row->shares;

	if (share)
		return share;
	share = calloc(1, sizeof(*share));
	if (!share)
		return NULL;
	share->peer = peer;
	while (*end)
		end = &(*end)->next;
	*end = share;
	return share;
}

static uint64_t credit_of_others(const struct device_row *row, const struct peer *peer)
{
	uint64_t bytes = 0;

	for (const struct device_share *share = row->shares; share; share = share->next)
		bytes += share->peer && share->peer != peer ? share->credit_bytes : 0;
	return bytes;
}

uint64_t credits_room(const struct coordinator *c, const unsigned char *uuid)
{
	for (const struct device_row *row = c->devices.rows; row; row = row->next) {
		uint64_t limit = limit_of(c, row), used = 0;

		if (memcmp(row->uuid, uuid, sizeof(row->uuid)) != 0 || limit == UINT64_MAX)
			continue;
		for (const struct device_share *share = row->shares; share; share = share->next)
			used += share->peer && !share->peer->in_barrier ? share->used_bytes : 0;
		return used < limit ? limit - used : 0;
	}
	return UINT64_MAX;
}

bool credits_has(const struct coordinator *c, const struct peer *client)
{
	for (const struct device_row *row = c->devices.rows; row; row = row->next) {
		const struct device_share *share = share_of(row, client);

		if (share && share->credit_bytes)
			return true;
	}
	return false;
}

void credits_client_gone(struct coordinator *c, struct peer *client)
{
	for (struct device_row *row = c->devices.rows; row; row = row->next) {
		struct device_share *share = share_of(row, client);

		if (share)
			share->peer = NULL;
	}
	for (struct device_wait *wait = c->devices.waits; wait; wait = wait->next)
		if (wait->peer == client)
			wait->peer = NULL;
}

/* ---- credit ---- */

static void answer(struct coordinator *c, struct peer *client, uint64_t serial, bool granted, uint64_t credit_bytes, const char *text)
{
	struct protocol_message message;

	protocol_begin(&message, PROTOCOL_DEVICE_CREDITED, serial);
	message.device_verdict.granted = granted;
	message.device_verdict.credit_bytes = credit_bytes;
	protocol_text(message.device_verdict.text, sizeof(message.device_verdict.text), text);
	peer_send(c, client, &message, -1, -1);
}

/* What others have said to use, or have credit for; of who asks, credit that is idle is none of the reason. */
static uint64_t held(const struct device_share *share, const struct peer *asker)
{
	return !share->peer ? 0 : share->peer == asker ? share->used_bytes : share->credit_bytes;
}

/* Those who have most, most first. */
static void describe(const struct coordinator *c, const struct device_row *row, const struct peer *asker, char *text, size_t room)
{
	const struct device_share *named[HOLDERS_SHOWN] = {NULL};
	uint64_t all = 0;
	char used[16], limit[16];
	size_t length;

	for (const struct device_share *share = row->shares; share; share = share->next)
		all += held(share, asker);
	length = (size_t)snprintf(text, room, "processes of the session have %s of the %s that the policy's capacity leaves",
		size_format(all, used, sizeof(used)), size_format(limit_of(c, row), limit, sizeof(limit)));
	for (int shown = 0; shown < HOLDERS_SHOWN && length < room; shown++) {
		const struct device_share *most = NULL;
		char who[96], bytes[16];

		for (const struct device_share *share = row->shares; share; share = share->next)
			if (held(share, asker) > (most ? held(most, asker) : 0) && share != named[0] && share != named[1])
				most = share;
		if (!most)
			return;
		named[shown] = most;
		length += (size_t)snprintf(text + length, room - length, "%s%s %s", shown ? ", " : ": ",
			peer_name(most->peer, who, sizeof(who)), size_format(held(most, asker), bytes, sizeof(bytes)));
	}
}

/* True: there is room, and the answer has gone. */
static bool grant(struct coordinator *c, const struct device_wait *wait)
{
	struct device_share *share = share_of(wait->row, wait->peer);
	const uint64_t limit = limit_of(c, wait->row), others = credit_of_others(wait->row, wait->peer);
	uint64_t left = limit > others ? limit - others : 0;

	/* what it has already it keeps, whatever the sum is */
	if (left < share->credit_bytes)
		left = share->credit_bytes;
	if (wait->credit_bytes > left)
		return false;
	share->credit_bytes = wait->wanted_bytes < left ? wait->wanted_bytes : left;
	answer(c, wait->peer, wait->serial, true, share->credit_bytes, "");
	return true;
}

static void refuse(struct coordinator *c, const struct device_wait *wait)
{
	char text[PROTOCOL_TEXT_BYTES], who[96];

	describe(c, wait->row, wait->peer, text, sizeof(text));
	log_limited(LOG_SESSION, LOG_INFO, WHOSE_NONE, "%s is refused device memory: %s", peer_name(wait->peer, who, sizeof(who)), text);
	answer(c, wait->peer, wait->serial, false, share_of(wait->row, wait->peer)->credit_bytes, text);
}

/* All but @peer that have something: give back what you do not use. */
static void ask_others(struct coordinator *c, struct device_row *row, const struct peer *peer)
{
	for (struct device_share *share = row->shares; share; share = share->next) {
		struct protocol_message message;

		if (!share->peer || share->peer == peer || !share->credit_bytes || share->peer->fd < 0)
			continue;
		protocol_begin(&message, PROTOCOL_DEVICE_SAY, ++c->next_serial);
		memcpy(message.device_say.uuid, row->uuid, sizeof(row->uuid));
		share->said = message.header.serial;
		peer_send(c, share->peer, &message, -1, -1);
	}
}

static void credit(struct coordinator *c, struct peer *client, struct device_row *row, const struct protocol_message *message)
{
	struct device_wait *wait = calloc(1, sizeof(*wait)), **end = &c->devices.waits;

	if (!wait) {
		answer(c, client, message->header.serial, false, share_of(row, client)->credit_bytes, "the coordinator is out of memory");
		return;
	}
	*wait = (struct device_wait){
		.peer = client,
		.row = row,
		.serial = message->header.serial,
		.credit_bytes = message->device_use.credit_bytes,
		.wanted_bytes = message->device_use.wanted_bytes,
		.said_from = c->next_serial + 1,
		.deadline_ns = clock_now_ns() + SAY_WAIT_MS * CLOCK_NS_PER_MS,
	};
	if (grant(c, wait)) {
		free(wait);
		return;
	}
	while (*end)
		end = &(*end)->next;
	*end = wait;
	ask_others(c, row, client);
}

bool credits_message(struct coordinator *c, struct peer *client, const struct protocol_message *message, struct errinfo *reterr)
{
	const struct message_device_use *use = &message->device_use;
	struct device_row *row = find_row(c, use);
	struct device_share *share = row ? find_share(row, client) : NULL;

	if (!share) {
		errinfo_set(reterr, SUBLET_ERR_NOMEM, 0, "no memory for another device in the coordinator");
		return false;
	}
	share->used_bytes = use->used_bytes;
	share->native_bytes = use->native_bytes;
	share->budget_bytes = use->budget_bytes;
	if (use->answers > share->told)
		share->told = use->answers;
	if (message->header.type == PROTOCOL_DEVICE_CREDIT) {
		credit(c, client, row, message);
	} else if (!use->keeps) {
		share->credit_bytes = use->credit_bytes;
		answer(c, client, message->header.serial, true, share->credit_bytes, "");
	}
	return true;
}

/* ---- between two rounds ---- */

/* Has everybody said what they can do without since @wait asked? Whose connection is gone may be about to end, and is waited for. */
static bool all_have_said(const struct device_wait *wait)
{
	for (const struct device_share *share = wait->row->shares; share; share = share->next)
		if (share->peer && share->peer != wait->peer && share->said >= wait->said_from && share->told < wait->said_from)
			return false;
	return true;
}

static void sweep(struct coordinator *c)
{
	for (struct device_row *row = c->devices.rows; row; row = row->next) {
		for (struct device_share **at = &row->shares; *at;) {
			struct device_share *share = *at;

			if (share->peer) {
				at = &share->next;
				continue;
			}
			*at = share->next;
			free(share);
		}
	}
	for (struct device_wait **at = &c->devices.waits; *at;) {
		struct device_wait *wait = *at;

		if (!wait->done && wait->peer) {
			at = &wait->next;
			continue;
		}
		*at = wait->next;
		free(wait);
	}
}

uint64_t credits_tick(struct coordinator *c, uint64_t now_ns)
{
	uint64_t next = UINT64_MAX;

	for (struct device_wait *wait = c->devices.waits; wait; wait = wait->next) {
		if (!wait->peer || wait->done)
			continue;
		if (grant(c, wait)) {
			wait->done = true;
		} else if (all_have_said(wait) || wait->deadline_ns <= now_ns) {
			refuse(c, wait);
			wait->done = true;
		} else if (wait->deadline_ns < next) {
			next = wait->deadline_ns;
		}
	}
	sweep(c);
	return next;
}

void credits_release(struct coordinator *c)
{
	while (c->devices.rows) {
		struct device_row *row = c->devices.rows;

		for (struct device_share *share = row->shares; share; share = share->next)
			share->peer = NULL;
		sweep(c);
		c->devices.rows = row->next;
		free(row);
	}
	while (c->devices.waits) {
		struct device_wait *wait = c->devices.waits;

		c->devices.waits = wait->next;
		free(wait);
	}
}

/* ---- what commands see ---- */

void credits_ask(struct coordinator *c, struct peer *client)
{
	struct protocol_message message;

	protocol_begin(&message, PROTOCOL_DEVICE_SAY, ++c->next_serial);
	message.device_say.keeps = 1;
	peer_send(c, client, &message, -1, -1);
}

void credits_show(struct coordinator *c, struct peer *control, uint64_t serial, const struct peer *client)
{
	for (const struct device_row *row = c->devices.rows; row && !control->dropped; row = row->next) {
		struct protocol_message message;
		struct message_device *device = &message.device;
		bool any = !client;

		protocol_begin(&message, PROTOCOL_DEVICE, serial);
		memcpy(device->uuid, row->uuid, sizeof(device->uuid));
		device->total_bytes = row->total_bytes;
		device->capacity_bytes = capacity_of(c, row);
		device->reserve_bytes = reserve_of(c, row);
		device->phase = phase_on(c, row->uuid);
		for (const struct device_share *share = row->shares; share; share = share->next) {
			if (!share->peer || (client && share->peer != client))
				continue;
			any = true;
			device->credit_bytes += share->credit_bytes;
			device->used_bytes += share->used_bytes;
			device->native_bytes += share->native_bytes;
			device->budget_bytes = client ? share->budget_bytes : 0;
		}
		if (any)
			peer_send(c, control, &message, -1, -1);
	}
}
