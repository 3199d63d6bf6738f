/* lifecycle/client_events.c
 * Events of the program that begin phases: queued as they happen, told by the worker in their order, and waited for by the next gated
 * call of the process, on whichever thread (GATE_ARRIVED). The wait ends with the last answer. It also ends, with the phase not begun,
 * when the policy's timeout for barriers is over: ranks may wait for each other in ways that nobody here sees, so that some never
 * arrive; and when a barrier cannot hold somebody a second time, as what its drain waits for may be the very call that waits here. */
#include "lifecycle/client_priv.h"

#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "lifecycle/environment.h"
#include "lifecycle/lifecycle.h"
#include "lifecycle/needs.h"
#include "policy/roles.h"

#define LOOK_NS (100 * CLOCK_NS_PER_MS)
#define TIMEOUT_NS (60000 * CLOCK_NS_PER_MS) /* where the policy says nothing; the coordinator's own for a barrier */

static uint64_t timeout_ns(const struct client *client)
{
	const struct client_policy *current = client_policy(client);

	return current && current->bytes && current->policy.header->timeout_ns ? current->policy.header->timeout_ns : TIMEOUT_NS;
}

static const char *name_of(const struct client *client, uint32_t phase)
{
	const struct client_policy *current = client_policy(client);

	return current && current->bytes && phase < current->policy.phases_count
		       ? policy_text(&current->policy, current->policy.phases[phase].name)
		       : "?";
}

/* Nothing moves and it is in force: who arrives there is answered at once, so nobody need wait for that. */
static bool is_in_force(const struct lifecycle *lc, uint32_t phase)
{
	return lc->client.events_count == 0 && client_current_phase(&lc->client) == phase && !gate_is_shut(&lc->gate);
}

void client_note_event(void *arg, uint32_t phase)
{
	struct lifecycle *lc = arg;
	struct client *client = &lc->client;
	bool full;

	ranked_lock(&client->lock);
	full = client->events_count == CLIENT_EVENTS;
	/* repeated by each microbatch, it is one */
	if (!full && !client->stop && client->socket.fd >= 0 &&
		(!client->events_count || client->events[client->events_count - 1].phase != phase) && !client_ensure_worker(lc)) {
		if (!client->without_gpu && !is_in_force(lc, phase)) {
			client->events_until_ns = clock_now_ns() + timeout_ns(client);
			gate_arrived(&lc->gate, true);
		}
		client->events[client->events_count++] = (struct client_event){.phase = phase};
		pthread_cond_broadcast(&client->changed);
	}
	ranked_unlock(&client->lock);
	if (full)
		log_limited(LOG_SESSION, LOG_WARN, WHOSE_FRAMEWORK,
			"an event of the program begins no phase: %d from before wait for others of its role; 'sublet ctl status' says who is there",
			CLIENT_EVENTS);
}

size_t client_take_events(struct lifecycle *lc, uint32_t phases[CLIENT_EVENTS])
{
	struct client *client = &lc->client;
	size_t count;

	ranked_lock(&client->lock);
	count = client->events_count;
	for (size_t i = 0; i < count; i++)
		phases[i] = client->events[i].phase;
	client->events_count = 0;
	ranked_unlock(&client->lock);
	return count;
}

/* NULL: all are told. */
static struct client_event *untold(struct client *client)
{
	for (uint32_t i = 0; i < client->events_count; i++)
		if (!client->events[i].serial)
			return &client->events[i];
	return NULL;
}

bool client_tell_event(struct lifecycle *lc)
{
	struct client *client = &lc->client;
	struct protocol_message message;
	struct client_event *event;
	struct message_devices devices;

	if (!untold(client))
		return false;
	ranked_unlock(&client->lock);
	needs_devices(lc, &devices); /* calls the driver */
	ranked_lock(&client->lock);
	event = untold(client);
	if (!event) /* dropped meanwhile */
		return true;
	event->serial = ++client->serial;
	protocol_begin(&message, PROTOCOL_ARRIVE, event->serial);
	message.arrive.phase = event->phase;
	message.arrive.devices = devices;
	/* not sent: the connection is gone, and with it the queue */
	client_send(client, client->connection, &message, -1);
	return true;
}

static uint64_t wait_until(const struct lifecycle *lc)
{
	return gate_has_arrived(&lc->gate) ? lc->client.events_until_ns : UINT64_MAX;
}

uint64_t client_events_deadline(const struct lifecycle *lc)
{
	const uint64_t until_ns = wait_until(lc), look_ns = lc->client.look_ns;

	return look_ns && look_ns < until_ns ? look_ns : until_ns;
}

void client_events_late(struct lifecycle *lc)
{
	struct client *client = &lc->client;
	const char *name;

	if (clock_now_ns() < wait_until(lc))
		return;
	gate_arrived(&lc->gate, false);
	name = client->events_count ? name_of(client, client->events[0].phase) : "?";
	ranked_unlock(&client->lock);
	log_limited(LOG_SESSION, LOG_WARN, WHOSE_FRAMEWORK,
		"phase '%s', which an event of the program begins, has not begun within %.1f s: the program goes on in the old one; "
		"'sublet ctl status' says who is there",
		name, (double)timeout_ns(client) / 1e9);
	ranked_lock(&client->lock);
}

/* Out of the queue, wherever it stands: another thread's sublet_phase may be between two of them. */
void client_event_answered(struct lifecycle *lc, uint64_t serial, const struct message_phase *told)
{
	struct client *client = &lc->client;

	for (uint32_t i = 0; serial && i < client->events_count; i++) {
		const uint32_t phase = client->events[i].phase;

		if (client->events[i].serial != serial)
			continue;
		client->events_count--;
		memmove(&client->events[i], &client->events[i + 1], (client->events_count - i) * sizeof(client->events[0]));
		if (!client->events_count)
			gate_arrived(&lc->gate, false);
		if (!told->error)
			return;
		kernels_phase_refused(lc, timeout_ns(client));
		ranked_unlock(&client->lock);
		log_limited(LOG_SESSION, LOG_WARN, WHOSE_NONE, "phase '%s', which an event of the program begins, does not begin: %.200s",
			name_of(client, phase), told->text);
		ranked_lock(&client->lock);
		return;
	}
}

/* ---- the environment ---- */

static uint32_t ask_environment(const struct client_policy *current)
{
	struct environment_reader reader = {0};
	uint32_t phase, again;

	/* another thread may be changing it in this moment */
	for (int i = 0; i < 3; i++) {
		phase = policy_trigger_of_variables(&current->policy, current->role, environment_now, &reader);
		again = policy_trigger_of_variables(&current->policy, current->role, environment_now, &reader);
		if (phase == again)
			return phase;
	}
	return POLICY_NONE;
}

void client_look_at_environment(struct lifecycle *lc)
{
	struct client *client = &lc->client;
	const struct client_policy *current = client_policy(client);
	const bool asked =
		current->bytes && policy_trigger_sources(&current->policy, current->role) & 1u << POLICY_TRIGGER_ENVIRONMENT;
	const uint32_t phase = asked ? ask_environment(current) : POLICY_NONE;
	bool begins, has_worker;

	ranked_lock(&client->lock);
	begins = phase != POLICY_NONE && (client->environment_policy != current || client->environment_phase != phase + 1);
	client->environment_policy = current;
	client->environment_phase = phase == POLICY_NONE ? 0 : phase + 1;
	has_worker = asked && !client_ensure_worker(lc);
	client->look_ns = has_worker ? clock_now_ns() + LOOK_NS : 0;
	ranked_unlock(&client->lock);
	if (!begins)
		return;
	log_say(LOG_SESSION, LOG_DEBUG, WHOSE_NONE, "phase '%s' begins: the environment asks for it", name_of(client, phase));
	client_note_event(lc, phase);
}

void client_events_drop(struct lifecycle *lc)
{
	lc->client.events_count = 0;
	lc->client.clock = 0;
	gate_arrived(&lc->gate, false);
	kernels_phase_changed(lc);
}

void client_reopened(struct lifecycle *lc, uint64_t barrier)
{
	struct client *client = &lc->client;

	ranked_lock(&client->lock);
	if (client->reopened == barrier)
		gate_arrived(&lc->gate, false);
	client->reopened = barrier;
	ranked_unlock(&client->lock);
}
