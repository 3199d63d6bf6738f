/* lifecycle/granules.c
 * A leaf covers 2^14 granules (32 GiB of addresses) in 128 KiB of lazily touched memory. */
#include "lifecycle/granules.h"

#include <stddef.h>
#include <sys/mman.h>

#define LEAF_ENTRIES (1ull << GRANULE_LEAF_BITS)
#define LEAF_BYTES (LEAF_ENTRIES * sizeof(uintptr_t))
#define ADDRESS_END (1ull << 48)

static uintptr_t *leaf_at(const struct granules *table, uint64_t granule)
{
	return __atomic_load_n(&table->leaves[granule >> GRANULE_LEAF_BITS], __ATOMIC_ACQUIRE);
}

/* mmap, not malloc: untouched parts of a leaf cost nothing, and zero is what an empty entry must read. */
static bool ensure_leaf(struct granules *table, uint64_t granule)
{
	uintptr_t **slot = &table->leaves[granule >> GRANULE_LEAF_BITS];
	uintptr_t *expected = NULL;
	void *leaf;

	if (__atomic_load_n(slot, __ATOMIC_ACQUIRE))
		return true;
	leaf = mmap(NULL, LEAF_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (leaf == MAP_FAILED)
		return false;
	if (!__atomic_compare_exchange_n(slot, &expected, leaf, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		munmap(leaf, LEAF_BYTES);
	return true;
}

static bool in_reach(uint64_t address, uint64_t bytes)
{
	return address % GRANULE_BYTES == 0 && bytes % GRANULE_BYTES == 0 && address < ADDRESS_END &&
	       bytes <= ADDRESS_END - address;
}

static void fill(struct granules *table, uint64_t address, uint64_t bytes, uintptr_t value)
{
	uint64_t first = address >> GRANULE_SHIFT;
	uint64_t last = (address + bytes) >> GRANULE_SHIFT;

	for (uint64_t granule = first; granule < last; granule++) {
		uintptr_t *leaf = leaf_at(table, granule);

		if (leaf)
			__atomic_store_n(&leaf[granule % LEAF_ENTRIES], value, __ATOMIC_RELEASE);
	}
}

bool granules_set(struct granules *table, uint64_t address, uint64_t bytes, const void *owner, enum granule_tag tag)
{
	uint64_t first = address >> GRANULE_SHIFT;
	uint64_t last = (address + bytes) >> GRANULE_SHIFT;

	if (!in_reach(address, bytes) || bytes == 0)
		return false;
	for (uint64_t leaf = first >> GRANULE_LEAF_BITS; leaf <= (last - 1) >> GRANULE_LEAF_BITS; leaf++) {
		if (!ensure_leaf(table, leaf << GRANULE_LEAF_BITS))
			return false;
	}
	fill(table, address, bytes, (uintptr_t)owner | (uintptr_t)tag);
	return true;
}

void granules_clear(struct granules *table, uint64_t address, uint64_t bytes)
{
	if (in_reach(address, bytes))
		fill(table, address, bytes, 0);
}

void *granules_find(const struct granules *table, uint64_t address, enum granule_tag tag)
{
	uint64_t granule = address >> GRANULE_SHIFT;
	uintptr_t *leaf, entry;

	if (address >= ADDRESS_END)
		return NULL;
	leaf = leaf_at(table, granule);
	if (!leaf)
		return NULL;
	entry = __atomic_load_n(&leaf[granule % LEAF_ENTRIES], __ATOMIC_ACQUIRE);
	if (!entry || (entry & 1) != (uintptr_t)tag)
		return NULL;
	return (void *)(entry & ~(uintptr_t)1);
}

void granules_release(struct granules *table)
{
	for (size_t i = 0; i < sizeof(table->leaves) / sizeof(table->leaves[0]); i++) {
		if (table->leaves[i])
			munmap(table->leaves[i], LEAF_BYTES);
		table->leaves[i] = NULL;
	}
}
