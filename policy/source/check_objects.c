/* policy/source/check_objects.c
 * From `class`, `resident` and `otherwise` to a want for each phase, and what of it cannot be had. */
#include "policy/decide.h"
#include "policy/source/check_priv.h"

static struct policy_wanted otherwise_wanted(const struct object_tree *object)
{
	if (!object->otherwise_where.line)
		return (struct policy_wanted){POLICY_WANT_PARKED, POLICY_WHY_UNSAID};
	switch (object->otherwise) {
	case POLICY_OTHERWISE_KEEP:
		return (struct policy_wanted){POLICY_WANT_KEEP, POLICY_WHY_OTHERWISE};
	case POLICY_OTHERWISE_OFFLOAD:
		return (struct policy_wanted){POLICY_WANT_HOST, POLICY_WHY_OTHERWISE};
	case POLICY_OTHERWISE_DEMAND:
		return (struct policy_wanted){POLICY_WANT_DEMAND, POLICY_WHY_OTHERWISE};
	case POLICY_OTHERWISE_DISCARD:
		if (object->exclusive.value)
			return (struct policy_wanted){POLICY_WANT_EMPTY, POLICY_WHY_OTHERWISE};
		return (struct policy_wanted){POLICY_WANT_HOST, POLICY_WHY_NOT_EXCLUSIVE};
	case POLICY_OTHERWISE_PARK:
	case POLICY_OTHERWISE_COUNT:
		break;
	}
	return (struct policy_wanted){POLICY_WANT_PARKED, POLICY_WHY_OTHERWISE};
}

static uint32_t only(const struct references *references)
{
	return references->count ? references->list[0].number : POLICY_NONE;
}

static bool is_between(uint32_t phase, uint32_t producer, uint32_t consumer)
{
	if (producer == POLICY_NONE || consumer == POLICY_NONE)
		return false;
	/* the phases are a cycle */
	if (producer <= consumer)
		return producer <= phase && phase <= consumer;
	return phase >= producer || phase <= consumer;
}

static bool listed_want(const struct resident_tree *resident, uint32_t phase, uint8_t *ret_want)
{
	for (size_t i = 0; resident->wants && i < resident->phases.count; i++) {
		if (resident->phases.list[i].number == phase) {
			*ret_want = resident->wants[i];
			return true;
		}
	}
	return false;
}

static struct policy_wanted wanted_in(const struct object_tree *object, uint32_t phase)
{
	struct policy_wanted wanted = {POLICY_WANT_DEVICE, POLICY_WHY_RESIDENT};

	if (object->kind == POLICY_RULE_PINNED)
		return (struct policy_wanted){POLICY_WANT_KEEP, POLICY_WHY_PINNED};
	if (object->kind == POLICY_RULE_DEFAULT && !object->name.where.line)
		return (struct policy_wanted){POLICY_WANT_DEVICE, POLICY_WHY_DEFAULT};
	if (object->class == POLICY_CLASS_BOUNDARY) {
		if (is_between(phase, only(&object->producer), only(&object->consumer)))
			return (struct policy_wanted){POLICY_WANT_DEVICE, POLICY_WHY_BOUNDARY};
		return otherwise_wanted(object);
	}
	switch (object->resident.form) {
	case RESIDENT_ALL:
		return wanted;
	case RESIDENT_DEMAND:
		wanted.want = POLICY_WANT_DEMAND;
		return wanted;
	case RESIDENT_PHASES:
		if (listed_want(&object->resident, phase, &wanted.want))
			return wanted;
		break;
	case RESIDENT_NONE:
		break;
	}
	return otherwise_wanted(object);
}

/* Before the first phase, and where there are none, nothing moves but what always comes on demand. */
static struct policy_wanted wanted_without_phase(const struct object_tree *object)
{
	struct policy_wanted wanted = {POLICY_WANT_KEEP, POLICY_WHY_RESIDENT};

	if (object->kind == POLICY_RULE_PINNED)
		wanted.why = POLICY_WHY_PINNED;
	else if (object->kind == POLICY_RULE_DEFAULT && !object->name.where.line)
		wanted.why = POLICY_WHY_DEFAULT;
	else if (object->class != POLICY_CLASS_BOUNDARY && object->resident.form == RESIDENT_DEMAND)
		wanted.want = POLICY_WANT_DEMAND;
	return wanted;
}

static bool wants(const struct policy_tree *tree, const struct object_tree *object, enum policy_want want)
{
	/* where there are no phases, the row for "no phase" is the only one */
	size_t rows = tree->phases_count ? tree->phases_count : 1;

	for (size_t i = 0; i < rows; i++)
		if (object->wants[i].want == want)
			return true;
	return false;
}

/* --- class -------------------------------------------------------------------------------------------------------- */

static struct where key_where(const struct object_tree *object)
{
	return object->otherwise_where.line ? object->otherwise_where : object->name.where;
}

static void check_discard(const struct object_tree *object, struct diagnostics *diagnostics)
{
	bool is_discard = object->otherwise_where.line && object->otherwise == POLICY_OTHERWISE_DISCARD;

	if (!is_discard) {
		if (object->exclusive.value)
			complain(diagnostics, MESSAGE_WITHOUT_EFFECT, object->exclusive.where,
				"'exclusive' only matters with 'otherwise: discard'; leave it out");
		return;
	}
	if (object->kind == POLICY_RULE_DEFAULT) {
		complain(diagnostics, MESSAGE_DISCARD_PERMANENT, object->otherwise_where,
			"'defaults' takes allocations that nobody has described, and 'discard' could lose bytes that exist nowhere else; write 'offload' or 'park' here, and an object for what may be discarded");
		return;
	}
	if (object->class == POLICY_CLASS_PERMANENT) {
		complain(diagnostics, MESSAGE_DISCARD_PERMANENT, object->otherwise_where,
			"'%s' is permanent, its bytes exist nowhere else and 'discard' would lose them; write 'offload' or 'park', or "
			"'class: regenerable' if the program writes them anew",
			object->name.text);
		return;
	}
	if (!object->exclusive.value) {
		complain(diagnostics, MESSAGE_DISCARD_NOT_EXCLUSIVE, object->otherwise_where,
			"'discard' without 'exclusive: true' offloads: a caching allocator may have put something else into the "
			"memory of '%s'",
			object->name.text);
		remark(diagnostics, NOWHERE,
			"write 'exclusive: true' if these allocations never hold anything else, or 'offload' to say what happens");
	}
}

static void complain_producer(const struct object_tree *object, struct diagnostics *diagnostics)
{
	bool has_producer = object->producer.where.line, has_consumer = object->consumer.where.line;

	if (!has_producer && !has_consumer)
		complain(diagnostics, MESSAGE_CLASS_KEYS, object->class_where,
			"boundary object '%s' needs 'producer' and 'consumer'; write the phase that writes it and the phase that reads it last",
			object->name.text);
	else if (!has_producer || !has_consumer)
		complain(diagnostics, MESSAGE_CLASS_KEYS, object->class_where,
			"boundary object '%s' needs '%s' too; write the phase that %s", object->name.text,
			has_producer ? "consumer" : "producer", has_producer ? "reads it last" : "writes it");
}

/* Complains about keys that do not go with the class. */
static void check_class(const struct object_tree *object, struct diagnostics *diagnostics)
{
	const char *name = object->name.text, *class = policy_class_text(object->class);
	bool is_gone_outside = object->class == POLICY_CLASS_PHASE_LOCAL || object->class == POLICY_CLASS_BOUNDARY;

	if (object->class == POLICY_CLASS_BOUNDARY) {
		complain_producer(object, diagnostics);
		if (object->resident.where.line)
			complain(diagnostics, MESSAGE_CLASS_KEYS, object->resident.where,
				"a boundary object is resident from 'producer' to the end of 'consumer'; write these two instead of 'resident'");
	} else if (object->producer.where.line || object->consumer.where.line) {
		complain(diagnostics, MESSAGE_CLASS_KEYS,
			object->producer.where.line ? object->producer.where : object->consumer.where,
			"'producer' and 'consumer' belong to 'class: boundary', '%s' is %s; write 'resident: [...]'",
			name, class);
	}
	if (object->class == POLICY_CLASS_PHASE_LOCAL && object->resident.form != RESIDENT_PHASES)
		complain(diagnostics, MESSAGE_CLASS_KEYS,
			object->resident.where.line ? object->resident.where : object->class_where,
			"phase-local object '%s' needs the phases it is of use in; write 'resident: [PHASE, ...]'",
			name);
	if (is_gone_outside && object->otherwise_where.line &&
		(object->otherwise == POLICY_OTHERWISE_KEEP || object->otherwise == POLICY_OTHERWISE_DEMAND))
		complain(diagnostics, MESSAGE_CLASS_KEYS, object->otherwise_where,
			"a %s object leaves the device outside its phases; write discard, offload or park", class);
}

static void check_window(
	const struct policy_tree *tree, const struct object_tree *object, struct diagnostics *diagnostics)
{
	bool on_demand = wants(tree, object, POLICY_WANT_DEMAND);

	if (on_demand && !object->window.where.line)
		complain(diagnostics, MESSAGE_WINDOW,
			object->resident.where.line && object->otherwise != POLICY_OTHERWISE_DEMAND
				? object->resident.where
				: key_where(object),
			"'%s' comes on demand and needs room on the device; write 'window: 4GiB' or another size",
			object->name.text);
	if (!on_demand && object->window.where.line)
		complain(diagnostics, MESSAGE_WINDOW, object->window.where,
			"'window' is for objects that come on demand; write 'resident: demand', or a mapping such as {update: demand}, or "
			"leave it out");
}

/* --- holes -------------------------------------------------------------------------------------------------------- */

static bool is_hole(struct policy_wanted wanted)
{
	return wanted.want == POLICY_WANT_HOST || wanted.want == POLICY_WANT_EMPTY;
}

static void check_holes(
	const struct policy_tree *tree, const struct object_tree *object, struct diagnostics *diagnostics)
{
	if (object->scannable.count)
		return; /* every touch is seen first */
	for (uint32_t phase = 0; phase < tree->phases_count; phase++) {
		struct where where = key_where(object);
		uint64_t running = running_roles(tree, object, phase);

		if (!is_hole(object->wants[phase]) || !running)
			continue;
		for (size_t i = 0; i < object->resident.phases.count; i++)
			if (object->resident.phases.list[i].number == phase)
				where = object->resident.phases.list[i].where;
		complain(diagnostics, MESSAGE_OPEN_HOLE, where,
			"in phase '%s' the pages of '%s' would be gone while %s runs, and no gate keeps its kernels out; write 'park' (mapped "
			"from host memory), make the object resident in '%s', or name the kernels that may touch it in 'scannable'",
			tree->phases[phase].name.text, object->name.text, first_role(tree, running),
			tree->phases[phase].name.text);
		if (object->match.roles_set == POLICY_ANY)
			remark(diagnostics, object->match.where,
				"%s no role, so it takes processes of all roles and of none",
				object->kind == POLICY_RULE_DEFAULT ? "'defaults' has" : "the match names");
		return; /* one is enough to find the line */
	}
}

/* --- what changes nothing, or hardly what was meant ----------------------------------------------------------------
 */

static bool every_phase_is_listed(const struct policy_tree *tree, const struct object_tree *object)
{
	for (uint32_t phase = 0; phase < tree->phases_count; phase++)
		if (object->wants[phase].why != POLICY_WHY_RESIDENT && object->wants[phase].why != POLICY_WHY_BOUNDARY)
			return false;
	return true;
}

static void check_effect(
	const struct policy_tree *tree, const struct object_tree *object, struct diagnostics *diagnostics)
{
	bool is_anywhere = wants(tree, object, POLICY_WANT_DEVICE) || wants(tree, object, POLICY_WANT_DEMAND);

	if (object->otherwise_where.line && every_phase_is_listed(tree, object))
		complain(diagnostics, MESSAGE_WITHOUT_EFFECT, object->otherwise_where,
			"'otherwise' changes nothing, '%s' has its place in all phases; leave it out, or name phases in 'resident'",
			object->name.text);
	if (object->scannable.where.line && !wants(tree, object, POLICY_WANT_HOST) &&
		!wants(tree, object, POLICY_WANT_EMPTY) && !wants(tree, object, POLICY_WANT_DEMAND))
		complain(diagnostics, MESSAGE_WITHOUT_EFFECT, object->scannable.where,
			"'scannable' changes nothing, kernels always find '%s' mapped; leave it out",
			object->name.text);
	for (size_t i = 0; i < object->resident.phases.count && !is_anywhere; i++)
		is_anywhere = object->resident.wants && object->resident.wants[i] == POLICY_WANT_PARKED;
	if (tree->phases_count && !is_anywhere && !wants(tree, object, POLICY_WANT_KEEP))
		complain(diagnostics, MESSAGE_RESIDENT_NOWHERE,
			object->resident.where.line ? object->resident.where : object->name.where,
			"'%s' is on the device in no phase; name phases in 'resident'", object->name.text);
}

static bool is_entered_by(const struct policy_tree *tree, uint32_t phase, uint64_t roles)
{
	for (size_t i = 0; i < tree->triggers_count; i++)
		if (tree->triggers[i].enter.count && tree->triggers[i].enter.list[0].number == phase &&
			!tree->triggers[i].command.value && (tree->triggers[i].roles_set & roles))
			return true;
	return false;
}

/* Discarded is only in clients that have arrived or are known to be idle; a phase that nobody enters is said elsewhere.
 */
static void check_idle(
	const struct policy_tree *tree, const struct object_tree *object, struct diagnostics *diagnostics)
{
	for (uint32_t phase = 0; phase < tree->phases_count; phase++) {
		uint64_t roles = object->match.roles_set & all_roles(tree) & ~(1ull << POLICY_NONE_BIT);

		if (object->wants[phase].want != POLICY_WANT_EMPTY)
			continue;
		for (; roles; roles &= roles - 1) {
			uint64_t one = roles & -roles;

			if ((tree->phases[phase].idle_set & one) || (tree->phases[phase].roles_set & one) ||
				is_entered_by(tree, phase, one))
				continue;
			complain(diagnostics, MESSAGE_DISCARD_NOT_IDLE, object->otherwise_where,
				"role '%s' does not trigger phase '%s' and is not idle in it, so '%s' is offloaded there instead of discarded; "
				"add 'idle: [%s]' to the phase",
				first_role(tree, one), tree->phases[phase].name.text, object->name.text,
				first_role(tree, one));
			return;
		}
	}
}

void check_objects(struct policy_tree *tree, struct diagnostics *diagnostics)
{
	for (size_t i = 0; i < tree->objects_count; i++) {
		struct object_tree *object = &tree->objects[i];
		size_t errors;

		for (uint32_t phase = 0; phase < tree->phases_count; phase++)
			object->wants[phase] = wanted_in(object, phase);
		object->wants[tree->phases_count] = wanted_without_phase(object);
		if (!object->class_where.line || object->has_unknown)
			continue; /* pinned, built in, or not readable and said so */
		errors = diagnostics->errors;
		check_class(object, diagnostics);
		check_discard(object, diagnostics);
		if (diagnostics->errors > errors)
			continue; /* then its wants are not what was meant, and say nothing more */
		check_window(tree, object, diagnostics);
		check_holes(tree, object, diagnostics);
		check_effect(tree, object, diagnostics);
		check_idle(tree, object, diagnostics);
	}
}
