/* policy/source/keys.c
 * The one table that reading, completing and the schema share. */
#include "policy/source/keys.h"

enum { OPTIONAL, REQUIRED };

const struct policy_key policy_keys[] = {
#define KEY(places, name, type, need, sentence) {places, #name, TYPE_##type, need, sentence},
#include "policy/keys.def"
};
const size_t policy_keys_count = sizeof(policy_keys) / sizeof(policy_keys[0]);

void key_words(enum policy_place place, const char **words)
{
	size_t count = 0;

	for (size_t i = 0; i < policy_keys_count && count < POLICY_PLACE_KEYS_MAX; i++)
		if (policy_keys[i].places & place)
			words[count++] = policy_keys[i].name;
	words[count] = NULL;
}

const char *place_spoken(enum policy_place place)
{
	switch (place) {
	case TOP:
		return "a policy";
	case ROLE:
		return "a role";
	case PHASE:
		return "a phase";
	case TRIGGER:
		return "a trigger";
	case OBJECT:
		return "an object";
	case MATCH:
		return "a match";
	case SHARE_GROUP:
		return "a share group";
	case BARRIER:
		return "'barrier'";
	case DEFAULTS:
		return "'defaults'";
	}
	return "a mapping";
}
