/* tests/unit/test_ledger.c
 * Device bytes of one process: what counts as used, what a budget leaves, when the session is asked and what becomes of its no. The
 * session is a number here; tests/cli/budget.py has real ones. */
#include "tests/unit/residency_harness.h"

#include <pthread.h>

#include "base/clock.h"

/* Who is asked. */
static struct {
	pthread_mutex_t lock;
	uint64_t limit_bytes, slab_bytes;
	unsigned asked, refused, told;
	uint64_t seen_asking_bytes;
} session = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool ask(void *arg, int device, uint64_t bytes, struct errinfo *reterr)
{
	bool granted;

	pthread_mutex_lock(&session.lock);
	session.asked++;
	ranked_lock(&fixture_lc.ledger.lock);
	session.seen_asking_bytes = fixture_lc.ledger.devices[device].asking_bytes;
	ranked_unlock(&fixture_lc.ledger.lock);
	granted = ledger_used_bytes(&fixture_lc, device) + bytes <= session.limit_bytes;
	if (granted) {
		uint64_t credit = ledger_used_bytes(&fixture_lc, device) + bytes + session.slab_bytes;

		ledger_set_credit(&fixture_lc, device, credit < session.limit_bytes ? credit : session.limit_bytes);
		ledger_granted(&fixture_lc, device, bytes);
	} else {
		session.refused++;
		errinfo_set(reterr, SUBLET_ERR_NOMEM, 0, "no more");
	}
	pthread_mutex_unlock(&session.lock);
	return granted;
}

static void tell(void *arg, int device, bool moved)
{
	session.told++;
	ledger_trim(&fixture_lc, device, moved);
}

static struct ledger_terms terms;

static void given_terms(uint64_t capacity_bytes, uint64_t budget_bytes)
{
	terms = (struct ledger_terms){.capacity.bytes = capacity_bytes, .budget.bytes = budget_bytes, .role = "train"};
	session.limit_bytes = capacity_bytes;
	session.slab_bytes = session.asked = session.refused = session.told = 0;
	ledger_set_hooks(&fixture_lc, &(struct ledger_hooks){.ask = ask, .tell = tell});
	ledger_set_terms(&fixture_lc, &terms);
}

static CUresult result_of_alloc(uint64_t bytes, CUdeviceptr *ret_address)
{
	enum stats_native why;
	CUresult result = CUDA_SUCCESS;

	assert_int_equal(memory_alloc(&fixture_lc, bytes, ret_address, &result, &why, NULL), MEMORY_ANSWERED);
	return result;
}

static void assert_refused(uint64_t bytes)
{
	CUdeviceptr address = 1;

	assert_int_equal(result_of_alloc(bytes, &address), CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(address, 1);
	assert_int_equal(fixture_lc.ledger.devices[0].taken_bytes, 0);
	assert_int_equal(fixture_lc.ledger.devices[0].asking_bytes, 0);
}

static void assert_info(size_t free_bytes_wanted, size_t total_wanted)
{
	size_t free = 0, total = 0;

	assert_int_equal(answer_memory_info(&fixture_lc, &free, &total), CUDA_SUCCESS);
	assert_int_equal(total, total_wanted);
	assert_int_equal(free, free_bytes_wanted);
}

static uint64_t used(void)
{
	return ledger_used_bytes(&fixture_lc, 0);
}

static void used_is_what_lies_on_the_device_wherever_the_rest_is(void **state)
{
	struct block one, other;

	fixture_lc.config.host_pool_bytes = 64 * MIB;
	fixture_lc.config.cache_bytes = 8 * MIB;
	one = new_block(5 * MIB, 1);
	other = new_block(4 * MIB, 2);
	assert_int_equal(used(), 10 * MIB);
	MOVED(RESIDENCY_HOST, &one);
	assert_int_equal(used(), 4 * MIB);
	MOVED(RESIDENCY_PARKED, &one);
	assert_int_equal(used(), 4 * MIB);
	MOVED(RESIDENCY_DEVICE, NULL);
	assert_int_equal(used(), 10 * MIB);
	free_block(&other);
	reclaim_wait(&fixture_lc, 1000 * CLOCK_NS_PER_MS);
	assert_int_equal(fixture_page.device[0].cached_bytes, 4 * MIB);
	assert_int_equal(used(), 10 * MIB); /* kept here, and nobody else's yet */
	assert_true(same_bytes(&one));
}

static void budget_is_told_and_kept_in_every_residency(void **state)
{
	struct block one;

	fixture_lc.config.host_pool_bytes = 64 * MIB;
	given_terms(0, 20 * MIB);
	assert_info(20 * MIB, 20 * MIB);
	one = new_block(12 * MIB, 1);
	assert_info(8 * MIB, 20 * MIB);
	MOVED(RESIDENCY_HOST, &one);
	assert_info(8 * MIB, 20 * MIB);
	assert_refused(10 * MIB);
	MOVED(RESIDENCY_DEVICE, &one);
	assert_refused(10 * MIB);
	free_block(&one);
	assert_info(20 * MIB, 20 * MIB);
	new_block(20 * MIB, 2);
	assert_info(0, 20 * MIB);
	assert_int_equal(session.asked, 0);
}

static void budget_counts_native_memory_and_is_never_below_zero(void **state)
{
	given_terms(0, 20 * MIB);
	native_note(&fixture_lc.native, 4096, 6 * MIB, 0, STATS_NATIVE_POOL);
	native_note(&fixture_lc.native, 8192, 6 * MIB, 0, STATS_NATIVE_PINNED); /* host memory */
	assert_info(14 * MIB, 20 * MIB);
	assert_refused(16 * MIB);
	new_block(14 * MIB, 1);
	native_note(&fixture_lc.native, 12288, 6 * MIB, 0, STATS_NATIVE_SMALL);
	assert_info(0, 20 * MIB);
	native_take(&fixture_lc.native, 4096);
	native_take(&fixture_lc.native, 8192);
	native_take(&fixture_lc.native, 12288);
	assert_info(6 * MIB, 20 * MIB);
}

static void budget_beyond_the_device_is_the_device_and_others_do_not_show(void **state)
{
	CUdeviceptr others;
	size_t total = 0;

	given_terms(0, 1ull << 40);
	OK(cuMemAlloc_v2(&others, 100 * MIB)); /* nobody's that this process knows of */
	assert_info(256 * MIB, 256 * MIB);
	OK(answer_total_memory(&fixture_lc, &total, 0));
	assert_int_equal(total, 256 * MIB);
	terms.budget = (struct policy_amount){.percent_hundredths = 2500};
	assert_info(64 * MIB, 64 * MIB);
	OK(answer_total_memory(&fixture_lc, &total, 0));
	assert_int_equal(total, 64 * MIB);
	OK(cuMemFree_v2(others));
	assert_info(64 * MIB, 64 * MIB);
	assert_int_equal(answer_total_memory(&fixture_lc, &total, 99), CUDA_ERROR_INVALID_DEVICE);
}

static void refusal_is_no_reason_to_stay_native(void **state)
{
	/* with room lost to whole pages the driver would be asked, and would give it */
	given_terms(4 * MIB, 0);
	assert_refused(4 * MIB + 1);
	given_terms(0, 4 * MIB);
	assert_refused(4 * MIB + 1);
	assert_int_equal(sublet_sim_calls("cuMemAlloc_v2"), 0);
}

static void session_is_asked_once_a_slab(void **state)
{
	given_terms(100 * MIB, 0);
	session.slab_bytes = 32 * MIB;
	for (int i = 0; i < 9; i++)
		new_block(4 * MIB, (uint32_t)i);
	assert_int_equal(session.asked, 1);
	assert_int_equal(session.seen_asking_bytes, 4 * MIB);
	new_block(4 * MIB, 9);
	assert_int_equal(session.asked, 2);
	assert_int_equal(fixture_lc.ledger.devices[0].taken_bytes, 0);
}

static void no_is_asked_again_after_what_was_freed_is_back(void **state)
{
	struct block one;

	fixture_lc.config.cache_bytes = 16 * MIB;
	given_terms(16 * MIB, 0);
	one = new_block(16 * MIB, 1);
	assert_refused(2 * MIB);
	assert_int_equal(session.refused, 2); /* the second for bytes that were counted twice for a moment */
	free_block(&one);
	/* kept here in pieces of another size, which have to go first */
	new_block(15 * MIB, 2);
	assert_int_equal(used(), 16 * MIB);
}

static void driver_that_refuses_leaves_nothing_taken(void **state)
{
	static const char *const calls[] = {"cuMemCreate", "cuMemMap", "cuMemSetAccess"};

	given_terms(100 * MIB, 100 * MIB);
	for (int i = 0; i < 3; i++) {
		CUdeviceptr address;
		enum stats_native why;
		CUresult result;

		sublet_sim_fail(calls[i], 1, true, 0);
		memory_alloc(&fixture_lc, 4 * MIB, &address, &result, &why, NULL);
		assert_true(sublet_sim_fail_fired());
		sublet_sim_fail(NULL, 0, false, 0);
		assert_int_equal(fixture_lc.ledger.devices[0].taken_bytes, 0);
		assert_int_equal(used(), 0);
	}
}

static void moves_are_told_and_never_refused(void **state)
{
	struct block one, other;

	fixture_lc.config.host_pool_bytes = 64 * MIB;
	given_terms(16 * MIB, 0);
	one = new_block(16 * MIB, 1);
	MOVED(RESIDENCY_HOST, &one);
	assert_int_equal(fixture_lc.ledger.devices[0].credit_bytes, 0);
	other = new_block(16 * MIB, 2);
	session.told = 0;
	MOVED(RESIDENCY_DEVICE, &one);
	assert_int_equal(session.told, 1);
	assert_int_equal(used(), 32 * MIB);
	assert_int_equal(fixture_lc.ledger.devices[0].credit_bytes, 32 * MIB);
	assert_refused(2 * MIB + session.limit_bytes);
	free_block(&other);
	assert_true(same_bytes(&one));
}

static void credit_goes_back_when_two_slabs_of_it_are_idle(void **state)
{
	struct block one, other;

	given_terms(100 * MIB, 0);
	one = new_block(2 * MIB, 1);
	other = new_block(2 * MIB, 2);
	fixture_lc.ledger.devices[0].credit_bytes = 2 * LEDGER_SLAB_BYTES + 2 * MIB;
	free_block(&one);
	assert_int_equal(session.told, 0);
	free_block(&other);
	assert_int_equal(session.told, 1);
	assert_int_equal(fixture_lc.ledger.devices[0].credit_bytes, 0);
}

/* ---- threads ---- */

enum { THREADS = 4, ROUNDS = 300 };

static void *take_and_give(void *arg)
{
	uint64_t bytes = (uintptr_t)arg;
	const char *wrong = NULL;
	CUcontext context;

	cuDevicePrimaryCtxRetain(&context, 0);
	cuCtxSetCurrent(context);
	for (int i = 0; i < ROUNDS && !wrong; i++) {
		CUdeviceptr address;
		enum stats_native why;
		CUresult result;

		if (memory_alloc(&fixture_lc, bytes, &address, &result, &why, NULL) != MEMORY_ANSWERED)
			wrong = "an allocation was passed on";
		else if (result == CUDA_SUCCESS && memory_free(&fixture_lc, address, &result) != MEMORY_ANSWERED)
			wrong = "a free was passed on";
	}
	cuDevicePrimaryCtxRelease(0);
	return (void *)wrong;
}

static void threads_never_take_more_than_the_session_gives(void **state)
{
	pthread_t threads[THREADS];
	struct sim_usage usage;
	void *wrong;

	given_terms(16 * MIB, 0);
	assert_true(sublet_sim_usage(0, true, &usage));
	for (uintptr_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, take_and_give, (void *)((i + 2) * 2 * MIB)), 0);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], &wrong);
		if (wrong)
			fail_msg("%s", (const char *)wrong);
	}
	assert_true(sublet_sim_usage(0, false, &usage));
	assert_true(usage.peak_bytes <= 16 * MIB);
	assert_int_equal(fixture_lc.ledger.devices[0].taken_bytes, 0);
	assert_int_equal(fixture_lc.ledger.devices[0].asking_bytes, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(used_is_what_lies_on_the_device_wherever_the_rest_is),
		CASE(budget_is_told_and_kept_in_every_residency),
		CASE(budget_counts_native_memory_and_is_never_below_zero),
		CASE(budget_beyond_the_device_is_the_device_and_others_do_not_show),
		CASE(refusal_is_no_reason_to_stay_native),
		CASE(session_is_asked_once_a_slab),
		CASE(no_is_asked_again_after_what_was_freed_is_back),
		CASE(driver_that_refuses_leaves_nothing_taken),
		CASE(moves_are_told_and_never_refused),
		CASE(credit_goes_back_when_two_slabs_of_it_are_idle),
		CASE(threads_never_take_more_than_the_session_gives),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
