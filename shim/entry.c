/* shim/entry.c
 * Expands the list, and holds it to cuda.h: each row redeclares its function, so a row that differs from the header does
 * not compile, and a wrapper that differs from its row does not either. */
#include "shim/entry.h"

#include <string.h>

#define WRAP(symbol, base, since, stream, need, group, params, args) CUresult CUDAAPI symbol params;
#define PASS(symbol, base, since, stream, need, reason, params, args) CUresult CUDAAPI symbol params;
#include "shim/entries.def"

#define LEGACY false
#define PER_THREAD true
#define OPTIONAL false
#define REQUIRED true

const struct entry entries[ENTRY_COUNT] = {
#define WRAP(symbol, base, since, stream, need, group, params, args)                                                   \
	[ENTRY_##symbol] = {#symbol, base, since, stream, need, (void *)symbol},
#define PASS(symbol, base, since, stream, need, reason, params, args)                                                  \
	[ENTRY_##symbol] = {#symbol, base, since, stream, need, NULL},
#include "shim/entries.def"
};

/* Look-ups come in batches of hundreds (libcudart: 439), so the list is hashed, on first use and without a lock (a thread
 * inside dlopen may hold the loader's). Two threads may fill at once: places are claimed by compare-and-swap, and who
 * finds its own id in a place was second. Ids are stored plus one, 0 is an empty place. */
#define HASH_PLACES 2048
static unsigned short by_symbol[HASH_PLACES], by_base[HASH_PLACES];
static int hashed;

static unsigned hash_of(const char *text)
{
	unsigned hash = 2166136261u;

	for (; *text; text++)
		hash = (hash ^ (unsigned char)*text) * 16777619u;
	return hash ^ (hash >> 15);
}

/* Claim a place for @id, or find that another thread has. */
static void claim(unsigned short *table, unsigned hash, int id)
{
	unsigned short stored = (unsigned short)(id + 1);

	for (unsigned place = hash % HASH_PLACES;; place = (place + 1) % HASH_PLACES) {
		unsigned short there = 0;

		if (__atomic_compare_exchange_n(&table[place], &there, stored, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE) ||
			there == stored)
			return;
	}
}

/* Rows of one base stand together in the list; only the first of them is hashed. */
static bool follows(int id)
{
	return id > 0 && id < ENTRY_COUNT && strcmp(entries[id].base, entries[id - 1].base) == 0;
}

static void fill(void)
{
	if (__atomic_load_n(&hashed, __ATOMIC_ACQUIRE))
		return;
	for (int id = 0; id < ENTRY_COUNT; id++) {
		claim(by_symbol, hash_of(entries[id].symbol), id);
		if (!follows(id))
			claim(by_base, hash_of(entries[id].base), id);
	}
	__atomic_store_n(&hashed, 1, __ATOMIC_RELEASE);
}

static int find(const unsigned short *table, const char *name, size_t name_offset)
{
	for (unsigned place = hash_of(name) % HASH_PLACES;; place = (place + 1) % HASH_PLACES) {
		unsigned short there = __atomic_load_n(&table[place], __ATOMIC_ACQUIRE);
		const char *candidate;

		if (!there)
			return -1;
		memcpy(&candidate, (const char *)&entries[there - 1] + name_offset, sizeof(candidate));
		if (strcmp(candidate, name) == 0)
			return there - 1;
	}
}

int entry_by_symbol(const char *symbol)
{
	fill();
	return find(by_symbol, symbol, offsetof(struct entry, symbol));
}

int entry_by_request(const char *base, int version, cuuint64_t flags)
{
	bool want_per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
	int best = -1, best_twin = -1, id;

	fill();
	id = find(by_base, base, offsetof(struct entry, base));
	if (id < 0)
		return -1;
	do {
		int *slot = entries[id].per_thread ? &best_twin : &best;

		if (entries[id].since <= version && (*slot < 0 || entries[id].since > entries[*slot].since))
			*slot = id;
		id++;
	} while (follows(id));
	return want_per_thread && best_twin >= 0 ? best_twin : best;
}
