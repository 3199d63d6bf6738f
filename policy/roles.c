/* policy/roles.c
 * Small lists, walked in file order. */
#include "policy/roles.h"

#include "policy/match.h"

static bool variables_match(const struct policy *policy, struct policy_span span,
	const char *(*variable)(const char *name, void *arg), void *arg)
{
	for (uint32_t i = 0; i < span.count; i++) {
		const struct policy_variable *row = &policy->variables[span.first + i];

		if (!variable ||
			!policy_patterns_match(policy, row->patterns, variable(policy_text(policy, row->name), arg)))
			return false;
	}
	return true;
}

uint32_t policy_role_of(const struct policy *policy, const struct policy_process *process)
{
	if (process->role && process->role[0])
		return policy_role_find(policy, process->role);
	for (uint32_t i = 0; i < policy->roles_count; i++) {
		const struct policy_role *role = &policy->roles[i];

		if (!role->command.count && !role->executable.count && !role->environment.count)
			continue;
		if ((!role->command.count || policy_patterns_match(policy, role->command, process->command)) &&
			(!role->executable.count ||
				policy_patterns_match(policy, role->executable, process->executable)) &&
			variables_match(policy, role->environment, process->variable, process->arg))
			return i;
	}
	return POLICY_NONE;
}

static bool trigger_is_of(const struct policy *policy, const struct policy_trigger *trigger,
	enum policy_trigger_source source, uint32_t role)
{
	uint32_t bit = role < policy->roles_count ? role : POLICY_NONE_BIT;

	return trigger->source == source && (trigger->roles >> bit & 1);
}

unsigned policy_trigger_sources(const struct policy *policy, uint32_t role)
{
	unsigned sources = 0;

	for (uint32_t i = 0; i < policy->triggers_count; i++) {
		const struct policy_trigger *trigger = &policy->triggers[i];

		if (trigger_is_of(policy, trigger, trigger->source, role))
			sources |= 1u << trigger->source;
	}
	return sources;
}

uint32_t policy_trigger_of(
	const struct policy *policy, enum policy_trigger_source source, uint32_t role, const char *name)
{
	return policy_trigger_of_either(policy, source, role, name, NULL);
}

uint32_t policy_trigger_of_either(const struct policy *policy, enum policy_trigger_source source, uint32_t role, const char *name,
	const char *other)
{
	for (uint32_t i = 0; i < policy->triggers_count; i++) {
		const struct policy_trigger *trigger = &policy->triggers[i];

		if (trigger_is_of(policy, trigger, source, role) &&
			(policy_patterns_match(policy, trigger->patterns, name) ||
				(other && policy_patterns_match(policy, trigger->patterns, other))))
			return trigger->phase;
	}
	return POLICY_NONE;
}

bool policy_may_command(const struct policy *policy, uint32_t role, bool any_role, uint32_t phase)
{
	for (uint32_t i = 0; i < policy->triggers_count; i++) {
		const struct policy_trigger *trigger = &policy->triggers[i];

		if (trigger->phase == phase && trigger->source == POLICY_TRIGGER_COMMAND &&
			(any_role || trigger_is_of(policy, trigger, POLICY_TRIGGER_COMMAND, role)))
			return true;
	}
	return false;
}

uint32_t policy_trigger_of_variables(
	const struct policy *policy, uint32_t role, const char *(*variable)(const char *name, void *arg), void *arg)
{
	for (uint32_t i = 0; i < policy->triggers_count; i++) {
		const struct policy_trigger *trigger = &policy->triggers[i];

		if (trigger_is_of(policy, trigger, POLICY_TRIGGER_ENVIRONMENT, role) &&
			variables_match(policy, trigger->environment, variable, arg))
			return trigger->phase;
	}
	return POLICY_NONE;
}
