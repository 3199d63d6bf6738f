/* policy/match.h
 * Which rule an allocation falls under: file order, first match wins, the default catches the rest. Pure. */
#ifndef SUBLET_POLICY_MATCH_H
#define SUBLET_POLICY_MATCH_H

#include "policy/block.h"

/* What is known of an allocation at the moment it is made. Texts and frames are borrowed; NULL or count 0 means
 * unknown, and what is unknown matches no rule that asks for it. */
struct policy_facts {
	uint32_t role;	/* policy_role_find, or POLICY_NONE */
	uint32_t phase; /* policy_phase_find, or POLICY_NONE */
	uint32_t api;	/* enum policy_api, POLICY_API_COUNT for any other */
	uint32_t device;
	uint64_t size_bytes; /* as requested */
	uint64_t order;	     /* managed allocations of the process so far, this one included */
	const char *library[2]; /* paths: what called the driver; where that is the runtime, what called it. NULL: not known */
	const char *thread, *tag;
	const char *const *stack; /* native frames, `library:function` */
	size_t stack_count;
	const char *const *python; /* Python frames, `file:function` */
	size_t python_count;
};

/* The keys a rule can ask for; POLICY_KEY_COUNT when nothing speaks against the rule. */
enum policy_match_key {
	POLICY_KEY_ROLE,
	POLICY_KEY_SIZE,
	POLICY_KEY_API,
	POLICY_KEY_PHASE,
	POLICY_KEY_ORDER,
	POLICY_KEY_DEVICE,
	POLICY_KEY_LIBRARY,
	POLICY_KEY_STACK,
	POLICY_KEY_PYTHON,
	POLICY_KEY_THREAD,
	POLICY_KEY_TAG,
	POLICY_KEY_COUNT
};

/* Number of the rule that wins. Never fails: the last rule is the default. */
uint32_t policy_match(const struct policy *policy, const struct policy_facts *facts);

/* Does @rule ask for @key? */
bool policy_rule_asks(const struct policy_rule *rule, enum policy_match_key key);
/* Does what @rule asks of @key hold for @facts? True when it asks nothing. */
bool policy_rule_allows(const struct policy *policy, const struct policy_rule *rule, const struct policy_facts *facts,
	enum policy_match_key key);
/* First key that speaks against @rule, POLICY_KEY_COUNT when none does. */
enum policy_match_key policy_rule_against(
	const struct policy *policy, const struct policy_rule *rule, const struct policy_facts *facts);

/* Does one of the patterns of @span match @text? False for NULL. */
bool policy_patterns_match(const struct policy *policy, struct policy_span span, const char *text);

/* Rows of the index, for those who build and read it: for each value of a key the set of rules that allow it. Behind
 * the last value of a key stands the row for all others. */
static inline uint32_t policy_index_role(const struct policy *policy, uint32_t role)
{
	return role < policy->roles_count ? role : policy->roles_count;
}
static inline uint32_t policy_index_phase(const struct policy *policy, uint32_t phase)
{
	return policy->roles_count + 1 + (phase < policy->phases_count ? phase : policy->phases_count);
}
static inline uint32_t policy_index_api(const struct policy *policy, uint32_t api)
{
	return policy->roles_count + 1 + policy->phases_count + 1 + (api < POLICY_API_COUNT ? api : POLICY_API_COUNT);
}
static inline uint32_t policy_index_device(const struct policy *policy, uint32_t device)
{
	return policy->roles_count + 1 + policy->phases_count + 1 + POLICY_API_COUNT + 1 +
	       (device < POLICY_DEVICES_MAX ? device : POLICY_DEVICES_MAX);
}
/* @class: how many of the policy's bounds of sizes, of orders are at most the value. */
static inline uint32_t policy_index_size(const struct policy *policy, uint32_t class)
{
	return policy_index_device(policy, POLICY_DEVICES_MAX) + 1 + class;
}
static inline uint32_t policy_index_order(const struct policy *policy, uint32_t class)
{
	return policy_index_size(policy, policy->size_bounds_count) + 1 + class;
}
static inline uint32_t policy_index_always(const struct policy *policy)
{
	return policy_index_order(policy, policy->order_bounds_count) + 1;
}

/* The gram table, so that a thousand patterns need not all be tried on every frame. A gram is four bytes in a row. For
 * each pattern of a rule two grams in a row that every text it matches must hold stand in the table, under one text key
 * of the rule; one of them lies at an even place of the text, so every second place is looked at. A pattern with four
 * literal bytes in a row and no fifth has one gram, and its key is in the header's set "all places". Rules with a pattern
 * of fewer are in the row "always". */
enum { POLICY_GRAM_BYTES = 4 };

static inline uint32_t policy_gram_hash(const char *bytes, enum policy_match_key key)
{
	uint32_t gram;

	__builtin_memcpy(&gram, bytes, sizeof(gram));
	return (gram ^ (uint32_t)key * 0x85ebca6bu) * 0x9e3779b1u;
}

#endif
