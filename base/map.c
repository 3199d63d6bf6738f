/* base/map.c
 * HASH_NONFATAL_OOM: uthash's default answer to exhausted memory is exit(), which is not ours to call. */
#include "base/map.h"

#include <stdlib.h>

#define HASH_NONFATAL_OOM 1
#define uthash_nonfatal_oom(entry)                                                                                     \
	do {                                                                                                           \
		(entry)->dropped = true;                                                                               \
	} while (0)
#include <uthash.h>
/* uthash's hash function says so in comments, which clang does not read. */
#pragma GCC diagnostic ignored "-Wimplicit-fallthrough"

struct map_entry {
	uint64_t key;
	void *value;
	bool dropped; /* set by uthash when it could not grow its table */
	UT_hash_handle hh;
};

bool map_put(struct map *map, uint64_t key, void *value)
{
	struct map_entry *entry = NULL;

	HASH_FIND(hh, map->head, &key, sizeof(key), entry);
	if (entry) {
		entry->value = value;
		return true;
	}
	entry = calloc(1, sizeof(*entry));
	if (!entry)
		return false;
	entry->key = key;
	entry->value = value;
	HASH_ADD(hh, map->head, key, sizeof(key), entry);
	if (entry->dropped) {
		free(entry);
		return false;
	}
	return true;
}

void *map_get(const struct map *map, uint64_t key)
{
	struct map_entry *entry = NULL;

	HASH_FIND(hh, map->head, &key, sizeof(key), entry);
	return entry ? entry->value : NULL;
}

void *map_take(struct map *map, uint64_t key)
{
	struct map_entry *entry = NULL;
	void *value;

	HASH_FIND(hh, map->head, &key, sizeof(key), entry);
	if (!entry)
		return NULL;
	value = entry->value;
	HASH_DEL(map->head, entry);
	free(entry);
	return value;
}

size_t map_count(const struct map *map)
{
	return HASH_COUNT(map->head);
}

void map_each(const struct map *map, void (*visit)(uint64_t, void *, void *), void *arg)
{
	for (struct map_entry *entry = map->head; entry; entry = entry->hh.next)
		visit(entry->key, entry->value, arg);
}

void map_clear(struct map *map, void (*free_value)(void *))
{
	struct map_entry *entry, *next;

	HASH_ITER (hh, map->head, entry, next) {
		HASH_DEL(map->head, entry);
		if (free_value)
			free_value(entry->value);
		free(entry);
	}
}
