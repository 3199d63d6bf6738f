/* tools/policy_schema.c
 * Fragments of types.def with two placeholders filled in: {words:LIST} and {place:PLACE}. */
#include <string.h>

#include "policy/source/keys.h"
#include "policy/source/output.h"
#include "policy/source/values.h"
#include "tools/policy_json.h"

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

static json_t *fragment_json(const char *text)
{
	struct output filled = {0};
	json_t *json;

	add_fragment(&filled, text);
	json = filled.failed ? NULL : json_loads(output_get(&filled), JSON_DECODE_ANY, NULL);
	output_release(&filled);
	return json;
}

static json_t *key_json(const struct policy_key *key)
{
	json_t *object = json_object(), *all = json_array();
	int failed = json_object_set_new(object, "description", json_string(key->sentence));

	/* allOf: beside a $ref older validators read nothing else */
	failed |= json_array_append_new(all, fragment_json(fragment(key->type)));
	failed |= json_object_set_new(object, "allOf", all);
	if (!failed)
		return object;
	json_decref(object);
	return NULL;
}

static json_t *mapping_json(enum policy_place place)
{
	json_t *object = json_object(), *properties = json_object(), *required = json_array();
	int failed = json_object_set_new(object, "type", json_string("object"));

	failed |= json_object_set_new(object, "additionalProperties", json_false());
	for (size_t i = 0; i < policy_keys_count; i++) {
		if (!(policy_keys[i].places & place))
			continue;
		failed |= json_object_set_new(properties, policy_keys[i].name, key_json(&policy_keys[i]));
		if (policy_keys[i].is_required)
			failed |= json_array_append_new(required, json_string(policy_keys[i].name));
	}
	failed |= json_object_set_new(object, "properties", properties);
	if (json_array_size(required))
		failed |= json_object_set(object, "required", required);
	json_decref(required);
	if (!failed)
		return object;
	json_decref(object);
	return NULL;
}

/* What the fragments refer to besides mappings. */
static const struct {
	const char *name, *definition;
} definitions[] = {
	{"names", "{\"anyOf\": [{\"$ref\": \"#/$defs/name\"}, {\"type\": \"array\", \"items\": {\"$ref\": \"#/$defs/name\"}}]}"},
	{"bytes", "{\"anyOf\": [{\"type\": \"integer\", \"minimum\": 1}, {\"type\": \"string\", \"pattern\": "
		  "\"^[0-9]+(\\\\.[0-9]+)? *([KkMmGgTt]([Ii]?[Bb])?|[Bb])?$\"}]}"},
	{"scalar", "{\"type\": [\"string\", \"integer\", \"number\", \"boolean\"]}"},
	{"scalars", "{\"anyOf\": [{\"$ref\": \"#/$defs/scalar\"}, {\"type\": \"array\", \"minItems\": 1, \"items\": "
		    "{\"$ref\": \"#/$defs/scalar\"}}]}"},
	{"texts", "{\"$ref\": \"#/$defs/scalars\"}"},
};

json_t *policy_json_schema(void)
{
	json_t *schema = json_object(), *defs = json_object();
	int failed = json_object_set_new(
		schema, "$schema", json_string("https://json-schema.org/draft/2020-12/schema"));

	failed |= json_object_set_new(schema, "title", json_string("Sublet policy"));
	failed |= json_object_set_new(schema, "$ref", json_string("#/$defs/policy"));
	failed |= json_object_set_new(defs, "name", fragment_json(fragment(TYPE_NAME)));
	for (size_t i = 0; i < sizeof(definitions) / sizeof(definitions[0]); i++)
		failed |= json_object_set_new(defs, definitions[i].name, fragment_json(definitions[i].definition));
	for (size_t i = 0; i < POLICY_PLACE_COUNT; i++)
		failed |= json_object_set_new(defs, places[i].definition, mapping_json(places[i].place));
	failed |= json_object_set_new(schema, "$defs", defs);
	if (!failed)
		return schema;
	json_decref(schema);
	return NULL;
}
