/* policy/source/facts.c
 * Words are split as a shell does it with quotes, but nothing is expanded. */
#include "policy/source/facts.h"

#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "base/words.h"
#include "policy/source/values.h"

/* In the order of enum policy_match_key. */
static const char *const key_texts[POLICY_KEY_COUNT + 1] = {
	"role", "size", "api", "phase", "order", "device", "library", "stack", "python", "thread", "tag", NULL};

const char *match_key_text(enum policy_match_key key)
{
	return (unsigned int)key < POLICY_KEY_COUNT ? key_texts[key] : "?";
}

static enum sublet_err wrong(struct errinfo *reterr, const char *word, const char *text, const char *near)
{
	if (near)
		return errinfo_set(
			reterr, SUBLET_ERR_INVALID, 0, "%s '%.60s'; did you mean '%.60s'?", text, word, near);
	return errinfo_set(reterr, SUBLET_ERR_INVALID, 0, "%s '%.60s'", text, word);
}

/* As wrong, with the names there are, as many as fit. */
static enum sublet_err lists(struct errinfo *reterr, const char *word, const char *text, const char *const *words)
{
	char list[120] = "";
	size_t used = 0;

	for (size_t i = 0; words[i] && used + strlen(words[i]) + 3 < sizeof(list); i++)
		used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%s", i ? ", " : "", words[i]);
	return errinfo_set(reterr, SUBLET_ERR_INVALID, 0, "%s '%.60s'; there is %s", text, word, used ? list : "none");
}

/* The number of @name among the @count names of a list; suggests the nearest. */
static enum sublet_err named(const struct policy *policy, const char *what, const char *name, bool is_role,
	uint32_t *ret_number, struct errinfo *reterr)
{
	const char *words[POLICY_ROLES_MAX + 1];
	uint32_t count = is_role ? policy->roles_count : policy->phases_count, number;

	number = is_role ? policy_role_find(policy, name) : policy_phase_find(policy, name);
	if (number != POLICY_NONE) {
		*ret_number = number;
		return SUBLET_OK;
	}
	for (uint32_t i = 0; i < count; i++)
		words[i] = policy_text(policy, is_role ? policy->roles[i].name : policy->phases[i].name);
	words[count] = NULL;
	if (!nearest_word(name, words))
		return lists(reterr, name, what, words);
	return wrong(reterr, name, what, nearest_word(name, words));
}

static enum sublet_err set_fact(const struct policy *policy, struct typed_facts *typed, enum policy_match_key key,
	const char *value, struct errinfo *reterr)
{
	struct policy_facts *f = &typed->facts;
	const char *near;
	uint64_t number;

	if (typed->given[key] && key != POLICY_KEY_STACK && key != POLICY_KEY_PYTHON &&
		(key != POLICY_KEY_LIBRARY || f->library[1]))
		return wrong(reterr, key_texts[key], "given twice:", NULL);
	typed->given[key] = true;
	switch (key) {
	case POLICY_KEY_ROLE:
		return named(policy, "the policy has no role", value, true, &f->role, reterr);
	case POLICY_KEY_PHASE:
		return named(policy, "the policy has no phase", value, false, &f->phase, reterr);
	case POLICY_KEY_SIZE:
		if (!size_parse(value, &f->size_bytes))
			return wrong(reterr, value, "a size such as 464MiB is needed, not", NULL);
		return SUBLET_OK;
	case POLICY_KEY_API:
		for (f->api = 0; f->api < POLICY_API_COUNT; f->api++)
			if (strcmp(api_words[f->api], value) == 0)
				return SUBLET_OK;
		near = api_without_suffix(value);
		return wrong(reterr, value, "no driver call that gives memory is called",
			near ? near : nearest_word(value, api_words));
	case POLICY_KEY_ORDER:
		if (!number_parse(value, &f->order))
			return wrong(reterr, value, "a number is needed for 'order', not", NULL);
		return SUBLET_OK;
	case POLICY_KEY_DEVICE:
		if (!number_parse(value, &number) || number >= POLICY_DEVICES_MAX)
			return wrong(reterr, value, "a device number from 0 to 63 is needed, not", NULL);
		f->device = (uint32_t)number;
		return SUBLET_OK;
	case POLICY_KEY_LIBRARY:
		f->library[f->library[0] != NULL] = value;
		return SUBLET_OK;
	case POLICY_KEY_THREAD:
		f->thread = value;
		return SUBLET_OK;
	case POLICY_KEY_TAG:
		f->tag = value;
		return SUBLET_OK;
	case POLICY_KEY_STACK:
		if (f->stack_count == FACTS_FRAMES_MAX)
			return wrong(reterr, "stack", "too many frames for", NULL);
		typed->stack[f->stack_count++] = value;
		return SUBLET_OK;
	case POLICY_KEY_PYTHON:
		if (f->python_count == FACTS_FRAMES_MAX)
			return wrong(reterr, "python", "too many frames for", NULL);
		typed->python[f->python_count++] = value;
		return SUBLET_OK;
	case POLICY_KEY_COUNT:
		break;
	}
	return SUBLET_OK;
}

static bool is_space(char c)
{
	return c == ' ' || c == '\t' || c == '\n';
}

/* The next word of *@words without its quotes, NULL at the end. Writes over *@words, which is behind it then. */
static char *next_word(char **words)
{
	char *in = *words, *out, *word, quote = '\0';

	while (is_space(*in))
		in++;
	if (!*in)
		return NULL;
	for (word = out = in; *in && (quote || !is_space(*in)); in++) {
		if (quote ? *in == quote : *in == '\'' || *in == '"')
			quote = quote ? '\0' : *in;
		else
			*out++ = *in;
	}
	*words = *in ? in + 1 : in;
	*out = '\0';
	return word;
}

enum sublet_err typed_facts_parse(const struct policy *policy, struct arena *arena, const char *words,
	struct typed_facts *ret_facts, struct errinfo *reterr)
{
	char *left = arena_copy(arena, words, strlen(words)), *word;

	if (!left)
		return errinfo_set(reterr, SUBLET_ERR_NOMEM, 0, "out of memory");
	*ret_facts =
		(struct typed_facts){.facts = {.role = POLICY_NONE, .phase = POLICY_NONE, .api = POLICY_API_MEM_ALLOC}};
	while ((word = next_word(&left))) {
		char *equals = strchr(word, '=');
		enum sublet_err err;
		int key = 0;

		if (!equals)
			return errinfo_set(reterr, SUBLET_ERR_INVALID, 0,
				"facts are written KEY=VALUE, such as role=train, not '%.60s'; put a value with spaces in quotes",
				word);
		*equals = '\0';
		while (key_texts[key] && strcmp(key_texts[key], word) != 0)
			key++;
		if (!key_texts[key])
			return wrong(reterr, word, "there is no fact", nearest_word(word, key_texts));
		if (!equals[1])
			return wrong(reterr, word, "no value is given for", NULL);
		err = set_fact(policy, ret_facts, (enum policy_match_key)key, equals + 1, reterr);
		if (err)
			return err;
	}
	ret_facts->facts.stack = ret_facts->stack;
	ret_facts->facts.python = ret_facts->python;
	return SUBLET_OK;
}
