/* tests/unit/test_policy_match.c
 * policy/match.h, policy/glob.h and policy/roles.h, by table; the index against the plain walk over all rules. */
#include <stdio.h>
#include <stdlib.h>

#include "policy/glob.h"
#include "policy/roles.h"
#include "policy/source/facts.h"
#include "tests/unit/policy_harness.h"

static void glob_by_table(void **state)
{
	static const struct {
		const char *pattern, *text;
		bool matches;
	} rows[] = {
		{"", "", true},
		{"", "a", false},
		{"*", "", true},
		{"*", "anything", true},
		{"**", "x", true},
		{"a", "a", true},
		{"a", "b", false},
		{"a", "ab", false},
		{"?", "a", true},
		{"?", "", false},
		{"a?c", "abc", true},
		{"*c", "abc", true},
		{"*b", "abc", false},
		{"a*", "abc", true},
		{"*kv*", "allocate_kv_cache", true},
		{"*kv*", "kv", true},
		{"*kv*", "k_v", false},
		{"*a*b*", "xxaxxbxx", true},
		{"*a*b*", "xxbxxaxx", false},
		{"*aab", "aaaab", true},
		{"[abc]x", "bx", true},
		{"[abc]x", "dx", false},
		{"[a-c]x", "bx", true},
		{"[!a-c]x", "bx", false},
		{"[!a-c]x", "dx", true},
		{"[^a]", "b", true},
		{"[]]", "]", true},
		{"[!]]", "]", false},
		{"[a-]", "-", true},
		{"[a", "[a", true},
		{"[a", "a", false},
		{"\\*", "*", true},
		{"\\*", "a", false},
		{"*\\**", "a*b", true},
		{"*\\", "a\\", true},
		{"\xc3\xa4*", "\xc3\xa4pfel", true},
		{"*[0-9]*", "rank7", true},
		{"*[0-9]*", "rank", false},
		{"*.so*", "/usr/lib/libnccl.so.2", true},
		{"*/libnccl.so?*", "/usr/lib/libnccl.so", false},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (glob_matches(rows[i].pattern, rows[i].text) != rows[i].matches)
			fail_msg("'%s' and '%s': expected %d", rows[i].pattern, rows[i].text, rows[i].matches);
}

static void glob_covers_by_table(void **state)
{
	static const struct {
		const char *wide, *narrow;
		bool covers;
	} rows[] = {
		{"*", "a", true},
		{"*", "*", true},
		{"*", "a?b*", true},
		{"a", "a", true},
		{"a", "*", false},
		{"*a*", "*ab*", true},
		{"*ab*", "*a*", false},
		{"*a", "*ba", true},
		{"a?", "ab", true},
		{"a?", "a?", true},
		{"a?", "a*", false},
		{"ab", "a?", false},
		{"a*", "a", true},
		{"*a*c*", "*abc*", true},
		{"[a]", "a", false},
		{"[a]", "[a]", true},
		{"*kv*", "*kv?*", true},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (glob_covers(rows[i].wide, rows[i].narrow) != rows[i].covers)
			fail_msg("'%s' over '%s': expected %d", rows[i].wide, rows[i].narrow, rows[i].covers);
}

/* A pattern with many stars against a text that almost matches stays within the product of the lengths. */
static void glob_of_many_stars_ends(void **state)
{
	char text[1025];

	memset(text, 'a', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	assert_false(glob_matches("*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*b", text));
}

static const char keys[] = "version: 1\n"
			   "roles: [train, rollout]\n"
			   "phases: [decode, update]\n"
			   "triggers: [{enter: decode, command: true}, {enter: update, command: true}]\n"
			   "pinned:\n"
			   "  - {library: '*libnccl*', size: '<=64MiB'}\n"
			   "objects:\n"
			   "  - {name: by_role, match: {role: rollout, tag: x}, class: permanent}\n"
			   "  - {name: by_size, match: {size: [464MiB, 1GiB..2GiB, '>8GiB']}, class: permanent}\n"
			   "  - {name: by_api, match: {api: 'cuMemAllocFrom*'}, class: permanent}\n"
			   "  - {name: by_phase, match: {phase: update, tag: p}, class: permanent}\n"
			   "  - {name: by_order, match: {order: [1, 5..6]}, class: permanent}\n"
			   "  - {name: by_device, match: {device: [3, '>=62']}, class: permanent}\n"
			   "  - {name: by_library, match: {library: ['*libjax*', '*libcupy*']}, class: permanent}\n"
			   "  - {name: by_stack, match: {stack: 'libtorch*:*resize*'}, class: permanent}\n"
			   "  - {name: by_python, match: {python: '*allocate_kv_cache*'}, class: permanent}\n"
			   "  - {name: by_thread, match: {thread: 'worker?'}, class: permanent}\n"
			   "  - {name: by_tag, match: {tag: x}, class: permanent}\n"
			   "  - {name: by_two, match: {role: train, tag: y}, class: permanent}\n";

static void match_by_table(void **state)
{
	static const struct {
		const char *facts, *rule;
	} rows[] = {
		{"role=rollout tag=x", "by_role"},
		{"role=train tag=x", "by_tag"},
		{"tag=x", "by_tag"},
		{"role=train tag=y", "by_two"},
		{"role=rollout tag=y", "defaults"},
		{"tag=y", "defaults"},
		{"", "defaults"},
		{"size=464MiB", "by_size"},
		{"size=463MiB", "defaults"},
		{"size=1GiB", "by_size"},
		{"size=2GiB", "by_size"},
		{"size=2147483649", "defaults"},
		{"size=8GiB", "defaults"},
		{"size=8589934593", "by_size"},
		{"size=16383TiB", "by_size"},
		{"api=cuMemAllocFromPoolAsync", "by_api"},
		{"api=cuMemAllocAsync", "defaults"},
		{"phase=update tag=p", "by_phase"},
		{"phase=decode tag=p", "defaults"},
		{"tag=p", "defaults"},
		{"order=1", "by_order"},
		{"order=4", "defaults"},
		{"order=5", "by_order"},
		{"order=6", "by_order"},
		{"order=7", "defaults"},
		{"device=3", "by_device"},
		{"device=61", "defaults"},
		{"device=63", "by_device"},
		{"library=/x/libcupy.so", "by_library"},
		{"library=/x/libtorch.so", "defaults"},
		{"stack=libcudart.so:malloc stack=libtorch.so:resize_", "by_stack"},
		{"stack=libcudart.so:malloc", "defaults"},
		{"python=a.py:f python=llm.py:allocate_kv_cache", "by_python"},
		{"python=a.py:f", "defaults"},
		{"thread=worker1", "by_thread"},
		{"thread=worker10", "defaults"},
		/* file order: the first that matches, and what is pinned before all */
		{"size=464MiB order=1 thread=worker1", "by_size"},
		{"order=1 thread=worker1", "by_order"},
		{"library=/x/libnccl.so order=1 size=2MiB", "pinned"},
		{"library=/x/libnccl.so size=65MiB order=1", "by_order"},
	};
	struct policy_source source;
	struct policy policy;

	given_policy(&source, keys, &policy);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct typed_facts facts;
		struct errinfo error = {0};
		const char *name;

		if (typed_facts_parse(&policy, &source.arena, rows[i].facts, &facts, &error))
			fail_msg("'%s': %s", rows[i].facts, error.text);
		name = policy_text(&policy, policy.rules[policy_match(&policy, &facts.facts)].name);
		if (strcmp(name, rows[i].rule) != 0)
			fail_msg("'%s' goes to '%s', expected '%s'", rows[i].facts, name, rows[i].rule);
	}
	policy_source_release(&source);
}

static void match_of_numbers_that_are_none_goes_to_the_default(void **state)
{
	struct policy_facts facts = {.role = 77, .phase = 99, .api = 1000, .device = 5000, .size_bytes = 1};
	struct policy_source source;
	struct policy policy;

	given_policy(&source, keys, &policy);
	assert_int_equal(policy_match(&policy, &facts), policy.rules_count - 1);
	policy_source_release(&source);
}

/* --- the index ---------------------------------------------------------------------------------------------------- */

static uint32_t next_random(uint32_t *seed)
{
	*seed = *seed * 1664525u + 1013904223u;
	return *seed >> 8;
}

static uint32_t plain_match(const struct policy *policy, const struct policy_facts *facts)
{
	for (uint32_t i = 0; i < policy->rules_count; i++)
		if (policy_rule_against(policy, &policy->rules[i], facts) == POLICY_KEY_COUNT)
			return i;
	return policy->rules_count - 1;
}

static void random_policy(struct output *text, uint32_t *seed, int rules)
{
	static const char *const apis[] = {"cuMemAlloc", "cuMemCreate", "'cuMemAlloc*'"};
	/* with five literal bytes in a row every second place of a text is looked at, with four every place */
	const char *file = next_random(seed) % 2 ? "*init*file*" : "*:init*file*";

	output_add(text, "version: 1\nroles: [r0, r1, r2]\nphases: [p0, p1]\nobjects:\n");
	for (int i = 0; i < rules; i++) {
		output_add(text, "  - {name: o%d, class: permanent, match: {tag: 't%u*'", i, next_random(seed) % 8);
		if (next_random(seed) % 2)
			output_add(text, ", role: r%u", next_random(seed) % 3);
		if (next_random(seed) % 2)
			output_add(text, ", size: [%uKiB..%uKiB, '>=%uKiB']", next_random(seed) % 50,
				50 + next_random(seed) % 50, next_random(seed) % 200);
		if (next_random(seed) % 4 == 0)
			output_add(text, ", phase: p%u", next_random(seed) % 2);
		if (next_random(seed) % 4 == 0)
			output_add(text, ", api: %s", apis[next_random(seed) % 3]);
		if (next_random(seed) % 8 == 0)
			output_add(text, ", device: [%u, '>=%u']", next_random(seed) % 3, 60 + next_random(seed) % 4);
		if (next_random(seed) % 8 == 0)
			output_add(text, ", order: [%u..9, '>=%u']", 1 + next_random(seed) % 9, 10 + next_random(seed) % 9);
		/* with four literal bytes and without, in lists, with sets */
		if (next_random(seed) % 2)
			output_add(text, ", python: ['*mod_%u:*', '%s']", next_random(seed) % 30,
				next_random(seed) % 8 ? file : "*i?i*");
		if (next_random(seed) % 4 == 0)
			output_add(text, ", stack: '%s%u.so*'", next_random(seed) % 2 ? "*[l]ib" : "lib\\.",
				next_random(seed) % 4);
		if (next_random(seed) % 8 == 0)
			output_add(text, ", library: '/usr/lib%u*'", next_random(seed) % 3);
		output_add(text, "}}\n");
	}
}

static void random_frame(char *frame, size_t bytes, uint32_t *seed)
{
	snprintf(frame, bytes, "%s_%u:init_%s", next_random(seed) % 2 ? "mod" : "mood", next_random(seed) % 32,
		next_random(seed) % 2 ? "file" : "fil");
}

/* A gram that occurs in one frame and the pattern in another; more frames than can be told apart. */
static void match_of_a_frame_far_down_is_found(void **state)
{
	static const char text[] = "version: 1\nobjects:\n"
				   "  - {name: a, match: {python: '*module_a:init*'}, class: permanent}\n"
				   "  - {name: b, match: {python: '*module_b:init*'}, class: permanent}\n"
				   "  - {name: c, match: {python: '*module_c:init*'}, class: permanent}\n"
				   "  - {name: d, match: {stack: '*module_c:init*'}, class: permanent}\n";
	static const size_t places[] = {0, 1, 200, 253, 254, 255, 256, 257, 299};
	enum { FRAMES = 300 };
	const char *frames[FRAMES];
	struct policy_source source;
	struct policy policy;

	given_policy(&source, text, &policy);
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		struct policy_facts facts = {.role = POLICY_NONE, .phase = POLICY_NONE, .python = frames};

		for (size_t k = 0; k < FRAMES; k++)
			frames[k] = k % 2 ? "module_c:in" : "e_c:init";
		facts.python_count = FRAMES;
		assert_int_equal(policy_match(&policy, &facts), policy.rules_count - 1);
		frames[places[i]] = "x/module_c:init_all";
		assert_int_equal(policy_match(&policy, &facts), 2);
		frames[places[i]] = "xy/module_b:init_all";
		assert_int_equal(policy_match(&policy, &facts), 1);
		facts.stack = frames;
		facts.stack_count = FRAMES;
		facts.python_count = 0;
		assert_int_equal(policy_match(&policy, &facts), policy.rules_count - 1);
		frames[places[i]] = "module_c:init";
		assert_int_equal(policy_match(&policy, &facts), 3);
	}
	policy_source_release(&source);
}

static void literals_by_table(void **state)
{
	static const struct {
		const char *pattern, *runs; /* with a space behind each */
	} rows[] = {
		{"", ""},
		{"*", ""},
		{"abc", "abc "},
		{"*abc*de?f", "abc de f "},
		{"a[bc]d", "a d "},
		{"a[]]d[!x]e", "a d e "},
		{"a\\*bc", "a bc "},
		{"a[bc", "a[bc "},
		{"*[*", "[ "},
		{"ab\\", "ab \\ "},
		{"[x]", ""},
		{"?\\a?", ""},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const char *at = rows[i].pattern, *run;
		char runs[32] = "";
		size_t length;

		while ((run = glob_next_literal(&at, &length)), length) {
			strncat(runs, run, length);
			strcat(runs, " ");
		}
		assert_string_equal(runs, rows[i].runs);
	}
}

static void match_by_index_is_the_match_by_walking(void **state)
{
	uint32_t seed = 20261202;

	for (int round = 0; round < 20; round++) {
		struct policy_source source;
		struct output text = {0};
		struct policy policy;

		random_policy(&text, &seed, 1 + round * 13); /* over the words of the index */
		given_policy(&source, output_get(&text), &policy);
		for (int i = 0; i < 2000; i++) {
			char tag[16], python[32], other[32], stack[16], library[16];
			const char *frames[] = {"xyz", python, other, python, other}, *natives[] = {"", stack, stack};
			struct policy_facts facts = {.role = next_random(&seed) % 5,
				.phase = next_random(&seed) % 4,
				.api = next_random(&seed) % (POLICY_API_COUNT + 2),
				.device = next_random(&seed) % 4 + next_random(&seed) % 2 * 62,
				.order = next_random(&seed) % 20,
				.size_bytes = next_random(&seed) % 210 * 1024 + next_random(&seed) % 3,
				.tag = tag,
				.python = frames,
				.python_count = next_random(&seed) % 6,
				.stack = natives,
				.stack_count = next_random(&seed) % 4,
				.library = {library}};

			snprintf(tag, sizeof(tag), "t%u", next_random(&seed) % 9);
			random_frame(python, sizeof(python), &seed);
			random_frame(other, sizeof(other), &seed);
			snprintf(stack, sizeof(stack), "lib%u.so", next_random(&seed) % 5);
			snprintf(library, sizeof(library), "/usr/lib%u/x", next_random(&seed) % 4);
			assert_int_equal(policy_match(&policy, &facts), plain_match(&policy, &facts));
		}
		policy_source_release(&source);
		output_release(&text);
	}
}

/* --- roles and triggers ------------------------------------------------------------------------------------------- */

static const char *variable(const char *name, void *arg)
{
	return strcmp(name, "CLUSTER_NAME") == 0 ? arg : NULL;
}

static void role_is_the_given_one_else_the_first_that_matches(void **state)
{
	static const char text[] =
		"version: 1\nroles:\n  given:\n  both: {command: '*train.py*', environment: {CLUSTER_NAME: 'actor_*'}}\n"
		"  command: {command: '*train.py*'}\n  path: {executable: ['*/python3', '*/python3.*']}\n";
	static const struct {
		const char *role, *command, *executable, *cluster, *expected;
	} rows[] = {
		{"given", "python train.py", NULL, NULL, "given"},
		{NULL, "python train.py", NULL, "actor_train", "both"},
		{NULL, "python train.py", NULL, "critic", "command"},
		{"", "python train.py", NULL, NULL, "command"},
		{NULL, "x", "/usr/bin/python3.11", NULL, "path"},
		{NULL, NULL, NULL, NULL, NULL},
		{"other", "python train.py", NULL, NULL, NULL},
	};
	struct policy_source source;
	struct policy policy;

	given_policy(&source, text, &policy);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct policy_process process = {
			rows[i].role, rows[i].command, rows[i].executable, variable, (void *)rows[i].cluster};

		assert_int_equal(policy_role_of(&policy, &process), policy_role_find(&policy, rows[i].expected));
	}
	policy_source_release(&source);
}

static void trigger_is_the_first_that_matches(void **state)
{
	static const char text[] =
		"version: 1\nroles: [a, b]\nphases: [p, q]\ntriggers:\n"
		"  - {enter: p, role: a, nvtx_push: '*gen*'}\n  - {enter: q, nvtx_push: '*gen*'}\n  - {enter: q, role: b, nvtx_pop: '*'}\n"
		"  - {enter: p, kernel: [x, y]}\n  - {enter: q, environment: {CLUSTER_NAME: 'actor_*'}}\n  - {enter: p, command: true}\n";
	struct policy_source source;
	struct policy policy;
	char cluster[] = "actor_train", other[] = "critic";

	given_policy(&source, text, &policy);
	assert_int_equal(policy_trigger_of(&policy, POLICY_TRIGGER_NVTX_PUSH, 0, "generate"), 0);
	assert_int_equal(policy_trigger_of(&policy, POLICY_TRIGGER_NVTX_PUSH, 1, "generate"), 1);
	assert_int_equal(policy_trigger_of(&policy, POLICY_TRIGGER_NVTX_PUSH, POLICY_NONE, "generate"), 1);
	assert_int_equal(policy_trigger_of(&policy, POLICY_TRIGGER_NVTX_PUSH, 0, "score"), POLICY_NONE);
	assert_int_equal(policy_trigger_of(&policy, POLICY_TRIGGER_NVTX_POP, 0, "generate"), POLICY_NONE);
	assert_int_equal(policy_trigger_of(&policy, POLICY_TRIGGER_NVTX_POP, 1, "generate"), 1);
	assert_int_equal(policy_trigger_of(&policy, POLICY_TRIGGER_KERNEL, 0, "y"), 0);
	assert_int_equal(policy_trigger_of(&policy, POLICY_TRIGGER_KERNEL, 0, NULL), POLICY_NONE);
	assert_int_equal(policy_trigger_of_variables(&policy, 0, variable, cluster), 1);
	assert_int_equal(policy_trigger_of_variables(&policy, 0, variable, other), POLICY_NONE);
	assert_int_equal(policy_trigger_of_variables(&policy, 0, variable, NULL), POLICY_NONE);
	policy_source_release(&source);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(glob_by_table),
		cmocka_unit_test(glob_covers_by_table),
		cmocka_unit_test(glob_of_many_stars_ends),
		cmocka_unit_test(match_by_table),
		cmocka_unit_test(match_of_numbers_that_are_none_goes_to_the_default),
		cmocka_unit_test(match_by_index_is_the_match_by_walking),
		cmocka_unit_test(match_of_a_frame_far_down_is_found),
		cmocka_unit_test(literals_by_table),
		cmocka_unit_test(role_is_the_given_one_else_the_first_that_matches),
		cmocka_unit_test(trigger_is_the_first_that_matches),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
