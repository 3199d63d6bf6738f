/* policy/source/schema.c
 * Fragments of types.def with two placeholders filled in: {words:LIST} and {place:PLACE}. */
#include "policy/source/schema.h"

#include <string.h>

#include "policy/source/keys.h"

static const char *fragment(enum policy_type type)
{
	static const char *const fragments[POLICY_TYPE_COUNT] = {
#define TYPE(name, written, schema) schema,
#include "policy/types.def"
	};

	return fragments[type];
}

static const struct {
	enum policy_place place;
	const char *name, *definition;
} places[POLICY_PLACE_COUNT] = {
	{TOP, "TOP", "policy"},
	{ROLE, "ROLE", "role"},
	{PHASE, "PHASE", "phase"},
	{TRIGGER, "TRIGGER", "trigger"},
	{OBJECT, "OBJECT", "object"},
	{MATCH, "MATCH", "match"},
	{SHARE_GROUP, "SHARE_GROUP", "share_group"},
	{BARRIER, "BARRIER", "barrier"},
	{DEFAULTS, "DEFAULTS", "defaults"},
};

static const struct {
	const char *name;
	const char *const *words;
} word_lists[] = {
	{"CLASS", class_words},
	{"OTHERWISE", otherwise_words},
	{"ACCESS", access_words},
	{"QUORUM", quorum_words},
	{"FREE", free_words},
};

static void add_words(struct output *to, const char *name, size_t length)
{
	for (size_t i = 0; i < sizeof(word_lists) / sizeof(word_lists[0]); i++) {
		if (strlen(word_lists[i].name) != length || strncmp(word_lists[i].name, name, length) != 0)
			continue;
		output_add(to, "{\"enum\": [");
		for (const char *const *word = word_lists[i].words; *word; word++)
			output_add(to, "%s\"%s\"", word == word_lists[i].words ? "" : ", ", *word);
		output_add(to, "]}");
	}
}

static void add_place(struct output *to, const char *name, size_t length)
{
	for (size_t i = 0; i < POLICY_PLACE_COUNT; i++)
		if (strlen(places[i].name) == length && strncmp(places[i].name, name, length) == 0)
			output_add(to, "{\"$ref\": \"#/$defs/%s\"}", places[i].definition);
}

/* @text with its placeholders filled in. */
static void add_fragment(struct output *to, const char *text)
{
	static const char words[] = "{words:", place[] = "{place:";

	while (*text) {
		const char *end = strchr(text, '}');

		if (strncmp(text, words, sizeof(words) - 1) == 0 && end) {
			add_words(to, text + sizeof(words) - 1, (size_t)(end - text) - sizeof(words) + 1);
			text = end + 1;
		} else if (strncmp(text, place, sizeof(place) - 1) == 0 && end) {
			add_place(to, text + sizeof(place) - 1, (size_t)(end - text) - sizeof(place) + 1);
			text = end + 1;
		} else {
			output_add_bytes(to, text++, 1);
		}
	}
}

static void add_mapping(struct output *to, enum policy_place place)
{
	const char *before = "";

	output_add(to, "{\"type\": \"object\", \"additionalProperties\": false,\n      \"properties\": {");
	for (size_t i = 0; i < policy_keys_count; i++) {
		if (!(policy_keys[i].places & place))
			continue;
		/* allOf: beside a $ref older validators read nothing else */
		output_add(to, "%s\n        \"%s\": {\"description\": ", before, policy_keys[i].name);
		output_add_json(to, policy_keys[i].sentence);
		output_add(to, ", \"allOf\": [");
		add_fragment(to, fragment(policy_keys[i].type));
		output_add(to, "]}");
		before = ",";
	}
	output_add(to, "}");
	before = ",\n      \"required\": [";
	for (size_t i = 0; i < policy_keys_count; i++) {
		if (!(policy_keys[i].places & place) || !policy_keys[i].is_required)
			continue;
		output_add(to, "%s\"%s\"", before, policy_keys[i].name);
		before = ", ";
	}
	output_add(to, "%s}", before[0] == ',' && before[1] == ' ' ? "]" : "");
}

void schema_print(struct output *to)
{
	output_add(to, "{\n  \"$schema\": \"https://json-schema.org/draft/2020-12/schema\",\n"
		       "  \"title\": \"Sublet policy\",\n  \"$ref\": \"#/$defs/policy\",\n  \"$defs\": {\n");
	output_add(to, "    \"name\": ");
	add_fragment(to, fragment(TYPE_NAME));
	output_add(to,
		",\n    \"names\": {\"anyOf\": [{\"$ref\": \"#/$defs/name\"}, {\"type\": \"array\", \"items\": "
		"{\"$ref\": \"#/$defs/name\"}}]},\n"
		"    \"bytes\": {\"anyOf\": [{\"type\": \"integer\", \"minimum\": 1}, {\"type\": \"string\", \"pattern\": "
		"\"^[0-9]+(\\\\.[0-9]+)? *([KkMmGgTt]([Ii]?[Bb])?|[Bb])?$\"}]},\n"
		"    \"scalar\": {\"type\": [\"string\", \"integer\", \"number\", \"boolean\"]},\n"
		"    \"scalars\": {\"anyOf\": [{\"$ref\": \"#/$defs/scalar\"}, {\"type\": \"array\", \"minItems\": 1, \"items\": "
		"{\"$ref\": \"#/$defs/scalar\"}}]},\n"
		"    \"texts\": {\"$ref\": \"#/$defs/scalars\"}");
	for (size_t i = 0; i < POLICY_PLACE_COUNT; i++) {
		output_add(to, ",\n    \"%s\": ", places[i].definition);
		add_mapping(to, places[i].place);
	}
	output_add(to, "\n  }\n}\n");
}
