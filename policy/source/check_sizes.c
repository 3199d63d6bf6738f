/* policy/source/check_sizes.c
 * Sizes against each other. Percentages are of machines that are not here, so they are compared with each other only.
 */
#include "base/size.h"
#include "policy/source/check_priv.h"

enum { SIZE_TEXT = 24 };

#define EXPECT_MAX (1ull << 50) /* 1 PiB: sums over all rules stay below 2^63 */

/* Is @part certainly more than @whole? Not given compares with nothing. */
static bool is_more(const struct amount *part, const struct amount *whole)
{
	if (!part->where.line || !whole->where.line)
		return false;
	if (part->value.percent_hundredths && whole->value.percent_hundredths)
		return part->value.percent_hundredths > whole->value.percent_hundredths;
	return !part->value.percent_hundredths && !whole->value.percent_hundredths &&
	       part->value.bytes > whole->value.bytes;
}

static bool is_same(const struct amount *a, const struct amount *b)
{
	return a->where.line && b->where.line && a->value.bytes == b->value.bytes &&
	       a->value.percent_hundredths == b->value.percent_hundredths;
}

/* Device bytes that may be used, 0 when only the running system knows. */
static uint64_t usable_bytes(const struct policy_tree *tree)
{
	uint64_t capacity = tree->capacity.value.bytes, reserve = tree->reserve.value.bytes;

	if (!capacity || tree->reserve.value.percent_hundredths)
		return 0;
	return reserve < capacity ? capacity - reserve : 0;
}

static void check_settings(const struct policy_tree *tree, struct diagnostics *diagnostics)
{
	char a[SIZE_TEXT], b[SIZE_TEXT];

	if (is_more(&tree->reserve, &tree->capacity) || is_same(&tree->reserve, &tree->capacity))
		complain(diagnostics, MESSAGE_TOO_BIG_FOR_CAPACITY, tree->reserve.where,
			"'reserve' leaves nothing of 'capacity'; write less than 'capacity'");
	if (tree->reserve.where.line && !tree->capacity.where.line)
		complain(diagnostics, MESSAGE_WITHOUT_EFFECT, tree->reserve.where,
			"'reserve' changes nothing without 'capacity', of which it is a part; add 'capacity', such as 95%%");
	for (size_t i = 0; i < tree->roles_count; i++)
		if (is_more(&tree->roles[i].budget, &tree->capacity))
			complain(diagnostics, MESSAGE_TOO_BIG_FOR_CAPACITY, tree->roles[i].budget.where,
				"the budget of role '%s' is more than 'capacity'; write no more than that",
				tree->roles[i].name.text);
	for (size_t i = 0; i < tree->objects_count; i++) {
		const struct amount *window = &tree->objects[i].window;

		if (window->where.line && usable_bytes(tree) && window->value.bytes > usable_bytes(tree))
			complain(diagnostics, MESSAGE_TOO_BIG_FOR_CAPACITY, window->where,
				"a window of %s does not fit into the %s that 'capacity' and 'reserve' leave; make it smaller",
				size_format(window->value.bytes, a, sizeof(a)),
				size_format(usable_bytes(tree), b, sizeof(b)));
	}
}

/* What one device holds of @object in @phase, and what the pool holds for one device. */
static void add_expected(const struct object_tree *object, uint32_t phase, uint64_t *device_bytes, uint64_t *host_bytes)
{
	uint64_t bytes = object->expect.value.bytes, window = object->window.value.bytes;

	switch ((enum policy_want)object->wants[phase].want) {
	case POLICY_WANT_DEVICE:
	case POLICY_WANT_KEEP:
		*device_bytes += bytes;
		break;
	case POLICY_WANT_DEMAND:
		*device_bytes += window < bytes ? window : bytes;
		*host_bytes += window < bytes ? bytes - window : 0;
		break;
	case POLICY_WANT_PARKED:
	case POLICY_WANT_HOST:
		*host_bytes += bytes;
		break;
	case POLICY_WANT_EMPTY:
	case POLICY_WANT_COUNT:
		break;
	}
}

/* Members of a share group are the same bytes: the first one counts. */
static bool is_counted_already(const struct policy_tree *tree, size_t number)
{
	const struct object_tree *object = &tree->objects[number];

	if (object->group == POLICY_NONE || !tree->groups[object->group].objects.count)
		return false;
	return tree->groups[object->group].objects.list[0].number != number;
}

static void check_phase_sums(
	const struct policy_tree *tree, uint32_t phase, bool *said_pool, struct diagnostics *diagnostics)
{
	uint64_t device_bytes = 0, host_bytes = 0, devices = tree->devices ? tree->devices : 1;
	char a[SIZE_TEXT], b[SIZE_TEXT];

	for (size_t i = 0; i < tree->objects_count; i++)
		if (tree->objects[i].expect.where.line && !is_counted_already(tree, i))
			add_expected(&tree->objects[i], phase, &device_bytes, &host_bytes);
	if (usable_bytes(tree) && device_bytes > usable_bytes(tree))
		complain(diagnostics, MESSAGE_DEVICE_TOO_SMALL, tree->phases[phase].name.where,
			"phase '%s' has %s of objects on the device, 'capacity' and 'reserve' leave %s; make one of them wait elsewhere in "
			"this phase",
			tree->phases[phase].name.text, size_format(device_bytes, a, sizeof(a)),
			size_format(usable_bytes(tree), b, sizeof(b)));
	if (tree->host_pool.value.bytes && host_bytes > tree->host_pool.value.bytes / devices && !*said_pool) {
		complain(diagnostics, MESSAGE_POOL_TOO_SMALL, tree->host_pool.where,
			"in phase '%s' %s per device are off it at once, on %u device%s; write at least 'host_pool: %lluGiB'",
			tree->phases[phase].name.text, size_format(host_bytes, a, sizeof(a)), (unsigned int)devices,
			devices == 1 ? "" : "s",
			(unsigned long long)(((host_bytes + (1ull << 30) - 1) >> 30) * devices));
		*said_pool = true;
	}
}

void check_sizes(struct policy_tree *tree, struct diagnostics *diagnostics)
{
	bool said_pool = false;

	for (size_t i = 0; i < tree->objects_count; i++)
		if (tree->objects[i].expect.value.bytes > EXPECT_MAX)
			tree->objects[i].expect.value.bytes = EXPECT_MAX;
	check_settings(tree, diagnostics);
	for (uint32_t i = 0; i < tree->phases_count; i++)
		check_phase_sums(tree, i, &said_pool, diagnostics);
}
