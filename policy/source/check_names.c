/* policy/source/check_names.c
 * References to roles, phases, objects and driver calls. */
#include <stdlib.h>
#include <string.h>

#include "base/words.h"
#include "policy/glob.h"
#include "policy/source/check_priv.h"
#include "policy/source/values.h"

/* The names of one list, for looking up and suggesting. */
struct names {
	const char *what;
	const char **words; /* NULL-ended */
	size_t count;
	const char *missing; /* said when the list is empty */
};

static uint32_t look_up(struct reference *reference, const struct names *names, struct diagnostics *diagnostics)
{
	for (size_t i = 0; i < names->count; i++) {
		if (strcmp(names->words[i], reference->text) == 0) {
			reference->number = (uint32_t)i;
			return (uint32_t)i;
		}
	}
	complain(diagnostics, MESSAGE_UNKNOWN_NAME, reference->where, "unknown %s '%.60s'", names->what,
		reference->text);
	if (names->count || nearest_word(reference->text, names->words))
		suggest(diagnostics, reference->text, names->words);
	else
		remark(diagnostics, NOWHERE, "%s", names->missing);
	return POLICY_NONE;
}

static uint64_t look_up_all(struct references *references, const struct names *names, struct diagnostics *diagnostics)
{
	uint64_t set = 0;

	for (size_t i = 0; i < references->count; i++) {
		uint32_t number = look_up(&references->list[i], names, diagnostics);

		if (number < POLICY_NONE_BIT)
			set |= 1ull << number;
	}
	return set;
}

static bool all_known(struct references *references, const struct names *names, struct diagnostics *diagnostics)
{
	bool known = true;

	for (size_t i = 0; i < references->count; i++)
		known &= look_up(&references->list[i], names, diagnostics) != POLICY_NONE;
	return known;
}

/* `resident` alone may be a word of its own, which may be what was meant. */
static bool resident_known(
	struct resident_tree *resident, const struct names *phases, struct diagnostics *diagnostics)
{
	static const char *const own[] = {"all", "none", "demand"};
	const char *words[POLICY_PHASES_MAX + 4];
	struct references *named = &resident->phases;
	struct names names = {.what = "phase", .words = words, .count = phases->count, .missing = phases->missing};
	bool known = true;

	for (size_t i = 0; i < phases->count; i++)
		words[i] = phases->words[i];
	for (size_t i = 0; i < 4; i++)
		words[phases->count + i] = i < 3 ? own[i] : NULL;
	for (size_t i = 0; i < named->count; i++) {
		bool is_own = false;

		for (size_t k = 0; k < 3; k++)
			is_own |= strcmp(named->list[i].text, own[k]) == 0;
		if (is_own) {
			complain(diagnostics, MESSAGE_UNKNOWN_NAME, named->list[i].where,
				"'%s' is no phase; it stands alone, write 'resident: %s', or leave it out",
				named->list[i].text, named->list[i].text);
			known = false;
			continue;
		}
		known &= look_up(&named->list[i], resident->is_alone ? &names : phases, diagnostics) != POLICY_NONE;
	}
	return known;
}

uint64_t all_roles(const struct policy_tree *tree)
{
	return ((1ull << tree->roles_count) - 1) | 1ull << POLICY_NONE_BIT;
}

uint64_t running_roles(const struct policy_tree *tree, const struct object_tree *object, uint32_t phase)
{
	/* what is no role of the policy always runs, and nobody stands still where there are no phases */
	uint64_t running = phase < tree->phases_count ? tree->phases[phase].roles_set : POLICY_ANY;

	return object->match.roles_set & running & all_roles(tree);
}

const char *first_role(const struct policy_tree *tree, uint64_t set)
{
	uint32_t number = set ? (uint32_t)__builtin_ctzll(set) : POLICY_NONE_BIT;

	return number < tree->roles_count ? tree->roles[number].name.text : "(a process without a role)";
}

static void check_phase(struct phase_tree *phase, const struct names *roles, struct diagnostics *diagnostics)
{
	phase->idle_set = look_up_all(&phase->idle, roles, diagnostics);
	phase->roles_set = look_up_all(&phase->roles, roles, diagnostics) | 1ull << POLICY_NONE_BIT;
	if (!phase->roles.where.line)
		phase->roles_set = POLICY_ANY & ~phase->idle_set; /* all but those that are said to be idle */
	for (size_t i = 0; i < phase->idle.count; i++) {
		const struct reference *idle = &phase->idle.list[i];

		if (idle->number == POLICY_NONE || !is_in(phase->roles_set, idle->number))
			continue;
		complain(diagnostics, MESSAGE_ROLE_RUNS_AND_IDLE, idle->where,
			"role '%s' both runs and is idle in phase '%s'; leave it out of one of the lists", idle->text,
			phase->name.text);
	}
}

static void suggest_api(const char *given, struct diagnostics *diagnostics)
{
	const char *base = api_without_suffix(given);

	if (base)
		remark(diagnostics, NOWHERE, "write it without its suffix: '%s'", base);
	else
		suggest(diagnostics, given, api_words);
}

static uint32_t api_set(const struct patterns *apis, struct diagnostics *diagnostics)
{
	uint32_t set = 0;

	if (!apis->where.line)
		return POLICY_ANY_API;
	for (size_t i = 0; i < apis->count; i++) {
		uint32_t matched = 0;

		for (uint32_t api = 0; api < POLICY_API_COUNT; api++)
			if (glob_matches(apis->list[i].text, api_words[api]))
				matched |= 1u << api;
		if (!matched) {
			complain(diagnostics, MESSAGE_UNKNOWN_NAME, apis->list[i].where,
				"no driver call that gives memory is called '%.60s'", apis->list[i].text);
			suggest_api(apis->list[i].text, diagnostics);
		}
		set |= matched;
	}
	return set;
}

static uint64_t device_set(const struct ranges *devices)
{
	uint64_t set = 0;

	if (!devices->where.line)
		return POLICY_ANY;
	for (size_t i = 0; i < devices->count; i++)
		for (uint64_t n = devices->list[i].low; n < POLICY_DEVICES_MAX && n <= devices->list[i].high; n++)
			set |= 1ull << n;
	return set;
}

static void check_object_names(struct object_tree *object, const struct names *roles, const struct names *phases,
	struct diagnostics *diagnostics)
{
	struct match_tree *match = &object->match;

	match->roles_set = match->roles.where.line ? look_up_all(&match->roles, roles, diagnostics) : POLICY_ANY;
	match->phases_set = match->phases.where.line ? look_up_all(&match->phases, phases, diagnostics) : POLICY_ANY;
	match->apis_set = api_set(&match->apis, diagnostics);
	match->devices_set = device_set(&match->devices);
	/* each is looked up, so that all complaints are made */
	object->has_unknown = object->resident.is_unreadable;
	object->has_unknown = !resident_known(&object->resident, phases, diagnostics) || object->has_unknown;
	object->has_unknown = !all_known(&object->producer, phases, diagnostics) || object->has_unknown;
	object->has_unknown = !all_known(&object->consumer, phases, diagnostics) || object->has_unknown;
}

/* Names of objects are unique, so that share groups, traces and people can name one. Sorted, for policies are long. */
static int by_name(const void *a, const void *b)
{
	const struct object_tree *const *x = a, *const *y = b;
	int order = strcmp((*x)->name.text, (*y)->name.text);

	return order ? order : *x < *y ? -1 : *x > *y;
}

static void check_unique(struct policy_tree *tree, struct diagnostics *diagnostics)
{
	const struct object_tree **sorted = arena_new(tree->arena, tree->objects_count, sizeof(*sorted));
	size_t count = 0;

	if (!sorted)
		return;
	for (size_t i = 0; i < tree->objects_count; i++)
		if (tree->objects[i].kind == POLICY_RULE_OBJECT && strcmp(tree->objects[i].name.text, "?") != 0)
			sorted[count++] = &tree->objects[i];
	qsort(sorted, count, sizeof(*sorted), by_name);
	for (size_t i = 1; i < count; i++) {
		if (strcmp(sorted[i - 1]->name.text, sorted[i]->name.text) != 0)
			continue;
		complain(diagnostics, MESSAGE_DUPLICATE_NAME, sorted[i]->name.where,
			"object '%s' is defined twice; give it a name of its own, or one match with lists",
			sorted[i]->name.text);
		remark(diagnostics, sorted[i - 1]->name.where, "the first is here");
	}
	for (size_t i = 0; i < tree->groups_count; i++) {
		for (size_t k = 0; k < i; k++) {
			if (strcmp(tree->groups[k].name.text, tree->groups[i].name.text) != 0)
				continue;
			complain(diagnostics, MESSAGE_DUPLICATE_NAME, tree->groups[i].name.where,
				"share group '%s' is defined twice; give it a name of its own",
				tree->groups[i].name.text);
			remark(diagnostics, tree->groups[k].name.where, "the first is here");
			break;
		}
	}
}

void check_names(struct policy_tree *tree, struct diagnostics *diagnostics)
{
	struct names roles = {
		.what = "role", .missing = "this policy has no 'roles'; define them, or leave the name out"};
	struct names phases = {
		.what = "phase", .missing = "this policy has no 'phases'; define them, or leave the name out"};
	struct names objects = {.what = "object", .missing = "this policy has no 'objects' to share"};

	roles.words = arena_new(tree->arena, tree->roles_count + 1, sizeof(*roles.words));
	phases.words = arena_new(tree->arena, tree->phases_count + 1, sizeof(*phases.words));
	objects.words = arena_new(tree->arena, tree->objects_count + 1, sizeof(*objects.words));
	if (!roles.words || !phases.words || !objects.words)
		return;
	for (; roles.count < tree->roles_count; roles.count++)
		roles.words[roles.count] = tree->roles[roles.count].name.text;
	for (; phases.count < tree->phases_count; phases.count++)
		phases.words[phases.count] = tree->phases[phases.count].name.text;
	/* numbered as the rules; what has no name of its own cannot be meant */
	for (; objects.count < tree->objects_count; objects.count++) {
		const struct object_tree *object = &tree->objects[objects.count];

		objects.words[objects.count] = object->kind == POLICY_RULE_OBJECT ? object->name.text : "";
	}
	for (size_t i = 0; i < tree->phases_count; i++)
		check_phase(&tree->phases[i], &roles, diagnostics);
	for (size_t i = 0; i < tree->triggers_count; i++) {
		struct trigger_tree *trigger = &tree->triggers[i];

		look_up_all(&trigger->enter, &phases, diagnostics);
		trigger->roles_set =
			trigger->roles.where.line ? look_up_all(&trigger->roles, &roles, diagnostics) : POLICY_ANY;
	}
	for (size_t i = 0; i < tree->objects_count; i++)
		check_object_names(&tree->objects[i], &roles, &phases, diagnostics);
	for (size_t i = 0; i < tree->groups_count; i++) {
		struct group_tree *group = &tree->groups[i];

		for (size_t k = 0; k < group->objects.count; k++)
			look_up(&group->objects.list[k], &objects, diagnostics);
		look_up_all(&group->owner, &roles, diagnostics);
		group->writers_set = look_up_all(&group->writers, &phases, diagnostics);
	}
	check_unique(tree, diagnostics);
}
