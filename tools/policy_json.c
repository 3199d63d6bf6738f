/* tools/policy_json.c
 * Complaints and explanations. jansson passes a NULL on: one check at the end of each is enough. */
#include "tools/policy_json.h"

#include "policy/decide.h"
#include "policy/match.h"
#include "policy/source/explain.h"
#include "tools/json.h"

/* @object, or NULL and nothing left of it when @failed. */
static json_t *unless(int failed, json_t *object)
{
	if (failed) {
		json_decref(object);
		return NULL;
	}
	return object;
}

static json_t *note_json(const struct diagnostic_note *note)
{
	json_t *object = json_object();
	int failed = json_object_set_new(object, "line", json_integer(note->where.line));

	failed |= json_object_set_new(object, "column", json_integer(note->where.column));
	failed |= json_object_set_new(object, "text", json_text(note->text));
	return unless(failed, object);
}

static json_t *diagnostic_json(const struct diagnostic *d, const char *file)
{
	json_t *object = json_object(), *notes = json_array();
	int failed = json_object_set_new(object, "file", json_text(file));

	failed |= json_object_set_new(object, "line", json_integer(d->where.line));
	failed |= json_object_set_new(object, "column", json_integer(d->where.column));
	failed |= json_object_set_new(object, "length", json_integer(d->where.length));
	failed |= json_object_set_new(
		object, "severity", json_string(message_is_error(d->message) ? "error" : "warning"));
	failed |= json_object_set_new(object, "kind", json_string(message_word(d->message)));
	failed |= json_object_set_new(object, "text", json_text(d->text));
	for (const struct diagnostic_note *note = d->notes; note; note = note->next)
		failed |= json_array_append_new(notes, note_json(note));
	failed |= json_object_set_new(object, "notes", notes);
	return unless(failed, object);
}

json_t *policy_json_diagnostics(const struct diagnostics *diagnostics, const char *file)
{
	json_t *array = json_array();
	int failed = 0;

	for (size_t i = 0; i < diagnostics->count; i++)
		failed |= json_array_append_new(array, diagnostic_json(&diagnostics->list[i], file));
	return unless(failed, array);
}

/* --- explanations ------------------------------------------------------------------------------------------------- */

static json_t *against_json(
	const struct policy *policy, const struct typed_facts *facts, uint32_t rule, enum policy_match_key key)
{
	json_t *object = json_object();
	struct output text = {0};
	int failed = json_object_set_new(
		object, "rule", json_text(policy_text(policy, policy->rules[rule].name)));

	explain_against(policy, facts, rule, key, &text);
	failed |= json_object_set_new(object, "key", json_string(match_key_text(key)));
	failed |= json_object_set_new(object, "text", json_text(output_get(&text)));
	failed |= text.failed;
	output_release(&text);
	return unless(failed, object);
}

static json_t *phase_json(const struct policy *policy, const struct policy_facts *facts, uint32_t rule, uint32_t phase)
{
	struct policy_decision decision = explain_decision(policy, facts, rule, phase);
	json_t *object = json_object();
	int failed = json_object_set_new(
		object, "phase", json_text(policy_text(policy, policy->phases[phase].name)));

	failed |= json_object_set_new(object, "residency", json_string(policy_residency_text(decision.target)));
	failed |= json_object_set_new(object, "on_demand", json_boolean(decision.actions & POLICY_ACT_ON_TOUCH));
	failed |= json_object_set_new(object, "reason", json_string(policy_reason_text(decision.reason)));
	return unless(failed, object);
}

json_t *policy_json_explain(const struct policy *policy, const char *file, const struct typed_facts *facts)
{
	uint32_t winner = policy_match(policy, &facts->facts);
	const struct policy_rule *rule = &policy->rules[winner];
	json_t *object = json_object(), *against = json_array(), *phases = json_array();
	struct output spoken = {0};
	int failed = json_object_set_new(object, "rule", json_text(policy_text(policy, rule->name)));

	explain_rule_name(policy, file, winner, &spoken);
	failed |= json_object_set_new(object, "line", json_integer(rule->line));
	failed |= json_object_set_new(
		object, "class", json_string(policy_class_text((enum policy_class)rule->class)));
	failed |= json_object_set_new(object, "spoken", json_text(output_get(&spoken)));
	failed |= spoken.failed;
	output_release(&spoken);
	for (uint32_t i = 0; i < policy->rules_count; i++) {
		enum policy_match_key key = policy_rule_against(policy, &policy->rules[i], &facts->facts);

		if (key != POLICY_KEY_COUNT)
			failed |= json_array_append_new(against, against_json(policy, facts, i, key));
	}
	failed |= json_object_set_new(object, "against", against);
	for (uint32_t i = 0; i < policy->phases_count; i++)
		failed |= json_array_append_new(phases, phase_json(policy, &facts->facts, winner, i));
	failed |= json_object_set_new(object, "phases", phases);
	return unless(failed, object);
}
