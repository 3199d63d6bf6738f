/* lifecycle/client_serve.c
 * What the session asks of this process: what it has, and to move it. The first is answered at once by the reading thread; the
 * second waits for its turn on a thread of its own, since a hold takes its time and the connection is read meanwhile. */
#include "lifecycle/client_priv.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "lifecycle/lifecycle.h"

_Static_assert((int)SERVICE_OFFLOAD == VERB_OFFLOAD && (int)SERVICE_PARK == VERB_PARK && (int)SERVICE_RESTORE == VERB_RESTORE &&
		       (int)SERVICE_DISCARD == VERB_DISCARD,
	"verbs of the protocol are those of the service");
_Static_assert(PROTOCOL_ALL == SERVICE_ALL && PROTOCOL_ALL == RULE_NONE, "all objects have one number");

static bool may_discard(void *arg, uint32_t rule)
{
	const struct client_policy *current = client_policy(arg);
	enum policy_reason reason;

	return current && current->bytes && rule < current->policy.rules_count &&
	       policy_may_discard(&current->policy, rule, &reason);
}

void client_set_service(struct lifecycle *lc)
{
	service_set_policy(lc, may_discard, &lc->client);
}

static void fill_row(struct message_row *row, const struct service_object *object)
{
	*row = (struct message_row){.rule = object->rule, .count = object->count};
	for (int r = 0; r < POLICY_RESIDENCY_COUNT; r++)
		row->bytes[r] = object->bytes[r];
}

/* Rows of all objects; NULL when memory ran out. The caller frees it. */
static struct service_object *objects_of(struct lifecycle *lc, size_t *ret_count)
{
	size_t capacity = 16, count = 0;

	for (;;) {
		struct service_object *rows = calloc(capacity, sizeof(*rows));

		if (!rows)
			return NULL;
		service_objects(lc, rows, capacity, &count);
		if (count <= capacity) {
			*ret_count = count;
			return rows;
		}
		/* more may come before it is asked again */
		capacity = count + 16;
		free(rows);
	}
}

void client_list(struct lifecycle *lc, uint32_t connection, uint64_t serial)
{
	struct client *client = &lc->client;
	struct protocol_message message;
	size_t count, sent = 0;
	struct service_object *rows = objects_of(lc, &count);

	/* without an answer the process is shown as one that did not say */
	if (!rows)
		return;
	ranked_lock(&client->lock);
	do {
		protocol_begin(&message, PROTOCOL_LISTED, serial);
		while (sent < count && message.listed.count < PROTOCOL_ROWS_MAX)
			fill_row(&message.listed.rows[message.listed.count++], &rows[sent++]);
		message.listed.more = sent < count;
	} while (client_send(client, connection, &message, -1) && sent < count);
	ranked_unlock(&client->lock);
	free(rows);
}

void client_add_report(struct message_served *served, const struct move_report *report)
{
	served->moved += report->moved;
	served->already += report->already;
	served->skipped += report->skipped;
	served->failed += report->failed;
	served->moved_bytes += report->moved_bytes;
	served->already_bytes += report->already_bytes;
	served->skipped_bytes += report->skipped_bytes;
	served->total_ns += report->total_ns;
	served->copy_ns += report->copy_ns;
	served->holes = report->holes;
	if (report->text[0])
		protocol_text(served->text, sizeof(served->text), report->text);
}

static void do_one(struct lifecycle *lc, const struct message_serve *serve, uint32_t rule, struct message_served *served)
{
	const struct service_request request = {.verb = (enum service_verb)serve->verb, .object = rule, .timeout_ns = serve->timeout_ns};
	struct move_report report = {0};
	struct errinfo error = {0};
	enum sublet_err err = service_do(lc, &request, &report, &error);

	client_add_report(served, &report);
	if (!err)
		return;
	served->error = err;
	protocol_text(served->text, sizeof(served->text), error.text);
}

/* Everything but what the policy pins, rule by rule. */
static void do_unpinned(struct lifecycle *lc, const struct message_serve *serve, const struct policy *policy,
	struct message_served *served)
{
	size_t count;
	struct service_object *rows = objects_of(lc, &count);

	if (!rows) {
		served->error = SUBLET_ERR_SYSTEM;
		protocol_text(served->text, sizeof(served->text), "no memory for the list of objects");
		return;
	}
	for (size_t i = 0; i < count && !served->error; i++)
		if (rows[i].rule < policy->rules_count && policy->rules[rows[i].rule].kind != POLICY_RULE_PINNED)
			do_one(lc, serve, rows[i].rule, served);
	free(rows);
}

static void do_request(struct lifecycle *lc, const struct message_serve *serve, struct message_served *served)
{
	const struct client_policy *current = client_policy(&lc->client);
	const bool has_policy = current && current->bytes;

	if (serve->rule == PROTOCOL_ALL) {
		/* the service itself asks about each rule before it discards */
		if (has_policy && current->has_pinned && (serve->verb == VERB_OFFLOAD || serve->verb == VERB_PARK))
			do_unpinned(lc, serve, &current->policy, served);
		else
			do_one(lc, serve, SERVICE_ALL, served);
		return;
	}
	if (has_policy && serve->rule < current->policy.rules_count &&
		(serve->verb == VERB_RESTORE || current->policy.rules[serve->rule].kind != POLICY_RULE_PINNED)) {
		do_one(lc, serve, serve->rule, served);
		return;
	}
	served->error = SUBLET_ERR_INVALID;
	protocol_text(served->text, sizeof(served->text), "the policy here has no such object, or pins it; ask 'sublet ctl objects'");
}

static void *worker_main(void *arg)
{
	struct lifecycle *lc = arg;
	struct client *client = &lc->client;

	pthread_setname_np(pthread_self(), "sublet-requests");
	if (lc->config.thread_begins)
		lc->config.thread_begins();
	ranked_lock(&client->lock);
	while (!client->stop) {
		struct client_request request;
		struct protocol_message answer;

		/* before the steps of the next one */
		if (client->lost) {
			client->lost = false;
			ranked_unlock(&client->lock);
			client_leave_barrier(lc);
			ranked_lock(&client->lock);
			continue;
		}
		client_events_late(lc);
		if (client->look_ns && clock_now_ns() >= client->look_ns) {
			ranked_unlock(&client->lock);
			client_look_at_environment(lc);
			ranked_lock(&client->lock);
			continue;
		}
		if (client_tell_event(lc))
			continue;
		if (client->steps_count) {
			const struct client_step step = client->steps[0];

			client->steps_count--;
			memmove(client->steps, client->steps + 1, client->steps_count * sizeof(client->steps[0]));
			/* as with requests below */
			if (step.connection != client->connection || client->socket.fd < 0)
				continue;
			ranked_unlock(&client->lock);
			client_do_step(lc, step.connection, step.barrier, &step.step);
			ranked_lock(&client->lock);
			continue;
		}
		if (!client->requests_count) {
			client_wait(client, client_events_deadline(lc));
			continue;
		}
		request = client->requests[client->first_request];
		client->first_request = (client->first_request + 1) % CLIENT_REQUESTS;
		client->requests_count--;
		/* asked over a connection that is gone: nobody waits, and the numbers may be of another policy */
		if (request.connection != client->connection || client->socket.fd < 0)
			continue;
		ranked_unlock(&client->lock);
		protocol_begin(&answer, PROTOCOL_SERVED, request.serial);
		do_request(lc, &request.serve, &answer.served);
		ranked_lock(&client->lock);
		client_send(client, request.connection, &answer, -1);
	}
	client->worker = CLIENT_STOPPED;
	pthread_cond_broadcast(&client->changed);
	ranked_unlock(&client->lock);
	return NULL;
}

int client_ensure_worker(struct lifecycle *lc)
{
	struct client *client = &lc->client;
	pthread_attr_t attributes;
	sigset_t all, before;
	pthread_t thread;
	int error;

	if (client->worker != CLIENT_NO_THREAD)
		return 0;
	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(&thread, &attributes, worker_main, lc);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attributes);
	if (!error)
		client->worker = CLIENT_RUNNING;
	return error;
}

void client_serve(struct lifecycle *lc, uint32_t connection, const struct protocol_message *message)
{
	struct client *client = &lc->client;
	struct protocol_message answer;
	const char *refusal = NULL;

	ranked_lock(&client->lock);
	if (client->requests_count == CLIENT_REQUESTS)
		refusal = "too many requests wait here; try again when they are done";
	else if (client_ensure_worker(lc))
		refusal = "no thread for requests can be started (limit of threads or processes)";
	if (refusal) {
		protocol_begin(&answer, PROTOCOL_SERVED, message->header.serial);
		answer.served.error = SUBLET_ERR_SYSTEM;
		protocol_text(answer.served.text, sizeof(answer.served.text), refusal);
	} else {
		client->requests[(client->first_request + client->requests_count++) % CLIENT_REQUESTS] =
			(struct client_request){message->header.serial, connection, message->serve};
		pthread_cond_broadcast(&client->changed);
		protocol_begin(&answer, PROTOCOL_SERVING, message->header.serial);
	}
	client_send(client, connection, &answer, -1);
	ranked_unlock(&client->lock);
}

/* The coordinator asks for the next one when it has the answer, or has given up on it: what was not begun by then is in vain, and a
 * process that was stopped finds any number. The way back is gone all the same. Caller holds the lock. */
static void drop_overtaken(struct client *client, uint32_t step)
{
	uint32_t kept = 0;

	if (step == PROTOCOL_STEP_ACQUIRE) /* asked along with the one before it */
		return;
	for (uint32_t i = 0; i < client->steps_count; i++)
		if (client->steps[i].step.step == PROTOCOL_STEP_REVERSE && step != PROTOCOL_STEP_REVERSE)
			client->steps[kept++] = client->steps[i];
	client->steps_count = kept;
}

void client_queue_step(struct lifecycle *lc, uint32_t connection, const struct protocol_message *message)
{
	struct client *client = &lc->client;
	struct protocol_message answer;

	ranked_lock(&client->lock);
	drop_overtaken(client, message->step.step);
	if (client->steps_count == CLIENT_STEPS) {
		/* nobody of ours asks for so many */
	} else if (!client_ensure_worker(lc)) {
		client->steps[client->steps_count++] = (struct client_step){connection, message->header.serial, message->step};
		pthread_cond_broadcast(&client->changed);
	} else {
		protocol_begin(&answer, PROTOCOL_STEPPED, message->header.serial);
		answer.stepped.step = message->step.step;
		answer.stepped.served.error = SUBLET_ERR_SYSTEM;
		protocol_text(answer.stepped.served.text, sizeof(answer.stepped.served.text),
			"no thread for requests can be started (limit of threads or processes)");
		client_send(client, connection, &answer, -1);
	}
	ranked_unlock(&client->lock);
}
