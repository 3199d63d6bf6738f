/* lifecycle/client_pool.c
 * The host pool asks the session: a question, and a wait with a bound for its answer, which the reading thread brings. One
 * question at a time. A coordinator that does not answer is no reason to wait longer, and no reason to take what is another's:
 * then the answer is no. */
#include "lifecycle/client_priv.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "lifecycle/lifecycle.h"

#define ANSWER_WAIT_NS 2000000000ull

enum asked { ASKED_YES, ASKED_NO, ASKED_NOBODY /* not joined, or no answer in time */ };

/* With more of them than are remembered the coordinator's ledger cannot be set right by giving back: a new hello does. */
static void remember_late(struct client *client, uint64_t serial, uint64_t bytes, uint64_t extent)
{
	struct client_late *late = &client->late[client->late_next++ % CLIENT_LATE];

	if (late->serial)
		client_drop(client);
	*late = (struct client_late){serial, bytes, extent};
}

static void give_locked(struct client *client, uint64_t bytes, uint64_t extent)
{
	struct protocol_message message;

	protocol_begin(&message, PROTOCOL_GIVE, ++client->serial);
	message.amount.bytes = bytes;
	message.amount.extent = extent;
	client_send(client, 0, &message, -1);
}

void client_answered(struct client *client, const struct protocol_message *message, int fd)
{
	struct client_question *question = &client->question;

	if (question->serial && question->serial == message->header.serial && !question->answered) {
		question->verdict = message->verdict;
		question->fd = fd;
		question->answered = true;
		pthread_cond_broadcast(&client->changed);
		return;
	}
	for (int i = 0; i < CLIENT_LATE; i++) {
		if (client->late[i].serial != message->header.serial || !message->header.serial)
			continue;
		if (message->verdict.granted)
			give_locked(client, client->late[i].bytes, client->late[i].extent);
		client->late[i].serial = 0;
	}
	if (fd >= 0)
		close(fd);
}

/* Caller holds the lock. @extent: the number of what is taken, or 0. The descriptor of a yes is in *ret_fd, -1 where none came. */
static enum asked ask(struct lifecycle *lc, enum protocol_type type, uint64_t bytes, uint64_t extent, char *why, size_t why_size,
	int *ret_fd)
{
	const uint64_t deadline = clock_now_ns() + ANSWER_WAIT_NS;
	struct client *client = &lc->client;
	struct client_question *question = &client->question;
	struct protocol_message message;
	uint32_t connection;
	enum asked asked = ASKED_NOBODY;

	*ret_fd = -1;
	while (question->serial && clock_now_ns() < deadline)
		client_wait(client, deadline);
	if (question->serial || client->socket.fd < 0)
		return asked;
	connection = client->connection;
	protocol_begin(&message, type, ++client->serial);
	message.amount.bytes = bytes;
	message.amount.extent = extent;
	*question = (struct client_question){.serial = message.header.serial, .fd = -1};
	if (client_send(client, connection, &message, -1)) {
		while (!question->answered && client->socket.fd >= 0 && client->connection == connection && !client->stop &&
			clock_now_ns() < deadline) {
			client_wait(client, deadline);
			/* two that wait for what the other keeps */
			ranked_unlock(&client->lock);
			host_pool_let_go(lc);
			ranked_lock(&client->lock);
		}
		if (!question->answered && client->connection == connection)
			remember_late(client, question->serial, bytes, extent);
	}
	if (question->answered) {
		asked = question->verdict.granted ? ASKED_YES : ASKED_NO;
		*ret_fd = question->fd;
		if (why && asked == ASKED_NO)
			snprintf(why, why_size, "%s", question->verdict.text);
	}
	question->serial = 0;
	pthread_cond_broadcast(&client->changed);
	return asked;
}

static bool credit(void *arg, uint64_t bytes, char *why, size_t why_size)
{
	struct client *client = &((struct lifecycle *)arg)->client;
	enum asked asked;
	int fd;

	ranked_lock(&client->lock);
	asked = ask(arg, PROTOCOL_CREDIT, bytes, 0, why, why_size, &fd);
	/* With nobody to ask, what this process had a share of before stays within the cap it was told. A soft hold needs it. */
	if (asked == ASKED_NOBODY && client->socket.fd < 0 && client->host_bytes < client->pool_cap_bytes &&
		bytes <= client->pool_cap_bytes - client->host_bytes)
		asked = ASKED_YES;
	else if (asked == ASKED_NOBODY && client->socket.fd < 0)
		snprintf(why, why_size, "the session has no coordinator now, and the cap is reached by what this process has; start it again");
	else if (asked == ASKED_NOBODY)
		snprintf(why, why_size, "the session's coordinator does not answer; see 'sublet ctl status'");
	if (asked == ASKED_YES)
		client->host_bytes += bytes;
	ranked_unlock(&client->lock);
	if (fd >= 0)
		close(fd);
	return asked == ASKED_YES;
}

static void give(void *arg, uint64_t bytes, uint64_t extent)
{
	struct client *client = &((struct lifecycle *)arg)->client;

	ranked_lock(&client->lock);
	client->host_bytes -= bytes < client->host_bytes ? bytes : client->host_bytes;
	give_locked(client, bytes, extent);
	ranked_unlock(&client->lock);
}

static bool take(void *arg, uint64_t bytes, uint64_t extent, int *ret_fd)
{
	struct client *client = &((struct lifecycle *)arg)->client;
	bool taken;
	int fd;

	ranked_lock(&client->lock);
	taken = ask(arg, PROTOCOL_TAKE, bytes, extent, NULL, 0, &fd) == ASKED_YES && fd >= 0;
	if (taken)
		client->host_bytes += bytes;
	ranked_unlock(&client->lock);
	if (taken)
		*ret_fd = fd;
	else if (fd >= 0)
		close(fd);
	return taken;
}

static void made(void *arg, uint64_t bytes, uint64_t extent, int fd)
{
	struct client *client = &((struct lifecycle *)arg)->client;
	struct protocol_message message;

	if (fd < 0)
		return;
	ranked_lock(&client->lock);
	protocol_begin(&message, PROTOCOL_MADE, ++client->serial);
	message.amount.bytes = bytes;
	message.amount.extent = extent;
	client_send(client, 0, &message, fd);
	ranked_unlock(&client->lock);
	close(fd);
}

/* As give, but that the coordinator keeps the descriptor. */
static void leave(void *arg, uint64_t bytes, uint64_t extent)
{
	struct client *client = &((struct lifecycle *)arg)->client;
	struct protocol_message message;

	ranked_lock(&client->lock);
	client->host_bytes -= bytes < client->host_bytes ? bytes : client->host_bytes;
	protocol_begin(&message, PROTOCOL_LEAVE, ++client->serial);
	message.amount.bytes = bytes;
	message.amount.extent = extent;
	client_send(client, 0, &message, -1);
	ranked_unlock(&client->lock);
}

static void recalled(void *arg, uint64_t serial)
{
	struct client *client = &((struct lifecycle *)arg)->client;
	struct protocol_message message;

	ranked_lock(&client->lock);
	protocol_begin(&message, PROTOCOL_RECALLED, serial);
	client_send(client, 0, &message, -1);
	ranked_unlock(&client->lock);
}

void client_recall(struct lifecycle *lc, const struct protocol_message *message)
{
	const struct host_recall recall = {message->recall.bytes, message->recall.size_bytes, message->header.serial};

	if (!host_pool_recall(lc, &recall) || !service_let_go(lc))
		recalled(lc, recall.serial);
	ranked_lock(&lc->client.lock);
	pthread_cond_broadcast(&lc->client.changed); /* the thread may be waiting for an answer of its own */
	ranked_unlock(&lc->client.lock);
}

void client_set_hooks(struct lifecycle *lc)
{
	const struct host_pool_hooks hooks = {
		.credit = credit, .give = give, .take = take, .made = made, .leave = leave, .recalled = recalled, .arg = lc};

	host_pool_set_hooks(&lc->host_pool, &hooks);
}
