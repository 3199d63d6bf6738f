/* tests/unit/test_phase.c
 * The steps of a barrier in one process (lifecycle/phase.h): what may happen between the hold and the opening of the gate. */
#include "tests/unit/residency_harness.h"

#include <pthread.h>

#include "base/clock.h"

#define SECOND 1000000000ull

static enum sublet_err step_within(enum protocol_step step, uint64_t patience_ns)
{
	const struct service_request request = {.verb = SERVICE_STEP, .step = step, .timeout_ns = SECOND, .patience_ns = patience_ns};

	return service_do(&fixture_lc, &request, &report, &failure);
}

static enum sublet_err step(enum protocol_step step)
{
	return step_within(step, 60 * SECOND);
}

#define STEPPED(which)                                                                                                 \
	do {                                                                                                           \
		if (step(which))                                                                                       \
			fail_msg("%s", failure.text);                                                                  \
	} while (0)

/* What the phase wants of each rule. */
static enum residency wanted[4];

static enum residency wants(void *arg, const struct allocation *allocation, uint32_t phase, bool arrived)
{
	return allocation->rule < 4 ? wanted[allocation->rule] : RESIDENCY_HOST;
}

static struct block block_of_rule(uint64_t bytes, uint32_t seed, uint32_t rule)
{
	struct block block = new_block(bytes, seed);

	record_of(block.address)->rule = rule;
	return block;
}

static bool shut(void)
{
	return gate_is_shut(&fixture_lc.gate);
}

static int setup_phase(void **state)
{
	if (setup(state))
		return -1;
	service_set_wants(&fixture_lc, wants, NULL, NULL);
	wanted[0] = RESIDENCY_HOST;
	return 0;
}

struct calling {
	pthread_t thread;
	bool done; /* atomic */
};

static void *call_main(void *arg)
{
	struct calling *caller = arg;
	struct gate_slot *slot = gate_enter(&fixture_lc.gate, "cuLaunchKernel", NULL);

	if (slot)
		gate_leave(slot);
	__atomic_store_n(&caller->done, true, __ATOMIC_RELEASE);
	return NULL;
}

static void begin_call(struct calling *caller)
{
	*caller = (struct calling){0};
	assert_int_equal(pthread_create(&caller->thread, NULL, call_main, caller), 0);
}

static bool ends_within(struct calling *caller, uint64_t ns)
{
	const uint64_t until = clock_now_ns() + ns;

	while (!__atomic_load_n(&caller->done, __ATOMIC_ACQUIRE) && clock_now_ns() < until)
		clock_sleep_ns(10 * CLOCK_NS_PER_MS);
	return __atomic_load_n(&caller->done, __ATOMIC_ACQUIRE);
}

static void there_and_back(void **state)
{
	struct block block = block_of_rule(4 * MIB, 1, 0);

	STEPPED(PROTOCOL_STEP_HOLD);
	assert_true(shut());
	STEPPED(PROTOCOL_STEP_RELEASE);
	assert_int_equal(residency_of(&block), RESIDENCY_HOST);
	STEPPED(PROTOCOL_STEP_REVERSE);
	STEPPED(PROTOCOL_STEP_OPEN);
	assert_false(shut());
	assert_true(same_bytes(&block));
}

/* A step that comes when the hold it belongs to is over would move under kernels that run. */
static void nothing_moves_while_the_gate_is_open(void **state)
{
	static const enum protocol_step steps[] = {PROTOCOL_STEP_RELEASE, PROTOCOL_STEP_ACQUIRE, PROTOCOL_STEP_REVERSE};
	struct block block = block_of_rule(4 * MIB, 1, 0);

	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		assert_int_equal(step(steps[i]), SUBLET_ERR_INVALID);
		assert_non_null(strstr(failure.text, "gate"));
		assert_int_equal(residency_of(&block), RESIDENCY_DEVICE);
	}
	STEPPED(PROTOCOL_STEP_OPEN);
	assert_true(same_bytes(&block));
}

static void patience_that_has_passed_ends_the_hold_for_later_steps_too(void **state)
{
	struct block block = block_of_rule(4 * MIB, 1, 0);
	struct calling caller;

	assert_int_equal(step_within(PROTOCOL_STEP_HOLD, 0), SUBLET_OK);
	begin_call(&caller);
	assert_true(ends_within(&caller, 20 * SECOND));
	pthread_join(caller.thread, NULL);
	assert_false(shut());
	assert_int_equal(step(PROTOCOL_STEP_RELEASE), SUBLET_ERR_INVALID);
	assert_int_equal(residency_of(&block), RESIDENCY_DEVICE);
	assert_true(same_bytes(&block));
}

/* It was accepted before the barrier began, and its turn comes in the middle. */
static void a_request_in_a_barrier_neither_moves_nor_opens_the_gate(void **state)
{
	struct block block = block_of_rule(4 * MIB, 1, 0);

	STEPPED(PROTOCOL_STEP_HOLD);
	for (enum service_verb verb = SERVICE_OFFLOAD; verb <= SERVICE_DISCARD; verb++) {
		const struct service_request request = {.verb = verb, .object = SERVICE_ALL};

		assert_int_equal(service_do(&fixture_lc, &request, &report, &failure), SUBLET_ERR_INVALID);
		assert_non_null(strstr(failure.text, "between two phases"));
		assert_true(shut());
		assert_int_equal(residency_of(&block), RESIDENCY_DEVICE);
	}
	STEPPED(PROTOCOL_STEP_RELEASE);
	STEPPED(PROTOCOL_STEP_REVERSE);
	STEPPED(PROTOCOL_STEP_OPEN);
	assert_false(shut());
	assert_true(same_bytes(&block));
}

/* No way back would be known for it. */
static void what_is_made_since_the_hold_stays_where_it_is(void **state)
{
	struct block old = block_of_rule(4 * MIB, 1, 0), new;

	STEPPED(PROTOCOL_STEP_HOLD);
	new = block_of_rule(2 * MIB, 2, 0);
	STEPPED(PROTOCOL_STEP_RELEASE);
	assert_int_equal(residency_of(&old), RESIDENCY_HOST);
	assert_int_equal(residency_of(&new), RESIDENCY_DEVICE);
	STEPPED(PROTOCOL_STEP_REVERSE);
	STEPPED(PROTOCOL_STEP_OPEN);
	assert_false(shut());
	assert_true(same_bytes(&old) && same_bytes(&new));
}

/* Else its room is missing to those who gave it. */
static void what_was_empty_is_empty_again_when_a_barrier_is_run_backwards(void **state)
{
	struct block cache = block_of_rule(4 * MIB, 1, 1);

	wanted[1] = RESIDENCY_EMPTY;
	STEPPED(PROTOCOL_STEP_HOLD);
	STEPPED(PROTOCOL_STEP_RELEASE);
	STEPPED(PROTOCOL_STEP_OPEN);
	assert_int_equal(residency_of(&cache), RESIDENCY_EMPTY);
	wanted[1] = RESIDENCY_DEVICE;
	STEPPED(PROTOCOL_STEP_HOLD);
	STEPPED(PROTOCOL_STEP_RELEASE);
	STEPPED(PROTOCOL_STEP_ACQUIRE);
	assert_int_equal(residency_of(&cache), RESIDENCY_DEVICE);
	STEPPED(PROTOCOL_STEP_REVERSE);
	STEPPED(PROTOCOL_STEP_OPEN);
	assert_int_equal(residency_of(&cache), RESIDENCY_EMPTY);
	assert_true(shut());
}

/* A destructor that makes a gated call is not kept for as long as a barrier may take. */
static void the_end_of_the_process_is_not_kept_by_a_barrier(void **state)
{
	struct block block = block_of_rule(4 * MIB, 1, 0);
	struct calling caller;

	STEPPED(PROTOCOL_STEP_HOLD);
	STEPPED(PROTOCOL_STEP_RELEASE);
	assert_true(service_stop(&fixture_lc, 5 * SECOND));
	begin_call(&caller);
	assert_true(ends_within(&caller, 20 * SECOND));
	pthread_join(caller.thread, NULL);
	assert_true(same_bytes(&block));
}

#undef CASE
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup_phase, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(there_and_back),
		CASE(nothing_moves_while_the_gate_is_open),
		CASE(patience_that_has_passed_ends_the_hold_for_later_steps_too),
		CASE(a_request_in_a_barrier_neither_moves_nor_opens_the_gate),
		CASE(what_is_made_since_the_hold_stays_where_it_is),
		CASE(what_was_empty_is_empty_again_when_a_barrier_is_run_backwards),
		CASE(the_end_of_the_process_is_not_kept_by_a_barrier),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
