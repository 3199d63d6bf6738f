/* lifecycle/history.c
 * Groups are few and live as long as the process: what is freed keeps its group. */
#include "lifecycle/history.h"

#include <stdlib.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/clock.h"
#include "lifecycle/records.h"

void history_init(struct history *history)
{
	*history = (struct history){0};
}

void history_release(struct history *history)
{
	struct history_group *group = history->oldest;

	map_clear(&history->by_hash, NULL);
	while (group) {
		struct history_group *newer = group->newer;

		free(group);
		group = newer;
	}
	*history = (struct history){0};
}

static uint64_t hash_of(const struct allocation *allocation)
{
	const uint64_t key[] = {(uintptr_t)allocation->site, allocation->size_bytes, (uint64_t)allocation->device};

	return XXH3_64bits(key, sizeof(key));
}

static struct history_group *add_group(struct history *history, uint64_t hash, const struct allocation *allocation)
{
	struct history_group *group = history->count < HISTORY_MAX ? calloc(1, sizeof(*group)) : NULL;

	if (!group)
		return NULL;
	group->site = allocation->site;
	group->size_bytes = allocation->size_bytes;
	group->device = allocation->device;
	group->first_serial = allocation->serial;
	group->first_ns = allocation->since_ns;
	group->next = map_get(&history->by_hash, hash);
	if (!map_put(&history->by_hash, hash, group)) {
		free(group);
		return NULL;
	}
	if (history->newest)
		history->newest->newer = group;
	else
		history->oldest = group;
	history->newest = group;
	history->count++;
	return group;
}

void history_add(struct history *history, struct allocation *allocation)
{
	const uint64_t hash = hash_of(allocation);
	struct history_group *group = map_get(&history->by_hash, hash);

	allocation->since_ns = clock_now_ns();
	while (group && (group->site != allocation->site || group->size_bytes != allocation->size_bytes ||
				group->device != allocation->device))
		group = group->next;
	if (!group)
		group = add_group(history, hash, allocation);
	allocation->group = group;
	if (!group) {
		history->left_out++;
		return;
	}
	group->count++;
	if (++group->live > group->peak_live)
		group->peak_live = group->live;
	group->last_serial = allocation->serial;
	group->last_ns = allocation->since_ns;
}

void history_freed(struct history_group *group, uint64_t since_ns)
{
	if (!group)
		return;
	group->live--;
	group->freed++;
	group->freed_lived_ns += clock_now_ns() - since_ns;
}

void history_unfreed(struct history_group *group, uint64_t since_ns)
{
	uint64_t lived_ns = clock_now_ns() - since_ns;

	if (!group)
		return;
	group->live++;
	group->freed--;
	group->freed_lived_ns -= lived_ns < group->freed_lived_ns ? lived_ns : group->freed_lived_ns;
}
