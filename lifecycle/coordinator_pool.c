/* lifecycle/coordinator_pool.c
 * The ledger of host bytes, and the descriptors that keep extents beyond the end of who made them.
 * Credits that a barrier waits for are another matter: docs/barrier.md, R8, R9 and R19.
 * Invariant: used = what the clients have credit for + the extents of ended ones; a credit never lifts it above the cap. */
#include "lifecycle/coordinator_priv.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/size.h"

enum { HOLDERS_SHOWN = 3 };

void pool_init(struct pool *pool, uint64_t cap_bytes, uint32_t count_max)
{
	*pool = (struct pool){.cap_bytes = cap_bytes, .count_max = count_max};
}

/* Unlinks and closes the extent *@at. */
static void drop_extent(struct pool *pool, struct extent_fd **at)
{
	struct extent_fd *extent = *at;

	*at = extent->next;
	if (!extent->owner)
		pool->orphan_bytes -= extent->bytes;
	close(extent->fd);
	pool->count--;
	free(extent);
}

void pool_release(struct pool *pool)
{
	while (pool->waits) {
		struct pool_wait *wait = pool->waits;

		pool->waits = wait->next;
		free(wait);
	}
	while (pool->extents)
		drop_extent(pool, &pool->extents);
}

uint64_t pool_used_bytes(const struct coordinator *c)
{
	uint64_t used = c->pool.orphan_bytes;

	for (const struct peer *peer = c->peers; peer; peer = peer->next)
		used += peer->dropped ? 0 : peer->host_bytes;
	return used;
}

static bool fits(const struct coordinator *c, uint64_t bytes)
{
	uint64_t used = pool_used_bytes(c);

	return used <= c->pool.cap_bytes && bytes <= c->pool.cap_bytes - used;
}

bool pool_make_room(struct coordinator *c, uint64_t bytes, uint64_t but_bytes)
{
	/* others first: one of that size will be asked for next */
	for (int pass = 0; pass < 2; pass++) {
		struct extent_fd **at = &c->pool.extents;

		while (*at && !fits(c, bytes)) {
			if (!(*at)->owner && (pass || (*at)->bytes != but_bytes))
				drop_extent(&c->pool, at);
			else
				at = &(*at)->next;
		}
	}
	return fits(c, bytes);
}

/* Who has most, for a person who has to make room; as many as fit. */
static void describe_holders(const struct coordinator *c, char *text, size_t room)
{
	const struct peer *named[HOLDERS_SHOWN] = {NULL};
	size_t used = 0;

	text[0] = '\0';
	for (int shown = 0; shown < HOLDERS_SHOWN; shown++) {
		const struct peer *most = NULL;
		char who[64], bytes[16], holder[96];
		size_t length;

		for (const struct peer *peer = c->peers; peer; peer = peer->next)
			if (!peer->dropped && peer->host_bytes > (most ? most->host_bytes : 0) && peer != named[0] &&
				peer != named[1])
				most = peer;
		if (!most)
			return;
		named[shown] = most;
		length = (size_t)snprintf(holder, sizeof(holder), "%s%s %s", shown ? ", " : ": ", peer_name(most, who, sizeof(who)),
			size_format(most->host_bytes, bytes, sizeof(bytes)));
		if (used + length >= room)
			return;
		memcpy(text + used, holder, length + 1);
		used += length;
	}
}

static void answer(struct coordinator *c, struct peer *client, enum protocol_type type, uint64_t serial, bool granted,
	const char *text, int fd)
{
	struct protocol_message message;

	protocol_begin(&message, type, serial);
	message.verdict.granted = granted;
	protocol_text(message.verdict.text, sizeof(message.verdict.text), text);
	peer_send(c, client, &message, fd, -1);
}

static bool try_credit(struct coordinator *c, struct peer *client, uint64_t bytes, uint64_t serial)
{
	if (!pool_make_room(c, bytes, bytes))
		return false;
	client->host_bytes += bytes;
	answer(c, client, PROTOCOL_CREDITED, serial, true, "", -1);
	return true;
}

static void refuse_credit(struct coordinator *c, struct peer *client, uint64_t serial)
{
	char text[PROTOCOL_TEXT_BYTES], holders[120], used[16], cap[16];

	coordinator_trace_peer(c, TRACE_REFUSED, client, POLICY_NONE, pool_used_bytes(c));
	describe_holders(c, holders, sizeof(holders));
	snprintf(text, sizeof(text), "%s of %s are in use%s; raise host_pool or SUBLET_HOST_POOL",
		size_format(pool_used_bytes(c), used, sizeof(used)), size_format(c->pool.cap_bytes, cap, sizeof(cap)), holders);
	answer(c, client, PROTOCOL_CREDITED, serial, false, text, -1);
}

/* An extent of the client's own is gone: a descriptor of it would keep its pages. */
static void forget_extent(struct coordinator *c, const struct peer *client, uint64_t number)
{
	for (struct extent_fd **at = &c->pool.extents; *at; at = &(*at)->next) {
		if ((*at)->owner != client || (*at)->number != number)
			continue;
		drop_extent(&c->pool, at);
		return;
	}
}

static bool has_free(const struct coordinator *c, uint64_t bytes)
{
	const struct extent_fd *extent = c->pool.extents;

	while (extent && (extent->owner || extent->bytes != bytes))
		extent = extent->next;
	return extent != NULL;
}

static bool try_take(struct coordinator *c, struct peer *client, uint64_t bytes, uint64_t number, uint64_t serial)
{
	for (struct extent_fd *extent = c->pool.extents; extent; extent = extent->next) {
		int fd;

		if (extent->owner || extent->bytes != bytes)
			continue;
		fd = fcntl(extent->fd, F_DUPFD_CLOEXEC, 0);
		if (fd < 0)
			break;
		extent->owner = client;
		extent->number = number;
		c->pool.orphan_bytes -= bytes;
		client->host_bytes += bytes;
		answer(c, client, PROTOCOL_TAKEN, serial, true, "", fd);
		return true;
	}
	return false;
}

/* ---- what others keep ---- */

/* Ask all others that have host bytes to let go of what they only keep: what it is they alone know. False: nothing will come. */
static bool recall(struct coordinator *c, const struct peer *client, uint64_t bytes)
{
	bool asked = peers_away_hold(c, client);

	for (struct peer *peer = c->peers; peer; peer = peer->next) {
		struct protocol_message message;

		if (peer == client || peer->dropped || peer->fd < 0 || !peer->joined || !peer->host_bytes)
			continue;
		asked = true;
		if (peer->recalled) /* its answer will be looked at by all who wait */
			continue;
		peer->recalled = true;
		protocol_begin(&message, PROTOCOL_RECALL, ++c->pool.next_recall);
		message.recall.bytes = message.recall.size_bytes = bytes;
		peer_send(c, peer, &message, -1, -1);
	}
	return asked;
}

void pool_trim(struct coordinator *c)
{
	if (!pool_make_room(c, 0, 0))
		recall(c, NULL, pool_used_bytes(c) - c->pool.cap_bytes);
}

static bool try_wait(struct coordinator *c, const struct pool_wait *wait)
{
	return wait->number ? try_take(c, wait->client, wait->bytes, wait->number, wait->serial)
			    : try_credit(c, wait->client, wait->bytes, wait->serial);
}

static void refuse_wait(struct coordinator *c, const struct pool_wait *wait)
{
	if (wait->number)
		answer(c, wait->client, PROTOCOL_TAKEN, wait->serial, false, "", -1);
	else
		refuse_credit(c, wait->client, wait->serial);
}

/* Where it cannot be had at once, and others keep some, it waits for theirs. */
static void ask(struct coordinator *c, const struct pool_wait *asked)
{
	struct pool_wait **end = &c->pool.waits, *wait;

	/* an extent is not taken from others while there is room to make one: the credit that is asked for next finds it */
	if (try_wait(c, asked))
		return;
	wait = asked->number && fits(c, asked->bytes) ? NULL : malloc(sizeof(*wait));
	if (!wait || !recall(c, asked->client, asked->bytes)) {
		free(wait);
		refuse_wait(c, asked);
		return;
	}
	*wait = *asked;
	wait->next = NULL;
	wait->deadline_ns = clock_now_ns() + RECALL_WAIT_MS * CLOCK_NS_PER_MS;
	while (*end)
		end = &(*end)->next;
	*end = wait;
}

/* The first that can be answered: it has what it waits for, or @refuse and its time is over. It is out of the list. */
static struct pool_wait *next_answer(struct coordinator *c, bool refuse, uint64_t now_ns)
{
	for (struct pool_wait **at = &c->pool.waits; *at; at = &(*at)->next) {
		struct pool_wait *wait = *at;

		if (wait->number ? !has_free(c, wait->bytes) : !pool_make_room(c, wait->bytes, wait->bytes)) {
			if (!refuse && now_ns < wait->deadline_ns)
				continue;
		}
		*at = wait->next;
		return wait;
	}
	return NULL;
}

/* Something came, or, with @refuse, nothing will. Sending may drop a peer, whose waits go then: so each time from the start. */
static void answer_waits(struct coordinator *c, bool refuse, uint64_t now_ns)
{
	struct pool_wait *wait;

	while ((wait = next_answer(c, refuse, now_ns))) {
		if (!try_wait(c, wait))
			refuse_wait(c, wait);
		free(wait);
	}
}

/* It has let go of what it was asked for. While it had some, those who still wait ask again. */
static void recalled(struct coordinator *c, struct peer *client)
{
	const bool gave = client->gave;

	client->recalled = client->gave = false;
	answer_waits(c, false, clock_now_ns());
	if (gave && c->pool.waits)
		recall(c, c->pool.waits->client, c->pool.waits->bytes);
}

uint64_t pool_expire(struct coordinator *c, uint64_t now_ns)
{
	uint64_t next = UINT64_MAX;
	bool outstanding = peers_away_hold(c, NULL);

	if (!c->pool.waits)
		return next;
	for (const struct peer *peer = c->peers; peer; peer = peer->next)
		outstanding |= peer->recalled;
	answer_waits(c, !outstanding, now_ns);
	for (const struct pool_wait *wait = c->pool.waits; wait; wait = wait->next)
		next = wait->deadline_ns < next ? wait->deadline_ns : next;
	return next;
}

/* @client's extent @number is nobody's from now on; without a descriptor it is as if it had been given back. */
static bool leave(struct coordinator *c, struct peer *client, uint64_t bytes, uint64_t number)
{
	if (bytes > client->host_bytes)
		return false;
	client->host_bytes -= bytes;
	for (struct extent_fd *extent = c->pool.extents; extent; extent = extent->next) {
		if (extent->owner != client || extent->number != number || extent->bytes != bytes)
			continue;
		extent->owner = NULL;
		c->pool.orphan_bytes += bytes;
		break;
	}
	pool_make_room(c, 0, 0);
	return true;
}

static uint64_t bytes_with_fd(const struct coordinator *c, const struct peer *client)
{
	uint64_t bytes = 0;

	for (const struct extent_fd *extent = c->pool.extents; extent; extent = extent->next)
		bytes += extent->owner == client ? extent->bytes : 0;
	return bytes;
}

static bool made(struct coordinator *c, struct peer *client, uint64_t bytes, uint64_t number, int *fd, struct errinfo *reterr)
{
	uint64_t with_fd = bytes_with_fd(c, client);
	struct extent_fd *extent;

	if (with_fd > client->host_bytes || bytes > client->host_bytes - with_fd) {
		errinfo_set(reterr, SUBLET_ERR_INVALID, 0, "an extent that it had no credit for; use one version of Sublet in the session");
		return false;
	}
	/* without a descriptor it ends with its process, no more */
	extent = c->pool.count < c->pool.count_max ? malloc(sizeof(*extent)) : NULL;
	if (!extent)
		return true;
	*extent = (struct extent_fd){c->pool.extents, bytes, number, *fd, client};
	c->pool.extents = extent;
	c->pool.count++;
	*fd = -1;
	return true;
}

bool pool_message(struct coordinator *c, struct peer *client, const struct protocol_message *message, int *fd, struct errinfo *reterr)
{
	const uint64_t bytes = message->amount.bytes;

	if (message->header.type == PROTOCOL_CREDIT || message->header.type == PROTOCOL_TAKE) {
		const struct pool_wait asked = {
			.client = client, .bytes = bytes, .number = message->amount.extent, .serial = message->header.serial};

		ask(c, &asked);
	} else if (message->header.type == PROTOCOL_RECALLED) {
		recalled(c, client);
	} else if (message->header.type == PROTOCOL_MADE) {
		return made(c, client, bytes, message->amount.extent, fd, reterr);
	} else {
		const bool leaves = message->header.type == PROTOCOL_LEAVE;

		client->gave = true;

		if (leaves ? !leave(c, client, bytes, message->amount.extent) : bytes > client->host_bytes) {
			errinfo_set(reterr, SUBLET_ERR_INVALID, 0,
				"more host bytes given back than it has; use one version of Sublet in the session");
			return false;
		}
		if (leaves)
			return true;
		client->host_bytes -= bytes;
		if (message->amount.extent)
			forget_extent(c, client, message->amount.extent);
	}
	return true;
}

void pool_connection_gone(struct coordinator *c, struct peer *client)
{
	struct pool_wait **at = &c->pool.waits;

	client->recalled = client->gave = false;
	while (*at) {
		struct pool_wait *wait = *at;

		if (wait->client != client) {
			at = &wait->next;
			continue;
		}
		*at = wait->next;
		free(wait);
	}
}

void pool_client_gone(struct coordinator *c, struct peer *client, bool process_ended)
{
	struct extent_fd **at = &c->pool.extents;
	uint64_t kept = 0;

	pool_connection_gone(c, client);
	while (*at) {
		struct extent_fd *extent = *at;

		if (extent->owner == client && !process_ended) {
			drop_extent(&c->pool, at);
			continue;
		}
		if (extent->owner == client) {
			extent->owner = NULL;
			kept += extent->bytes;
		}
		at = &extent->next;
	}
	c->pool.orphan_bytes += kept;
	client->host_bytes = 0;
	pool_make_room(c, 0, 0);
	if (kept) {
		char bytes[16];

		log_say(LOG_SESSION, LOG_INFO, WHOSE_NONE, "%s of host memory is kept for the next who asks",
			size_format(kept, bytes, sizeof(bytes)));
	}
}
