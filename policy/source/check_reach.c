/* policy/source/check_reach.c
 * What can never happen: rules behind rules that take everything, phases without an entry, roles that stand still. */
#include <string.h>

#include "base/size.h"
#include "policy/glob.h"
#include "policy/source/check_priv.h"

static bool patterns_cover(const struct patterns *wide, const struct patterns *narrow)
{
	if (!wide->count)
		return true;
	if (!narrow->count)
		return false;
	for (size_t i = 0; i < narrow->count; i++) {
		bool is_covered = false;

		for (size_t k = 0; k < wide->count && !is_covered; k++)
			is_covered = glob_covers(wide->list[k].text, narrow->list[i].text);
		if (!is_covered)
			return false;
	}
	return true;
}

static bool ranges_cover(const struct ranges *wide, const struct ranges *narrow)
{
	if (!wide->count)
		return true;
	if (!narrow->count)
		return false;
	for (size_t i = 0; i < narrow->count; i++) {
		bool is_covered = false;

		for (size_t k = 0; k < wide->count && !is_covered; k++)
			is_covered =
				wide->list[k].low <= narrow->list[i].low && narrow->list[i].high <= wide->list[k].high;
		if (!is_covered)
			return false;
	}
	return true;
}

/* Does @wide take every allocation that @narrow matches? True is certain, false is not. Cheapest questions first. */
static bool match_covers(const struct match_tree *wide, const struct match_tree *narrow)
{
	return !(narrow->roles_set & ~wide->roles_set) && !(narrow->phases_set & ~wide->phases_set) &&
	       !(narrow->devices_set & ~wide->devices_set) && !(narrow->apis_set & ~wide->apis_set) &&
	       ranges_cover(&wide->sizes, &narrow->sizes) && ranges_cover(&wide->orders, &narrow->orders) &&
	       patterns_cover(&wide->tag, &narrow->tag) && patterns_cover(&wide->thread, &narrow->thread) &&
	       patterns_cover(&wide->library, &narrow->library) && patterns_cover(&wide->python, &narrow->python) &&
	       patterns_cover(&wide->stack, &narrow->stack);
}

static void check_reachable(const struct policy_tree *tree, size_t number, struct diagnostics *diagnostics)
{
	const struct object_tree *object = &tree->objects[number];

	if (object->kind != POLICY_RULE_OBJECT || !object->match.where.line)
		return;
	for (size_t i = 0; i < number; i++) {
		const struct object_tree *earlier = &tree->objects[i];

		/* what could not be read may be narrower than it looks */
		if (!earlier->match.where.line || !match_covers(&earlier->match, &object->match))
			continue;
		complain(diagnostics, MESSAGE_UNREACHABLE, object->name.where,
			"'%s' is never reached: %s%s%s, earlier in the file, takes everything that it matches; move it up, or make the earlier "
			"match narrower",
			object->name.text, earlier->kind == POLICY_RULE_OBJECT ? "'" : "",
			earlier->kind == POLICY_RULE_OBJECT ? earlier->name.text : "a match in 'pinned'",
			earlier->kind == POLICY_RULE_OBJECT ? "'" : "");
		remark(diagnostics, earlier->name.where, "the earlier one is here");
		return;
	}
}

/* What is smaller never comes to the rules. */
static void check_large_enough(
	const struct policy_tree *tree, const struct object_tree *object, struct diagnostics *diagnostics)
{
	uint64_t largest = 0;
	char size[24];

	for (size_t i = 0; i < object->match.sizes.count; i++)
		if (object->match.sizes.list[i].high > largest)
			largest = object->match.sizes.list[i].high;
	if (!object->match.sizes.count || largest >= tree->min_size.value.bytes)
		return;
	complain(diagnostics, MESSAGE_UNREACHABLE, object->match.sizes.where,
		"'%s' is never reached: allocations below %s stay native; match larger ones, or write a smaller 'min_size'",
		object->name.text, size_format(tree->min_size.value.bytes, size, sizeof(size)));
}

static bool variables_cover(const struct variables *wide, const struct variables *narrow)
{
	for (size_t i = 0; i < wide->count; i++) {
		bool is_covered = false;

		for (size_t k = 0; k < narrow->count && !is_covered; k++)
			is_covered = strcmp(wide->list[i].name.text, narrow->list[k].name.text) == 0 &&
				     patterns_cover(&wide->list[i].patterns, &narrow->list[k].patterns);
		if (!is_covered)
			return false;
	}
	return true;
}

static bool is_matched(const struct role_tree *role)
{
	return role->command.count || role->executable.count || role->environment.count;
}

/* The first role that matches a process is its role; one without keys is only ever given. */
static void check_role(const struct policy_tree *tree, size_t number, struct diagnostics *diagnostics)
{
	const struct role_tree *role = &tree->roles[number];

	for (size_t i = 0; i < number && is_matched(role); i++) {
		const struct role_tree *earlier = &tree->roles[i];

		if (!is_matched(earlier) || !patterns_cover(&earlier->command, &role->command) ||
			!patterns_cover(&earlier->executable, &role->executable) ||
			!variables_cover(&earlier->environment, &role->environment))
			continue;
		complain(diagnostics, MESSAGE_UNREACHABLE, role->name.where,
			"no process is recognised as '%s': '%s', earlier in the file, matches all that it matches; move it up, or make the "
			"earlier one narrower",
			role->name.text, earlier->name.text);
		remark(diagnostics, earlier->name.where, "the earlier one is here");
		return;
	}
}

static bool trigger_covers(const struct trigger_tree *wide, const struct trigger_tree *narrow)
{
	if (narrow->roles_set & ~wide->roles_set)
		return false;
	if (narrow->nvtx_push.count)
		return wide->nvtx_push.count && patterns_cover(&wide->nvtx_push, &narrow->nvtx_push);
	if (narrow->nvtx_pop.count)
		return wide->nvtx_pop.count && patterns_cover(&wide->nvtx_pop, &narrow->nvtx_pop);
	if (narrow->kernel.count)
		return wide->kernel.count && patterns_cover(&wide->kernel, &narrow->kernel);
	if (narrow->environment.count)
		return wide->environment.count && variables_cover(&wide->environment, &narrow->environment);
	/* a command names its phase */
	return wide->command.value && wide->enter.list[0].number == narrow->enter.list[0].number;
}

/* The first trigger that fits an event says what begins. */
static void check_trigger(const struct policy_tree *tree, size_t number, struct diagnostics *diagnostics)
{
	const struct trigger_tree *trigger = &tree->triggers[number];

	for (size_t i = 0; i < number; i++) {
		const struct trigger_tree *earlier = &tree->triggers[i];

		if (!trigger_covers(earlier, trigger))
			continue;
		complain(diagnostics, MESSAGE_UNREACHABLE, trigger->where,
			"this trigger never fires: an earlier one takes all its events and enters '%s'; leave it out, or write other patterns "
			"or roles",
			earlier->enter.list[0].text);
		remark(diagnostics, earlier->where, "the earlier one is here");
		return;
	}
}

static bool is_entered(const struct policy_tree *tree, uint32_t phase)
{
	for (size_t i = 0; i < tree->triggers_count; i++)
		if (tree->triggers[i].enter.count && tree->triggers[i].enter.list[0].number == phase)
			return true;
	return false;
}

void check_reach(struct policy_tree *tree, struct diagnostics *diagnostics)
{
	uint64_t running = 0;

	if (diagnostics->errors)
		return; /* what could not be read is missing here, and would be missed twice */
	for (size_t i = 1; i < tree->objects_count; i++)
		check_reachable(tree, i, diagnostics);
	for (size_t i = 0; i < tree->objects_count; i++)
		check_large_enough(tree, &tree->objects[i], diagnostics);
	for (size_t i = 1; i < tree->roles_count; i++)
		check_role(tree, i, diagnostics);
	for (size_t i = 1; i < tree->triggers_count; i++)
		check_trigger(tree, i, diagnostics);
	for (uint32_t i = 0; i < tree->phases_count; i++) {
		running |= tree->phases[i].roles_set;
		/* a session is in its only phase from the start */
		if (tree->phases_count > 1 && !is_entered(tree, i))
			complain(diagnostics, MESSAGE_NOBODY_ENTERS, tree->phases[i].name.where,
				"no trigger enters phase '%s'; add '- {enter: %s, ...}' to 'triggers', with 'command: true' if it is entered by "
				"'sublet phase %s'",
				tree->phases[i].name.text, tree->phases[i].name.text, tree->phases[i].name.text);
	}
	for (uint32_t i = 0; tree->phases_count && i < tree->roles_count; i++)
		if (!is_in(running, i))
			complain(diagnostics, MESSAGE_ROLE_NEVER_RUNS, tree->roles[i].name.where,
				"role '%s' runs in no phase, so its processes would stand still for ever; add it to the 'roles' of a phase",
				tree->roles[i].name.text);
}
