/* policy/source/explain.c
 * The decision for a phase is shown for an allocation that is on the device and whose client has arrived or is idle as
 * the policy says; what would differ otherwise is part of the reason. */
#include "policy/source/explain.h"

#include <string.h>

#include "base/size.h"
#include "policy/decide.h"
#include "policy/source/values.h"

enum { LISTED_MAX = 20 }; /* rules that are shown on each side of the winner */

/* --- what a rule asks --------------------------------------------------------------------------------------------- */

static void add_names(struct output *to, const struct policy *policy, uint64_t set, bool are_roles)
{
	uint32_t count = are_roles ? policy->roles_count : policy->phases_count;
	const char *before = "";

	for (uint32_t i = 0; i < count; i++) {
		if (!(set >> i & 1))
			continue;
		output_add(to, "%s%s", before,
			policy_text(policy, are_roles ? policy->roles[i].name : policy->phases[i].name));
		before = " or ";
	}
}

static void add_number(struct output *to, uint64_t number, bool is_size)
{
	char size[24];

	if (!is_size || number < 1024)
		output_add(to, "%llu", (unsigned long long)number);
	else if (number % 1024)
		output_add(to, "%llu bytes", (unsigned long long)number);
	else
		output_add(to, "%s", size_format(number, size, sizeof(size)));
}

static void add_ranges(struct output *to, const struct policy *policy, struct policy_span span, bool is_size)
{
	for (uint32_t i = 0; i < span.count; i++) {
		const struct policy_range *range = &policy->ranges[span.first + i];

		output_add(to, "%s", i ? " or " : "");
		if (range->low == range->high) {
			add_number(to, range->low, is_size);
		} else if (range->high == UINT64_MAX) {
			output_add(to, ">= ");
			add_number(to, range->low, is_size);
		} else {
			add_number(to, range->low, is_size);
			output_add(to, " to ");
			add_number(to, range->high, is_size);
		}
	}
}

static void add_quoted(struct output *to, const char *string)
{
	output_add(to, "'");
	output_add_printable(to, string);
	output_add(to, "'");
}

static void add_patterns(struct output *to, const struct policy *policy, struct policy_span span)
{
	for (uint32_t i = 0; i < span.count; i++) {
		output_add(to, "%s", i ? " or " : "");
		add_quoted(to, policy_text(policy, policy->patterns[span.first + i]));
	}
}

static void add_bits(struct output *to, uint64_t set, uint32_t count, const char *const *words)
{
	const char *before = "";

	for (uint32_t i = 0; i < count; i++) {
		if (!(set >> i & 1))
			continue;
		if (words)
			output_add(to, "%s%s", before, words[i]);
		else
			output_add(to, "%s%u", before, i);
		before = " or ";
	}
}

static void add_asked(
	struct output *to, const struct policy *policy, const struct policy_rule *rule, enum policy_match_key key)
{
	switch (key) {
	case POLICY_KEY_ROLE:
		add_names(to, policy, rule->roles, true);
		break;
	case POLICY_KEY_SIZE:
		add_ranges(to, policy, rule->sizes, true);
		break;
	case POLICY_KEY_API:
		add_bits(to, rule->apis, POLICY_API_COUNT, api_words);
		break;
	case POLICY_KEY_PHASE:
		add_names(to, policy, rule->phases, false);
		break;
	case POLICY_KEY_ORDER:
		add_ranges(to, policy, rule->orders, false);
		break;
	case POLICY_KEY_DEVICE:
		add_bits(to, rule->devices, POLICY_DEVICES_MAX, NULL);
		break;
	case POLICY_KEY_LIBRARY:
		add_patterns(to, policy, rule->library);
		break;
	case POLICY_KEY_STACK:
		add_patterns(to, policy, rule->stack);
		break;
	case POLICY_KEY_PYTHON:
		add_patterns(to, policy, rule->python);
		break;
	case POLICY_KEY_THREAD:
		add_patterns(to, policy, rule->thread);
		break;
	case POLICY_KEY_TAG:
		add_patterns(to, policy, rule->tag);
		break;
	case POLICY_KEY_COUNT:
		break;
	}
}

/* --- what is the case --------------------------------------------------------------------------------------------- */

static void add_frames(struct output *to, const char *const *frames, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		output_add(to, "%s", i ? ", " : "");
		add_quoted(to, frames[i]);
	}
}

static void add_fact(
	struct output *to, const struct policy *policy, const struct policy_facts *f, enum policy_match_key key)
{
	switch (key) {
	case POLICY_KEY_ROLE:
		output_add(to, "%s", policy_text(policy, policy->roles[f->role].name));
		break;
	case POLICY_KEY_SIZE:
		add_number(to, f->size_bytes, true);
		break;
	case POLICY_KEY_API:
		output_add(to, "%s", api_words[f->api]);
		break;
	case POLICY_KEY_PHASE:
		output_add(to, "%s", policy_text(policy, policy->phases[f->phase].name));
		break;
	case POLICY_KEY_ORDER:
		output_add(to, "%llu", (unsigned long long)f->order);
		break;
	case POLICY_KEY_DEVICE:
		output_add(to, "%u", f->device);
		break;
	case POLICY_KEY_LIBRARY:
		add_frames(to, f->library, f->library[1] ? 2 : 1);
		break;
	case POLICY_KEY_STACK:
		add_frames(to, f->stack, f->stack_count);
		break;
	case POLICY_KEY_PYTHON:
		add_frames(to, f->python, f->python_count);
		break;
	case POLICY_KEY_THREAD:
		add_quoted(to, f->thread);
		break;
	case POLICY_KEY_TAG:
		add_quoted(to, f->tag);
		break;
	case POLICY_KEY_COUNT:
		break;
	}
}

/* `size is 464.00 MiB, the rule asks for >= 1.00 GiB` */
void explain_against(const struct policy *policy, const struct typed_facts *typed, uint32_t number,
	enum policy_match_key key, struct output *to)
{
	const struct policy_rule *rule = &policy->rules[number];

	if (key == POLICY_KEY_COUNT) {
		/* only in a block that another compiler wrote: its index leaves the rule out */
		output_add(to, "matches, but the block's index does not name it");
		return;
	}
	output_add(to, "%s ", match_key_text(key));
	if (typed->given[key]) {
		output_add(to, "is ");
		add_fact(to, policy, &typed->facts, key);
	} else {
		output_add(to, "is not given");
	}
	output_add(to, ", the rule asks for ");
	add_asked(to, policy, rule, key);
}

void explain_rule_name(const struct policy *policy, const char *file, uint32_t number, struct output *to)
{
	const struct policy_rule *rule = &policy->rules[number];

	if (rule->kind == POLICY_RULE_PINNED)
		output_add(to, "'pinned'");
	else if (rule->kind == POLICY_RULE_DEFAULT)
		output_add(to, "%s", rule->line ? "'defaults'" : "the built-in default");
	else
		output_add(to, "'%s'", policy_text(policy, rule->name));
	if (rule->line)
		output_add(to, " (%s:%u)", file, rule->line);
}

struct policy_decision explain_decision(
	const struct policy *policy, const struct policy_facts *facts, uint32_t rule, uint32_t phase)
{
	struct policy_state state = {.rule = rule, .role = facts->role, .phase = phase, .now = POLICY_DEVICE};
	struct policy_decision decision;

	/* who triggers the phase has arrived */
	for (uint32_t i = 0; i < policy->triggers_count; i++)
		if (policy->triggers[i].phase == phase && policy->triggers[i].source != POLICY_TRIGGER_COMMAND &&
			facts->role < policy->roles_count && (policy->triggers[i].roles >> facts->role & 1))
			state.flags |= POLICY_STATE_ARRIVED;
	policy_decide(policy, &state, &decision);
	return decision;
}

/* What `demand` adds to `parked`, and the like. */
static const char *want_suffix(const struct policy_decision *decision)
{
	return decision->actions & POLICY_ACT_ON_TOUCH ? ", through the window on touch" : "";
}

static void explain_phases(
	const struct policy *policy, const struct policy_facts *facts, uint32_t winner, struct output *to)
{
	size_t width = 0;

	for (uint32_t i = 0; i < policy->phases_count; i++)
		if (strlen(policy_text(policy, policy->phases[i].name)) > width)
			width = strlen(policy_text(policy, policy->phases[i].name));
	output_add(to, policy->phases_count ? "in phase\n" : "there are no phases, so nothing moves\n");
	for (uint32_t i = 0; i < policy->phases_count; i++) {
		struct policy_decision decision = explain_decision(policy, facts, winner, i);

		output_add(to, "  %-*s  %-6s  %s%s\n", (int)width, policy_text(policy, policy->phases[i].name),
			policy_residency_text(decision.target), policy_reason_text(decision.reason),
			want_suffix(&decision));
	}
}

void explain(const struct policy *policy, const char *file, const struct typed_facts *typed, struct output *to)
{
	uint32_t winner = policy_match(policy, &typed->facts), shown = 0;
	const struct policy_rule *rule = &policy->rules[winner];

	explain_rule_name(policy, file, winner, to);
	output_add(to, " wins, class %s\n", policy_class_text((enum policy_class)rule->class));
	for (int key = 0; key < POLICY_KEY_COUNT; key++) {
		if (!policy_rule_asks(rule, (enum policy_match_key)key))
			continue;
		output_add(to, "  ");
		explain_against(policy, typed, winner, (enum policy_match_key)key, to);
		output_add(to, "\n");
	}
	for (uint32_t i = 0; i < winner; i++) {
		if (i == 0)
			output_add(to, "earlier rules do not match\n");
		if (winner > LISTED_MAX && i < winner - LISTED_MAX) {
			if (i == 0)
				output_add(to, "  (%u rules before these)\n", winner - LISTED_MAX);
			continue;
		}
		output_add(to, "  ");
		explain_rule_name(policy, file, i, to);
		output_add(to, ": ");
		explain_against(
			policy, typed, i, policy_rule_against(policy, &policy->rules[i], &typed->facts), to);
		output_add(to, "\n");
	}
	for (uint32_t i = winner + 1; i + 1 < policy->rules_count && shown < LISTED_MAX; i++) {
		if (policy_rule_against(policy, &policy->rules[i], &typed->facts) != POLICY_KEY_COUNT)
			continue;
		output_add(to, shown++ ? "" : "later rules would match too, but come too late\n");
		output_add(to, "  ");
		explain_rule_name(policy, file, i, to);
		output_add(to, "\n");
	}
	explain_phases(policy, &typed->facts, winner, to);
}
