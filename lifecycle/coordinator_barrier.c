/* lifecycle/coordinator_barrier.c
 * The phase clock, and the barrier at which it advances. One barrier at a time; each step goes to every process of the session and
 * is over when all have answered, have gone, or had their time. Nothing here waits: what is due is done between two rounds of
 * events (barrier_tick), since a message that cannot be sent drops a peer, which answers for it.
 *
 *   step       asked                                        all answered                          one failed, or was late
 *   plan       what would you move?                         nobody moves: the clock advances;     (cannot)
 *                                                           else hold
 *   hold       shut your gate, drain                        exchange, move, or reopen for good:   reopen; again with twice the time,
 *                                                           by what they say they need            or given up: the old phase stays
 *   reopen     open your gate                               hold again, after as long a pause     (as if answered)
 *   exchange   extent by extent, both ways, where host      move what is left                     reverse
 *              memory has no room for all that leaves
 *   move       release what leaves the device, and acquire  open, the clock advances              reverse
 *              what comes to it
 *   reverse    back to where it was                         open, the old phase stays             (named)
 *   open       open your gate, unless you have holes        done                                  (named)
 *
 * In a move all are asked for both at once, so that one's copies out run beside another's copies in. Who acquires and finds the
 * device full waits for what others release; when all have released they are told (ROOM), and then full is full. In an exchange they are
 * told when all who are not through have been stuck for a while.
 *
 * A barrier that a process began is about its devices, and all processes that share one with it, and so on. */
#include "lifecycle/coordinator_priv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/size.h"
#include "base/text.h"

#define TRY_LEAST_NS (250 * CLOCK_NS_PER_MS)
#define STEP_SLACK_NS (5000 * CLOCK_NS_PER_MS)	  /* beyond what a client was given for its step */
#define STUCK_NS (1000 * CLOCK_NS_PER_MS)	  /* freed pages take their time */
#define UNFIT_NS (2000 * CLOCK_NS_PER_MS)	  /* the same: tried again for so long before the device counts as full */
#define STAYS_TRIES 2				  /* holds after which who has arrived goes on in the old phase */
#define MOVE_WAIT_NS (300000 * CLOCK_NS_PER_MS)	  /* copies, and pinning host memory for the first time */

const char *barrier_phase_name(const struct coordinator *c, uint32_t phase)
{
	return phase < c->policy.phases_count ? policy_text(&c->policy, c->policy.phases[phase].name) : "none";
}

/* ---- arrivals ---- */

static struct arrival *first_of(const struct coordinator *c, const struct peer *peer)
{
	for (struct arrival *arrival = c->barrier.arrivals; arrival; arrival = arrival->next)
		if (arrival->peer == peer)
			return arrival;
	return NULL;
}

static void add_arrival(struct coordinator *c, struct peer *peer, uint64_t serial, uint32_t phase, uint64_t timeout_ns)
{
	struct arrival *arrival = calloc(1, sizeof(*arrival)), **end = &c->barrier.arrivals;

	if (!arrival)
		return; /* who waits for it gives up in its own time */
	*arrival = (struct arrival){.peer = peer, .serial = serial, .phase = phase, .timeout_ns = timeout_ns, .since_ns = clock_now_ns()};
	while (*end)
		end = &(*end)->next;
	*end = arrival;
}

static void answer(struct coordinator *c, const struct arrival *arrival, enum sublet_err error, const char *text)
{
	struct protocol_message message;

	if (!arrival->peer)
		return;
	protocol_begin(&message, PROTOCOL_PHASE, arrival->serial);
	message.phase.clock = c->barrier.clock;
	message.phase.phase = phase_of(c, arrival->peer);
	message.phase.error = error;
	protocol_text(message.phase.text, sizeof(message.phase.text), text);
	peer_send(c, arrival->peer, &message, -1, -1);
	/* gone, perhaps, with the message that could not be sent */
	if (arrival->peer && arrival->peer->kind == PEER_CONTROL)
		control_end(c, arrival->peer, arrival->serial, arrival->rows, error, text);
}

/* A command means all; a process its devices, or all when it has none. */
static bool is_concerned(struct coordinator *c, const struct arrival *arrival)
{
	const struct peer *peer = arrival->peer;

	if (!peer || peer->kind != PEER_CLIENT || !peer->needs.devices.count)
		return c->barrier.all;
	for (uint32_t i = 0; i < peer->needs.devices.count; i++) {
		const struct device_phase *device = device_phase_of(c, peer->needs.devices.uuid[i]);

		if (device && device->in_barrier)
			return true;
	}
	return c->barrier.all;
}

/* All that are for @phase and concerned; they are out of the list before a message is sent, as that may drop a peer. */
static void answer_all(struct coordinator *c, uint32_t phase, bool commands_too, enum sublet_err error, const char *text)
{
	struct arrival *taken = NULL, **tail = &taken, **at = &c->barrier.arrivals;

	while (*at) {
		struct arrival *arrival = *at;

		/* of one client the first alone: a second arrival at the same phase is of a later iteration */
		if (arrival->phase != phase || !is_concerned(c, arrival) ||
			(!commands_too && arrival->peer && arrival->peer->kind == PEER_CONTROL) || (arrival->peer && arrival->peer->kind == PEER_CLIENT && first_of(c, arrival->peer) != arrival)) {
			at = &arrival->next;
			continue;
		}
		arrival->due = true;
		at = &arrival->next;
	}
	at = &c->barrier.arrivals;
	while (*at) {
		struct arrival *arrival = *at;

		if (!arrival->due) {
			at = &arrival->next;
			continue;
		}
		*at = arrival->next;
		arrival->next = NULL;
		*tail = arrival;
		tail = &arrival->next;
	}
	c->barrier.answering = taken; /* a peer that goes meanwhile is taken out of these too */
	while (c->barrier.answering) {
		struct arrival *arrival = c->barrier.answering;

		answer(c, arrival, error, text);
		c->barrier.answering = arrival->next;
		free(arrival);
	}
}

void barrier_arrive(struct coordinator *c, struct peer *peer, uint64_t serial, uint32_t phase, uint64_t timeout_ns)
{
	if (phase >= c->policy.phases_count) {
		const struct arrival nobody = {.peer = peer, .serial = serial};

		answer(c, &nobody, SUBLET_ERR_INVALID, "the session's policy has no such phase; see 'sublet check' of it");
		return;
	}
	coordinator_trace_peer(c, TRACE_ARRIVED, peer, phase, 0);
	if (peer->kind == PEER_CLIENT && !peer->without_gpu)
		peer->triggers = true;
	add_arrival(c, peer, serial, phase, timeout_ns);
}

/* Have as many arrived at @first's phase as the policy's quorum asks for? */
static bool is_quorum(const struct coordinator *c, const struct arrival *first)
{
	const struct policy_header *header = c->policy.header;
	uint32_t wanted = 0, there = 0;

	if (!first->peer || first->peer->kind == PEER_CONTROL || first->peer->without_gpu || header->quorum == POLICY_QUORUM_ONE ||
		!first->peer->needs.devices.count)
		return true;
	for (const struct peer *peer = c->peers; peer; peer = peer->next) {
		const struct arrival *own;

		if (peer->dropped || peer->kind != PEER_CLIENT || !peer->triggers)
			continue;
		if (header->quorum != POLICY_QUORUM_ALL && strcmp(peer->role, first->peer->role) != 0)
			continue;
		/* ranks elsewhere may wait for this one to go on */
		if (header->quorum == POLICY_QUORUM_ROLE && !devices_meet(&peer->needs.devices, &first->peer->needs.devices))
			continue;
		own = first_of(c, peer);
		wanted++;
		there += own && own->phase == first->phase;
	}
	return header->quorum == POLICY_QUORUM_NUMBER ? there >= header->quorum_clients : there >= wanted;
}

/* ---- steps ---- */

/* Once it has, that stays so for this barrier: it may go on before the phase has begun. */
static bool has_arrived(struct coordinator *c, struct peer *peer)
{
	for (const struct arrival *arrival = c->barrier.arrivals; arrival && !peer->has_arrived; arrival = arrival->next)
		if (arrival->peer && !arrival->peer->without_gpu && arrival->phase == c->barrier.to && is_concerned(c, arrival) &&
			(arrival->peer == peer || (arrival->peer->kind == PEER_CLIENT && strcmp(arrival->peer->role, peer->role) == 0)))
			peer->has_arrived = true;
	return peer->has_arrived;
}

static bool is_told(const struct peer *peer)
{
	return !peer->dropped && peer->fd >= 0 && peer->kind == PEER_CLIENT && peer->joined;
}

static bool takes_part(const struct peer *peer)
{
	return is_told(peer) && !peer->without_gpu;
}

static void send_step(struct coordinator *c, struct peer *peer, enum protocol_step step)
{
	const struct barrier *barrier = &c->barrier;
	const uint64_t now = clock_now_ns();
	struct protocol_message message;

	protocol_begin(&message, PROTOCOL_STEP, barrier->id);
	message.step.step = step;
	message.step.phase = barrier->to;
	message.step.arrived = has_arrived(c, peer);
	message.step.timeout_ns = barrier->try_ns;
	message.step.patience_ns = step == PROTOCOL_STEP_HOLD ? MOVE_WAIT_NS
				   : barrier->deadline_ns > now  ? barrier->deadline_ns - now
								 : 0;
	peer_send(c, peer, &message, -1, -1);
}

static void go(struct coordinator *c, enum barrier_step step)
{
	struct barrier *barrier = &c->barrier;
	const uint64_t now = clock_now_ns();
	const bool moves = step == STEP_EXCHANGE || step == STEP_MOVE || step == STEP_REVERSE;

	barrier->step = step;
	barrier->step_deadline_ns = now + (step == STEP_HOLD ? barrier->try_ns : 0) + (moves ? MOVE_WAIT_NS : STEP_SLACK_NS);
	barrier->failed = false;
	barrier->stuck_since_ns = 0;
	barrier->told_room = false;
	for (struct peer *peer = c->peers; peer; peer = peer->next) {
		peer->asked_step = takes_part(peer) && (step == STEP_PLAN || peer->in_barrier);
		peer->asked_release = peer->asked_step && step == STEP_MOVE;
		peer->stuck = false;
	}
	barrier->releasing = step == STEP_MOVE;
	for (struct peer *peer = c->peers; peer; peer = peer->next) {
		if (!peer->asked_step)
			continue;
		if (step == STEP_PLAN)
			peer->in_barrier = true;
		if (step == STEP_MOVE)
			send_step(c, peer, PROTOCOL_STEP_RELEASE);
		send_step(c, peer, step == STEP_MOVE ? PROTOCOL_STEP_ACQUIRE : (enum protocol_step)step);
	}
}

/* Who waits for room need wait no longer. */
static void say_released(struct coordinator *c)
{
	c->barrier.releasing = false;
	for (struct peer *peer = c->peers; peer; peer = peer->next)
		if (peer->asked_step && takes_part(peer))
			send_step(c, peer, PROTOCOL_STEP_ROOM);
}

static void fail_with(struct coordinator *c, const struct peer *peer, const char *text)
{
	struct barrier *barrier = &c->barrier;
	char who[128], line[sizeof(who) + PROTOCOL_TEXT_BYTES + 2];

	snprintf(line, sizeof(line), "%s: %s", peer_name(peer, who, sizeof(who)), text);
	/* on the way back, or when all is done: no reason why the phase does not begin */
	if (barrier->step == STEP_REOPEN || barrier->step == STEP_REVERSE || barrier->step == STEP_OPEN) {
		log_say(LOG_SESSION, LOG_WARN, WHOSE_NONE, "phase %s, %s: %s", barrier_phase_name(c, barrier->to),
			barrier->step == STEP_REVERSE ? "not moved back" : "gate not opened", line);
		return;
	}
	/* the first is the reason, others may follow from it */
	if (!barrier->failed)
		protocol_text(barrier->text, sizeof(barrier->text), line);
	barrier->failed = true;
}

static void add_to_text(struct barrier *barrier, const struct peer *peer, const char *text)
{
	char who[128], line[2 * PROTOCOL_TEXT_BYTES + sizeof(who) + 4];

	snprintf(line, sizeof(line), "%s; %s: %s", barrier->text, peer_name(peer, who, sizeof(who)), text);
	text_make_printable(line);
	protocol_text(barrier->text, sizeof(barrier->text), line);
}

static void log_step(const struct coordinator *c, const struct peer *peer, const struct message_stepped *stepped)
{
	static const char *const did[PROTOCOL_STEP_COUNT] = {
		[PROTOCOL_STEP_RELEASE] = "left the device",
		[PROTOCOL_STEP_ACQUIRE] = "came to the device",
		[PROTOCOL_STEP_EXCHANGE] = "changed places",
		[PROTOCOL_STEP_REVERSE] = "were moved back",
	};
	char who[128], bytes[16];

	if (!did[stepped->step])
		return;
	log_say(LOG_SESSION, LOG_INFO, WHOSE_NONE, "phase %s: %s in %u allocations of %s %s, %.3f s", barrier_phase_name(c, c->barrier.to),
		size_format(stepped->served.moved_bytes, bytes, sizeof(bytes)), stepped->served.moved, peer_name(peer, who, sizeof(who)),
		did[stepped->step], (double)stepped->served.total_ns / 1e9);
}

/* What a client did goes to the commands that wait. */
static void tell_commands(struct coordinator *c, const struct peer *peer, const struct message_stepped *stepped)
{
	for (struct arrival *arrival = c->barrier.arrivals; arrival; arrival = arrival->next) {
		struct protocol_message message;

		if (!arrival->peer || arrival->peer->kind != PEER_CONTROL || arrival->phase != c->barrier.to)
			continue;
		protocol_begin(&message, PROTOCOL_OUTCOME, arrival->serial);
		message.outcome.pid = peer->pid;
		message.outcome.rule = stepped->step;
		memcpy(message.outcome.role, peer->role, sizeof(message.outcome.role));
		memcpy(message.outcome.command, peer->command, sizeof(message.outcome.command));
		message.outcome.served = stepped->served;
		text_make_printable(message.outcome.served.text);
		arrival->rows++;
		peer_send(c, arrival->peer, &message, -1, -1);
	}
}

static bool is_asked(const struct barrier *barrier, const struct peer *peer, uint32_t step)
{
	if (step == PROTOCOL_STEP_RELEASE)
		return barrier->step == STEP_MOVE && peer->asked_release;
	return peer->asked_step && step == (barrier->step == STEP_MOVE ? (uint32_t)PROTOCOL_STEP_ACQUIRE : (uint32_t)barrier->step);
}

bool barrier_stepped(struct coordinator *c, struct peer *peer, const struct protocol_message *message)
{
	const struct message_stepped *stepped = &message->stepped;
	struct barrier *barrier = &c->barrier;

	/* an answer that came too late is none to complain of */
	if (message->header.serial != barrier->id || !is_asked(barrier, peer, stepped->step))
		return message->header.serial <= barrier->id;
	if (stepped->step == PROTOCOL_STEP_RELEASE)
		peer->asked_release = false;
	else
		peer->asked_step = peer->asked_release = false;
	if (stepped->served.error)
		fail_with(c, peer, stepped->served.text);
	/* who could not be held has counted nothing, and is on its devices all the same */
	if (barrier->step == STEP_PLAN || (barrier->step == STEP_HOLD && !stepped->served.error))
		peer->needs = stepped->needs;
	/* what cannot be undone belongs to the reason why the phase did not begin */
	if (barrier->step == STEP_REVERSE && !stepped->served.error && stepped->served.text[0])
		add_to_text(barrier, peer, stepped->served.text);
	if (barrier->step == STEP_PLAN)
		peer->would_move = stepped->served.moved > 0;
	else if (stepped->served.moved) {
		if (barrier->step != STEP_REVERSE)
			barrier->moved_bytes += stepped->served.moved_bytes;
		log_step(c, peer, stepped);
		tell_commands(c, peer, stepped);
	}
	return true;
}

void barrier_peer_gone(struct coordinator *c, struct peer *peer)
{
	if (c->barrier.active && peer->in_barrier)
		c->barrier.gone_ns = clock_now_ns();
	peer->asked_step = peer->asked_release = peer->in_barrier = false;
	for (struct arrival *arrival = c->barrier.arrivals; arrival; arrival = arrival->next)
		if (arrival->peer == peer)
			arrival->peer = NULL;
	for (struct arrival *arrival = c->barrier.answering; arrival; arrival = arrival->next)
		if (arrival->peer == peer)
			arrival->peer = NULL;
}

/* ---- what follows ---- */

static void broadcast(struct coordinator *c)
{
	/* who is on no device, as far as is known, has the phase that began last (phase_of): who has just joined, too */
	for (struct peer *peer = c->peers; peer; peer = peer->next)
		if (is_told(peer) && (c->barrier.all || peer->in_barrier || !peer->needs.devices.count))
			barrier_tell(c, peer);
}

void barrier_tell(struct coordinator *c, struct peer *peer)
{
	const struct arrival told = {.peer = peer};

	if (c->policy_fd >= 0)
		answer(c, &told, SUBLET_OK, "");
}

static void finish(struct coordinator *c)
{
	struct barrier *barrier = &c->barrier;
	const uint64_t took_ns = clock_now_ns() - barrier->since_ns;
	char text[PROTOCOL_TEXT_BYTES] = "";

	barrier->active = false;
	coordinator_trace_barrier(c);
	if (barrier->good) {
		barrier->phase = barrier->to;
		barrier->clock++;
		for (uint32_t i = 0; i < barrier->devices_count; i++)
			if (barrier->all || barrier->devices[i].in_barrier)
				barrier->devices[i].phase = barrier->to;
		log_say(LOG_SESSION, LOG_INFO, WHOSE_NONE, "phase %s: barrier %llu took %.3f s", barrier_phase_name(c, barrier->phase),
			(unsigned long long)barrier->id, (double)took_ns / 1e9);
		broadcast(c);
	} else {
		snprintf(text, sizeof(text), "%s", barrier->text);
		log_say(LOG_SESSION, LOG_WARN, WHOSE_NONE, "phase %s does not begin, %s goes on: %s", barrier_phase_name(c, barrier->to),
			barrier_phase_name(c, barrier->phase), text);
	}
	answer_all(c, barrier->to, true, barrier->good ? SUBLET_OK : SUBLET_ERR_TIMEOUT, text);
	for (struct peer *peer = c->peers; peer; peer = peer->next)
		peer->in_barrier = peer->asked_step = peer->asked_release = peer->has_arrived = false;
	for (uint32_t i = 0; i < barrier->devices_count; i++)
		barrier->devices[i].in_barrier = false;
}

/* Pause, and then try again with twice the time, or what is left of it. False: none is. */
static bool retry(struct barrier *barrier, uint64_t now)
{
	const uint64_t left = barrier->deadline_ns > now ? barrier->deadline_ns - now : 0;
	const uint64_t pause = barrier->try_ns < left / 2 ? barrier->try_ns : left / 2;

	if (!left)
		return false;
	barrier->pause_until_ns = now + pause;
	barrier->try_ns = barrier->try_ns * 2 < left - pause ? barrier->try_ns * 2 : left - pause;
	barrier->step = STEP_PAUSE;
	return true;
}

static bool somebody_moves(const struct coordinator *c)
{
	for (const struct peer *peer = c->peers; peer; peer = peer->next)
		if (peer->in_barrier && peer->would_move)
			return true;
	return false;
}

/* All are held, or one could not be; what moves is known for certain now. */
static void after_hold(struct coordinator *c)
{
	struct barrier *barrier = &c->barrier;
	char text[PROTOCOL_TEXT_BYTES];
	enum verdict verdict;

	if (barrier->failed) {
		go(c, STEP_REOPEN);
		return;
	}
	verdict = judge(c, text, sizeof(text));
	if (verdict == VERDICT_MOVE || verdict == VERDICT_EXCHANGE) {
		go(c, verdict == VERDICT_MOVE ? STEP_MOVE : STEP_EXCHANGE);
		return;
	}
	protocol_text(barrier->text, sizeof(barrier->text), text);
	/* what a process has that is about to end will be free in a moment */
	barrier->final = (verdict == VERDICT_NO_HOST && !peers_away_hold(c, NULL)) || clock_now_ns() - barrier->since_ns >= UNFIT_NS;
	go(c, STEP_REOPEN);
}

/* All have answered the step. */
static void advance(struct coordinator *c)
{
	struct barrier *barrier = &c->barrier;

	coordinator_trace_step(c);
	switch (barrier->step) {
	case STEP_PLAN:
		barrier->good = !barrier->failed;
		judge_participants(c);
		if (barrier->failed || !somebody_moves(c))
			finish(c);
		else
			go(c, STEP_HOLD);
		break;
	case STEP_HOLD:
		after_hold(c);
		break;
	case STEP_REOPEN:
		barrier->good = false;
		if (barrier->final || !retry(barrier, clock_now_ns())) {
			finish(c);
		} else if (++barrier->tries >= STAYS_TRIES) {
			/* what they would do next may be what the others wait for */
			answer_all(c, barrier->to, false, SUBLET_OK, "");
		}
		break;
	case STEP_PAUSE:
		go(c, STEP_HOLD);
		break;
	case STEP_EXCHANGE:
		go(c, barrier->failed ? STEP_REVERSE : STEP_MOVE);
		break;
	case STEP_MOVE:
		barrier->good = !barrier->failed;
		go(c, barrier->failed ? STEP_REVERSE : STEP_OPEN);
		break;
	case STEP_REVERSE:
		barrier->good = false;
		go(c, STEP_OPEN);
		break;
	case STEP_OPEN:
		finish(c);
		break;
	}
}

static void begin(struct coordinator *c, const struct arrival *first)
{
	struct barrier *barrier = &c->barrier;
	const uint64_t now = clock_now_ns(), policy_ns = c->policy.header->timeout_ns;

	barrier->active = true;
	barrier->id++;
	barrier->to = first->phase;
	barrier->since_ns = now;
	barrier->deadline_ns = now + (first->timeout_ns ? first->timeout_ns : policy_ns ? policy_ns : 60000 * CLOCK_NS_PER_MS);
	barrier->try_ns = TRY_LEAST_NS;
	barrier->good = barrier->final = false;
	barrier->tries = 0;
	barrier->gone_ns = 0;
	barrier->moved_bytes = 0;
	barrier->text[0] = '\0';
	for (struct peer *peer = c->peers; peer; peer = peer->next)
		peer->in_barrier = peer->has_arrived = peer->would_move = false;
	for (uint32_t i = 0; i < barrier->devices_count; i++)
		barrier->devices[i].in_barrier = false;
	barrier->all = !first->peer || first->peer->kind != PEER_CLIENT || !first->peer->needs.devices.count;
	/* whatever else can begin with it does: one after the other would take as much longer */
	for (const struct arrival *arrival = barrier->arrivals; arrival && !barrier->all; arrival = arrival->next)
		if (arrival->phase == first->phase && arrival->peer && arrival->peer->kind == PEER_CLIENT &&
			first_of(c, arrival->peer) == arrival && is_quorum(c, arrival))
			judge_add_devices(c, arrival->peer);
	go(c, STEP_PLAN);
}

static void give_up_late(struct coordinator *c)
{
	for (struct peer *peer = c->peers; peer; peer = peer->next) {
		if (!peer->asked_step)
			continue;
		peer->asked_step = peer->asked_release = false;
		fail_with(c, peer,
			c->barrier.step == STEP_EXCHANGE || c->barrier.step == STEP_MOVE || c->barrier.step == STEP_REVERSE ? "it has not finished; see its log"
											: "it does not answer (stopped, or very busy)");
	}
}

static void answer_one(struct coordinator *c, struct arrival *arrival)
{
	struct arrival **at = &c->barrier.arrivals;

	while (*at != arrival)
		at = &(*at)->next;
	*at = arrival->next;
	arrival->next = NULL;
	c->barrier.answering = arrival;
	answer(c, arrival, SUBLET_OK, "");
	c->barrier.answering = NULL;
	free(arrival);
}

static bool is_in_force(struct coordinator *c, const struct arrival *arrival)
{
	const bool is_client = arrival->peer && arrival->peer->kind == PEER_CLIENT && arrival->peer->needs.devices.count;

	for (uint32_t i = 0; !is_client && i < c->barrier.devices_count; i++)
		if (c->barrier.devices[i].phase != arrival->phase)
			return false;
	return arrival->phase == phase_of(c, is_client ? arrival->peer : NULL);
}

/* The next arrival that can begin a barrier. One at the phase that is in force already waits for nobody: who triggers for the first
 * time may come after the others, whom it was not counted among. */
static bool begin_next(struct coordinator *c)
{
	for (struct arrival *arrival = c->barrier.arrivals; arrival; arrival = arrival->next) {
		if (arrival->peer && arrival->peer->kind == PEER_CLIENT && first_of(c, arrival->peer) != arrival)
			continue;
		if (c->barrier.clock && is_in_force(c, arrival)) {
			answer_one(c, arrival);
			return true;
		}
		if (is_quorum(c, arrival)) {
			begin(c, arrival);
			return true;
		}
	}
	return false;
}

static void drop_gone(struct coordinator *c)
{
	struct arrival **at = &c->barrier.arrivals;

	while (*at) {
		struct arrival *arrival = *at;

		if (arrival->peer) {
			at = &arrival->next;
			continue;
		}
		*at = arrival->next;
		free(arrival);
	}
}

void barrier_stuck(struct coordinator *c, struct peer *peer, const struct protocol_message *message)
{
	if (message->header.serial == c->barrier.id && peer->asked_step)
		peer->stuck = message->stuck.stuck;
}

/* Until then what a participant had that has gone may still become free. */
static uint64_t room_of_gone_ns(const struct barrier *barrier)
{
	return barrier->gone_ns ? barrier->gone_ns + UNFIT_NS : 0;
}

/* When all who still work for room have been stuck for a while, no more room comes. Returns when to look again. */
static uint64_t look_for_stuck(struct coordinator *c, uint64_t now_ns)
{
	struct barrier *barrier = &c->barrier;
	bool all = true;
	uint64_t until;

	for (const struct peer *peer = c->peers; peer; peer = peer->next)
		all &= !peer->asked_step || peer->stuck;
	if (!all || barrier->told_room || (barrier->step != STEP_EXCHANGE && barrier->step != STEP_REVERSE)) {
		barrier->stuck_since_ns = 0;
		return UINT64_MAX;
	}
	if (!barrier->stuck_since_ns)
		barrier->stuck_since_ns = now_ns;
	until = room_of_gone_ns(barrier);
	until = barrier->stuck_since_ns + STUCK_NS > until ? barrier->stuck_since_ns + STUCK_NS : until;
	if (now_ns < until)
		return until;
	barrier->told_room = true;
	say_released(c);
	return UINT64_MAX;
}

uint64_t barrier_tick(struct coordinator *c, uint64_t now_ns)
{
	struct barrier *barrier = &c->barrier;

	for (;;) {
		bool waits = false, releases = false;
		uint64_t look = UINT64_MAX;

		if (!barrier->active) {
			drop_gone(c);
			if (begin_next(c))
				continue;
			return UINT64_MAX;
		}
		for (const struct peer *peer = c->peers; peer; peer = peer->next) {
			waits |= peer->asked_step;
			releases |= peer->asked_release;
		}
		if (barrier->releasing && !releases && waits) {
			look = room_of_gone_ns(barrier);
			if (now_ns >= look)
				say_released(c), look = UINT64_MAX;
		}
		if (barrier->step == STEP_PAUSE) {
			if (now_ns < barrier->pause_until_ns)
				return barrier->pause_until_ns;
		} else if (waits) {
			const uint64_t stuck = look_for_stuck(c, now_ns);

			look = stuck < look ? stuck : look;
			if (now_ns < barrier->step_deadline_ns)
				return look < barrier->step_deadline_ns ? look : barrier->step_deadline_ns;
			give_up_late(c);
		}
		advance(c);
	}
}

void barrier_release(struct coordinator *c)
{
	while (c->barrier.arrivals) {
		struct arrival *arrival = c->barrier.arrivals;

		c->barrier.arrivals = arrival->next;
		free(arrival);
	}
}
