/* policy/match.c
 * What is no text is looked up in the index, 64 rules a step; only the rules that pass are asked for their texts, and of
 * those only the ones of which a gram occurs, so that a thousand rules cost little more than the few that could win. */
#include "policy/match.h"

#include <string.h>

#include "policy/glob.h"

enum { FEW = 1 }; /* candidates whose patterns are simply tried */

bool policy_patterns_match(const struct policy *policy, struct policy_span span, const char *text)
{
	for (uint32_t i = 0; text && i < span.count; i++)
		if (glob_matches(policy_text(policy, policy->patterns[span.first + i]), text))
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

struct texts {
	const char *const *list;
	size_t count;
};

static struct texts texts_of(const struct policy_facts *facts, enum policy_match_key key)
{
	switch ((int)key) {
	case POLICY_KEY_LIBRARY:
		return (struct texts){facts->library, 2};
	case POLICY_KEY_STACK:
		return (struct texts){facts->stack, facts->stack_count};
	case POLICY_KEY_PYTHON:
		return (struct texts){facts->python, facts->python_count};
	case POLICY_KEY_THREAD:
		return (struct texts){&facts->thread, 1};
	default:
		return (struct texts){&facts->tag, 1};
	}
}

static struct policy_span patterns_of(const struct policy_rule *rule, enum policy_match_key key)
{
	switch ((int)key) {
	case POLICY_KEY_LIBRARY:
		return rule->library;
	case POLICY_KEY_STACK:
		return rule->stack;
	case POLICY_KEY_PYTHON:
		return rule->python;
	case POLICY_KEY_THREAD:
		return rule->thread;
	default:
		return rule->tag;
	}
}

static bool texts_match(const struct policy *policy, struct policy_span span, struct texts texts)
{
	for (uint32_t i = 0; i < span.count; i++)
		if (glob_matches_any(policy_text(policy, policy->patterns[span.first + i]), texts.list, texts.count))
			return true;
	return false;
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
	case POLICY_KEY_STACK:
	case POLICY_KEY_PYTHON:
	case POLICY_KEY_THREAD:
	case POLICY_KEY_TAG:
		return patterns_of(rule, key).count;
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
	case POLICY_KEY_STACK:
	case POLICY_KEY_PYTHON:
	case POLICY_KEY_THREAD:
	case POLICY_KEY_TAG:
		return texts_match(policy, patterns_of(rule, key), texts_of(facts, key));
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

/* How many of the sorted @bounds are at most @value. */
static uint32_t class_of(const uint64_t *bounds, uint32_t count, uint64_t value)
{
	uint32_t low = 0, high = count;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (bounds[middle] <= value)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* --- grams -------------------------------------------------------------------------------------------------------- */

/* Is a gram of this hash in the table at all? 0 or 1. */
static inline uint32_t gram_bit(const uint64_t *bits, uint32_t hash)
{
	uint32_t bit = hash >> POLICY_GRAM_BITS_SHIFT;

	return bits[bit / 64] >> bit % 64 & 1;
}

/* Rules of which a gram occurs, and in which frame: only that one need be tried. */
struct found {
	uint64_t rules[POLICY_RULES_MAX / 64];
	uint8_t frames[POLICY_RULES_MAX]; /* of the rules that the texts gave */
};

enum { FRAMES_SEVERAL = UINT8_MAX }; /* or one too far down to be told */

static void add_found(const struct policy *policy, uint32_t hash, uint8_t frame, struct found *found)
{
	uint32_t bucket = hash >> policy->gram_shift;

	for (uint32_t i = policy->gram_heads[bucket]; i < policy->gram_heads[bucket + 1]; i++) {
		uint32_t rule = policy->grams[i].rule;
		uint64_t bit = 1ull << rule % 64;

		if (policy->grams[i].hash != hash)
			continue;
		found->frames[rule] =
			!(found->rules[rule / 64] & bit) || found->frames[rule] == frame ? frame : FRAMES_SEVERAL;
		found->rules[rule / 64] |= bit;
	}
}

static void find_grams(const struct policy *policy, const char *text, enum policy_match_key key, size_t number,
	struct found *found)
{
	/* in locals: the compiler must assume that a write to @found changes what @policy points to */
	const uint8_t frame = number < FRAMES_SEVERAL ? (uint8_t)number : FRAMES_SEVERAL;
	const uint64_t *bits = policy->gram_bits;
	const size_t step = policy->header->gram_all_places >> key & 1 ? 1 : 2;
	size_t length = text ? strlen(text) : 0, at = 0;

	/* most grams are in no pattern: one branch for four of them */
	for (; at + POLICY_GRAM_BYTES + 3 * step <= length; at += 4 * step) {
		uint32_t a = policy_gram_hash(text + at, key), b = policy_gram_hash(text + at + step, key),
			 c = policy_gram_hash(text + at + 2 * step, key), d = policy_gram_hash(text + at + 3 * step, key);

		if (!(gram_bit(bits, a) | gram_bit(bits, b) | gram_bit(bits, c) |
			    gram_bit(bits, d)))
			continue;
		add_found(policy, a, frame, found);
		add_found(policy, b, frame, found);
		add_found(policy, c, frame, found);
		add_found(policy, d, frame, found);
	}
	for (; at + POLICY_GRAM_BYTES <= length; at += step) {
		uint32_t hash = policy_gram_hash(text + at, key);

		if (gram_bit(bits, hash))
			add_found(policy, hash, frame, found);
	}
}

/* Add the rules of which a gram occurs in the texts of @facts. */
static void find_by_text(const struct policy *policy, const struct policy_facts *facts, struct found *found)
{
	uint32_t keys = policy->header->gram_keys;

	for (size_t i = 0; (keys >> POLICY_KEY_LIBRARY & 1) && i < 2; i++)
		find_grams(policy, facts->library[i], POLICY_KEY_LIBRARY, i, found);
	if (keys >> POLICY_KEY_THREAD & 1)
		find_grams(policy, facts->thread, POLICY_KEY_THREAD, 0, found);
	if (keys >> POLICY_KEY_TAG & 1)
		find_grams(policy, facts->tag, POLICY_KEY_TAG, 0, found);
	for (size_t i = 0; (keys >> POLICY_KEY_STACK & 1) && i < facts->stack_count; i++)
		find_grams(policy, facts->stack[i], POLICY_KEY_STACK, i, found);
	for (size_t i = 0; (keys >> POLICY_KEY_PYTHON & 1) && i < facts->python_count; i++)
		find_grams(policy, facts->python[i], POLICY_KEY_PYTHON, i, found);
}

/* Equal patterns have one place in a block, and rules that differ in something else share them: what was answered for one
 * is not asked for the next. */
struct memo {
	struct {
		uint32_t pattern; /* its text's offset; no pattern is the empty text at 0 */
		uint8_t key, frame;
		bool matches;
	} slots[32];
};

static bool pattern_matches(const struct policy *policy, uint32_t pattern, enum policy_match_key key, uint8_t frame,
	const struct texts *texts, struct memo *memo)
{
	uint32_t slot = (pattern * 0x9e3779b1u ^ (uint32_t)key) >> 27;
	const char *text = policy_text(policy, pattern);

	if (memo->slots[slot].pattern == pattern && memo->slots[slot].key == key && memo->slots[slot].frame == frame)
		return memo->slots[slot].matches;
	memo->slots[slot].pattern = pattern;
	memo->slots[slot].key = (uint8_t)key;
	memo->slots[slot].frame = frame;
	memo->slots[slot].matches = frame < texts->count && frame != FRAMES_SEVERAL
					    ? glob_matches_any(text, texts->list + frame, 1)
					    : glob_matches_any(text, texts->list, texts->count);
	return memo->slots[slot].matches;
}

/* Do the texts allow rule @number? @found: NULL when it was not asked. */
static bool texts_allow(const struct policy *policy, uint32_t number, const struct policy_facts *facts,
	const struct found *found, struct memo *memo)
{
	const struct policy_rule *rule = &policy->rules[number];

	for (int k = POLICY_KEY_LIBRARY; k < POLICY_KEY_COUNT; k++) {
		enum policy_match_key key = (enum policy_match_key)k;
		struct policy_span span = patterns_of(rule, key);
		struct texts texts;
		bool allows = !span.count;
		/* other patterns of the rule may match in other frames, but then their grams occurred there */
		uint8_t frame = found && rule->found_by == (uint32_t)k ? found->frames[number] : FRAMES_SEVERAL;

		if (allows)
			continue;
		texts = texts_of(facts, key);
		for (uint32_t i = 0; i < span.count && !allows; i++)
			allows = pattern_matches(policy, policy->patterns[span.first + i], key, frame, &texts, memo);
		if (!allows)
			return false;
	}
	return true;
}

static const uint64_t *index_row(const struct policy *policy, uint32_t row)
{
	return policy->index + (size_t)row * policy->index_words;
}

/* Rules that all but the texts allow, into @candidates; returns how many of them stand in the gram table,
 * counted up to FEW + 1. */
static uint32_t find_candidates(const struct policy *policy, const struct policy_facts *facts, uint64_t *candidates)
{
	const uint64_t *roles = index_row(policy, policy_index_role(policy, facts->role));
	const uint64_t *phases = index_row(policy, policy_index_phase(policy, facts->phase));
	const uint64_t *apis = index_row(policy, policy_index_api(policy, facts->api));
	const uint64_t *devices = index_row(policy, policy_index_device(policy, facts->device));
	const uint64_t *sizes = index_row(policy,
		policy_index_size(policy, class_of(policy->size_bounds, policy->size_bounds_count, facts->size_bytes)));
	const uint64_t *orders = index_row(policy,
		policy_index_order(policy, class_of(policy->order_bounds, policy->order_bounds_count, facts->order)));
	const uint64_t *always = index_row(policy, policy_index_always(policy));
	uint32_t in_table = 0;

	for (uint32_t word = 0; word < policy->index_words; word++) {
		candidates[word] = roles[word] & phases[word] & apis[word] & devices[word] & sizes[word] &
				   orders[word];
		for (uint64_t left = candidates[word] & ~always[word]; left && in_table <= FEW; left &= left - 1)
			in_table++;
	}
	return in_table;
}

uint32_t policy_match(const struct policy *policy, const struct policy_facts *facts)
{
	const uint64_t *always = index_row(policy, policy_index_always(policy));
	uint64_t candidates[POLICY_RULES_MAX / 64];
	struct found found;
	struct memo memo = {.slots[0].pattern = 0};
	/* reading the texts once costs as much as trying a few patterns on them */
	bool by_text = find_candidates(policy, facts, candidates) > FEW && policy->gram_heads_count;

	if (by_text) {
		memcpy(found.rules, always, policy->index_words * sizeof(*found.rules));
		find_by_text(policy, facts, &found);
	}
	for (uint32_t word = 0; word < policy->index_words; word++) {
		uint64_t left = by_text ? candidates[word] & found.rules[word] : candidates[word];

		for (; left; left &= left - 1) {
			uint32_t number = word * 64 + (uint32_t)__builtin_ctzll(left);

			if (number < policy->rules_count && texts_allow(policy, number, facts, by_text ? &found : NULL, &memo))
				return number;
		}
	}
	return policy->rules_count - 1;
}
