/* lifecycle/callers/sites.c
 * Texts are interned, so two callers are the same when their pointers are. */
#include "lifecycle/callers/sites.h"

#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

void sites_init(struct sites *sites)
{
	ranked_lock_init(&sites->lock, RANK_SITES);
	sites->by_hash = (struct map){0};
	sites->count = 0;
}

static void free_chain(void *value)
{
	for (struct site *site = value; site;) {
		struct site *next = site->next;

		free(site);
		site = next;
	}
}

void sites_release(struct sites *sites)
{
	map_clear(&sites->by_hash, free_chain);
	ranked_lock_release(&sites->lock);
}

static uint64_t hash_of(const struct caller *caller)
{
	const char *const head[] = {caller->library[0], caller->library[1], caller->thread, caller->tag};
	uint64_t hash = XXH3_64bits(head, sizeof(head));

	hash = XXH3_64bits_withSeed(caller->stack, caller->stack_count * sizeof(caller->stack[0]), hash);
	return XXH3_64bits_withSeed(caller->python, caller->python_count * sizeof(caller->python[0]), hash);
}

static bool is_of(const struct site *site, const struct caller *caller)
{
	return site->library[0] == caller->library[0] && site->library[1] == caller->library[1] &&
	       site->thread == caller->thread && site->tag == caller->tag && site->stack_count == caller->stack_count &&
	       site->python_count == caller->python_count &&
	       memcmp(site->frames, caller->stack, caller->stack_count * sizeof(site->frames[0])) == 0 &&
	       memcmp(site->frames + site->stack_count, caller->python, caller->python_count * sizeof(site->frames[0])) == 0;
}

static struct site *make(const struct caller *caller)
{
	struct site *site = calloc(1, sizeof(*site) + (caller->stack_count + caller->python_count) * sizeof(site->frames[0]));

	if (!site)
		return NULL;
	memcpy(site->library, caller->library, sizeof(site->library));
	site->thread = caller->thread;
	site->tag = caller->tag;
	site->stack_count = (uint16_t)caller->stack_count;
	site->python_count = (uint16_t)caller->python_count;
	memcpy(site->frames, caller->stack, caller->stack_count * sizeof(site->frames[0]));
	memcpy(site->frames + site->stack_count, caller->python, caller->python_count * sizeof(site->frames[0]));
	return site;
}

/* Caller holds the lock. */
static const struct site *add(struct sites *sites, uint64_t hash, const struct caller *caller)
{
	struct site *site = sites->count < SITES_MAX ? make(caller) : NULL, *head = map_get(&sites->by_hash, hash);

	if (!site)
		return NULL;
	site->number = sites->count;
	site->next = head;
	if (!map_put(&sites->by_hash, hash, site)) {
		free(site);
		return NULL;
	}
	sites->count++;
	return site;
}

const struct site *sites_find(struct sites *sites, const struct caller *caller)
{
	const struct site *site;
	uint64_t hash;

	if (!caller->library[0] && !caller->thread && !caller->tag && !caller->stack_count && !caller->python_count)
		return NULL;
	hash = hash_of(caller);
	ranked_lock(&sites->lock);
	for (site = map_get(&sites->by_hash, hash); site && !is_of(site, caller);)
		site = site->next;
	if (!site)
		site = add(sites, hash, caller);
	ranked_unlock(&sites->lock);
	return site;
}
