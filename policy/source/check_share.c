/* policy/source/check_share.c
 * A share group has one set of pages: its members must want the same of it, and nobody may read while its owner writes.
 */
#include "policy/decide.h"
#include "policy/source/check_priv.h"

static const char *const want_texts[POLICY_WANT_COUNT] = {
	"kept", "on the device", "on demand", "parked", "on the host", "empty"};

static bool is_one_role(const struct policy_tree *tree, uint64_t set)
{
	set &= all_roles(tree);
	return set && !(set & (set - 1)) && !is_in(set, POLICY_NONE_BIT);
}

static void check_member(
	struct policy_tree *tree, uint32_t number, const struct reference *member, struct diagnostics *diagnostics)
{
	struct object_tree *object = &tree->objects[member->number];

	if (!is_one_role(tree, object->match.roles_set))
		complain(diagnostics, MESSAGE_SHARE_OBJECT, member->where,
			"'%s' may belong to several roles; write one 'role' into its match, so that it is clear who owns and who reads",
			member->text);
	if (object->group != POLICY_NONE && object->group != number) {
		complain(diagnostics, MESSAGE_SHARE_OBJECT, member->where,
			"'%s' is a member of two share groups; leave it out of one", member->text);
		remark(diagnostics, tree->groups[object->group].name.where, "the other is this one");
	}
	object->group = number;
}

/* Both known members must be treated alike. */
static void check_pair(const struct policy_tree *tree, const struct reference *first, const struct reference *other,
	struct diagnostics *diagnostics)
{
	const struct object_tree *a = &tree->objects[first->number], *b = &tree->objects[other->number];

	if (!a->class_where.line || !b->class_where.line || a->has_unknown || b->has_unknown)
		return;
	if (a->class != b->class) {
		complain(diagnostics, MESSAGE_SHARE_OBJECT, other->where,
			"'%s' is %s and '%s' is %s, but they are the same bytes; "
			"give both one class",
			a->name.text, policy_class_text(a->class), b->name.text, policy_class_text(b->class));
		return;
	}
	for (size_t phase = 0; phase < tree->phases_count; phase++) {
		if (a->wants[phase].want == b->wants[phase].want)
			continue;
		complain(diagnostics, MESSAGE_SHARE_RESIDENCY, other->where,
			"in phase '%s' '%s' is %s and '%s' %s, but a share group has one set of pages; give both the same 'resident' and "
			"'otherwise'",
			tree->phases[phase].name.text, a->name.text, want_texts[a->wants[phase].want], b->name.text,
			want_texts[b->wants[phase].want]);
		return;
	}
}

/* Who is held writes nothing. Where a reader runs instead, that is the fault, and said by check_readers. */
static void check_writers(const struct policy_tree *tree, const struct group_tree *group, uint64_t members,
	struct diagnostics *diagnostics)
{
	for (size_t i = 0; i < group->writers.count; i++) {
		const struct reference *writer = &group->writers.list[i];

		if (writer->number == POLICY_NONE || (tree->phases[writer->number].roles_set & members))
			continue;
		complain(diagnostics, MESSAGE_SHARE_OWNER, writer->where,
			"'%s' owns '%s' and does not run in phase '%s', so it writes nothing there; add it to the 'roles' of '%s', or name "
			"the phase in which it writes",
			group->owner.list[0].text, group->name.text, writer->text, writer->text);
	}
}

static void check_readers(const struct policy_tree *tree, const struct group_tree *group, uint64_t readers,
	struct diagnostics *diagnostics)
{
	for (size_t i = 0; i < group->writers.count; i++) {
		const struct reference *writer = &group->writers.list[i];
		uint64_t active;

		if (writer->number == POLICY_NONE)
			continue;
		active = tree->phases[writer->number].roles_set & readers;
		if (!active)
			continue;
		complain(diagnostics, MESSAGE_SHARE_READER_IN_WRITER_PHASE, writer->where,
			"role '%s' reads '%s' and runs in phase '%s', in which '%s' writes it: weights would change under its kernels; take "
			"'%s' out of the roles of '%s', or give the update a phase of its own",
			first_role(tree, active), group->name.text, writer->text, group->owner.list[0].text,
			first_role(tree, active), writer->text);
	}
}

void check_share(struct policy_tree *tree, struct diagnostics *diagnostics)
{
	for (uint32_t i = 0; i < tree->groups_count; i++) {
		struct group_tree *group = &tree->groups[i];
		const struct reference *first = NULL;
		uint64_t members = 0, owner;
		bool has_unknown = false;

		if (group->objects.count == 1)
			complain(diagnostics, MESSAGE_SHARE_OBJECT, group->objects.where,
				"share group '%s' has one object; name the objects of at least two roles",
				group->name.text);
		for (size_t k = 0; k < group->objects.count; k++) {
			const struct reference *member = &group->objects.list[k];

			has_unknown |= member->number == POLICY_NONE;
			if (member->number == POLICY_NONE)
				continue;
			check_member(tree, i, member, diagnostics);
			members |= tree->objects[member->number].match.roles_set & all_roles(tree);
			if (first)
				check_pair(tree, first, member, diagnostics);
			else
				first = member;
		}
		if (!group->owner.count || group->owner.list[0].number == POLICY_NONE)
			continue;
		owner = 1ull << group->owner.list[0].number;
		if (group->objects.count > 1 && !has_unknown && (members & all_roles(tree)) == owner)
			complain(diagnostics, MESSAGE_SHARE_OBJECT, group->objects.where,
				"the objects of share group '%s' are all of role '%s', so nobody shares with anybody; name the objects of at least two roles",
				group->name.text, first_role(tree, owner));
		if (first && !(members & owner))
			complain(diagnostics, MESSAGE_SHARE_OWNER, group->owner.where,
				"role '%s' owns share group '%s' but none of its objects; add the owner's object, or name another owner",
				group->owner.list[0].text, group->name.text);
		if (members & owner)
			check_writers(tree, group, members & ~(1ull << POLICY_NONE_BIT), diagnostics);
		check_readers(tree, group, members & ~owner & ~(1ull << POLICY_NONE_BIT), diagnostics);
	}
}
