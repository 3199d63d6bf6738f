/* policy/source/compile_index.c
 * For each role, phase, call and size class the set of rules that allow it, as policy/match.h lays the rows out. */
#include <stdlib.h>

#include "policy/source/compile_priv.h"

static int by_value(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

/* The sizes at which the set of rules changes, sorted, each once. */
static void add_bounds(struct builder *b)
{
	const struct policy_rule *rules = b->lists[POLICY_SECTION_RULES];
	const struct policy_range *ranges = b->lists[POLICY_SECTION_RANGES];
	uint64_t *bounds;
	size_t kept = 0;

	for (size_t i = 0; i < b->counts[POLICY_SECTION_RULES]; i++) {
		for (uint32_t k = 0; k < rules[i].sizes.count; k++) {
			const struct policy_range *range = &ranges[rules[i].sizes.first + k];
			uint64_t *low = builder_add(b, POLICY_SECTION_BOUNDS);
			uint64_t *high =
				low && range->high != UINT64_MAX ? builder_add(b, POLICY_SECTION_BOUNDS) : NULL;

			/* the list may have moved when the second was added */
			if (low)
				((uint64_t *)b->lists[POLICY_SECTION_BOUNDS])[b->counts[POLICY_SECTION_BOUNDS] -
									      (high ? 2 : 1)] = range->low;
			if (high)
				*high = range->high + 1;
		}
	}
	bounds = b->lists[POLICY_SECTION_BOUNDS];
	if (!bounds)
		return;
	qsort(bounds, b->counts[POLICY_SECTION_BOUNDS], sizeof(*bounds), by_value);
	for (size_t i = 0; i < b->counts[POLICY_SECTION_BOUNDS]; i++)
		if (!kept || bounds[kept - 1] != bounds[i])
			bounds[kept++] = bounds[i];
	b->counts[POLICY_SECTION_BOUNDS] = kept;
}

/* How many bounds are at most @value. */
static size_t class_of(const struct builder *b, uint64_t value)
{
	const uint64_t *bounds = b->lists[POLICY_SECTION_BOUNDS];
	size_t low = 0, high = b->counts[POLICY_SECTION_BOUNDS];

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (bounds[middle] <= value)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static void add_rule_to_index(const struct builder *b, uint64_t *index, size_t words, uint32_t number)
{
	const struct policy_rule *rule = &((const struct policy_rule *)b->lists[POLICY_SECTION_RULES])[number];
	const struct policy_range *ranges = b->lists[POLICY_SECTION_RANGES];
	size_t roles = b->counts[POLICY_SECTION_ROLES], phases = b->counts[POLICY_SECTION_PHASES];
	size_t classes = b->counts[POLICY_SECTION_BOUNDS] + 1, word = number / 64;
	uint64_t bit = 1ull << number % 64, *row = index + word;

	for (size_t i = 0; i <= roles; i++, row += words)
		if (rule->roles >> (i < roles ? i : POLICY_NONE_BIT) & 1)
			*row |= bit;
	for (size_t i = 0; i <= phases; i++, row += words)
		if (rule->phases >> (i < phases ? i : POLICY_NONE_BIT) & 1)
			*row |= bit;
	for (size_t i = 0; i <= POLICY_API_COUNT; i++, row += words)
		if (rule->apis >> (i < POLICY_API_COUNT ? i : POLICY_API_UNKNOWN_BIT) & 1)
			*row |= bit;
	for (size_t i = 0; !rule->sizes.count && i < classes; i++)
		row[i * words] |= bit;
	for (uint32_t k = 0; k < rule->sizes.count; k++) {
		const struct policy_range *range = &ranges[rule->sizes.first + k];

		for (size_t i = class_of(b, range->low); i <= class_of(b, range->high); i++)
			row[i * words] |= bit;
	}
}

void add_index(struct builder *b)
{
	size_t words, rows;
	uint64_t *index;

	add_bounds(b);
	words = (b->counts[POLICY_SECTION_RULES] + 63) / 64;
	rows = b->counts[POLICY_SECTION_ROLES] + 1 + b->counts[POLICY_SECTION_PHASES] + 1 + POLICY_API_COUNT + 1 +
	       b->counts[POLICY_SECTION_BOUNDS] + 1 + 1;
	index = arena_new(b->arena, words * rows, sizeof(*index));
	if (!index)
		return;
	for (uint32_t i = 0; i < b->counts[POLICY_SECTION_RULES]; i++)
		add_rule_to_index(b, index, words, i);
	add_grams(b, index + (rows - 1) * words);
	b->lists[POLICY_SECTION_INDEX] = index;
	b->counts[POLICY_SECTION_INDEX] = words * rows;
}
