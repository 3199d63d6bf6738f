/* policy/source/read_objects.c
 * Rules: what is pinned, the objects, the defaults; and the share groups that tie objects together. */
#include <string.h>

#include "policy/source/read_priv.h"

enum { GROUPS_MAX = 1024 };

static void read_match(struct reader *reader, const struct node *node, const char *key, struct match_tree *match)
{
	static const struct {
		const char *key;
		size_t offset;
	} texts[] = {
		{"library", offsetof(struct match_tree, library)},
		{"stack", offsetof(struct match_tree, stack)},
		{"python", offsetof(struct match_tree, python)},
		{"thread", offsetof(struct match_tree, thread)},
		{"tag", offsetof(struct match_tree, tag)},
	};
	const struct node *value;

	match->where = node->where;
	if (!read_place(reader, node, key, MATCH, TYPE_MATCH))
		return;
	if (!node->count)
		complain(reader->diagnostics, MESSAGE_TYPE, node->where,
			"'%s' is empty and would match everything; write a key such as 'role', or move the rule to 'defaults'",
			key);
	if ((value = node_get(node, "role")))
		value_references(reader, value, "role", TYPE_ROLE_REFS, &match->roles);
	if ((value = node_get(node, "phase")))
		value_references(reader, value, "phase", TYPE_PHASE_REFS, &match->phases);
	if ((value = node_get(node, "api")))
		value_patterns(reader, value, "api", TYPE_APIS, &match->apis);
	if ((value = node_get(node, "size")))
		value_ranges(reader, value, "size", TYPE_SIZE_RANGES, &match->sizes);
	if ((value = node_get(node, "order")))
		value_ranges(reader, value, "order", TYPE_COUNT_RANGES, &match->orders);
	if ((value = node_get(node, "device")))
		value_ranges(reader, value, "device", TYPE_DEVICE_RANGES, &match->devices);
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		if ((value = node_get(node, texts[i].key)))
			value_patterns(reader, value, texts[i].key, TYPE_GLOBS,
				(struct patterns *)(void *)((char *)match + texts[i].offset));
}

/* --- resident ----------------------------------------------------------------------------------------------------- */

static bool read_resident_word(const char *text, enum resident_form *ret_form)
{
	static const char *const words[] = {"all", "none", "demand"};
	static const enum resident_form forms[] = {RESIDENT_ALL, RESIDENT_NONE, RESIDENT_DEMAND};

	for (int i = 0; i < 3; i++) {
		if (strcmp(text, words[i]) == 0) {
			*ret_form = forms[i];
			return true;
		}
	}
	return false;
}

static void read_resident_map(struct reader *reader, const struct node *node, struct resident_tree *resident)
{
	static const char *const words[] = {"device", "demand", "parked", "host", NULL};
	static const uint8_t wants[] = {POLICY_WANT_DEVICE, POLICY_WANT_DEMAND, POLICY_WANT_PARKED, POLICY_WANT_HOST};
	uint32_t number;

	resident->wants = arena_new(reader->arena, node->count, 1);
	if (!resident->wants)
		return;
	for (const struct node *value = node->first; value; value = value->next) {
		const struct node *earlier = node_get(node, value->key->text);
		size_t count = resident->phases.count;

		if (earlier != value) {
			complain(reader->diagnostics, MESSAGE_DUPLICATE_KEY, value->key->where,
				"phase '%.60s' is given twice; leave one out", value->key->text);
			remark(reader->diagnostics, earlier->key->where, "the first is here");
			resident->is_unreadable = true;
			continue;
		}
		if (!value_word(reader, value, "residency", words, TYPE_RESIDENCY, &number) ||
			!value_reference(reader, value->key, "resident", TYPE_PHASE_REF, &resident->phases))
			resident->is_unreadable = true;
		else
			resident->wants[count] = wants[number];
	}
}

static void read_resident(struct reader *reader, const struct node *node, struct resident_tree *resident)
{
	resident->where = node->where;
	resident->form = RESIDENT_PHASES;
	if (node->kind == NODE_MAP && node->count) {
		if (node->count > POLICY_PHASES_MAX) {
			complain(reader->diagnostics, MESSAGE_TOO_LARGE, node->where,
				"'resident' names %zu phases; there are at most %d", node->count, POLICY_PHASES_MAX);
			resident->is_unreadable = true;
			return;
		}
		read_resident_map(reader, node, resident);
		resident->phases.where = node->where;
		return;
	}
	if (node->kind == NODE_LIST && !node->count) {
		resident->form = RESIDENT_NONE;
		return;
	}
	if (node->kind == NODE_SCALAR && read_resident_word(node->text, &resident->form))
		return;
	resident->is_alone = node->kind == NODE_SCALAR;
	if (!value_references(reader, node, "resident", TYPE_RESIDENT, &resident->phases)) {
		resident->is_unreadable = true;
		return;
	}
	resident->wants = arena_new(reader->arena, resident->phases.count, 1);
	for (size_t i = 0; resident->wants && i < resident->phases.count; i++)
		resident->wants[i] = POLICY_WANT_DEVICE;
}

/* --- objects ------------------------------------------------------------------------------------------------------ */

static struct object_tree *add_object(struct reader *reader, enum policy_rule_kind kind, struct word name)
{
	struct policy_tree *tree = reader->tree;
	struct object_tree *object;

	/* one place is kept for the default */
	if (tree->objects_count == POLICY_RULES_MAX - 1 && kind != POLICY_RULE_DEFAULT) {
		complain(reader->diagnostics, MESSAGE_TOO_LARGE, name.where,
			"more than %d rules; use lists and patterns", POLICY_RULES_MAX - 1);
		return NULL;
	}
	if (!arena_room(reader->arena, &tree->objects, tree->objects_count, sizeof(*tree->objects)))
		return NULL;
	object = &tree->objects[tree->objects_count++];
	*object = (struct object_tree){.name = name,
		.kind = kind,
		.class = POLICY_CLASS_PERMANENT,
		.prefetch.value = true,
		.group = POLICY_NONE};
	return object;
}

/* The keys that objects and defaults share. */
static void read_treatment(struct reader *reader, const struct node *node, struct object_tree *object)
{
	const struct node *value;
	uint32_t number;

	if ((value = node_get(node, "class")) && value_word(reader, value, "class", class_words, TYPE_CLASS, &number)) {
		object->class = (enum policy_class)number;
		object->class_where = value->where;
	}
	if ((value = node_get(node, "resident")))
		read_resident(reader, value, &object->resident);
	if ((value = node_get(node, "otherwise")) &&
		value_word(reader, value, "otherwise", otherwise_words, TYPE_OTHERWISE, &number)) {
		object->otherwise = (enum policy_otherwise)number;
		object->otherwise_where = value->where;
	}
	/* what is given and not readable is said once, and not missed as well */
	if ((value = node_get(node, "exclusive")) && !value_flag(reader, value, "exclusive", &object->exclusive))
		object->exclusive.value = true;
	if ((value = node_get(node, "window")) &&
		!value_amount(reader, value, "window", TYPE_BYTES, &object->window))
		object->window.where = value->where;
	if ((value = node_get(node, "scannable")))
		value_patterns(reader, value, "scannable", TYPE_GLOBS, &object->scannable);
	if ((value = node_get(node, "prefetch")))
		value_flag(reader, value, "prefetch", &object->prefetch);
	if ((value = node_get(node, "expect")))
		value_amount(reader, value, "expect", TYPE_BYTES, &object->expect);
}

void read_pinned(struct reader *reader, const struct node *node)
{
	struct object_tree *object;

	if (node->kind != NODE_LIST) {
		complain_type(reader, node, "pinned", TYPE_MATCHES);
		return;
	}
	for (const struct node *child = node->first; child; child = child->next) {
		object = add_object(reader, POLICY_RULE_PINNED, (struct word){"pinned", child->where});
		if (!object)
			return;
		read_match(reader, child, "pinned", &object->match);
	}
}

static void read_object(struct reader *reader, const struct node *node)
{
	const struct node *value;
	struct object_tree *object;
	struct word name;

	if (!read_place(reader, node, "objects", OBJECT, TYPE_OBJECTS))
		return;
	value = node_get(node, "name");
	if (!value || !value_name(reader, value, "name", &name))
		name = (struct word){"?", node->where};
	object = add_object(reader, POLICY_RULE_OBJECT, name);
	if (!object)
		return;
	if ((value = node_get(node, "match")))
		read_match(reader, value, "match", &object->match);
	if ((value = node_get(node, "producer")))
		value_reference(reader, value, "producer", TYPE_PHASE_REF, &object->producer);
	if ((value = node_get(node, "consumer")))
		value_reference(reader, value, "consumer", TYPE_PHASE_REF, &object->consumer);
	read_treatment(reader, node, object);
}

void read_objects(struct reader *reader, const struct node *node)
{
	if (node->kind != NODE_LIST) {
		complain_type(reader, node, "objects", TYPE_OBJECTS);
		if (node->kind == NODE_MAP)
			remark(reader->diagnostics, NOWHERE,
				"objects are tried in order, so they are a list: write '- name: NAME'");
		return;
	}
	for (const struct node *child = node->first; child; child = child->next)
		read_object(reader, child);
}

void read_defaults(struct reader *reader, const struct node *node)
{
	struct object_tree *object = add_object(reader, POLICY_RULE_DEFAULT, (struct word){"defaults", NOWHERE});

	if (!object || !node)
		return;
	object->name.where = node->key->where;
	if (read_place(reader, node, "defaults", DEFAULTS, TYPE_DEFAULTS))
		read_treatment(reader, node, object);
}

/* --- share -------------------------------------------------------------------------------------------------------- */

static void read_group(struct reader *reader, const struct node *node, struct group_tree *group)
{
	const struct node *value;
	uint32_t number;

	if ((value = node_get(node, "objects")))
		value_references(reader, value, "objects", TYPE_OBJECT_REFS, &group->objects);
	if ((value = node_get(node, "owner")))
		value_reference(reader, value, "owner", TYPE_ROLE_REF, &group->owner);
	if ((value = node_get(node, "writers")))
		value_references(reader, value, "writers", TYPE_PHASE_REFS, &group->writers);
	if ((value = node_get(node, "access")) &&
		value_word(reader, value, "access", access_words, TYPE_ACCESS, &number))
		group->access = (enum policy_access)number;
	if ((value = node_get(node, "trust")))
		value_flag(reader, value, "trust", &group->trust);
}

void read_share(struct reader *reader, const struct node *node)
{
	struct policy_tree *tree = reader->tree;
	const struct node *value;
	struct word name;

	if (node->kind != NODE_LIST) {
		complain_type(reader, node, "share", TYPE_SHARE);
		return;
	}
	for (const struct node *child = node->first; child; child = child->next) {
		if (!read_place(reader, child, "share", SHARE_GROUP, TYPE_SHARE))
			continue;
		value = node_get(child, "name");
		if (!value || !value_name(reader, value, "name", &name))
			name = (struct word){"?", child->where};
		if (tree->groups_count == GROUPS_MAX) {
			complain(reader->diagnostics, MESSAGE_TOO_LARGE, child->where,
				"more than %d share groups; name more objects in each", GROUPS_MAX);
			return;
		}
		if (!arena_room(reader->arena, &tree->groups, tree->groups_count, sizeof(*tree->groups)))
			return;
		tree->groups[tree->groups_count] = (struct group_tree){.name = name};
		read_group(reader, child, &tree->groups[tree->groups_count++]);
	}
}
