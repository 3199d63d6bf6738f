/* tests/unit/test_triggers.c
 * lifecycle/triggers.h over policies from text: which ranges begin which phase, how ranges nest, what is forgotten. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lifecycle/triggers.h"
#include "policy/roles.h"
#include "tests/unit/policy_harness.h"

#define HEAD "version: 1\nroles: [a, b]\nphases: [p, q, r]\ntriggers:\n"
#define BOTH HEAD "  - {enter: p, nvtx_push: 'in_*'}\n  - {enter: q, nvtx_pop: 'in_*'}\n  - {enter: r, nvtx_pop: '*'}\n"
#define OPENED HEAD "  - {enter: p, nvtx_push: 'in_*'}\n"
#define OF_ROLE HEAD "  - {enter: p, role: a, nvtx_push: '*'}\n"
#define OTHERS HEAD "  - {enter: p, kernel: '*'}\n  - {enter: q, command: true}\n"

enum { ARRIVED_MAX = 1024 };

struct fixture {
	struct policy_source source;
	struct policy policy;
	struct triggers_policy rules;
	struct triggers triggers;
	char arrived[ARRIVED_MAX + 1]; /* a letter per phase */
	int count;
};

static void note(void *arg, uint32_t phase)
{
	struct fixture *f = arg;

	if (f->count < ARRIVED_MAX)
		f->arrived[f->count++] = "pqr"[phase];
}

static void given(struct fixture *f, const char *text, uint32_t role)
{
	memset(f, 0, sizeof(*f));
	triggers_on_arrival(&f->triggers, note, f);
	given_policy(&f->source, text, &f->policy);
	triggers_policy_init(&f->rules, &f->policy, role);
	triggers_use(&f->triggers, &f->rules);
}

static void release(struct fixture *f)
{
	triggers_release(&f->triggers);
	policy_source_release(&f->source);
}

static void push(struct fixture *f, const char *name)
{
	triggers_nvtx_push(&f->triggers, NULL, name);
}

static void pop(struct fixture *f)
{
	triggers_nvtx_pop(&f->triggers, NULL);
}

/* ---- which phase ---- */

static void push_and_pop_begin_the_phase_of_their_trigger(void **state)
{
	struct fixture f;

	given(&f, BOTH, 0);
	assert_true(triggers_ask(&f.triggers));
	push(&f, "other");
	assert_string_equal(f.arrived, "");
	push(&f, "in_x");
	assert_string_equal(f.arrived, "p");
	pop(&f);
	assert_string_equal(f.arrived, "pq");
	pop(&f);
	assert_string_equal(f.arrived, "pqr");
	release(&f);
}

static void role_without_a_trigger_is_never_asked(void **state)
{
	struct fixture f;

	given(&f, OF_ROLE, 1);
	assert_false(triggers_ask(&f.triggers));
	push(&f, "x");
	assert_int_equal(f.count, 0);
	release(&f);
	given(&f, OF_ROLE, 0);
	assert_true(triggers_ask(&f.triggers));
	push(&f, "x");
	assert_string_equal(f.arrived, "p");
	release(&f);
	given(&f, OF_ROLE, POLICY_NONE);
	assert_false(triggers_ask(&f.triggers));
	release(&f);
}

static void triggers_of_other_events_do_not_ask(void **state)
{
	struct fixture f;

	given(&f, OTHERS, 0);
	assert_int_equal(policy_trigger_sources(&f.policy, 0), 1u << POLICY_TRIGGER_KERNEL | 1u << POLICY_TRIGGER_COMMAND);
	assert_false(triggers_ask(&f.triggers));
	push(&f, "in_x");
	pop(&f);
	assert_int_equal(f.count, 0);
	release(&f);
}

static void nobody_listens_and_nothing_happens(void **state)
{
	struct fixture f;

	given(&f, BOTH, 0);
	triggers_on_arrival(&f.triggers, NULL, NULL);
	push(&f, "in_x");
	pop(&f);
	assert_int_equal(f.count, 0);
	release(&f);
}

/* ---- nesting ---- */

static void pops_too_many_are_nothing(void **state)
{
	struct fixture f;

	given(&f, BOTH, 0);
	pop(&f);
	pop(&f);
	assert_int_equal(f.count, 0);
	push(&f, "in_x");
	pop(&f);
	pop(&f);
	assert_string_equal(f.arrived, "pq");
	release(&f);
}

static void domains_nest_apart(void **state)
{
	struct fixture f;
	char one, two;

	given(&f, BOTH, 0);
	triggers_nvtx_push(&f.triggers, &one, "in_one");
	triggers_nvtx_push(&f.triggers, &two, "other");
	triggers_nvtx_pop(&f.triggers, &one);
	assert_string_equal(f.arrived, "pq");
	triggers_nvtx_pop(&f.triggers, &one);
	triggers_nvtx_pop(&f.triggers, NULL);
	assert_string_equal(f.arrived, "pq");
	triggers_nvtx_pop(&f.triggers, &two);
	assert_string_equal(f.arrived, "pqr");
	release(&f);
}

static void range_without_a_name_nests_and_begins_nothing(void **state)
{
	struct fixture f;

	given(&f, BOTH, 0);
	push(&f, "in_x");
	push(&f, NULL);
	pop(&f);
	assert_string_equal(f.arrived, "p");
	pop(&f);
	assert_string_equal(f.arrived, "pq");
	release(&f);
}

static void name_is_copied(void **state)
{
	struct fixture f;
	char name[] = "in_x";

	given(&f, BOTH, 0);
	push(&f, name);
	memset(name, 'y', sizeof(name) - 1);
	pop(&f);
	assert_string_equal(f.arrived, "pq");
	release(&f);
}

static void ranges_never_popped_push_out_the_outermost(void **state)
{
	struct fixture f;

	given(&f, BOTH, 0);
	push(&f, "in_lost");
	for (int i = 0; i < TRIGGERS_NESTING_MAX; i++)
		push(&f, "other");
	for (int i = 0; i < TRIGGERS_NESTING_MAX; i++)
		pop(&f);
	assert_int_equal(f.count, 1 + TRIGGERS_NESTING_MAX);
	assert_int_equal(strspn(f.arrived + 1, "r"), TRIGGERS_NESTING_MAX);
	pop(&f);
	assert_int_equal(f.count, 1 + TRIGGERS_NESTING_MAX);
	release(&f);
}

/* ---- started ranges ---- */

static void started_range_ends_by_its_number(void **state)
{
	struct fixture f;
	uint64_t ours;

	given(&f, BOTH, 0);
	assert_int_equal(triggers_range_start(&f.triggers, 17, "in_x"), 17);
	ours = triggers_range_start(&f.triggers, 0, "other");
	assert_true(ours > 17);
	assert_int_not_equal(triggers_range_start(&f.triggers, 0, "other"), ours);
	assert_string_equal(f.arrived, "p");
	triggers_range_end(&f.triggers, 17);
	assert_string_equal(f.arrived, "pq");
	triggers_range_end(&f.triggers, ours);
	assert_string_equal(f.arrived, "pqr");
	triggers_range_end(&f.triggers, ours);
	triggers_range_end(&f.triggers, 17);
	triggers_range_end(&f.triggers, 0);
	triggers_range_end(&f.triggers, UINT64_MAX);
	assert_string_equal(f.arrived, "pqr");
	release(&f);
}

static void started_range_gets_no_number_where_its_end_is_nothing(void **state)
{
	struct fixture f;

	given(&f, OPENED, 0);
	assert_int_equal(triggers_range_start(&f.triggers, 0, "in_x"), 0);
	assert_string_equal(f.arrived, "p");
	release(&f);
}

static void ranges_started_beyond_the_room_are_not_followed(void **state)
{
	struct fixture f;

	given(&f, BOTH, 0);
	for (uint64_t i = 1; i <= TRIGGERS_STARTED_MAX; i++)
		triggers_range_start(&f.triggers, i, "other");
	assert_int_equal(triggers_range_start(&f.triggers, 7777, "in_x"), 7777);
	triggers_range_end(&f.triggers, 7777);
	assert_string_equal(f.arrived, "p");
	triggers_range_end(&f.triggers, 5);
	assert_string_equal(f.arrived, "pr");
	triggers_range_start(&f.triggers, 7778, "in_x");
	triggers_range_end(&f.triggers, 7778);
	assert_string_equal(f.arrived, "prpq");
	release(&f);
}

/* ---- policies that come and go ---- */

static void range_open_when_the_policy_comes_is_seen_to_end(void **state)
{
	struct fixture f;

	given(&f, BOTH, 0);
	memset(&f.triggers, 0, sizeof(f.triggers));
	triggers_on_arrival(&f.triggers, note, &f);
	push(&f, "in_lost"); /* nobody expects anything yet */
	triggers_expect(&f.triggers);
	assert_true(triggers_ask(&f.triggers));
	push(&f, "in_x");
	assert_int_equal(triggers_range_start(&f.triggers, 3, "in_y"), 3);
	assert_int_equal(f.count, 0);
	triggers_use(&f.triggers, &f.rules);
	pop(&f);
	triggers_range_end(&f.triggers, 3);
	assert_string_equal(f.arrived, "qq");
	pop(&f);
	assert_string_equal(f.arrived, "qq");
	triggers_expect(&f.triggers);
	triggers_settle(&f.triggers);
	assert_int_equal(f.triggers.asks, f.rules.asks);
	release(&f);
}

static void no_policy_is_settled_and_costs_nothing(void **state)
{
	struct triggers triggers = {0};

	triggers_expect(&triggers);
	assert_true(triggers_ask(&triggers));
	triggers_nvtx_push(&triggers, NULL, "x");
	triggers_settle(&triggers);
	assert_false(triggers_ask(&triggers));
	triggers_expect(&triggers);
	assert_false(triggers_ask(&triggers));
	triggers_release(&triggers);
}

/* While names are not kept ranges come and go unseen: what was known before is no more. */
static void names_from_before_a_pause_are_stale(void **state)
{
	struct fixture f;

	given(&f, BOTH, 0);
	push(&f, "in_x");
	triggers_range_start(&f.triggers, 9, "in_y");
	triggers_use(&f.triggers, NULL);
	assert_false(triggers_ask(&f.triggers));
	triggers_use(&f.triggers, &f.rules);
	pop(&f);
	triggers_range_end(&f.triggers, 9);
	assert_string_equal(f.arrived, "pp");
	release(&f);
}

/* ---- threads and forks ---- */

static void *nest_and_pop(void *arg)
{
	struct fixture *f = arg;

	pop(f); /* what the other thread has pushed is not this one's */
	push(f, "other");
	triggers_range_end(&f->triggers, 21);
	return NULL; /* with a range open: its memory goes with the thread (leak checkers) */
}

static void threads_nest_apart_and_end_what_others_started(void **state)
{
	struct fixture f;
	pthread_t thread;

	given(&f, BOTH, 0);
	push(&f, "in_x");
	triggers_range_start(&f.triggers, 21, "in_y");
	assert_int_equal(pthread_create(&thread, NULL, nest_and_pop, &f), 0);
	pthread_join(thread, NULL);
	assert_string_equal(f.arrived, "ppq");
	pop(&f);
	assert_string_equal(f.arrived, "ppqq");
	release(&f);
}

enum { THREADS = 4, ROUNDS = 2000 };

static unsigned arrivals; /* atomic */

static void count(void *arg, uint32_t phase)
{
	__atomic_add_fetch(&arrivals, 1, __ATOMIC_RELAXED);
}

static void *start_and_end(void *arg)
{
	struct fixture *f = arg;

	for (int i = 0; i < ROUNDS; i++) {
		uint64_t number = triggers_range_start(&f->triggers, 0, "in_x");

		push(f, "in_y");
		triggers_range_end(&f->triggers, number);
		pop(f);
	}
	return NULL;
}

static void threads_together_lose_no_event(void **state)
{
	struct fixture f;
	pthread_t threads[THREADS];

	given(&f, BOTH, 0);
	arrivals = 0;
	triggers_on_arrival(&f.triggers, count, NULL);
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, start_and_end, &f), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(arrivals, 4 * THREADS * ROUNDS);
	release(&f);
}

static void forked_child_is_asked_nothing_and_may_begin_anew(void **state)
{
	struct fixture f;
	int status = 0;
	pid_t child;

	given(&f, BOTH, 0);
	push(&f, "in_x");
	triggers_range_start(&f.triggers, 5, "in_y");
	child = fork();
	if (child == 0) {
		bool good;

		triggers_forget(&f.triggers);
		good = !triggers_ask(&f.triggers);
		pop(&f);
		triggers_on_arrival(&f.triggers, note, &f);
		triggers_use(&f.triggers, &f.rules);
		pop(&f); /* the parent's */
		triggers_range_end(&f.triggers, 5);
		push(&f, "in_z");
		pop(&f);
		_exit(good && strcmp(f.arrived, "pppq") == 0 ? 0 : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	pop(&f);
	triggers_range_end(&f.triggers, 5);
	assert_string_equal(f.arrived, "ppqq");
	release(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(push_and_pop_begin_the_phase_of_their_trigger),
		cmocka_unit_test(role_without_a_trigger_is_never_asked),
		cmocka_unit_test(triggers_of_other_events_do_not_ask),
		cmocka_unit_test(nobody_listens_and_nothing_happens),
		cmocka_unit_test(pops_too_many_are_nothing),
		cmocka_unit_test(domains_nest_apart),
		cmocka_unit_test(range_without_a_name_nests_and_begins_nothing),
		cmocka_unit_test(name_is_copied),
		cmocka_unit_test(ranges_never_popped_push_out_the_outermost),
		cmocka_unit_test(started_range_ends_by_its_number),
		cmocka_unit_test(started_range_gets_no_number_where_its_end_is_nothing),
		cmocka_unit_test(ranges_started_beyond_the_room_are_not_followed),
		cmocka_unit_test(range_open_when_the_policy_comes_is_seen_to_end),
		cmocka_unit_test(no_policy_is_settled_and_costs_nothing),
		cmocka_unit_test(names_from_before_a_pause_are_stale),
		cmocka_unit_test(threads_nest_apart_and_end_what_others_started),
		cmocka_unit_test(threads_together_lose_no_event),
		cmocka_unit_test(forked_child_is_asked_nothing_and_may_begin_anew),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
