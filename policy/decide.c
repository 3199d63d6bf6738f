/* policy/decide.c
 * The policy wants something; then four questions in this order, each of which can only make the answer safer: may it
 * move, would bytes be lost, could a kernel step into a hole, can it be parked at all. */
#include "policy/decide.h"

/* The first reasons are the block's own. */
_Static_assert(
	(int)POLICY_BECAUSE_DEFAULT == (int)POLICY_WHY_DEFAULT, "enum policy_reason begins with enum policy_why");
_Static_assert((int)POLICY_WHY_DEFAULT == (int)POLICY_WHY_COUNT - 1, "enum policy_reason begins with enum policy_why");

static const uint32_t steps[POLICY_RESIDENCY_COUNT][POLICY_RESIDENCY_COUNT] = {
	[POLICY_DEVICE][POLICY_PARKED] = POLICY_ACT_TAKE_HOST | POLICY_ACT_COPY_OUT | POLICY_ACT_UNMAP |
					 POLICY_ACT_MAP_HOST | POLICY_ACT_GIVE_DEVICE,
	[POLICY_DEVICE][POLICY_HOST] =
		POLICY_ACT_TAKE_HOST | POLICY_ACT_COPY_OUT | POLICY_ACT_UNMAP | POLICY_ACT_GIVE_DEVICE,
	[POLICY_DEVICE][POLICY_EMPTY] = POLICY_ACT_UNMAP | POLICY_ACT_GIVE_DEVICE,
	[POLICY_PARKED][POLICY_DEVICE] = POLICY_ACT_TAKE_DEVICE | POLICY_ACT_COPY_IN | POLICY_ACT_UNMAP |
					 POLICY_ACT_MAP_DEVICE | POLICY_ACT_GIVE_HOST,
	[POLICY_PARKED][POLICY_HOST] = POLICY_ACT_UNMAP,
	[POLICY_PARKED][POLICY_EMPTY] = POLICY_ACT_UNMAP | POLICY_ACT_GIVE_HOST,
	[POLICY_HOST][POLICY_DEVICE] =
		POLICY_ACT_TAKE_DEVICE | POLICY_ACT_COPY_IN | POLICY_ACT_MAP_DEVICE | POLICY_ACT_GIVE_HOST,
	[POLICY_HOST][POLICY_PARKED] = POLICY_ACT_MAP_HOST,
	[POLICY_HOST][POLICY_EMPTY] = POLICY_ACT_GIVE_HOST,
	[POLICY_EMPTY][POLICY_DEVICE] = POLICY_ACT_TAKE_DEVICE | POLICY_ACT_MAP_DEVICE,
	[POLICY_EMPTY][POLICY_PARKED] = POLICY_ACT_TAKE_HOST | POLICY_ACT_MAP_HOST,
	/* empty to host is not reached: there are no bytes to keep, so it stays empty */
};

uint32_t policy_steps(enum policy_residency now, enum policy_residency target)
{
	return steps[now][target];
}

static enum policy_residency wanted_residency(enum policy_want want, enum policy_residency now)
{
	switch (want) {
	case POLICY_WANT_DEVICE:
		return POLICY_DEVICE;
	case POLICY_WANT_DEMAND:
	case POLICY_WANT_PARKED:
		return POLICY_PARKED;
	case POLICY_WANT_HOST:
		return POLICY_HOST;
	case POLICY_WANT_EMPTY:
		return POLICY_EMPTY;
	case POLICY_WANT_KEEP:
	case POLICY_WANT_COUNT:
		break;
	}
	return now;
}

bool policy_may_discard(const struct policy *policy, uint32_t rule, enum policy_reason *ret_reason)
{
	const struct policy_rule *r = &policy->rules[rule];

	if (r->kind == POLICY_RULE_PINNED) {
		*ret_reason = POLICY_BECAUSE_PINNED_RULE;
		return false;
	}
	/* what nobody has described counts as permanent too */
	if (r->class == POLICY_CLASS_PERMANENT || r->kind == POLICY_RULE_DEFAULT) {
		*ret_reason = POLICY_BECAUSE_PERMANENT;
		return false;
	}
	if (!(r->flags & POLICY_RULE_EXCLUSIVE)) {
		*ret_reason = POLICY_BECAUSE_NOT_EXCLUSIVE;
		return false;
	}
	return true;
}

static bool may_discard_in(const struct policy *policy, const struct policy_state *state)
{
	if (state->flags & POLICY_STATE_ARRIVED)
		return true;
	return state->phase < policy->phases_count && state->role < policy->roles_count &&
	       (policy->phases[state->phase].idle >> state->role & 1);
}

static bool is_hole(enum policy_residency residency)
{
	return residency == POLICY_HOST || residency == POLICY_EMPTY;
}

void policy_decide(const struct policy *policy, const struct policy_state *state, struct policy_decision *ret_decision)
{
	const struct policy_rule *rule = &policy->rules[state->rule];
	struct policy_wanted wanted = policy_wanted(policy, state->rule, state->phase);
	struct policy_decision d = {
		.want = (enum policy_want)wanted.want,
		.reason = (enum policy_reason)wanted.why,
		.target = wanted_residency((enum policy_want)wanted.want, state->now),
	};

	if (d.target == POLICY_EMPTY && state->now != POLICY_EMPTY) {
		if (!policy_may_discard(policy, state->rule, &d.reason)) {
			d.target = POLICY_HOST;
		} else if (!may_discard_in(policy, state)) {
			d.target = POLICY_HOST;
			d.reason = POLICY_BECAUSE_NOT_ARRIVED;
		}
	}
	if (d.target == POLICY_HOST && state->now == POLICY_EMPTY) {
		d.target = POLICY_EMPTY;
		d.reason = POLICY_BECAUSE_NOTHING_THERE;
	}
	if (is_hole(d.target) && (!rule->scannable.count || (state->flags & POLICY_STATE_NO_SCAN)) &&
		policy_role_runs(policy, state->role, state->phase)) {
		d.target = POLICY_PARKED;
		d.reason = POLICY_BECAUSE_GATE_OPEN;
	}
	if (d.target == POLICY_PARKED && (state->flags & POLICY_STATE_NO_PARKING)) {
		/* a running role cannot be left with a hole; one that stands still can, with its bytes in the pool */
		if (policy_role_runs(policy, state->role, state->phase))
			d.target = POLICY_DEVICE;
		else
			d.target = state->now == POLICY_EMPTY ? POLICY_EMPTY : POLICY_HOST;
		d.reason = POLICY_BECAUSE_NO_PARKING;
	}
	if ((state->flags & POLICY_STATE_PINNED) && d.target != state->now) {
		d.target = state->now;
		d.reason = POLICY_BECAUSE_PINNED;
	}
	d.actions = policy_steps(state->now, d.target);
	if (d.want == POLICY_WANT_DEMAND && d.target == POLICY_PARKED) {
		d.actions |= POLICY_ACT_ON_TOUCH;
		if (rule->flags & POLICY_RULE_PREFETCH)
			d.actions |= POLICY_ACT_PREFETCH;
	}
	*ret_decision = d;
}

const char *policy_residency_text(enum policy_residency residency)
{
	static const char *const texts[POLICY_RESIDENCY_COUNT] = {"device", "parked", "host", "empty"};

	return (unsigned int)residency < POLICY_RESIDENCY_COUNT ? texts[residency] : "?";
}

const char *policy_reason_text(enum policy_reason reason)
{
	static const char *const texts[POLICY_BECAUSE_COUNT] = {
		[POLICY_BECAUSE_RESIDENT] = "'resident' says so",
		[POLICY_BECAUSE_OTHERWISE] = "'otherwise' says so",
		[POLICY_BECAUSE_UNSAID] =
			"'resident' does not list the phase, and without 'otherwise' bytes are parked",
		[POLICY_BECAUSE_NOT_EXCLUSIVE] =
			"'otherwise: discard' without 'exclusive: true' offloads: the allocation may hold something else",
		[POLICY_BECAUSE_BOUNDARY] = "between 'producer' and the end of 'consumer'",
		[POLICY_BECAUSE_PINNED_RULE] = "'pinned' matches it, so it never moves",
		[POLICY_BECAUSE_DEFAULT] = "no object matches it and there is no 'defaults'",
		[POLICY_BECAUSE_PINNED] = "its pages are exported or registered and must not move",
		[POLICY_BECAUSE_PERMANENT] = "permanent bytes are never discarded",
		[POLICY_BECAUSE_NOT_ARRIVED] =
			"the role has neither arrived nor is it 'idle' in this phase: offloaded, not discarded",
		[POLICY_BECAUSE_GATE_OPEN] = "the role runs in this phase: parked, so that no kernel steps into a hole",
		[POLICY_BECAUSE_NO_PARKING] = "host memory cannot be mapped on this device, so it cannot be parked",
		[POLICY_BECAUSE_NOTHING_THERE] = "there are no bytes to keep",
	};

	return (unsigned int)reason < POLICY_BECAUSE_COUNT ? texts[reason] : "?";
}

const char *policy_class_text(enum policy_class class)
{
	static const char *const texts[] = {
#define CLASS(name, word, sentence) word,
#include "policy/words.def"
	};

	return (unsigned int)class < POLICY_CLASS_COUNT ? texts[class] : "?";
}
