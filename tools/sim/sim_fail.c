/* tools/sim/sim_fail.c
 * Counters of calls, the call log, and failure injection. Counting takes no lock, since it is on the path of every call;
 * injections are few, fixed slots, armed under a lock of their own. */
#include "tools/sim/sim_priv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/sim/sim.h"

#define LOG_SIZE 65536u
#define RULE_COUNT 32

struct rule {
	bool armed;
	int entry; /* -1: every one */
	uint64_t nth;
	bool for_good;
	int code; /* -1: by the entry's name */
	uint64_t seen;
};

static uint64_t calls[SIM_ENTRY_COUNT];
/* Position of the next call in the log; a slot holds position * 1024 + entry + 1, so that a stale one is seen as such. */
static uint64_t log_next;
static uint64_t log_slots[LOG_SIZE];

static pthread_mutex_t rules_lock = PTHREAD_MUTEX_INITIALIZER;
static struct rule rules[RULE_COUNT];
static int armed_count;
static uint64_t fired;
static int last_fired = -1;

_Static_assert(SIM_ENTRY_COUNT < 1023, "log slots have ten bits for the entry");

static CUresult default_code(enum sim_entry entry)
{
	const char *name = sim_entry_name(entry);

	if (strstr(name, "Alloc") && !strstr(name, "Get") && !strstr(name, "Retain"))
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (strstr(name, "Create") || strstr(name, "Reserve"))
		return CUDA_ERROR_OUT_OF_MEMORY;
	return CUDA_ERROR_UNKNOWN;
}

static CUresult apply_rules(enum sim_entry entry)
{
	CUresult result = CUDA_SUCCESS;

	pthread_mutex_lock(&rules_lock);
	for (int i = 0; i < RULE_COUNT; i++) {
		struct rule *rule = &rules[i];

		if (!rule->armed || (rule->entry >= 0 && rule->entry != (int)entry))
			continue;
		rule->seen++;
		if (rule->seen < rule->nth || (rule->seen > rule->nth && !rule->for_good))
			continue;
		if (result == CUDA_SUCCESS) {
			result = rule->code < 0 ? default_code(entry) : (CUresult)rule->code;
			__atomic_add_fetch(&fired, 1, __ATOMIC_RELAXED);
			__atomic_store_n(&last_fired, (int)entry, __ATOMIC_RELAXED);
		}
	}
	pthread_mutex_unlock(&rules_lock);
	return result;
}

CUresult sim_fail_count(enum sim_entry entry)
{
	uint64_t position = __atomic_fetch_add(&log_next, 1, __ATOMIC_RELAXED);

	__atomic_store_n(&log_slots[position % LOG_SIZE], position * 1024 + entry + 1, __ATOMIC_RELAXED);
	__atomic_fetch_add(&calls[entry], 1, __ATOMIC_RELAXED);
	if (__atomic_load_n(&armed_count, __ATOMIC_RELAXED) == 0)
		return CUDA_SUCCESS;
	return apply_rules(entry);
}

uint64_t sim_fail_calls(enum sim_entry entry)
{
	return __atomic_load_n(&calls[entry], __ATOMIC_RELAXED);
}

uint64_t sim_fail_total(void)
{
	return __atomic_load_n(&log_next, __ATOMIC_RELAXED);
}

static bool parse_rule(const char *text, size_t length, struct rule *ret_rule)
{
	struct rule rule = {.armed = true, .entry = -1, .code = -1};
	const char *end = text + length;
	const char *colon = memchr(text, ':', length);
	char *after;

	if (!colon || colon == text)
		return false;
	if (colon - text != 1 || *text != '*') {
		size_t name_length = (size_t)(colon - text);

		for (int i = 0; i < SIM_ENTRY_COUNT && rule.entry < 0; i++) {
			const char *name = sim_entry_name((enum sim_entry)i);

			if (strlen(name) == name_length && memcmp(name, text, name_length) == 0)
				rule.entry = i;
		}
		if (rule.entry < 0)
			return false;
	}
	rule.nth = strtoull(colon + 1, &after, 10);
	if (after == colon + 1 || after > end || rule.nth == 0)
		return false;
	if (after < end && *after == '+') {
		rule.for_good = true;
		after++;
	}
	if (after < end && *after == '=') {
		rule.code = (int)strtol(after + 1, &after, 10);
		if (after > end || rule.code <= 0)
			return false;
	}
	if (after != end)
		return false;
	*ret_rule = rule;
	return true;
}

static bool add(const char *text, size_t length)
{
	struct rule rule;
	bool placed = false;

	if (!parse_rule(text, length, &rule))
		return false;
	pthread_mutex_lock(&rules_lock);
	for (int i = 0; i < RULE_COUNT && !placed; i++) {
		if (!rules[i].armed) {
			rules[i] = rule;
			__atomic_add_fetch(&armed_count, 1, __ATOMIC_RELAXED);
			placed = true;
		}
	}
	pthread_mutex_unlock(&rules_lock);
	return placed;
}

bool sublet_sim_fail(const char *spec)
{
	return add(spec, strlen(spec));
}

void sim_fail_load_environment(const char *text)
{
	while (*text) {
		size_t length = strcspn(text, ",");

		if (length && !add(text, length))
			fprintf(stderr, "sublet-sim: SUBLET_SIM_FAIL: cannot read '%.*s'\n", (int)length, text);
		text += length;
		text += *text == ',';
	}
}

void sublet_sim_fail_clear(void)
{
	pthread_mutex_lock(&rules_lock);
	memset(rules, 0, sizeof(rules));
	__atomic_store_n(&armed_count, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&fired, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&last_fired, -1, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&rules_lock);
}

uint64_t sublet_sim_fail_fired(void)
{
	return __atomic_load_n(&fired, __ATOMIC_RELAXED);
}

const char *sublet_sim_fail_last(void)
{
	int entry = __atomic_load_n(&last_fired, __ATOMIC_RELAXED);

	return entry < 0 ? NULL : sim_entry_name((enum sim_entry)entry);
}

uint64_t sublet_sim_calls(const char *name)
{
	for (int i = 0; i < SIM_ENTRY_COUNT; i++) {
		if (strcmp(sim_entry_name((enum sim_entry)i), name) == 0)
			return sim_fail_calls((enum sim_entry)i);
	}
	return 0;
}

uint64_t sublet_sim_log_mark(void)
{
	return __atomic_load_n(&log_next, __ATOMIC_RELAXED);
}

const char *sublet_sim_log_name(uint64_t position)
{
	uint64_t slot = __atomic_load_n(&log_slots[position % LOG_SIZE], __ATOMIC_RELAXED);

	if (slot == 0 || (slot - 1) / 1024 != position)
		return NULL;
	return sim_entry_name((enum sim_entry)((slot - 1) % 1024));
}

void sim_fail_fork_child(void)
{
	pthread_mutex_init(&rules_lock, NULL);
}

void sim_fail_reset(void)
{
	sublet_sim_fail_clear();
	for (int i = 0; i < SIM_ENTRY_COUNT; i++)
		__atomic_store_n(&calls[i], 0, __ATOMIC_RELAXED);
	for (unsigned int i = 0; i < LOG_SIZE; i++)
		__atomic_store_n(&log_slots[i], 0, __ATOMIC_RELAXED);
	__atomic_store_n(&log_next, 0, __ATOMIC_RELAXED);
}
