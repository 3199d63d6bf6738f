/* tests/unit/test_exchange.c
 * Extents that change places where neither memory has room for all (lifecycle/exchange.h, pieces.h): in one process, whose host pool has a
 * cap. With every driver call failing in turn the bytes are in one memory or the other, extent by extent, and come back. */
#include "tests/unit/residency_harness.h"
#include "tests/unit/sweep.h"

#include <pthread.h>

#include "base/clock.h"
#include "lifecycle/exchange.h"
#include "lifecycle/pieces.h"

static struct block out, in;

/* Where @out and @in shall be; others stay. */
static enum residency out_to, in_to;

static enum residency wanted(void *arg, const struct allocation *allocation)
{
	return allocation->address == out.address ? out_to : allocation->address == in.address ? in_to : allocation->residency;
}

static unsigned stuck_said, unstuck_said;

static void says_stuck(struct lifecycle *lc, bool stuck)
{
	stuck_said += stuck;
	unstuck_said += !stuck;
}

static enum sublet_err exchanged(enum residency for_out, enum residency for_in)
{
	const struct exchange exchange = {.wanted = wanted, .says_stuck = says_stuck};

	out_to = for_out;
	in_to = for_in;
	return exchange_run(&fixture_lc, &exchange, &report, &failure);
}

#define EXCHANGED(for_out, for_in)                                                                                     \
	do {                                                                                                           \
		if (exchanged(for_out, for_in))                                                                        \
			fail_msg("%s", failure.text);                                                                  \
	} while (0)

/* @out on the device, @in in host memory, and room there for one extent more. */
static int setup_exchange(void **state)
{
	if (setup(state))
		return -1;
	stuck_said = unstuck_said = 0;
	in = new_block(6 * MIB, 7);
	MOVED(RESIDENCY_HOST, &in);
	out = new_block(8 * MIB, 9);
	fixture_lc.config.host_pool_bytes = 8 * MIB;
	return 0;
}

#define CASE_OF(name) cmocka_unit_test_setup_teardown(name, setup_exchange, teardown)

static const char *between(const struct block *block)
{
	return pieces_between(record_of(block->address)) ? illegal_state(block->address) : "not between";
}

static void extents_change_places_where_neither_has_room_for_all(void **state)
{
	assert_int_equal(move_to(RESIDENCY_HOST, &out), SUBLET_ERR_NOMEM);
	for (int round = 0; round < 3; round++) {
		EXCHANGED(RESIDENCY_HOST, RESIDENCY_DEVICE);
		assert_int_equal(residency_of(&out), RESIDENCY_HOST);
		assert_int_equal(residency_of(&in), RESIDENCY_DEVICE);
		assert_null(illegal_state(out.address));
		assert_null(illegal_state(in.address));
		assert_int_equal(report.moved, 2);
		assert_int_equal(report.moved_bytes, 14 * MIB);
		assert_true(same_bytes(&in));
		EXCHANGED(RESIDENCY_DEVICE, RESIDENCY_HOST);
		assert_true(same_bytes(&out));
	}
	assert_true(fixture_page.host_pool_bytes <= 8 * MIB);
	assert_true(ledger_adds_up());
	EXCHANGED(RESIDENCY_DEVICE, RESIDENCY_DEVICE);
	assert_true(same_bytes(&in));
	assert_int_equal(stuck_said, 0);
}

static void what_shall_be_parked_is_host_and_what_is_parked_comes_back(void **state)
{
	MOVED(RESIDENCY_PARKED, &in);
	EXCHANGED(RESIDENCY_PARKED, RESIDENCY_DEVICE);
	assert_int_equal(residency_of(&out), RESIDENCY_HOST);
	MOVED(RESIDENCY_PARKED, &out);
	assert_true(same_bytes(&out));
	assert_true(same_bytes(&in));
}

/* Counted as free for this process (answer_memory_info), so a barrier counts on it. */
static void room_that_is_kept_here_for_the_next_allocation_is_used(void **state)
{
	CUdeviceptr filler;
	struct block kept;

	fixture_lc.config.cache_bytes = 8 * MIB;
	kept = new_block(6 * MIB, 3);
	free_block(&kept);
	assert_true(reclaim_wait(&fixture_lc, 1000000000ull));
	assert_int_equal(fixture_page.device[0].cached_bytes, 6 * MIB);
	OK(cuMemAlloc_v2(&filler, free_bytes()));
	EXCHANGED(RESIDENCY_DEVICE, RESIDENCY_DEVICE);
	assert_true(same_bytes(&in));
	OK(cuMemFree_v2(filler));
}

static void what_is_discarded_makes_room_first(void **state)
{
	EXCHANGED(RESIDENCY_HOST, RESIDENCY_EMPTY);
	assert_int_equal(residency_of(&in), RESIDENCY_EMPTY);
	assert_int_equal(residency_of(&out), RESIDENCY_HOST);
	MOVED(RESIDENCY_DEVICE, NULL);
	assert_true(same_bytes(&out));
}

/* No more than fits goes, the rest stays where it is, and the way back is the same way. */
static void without_room_it_ends_between_and_goes_on_either_way(void **state)
{
	assert_int_equal(exchanged(RESIDENCY_HOST, RESIDENCY_HOST), SUBLET_ERR_NOMEM);
	assert_non_null(strstr(failure.text, "host pool"));
	assert_null(between(&out));
	assert_int_equal(report.failed, 1);
	assert_int_equal(stuck_said, 1);
	assert_int_equal(unstuck_said, 1);
	assert_true(ledger_adds_up());
	/* nothing else moves it meanwhile */
	assert_int_equal(move_to(RESIDENCY_PARKED, &out), SUBLET_OK);
	assert_int_equal(report.skipped, 1);
	assert_null(between(&out));
	EXCHANGED(RESIDENCY_DEVICE, RESIDENCY_HOST);
	assert_true(same_bytes(&out));
	assert_int_equal(exchanged(RESIDENCY_HOST, RESIDENCY_HOST), SUBLET_ERR_NOMEM);
	EXCHANGED(RESIDENCY_HOST, RESIDENCY_DEVICE);
	assert_null(illegal_state(out.address));
	assert_true(same_bytes(&in));
	MOVED(RESIDENCY_PARKED, &out);
	assert_true(same_bytes(&out));
}

static void what_is_left_between_is_settled_where_there_is_room(void **state)
{
	assert_int_equal(exchanged(RESIDENCY_HOST, RESIDENCY_HOST), SUBLET_ERR_NOMEM);
	sublet_sim_fail("cuMemCreate", 1, true, CUDA_ERROR_OUT_OF_MEMORY);
	assert_false(exchange_settle(&fixture_lc));
	assert_null(between(&out));
	fixture_lc.config.host_pool_bytes = 0;
	sublet_sim_fail(NULL, 0, false, 0);
	assert_true(exchange_settle(&fixture_lc));
	assert_int_equal(residency_of(&out), RESIDENCY_DEVICE);
	assert_true(same_bytes(&out));
}

static void what_is_between_can_be_freed_and_discarded(void **state)
{
	size_t free_before;

	assert_int_equal(exchanged(RESIDENCY_HOST, RESIDENCY_HOST), SUBLET_ERR_NOMEM);
	free_before = free_bytes();
	free_block(&out);
	assert_true(reclaim_wait(&fixture_lc, 1000000000ull));
	assert_int_equal(free_bytes(), free_before + 6 * MIB); /* one extent of four had left */
	assert_int_equal(fixture_page.host_pool_free_bytes, 2 * MIB);
	out = new_block(8 * MIB, 11);
	assert_int_equal(exchanged(RESIDENCY_HOST, RESIDENCY_HOST), SUBLET_ERR_NOMEM);
	EXCHANGED(RESIDENCY_EMPTY, RESIDENCY_HOST);
	assert_null(illegal_state(out.address));
	assert_int_equal(residency_of(&out), RESIDENCY_EMPTY);
	assert_true(ledger_adds_up());
}

static void bytes_that_changed_meanwhile_do_not_come_back(void **state)
{
	struct host_extent *last;

	fixture_lc.config.verify = true;
	EXCHANGED(RESIDENCY_HOST, RESIDENCY_DEVICE);
	for (last = record_of(out.address)->host; last->next; last = last->next)
		;
	((char *)(uintptr_t)last->address)[5] ^= 1;
	assert_int_equal(exchanged(RESIDENCY_DEVICE, RESIDENCY_DEVICE), SUBLET_ERR_SYSTEM);
	assert_non_null(strstr(failure.text, "SUBLET_VERIFY"));
	assert_int_equal(fixture_page.verify_mismatches, 1);
	assert_int_equal(residency_of(&out), RESIDENCY_HOST);
	assert_null(illegal_state(out.address));
	((char *)(uintptr_t)last->address)[5] ^= 1;
	EXCHANGED(RESIDENCY_DEVICE, RESIDENCY_DEVICE);
	assert_true(same_bytes(&out));
	fixture_page.verify_mismatches = 0;
}

/* Room that somebody gives while it waits. */
static void *give_room(void *arg)
{
	clock_sleep_ns(50000000ull);
	__atomic_store_n(&fixture_lc.config.host_pool_bytes, 16 * MIB, __ATOMIC_RELAXED);
	return NULL;
}

static void room_that_comes_is_waited_for_and_said_to_be(void **state)
{
	pthread_t giver;

	mover_room(&fixture_lc, MOVER_ROOM_COMES, 10000000000ull);
	pthread_create(&giver, NULL, give_room, NULL);
	EXCHANGED(RESIDENCY_HOST, RESIDENCY_HOST);
	pthread_join(giver, NULL);
	assert_int_equal(stuck_said, 1);
	assert_int_equal(unstuck_said, 1);
	mover_room(&fixture_lc, MOVER_NO_ROOM, 0);
	MOVED(RESIDENCY_DEVICE, NULL);
	assert_true(same_bytes(&out));
}

/* ---- every call failing ---- */

static const char *seen;

static bool prepare(void)
{
	static const uint64_t sizes[2] = {4 * MIB, 5 * MIB};
	struct block *const blocks[2] = {&in, &out};
	enum stats_native why;
	CUresult result;

	fixture_lc.config.extent_bytes = 2 * MIB;
	fixture_lc.config.free_wait_ns = 2000000;
	for (unsigned i = 0; i < 2; i++) {
		*blocks[i] = (struct block){.bytes = sizes[i], .seed = i * 1000 + 1};
		if (memory_alloc(&fixture_lc, sizes[i], &blocks[i]->address, &result, &why, NULL) != MEMORY_ANSWERED ||
			result != CUDA_SUCCESS || !fill_block(blocks[i]))
			return false;
		if (i == 0 && move_to(RESIDENCY_HOST, blocks[i]))
			return false;
	}
	fixture_lc.config.host_pool_bytes = 6 * MIB;
	return true;
}

static void look(enum sublet_err err)
{
	const char *wrong = illegal_state(in.address);

	wrong = wrong ? wrong : illegal_state(out.address);
	if (err && failure.code != err)
		seen = "an error without a sentence";
	if (wrong)
		seen = wrong;
	if (!ledger_adds_up())
		seen = "bytes by residency do not add up";
}

static const char *there_and_back(void)
{
	const char *first;

	look(exchanged(RESIDENCY_HOST, RESIDENCY_DEVICE));
	look(exchanged(RESIDENCY_DEVICE, RESIDENCY_HOST));
	exchange_settle(&fixture_lc);
	look(SUBLET_OK);
	first = seen;
	seen = NULL;
	return first;
}

static void bring_back_and_compare(void)
{
	if (sweep_in_child())
		return;
	fixture_lc.config.free_wait_ns = 10000000000ull;
	fixture_lc.config.host_pool_bytes = 0;
	if (!exchange_settle(&fixture_lc))
		fail_msg("%s: something stays between", sweep_where());
	MOVED(RESIDENCY_DEVICE, NULL);
	if (!same_bytes(&in) || !same_bytes(&out))
		fail_msg("%s: bytes are lost", sweep_where());
	free_all();
}

static const struct sweep_scenario scenario = {"exchange", prepare, there_and_back, bring_back_and_compare};

static void exchange_with_each_call_failing(void **state)
{
	sweep(&scenario);
}

static void exchange_with_a_fork_at_each_call(void **state)
{
	sweep_fork(&scenario);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE_OF(extents_change_places_where_neither_has_room_for_all),
		CASE_OF(what_shall_be_parked_is_host_and_what_is_parked_comes_back),
		CASE_OF(room_that_is_kept_here_for_the_next_allocation_is_used),
		CASE_OF(what_is_discarded_makes_room_first),
		CASE_OF(without_room_it_ends_between_and_goes_on_either_way),
		CASE_OF(what_is_left_between_is_settled_where_there_is_room),
		CASE_OF(what_is_between_can_be_freed_and_discarded),
		CASE_OF(bytes_that_changed_meanwhile_do_not_come_back),
		CASE_OF(room_that_comes_is_waited_for_and_said_to_be),
		cmocka_unit_test(exchange_with_each_call_failing),
		cmocka_unit_test(exchange_with_a_fork_at_each_call),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
