/* tests/unit/test_policy_source.c
 * policy/source/: memory that runs out at every allocation, facts as people type them, texts for JSON and terminals.
 * What the language takes and refuses is tested by files (tests/policy, tests/cli/policy_files.py). */
#include <errno.h>
#include <stdlib.h>

#include "policy/source/explain.h"
#include "tests/unit/policy_harness.h"

/* --- memory ------------------------------------------------------------------------------------------------------- */

/* Linked in front of libc's (-Wl,--wrap): the @fail_at-th allocation from now on fails, and, if @fail_on, all later
 * ones. */
static long fail_at;
static bool fail_on;

static bool fails_now(void)
{
	if (fail_at <= 0)
		return false;
	if (--fail_at > 0)
		return false;
	if (fail_on)
		fail_at = 1;
	errno = ENOMEM;
	return true;
}

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);

void *__wrap_malloc(size_t bytes)
{
	return fails_now() ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t bytes)
{
	return fails_now() ? NULL : __real_calloc(count, bytes);
}

void *__wrap_realloc(void *old, size_t bytes)
{
	return fails_now() ? NULL : __real_realloc(old, bytes);
}

/* Long enough to need several chunks of the arena. */
static void long_policy(struct output *text)
{
	output_add(text, "version: 1\nroles: [train, rollout]\nphases: [decode, update]\nobjects:\n");
	for (int i = 0; i < 200; i++)
		output_add(text,
			"  - {name: o%d, match: {role: [train, rollout], size: [1GiB, '>=%dMiB'], python: ['*a%d*', b]}, "
			"class: permanent, resident: [decode, updat%c]}\n",
			i, i + 1, i, i % 2 ? 'e' : 'f');
}

/* Thousands of loads with thousands of allocations each take minutes under the address sanitizer: there the first
 * allocations fail one by one, of the others one in 61 (a prime, so that no place in a repeated rule is always passed over). */
#ifdef __SANITIZE_ADDRESS__
#define NEXT_TO_FAIL(n) ((n) < 200 ? (n) + 1 : (n) + 61)
#else
#define NEXT_TO_FAIL(n) ((n) + 1)
#endif

static void load_with_any_allocation_failing_says_so_and_leaks_nothing(void **state)
{
	struct output text = {0};

	long_policy(&text);
	for (int once = 0; once < 2; once++) {
		for (long n = 1;; n = NEXT_TO_FAIL(n)) {
			struct policy_source source;
			struct errinfo error = {0};
			enum sublet_err err;

			fail_at = n;
			fail_on = once == 0;
			err = policy_source_load(&source, output_get(&text), text.length, &error);
			if (fail_at > 0 && !(fail_on && err)) { /* fewer than n were made */
				fail_at = 0;
				assert_int_equal(err, SUBLET_OK);
				assert_int_equal(source.diagnostics.errors, 100);
				policy_source_release(&source);
				assert_true(n > 5);
				break;
			}
			fail_at = 0;
			assert_int_equal(err, SUBLET_ERR_NOMEM);
			assert_string_equal(error.text, "out of memory");
			assert_null(source.block.bytes);
			policy_source_release(&source); /* leaks are the sanitizer's to find */
		}
	}
	output_release(&text);
}

static void text_with_memory_running_out_remembers_it(void **state)
{
	struct output text = {0};

	fail_at = 1;
	output_add(&text, "%d", 1);
	fail_at = 0;
	assert_true(text.failed);
	output_add(&text, "more");
	assert_string_equal(output_get(&text), "");
	output_release(&text);
}

/* --- facts -------------------------------------------------------------------------------------------------------- */

static const char policy_of_facts[] =
	"version: 1\nroles: [train, rollout]\nphases: [decode, update]\n"
	"objects:\n  - {name: kv, match: {role: rollout, python: '*kv cache*'}, class: permanent, resident: decode, otherwise: park}\n";

static void facts_that_are_wrong_are_refused_by_name(void **state)
{
	static const struct {
		const char *words, *said;
	} rows[] = {
		{"rollout", "facts are written KEY=VALUE, such as role=train, not 'rollout'; put a value with spaces in quotes"},
		{"rol=train", "there is no fact 'rol'; did you mean 'role'?"},
		{"zzzzzz=1", "there is no fact 'zzzzzz'"},
		{"role=", "no value is given for 'role'"},
		{"role=trian", "the policy has no role 'trian'; did you mean 'train'?"},
		{"phase=x", "the policy has no phase 'x'; there is decode, update"},
		{"role=nobody", "the policy has no role 'nobody'; there is train, rollout"},
		{"api=cuMemAlloc_v2", "no driver call that gives memory is called 'cuMemAlloc_v2'; did you mean 'cuMemAlloc'?"},
		{"size=big", "a size such as 464MiB is needed, not 'big'"},
		{"size=1GiB size=2GiB", "given twice: 'size'"},
		{"order=-1", "a number is needed for 'order', not '-1'"},
		{"device=64", "a device number from 0 to 63 is needed, not '64'"},
		{"api=cuMemAloc", "no driver call that gives memory is called 'cuMemAloc'; did you mean 'cuMemAlloc'?"},
	};
	struct policy_source source;
	struct policy policy;

	given_policy(&source, policy_of_facts, &policy);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct typed_facts facts;
		struct errinfo error = {0};

		assert_int_equal(
			typed_facts_parse(&policy, &source.arena, rows[i].words, &facts, &error), SUBLET_ERR_INVALID);
		assert_string_equal(error.text, rows[i].said);
	}
	policy_source_release(&source);
}

static void facts_in_quotes_keep_their_spaces(void **state)
{
	struct policy_source source;
	struct policy policy;
	struct typed_facts facts;

	given_policy(&source, policy_of_facts, &policy);
	assert_int_equal(typed_facts_parse(&policy, &source.arena,
				 "  role=rollout\tpython='the kv cache' python=\"b's\" tag=a'b c'd", &facts, NULL),
		SUBLET_OK);
	assert_int_equal(facts.facts.python_count, 2);
	assert_string_equal(facts.facts.python[0], "the kv cache");
	assert_string_equal(facts.facts.python[1], "b's");
	assert_string_equal(facts.facts.tag, "ab cd");
	assert_int_equal(policy_match(&policy, &facts.facts), 0);
	policy_source_release(&source);
}

static void facts_with_too_many_frames_are_refused(void **state)
{
	struct policy_source source;
	struct policy policy;
	struct typed_facts facts;
	struct errinfo error;
	struct output words = {0};

	given_policy(&source, policy_of_facts, &policy);
	for (int i = 0; i <= FACTS_FRAMES_MAX; i++)
		output_add(&words, "python=f%d ", i);
	assert_int_equal(
		typed_facts_parse(&policy, &source.arena, output_get(&words), &facts, &error), SUBLET_ERR_INVALID);
	output_release(&words);
	policy_source_release(&source);
}

/* --- texts -------------------------------------------------------------------------------------------------------- */

static void printable_texts_command_no_terminal(void **state)
{
	struct output text = {0};

	output_add_printable(&text, "a\x1b[31m\nb\x7f\xc2\x9b\xc3\xa4\xff\xe2\x82");
	assert_string_equal(output_get(&text), "a?[31m?b??\xc3\xa4???");
	output_release(&text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(load_with_any_allocation_failing_says_so_and_leaks_nothing),
		cmocka_unit_test(text_with_memory_running_out_remembers_it),
		cmocka_unit_test(facts_that_are_wrong_are_refused_by_name),
		cmocka_unit_test(facts_in_quotes_keep_their_spaces),
		cmocka_unit_test(facts_with_too_many_frames_are_refused),
		cmocka_unit_test(printable_texts_command_no_terminal),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
