/* lifecycle/granules.h
 * "Which allocation is this pointer in?": one entry per 2 MiB of address space, two levels, lock-free to read.
 * Leaves are made on need and never freed, so a reader never sees one vanish; what an entry points to is kept by its
 * owner's rules (records are recycled, never returned to malloc). Sublet's own arenas and foreign mappings (memory the
 * application maps itself) hang in the same table and differ in the tag. */
#ifndef SUBLET_LIFECYCLE_GRANULES_H
#define SUBLET_LIFECYCLE_GRANULES_H

#include <stdbool.h>
#include <stdint.h>

#define GRANULE_SHIFT 21 /* 2 MiB: smallest page of VMM memory on every current device (FACTS: minimum = recommended) */
#define GRANULE_BYTES (1ull << GRANULE_SHIFT)

/* 48 bits of address: 47 user bits on x86-64, 48 on aarch64. */
#define GRANULE_LEAF_BITS 14
#define GRANULE_ROOT_BITS (48 - GRANULE_SHIFT - GRANULE_LEAF_BITS)

enum granule_tag {
	GRANULE_MANAGED = 0, /* struct allocation */
	GRANULE_FOREIGN = 1, /* struct native_mapping */
};

struct granules {
	uintptr_t *leaves[1u << GRANULE_ROOT_BITS];
};

/* All of it; the caller makes sure that nobody reads any more (unit tests, never the preloaded library). */
void granules_release(struct granules *table);

/* Point [address, address + bytes), both multiples of GRANULE_BYTES, at @owner (at least 2-aligned) with @tag.
 * False when a leaf could not be had or the range is out of reach; then nothing is set. Writers of one range are
 * serialised by the owner's lock. */
bool granules_set(struct granules *table, uint64_t address, uint64_t bytes, const void *owner, enum granule_tag tag);
void granules_clear(struct granules *table, uint64_t address, uint64_t bytes);

/* The owner at @address if it carries @tag, else NULL. Any thread, no lock. */
void *granules_find(const struct granules *table, uint64_t address, enum granule_tag tag);

#endif
