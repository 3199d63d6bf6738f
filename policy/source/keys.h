/* policy/source/keys.h
 * policy/keys.def as a table. */
#ifndef SUBLET_POLICY_SOURCE_KEYS_H
#define SUBLET_POLICY_SOURCE_KEYS_H

#include "policy/source/tree.h"
#include "policy/source/values.h"

struct policy_key {
	unsigned int places; /* enum policy_place */
	const char *name;
	enum policy_type type;
	bool is_required;
	const char *sentence;
};

enum { POLICY_PLACE_KEYS_MAX = 32 }; /* keys of one place */

extern const struct policy_key policy_keys[];
extern const size_t policy_keys_count;

/* Names of the keys of @place into @words (POLICY_PLACE_KEYS_MAX + 1 of room), NULL-ended. */
void key_words(enum policy_place place, const char **words);
/* What a mapping of @place is called in a sentence. */
const char *place_spoken(enum policy_place place);

#endif
