/* lifecycle/triggers.c
 * Ranges with their names, and the question to the policy. On threads of the program, inside calls that it believes to be
 * nearly free: no lock, no wait; memory only where a name is kept. */
#include "lifecycle/triggers.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/attributes.h"
#include "base/log.h"
#include "policy/roles.h"

#define KEEPS_NAMES (TRIGGERS_ENDED | TRIGGERS_UNKNOWN)
#define SEIZED UINT64_MAX

/* Ours are far from where tools count from. */
#define NUMBERS_FROM 0x5b1e700000000000ull

struct range {
	const void *domain;
	char *name; /* may be NULL */
};

/* Of one thread. */
struct nest {
	unsigned nesting; /* of struct triggers; another: all of it is stale */
	unsigned count;
	struct range ranges[TRIGGERS_NESTING_MAX]; /* innermost last */
};

/* ---- asking ---- */

static void ask(struct triggers *triggers, enum policy_trigger_source source, const char *name)
{
	const struct triggers_policy *current = __atomic_load_n(&triggers->current, __ATOMIC_ACQUIRE);
	const bool opened = source == POLICY_TRIGGER_NVTX_PUSH;
	void (*arrived)(void *arg, uint32_t phase);
	uint32_t phase;

	if (!current || !name || !(current->asks & (opened ? TRIGGERS_OPENED : TRIGGERS_ENDED)))
		return;
	phase = policy_trigger_of(current->policy, source, current->role, name);
	if (phase == POLICY_NONE)
		return;
	log_say(LOG_SESSION, LOG_DEBUG, WHOSE_NONE, "phase '%s' begins: NVTX range '%.200s' %s",
		policy_text(current->policy, current->policy->phases[phase].name), name, opened ? "is opened" : "ends");
	arrived = __atomic_load_n(&triggers->arrived, __ATOMIC_ACQUIRE);
	if (arrived)
		arrived(__atomic_load_n(&triggers->arrived_arg, __ATOMIC_ACQUIRE), phase);
}

void triggers_policy_init(struct triggers_policy *new, const struct policy *policy, uint32_t role)
{
	const unsigned sources = policy_trigger_sources(policy, role);

	new->policy = policy;
	new->role = role;
	new->asks = (sources & 1u << POLICY_TRIGGER_NVTX_PUSH ? TRIGGERS_OPENED : 0) |
		    (sources & 1u << POLICY_TRIGGER_NVTX_POP ? TRIGGERS_ENDED : 0);
}

void triggers_on_arrival(struct triggers *triggers, void (*arrived)(void *arg, uint32_t phase), void *arg)
{
	__atomic_store_n(&triggers->arrived_arg, arg, __ATOMIC_RELEASE);
	__atomic_store_n(&triggers->arrived, arrived, __ATOMIC_RELEASE);
}

/* ---- ranges that nest ---- */

static void empty_nest(struct nest *nest)
{
	while (nest->count)
		free(nest->ranges[--nest->count].name);
}

static void thread_ends(void *arg)
{
	empty_nest(arg);
	free(arg);
}

/* The key, plus one; 0 where there is none to be had. */
static unsigned find_key(struct triggers *triggers, bool make)
{
	unsigned known = __atomic_load_n(&triggers->key, __ATOMIC_ACQUIRE);
	pthread_key_t key;

	if (known || !make || pthread_key_create(&key, thread_ends))
		return known;
	if (__atomic_compare_exchange_n(&triggers->key, &known, key + 1, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		return key + 1;
	pthread_key_delete(key); /* another thread was first */
	return known;
}

/* What the calling thread has nested; NULL: nothing, or with @make no memory for it. */
static struct nest *find_nest(struct triggers *triggers, bool make)
{
	const unsigned key = find_key(triggers, make), nesting = __atomic_load_n(&triggers->nesting, __ATOMIC_RELAXED);
	struct nest *nest = key ? pthread_getspecific(key - 1) : NULL;

	if (!nest && key && make) {
		nest = malloc(sizeof(*nest));
		if (!nest)
			return NULL;
		nest->count = 0;
		nest->nesting = nesting;
		if (pthread_setspecific(key - 1, nest)) {
			free(nest);
			return NULL;
		}
	}
	if (nest && nest->nesting != nesting) {
		empty_nest(nest);
		nest->nesting = nesting;
	}
	return nest;
}

static void take_out(struct nest *nest, unsigned at)
{
	nest->count--;
	memmove(&nest->ranges[at], &nest->ranges[at + 1], (nest->count - at) * sizeof(nest->ranges[0]));
}

void triggers_nvtx_push(struct triggers *triggers, const void *domain, const char *name)
{
	const unsigned asks = __atomic_load_n(&triggers->asks, __ATOMIC_ACQUIRE);
	struct nest *nest = asks & KEEPS_NAMES ? find_nest(triggers, true) : NULL;

	if (nest && nest->count == TRIGGERS_NESTING_MAX) {
		log_limited(LOG_SESSION, LOG_WARN, WHOSE_FRAMEWORK,
			"more than %d NVTX ranges are open on one thread, or were never ended: no trigger sees the end of the outermost",
			TRIGGERS_NESTING_MAX);
		free(nest->ranges[0].name);
		take_out(nest, 0);
	}
	/* A name that cannot be kept still nests. */
	if (nest)
		nest->ranges[nest->count++] = (struct range){domain, name ? strdup(name) : NULL};
	ask(triggers, POLICY_TRIGGER_NVTX_PUSH, name);
}

void triggers_nvtx_pop(struct triggers *triggers, const void *domain)
{
	const unsigned asks = __atomic_load_n(&triggers->asks, __ATOMIC_ACQUIRE);
	struct nest *nest = asks & KEEPS_NAMES ? find_nest(triggers, false) : NULL;

	for (unsigned at = nest ? nest->count : 0; at-- > 0;) {
		char *name = nest->ranges[at].name;

		if (nest->ranges[at].domain != domain)
			continue;
		take_out(nest, at);
		ask(triggers, POLICY_TRIGGER_NVTX_POP, name);
		free(name);
		return;
	}
}

/* ---- ranges with a number ---- */

/* Take the entry that says @number; nobody else has it until it says another. */
static struct triggers_started *seize(struct triggers *triggers, uint64_t number)
{
	for (unsigned i = 0; i < TRIGGERS_STARTED_MAX; i++) {
		struct triggers_started *entry = &triggers->started[i];
		uint64_t there = number;

		if (__atomic_load_n(&entry->number, __ATOMIC_RELAXED) == number &&
			__atomic_compare_exchange_n(&entry->number, &there, SEIZED, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
			return entry;
	}
	return NULL;
}

uint64_t triggers_range_start(struct triggers *triggers, uint64_t number, const char *name)
{
	const unsigned asks = __atomic_load_n(&triggers->asks, __ATOMIC_ACQUIRE);

	if (asks & KEEPS_NAMES) {
		struct triggers_started *entry = number == SEIZED ? NULL : seize(triggers, 0);

		if (!number)
			number = NUMBERS_FROM + __atomic_add_fetch(&triggers->numbers, 1, __ATOMIC_RELAXED);
		if (entry) {
			entry->name = name ? strdup(name) : NULL;
			__atomic_store_n(&entry->number, number, __ATOMIC_RELEASE);
		} else {
			log_limited(LOG_SESSION, LOG_WARN, WHOSE_FRAMEWORK,
				"more than %d NVTX ranges are started and not ended: no trigger sees the end of the others",
				TRIGGERS_STARTED_MAX);
		}
	}
	ask(triggers, POLICY_TRIGGER_NVTX_PUSH, name);
	return number;
}

/* Empty the entry, which is seized, and return its name. */
static char *give_up(struct triggers_started *entry)
{
	char *name = entry->name;

	entry->name = NULL;
	__atomic_store_n(&entry->number, 0, __ATOMIC_RELEASE);
	return name;
}

void triggers_range_end(struct triggers *triggers, uint64_t number)
{
	struct triggers_started *entry = number && number != SEIZED ? seize(triggers, number) : NULL;
	char *name;

	if (!entry)
		return;
	name = give_up(entry);
	ask(triggers, POLICY_TRIGGER_NVTX_POP, name);
	free(name);
}

/* ---- policies ---- */

/* What is known of open ranges will not be kept up from now on. */
static void drop_names(struct triggers *triggers)
{
	__atomic_add_fetch(&triggers->nesting, 1, __ATOMIC_RELAXED);
	for (unsigned i = 0; i < TRIGGERS_STARTED_MAX; i++) {
		struct triggers_started *entry = &triggers->started[i];
		uint64_t there = __atomic_load_n(&entry->number, __ATOMIC_RELAXED);

		if (there && there != SEIZED &&
			__atomic_compare_exchange_n(&entry->number, &there, SEIZED, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
			free(give_up(entry));
	}
}

void triggers_use(struct triggers *triggers, const struct triggers_policy *policy)
{
	const unsigned asks = policy ? policy->asks : 0;

	__atomic_store_n(&triggers->settled, true, __ATOMIC_RELEASE);
	__atomic_store_n(&triggers->current, policy, __ATOMIC_RELEASE);
	if ((__atomic_exchange_n(&triggers->asks, asks, __ATOMIC_ACQ_REL) & KEEPS_NAMES) && !(asks & KEEPS_NAMES))
		drop_names(triggers);
}

void triggers_expect(struct triggers *triggers)
{
	unsigned nobody = 0;

	/* Beside the triggers_use of another thread names may be kept in vain, no more. */
	if (!__atomic_load_n(&triggers->settled, __ATOMIC_ACQUIRE))
		__atomic_compare_exchange_n(&triggers->asks, &nobody, TRIGGERS_UNKNOWN, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

void triggers_settle(struct triggers *triggers)
{
	if (!__atomic_load_n(&triggers->settled, __ATOMIC_ACQUIRE))
		triggers_use(triggers, NULL);
}

void triggers_forget(struct triggers *triggers)
{
	triggers->asks = 0;
	triggers->settled = true;
	triggers->current = NULL;
	triggers->arrived = NULL;
	triggers->nesting++;
	memset(triggers->started, 0, sizeof(triggers->started)); /* their names, which another thread may have been freeing, are left */
}

void triggers_expect_again(struct triggers *triggers)
{
	triggers->settled = false;
	triggers_expect(triggers);
}

void triggers_release(struct triggers *triggers)
{
	struct nest *nest = find_nest(triggers, false);

	if (nest) {
		pthread_setspecific(triggers->key - 1, NULL);
		thread_ends(nest);
	}
	if (triggers->key)
		pthread_key_delete(triggers->key - 1);
	drop_names(triggers);
	memset(triggers, 0, sizeof(*triggers));
}
