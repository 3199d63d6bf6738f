/* lifecycle/coordinator_requests.c
 * What commands ask, passed on to clients; answers gathered, each within a bound, so that a client that is stopped or dead costs a
 * command seconds and the others nothing.
 * Entries are only marked while messages are handled, since an answer that cannot be sent drops a peer, which marks others;
 * they are finished and freed between two rounds, by requests_expire. */
#include "lifecycle/coordinator_priv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"

void control_end(struct coordinator *c, struct peer *control, uint64_t serial, uint32_t count, enum sublet_err error,
	const char *text)
{
	struct protocol_message message;

	protocol_begin(&message, PROTOCOL_END, serial);
	message.end.count = count;
	message.end.error = error;
	protocol_text(message.end.text, sizeof(message.end.text), text);
	peer_send(c, control, &message, -1, -1);
}

static struct request *new_request(struct coordinator *c, struct peer *control, uint64_t serial, enum request_kind kind)
{
	struct request *request = calloc(1, sizeof(*request));

	if (!request) {
		control_end(c, control, serial, 0, SUBLET_ERR_SYSTEM, "the coordinator is out of memory; try again");
		return NULL;
	}
	request->control = control;
	request->serial = serial;
	request->kind = kind;
	request->next = c->requests;
	c->requests = request;
	return request;
}

static void fill_who(struct message_client *who, const struct peer *client)
{
	memset(who, 0, sizeof(*who));
	who->pid = client->pid;
	who->host_bytes = client->host_bytes;
	memcpy(who->role, client->role, sizeof(who->role));
	memcpy(who->command, client->command, sizeof(who->command));
}

static void lapse(struct coordinator *c, struct asked *asked);

/* Ask @client on behalf of @request. At the end of the list: a client answers in the order it is asked. */
static void ask(struct coordinator *c, struct request *request, struct peer *client, struct protocol_message *message, uint32_t rule,
	uint64_t wait_ns, uint64_t served_wait_ns)
{
	struct asked *asked = c->asked_count < ASKED_MAX ? calloc(1, sizeof(*asked)) : NULL, **end = &c->asked;

	if (!asked) {
		request->is_cut = true;
		return;
	}
	asked->request = request;
	asked->client = client;
	asked->serial = message->header.serial;
	asked->rule = rule;
	asked->deadline_ns = clock_now_ns() + wait_ns;
	asked->served_deadline_ns = clock_now_ns() + served_wait_ns;
	fill_who(&asked->who, client);
	while (*end)
		end = &(*end)->next;
	*end = asked;
	c->asked_count++;
	request->waiting++;
	/* a question before this one may have found that it is gone */
	if (client->fd < 0)
		lapse(c, asked);
	else
		peer_send(c, client, message, -1, -1);
}

/* Ask every client what it has. */
static void ask_all(struct coordinator *c, struct peer *control, uint64_t serial, enum request_kind kind, enum protocol_type question)
{
	struct request *request = new_request(c, control, serial, kind);

	for (struct peer *peer = c->peers; request && peer; peer = peer->next) {
		struct protocol_message message;

		if (peer->dropped || peer->fd < 0 || peer->kind != PEER_CLIENT)
			continue;
		if (kind == REQUEST_STATUS)
			credits_ask(c, peer);
		protocol_begin(&message, question, ++c->next_serial);
		ask(c, request, peer, &message, PROTOCOL_ALL, LIST_WAIT_MS * CLOCK_NS_PER_MS, 0);
	}
}

void request_status(struct coordinator *c, struct peer *control, uint64_t serial)
{
	ask_all(c, control, serial, REQUEST_STATUS, PROTOCOL_LIST);
}

void request_inventory(struct coordinator *c, struct peer *control, uint64_t serial)
{
	ask_all(c, control, serial, REQUEST_INVENTORY, PROTOCOL_TELL);
}

static bool is_meant(const struct peer *peer, const struct message_ask_serve *ask)
{
	return !peer->dropped && peer->fd >= 0 && peer->kind == PEER_CLIENT && !peer->without_gpu && (!ask->pid || ask->pid == peer->pid) &&
	       (!ask->role[0] || strcmp(ask->role, peer->role) == 0);
}

/* May the policy's @rule do that? Else a sentence why not. */
static bool may(const struct coordinator *c, uint32_t verb, uint32_t rule, char *text, size_t room)
{
	enum policy_reason reason = POLICY_BECAUSE_PINNED_RULE;

	if (rule >= c->policy.rules_count) {
		snprintf(text, room, "object %u is not in the policy; see 'sublet ctl objects'", rule);
		return false;
	}
	if (verb == VERB_DISCARD ? policy_may_discard(&c->policy, rule, &reason)
				 : c->policy.rules[rule].kind != POLICY_RULE_PINNED)
		return true;
	snprintf(text, room, "object '%s': %s; %s", policy_text(&c->policy, c->policy.rules[rule].name), policy_reason_text(reason),
		verb == VERB_DISCARD ? "offload or park it instead" : "name others, or change the policy");
	return false;
}

static bool may_all(const struct coordinator *c, const struct message_ask_serve *ask, char *text, size_t room)
{
	if (ask->verb == VERB_DISCARD && c->policy_fd < 0) {
		snprintf(text, room, "no policy says which bytes may be discarded; serve the session with --policy FILE");
		return false;
	}
	for (uint32_t i = 0; i < ask->count; i++)
		if (!may(c, ask->verb, ask->rules[i], text, room))
			return false;
	return true;
}

void request_serve(struct coordinator *c, struct peer *control, const struct protocol_message *question)
{
	const struct message_ask_serve *wanted = &question->ask_serve;
	uint64_t served_wait_ns = SERVED_SLACK_NS, serial = question->header.serial;
	struct request *request;
	char text[PROTOCOL_TEXT_BYTES];

	if (c->barrier.active) {
		control_end(c, control, serial, 0, SUBLET_ERR_INVALID, "the session is between two phases; try again when the next has begun");
		return;
	}
	if (!may_all(c, wanted, text, sizeof(text))) {
		control_end(c, control, serial, 0, SUBLET_ERR_INVALID, text);
		return;
	}
	request = new_request(c, control, serial, REQUEST_SERVE);
	for (struct peer *peer = c->peers; request && peer; peer = peer->next) {
		if (!is_meant(peer, wanted))
			continue;
		for (uint32_t i = 0; i < (wanted->count ? wanted->count : 1); i++) {
			struct protocol_message message;

			protocol_begin(&message, PROTOCOL_SERVE, ++c->next_serial);
			message.serve.verb = wanted->verb;
			message.serve.rule = wanted->count ? wanted->rules[i] : PROTOCOL_ALL;
			message.serve.timeout_ns = wanted->timeout_ns;
			served_wait_ns = wanted->timeout_ns < SERVED_SLACK_NS * 100 ? wanted->timeout_ns * (i + 1) + SERVED_SLACK_NS
										    : SERVED_SLACK_NS * 101;
			ask(c, request, peer, &message, message.serve.rule, SERVING_WAIT_MS * CLOCK_NS_PER_MS, served_wait_ns);
		}
	}
}

static struct asked *find(struct coordinator *c, const struct peer *client, uint64_t serial)
{
	for (struct asked *asked = c->asked; asked; asked = asked->next)
		if (asked->serial == serial && asked->client == client && !asked->done)
			return asked;
	return NULL;
}

static void done(struct asked *asked, bool answered)
{
	asked->done = true;
	asked->answered = answered;
	asked->request->waiting--;
}

bool request_listed(struct coordinator *c, struct peer *client, const struct protocol_message *message)
{
	struct asked *asked = find(c, client, message->header.serial);
	const struct message_listed *listed = &message->listed;
	struct message_row *rows;

	/* an answer that came too late is none to complain of */
	if (!asked || asked->request->kind != REQUEST_STATUS)
		return message->header.serial <= c->next_serial;
	if (asked->rows_count + listed->count > POLICY_RULES_MAX + 1)
		return false;
	rows = realloc(asked->rows, (asked->rows_count + listed->count + 1) * sizeof(*rows));
	if (!rows) {
		done(asked, false);
		return true;
	}
	memcpy(rows + asked->rows_count, listed->rows, listed->count * sizeof(*rows));
	asked->rows = rows;
	asked->rows_count += listed->count;
	if (!listed->more)
		done(asked, true);
	return true;
}

/* Passed on as it is: who asked looks at it. @fd is taken over; -1: there is none, @asked did not say. */
static void say_inventory(struct coordinator *c, struct asked *asked, uint64_t bytes, int fd)
{
	struct request *request = asked->request;
	struct protocol_message message;

	done(asked, fd >= 0);
	if (!request->control) {
		if (fd >= 0)
			close(fd);
		return;
	}
	protocol_begin(&message, PROTOCOL_INVENTORY, request->serial);
	message.inventory.client = asked->who;
	message.inventory.client.answered = fd >= 0;
	message.inventory.bytes = fd >= 0 ? bytes : 0;
	request->count++;
	peer_send(c, request->control, &message, fd, -1);
}

bool request_told(struct coordinator *c, struct peer *client, const struct protocol_message *message, int *fd)
{
	struct asked *asked = find(c, client, message->header.serial);

	if ((*fd >= 0) != (message->told.bytes > 0))
		return false;
	if (asked && asked->request->kind == REQUEST_INVENTORY) {
		say_inventory(c, asked, message->told.bytes, *fd);
		*fd = -1;
	}
	return asked || message->header.serial <= c->next_serial;
}

bool request_serving(struct coordinator *c, struct peer *client, uint64_t serial)
{
	struct asked *asked = find(c, client, serial);

	if (asked && asked->request->kind == REQUEST_SERVE)
		asked->deadline_ns = asked->served_deadline_ns;
	return asked || serial <= c->next_serial;
}

static void say_outcome(struct coordinator *c, struct asked *asked, const struct message_served *served)
{
	struct request *request = asked->request;
	struct protocol_message message;

	done(asked, true);
	if (!request->control)
		return;
	protocol_begin(&message, PROTOCOL_OUTCOME, request->serial);
	message.outcome.pid = asked->who.pid;
	message.outcome.rule = asked->rule;
	memcpy(message.outcome.role, asked->who.role, sizeof(message.outcome.role));
	memcpy(message.outcome.command, asked->who.command, sizeof(message.outcome.command));
	message.outcome.served = *served;
	text_make_printable(message.outcome.served.text); /* it may name a kernel, or a thread */
	request->count++;
	peer_send(c, request->control, &message, -1, -1);
}

/* For a client that does not say so itself. */
static void say_failed(struct coordinator *c, struct asked *asked, const char *text)
{
	struct message_served served = {.error = SUBLET_ERR_SYSTEM};

	protocol_text(served.text, sizeof(served.text), text);
	say_outcome(c, asked, &served);
}

bool request_served(struct coordinator *c, struct peer *client, const struct protocol_message *message)
{
	struct asked *asked = find(c, client, message->header.serial);

	if (asked && asked->request->kind == REQUEST_SERVE)
		say_outcome(c, asked, &message->served);
	return asked || message->header.serial <= c->next_serial;
}

/* No answer will come; @text says why where that is told. */
static void give_up(struct coordinator *c, struct asked *asked, const char *text)
{
	if (asked->request->kind == REQUEST_STATUS)
		done(asked, false);
	else if (asked->request->kind == REQUEST_INVENTORY)
		say_inventory(c, asked, 0, -1);
	else
		say_failed(c, asked, text);
}

/* Whom it was asked of is gone. */
static void lapse(struct coordinator *c, struct asked *asked)
{
	asked->client = NULL;
	if (!asked->done)
		give_up(c, asked, "it has left before it answered");
}

void requests_peer_gone(struct coordinator *c, struct peer *peer)
{
	for (struct request *request = c->requests; request; request = request->next)
		if (request->control == peer)
			request->control = NULL;
	for (struct asked *asked = c->asked; asked; asked = asked->next)
		if (asked->client == peer)
			lapse(c, asked);
}

static void send_rows(struct coordinator *c, struct request *request, const struct asked *asked)
{
	for (uint32_t sent = 0; sent < asked->rows_count && request->control;) {
		uint32_t count = asked->rows_count - sent;
		struct protocol_message message;

		if (count > PROTOCOL_ROWS_MAX)
			count = PROTOCOL_ROWS_MAX;
		protocol_begin(&message, PROTOCOL_OBJECTS, request->serial);
		message.listed.count = count;
		memcpy(message.listed.rows, asked->rows + sent, count * sizeof(message.listed.rows[0]));
		sent += count;
		message.listed.more = sent < asked->rows_count;
		peer_send(c, request->control, &message, -1, -1);
	}
}

/* All have answered, or had their time: the head, then each client with its objects. */
static void send_status(struct coordinator *c, struct request *request)
{
	struct protocol_message message;

	protocol_begin(&message, PROTOCOL_SESSION, request->serial);
	message.session.pid = (int32_t)getpid();
	message.session.pool_bytes = c->pool.cap_bytes;
	message.session.pool_used_bytes = pool_used_bytes(c);
	message.session.pool_kept_bytes = c->pool.orphan_bytes;
	message.session.clock = c->barrier.clock;
	message.session.phase = c->barrier.phase;
	message.session.to_phase = c->barrier.active ? c->barrier.to : POLICY_NONE;
	protocol_text(message.session.policy_name, sizeof(message.session.policy_name), c->policy_name);
	text_make_printable(message.session.policy_name);
	for (const struct asked *asked = c->asked; asked; asked = asked->next)
		message.session.clients += asked->request == request && asked->client;
	peer_send(c, request->control, &message, -1, -1);
	if (request->control)
		credits_show(c, request->control, request->serial, NULL);
	for (struct asked *asked = c->asked; asked && request->control; asked = asked->next) {
		if (asked->request != request || !asked->client)
			continue;
		protocol_begin(&message, PROTOCOL_CLIENT, request->serial);
		fill_who(&message.client, asked->client);
		message.client.answered = asked->answered;
		request->count++;
		peer_send(c, request->control, &message, -1, -1);
		if (request->control)
			credits_show(c, request->control, request->serial, asked->client);
		if (asked->answered)
			send_rows(c, request, asked);
	}
}

static void sweep_asked(struct coordinator *c, const struct request *request)
{
	struct asked **at = &c->asked;

	while (*at) {
		struct asked *asked = *at;

		if (asked->request != request) {
			at = &asked->next;
			continue;
		}
		*at = asked->next;
		c->asked_count--;
		free(asked->rows);
		free(asked);
	}
}

static void finish(struct coordinator *c)
{
	struct request **at = &c->requests;

	while (*at) {
		struct request *request = *at;

		if (request->waiting) {
			at = &request->next;
			continue;
		}
		if (request->kind == REQUEST_STATUS && request->control)
			send_status(c, request);
		if (request->control)
			control_end(c, request->control, request->serial, request->count,
				request->is_cut ? SUBLET_ERR_SYSTEM : SUBLET_OK,
				request->is_cut ? "too many requests wait for answers; not all clients were asked, try again" : "");
		sweep_asked(c, request);
		*at = request->next;
		free(request);
	}
}

uint64_t requests_expire(struct coordinator *c, uint64_t now_ns)
{
	uint64_t next = UINT64_MAX;

	for (struct asked *asked = c->asked; asked; asked = asked->next) {
		if (asked->done)
			continue;
		if (asked->deadline_ns > now_ns) {
			next = asked->deadline_ns < next ? asked->deadline_ns : next;
			continue;
		}
		give_up(c, asked,
			asked->deadline_ns == asked->served_deadline_ns
				? "it has begun and not finished; see its log, and 'sublet ctl status' later"
				: "it does not answer (stopped, or very busy); it may still do it later");
	}
	finish(c);
	return next;
}

void requests_release(struct coordinator *c)
{
	while (c->requests) {
		struct request *request = c->requests;

		c->requests = request->next;
		sweep_asked(c, request);
		free(request);
	}
}
