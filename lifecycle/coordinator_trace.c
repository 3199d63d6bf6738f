/* lifecycle/coordinator_trace.c
 * The coordinator's own file of a trace: phases, barriers and what they cost, who came and went. */
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "lifecycle/coordinator_priv.h"

static const char *name_of(const void *arg, enum trace_text_kind kind, uint32_t number)
{
	const struct policy *policy = arg;

	return policy_text(policy, policy->phases[number].name);
}

void coordinator_trace_begin(struct coordinator *c, const char *folder, uint64_t ring_bytes)
{
	const struct trace_config config = {.folder = folder, .writer = TRACE_WRITER_COORDINATOR, .ring_bytes = ring_bytes};
	struct errinfo error;

	if (trace_open(&c->trace, &config, &error))
		log_say(LOG_SESSION, LOG_WARN, WHOSE_NONE, "the coordinator's part is not traced: %s", error.text);
	if (c->policy_bytes)
		trace_policy(&c->trace, 0, c->policy.phases_count, name_of, &c->policy);
	trace_put_plain(&c->trace, TRACE_SERVING);
}

void coordinator_trace_end(struct coordinator *c)
{
	trace_put_plain(&c->trace, TRACE_STOPPED);
	trace_end(&c->trace);
	trace_close(&c->trace);
}

void coordinator_trace_peer(struct coordinator *c, enum trace_event event, const struct peer *peer, uint32_t phase, uint64_t bytes)
{
	struct trace_row row = trace_row_none();

	if (!trace_is_on(&c->trace))
		return;
	row.allocation = (uint64_t)(peer->pid > 0 ? peer->pid : 0);
	row.bytes = bytes;
	row.phase = trace_phase(&c->trace, phase);
	if (event == TRACE_JOINED && peer->role[0])
		row.object = trace_text(&c->trace, TRACE_TEXT_ROLE, peer->role, (uint32_t)strlen(peer->role));
	trace_put(&c->trace, event, &row);
}

static struct trace_row barrier_row(const struct coordinator *c, bool failed, uint64_t since_ns, uint64_t now)
{
	struct trace_row row = trace_row_none();

	row.allocation = c->barrier.id;
	row.phase = trace_phase(&c->trace, c->barrier.to);
	row.extra = failed;
	row.duration_ns = now - since_ns;
	return row;
}

void coordinator_trace_step(struct coordinator *c)
{
	struct barrier *barrier = &c->barrier;
	const uint64_t now = clock_now_ns();
	struct trace_row row;

	if (!trace_is_on(&c->trace))
		return;
	/* each step begins where the one before has ended, the first with the barrier */
	row = barrier_row(c, barrier->failed, barrier->step_since_ns > barrier->since_ns ? barrier->step_since_ns : barrier->since_ns, now);
	row.object = barrier->step;
	barrier->step_since_ns = now;
	trace_put(&c->trace, TRACE_BARRIER_STEP, &row);
}

void coordinator_trace_barrier(struct coordinator *c)
{
	struct barrier *barrier = &c->barrier;
	struct trace_row row;

	if (!trace_is_on(&c->trace))
		return;
	row = barrier_row(c, !barrier->good, barrier->since_ns, clock_now_ns());
	row.bytes = barrier->moved_bytes;
	if (barrier->good)
		trace_set_phase(&c->trace, barrier->to);
	trace_put(&c->trace, TRACE_BARRIER, &row);
}
