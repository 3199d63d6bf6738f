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

static void add_names(struct text *to, const struct policy *policy, uint64_t set, bool are_roles)
{
	uint32_t count = are_roles ? policy->roles_count : policy->phases_count;
	const char *before = "";

	for (uint32_t i = 0; i < count; i++) {
		if (!(set >> i & 1))
			continue;
		text_add(to, "%s%s", before,
			policy_text(policy, are_roles ? policy->roles[i].name : policy->phases[i].name));
		before = " or ";
	}
}

static void add_number(struct text *to, uint64_t number, bool is_size)
{
	char size[24];

	if (!is_size || number < 1024)
		text_add(to, "%llu", (unsigned long long)number);
	else if (number % 1024)
		text_add(to, "%llu bytes", (unsigned long long)number);
	else
		text_add(to, "%s", size_format(number, size, sizeof(size)));
}

static void add_ranges(struct text *to, const struct policy *policy, struct policy_span span, bool is_size)
{
	for (uint32_t i = 0; i < span.count; i++) {
		const struct policy_range *range = &policy->ranges[span.first + i];

		text_add(to, "%s", i ? " or " : "");
		if (range->low == range->high) {
			add_number(to, range->low, is_size);
		} else if (range->high == UINT64_MAX) {
			text_add(to, ">= ");
			add_number(to, range->low, is_size);
		} else {
			add_number(to, range->low, is_size);
			text_add(to, " to ");
			add_number(to, range->high, is_size);
		}
	}
}

static void add_patterns(struct text *to, const struct policy *policy, struct policy_span span)
{
	for (uint32_t i = 0; i < span.count; i++)
		text_add(to, "%s'%s'", i ? " or " : "", policy_text(policy, policy->patterns[span.first + i]));
}

static void add_bits(struct text *to, uint64_t set, uint32_t count, const char *const *words)
{
	const char *before = "";

	for (uint32_t i = 0; i < count; i++) {
		if (!(set >> i & 1))
			continue;
		if (words)
			text_add(to, "%s%s", before, words[i]);
		else
			text_add(to, "%s%u", before, i);
		before = " or ";
	}
}

static void add_asked(
	struct text *to, const struct policy *policy, const struct policy_rule *rule, enum policy_match_key key)
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

static void add_frames(struct text *to, const char *const *frames, size_t count)
{
	for (size_t i = 0; i < count; i++)
		text_add(to, "%s'%s'", i ? ", " : "", frames[i]);
}

static void add_fact(
	struct text *to, const struct policy *policy, const struct policy_facts *f, enum policy_match_key key)
{
	switch (key) {
	case POLICY_KEY_ROLE:
		text_add(to, "%s", policy_text(policy, policy->roles[f->role].name));
		break;
	case POLICY_KEY_SIZE:
		add_number(to, f->size_bytes, true);
		break;
	case POLICY_KEY_API:
		text_add(to, "%s", api_words[f->api]);
		break;
	case POLICY_KEY_PHASE:
		text_add(to, "%s", policy_text(policy, policy->phases[f->phase].name));
		break;
	case POLICY_KEY_ORDER:
		text_add(to, "%llu", (unsigned long long)f->order);
		break;
	case POLICY_KEY_DEVICE:
		text_add(to, "%u", f->device);
		break;
	case POLICY_KEY_LIBRARY:
		text_add(to, "'%s'", f->library);
		break;
	case POLICY_KEY_STACK:
		add_frames(to, f->stack, f->stack_count);
		break;
	case POLICY_KEY_PYTHON:
		add_frames(to, f->python, f->python_count);
		break;
	case POLICY_KEY_THREAD:
		text_add(to, "'%s'", f->thread);
		break;
	case POLICY_KEY_TAG:
		text_add(to, "'%s'", f->tag);
		break;
	case POLICY_KEY_COUNT:
		break;
	}
}

/* `size is 464.00 MiB, the rule asks for >= 1.00 GiB` */
static void add_against(struct text *to, const struct policy *policy, const struct typed_facts *typed,
	const struct policy_rule *rule, enum policy_match_key key)
{
	if (key == POLICY_KEY_COUNT) {
		/* only in a block that another compiler wrote: its index leaves the rule out */
		text_add(to, "matches, but the block's index does not name it");
		return;
	}
	text_add(to, "%s ", match_key_text(key));
	if (typed->given[key]) {
		text_add(to, "is ");
		add_fact(to, policy, &typed->facts, key);
	} else {
		text_add(to, "is not given");
	}
	text_add(to, ", the rule asks for ");
	add_asked(to, policy, rule, key);
}

static void add_rule_name(struct text *to, const struct policy *policy, const char *file, uint32_t number)
{
	const struct policy_rule *rule = &policy->rules[number];

	if (rule->kind == POLICY_RULE_PINNED)
		text_add(to, "'pinned'");
	else if (rule->kind == POLICY_RULE_DEFAULT)
		text_add(to, "%s", rule->line ? "'defaults'" : "the built-in default");
	else
		text_add(to, "'%s'", policy_text(policy, rule->name));
	if (rule->line)
		text_add(to, " (%s:%u)", file, rule->line);
}

static struct policy_decision decision_in(
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
	const struct policy *policy, const struct policy_facts *facts, uint32_t winner, struct text *to)
{
	size_t width = 0;

	for (uint32_t i = 0; i < policy->phases_count; i++)
		if (strlen(policy_text(policy, policy->phases[i].name)) > width)
			width = strlen(policy_text(policy, policy->phases[i].name));
	text_add(to, policy->phases_count ? "in phase\n" : "there are no phases, so nothing moves\n");
	for (uint32_t i = 0; i < policy->phases_count; i++) {
		struct policy_decision decision = decision_in(policy, facts, winner, i);

		text_add(to, "  %-*s  %-6s  %s%s\n", (int)width, policy_text(policy, policy->phases[i].name),
			policy_residency_text(decision.target), policy_reason_text(decision.reason),
			want_suffix(&decision));
	}
}

void explain(const struct policy *policy, const char *file, const struct typed_facts *typed, struct text *to)
{
	uint32_t winner = policy_match(policy, &typed->facts), shown = 0;
	const struct policy_rule *rule = &policy->rules[winner];

	add_rule_name(to, policy, file, winner);
	text_add(to, " wins, class %s\n", policy_class_text((enum policy_class)rule->class));
	for (int key = 0; key < POLICY_KEY_COUNT; key++) {
		if (!policy_rule_asks(rule, (enum policy_match_key)key))
			continue;
		text_add(to, "  ");
		add_against(to, policy, typed, rule, (enum policy_match_key)key);
		text_add(to, "\n");
	}
	for (uint32_t i = 0; i < winner; i++) {
		if (i == 0)
			text_add(to, "earlier rules do not match\n");
		if (winner > LISTED_MAX && i < winner - LISTED_MAX) {
			if (i == 0)
				text_add(to, "  (%u rules before these)\n", winner - LISTED_MAX);
			continue;
		}
		text_add(to, "  ");
		add_rule_name(to, policy, file, i);
		text_add(to, ": ");
		add_against(to, policy, typed, &policy->rules[i],
			policy_rule_against(policy, &policy->rules[i], &typed->facts));
		text_add(to, "\n");
	}
	for (uint32_t i = winner + 1; i + 1 < policy->rules_count && shown < LISTED_MAX; i++) {
		if (policy_rule_against(policy, &policy->rules[i], &typed->facts) != POLICY_KEY_COUNT)
			continue;
		text_add(to, shown++ ? "" : "later rules would match too, but come too late\n");
		text_add(to, "  ");
		add_rule_name(to, policy, file, i);
		text_add(to, "\n");
	}
	explain_phases(policy, &typed->facts, winner, to);
}

void explain_json(const struct policy *policy, const char *file, const struct typed_facts *typed, struct text *to)
{
	uint32_t winner = policy_match(policy, &typed->facts);
	struct text line = {0};
	const char *before = "";

	text_add(to, "{\"rule\": ");
	add_rule_name(&line, policy, file, winner);
	text_add_json(to, policy_text(policy, policy->rules[winner].name));
	text_add(to, ", \"line\": %u, \"class\": \"%s\", \"spoken\": ", policy->rules[winner].line,
		policy_class_text((enum policy_class)policy->rules[winner].class));
	text_add_json(to, text_get(&line));
	text_add(to, ", \"against\": [");
	for (uint32_t i = 0; i < policy->rules_count; i++) {
		enum policy_match_key key = policy_rule_against(policy, &policy->rules[i], &typed->facts);

		if (key == POLICY_KEY_COUNT)
			continue;
		text_release(&line);
		add_against(&line, policy, typed, &policy->rules[i], key);
		text_add(to, "%s{\"rule\": ", before);
		text_add_json(to, policy_text(policy, policy->rules[i].name));
		text_add(to, ", \"key\": \"%s\", \"text\": ", match_key_text(key));
		text_add_json(to, text_get(&line));
		text_add(to, "}");
		before = ", ";
	}
	text_add(to, "], \"phases\": [");
	for (uint32_t i = 0; i < policy->phases_count; i++) {
		struct policy_decision decision = decision_in(policy, &typed->facts, winner, i);

		text_add(to, "%s{\"phase\": ", i ? ", " : "");
		text_add_json(to, policy_text(policy, policy->phases[i].name));
		text_add(to, ", \"residency\": \"%s\", \"on_demand\": %s, \"reason\": ",
			policy_residency_text(decision.target),
			decision.actions & POLICY_ACT_ON_TOUCH ? "true" : "false");
		text_add_json(to, policy_reason_text(decision.reason));
		text_add(to, "}");
	}
	text_add(to, "]}");
	text_release(&line);
}
