/* policy/source/facts.h
 * Facts about an allocation as a person types them: `role=rollout size=464MiB python='*:allocate_kv_cache'`. The keys
 * are those of `match`; `stack` and `python` may be given several times, one frame each. */
#ifndef SUBLET_POLICY_SOURCE_FACTS_H
#define SUBLET_POLICY_SOURCE_FACTS_H

#include "policy/match.h"
#include "policy/source/arena.h"

enum { FACTS_FRAMES_MAX = 64 };

struct typed_facts {
	struct policy_facts facts; /* points into this struct and the arena */
	const char *stack[FACTS_FRAMES_MAX], *python[FACTS_FRAMES_MAX];
	bool given[POLICY_KEY_COUNT]; /* which keys were typed */
};

/* Parse @words. Fails with INVALID, @reterr says which word and what to write, or NOMEM. @ret_facts must not be moved
 * afterwards. */
enum sublet_err typed_facts_parse(const struct policy *policy, struct arena *arena, const char *words,
	struct typed_facts *ret_facts, struct errinfo *reterr);

/* `role`, `size`, ... */
const char *match_key_text(enum policy_match_key key);

#endif
