/* policy/source/check_reach.c
 * What can never happen: rules behind rules that take everything, phases without an entry, roles that stand still. */
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
