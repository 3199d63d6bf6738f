/* policy/source/read.c
 * The head of a policy: settings, roles, phases, triggers. Objects are in read_objects.c. */
#include "policy/source/read.h"

#include <string.h>

#include "policy/source/read_priv.h"

enum {
	TRIGGERS_MAX = 1024,
	KEYS_MAX = 256, /* keys are compared with each other */
};

/* `name` and `name: {...}` are easily mixed up in a list of phases or roles. */
static void complain_unknown_key(struct reader *reader, const struct node *value, enum policy_place place)
{
	const char *words[POLICY_PLACE_KEYS_MAX + 1];
	const char *given = value->key->text;

	complain(reader->diagnostics, MESSAGE_UNKNOWN_KEY, value->key->where, "%s has no key '%.60s'",
		place_spoken(place), given);
	key_words(place, words);
	if (strcmp(given, "<<") == 0)
		remark(reader->diagnostics, NOWHERE,
			"merge keys are not part of the policy language; write the keys themselves");
	else if ((place == PHASE || place == OBJECT || place == SHARE_GROUP) && value->kind == NODE_MAP)
		remark(reader->diagnostics, NOWHERE, "write 'name: %.60s' and the other keys beside it", given);
	else
		suggest(reader->diagnostics, given, words);
}

bool read_place(
	struct reader *reader, const struct node *node, const char *key, enum policy_place place, enum policy_type type)
{
	if (node->kind != NODE_MAP)
		return complain_type(reader, node, key, type);
	if (node->count > KEYS_MAX) {
		complain(reader->diagnostics, MESSAGE_TOO_LARGE, node->where,
			"%zu keys in one mapping; at most %d are taken", node->count, KEYS_MAX);
		return false;
	}
	for (const struct node *value = node->first; value; value = value->next) {
		bool is_known = false;
		const struct node *earlier = node_get(node, value->key->text);

		for (size_t i = 0; i < policy_keys_count && !is_known; i++)
			is_known =
				(policy_keys[i].places & place) && strcmp(policy_keys[i].name, value->key->text) == 0;
		if (!is_known) {
			complain_unknown_key(reader, value, place);
		} else if (earlier != value) {
			complain(reader->diagnostics, MESSAGE_DUPLICATE_KEY, value->key->where,
				"'%s' is given twice; leave one out", value->key->text);
			remark(reader->diagnostics, earlier->key->where, "the first is here");
		}
	}
	for (size_t i = 0; i < policy_keys_count; i++) {
		if (!(policy_keys[i].places & place) || !policy_keys[i].is_required ||
			node_get(node, policy_keys[i].name) ||
			node_get(node, "<<")) /* what it was meant to bring is not missed as well */
			continue;
		complain(reader->diagnostics, MESSAGE_MISSING_KEY,
			(struct where){node->where.line, node->where.column, 1},
			"%s needs '%s'; write '%s: ...' with %s", place_spoken(place), policy_keys[i].name,
			policy_keys[i].name, type_written(policy_keys[i].type));
	}
	return true;
}

/* --- roles -------------------------------------------------------------------------------------------------------- */

static struct role_tree *add_role(struct reader *reader, struct word name)
{
	struct policy_tree *tree = reader->tree;
	struct role_tree *role;

	for (size_t i = 0; i < tree->roles_count; i++) {
		if (strcmp(tree->roles[i].name.text, name.text) == 0) {
			complain(reader->diagnostics, MESSAGE_DUPLICATE_NAME, name.where,
				"role '%s' is defined twice; leave one out", name.text);
			remark(reader->diagnostics, tree->roles[i].name.where, "the first is here");
			return NULL;
		}
	}
	if (tree->roles_count == POLICY_ROLES_MAX) {
		complain(reader->diagnostics, MESSAGE_TOO_LARGE, name.where,
			"more than %d roles; one policy is one session, split it", POLICY_ROLES_MAX);
		return NULL;
	}
	if (!arena_room(reader->arena, &tree->roles, tree->roles_count, sizeof(*tree->roles)))
		return NULL;
	role = &tree->roles[tree->roles_count++];
	*role = (struct role_tree){.name = name};
	return role;
}

static void read_role(struct reader *reader, const struct node *node, struct role_tree *role)
{
	const struct node *value;

	if (node_is_null(node) || !read_place(reader, node, node->key->text, ROLE, TYPE_ROLES))
		return;
	if ((value = node_get(node, "command")))
		value_patterns(reader, value, "command", TYPE_GLOBS, &role->command);
	if ((value = node_get(node, "executable")))
		value_patterns(reader, value, "executable", TYPE_GLOBS, &role->executable);
	if ((value = node_get(node, "environment")))
		value_variables(reader, value, "environment", &role->environment);
}

void read_roles(struct reader *reader, const struct node *node)
{
	struct role_tree *role, nameless; /* one that has no usable name is read all the same, for its other errors */
	struct word name;

	if (node->kind == NODE_SCALAR) {
		complain_type(reader, node, "roles", TYPE_ROLES);
		return;
	}
	for (const struct node *child = node->first; child; child = child->next) {
		bool is_map = node->kind == NODE_MAP;

		if (!is_map && child->kind == NODE_MAP) {
			complain(reader->diagnostics, MESSAGE_TYPE, child->where,
				"in a list of roles each is a name; for roles with keys write a mapping such as "
				"{train: {command: '*train.py*'}}");
			continue;
		}
		role = value_name(reader, is_map ? child->key : child, "roles", &name) ? add_role(reader, name) : NULL;
		nameless = (struct role_tree){0};
		if (is_map)
			read_role(reader, child, role ? role : &nameless);
	}
}

void read_budget(struct reader *reader, const struct node *node)
{
	struct policy_tree *tree = reader->tree;

	if (node->kind != NODE_MAP) {
		complain_type(reader, node, "budget", TYPE_BUDGET);
		return;
	}
	for (const struct node *value = node->first; value; value = value->next) {
		const char *words[POLICY_ROLES_MAX + 1] = {NULL};
		struct amount of_nobody;
		size_t i;

		for (i = 0; i < tree->roles_count && strcmp(tree->roles[i].name.text, value->key->text) != 0; i++)
			words[i] = tree->roles[i].name.text;
		if (i == tree->roles_count) {
			complain(reader->diagnostics, MESSAGE_UNKNOWN_NAME, value->key->where, "unknown role '%.60s'",
				value->key->text);
			suggest(reader->diagnostics, value->key->text, words);
			value_amount(reader, value, "budget", TYPE_AMOUNT, &of_nobody);
		} else if (tree->roles[i].budget.where.line) {
			complain(reader->diagnostics, MESSAGE_DUPLICATE_KEY, value->key->where,
				"'%.60s' is given twice; leave one out", value->key->text);
			remark(reader->diagnostics, tree->roles[i].budget.where, "the first is here");
		} else {
			value_amount(reader, value, "budget", TYPE_AMOUNT, &tree->roles[i].budget);
		}
	}
}

/* --- phases ------------------------------------------------------------------------------------------------------- */

static struct phase_tree *add_phase(struct reader *reader, struct word name)
{
	struct policy_tree *tree = reader->tree;
	struct phase_tree *phase;

	for (size_t i = 0; i < tree->phases_count; i++) {
		if (strcmp(tree->phases[i].name.text, name.text) == 0) {
			complain(reader->diagnostics, MESSAGE_DUPLICATE_NAME, name.where,
				"phase '%s' is defined twice; a phase stands once in the cycle, give this one a name of its own",
				name.text);
			remark(reader->diagnostics, tree->phases[i].name.where, "the first is here");
			return NULL;
		}
	}
	if (tree->phases_count == POLICY_PHASES_MAX) {
		complain(reader->diagnostics, MESSAGE_TOO_LARGE, name.where,
			"more than %d phases; put steps that want the same residency into one phase",
			POLICY_PHASES_MAX);
		return NULL;
	}
	if (!arena_room(reader->arena, &tree->phases, tree->phases_count, sizeof(*tree->phases)))
		return NULL;
	phase = &tree->phases[tree->phases_count++];
	*phase = (struct phase_tree){.name = name};
	return phase;
}

/* An empty list says something here: nobody. Left out, `roles` is nearly everybody. */
static void read_phase_roles(
	struct reader *reader, const struct node *node, const char *key, struct references *references)
{
	if (node->kind == NODE_LIST && !node->count)
		references->where = node->where;
	else
		value_references(reader, node, key, TYPE_ROLE_REFS, references);
}

void read_phases(struct reader *reader, const struct node *node)
{
	const struct node *value;
	struct phase_tree *phase, nameless;
	struct word name;

	if (node->kind != NODE_LIST) {
		complain_type(reader, node, "phases", TYPE_PHASES);
		return;
	}
	for (const struct node *child = node->first; child; child = child->next) {
		const struct node *name_node = child;

		if (child->kind != NODE_SCALAR) {
			if (!read_place(reader, child, "phases", PHASE, TYPE_PHASES))
				continue;
			name_node = node_get(child, "name");
		}
		/* what has no usable name is read all the same, for its other errors */
		nameless = (struct phase_tree){0};
		if (!name_node || !value_name(reader, name_node, "name", &name) || !(phase = add_phase(reader, name)))
			phase = &nameless;
		if ((value = node_get(child, "roles")))
			read_phase_roles(reader, value, "roles", &phase->roles);
		if ((value = node_get(child, "idle")))
			read_phase_roles(reader, value, "idle", &phase->idle);
	}
}

/* --- triggers ----------------------------------------------------------------------------------------------------- */

static void read_trigger(struct reader *reader, const struct node *node, struct trigger_tree *trigger)
{
	const struct node *value;
	int sources = 0;

	trigger->where = node->where;
	if ((value = node_get(node, "enter")))
		value_reference(reader, value, "enter", TYPE_PHASE_REF, &trigger->enter);
	if ((value = node_get(node, "role")))
		value_references(reader, value, "role", TYPE_ROLE_REFS, &trigger->roles);
	if ((value = node_get(node, "nvtx_push")) && ++sources)
		value_patterns(reader, value, "nvtx_push", TYPE_GLOBS, &trigger->nvtx_push);
	if ((value = node_get(node, "nvtx_pop")) && ++sources)
		value_patterns(reader, value, "nvtx_pop", TYPE_GLOBS, &trigger->nvtx_pop);
	if ((value = node_get(node, "kernel")) && ++sources)
		value_patterns(reader, value, "kernel", TYPE_GLOBS, &trigger->kernel);
	if ((value = node_get(node, "environment")) && ++sources)
		value_variables(reader, value, "environment", &trigger->environment);
	if ((value = node_get(node, "command")) && ++sources) {
		if (value_flag(reader, value, "command", &trigger->command) && !trigger->command.value)
			complain(reader->diagnostics, MESSAGE_TRIGGER_SOURCE, value->where,
				"'command: false' is no event; leave the trigger out");
	}
	if (sources != 1)
		complain(reader->diagnostics, MESSAGE_TRIGGER_SOURCE, node->where,
			"a trigger needs one event, this one has %s; write one of nvtx_push, nvtx_pop, kernel, environment or 'command: true'%s",
			sources ? "several" : "none", sources ? ", and a trigger for each" : "");
}

void read_triggers(struct reader *reader, const struct node *node)
{
	struct policy_tree *tree = reader->tree;

	if (node->kind != NODE_LIST) {
		complain_type(reader, node, "triggers", TYPE_TRIGGERS);
		return;
	}
	for (const struct node *child = node->first; child; child = child->next) {
		if (!read_place(reader, child, "triggers", TRIGGER, TYPE_TRIGGERS))
			continue;
		if (tree->triggers_count == TRIGGERS_MAX) {
			complain(reader->diagnostics, MESSAGE_TOO_LARGE, child->where,
				"more than %d triggers; use patterns", TRIGGERS_MAX);
			return;
		}
		if (!arena_room(reader->arena, &tree->triggers, tree->triggers_count, sizeof(*tree->triggers)))
			return;
		tree->triggers[tree->triggers_count] = (struct trigger_tree){0};
		read_trigger(reader, child, &tree->triggers[tree->triggers_count++]);
	}
}

/* --- the whole ---------------------------------------------------------------------------------------------------- */

static void read_barrier(struct reader *reader, const struct node *node)
{
	const struct node *value;
	uint32_t number;

	if (!read_place(reader, node, "barrier", BARRIER, TYPE_BARRIER))
		return;
	if ((value = node_get(node, "quorum"))) {
		/* what looks like a number is one, or a wrong one; not a word */
		if (value->kind == NODE_SCALAR && value->text[0] && strchr("-+.0123456789", value->text[0])) {
			if (value_count(reader, value, "quorum", TYPE_QUORUM, &reader->tree->quorum_clients))
				reader->tree->quorum = POLICY_QUORUM_NUMBER;
		} else if (value_word(reader, value, "quorum", quorum_words, TYPE_QUORUM, &number)) {
			reader->tree->quorum = (enum policy_quorum)number;
		}
	}
	if ((value = node_get(node, "timeout")))
		value_duration(reader, value, "timeout", &reader->tree->timeout_ns);
}

static void read_version(struct reader *reader, const struct node *value)
{
	uint64_t version;

	if (value->kind != NODE_SCALAR || value->is_quoted || !number_parse(value->text, &version))
		complain_type(reader, value, "version", TYPE_VERSION);
	else if (version != 1)
		complain(reader->diagnostics, MESSAGE_VERSION, value->where,
			"version %.20s is not known here; write 'version: 1', or use a newer sublet", value->text);
}

static void read_settings(struct reader *reader, const struct node *root)
{
	static const struct {
		const char *key;
		enum policy_type type;
		size_t offset;
	} amounts[] = {
		{"capacity", TYPE_AMOUNT, offsetof(struct policy_tree, capacity)},
		{"reserve", TYPE_AMOUNT, offsetof(struct policy_tree, reserve)},
		{"host_pool", TYPE_AMOUNT, offsetof(struct policy_tree, host_pool)},
		{"min_size", TYPE_BYTES, offsetof(struct policy_tree, min_size)},
	};
	struct policy_tree *tree = reader->tree;
	const struct node *value;
	uint32_t number;

	if ((value = node_get(root, "version")))
		read_version(reader, value);
	if ((value = node_get(root, "session")))
		value_name(reader, value, "session", &tree->session);
	for (size_t i = 0; i < sizeof(amounts) / sizeof(amounts[0]); i++)
		if ((value = node_get(root, amounts[i].key)))
			value_amount(reader, value, amounts[i].key, amounts[i].type,
				(struct amount *)(void *)((char *)tree + amounts[i].offset));
	if ((value = node_get(root, "devices")))
		value_count(reader, value, "devices", TYPE_COUNT, &tree->devices);
	if ((value = node_get(root, "free")) && value_word(reader, value, "free", free_words, TYPE_FREE, &number))
		tree->free = (enum policy_free)number;
	if ((value = node_get(root, "manage_async")))
		value_flag(reader, value, "manage_async", &tree->manage_async);
}

void tree_read(struct policy_tree *tree, const struct node *root, struct diagnostics *diagnostics)
{
	static const struct {
		const char *key;
		void (*read)(struct reader *reader, const struct node *node);
	} parts[] = {
		/* pinned, objects, defaults: the order of the rules. budget: after the roles it names */
		{"roles", read_roles},
		{"phases", read_phases},
		{"triggers", read_triggers},
		{"budget", read_budget},
		{"barrier", read_barrier},
		{"pinned", read_pinned},
		{"objects", read_objects},
		{"share", read_share},
	};
	struct reader reader = {tree, diagnostics, diagnostics->arena};
	const struct node *value;

	*tree = (struct policy_tree){.arena = diagnostics->arena,
		.min_size.value.bytes = 1 << 20,
		.timeout_ns = 60000000000,
		.quorum = POLICY_QUORUM_ROLE};
	if (root->kind != NODE_MAP) {
		complain(diagnostics, MESSAGE_TYPE, root->where, "a policy is a mapping; start with 'version: 1'");
		return;
	}
	if (!read_place(&reader, root, "policy", TOP, TYPE_VERSION))
		return;
	read_settings(&reader, root);
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		value = node_get(root, parts[i].key);
		if (value && node_is_null(value))
			complain(diagnostics, MESSAGE_TYPE, value->key->where,
				"'%s' is empty; write its values below, or leave the key out", parts[i].key);
		else if (value)
			parts[i].read(&reader, value);
	}
	value = node_get(root, "defaults");
	read_defaults(&reader, value);
}
