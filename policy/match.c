/* policy/match.c
 * Role, phase, call and size are looked up in the index, 64 rules a step; only the rules that pass are asked for the
 * rest, so that a thousand rules cost little more than the few that could win. */
#include "policy/match.h"

#include <string.h>

#include "policy/glob.h"

enum { FEW = 4 }; /* candidates whose patterns are simply tried */

bool policy_patterns_match(const struct policy *policy, struct policy_span span, const char *text)
{
	for (uint32_t i = 0; text && i < span.count; i++)
		if (glob_matches(policy_text(policy, policy->patterns[span.first + i]), text))
			return true;
	return false;
}

static bool frames_match(const struct policy *policy, struct policy_span span, const char *const *frames, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (policy_patterns_match(policy, span, frames[i]))
			return true;
	return false;
}

static bool ranges_have(const struct policy *policy, struct policy_span span, uint64_t value)
{
	for (uint32_t i = 0; i < span.count; i++)
		if (policy->ranges[span.first + i].low <= value && value <= policy->ranges[span.first + i].high)
			return true;
	return false;
}

static uint32_t none_bit(uint32_t number, uint32_t count)
{
	return number < count ? number : POLICY_NONE_BIT;
}

bool policy_rule_asks(const struct policy_rule *rule, enum policy_match_key key)
{
	switch (key) {
	case POLICY_KEY_ROLE:
		return rule->roles != POLICY_ANY;
	case POLICY_KEY_SIZE:
		return rule->sizes.count;
	case POLICY_KEY_API:
		return rule->apis != POLICY_ANY_API;
	case POLICY_KEY_PHASE:
		return rule->phases != POLICY_ANY;
	case POLICY_KEY_ORDER:
		return rule->orders.count;
	case POLICY_KEY_DEVICE:
		return rule->devices != POLICY_ANY;
	case POLICY_KEY_LIBRARY:
		return rule->library.count;
	case POLICY_KEY_STACK:
		return rule->stack.count;
	case POLICY_KEY_PYTHON:
		return rule->python.count;
	case POLICY_KEY_THREAD:
		return rule->thread.count;
	case POLICY_KEY_TAG:
		return rule->tag.count;
	case POLICY_KEY_COUNT:
		break;
	}
	return false;
}

bool policy_rule_allows(const struct policy *policy, const struct policy_rule *rule, const struct policy_facts *facts,
	enum policy_match_key key)
{
	if (!policy_rule_asks(rule, key))
		return true;
	switch (key) {
	case POLICY_KEY_ROLE:
		return rule->roles >> none_bit(facts->role, policy->roles_count) & 1;
	case POLICY_KEY_SIZE:
		return ranges_have(policy, rule->sizes, facts->size_bytes);
	case POLICY_KEY_API:
		return rule->apis >> (facts->api < POLICY_API_COUNT ? facts->api : POLICY_API_UNKNOWN_BIT) & 1;
	case POLICY_KEY_PHASE:
		return rule->phases >> none_bit(facts->phase, policy->phases_count) & 1;
	case POLICY_KEY_ORDER:
		return ranges_have(policy, rule->orders, facts->order);
	case POLICY_KEY_DEVICE:
		return facts->device < POLICY_DEVICES_MAX && (rule->devices >> facts->device & 1);
	case POLICY_KEY_LIBRARY:
		return policy_patterns_match(policy, rule->library, facts->library);
	case POLICY_KEY_STACK:
		return frames_match(policy, rule->stack, facts->stack, facts->stack_count);
	case POLICY_KEY_PYTHON:
		return frames_match(policy, rule->python, facts->python, facts->python_count);
	case POLICY_KEY_THREAD:
		return policy_patterns_match(policy, rule->thread, facts->thread);
	case POLICY_KEY_TAG:
		return policy_patterns_match(policy, rule->tag, facts->tag);
	case POLICY_KEY_COUNT:
		break;
	}
	return true;
}

enum policy_match_key policy_rule_against(
	const struct policy *policy, const struct policy_rule *rule, const struct policy_facts *facts)
{
	for (int key = 0; key < POLICY_KEY_COUNT; key++)
		if (!policy_rule_allows(policy, rule, facts, (enum policy_match_key)key))
			return (enum policy_match_key)key;
	return POLICY_KEY_COUNT;
}

/* What the index does not hold, cheapest first. */
static bool rest_allows(const struct policy *policy, const struct policy_rule *rule, const struct policy_facts *facts)
{
	for (int key = POLICY_KEY_ORDER; key < POLICY_KEY_COUNT; key++)
		if (!policy_rule_allows(policy, rule, facts, (enum policy_match_key)key))
			return false;
	return true;
}

/* How many bounds are at most @size_bytes. */
static uint32_t size_class(const struct policy *policy, uint64_t size_bytes)
{
	uint32_t low = 0, high = policy->bounds_count;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (policy->bounds[middle] <= size_bytes)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* --- grams -------------------------------------------------------------------------------------------------------- */

static void find_grams(const struct policy *policy, const char *text, enum policy_match_key key, uint64_t *found)
{
	/* in locals: the compiler must assume that a write to @found changes what @policy points to */
	const uint64_t *bits = policy->gram_bits;
	const uint32_t *heads = policy->gram_heads;
	const struct policy_gram *grams = policy->grams;
	const uint32_t shift = policy->gram_shift;

	if (!text || !text[0] || !text[1] || !text[2])
		return;
	for (; text[POLICY_GRAM_BYTES - 1]; text++) {
		uint32_t hash = policy_gram_hash(text, key), bit = hash >> (shift - POLICY_GRAM_BITS_SHIFT);

		if (!(bits[bit / 64] >> bit % 64 & 1))
			continue;
		for (uint32_t i = heads[hash >> shift]; i < heads[(hash >> shift) + 1]; i++)
			if (grams[i].hash == hash)
				found[grams[i].rule / 64] |= 1ull << grams[i].rule % 64;
	}
}

/* Add the rules of which a gram occurs in the texts of @facts. */
static void find_by_text(const struct policy *policy, const struct policy_facts *facts, uint64_t *found)
{
	uint32_t keys = policy->header->gram_keys;

	if (keys >> POLICY_KEY_LIBRARY & 1)
		find_grams(policy, facts->library, POLICY_KEY_LIBRARY, found);
	if (keys >> POLICY_KEY_THREAD & 1)
		find_grams(policy, facts->thread, POLICY_KEY_THREAD, found);
	if (keys >> POLICY_KEY_TAG & 1)
		find_grams(policy, facts->tag, POLICY_KEY_TAG, found);
	for (size_t i = 0; (keys >> POLICY_KEY_STACK & 1) && i < facts->stack_count; i++)
		find_grams(policy, facts->stack[i], POLICY_KEY_STACK, found);
	for (size_t i = 0; (keys >> POLICY_KEY_PYTHON & 1) && i < facts->python_count; i++)
		find_grams(policy, facts->python[i], POLICY_KEY_PYTHON, found);
}

static const uint64_t *index_row(const struct policy *policy, uint32_t row)
{
	return policy->index + (size_t)row * policy->index_words;
}

/* Rules that role, phase, call and size allow, into @candidates; returns how many of them stand in the gram table,
 * counted up to FEW + 1. */
static uint32_t find_candidates(const struct policy *policy, const struct policy_facts *facts, uint64_t *candidates)
{
	const uint64_t *roles = index_row(policy, policy_index_role(policy, facts->role));
	const uint64_t *phases = index_row(policy, policy_index_phase(policy, facts->phase));
	const uint64_t *apis = index_row(policy, policy_index_api(policy, facts->api));
	const uint64_t *sizes = index_row(policy, policy_index_size(policy, size_class(policy, facts->size_bytes)));
	const uint64_t *always = index_row(policy, policy_index_always(policy));
	uint32_t in_table = 0;

	for (uint32_t word = 0; word < policy->index_words; word++) {
		candidates[word] = roles[word] & phases[word] & apis[word] & sizes[word];
		for (uint64_t left = candidates[word] & ~always[word]; left && in_table <= FEW; left &= left - 1)
			in_table++;
	}
	return in_table;
}

uint32_t policy_match(const struct policy *policy, const struct policy_facts *facts)
{
	const uint64_t *always = index_row(policy, policy_index_always(policy));
	uint64_t candidates[POLICY_RULES_MAX / 64], found[POLICY_RULES_MAX / 64];
	/* reading the texts once costs as much as trying a few patterns on them */
	bool by_text = find_candidates(policy, facts, candidates) > FEW && policy->gram_heads_count;

	if (by_text) {
		memcpy(found, always, policy->index_words * sizeof(*found));
		find_by_text(policy, facts, found);
	}
	for (uint32_t word = 0; word < policy->index_words; word++) {
		uint64_t left = by_text ? candidates[word] & found[word] : candidates[word];

		for (; left; left &= left - 1) {
			uint32_t number = word * 64 + (uint32_t)__builtin_ctzll(left);

			if (number < policy->rules_count && rest_allows(policy, &policy->rules[number], facts))
				return number;
		}
	}
	return policy->rules_count - 1;
}
