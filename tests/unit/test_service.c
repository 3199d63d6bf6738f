/* tests/unit/test_service.c
 * Requests from outside: which of them hold the gate, when it opens again, what a call that waits in front of it brings about. */
#include "tests/unit/residency_harness.h"

#include <pthread.h>

#include "base/clock.h"

#define SECOND 1000000000ull

static enum sublet_err ask(enum service_verb verb, uint32_t object)
{
	const struct service_request request = {.verb = verb, .object = object};

	return service_do(&fixture_lc, &request, &report, &failure);
}

#define DONE(verb, object)                                                                                             \
	do {                                                                                                           \
		if (ask(verb, object))                                                                                 \
			fail_msg("%s", failure.text);                                                                  \
	} while (0)

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

static void offload_holds_until_all_is_back(void **state)
{
	struct block block = new_block(5 * MIB, 1), other = new_block(2 * MIB, 2);

	DONE(SERVICE_OFFLOAD, SERVICE_ALL);
	assert_true(shut());
	assert_true(service_held(&fixture_lc));
	assert_int_equal(report.moved, 2);
	assert_int_equal(report.holes, 2);
	DONE(SERVICE_RESTORE, SERVICE_ALL);
	assert_false(shut());
	assert_false(service_held(&fixture_lc));
	assert_true(same_bytes(&block));
	assert_true(same_bytes(&other));
	DONE(SERVICE_OFFLOAD, SERVICE_ALL);
	DONE(SERVICE_PARK, SERVICE_ALL); /* no hole is left by this either */
	assert_false(shut());
	assert_true(same_bytes(&block));
}

static void what_is_there_already_needs_no_hold(void **state)
{
	uint64_t marks;

	new_block(5 * MIB, 1);
	marks = sublet_sim_calls("cuCtxRecordEvent");
	for (int i = 0; i < 2; i++) {
		DONE(SERVICE_RESTORE, SERVICE_ALL);
		assert_int_equal(report.already, 1);
		assert_int_equal(report.already_bytes, 6 * MIB);
		assert_int_equal(report.moved, 0);
	}
	DONE(SERVICE_OFFLOAD, 77); /* nothing of that rule */
	assert_int_equal(report.moved + report.already, 0);
	assert_int_equal(sublet_sim_calls("cuCtxRecordEvent"), marks);
	assert_false(shut());
}

static void objects_are_moved_one_by_one_and_in_any_order(void **state)
{
	struct block weights = block_of_rule(4 * MIB, 1, 0), cache = block_of_rule(6 * MIB, 2, 1), none = new_block(2 * MIB, 3);
	struct service_object rows[4];
	size_t count;

	DONE(SERVICE_OFFLOAD, 0);
	assert_int_equal(report.moved, 1);
	DONE(SERVICE_OFFLOAD, 1);
	service_objects(&fixture_lc, rows, 4, &count);
	assert_int_equal(count, 3);
	assert_int_equal(rows[0].bytes[RESIDENCY_HOST], 4 * MIB);
	assert_int_equal(rows[1].bytes[RESIDENCY_HOST], 6 * MIB);
	assert_int_equal(rows[2].rule, RULE_NONE);
	assert_int_equal(rows[2].bytes[RESIDENCY_DEVICE], 2 * MIB);
	service_objects(&fixture_lc, rows, 2, &count);
	assert_true(count > 2); /* one is left out, and that is told */
	DONE(SERVICE_RESTORE, 1);
	assert_true(shut());
	DONE(SERVICE_RESTORE, 1);
	DONE(SERVICE_PARK, 0);
	assert_false(shut());
	assert_int_equal(residency_of(&weights), RESIDENCY_PARKED);
	DONE(SERVICE_RESTORE, SERVICE_ALL);
	assert_true(same_bytes(&weights) && same_bytes(&cache) && same_bytes(&none));
}

/* ---- discards ---- */

static bool only_rule_one(void *arg, uint32_t rule)
{
	return rule == 1;
}

static void row_24_a_discard_takes_what_the_policy_gives_up_and_nothing_else(void **state)
{
	struct block weights = block_of_rule(4 * MIB, 1, 0), cache = block_of_rule(6 * MIB, 2, 1), none = new_block(2 * MIB, 3);

	DONE(SERVICE_DISCARD, SERVICE_ALL); /* without a policy: nothing */
	assert_int_equal(report.moved, 0);
	assert_int_equal(ask(SERVICE_DISCARD, 1), SUBLET_ERR_INVALID);
	service_set_policy(&fixture_lc, only_rule_one, NULL);
	assert_int_equal(ask(SERVICE_DISCARD, 0), SUBLET_ERR_INVALID);
	assert_non_null(strstr(failure.text, "offload it"));
	assert_false(shut());
	DONE(SERVICE_DISCARD, SERVICE_ALL);
	assert_int_equal(report.moved, 1);
	assert_int_equal(residency_of(&cache), RESIDENCY_EMPTY);
	assert_true(shut());
	assert_true(same_bytes(&weights) && same_bytes(&none));
	DONE(SERVICE_RESTORE, SERVICE_ALL);
	assert_false(shut());
	assert_true(fill_block(&cache) && same_bytes(&cache));
}

/* ---- the hold ---- */

/* Row 16: what runs when the request comes writes to its end before a byte is copied. */
static void row_16_work_under_way_is_waited_for(void **state)
{
	struct block block = new_block(4 * MIB, 1);
	CUmodule module;
	CUfunction busy_write;
	size_t words = block.bytes / 4;
	uint32_t value = 0x7f7f7f7f, ms = 300;
	void *params[] = {&block.address, &words, &value, &ms};

	OK(cuModuleLoadData(&module, "sublet-sim:builtin"));
	OK(cuModuleGetFunction(&busy_write, module, "sim_busy_write"));
	OK(cuLaunchKernel(busy_write, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	DONE(SERVICE_OFFLOAD, SERVICE_ALL);
	DONE(SERVICE_RESTORE, SERVICE_ALL);
	assert_true(all_bytes_are(block.address, block.bytes, 0x7f));
	OK(cuModuleUnload(module));
}

struct calling {
	pthread_t thread;
	CUcontext context;
	struct block *block;
	uint64_t waited_ns;
	CUresult result;
	bool done; /* atomic */
};

/* A copy as an application makes it: through the gate. */
static void *call_main(void *arg)
{
	struct calling *caller = arg;
	const uint64_t begun = clock_now_ns();
	uint32_t word = caller->block->seed;
	struct gate_slot *slot;

	caller->result = cuCtxSetCurrent(caller->context);
	slot = gate_enter(&fixture_lc.gate, "cuMemcpyHtoD_v2", NULL);
	if (caller->result == CUDA_SUCCESS)
		caller->result = cuMemcpyHtoD_v2(caller->block->address, &word, sizeof(word));
	gate_leave(slot);
	caller->waited_ns = clock_now_ns() - begun;
	__atomic_store_n(&caller->done, true, __ATOMIC_RELEASE);
	return NULL;
}

static void begin_call(struct calling *caller, struct block *block)
{
	*caller = (struct calling){.block = block};
	OK(cuCtxGetCurrent(&caller->context));
	assert_int_equal(pthread_create(&caller->thread, NULL, call_main, caller), 0);
}

static void end_call(struct calling *caller)
{
	pthread_join(caller->thread, NULL);
	OK(caller->result);
}

static void a_call_that_waits_a_second_finds_the_bytes_parked(void **state)
{
	struct block block = new_block(5 * MIB, 1);
	struct calling caller;

	DONE(SERVICE_OFFLOAD, SERVICE_ALL);
	begin_call(&caller, &block);
	end_call(&caller);
	assert_true(caller.waited_ns >= SECOND / 2);
	assert_false(shut());
	assert_int_equal(residency_of(&block), RESIDENCY_PARKED);
	assert_true(same_bytes(&block));
	DONE(SERVICE_RESTORE, SERVICE_ALL);
	assert_true(same_bytes(&block));
}

static void a_call_that_waits_finds_fresh_pages_where_all_was_discarded(void **state)
{
	struct block block = block_of_rule(4 * MIB, 1, 1), cache = block_of_rule(2 * MIB, 2, 1);
	struct calling caller;

	service_set_policy(&fixture_lc, only_rule_one, NULL);
	DONE(SERVICE_DISCARD, SERVICE_ALL);
	begin_call(&caller, &block);
	end_call(&caller);
	assert_false(shut());
	assert_int_equal(residency_of(&block), RESIDENCY_DEVICE);
	assert_int_equal(residency_of(&cache), RESIDENCY_DEVICE);
}

static void a_call_that_nothing_serves_waits_until_there_is_room(void **state)
{
	struct block block = new_block(150 * MIB, 1);
	struct calling caller;
	CUdeviceptr other;

	DONE(SERVICE_OFFLOAD, SERVICE_ALL);
	OK(cuMemAlloc_v2(&other, 150 * MIB));
	begin_call(&caller, &block);
	clock_sleep_ns(2 * SECOND);
	assert_false(__atomic_load_n(&caller.done, __ATOMIC_ACQUIRE)); /* not parked: there is no HOST_NUMA memory */
	assert_true(shut());
	assert_int_equal(residency_of(&block), RESIDENCY_HOST);
	OK(cuMemFree_v2(other));
	end_call(&caller);
	assert_false(shut());
	assert_true(same_bytes(&block));
}

static int setup_without_numa(void **state)
{
	setenv("SUBLET_SIM_WITHOUT", "host_numa", 1);
	return setup(state);
}

static void row_9_a_restore_that_had_no_room_works_later_and_again(void **state)
{
	struct block block = new_block(150 * MIB, 1);
	CUdeviceptr other;

	for (int cycle = 0; cycle < 3; cycle++) {
		DONE(SERVICE_OFFLOAD, SERVICE_ALL);
		OK(cuMemAlloc_v2(&other, 150 * MIB));
		for (int i = 0; i < 3; i++) {
			assert_int_equal(ask(SERVICE_RESTORE, SERVICE_ALL), SUBLET_ERR_NOMEM);
			assert_int_equal(residency_of(&block), RESIDENCY_HOST);
			assert_true(shut());
		}
		OK(cuMemFree_v2(other));
		DONE(SERVICE_RESTORE, SERVICE_ALL);
		assert_false(shut());
		assert_true(same_bytes(&block));
	}
}

static void row_14_and_15_a_call_on_what_is_still_away_waits_for_it(void **state)
{
	struct block weights = block_of_rule(4 * MIB, 1, 0), cache = block_of_rule(6 * MIB, 2, 1);
	struct calling caller;

	DONE(SERVICE_OFFLOAD, SERVICE_ALL);
	DONE(SERVICE_RESTORE, 0);
	assert_int_equal(residency_of(&weights), RESIDENCY_DEVICE);
	begin_call(&caller, &cache); /* a thread of the background that has not heard of it */
	end_call(&caller);
	assert_false(shut());
	assert_int_equal(residency_of(&cache), RESIDENCY_PARKED);
	assert_true(same_bytes(&weights) && same_bytes(&cache));
}

/* A hold that does not come about leaves everything. */
static void a_capture_in_the_way_is_an_error_that_moves_nothing(void **state)
{
	const struct service_request request = {.verb = SERVICE_OFFLOAD, .object = SERVICE_ALL, .timeout_ns = 100000000};
	struct block block = new_block(4 * MIB, 1);
	CUstream stream;
	CUgraph graph;

	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	captures_begin_lock(&fixture_lc.captures, stream, false);
	OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	captures_begin_unlock(&fixture_lc.captures, CUDA_SUCCESS, stream, false);
	assert_int_equal(service_do(&fixture_lc, &request, &report, &failure), SUBLET_ERR_TIMEOUT);
	assert_false(shut());
	assert_int_equal(report.moved, 0);
	assert_int_equal(residency_of(&block), RESIDENCY_DEVICE);
	OK(cuStreamEndCapture(stream, &graph));
	captures_end(&fixture_lc.captures, captures_moment(&fixture_lc.captures), CUDA_SUCCESS, stream, false);
	OK(cuGraphDestroy(graph));
	OK(cuStreamDestroy_v2(stream));
	assert_true(same_bytes(&block));
	DONE(SERVICE_OFFLOAD, SERVICE_ALL);
	DONE(SERVICE_RESTORE, SERVICE_ALL);
	assert_true(same_bytes(&block));
}

static void a_request_that_fails_opens_the_gate_again(void **state)
{
	struct block block = new_block(6 * MIB, 1);

	fixture_lc.config.host_pool_bytes = 2 * MIB;
	assert_int_equal(ask(SERVICE_OFFLOAD, SERVICE_ALL), SUBLET_ERR_NOMEM);
	assert_false(shut());
	assert_true(same_bytes(&block));
}

static void freeing_what_is_away_opens_the_gate_with_the_next_request(void **state)
{
	struct block block = new_block(6 * MIB, 1);

	DONE(SERVICE_OFFLOAD, SERVICE_ALL);
	free_block(&block);
	assert_true(shut());
	DONE(SERVICE_RESTORE, SERVICE_ALL);
	assert_false(shut());
}

/* ---- many, and the end ---- */

static void *requests_main(void *arg)
{
	const uint32_t rule = (uint32_t)(uintptr_t)arg;
	struct move_report mine;
	struct errinfo error;

	for (int i = 0; i < 12; i++) {
		const struct service_request request = {.verb = i % 2 ? SERVICE_RESTORE : i % 3 ? SERVICE_PARK : SERVICE_OFFLOAD, .object = rule};

		if (service_do(&fixture_lc, &request, &mine, &error))
			return (char *)arg + 1; /* not NULL: it failed */
	}
	return NULL;
}

static void requests_of_several_threads_are_done_in_turn(void **state)
{
	struct block blocks[4];
	pthread_t threads[4];
	void *wrong;

	for (uintptr_t i = 0; i < 4; i++)
		blocks[i] = block_of_rule(4 * MIB, (uint32_t)i, (uint32_t)i);
	for (uintptr_t i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, requests_main, (void *)i), 0);
	for (int i = 0; i < 4; i++) {
		pthread_join(threads[i], &wrong);
		assert_null(wrong);
	}
	DONE(SERVICE_RESTORE, SERVICE_ALL);
	assert_false(shut());
	for (int i = 0; i < 4; i++)
		assert_true(same_bytes(&blocks[i]));
}

static void the_end_of_the_process_moves_nothing_until_a_call_waits(void **state)
{
	struct block block = new_block(4 * MIB, 1);
	struct calling caller;
	uint64_t maps;

	DONE(SERVICE_OFFLOAD, SERVICE_ALL);
	maps = sublet_sim_calls("cuMemMap");
	assert_true(service_stop(&fixture_lc, 5 * SECOND));
	assert_int_equal(ask(SERVICE_RESTORE, SERVICE_ALL), SUBLET_ERR_SYSTEM);
	clock_sleep_ns(50 * CLOCK_NS_PER_MS);
	assert_true(shut());
	assert_int_equal(sublet_sim_calls("cuMemMap"), maps);
	begin_call(&caller, &block);
	end_call(&caller);
	assert_true(caller.waited_ns < SECOND);
	assert_false(shut());
	assert_int_equal(residency_of(&block), RESIDENCY_PARKED);
	assert_true(same_bytes(&block));
}

static void the_end_of_the_process_opens_where_nothing_is_away(void **state)
{
	struct gate_timing timing = gate_timing_default();

	DONE(SERVICE_RESTORE, SERVICE_ALL); /* there is a thread */
	OK((CUresult)gate_hold(&fixture_lc, &timing, &failure));
	assert_true(service_stop(&fixture_lc, 5 * SECOND));
	assert_false(shut());
	assert_int_equal(gate_hold(&fixture_lc, &timing, &failure), SUBLET_ERR_SYSTEM);
	assert_false(shut());
}

static void *offload_main(void *arg)
{
	const struct service_request request = {.verb = SERVICE_OFFLOAD, .object = SERVICE_ALL};
	struct move_report mine;
	struct errinfo error;

	*(enum sublet_err *)arg = service_do(&fixture_lc, &request, &mine, &error);
	return NULL;
}

/* It stops with the allocations that it is at; each is in one place, whole. */
static void the_end_of_the_process_leaves_no_move_half_done(void **state)
{
	struct block blocks[24];
	enum sublet_err err = SUBLET_OK;
	struct calling caller;
	pthread_t thread;

	for (uint32_t i = 0; i < 24; i++)
		blocks[i] = new_block(4 * MIB, i);
	assert_int_equal(pthread_create(&thread, NULL, offload_main, &err), 0);
	while (!service_held(&fixture_lc))
		clock_sleep_ns(20000);
	assert_true(service_stop(&fixture_lc, 200 * CLOCK_NS_PER_MS));
	pthread_join(thread, NULL);
	for (int i = 0; i < 24; i++)
		assert_null(illegal_state(blocks[i].address));
	begin_call(&caller, &blocks[0]);
	end_call(&caller);
	assert_false(shut());
	for (int i = 0; i < 24; i++)
		assert_true(same_bytes(&blocks[i]));
}

static void calls_are_refused_at_the_end_where_nothing_can_come_back(void **state)
{
	struct block block = new_block(150 * MIB, 1);
	CUdeviceptr other;

	DONE(SERVICE_OFFLOAD, SERVICE_ALL);
	OK(cuMemAlloc_v2(&other, 150 * MIB));
	assert_true(service_stop(&fixture_lc, 5 * SECOND));
	assert_null(gate_enter(&fixture_lc.gate, "cuMemcpyDtoH_v2", NULL));
	assert_null(gate_enter(&fixture_lc.gate, "cuMemcpyDtoH_v2", NULL)); /* at once */
	assert_null(gate_busy_slot(false));
	assert_int_equal(residency_of(&block), RESIDENCY_HOST);
	OK(cuMemFree_v2(other));
}

static void a_hold_that_has_not_come_about_ends_with_the_process(void **state)
{
	struct block block = new_block(4 * MIB, 1);
	enum sublet_err err = SUBLET_OK;
	CUstream stream;
	pthread_t thread;
	CUgraph graph;
	uint64_t begun;

	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	captures_begin_lock(&fixture_lc.captures, stream, false);
	OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	captures_begin_unlock(&fixture_lc.captures, CUDA_SUCCESS, stream, false);
	assert_int_equal(pthread_create(&thread, NULL, offload_main, &err), 0);
	clock_sleep_ns(100 * CLOCK_NS_PER_MS);
	begun = clock_now_ns();
	assert_true(service_stop(&fixture_lc, 10 * SECOND));
	pthread_join(thread, NULL);
	assert_true(clock_now_ns() - begun < 5 * SECOND);
	assert_int_equal(err, SUBLET_ERR_SYSTEM);
	assert_false(shut());
	OK(cuStreamEndCapture(stream, &graph));
	captures_end(&fixture_lc.captures, captures_moment(&fixture_lc.captures), CUDA_SUCCESS, stream, false);
	OK(cuGraphDestroy(graph));
	OK(cuStreamDestroy_v2(stream));
	assert_true(same_bytes(&block));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(offload_holds_until_all_is_back),
		CASE(what_is_there_already_needs_no_hold),
		CASE(objects_are_moved_one_by_one_and_in_any_order),
		CASE(row_24_a_discard_takes_what_the_policy_gives_up_and_nothing_else),
		CASE(row_16_work_under_way_is_waited_for),
		CASE(a_call_that_waits_a_second_finds_the_bytes_parked),
		CASE(a_call_that_waits_finds_fresh_pages_where_all_was_discarded),
		cmocka_unit_test_setup_teardown(a_call_that_nothing_serves_waits_until_there_is_room, setup_without_numa, teardown),
		CASE(row_9_a_restore_that_had_no_room_works_later_and_again),
		CASE(row_14_and_15_a_call_on_what_is_still_away_waits_for_it),
		CASE(a_capture_in_the_way_is_an_error_that_moves_nothing),
		CASE(a_request_that_fails_opens_the_gate_again),
		CASE(freeing_what_is_away_opens_the_gate_with_the_next_request),
		CASE(requests_of_several_threads_are_done_in_turn),
		CASE(the_end_of_the_process_moves_nothing_until_a_call_waits),
		CASE(the_end_of_the_process_opens_where_nothing_is_away),
		CASE(the_end_of_the_process_leaves_no_move_half_done),
		cmocka_unit_test_setup_teardown(calls_are_refused_at_the_end_where_nothing_can_come_back, setup_without_numa, teardown),
		CASE(a_hold_that_has_not_come_about_ends_with_the_process),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
