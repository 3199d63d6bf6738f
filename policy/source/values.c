/* policy/source/values.c
 * Scalars. Quoted or not makes no difference but for truth values and numbers, where quotes say "text". */
#include "policy/source/values.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "base/size.h"

enum { COUNT_MAX = 65536 }; /* clients or devices: more than any node has */

#define CLASS(name, word, sentence) word,
const char *const class_words[] = {
#include "policy/words.def"
	NULL};
#define OTHERWISE(name, word, sentence) word,
const char *const otherwise_words[] = {
#include "policy/words.def"
	NULL};
#define API(name, word) word,
const char *const api_words[] = {
#include "policy/words.def"
	NULL};
#define ACCESS(name, word, sentence) word,
const char *const access_words[] = {
#include "policy/words.def"
	NULL};
#define QUORUM(name, word, sentence) word,
const char *const quorum_words[] = {
#include "policy/words.def"
	NULL};
#define FREE(name, word, sentence) word,
const char *const free_words[] = {
#include "policy/words.def"
	NULL};

const char *api_without_suffix(const char *symbol)
{
	size_t length = strcspn(symbol, "_");

	for (uint32_t api = 0; symbol[length] && api < POLICY_API_COUNT; api++)
		if (strlen(api_words[api]) == length && strncmp(api_words[api], symbol, length) == 0)
			return api_words[api];
	return NULL;
}

const char *type_written(enum policy_type type)
{
	static const char *const written[POLICY_TYPE_COUNT] = {
#define TYPE(name, text, schema) text,
#include "policy/types.def"
	};

	return written[type];
}

bool complain_type(struct reader *reader, const struct node *node, const char *key, enum policy_type type)
{
	static const char *const kinds[] = {"a value", "a list", "a mapping"};

	if (node->is_refused)
		return false;
	if (node_is_null(node) && node->key)
		complain(reader->diagnostics, MESSAGE_TYPE, node->where,
			"'%s' is empty; write %s, or leave the key out", key, type_written(type));
	else if (node_is_null(node))
		complain(reader->diagnostics, MESSAGE_TYPE, node->where,
			"'%s' has an empty entry; write a value there, or leave the entry out", key);
	else if (node->kind == NODE_SCALAR)
		complain(reader->diagnostics, MESSAGE_TYPE, node->where, "'%s' cannot be '%.60s'; write %s", key,
			node->text, type_written(type));
	else
		complain(reader->diagnostics, MESSAGE_TYPE, node->where, "'%s' cannot be %s; write %s", key,
			kinds[node->kind], type_written(type));
	return false;
}

static bool complain_value(struct reader *reader, const struct node *node, const char *key, enum policy_type type)
{
	complain(reader->diagnostics, MESSAGE_VALUE, node->where, "cannot read '%.60s' as '%s'; write %s", node->text,
		key, type_written(type));
	return false;
}

static bool is_scalar(struct reader *reader, const struct node *node, const char *key, enum policy_type type)
{
	if (node->kind != NODE_SCALAR || node_is_null(node) || node->is_refused)
		return complain_type(reader, node, key, type);
	return true;
}

bool number_parse(const char *text, uint64_t *ret_number)
{
	uint64_t number = 0;

	if (!*text)
		return false;
	for (; *text; text++)
		if (*text < '0' || *text > '9' || __builtin_mul_overflow(number, 10u, &number) ||
			__builtin_add_overflow(number, (uint64_t)(*text - '0'), &number))
			return false;
	*ret_number = number;
	return true;
}

/* Digits, and up to @places more behind a point, as a number of 10^-@places. Returns what follows, NULL when none. */
static const char *decimal_parse(const char *text, int places, uint64_t *ret_number)
{
	uint64_t number = 0;
	bool is_fraction = false;

	if (!isdigit((unsigned char)*text))
		return NULL;
	for (; isdigit((unsigned char)*text) || (*text == '.' && !is_fraction && isdigit((unsigned char)text[1]));
		text++) {
		if (*text == '.') {
			is_fraction = true;
			continue;
		}
		if (is_fraction && places-- <= 0)
			continue;
		if (number > UINT64_MAX / 100)
			return NULL;
		number = number * 10 + (uint64_t)(*text - '0');
	}
	for (; places > 0; places--) {
		if (number > UINT64_MAX / 100)
			return NULL;
		number *= 10;
	}
	*ret_number = number;
	while (*text == ' ')
		text++;
	return text;
}

bool value_name(struct reader *reader, const struct node *node, const char *key, struct word *ret_name)
{
	/* words that stand where a name may stand too */
	static const char *const reserved[] = {"all", "none", "demand", "default", NULL};
	const char *c;

	if (!is_scalar(reader, node, key, TYPE_NAME))
		return false;
	for (c = node->text; isalnum((unsigned char)*c) || *c == '_' || ((*c == '-' || *c == '.') && c > node->text);
		c++)
		;
	if (*c || c == node->text || isdigit((unsigned char)node->text[0]) || c - node->text > 64) {
		complain(reader->diagnostics, MESSAGE_NAME, node->where,
			"'%.64s' is no name; names have up to 64 letters, digits, '_', '-' and '.', and start with a letter or '_'",
			node->text);
		return false;
	}
	for (int i = 0; reserved[i]; i++) {
		if (strcmp(node->text, reserved[i]) == 0) {
			complain(reader->diagnostics, MESSAGE_NAME, node->where,
				"'%s' has a meaning of its own in a policy; choose another name", node->text);
			return false;
		}
	}
	*ret_name = (struct word){node->text, node->where};
	return true;
}

bool value_amount(struct reader *reader, const struct node *node, const char *key, enum policy_type type,
	struct amount *ret_amount)
{
	struct amount amount = {.where = node->where};
	uint64_t hundredths;
	const char *rest;

	if (!is_scalar(reader, node, key, type))
		return false;
	rest = decimal_parse(node->text, 2, &hundredths);
	if (type == TYPE_AMOUNT && rest && strcmp(rest, "%") == 0) {
		if (!hundredths || hundredths > 10000) {
			complain(reader->diagnostics, MESSAGE_VALUE, node->where,
				"'%s' is not between 0.01%% and 100%%; write a share such as 90%%", node->text);
			return false;
		}
		amount.value.percent_hundredths = (uint32_t)hundredths;
	} else if (!size_parse(node->text, &amount.value.bytes)) {
		if (rest && strcmp(rest, "%") == 0) {
			complain(reader->diagnostics, MESSAGE_VALUE, node->where, "'%s' takes no percentage; write %s",
				key, type_written(type));
			return false;
		}
		return complain_value(reader, node, key, type);
	} else if (!amount.value.bytes) {
		complain(reader->diagnostics, MESSAGE_VALUE, node->where, "'%s' must be more than nothing; write %s",
			key, type_written(type));
		return false;
	}
	*ret_amount = amount;
	return true;
}

bool value_duration(struct reader *reader, const struct node *node, const char *key, uint64_t *ret_ns)
{
	static const struct {
		const char *unit;
		uint64_t ns;
	} units[] = {{"ms", 1000000}, {"s", 1000000000}, {"min", 60000000000}, {"h", 3600000000000}};
	uint64_t thousandths, ns;
	const char *rest;

	if (!is_scalar(reader, node, key, TYPE_DURATION))
		return false;
	rest = decimal_parse(node->text, 3, &thousandths);
	for (size_t i = 0; rest && i < sizeof(units) / sizeof(units[0]); i++) {
		if (strcmp(rest, units[i].unit) != 0 || !thousandths)
			continue;
		if (__builtin_mul_overflow(thousandths, units[i].ns / 1000, &ns) || ns > 24 * 3600000000000u) {
			complain(reader->diagnostics, MESSAGE_VALUE, node->where, "'%s' is longer than a day; write %s",
				node->text, type_written(TYPE_DURATION));
			return false;
		}
		*ret_ns = ns;
		return true;
	}
	if (rest && !*rest)
		complain(reader->diagnostics, MESSAGE_VALUE, node->where, "'%s' has no unit; write '%ss' or '%sms'",
			node->text, node->text, node->text);
	else
		complain_value(reader, node, key, TYPE_DURATION);
	return false;
}

bool value_flag(struct reader *reader, const struct node *node, const char *key, struct flag *ret_flag)
{
	static const char *const words[] = {"false", "true", "no", "yes", "off", "on"};

	ret_flag->where = node->where; /* given, if not readable */
	if (!is_scalar(reader, node, key, TYPE_BOOL))
		return false;
	for (size_t i = 0; !node->is_quoted && i < sizeof(words) / sizeof(words[0]); i++) {
		if (strcasecmp(node->text, words[i]) == 0) {
			*ret_flag = (struct flag){i % 2, node->where};
			return true;
		}
	}
	if (node->is_quoted)
		complain(reader->diagnostics, MESSAGE_TYPE, node->where,
			"'%s' is a text in quotes; write true or false without them", key);
	else
		complain_type(reader, node, key, TYPE_BOOL);
	return false;
}

bool value_count(
	struct reader *reader, const struct node *node, const char *key, enum policy_type type, uint32_t *ret_count)
{
	uint64_t number;

	if (!is_scalar(reader, node, key, type))
		return false;
	if (!number_parse(node->text, &number) || !number)
		return complain_value(reader, node, key, type);
	if (number > COUNT_MAX) {
		complain(reader->diagnostics, MESSAGE_VALUE, node->where, "'%.60s' is too many; write a number from 1 to %d",
			node->text, COUNT_MAX);
		return false;
	}
	*ret_count = (uint32_t)number;
	return true;
}

bool value_word(struct reader *reader, const struct node *node, const char *key, const char *const *words,
	enum policy_type type, uint32_t *ret_number)
{
	if (!is_scalar(reader, node, key, type))
		return false;
	for (uint32_t i = 0; words[i]; i++) {
		if (strcmp(words[i], node->text) == 0) {
			*ret_number = i;
			return true;
		}
	}
	complain(reader->diagnostics, MESSAGE_VALUE, node->where, "unknown %s '%.60s'", key, node->text);
	suggest(reader->diagnostics, node->text, words);
	return false;
}
