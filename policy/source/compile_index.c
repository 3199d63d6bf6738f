/* policy/source/compile_index.c
 * For each role, phase, call, device, class of sizes and class of orders the set of rules that allow it, as policy/match.h lays the rows out. */
#include <stdlib.h>

#include "policy/source/compile_priv.h"

static int by_value(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

static struct policy_span ranges_of(const struct policy_rule *rule, enum policy_section section)
{
	return section == POLICY_SECTION_SIZE_BOUNDS ? rule->sizes : rule->orders;
}

static void add_bound(struct builder *b, enum policy_section section, uint64_t value)
{
	uint64_t *place = builder_add(b, section);

	if (place)
		*place = value;
}

/* The sizes, or orders, at which the set of rules changes, sorted, each once. */
static void add_bounds(struct builder *b, enum policy_section section)
{
	const struct policy_rule *rules = b->lists[POLICY_SECTION_RULES];
	const struct policy_range *ranges = b->lists[POLICY_SECTION_RANGES];
	uint64_t *bounds;
	size_t kept = 0;

	for (size_t i = 0; i < b->counts[POLICY_SECTION_RULES]; i++) {
		struct policy_span span = ranges_of(&rules[i], section);

		for (uint32_t k = 0; k < span.count; k++) {
			add_bound(b, section, ranges[span.first + k].low);
			if (ranges[span.first + k].high != UINT64_MAX)
				add_bound(b, section, ranges[span.first + k].high + 1);
		}
	}
	bounds = b->lists[section];
	if (!bounds)
		return;
	qsort(bounds, b->counts[section], sizeof(*bounds), by_value);
	for (size_t i = 0; i < b->counts[section]; i++)
		if (!kept || bounds[kept - 1] != bounds[i])
			bounds[kept++] = bounds[i];
	b->counts[section] = kept;
}

/* How many bounds are at most @value. */
static size_t class_of(const struct builder *b, enum policy_section section, uint64_t value)
{
	const uint64_t *bounds = b->lists[section];
	size_t low = 0, high = b->counts[section];

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (bounds[middle] <= value)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Set @bit in the rows at *@row, one per class, of the classes that @rule allows; *@row moves behind them. */
static void add_classes(const struct builder *b, const struct policy_rule *rule, enum policy_section section,
	uint64_t bit, size_t words, uint64_t **row)
{
	const struct policy_range *ranges = b->lists[POLICY_SECTION_RANGES];
	struct policy_span span = ranges_of(rule, section);
	size_t classes = b->counts[section] + 1;

	for (size_t i = 0; !span.count && i < classes; i++)
		(*row)[i * words] |= bit;
	for (uint32_t k = 0; k < span.count; k++) {
		const struct policy_range *range = &ranges[span.first + k];
		size_t last = class_of(b, section, range->high);

		for (size_t i = class_of(b, section, range->low); i <= last; i++)
			(*row)[i * words] |= bit;
	}
	*row += classes * words;
}

static void add_rule_to_index(const struct builder *b, uint64_t *index, size_t words, uint32_t number)
{
	const struct policy_rule *rule = &((const struct policy_rule *)b->lists[POLICY_SECTION_RULES])[number];
	size_t roles = b->counts[POLICY_SECTION_ROLES], phases = b->counts[POLICY_SECTION_PHASES];
	size_t word = number / 64;
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
	for (size_t i = 0; i < POLICY_DEVICES_MAX; i++, row += words)
		if (rule->devices >> i & 1)
			*row |= bit;
	if (rule->devices == POLICY_ANY) /* only a rule that asks for none knows of higher ones */
		*row |= bit;
	row += words;
	add_classes(b, rule, POLICY_SECTION_SIZE_BOUNDS, bit, words, &row);
	add_classes(b, rule, POLICY_SECTION_ORDER_BOUNDS, bit, words, &row);
}

void add_index(struct builder *b)
{
	size_t words, rows;
	uint64_t *index;

	add_bounds(b, POLICY_SECTION_SIZE_BOUNDS);
	add_bounds(b, POLICY_SECTION_ORDER_BOUNDS);
	words = (b->counts[POLICY_SECTION_RULES] + 63) / 64;
	rows = b->counts[POLICY_SECTION_ROLES] + 1 + b->counts[POLICY_SECTION_PHASES] + 1 + POLICY_API_COUNT + 1 +
	       POLICY_DEVICES_MAX + 1 + b->counts[POLICY_SECTION_SIZE_BOUNDS] + 1 +
	       b->counts[POLICY_SECTION_ORDER_BOUNDS] + 1 + 1;
	index = arena_new(b->arena, words * rows, sizeof(*index));
	if (!index)
		return;
	for (uint32_t i = 0; i < b->counts[POLICY_SECTION_RULES]; i++)
		add_rule_to_index(b, index, words, i);
	add_grams(b, index + (rows - 1) * words);
	b->lists[POLICY_SECTION_INDEX] = index;
	b->counts[POLICY_SECTION_INDEX] = words * rows;
}
