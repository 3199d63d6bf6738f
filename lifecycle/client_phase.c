/* lifecycle/client_phase.c
 * Phases as this process sees them: which is in force, its part in a barrier, and waiting for one that it asked for. */
#include "lifecycle/client_priv.h"

#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "lifecycle/host_pool.h"
#include "lifecycle/lifecycle.h"
#include "lifecycle/needs.h"
#include "lifecycle/phase.h"
#include "lifecycle/triggers.h"
#include "policy/roles.h"

#define BACK_ROOM_NS 30000000000ull
#define SAY_EACH_NS 60000000000ull /* while a phase that was asked for does not begin */

uint32_t client_current_phase(const struct client *client)
{
	const uint32_t number = __atomic_load_n(&client->phase, __ATOMIC_ACQUIRE);

	return number ? number - 1 : POLICY_NONE;
}

/* What the policy says, made safe: nothing looks at launches yet, so no kernel is known to stay away from a hole. */
static enum residency wants(void *arg, const struct allocation *allocation, uint32_t phase, bool arrived)
{
	struct lifecycle *lc = arg;
	const struct client_policy *current = client_policy(&lc->client);
	struct policy_state state = {.rule = allocation->rule, .phase = phase, .now = (enum policy_residency)allocation->residency};
	struct policy_decision decision;

	if (!current || !current->bytes || allocation->rule >= current->policy.rules_count)
		return allocation->residency;
	state.role = current->role;
	state.flags = (arrived ? POLICY_STATE_ARRIVED : 0) | POLICY_STATE_NO_SCAN |
		      (host_pool_cannot_park(&lc->host_pool) ? POLICY_STATE_NO_PARKING : 0);
	policy_decide(&current->policy, &state, &decision);
	return (enum residency)decision.target;
}

/* On the service thread, in the middle of a step. */
static void says_stuck(struct lifecycle *lc, bool stuck)
{
	struct protocol_message message;

	ranked_lock(&lc->client.lock);
	protocol_begin(&message, PROTOCOL_STUCK, lc->client.barrier);
	message.stuck.stuck = stuck;
	client_send(&lc->client, 0, &message, -1);
	ranked_unlock(&lc->client.lock);
}

void client_set_phases(struct lifecycle *lc)
{
	service_set_wants(lc, wants, lc, says_stuck);
	if (lc->config.triggers)
		triggers_on_arrival(lc->config.triggers, client_note_event, lc);
}

/* ---- the coordinator's messages ---- */

void client_told_phase(struct lifecycle *lc, const struct protocol_message *message)
{
	struct client *client = &lc->client;
	const struct message_phase *told = &message->phase;

	ranked_lock(&client->lock);
	/* 0 is "none yet" in a fresh struct */
	__atomic_store_n(&client->phase, told->phase == POLICY_NONE ? 0 : told->phase + 1, __ATOMIC_RELEASE);
	for (struct client_arrival *arrival = client->arrivals; arrival; arrival = arrival->next) {
		if (!message->header.serial || arrival->serial != message->header.serial)
			continue;
		arrival->done = true;
		arrival->error = (enum sublet_err)told->error;
		protocol_text(arrival->text, sizeof(arrival->text), told->text);
	}
	if (client->clock != told->clock)
		kernels_phase_changed(lc);
	client->clock = told->clock;
	client_event_answered(lc, message->header.serial, told);
	pthread_cond_broadcast(&client->changed);
	ranked_unlock(&client->lock);
}

static void do_step(struct lifecycle *lc, const struct message_step *step, struct message_stepped *stepped)
{
	const struct service_request request = {
		.verb = SERVICE_STEP,
		.step = (enum protocol_step)step->step,
		.phase = step->phase,
		.arrived = step->arrived,
		.timeout_ns = step->timeout_ns,
		.patience_ns = step->patience_ns,
		.needs = &stepped->needs,
	};
	struct move_report report = {0};
	struct errinfo error = {0};
	enum sublet_err err;

	stepped->step = step->step;
	if (step->step == PROTOCOL_STEP_HOLD) {
		lc->client.in_barrier = true;
		mover_room(lc, MOVER_ROOM_COMES, step->patience_ns);
	}
	/* what the others have acquired goes away again meanwhile; nobody says when */
	if (step->step == PROTOCOL_STEP_REVERSE)
		mover_room(lc, MOVER_ROOM_COMES, BACK_ROOM_NS);
	if (step->step == PROTOCOL_STEP_ACQUIRE && lc->client.release_failed) {
		stepped->served.error = SUBLET_ERR_INVALID;
		protocol_text(stepped->served.text, sizeof(stepped->served.text), "not tried, as its own release has failed");
		return;
	}
	/* nothing is shut and nothing moves for a plan, so it needs no turn */
	err = step->step == PROTOCOL_STEP_PLAN ? phase_step(lc, &request, &report, &error) : service_do(lc, &request, &report, &error);
	if (step->step == PROTOCOL_STEP_REOPEN || step->step == PROTOCOL_STEP_OPEN) {
		lc->client.in_barrier = false;
		mover_room(lc, MOVER_NO_ROOM, 0);
	}
	lc->client.release_failed = step->step == PROTOCOL_STEP_RELEASE && err;
	client_add_report(&stepped->served, &report);
	if (!err)
		return;
	stepped->served.error = err;
	protocol_text(stepped->served.text, sizeof(stepped->served.text), error.text);
}

void client_do_step(struct lifecycle *lc, uint32_t connection, uint64_t barrier, const struct message_step *step)
{
	struct protocol_message answer;

	if (step->step != PROTOCOL_STEP_PLAN) { /* that is done beside another step */
		ranked_lock(&lc->client.lock);
		lc->client.barrier = barrier;
		ranked_unlock(&lc->client.lock);
	}
	protocol_begin(&answer, PROTOCOL_STEPPED, barrier);
	do_step(lc, step, &answer.stepped);
	if (step->step == PROTOCOL_STEP_REOPEN)
		client_reopened(lc, barrier);
	ranked_lock(&lc->client.lock);
	client_send(&lc->client, connection, &answer, -1);
	ranked_unlock(&lc->client.lock);
}

void client_leave_barrier(struct lifecycle *lc)
{
	const struct message_step step = {.step = PROTOCOL_STEP_OPEN};
	struct message_stepped stepped = {0};

	if (!lc->client.in_barrier)
		return;
	do_step(lc, &step, &stepped);
	log_say(LOG_SESSION, LOG_WARN, WHOSE_NONE, "the connection went in the middle of a barrier: %s",
		stepped.served.holes ? "the gate opens for the first call that waits" : "the gate opens");
}

/* ---- asking for one ---- */

static void forget(struct client *client, struct client_arrival *arrival)
{
	struct client_arrival **at = &client->arrivals;

	while (*at != arrival)
		at = &(*at)->next;
	*at = arrival->next;
}

/* Caller holds the lock. Waits as long as the others take to arrive, which may be long, like a collective; not beyond the
 * connection. */
static void wait_for(struct client *client, struct client_arrival *arrival, uint32_t connection, const char *name)
{
	uint64_t say_ns = clock_now_ns() + SAY_EACH_NS;

	while (!arrival->done && !client->stop && client->socket.fd >= 0 && client->connection == connection) {
		client_wait(client, say_ns);
		if (clock_now_ns() < say_ns)
			continue;
		say_ns = clock_now_ns() + SAY_EACH_NS;
		ranked_unlock(&client->lock);
		log_say(LOG_SESSION, LOG_WARN, WHOSE_FRAMEWORK,
			"waits for phase '%s' to begin: others of its role have not arrived; 'sublet ctl status' says who is there", name);
		ranked_lock(&client->lock);
	}
}

static enum sublet_err arrive(struct lifecycle *lc, uint32_t phase, struct errinfo *reterr)
{
	struct client *client = &lc->client;
	const struct client_policy *current = client_policy(client);
	struct client_arrival arrival = {0};
	struct protocol_message message;
	struct message_devices devices;
	uint32_t connection;
	int cancel_state;
	bool sent;

	needs_devices(lc, &devices);
	/* a thread that ended inside the wait would leave its lock to nobody, and its stack in the list */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
	ranked_lock(&client->lock);
	arrival.serial = ++client->serial;
	connection = client->connection;
	protocol_begin(&message, PROTOCOL_ARRIVE, arrival.serial);
	message.arrive.phase = phase;
	message.arrive.devices = devices;
	arrival.next = client->arrivals;
	client->arrivals = &arrival;
	/* a number of the policy before would name another phase */
	sent = client_policy(client) == current && client_send(client, connection, &message, -1);
	if (sent)
		wait_for(client, &arrival, connection, policy_text(&current->policy, current->policy.phases[phase].name));
	forget(client, &arrival);
	ranked_unlock(&client->lock);
	pthread_setcancelstate(cancel_state, NULL);
	if (!sent)
		return errinfo_set(reterr, SUBLET_ERR_SYSTEM, 0, "the session has no coordinator");
	if (!arrival.done)
		return errinfo_set(reterr, SUBLET_ERR_SYSTEM, 0, "the session's coordinator went before the phase began");
	return arrival.error ? errinfo_set(reterr, arrival.error, 0, "%s", arrival.text) : SUBLET_OK;
}

enum sublet_err client_arrive_at(struct lifecycle *lc, const char *name, struct errinfo *reterr)
{
	const struct client_policy *current = client_policy(&lc->client);
	uint32_t phase;

	if (!current || !current->bytes)
		return errinfo_set(reterr, SUBLET_ERR_INVALID, 0, "the session has no policy, so there are no phases");
	phase = policy_phase_find(&current->policy, name);
	if (phase == POLICY_NONE)
		return errinfo_set(reterr, SUBLET_ERR_INVALID, 0, "the policy has no phase '%s'", name);
	if (!policy_may_command(&current->policy, current->role, false, phase))
		return errinfo_set(reterr, SUBLET_ERR_INVALID, 0,
			"no trigger of the policy lets this role begin '%s'; add '{enter: %s, command: true}'", name, name);
	return arrive(lc, phase, reterr);
}
