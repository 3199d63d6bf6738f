/* policy/source/values_list.c
 * Values that may be one or a list of several: a single scalar is a list of one. */
#include <string.h>

#include "base/size.h"
#include "policy/source/values.h"

enum { LIST_MAX = 1024 }; /* names are compared with each other */

/* Calls @element for the scalar @node or for each scalar in the list @node. */
static bool each_scalar(struct reader *reader, const struct node *node, const char *key, enum policy_type type,
	bool (*element)(struct reader *, const struct node *, const char *, enum policy_type, void *), void *arg)
{
	bool good = true;

	if (node->kind == NODE_MAP || node_is_null(node) || node->is_refused)
		return complain_type(reader, node, key, type);
	if (node->kind == NODE_SCALAR)
		return element(reader, node, key, type, arg);
	if (!node->count) {
		complain(reader->diagnostics, MESSAGE_TYPE, node->where,
			"'%s' is an empty list; write %s, or leave the key out", key, type_written(type));
		return false;
	}
	if (node->count > LIST_MAX) {
		complain(reader->diagnostics, MESSAGE_TOO_LARGE, node->where,
			"'%s' lists %zu values; at most %d are taken", key, node->count, LIST_MAX);
		return false;
	}
	for (const struct node *child = node->first; child; child = child->next) {
		if (child->kind != NODE_SCALAR || node_is_null(child) || child->is_refused)
			good = complain_type(reader, child, key, type);
		else
			good &= element(reader, child, key, type, arg);
	}
	return good;
}

static bool add_reference(
	struct reader *reader, const struct node *node, const char *key, enum policy_type type, void *arg)
{
	struct references *references = arg;

	(void)key;
	(void)type;
	for (size_t i = 0; i < references->count; i++) {
		if (strcmp(references->list[i].text, node->text) == 0) {
			complain(reader->diagnostics, MESSAGE_WITHOUT_EFFECT, node->where,
				"'%.60s' stands in this list twice; leave one out", node->text);
			return true;
		}
	}
	if (!arena_room(reader->arena, &references->list, references->count, sizeof(*references->list)))
		return false;
	references->list[references->count++] = (struct reference){node->text, node->where, POLICY_NONE};
	return true;
}

bool value_references(struct reader *reader, const struct node *node, const char *key, enum policy_type type,
	struct references *ret_references)
{
	ret_references->where = node->where;
	return each_scalar(reader, node, key, type, add_reference, ret_references);
}

bool value_reference(struct reader *reader, const struct node *node, const char *key, enum policy_type type,
	struct references *ret_reference)
{
	if (node->kind != NODE_SCALAR)
		return complain_type(reader, node, key, type);
	return value_references(reader, node, key, type, ret_reference);
}

static bool add_pattern(
	struct reader *reader, const struct node *node, const char *key, enum policy_type type, void *arg)
{
	struct patterns *patterns = arg;

	if (!node->text[0]) {
		complain(reader->diagnostics, MESSAGE_VALUE, node->where, "'%s' is an empty text; write %s", key,
			type_written(type));
		return false;
	}
	if (!arena_room(reader->arena, &patterns->list, patterns->count, sizeof(*patterns->list)))
		return false;
	patterns->list[patterns->count++] = (struct word){node->text, node->where};
	return true;
}

bool value_patterns(struct reader *reader, const struct node *node, const char *key, enum policy_type type,
	struct patterns *ret_patterns)
{
	ret_patterns->where = node->where;
	return each_scalar(reader, node, key, type, add_pattern, ret_patterns);
}

/* --- ranges ------------------------------------------------------------------------------------------------------- */

static bool bound_parse(const char *text, size_t length, enum policy_type type, uint64_t *ret_number)
{
	char one[48];

	while (length && *text == ' ') {
		text++;
		length--;
	}
	while (length && text[length - 1] == ' ')
		length--;
	if (length >= sizeof(one))
		return false;
	memcpy(one, text, length);
	one[length] = '\0';
	return type == TYPE_SIZE_RANGES ? size_parse(one, ret_number) : number_parse(one, ret_number);
}

bool range_parse(const char *text, enum policy_type type, struct policy_range *ret_range)
{
	struct policy_range range = {0, UINT64_MAX};
	const char *dots = strstr(text, "..");
	size_t length = strlen(text);
	uint64_t number;

	if (dots) {
		if (!bound_parse(text, (size_t)(dots - text), type, &range.low) ||
			!bound_parse(dots + 2, strlen(dots + 2), type, &range.high))
			return false;
	} else if (text[0] == '>' || text[0] == '<') {
		size_t sign = text[1] == '=' ? 2 : 1;

		if (!bound_parse(text + sign, length - sign, type, &number))
			return false;
		if (sign == 1 && number == (text[0] == '>' ? UINT64_MAX : 0))
			return false; /* nothing lies beyond */
		if (text[0] == '>')
			range.low = number + (sign == 1);
		else
			range.high = number - (sign == 1);
	} else {
		if (!bound_parse(text, length, type, &number))
			return false;
		range.low = range.high = number;
	}
	*ret_range = range;
	return true;
}

static bool add_range(struct reader *reader, const struct node *node, const char *key, enum policy_type type, void *arg)
{
	struct ranges *ranges = arg;
	struct policy_range range;
	const char *dash = strchr(node->text, '-'); /* in front it is a sign */

	if (!range_parse(node->text, type, &range)) {
		complain(reader->diagnostics, MESSAGE_VALUE, node->where, "cannot read '%.60s' as '%s'; write %s",
			node->text, key, type_written(type));
		if (dash > node->text)
			remark(reader->diagnostics, NOWHERE, "did you mean '%.*s..%.40s'?", (int)(dash - node->text),
				node->text, dash + 1);
		return false;
	}
	if (range.low > range.high) {
		complain(reader->diagnostics, MESSAGE_VALUE, node->where,
			"'%.60s' holds nothing; write the smaller end first", node->text);
		return false;
	}
	if (type == TYPE_COUNT_RANGES && !range.high) {
		complain(reader->diagnostics, MESSAGE_VALUE, node->where,
			"'%.60s' matches nothing, the first allocation is number 1; write a number from 1", node->text);
		return false;
	}
	if (type == TYPE_DEVICE_RANGES && range.low >= POLICY_DEVICES_MAX) {
		complain(reader->diagnostics, MESSAGE_VALUE, node->where, "'%.60s' is no device; there are 0 to %d",
			node->text, POLICY_DEVICES_MAX - 1);
		return false;
	}
	if (!arena_room(reader->arena, &ranges->list, ranges->count, sizeof(*ranges->list)))
		return false;
	ranges->list[ranges->count++] = range;
	return true;
}

bool value_ranges(struct reader *reader, const struct node *node, const char *key, enum policy_type type,
	struct ranges *ret_ranges)
{
	ret_ranges->where = node->where;
	return each_scalar(reader, node, key, type, add_range, ret_ranges);
}

bool value_variables(struct reader *reader, const struct node *node, const char *key, struct variables *ret_variables)
{
	bool good = true;

	if (node->kind != NODE_MAP || !node->count)
		return complain_type(reader, node, key, TYPE_ENVIRONMENT);
	ret_variables->where = node->where;
	for (const struct node *value = node->first; value; value = value->next) {
		const struct node *earlier = node_get(node, value->key->text);

		if (earlier != value) {
			complain(reader->diagnostics, MESSAGE_DUPLICATE_KEY, value->key->where,
				"'%.60s' is given twice; leave one out, or write a list of patterns", value->key->text);
			remark(reader->diagnostics, earlier->key->where, "the first is here");
			good = false;
			continue;
		}
		if (!arena_room(
			    reader->arena, &ret_variables->list, ret_variables->count, sizeof(*ret_variables->list)))
			return false;
		if (!value->key->text[0] || strchr(value->key->text, '=')) {
			complain(reader->diagnostics, MESSAGE_VALUE, value->key->where,
				"'%.60s' is no name of an environment variable; "
				"write a mapping such as {NAME: 'pattern'}",
				value->key->text);
			good = false;
			continue;
		}
		ret_variables->list[ret_variables->count].name = (struct word){value->key->text, value->key->where};
		good &= value_patterns(reader, value, value->key->text, TYPE_GLOBS,
			&ret_variables->list[ret_variables->count].patterns);
		ret_variables->count++;
	}
	return good;
}
