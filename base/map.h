/* base/map.h
 * A hash map from 64-bit keys (addresses, handles) to pointers: uthash behind four verbs, so that its macros, allocator
 * and out-of-memory behaviour are set in one place. Not locked; the owner's lock covers it. Values are borrowed. */
#ifndef SUBLET_BASE_MAP_H
#define SUBLET_BASE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct map_entry;

/* Zero-initialised is an empty map. */
struct map {
	struct map_entry *head;
};

/* Put or replace. False when memory ran out; then the map is as before. */
bool map_put(struct map *map, uint64_t key, void *value);
/* NULL when absent. */
void *map_get(const struct map *map, uint64_t key);
/* Remove and return the value, NULL when absent. */
void *map_take(struct map *map, uint64_t key);
size_t map_count(const struct map *map);
/* Calls @visit for every entry; @visit must not change the map. */
void map_each(const struct map *map, void (*visit)(uint64_t key, void *value, void *arg), void *arg);
/* Forget all entries. @free_value may be NULL. */
void map_clear(struct map *map, void (*free_value)(void *value));

#endif
