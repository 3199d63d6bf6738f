/* tests/unit/test_sites.c
 * What is kept of who allocates: texts, sites, history, and the list that is made of them for others. No driver. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "lifecycle/callers/caller.h"
#include "lifecycle/callers/sites.h"
#include "lifecycle/callers/texts.h"
#include "lifecycle/history.h"
#include "lifecycle/inventory.h"
#include "lifecycle/records.h"

#define CASE(name) cmocka_unit_test(name)

static const char *text(const char *words)
{
	return texts_intern(words, strlen(words));
}

/* ---- texts ---- */

static void equal_texts_are_one_pointer_and_others_are_not(void **state)
{
	char other[] = "worker.py:load";
	const char *kept;

	errno = 4711;
	kept = text("worker.py:load");
	assert_int_equal(errno, 4711);
	assert_non_null(kept);
	assert_ptr_equal(text(other), kept);
	assert_ptr_not_equal(kept, other);
	other[0] = 'W';
	assert_string_equal(kept, "worker.py:load");
	assert_ptr_not_equal(text(other), kept);
	/* a part of a longer one, without its end */
	assert_ptr_equal(texts_intern("worker.py:load_all", 14), kept);
	assert_string_equal(texts_intern("", 0), "");
}

enum { THREADS = 8, TEXTS = 2000 };

static const char *seen[THREADS][TEXTS];

static void *intern_all(void *arg)
{
	const char **mine = arg;
	char words[32];

	for (int i = 0; i < TEXTS; i++)
		mine[i] = texts_intern(words, (size_t)snprintf(words, sizeof(words), "raced %d", i));
	return NULL;
}

static void threads_with_the_same_new_texts_get_the_same_pointers(void **state)
{
	pthread_t threads[THREADS];

	for (int t = 0; t < THREADS; t++)
		assert_int_equal(pthread_create(&threads[t], NULL, intern_all, seen[t]), 0);
	for (int t = 0; t < THREADS; t++)
		pthread_join(threads[t], NULL);
	for (int i = 0; i < TEXTS; i++) {
		assert_non_null(seen[0][i]);
		for (int t = 1; t < THREADS; t++)
			assert_ptr_equal(seen[t][i], seen[0][i]);
	}
}

/* In a child, since what it fills stays full. */
static void too_many_texts_are_refused_and_old_ones_are_still_found(void **state)
{
	const char *kept = text("from before");
	int status;
	pid_t child = fork();

	if (child == 0) {
		char words[32];
		bool refused = false;

		for (int i = 0; i < 2 * TEXTS_MAX && !refused; i++)
			refused = !texts_intern(words, (size_t)snprintf(words, sizeof(words), "filler %d", i));
		_exit(!refused || text("from before") != kept || text("filler 0") == NULL || text("one more") != NULL);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	child = fork();
	if (child == 0) {
		char *large = malloc(TEXTS_BYTES_MAX / 4);
		int refused = 0;

		memset(large, 'x', TEXTS_BYTES_MAX / 4);
		for (int i = 0; i < 8; i++) {
			large[0] = (char)('a' + i);
			refused += !texts_intern(large, TEXTS_BYTES_MAX / 4);
		}
		_exit(refused < 4 || refused == 8 || text("from before") != kept || texts_intern(large, TEXTS_BYTES_MAX) != NULL);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

/* ---- sites ---- */

static struct caller some_caller(void)
{
	struct caller caller = {.library = {text("/lib/liba.so"), NULL}, .thread = text("main"), .stack_count = 1, .python_count = 2};

	caller.stack[0] = text("liba.so:f");
	caller.python[0] = text("a.py:g");
	caller.python[1] = text("a.py:h");
	return caller;
}

static void each_distinct_caller_is_one_site(void **state)
{
	struct caller first = some_caller(), other = some_caller();
	struct sites sites;
	const struct site *site;

	sites_init(&sites);
	site = sites_find(&sites, &first);
	assert_non_null(site);
	assert_ptr_equal(sites_find(&sites, &other), site);
	assert_string_equal(site->frames[0], "liba.so:f");
	assert_string_equal(site->frames[2], "a.py:h");
	other.tag = text("kv");
	assert_ptr_not_equal(sites_find(&sites, &other), site);
	other = first;
	other.python_count = 1;
	assert_ptr_not_equal(sites_find(&sites, &other), site);
	other = first;
	other.library[1] = other.library[0];
	assert_ptr_not_equal(sites_find(&sites, &other), site);
	/* one frame of either kind is not the same as the other */
	other = (struct caller){.stack_count = 1, .stack = {text("x:y")}};
	site = sites_find(&sites, &other);
	other = (struct caller){.python_count = 1, .python = {text("x:y")}};
	assert_ptr_not_equal(sites_find(&sites, &other), site);
	assert_int_equal(sites.count, 6);
	other = (struct caller){0};
	assert_null(sites_find(&sites, &other));
	assert_int_equal(sites.count, 6);
	sites_release(&sites);
}

static void too_many_sites_are_none(void **state)
{
	struct sites sites;
	struct caller caller = some_caller();
	char words[32];

	sites_init(&sites);
	assert_non_null(sites_find(&sites, &caller));
	sites.count = SITES_MAX;
	caller.thread = texts_intern(words, (size_t)snprintf(words, sizeof(words), "thread 9"));
	assert_null(sites_find(&sites, &caller));
	caller = some_caller();
	assert_non_null(sites_find(&sites, &caller));
	sites_release(&sites);
}

/* ---- history ---- */

static void history_counts_what_lives_and_what_was(void **state)
{
	struct allocation a[3] = {{.size_bytes = 2 << 20, .serial = 1}, {.size_bytes = 2 << 20, .serial = 2}, {.size_bytes = 4 << 20, .serial = 3}};
	struct history history;

	history_init(&history);
	for (int i = 0; i < 3; i++)
		history_add(&history, &a[i]);
	assert_int_equal(history.count, 2);
	assert_ptr_equal(a[0].group, a[1].group);
	assert_ptr_not_equal(a[0].group, a[2].group);
	assert_ptr_equal(history.oldest, a[0].group);
	assert_ptr_equal(history.oldest->newer, a[2].group);
	history_freed(a[0].group, a[0].since_ns);
	assert_int_equal(a[0].group->live, 1);
	assert_int_equal(a[0].group->freed, 1);
	history_unfreed(a[0].group, a[0].since_ns);
	assert_int_equal(a[0].group->live, 2);
	assert_int_equal(a[0].group->freed, 0);
	history_freed(a[0].group, a[0].since_ns);
	a[0].serial = 4;
	history_add(&history, &a[0]);
	assert_int_equal(a[0].group->count, 3);
	assert_int_equal(a[0].group->peak_live, 2);
	assert_int_equal(a[0].group->first_serial, 1);
	assert_int_equal(a[0].group->last_serial, 4);
	history_release(&history);
}

static void beyond_its_bound_history_only_counts(void **state)
{
	struct allocation first = {.size_bytes = 2 << 20}, other = {.size_bytes = 4 << 20};
	struct history history;

	history_init(&history);
	history_add(&history, &first);
	history.count = HISTORY_MAX;
	history_add(&history, &other);
	assert_null(other.group);
	assert_int_equal(history.left_out, 1);
	history_add(&history, &first);
	assert_int_equal(first.group->count, 2);
	history_freed(other.group, other.since_ns);
	history_unfreed(other.group, other.since_ns);
	history_release(&history);
}

/* ---- the list for others ---- */

static void *made_inventory(size_t *ret_bytes)
{
	struct inventory_header header = {.magic = INVENTORY_MAGIC,
		.version = INVENTORY_VERSION,
		.header_bytes = sizeof(header),
		.allocations_count = 2,
		.groups_count = 1,
		.sites_count = 1,
		.frames_count = 2,
		.texts_bytes = 8};
	struct inventory to;
	char *bytes;

	header.total_bytes = *ret_bytes = inventory_bytes(&header);
	bytes = calloc(1, *ret_bytes);
	memcpy(bytes, &header, sizeof(header));
	inventory_place(bytes, &to);
	((struct inventory_allocation *)to.allocations)[0].site = INVENTORY_NONE;
	*(struct inventory_site *)to.sites = (struct inventory_site){
		{0, INVENTORY_NONE}, INVENTORY_NONE, 4, .first_frame = 0, .stack_count = 1, .python_count = 1};
	memcpy((uint32_t *)to.frames, (const uint32_t[]){0, 4}, 8);
	memcpy((char *)to.texts, "abc\0def", 8);
	return bytes;
}

static void inventory_is_read_as_it_was_written(void **state)
{
	struct inventory inventory;
	struct errinfo error;
	size_t bytes;
	void *block = made_inventory(&bytes);

	assert_int_equal(inventory_open(block, bytes, &inventory, &error), SUBLET_OK);
	assert_string_equal(inventory_text(&inventory, inventory.frames[1]), "def");
	assert_null(inventory_text(&inventory, inventory.sites[0].library[1]));
	free(block);
}

static void spoil(char *block, int how, const struct inventory *at)
{
	struct inventory_header *header = (struct inventory_header *)(void *)block;
	struct inventory_site *site = (struct inventory_site *)at->sites;

	switch (how) {
	case 0: header->magic++; break;
	case 1: header->version++; break;
	case 2: header->total_bytes++; break;
	case 3: header->header_bytes--; break;
	case 4: header->allocations_count = UINT32_MAX; break;
	case 5: header->frames_count = UINT32_MAX; break;
	case 6: ((struct inventory_allocation *)at->allocations)[1].site = 1; break;
	case 7: ((struct inventory_allocation *)at->allocations)[1].residency = 4; break;
	case 8: ((struct inventory_group *)at->groups)[0].site = 7; break;
	case 9: site->stack_count = 2; break;
	case 10: site->first_frame = UINT32_MAX; break;
	case 11: site->library[0] = 8; break;
	case 12: site->tag = 8; break;
	case 13: ((uint32_t *)at->frames)[0] = INVENTORY_NONE; break;
	case 14: ((char *)at->texts)[7] = 'x'; break;
	case 15: header->texts_bytes = 0; break;
	default: break;
	}
}

static void damaged_inventories_are_refused_with_a_line(void **state)
{
	struct inventory inventory;
	struct errinfo error;
	size_t bytes;

	for (int how = 0; how < 16; how++) {
		char *block = made_inventory(&bytes);

		inventory_place(block, &inventory);
		spoil(block, how, &inventory);
		error.text[0] = '\0';
		assert_int_equal(inventory_open(block, bytes, &inventory, &error), SUBLET_ERR_INVALID);
		assert_true(error.text[0] && !strchr(error.text, '\n'));
		free(block);
	}
	for (size_t cut = 0; cut < bytes; cut += 4) {
		char *block = made_inventory(&bytes);
		char *shorter = malloc(cut + 1);

		memcpy(shorter, block, cut);
		assert_int_equal(inventory_open(shorter, cut, &inventory, &error), SUBLET_ERR_INVALID);
		free(shorter);
		free(block);
	}
}

/* ---- words ---- */

static void what_to_keep_is_read_from_words(void **state)
{
	static const char *const bad[] = {"", ",", "stack,", "Stack", "stack python", "everything"};
	unsigned wants;

	assert_true(caller_wants_parse("all", &wants));
	assert_int_equal(wants, CALLER_EVERYTHING);
	assert_true(caller_wants_parse("python,thread", &wants));
	assert_int_equal(wants, CALLER_PYTHON | CALLER_THREAD);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_false(caller_wants_parse(bad[i], &wants));
	assert_int_equal(wants, CALLER_PYTHON | CALLER_THREAD);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(equal_texts_are_one_pointer_and_others_are_not),
		CASE(threads_with_the_same_new_texts_get_the_same_pointers),
		CASE(too_many_texts_are_refused_and_old_ones_are_still_found),
		CASE(each_distinct_caller_is_one_site),
		CASE(too_many_sites_are_none),
		CASE(history_counts_what_lives_and_what_was),
		CASE(beyond_its_bound_history_only_counts),
		CASE(inventory_is_read_as_it_was_written),
		CASE(damaged_inventories_are_refused_with_a_line),
		CASE(what_to_keep_is_read_from_words),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
