/* policy/source/compile_grams.c
 * The gram table of policy/match.h. Of a pattern's literal grams the one that the fewest patterns hold is taken, so that
 * `*module_17:*` is found by `_17:` and not by `modu` together with a thousand others. */
#include <string.h>

#include "policy/glob.h"
#include "policy/source/compile_priv.h"

enum {
	COUNTERS = 1 << 16,
	COUNTER_SHIFT = 16, /* the upper bits of a product depend on all bytes, the lower ones only on the first */
	BUCKETS_PER_ENTRY = 2,
	SHARED_MAX = 256, /* a gram that more patterns hold tells nothing apart and costs a walk over all of them */
};

/* The text keys by which a rule may be found; of equally good ones the first, whose texts are short. */
static const enum policy_match_key text_keys[] = {
	POLICY_KEY_TAG, POLICY_KEY_PYTHON, POLICY_KEY_STACK, POLICY_KEY_LIBRARY, POLICY_KEY_THREAD};

enum { TEXT_KEYS = sizeof(text_keys) / sizeof(text_keys[0]) };

static const struct patterns *patterns_of(const struct match_tree *match, enum policy_match_key key)
{
	switch ((int)key) {
	case POLICY_KEY_LIBRARY:
		return &match->library;
	case POLICY_KEY_STACK:
		return &match->stack;
	case POLICY_KEY_PYTHON:
		return &match->python;
	case POLICY_KEY_THREAD:
		return &match->thread;
	default:
		return &match->tag;
	}
}

static void count_grams(uint32_t *counters, const char *pattern, enum policy_match_key key)
{
	const char *at = pattern, *literal;
	size_t length;

	while ((literal = glob_next_literal(&at, &length)), length)
		for (size_t i = 0; i + POLICY_GRAM_BYTES <= length; i++)
			counters[policy_gram_hash(literal + i, key) >> COUNTER_SHIFT]++;
}

/* What a pattern is found by: two grams in a row, of which one lies at an even place of the text, or one gram where the
 * pattern has no more. */
struct found_by {
	uint32_t hashes[2];
	uint32_t count;	 /* 0: by nothing */
	uint64_t shared; /* how many patterns hold them */
};

/* The rarest grams of @pattern. */
static struct found_by rarest_grams(const uint32_t *counters, const char *pattern, enum policy_match_key key)
{
	struct found_by best = {.count = 0};
	const char *at = pattern, *literal;
	size_t length;

	while ((literal = glob_next_literal(&at, &length)), length) {
		struct found_by now = {.count = length > POLICY_GRAM_BYTES ? 2 : 1};

		for (size_t i = 0; i + POLICY_GRAM_BYTES + now.count - 1 <= length; i++) {
			bool is_too_common = false;

			now.shared = 0;
			for (uint32_t k = 0; k < now.count; k++) {
				now.hashes[k] = policy_gram_hash(literal + i + k, key);
				now.shared += counters[now.hashes[k] >> COUNTER_SHIFT];
				is_too_common |= counters[now.hashes[k] >> COUNTER_SHIFT] > SHARED_MAX;
			}
			if (is_too_common)
				continue;
			if (now.count > best.count || (now.count == best.count && now.shared < best.shared))
				best = now;
		}
	}
	return best;
}

/* How many patterns share the grams by which @patterns would be found; 0 when not all can be. */
static uint64_t shared(const uint32_t *counters, const struct patterns *patterns, enum policy_match_key key)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < patterns->count; i++) {
		struct found_by by = rarest_grams(counters, patterns->list[i].text, key);

		if (!by.count)
			return 0;
		sum += by.shared;
	}
	return sum;
}

/* The key by which rule @number is found, POLICY_KEY_COUNT when by none: the one that tells it from most others. */
static enum policy_match_key key_of_rule(const struct policy_tree *tree, const uint32_t *counters, size_t number)
{
	const struct object_tree *object = &tree->objects[number];
	enum policy_match_key best = POLICY_KEY_COUNT;
	uint64_t least = 0;

	for (int k = 0; k < TEXT_KEYS && object->kind != POLICY_RULE_DEFAULT; k++) {
		uint64_t now = shared(counters, patterns_of(&object->match, text_keys[k]), text_keys[k]);

		if (now && (!least || now < least)) {
			least = now;
			best = text_keys[k];
		}
	}
	return best;
}

/* Entries by bucket, behind each other: counted, summed, placed. */
static void place_entries(struct builder *b, const struct policy_gram *entries, size_t count)
{
	struct policy_gram *grams;
	uint64_t *bits;
	uint32_t buckets = 8, shift, *heads;

	while (buckets < count * BUCKETS_PER_ENTRY)
		buckets *= 2;
	shift = 32 - (uint32_t)__builtin_ctz(buckets);
	heads = arena_new(b->arena, (size_t)buckets + 2, sizeof(*heads)); /* one more than is kept, to count into */
	grams = arena_new(b->arena, count, sizeof(*grams));
	bits = arena_new(b->arena, (1u << POLICY_GRAM_BITS_LOG2) / 64, sizeof(*bits));
	if (!heads || !grams || !bits)
		return;
	for (size_t i = 0; i < count; i++)
		heads[(entries[i].hash >> shift) + 2]++;
	for (size_t i = 0; i < count; i++) {
		uint32_t bit = entries[i].hash >> POLICY_GRAM_BITS_SHIFT;

		bits[bit / 64] |= 1ull << bit % 64;
	}
	for (uint32_t i = 2; i < buckets + 2; i++)
		heads[i] += heads[i - 1];
	for (size_t i = 0; i < count; i++)
		grams[heads[(entries[i].hash >> shift) + 1]++] = entries[i];
	b->lists[POLICY_SECTION_GRAM_HEADS] = heads;
	b->counts[POLICY_SECTION_GRAM_HEADS] = (size_t)buckets + 1;
	b->lists[POLICY_SECTION_GRAM_BITS] = bits;
	b->counts[POLICY_SECTION_GRAM_BITS] = (1u << POLICY_GRAM_BITS_LOG2) / 64;
	b->lists[POLICY_SECTION_GRAMS] = grams;
	b->counts[POLICY_SECTION_GRAMS] = count;
}

void add_grams(struct builder *b, uint64_t *always)
{
	const struct policy_tree *tree = b->tree;
	struct policy_rule *rules = b->lists[POLICY_SECTION_RULES];
	uint32_t *counters = arena_new(b->arena, COUNTERS, sizeof(*counters));
	struct policy_gram *entries = NULL;
	size_t count = 0;

	if (!counters)
		return;
	for (size_t i = 0; i < tree->objects_count; i++) {
		for (int k = 0; k < TEXT_KEYS; k++) {
			const struct patterns *patterns = patterns_of(&tree->objects[i].match, text_keys[k]);

			for (size_t p = 0; p < patterns->count; p++)
				count_grams(counters, patterns->list[p].text, text_keys[k]);
		}
	}
	for (size_t i = 0; i < tree->objects_count; i++) {
		enum policy_match_key key = key_of_rule(tree, counters, i);
		const struct patterns *patterns = patterns_of(&tree->objects[i].match, key);

		rules[i].found_by = key < POLICY_KEY_COUNT ? (uint32_t)key : POLICY_NONE;
		if (key == POLICY_KEY_COUNT) {
			always[i / 64] |= 1ull << i % 64;
			continue;
		}
		b->header.gram_keys |= 1u << key;
		for (size_t p = 0; p < patterns->count; p++) {
			struct found_by by = rarest_grams(counters, patterns->list[p].text, key);

			if (by.count == 1)
				b->header.gram_all_places |= 1u << key;
			for (uint32_t k = 0; k < by.count; k++) {
				if (!arena_room(b->arena, &entries, count, sizeof(*entries)))
					return;
				entries[count++] = (struct policy_gram){by.hashes[k], (uint32_t)i};
			}
		}
	}
	if (count)
		place_entries(b, entries, count);
}
