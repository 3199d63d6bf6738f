/* tests/unit/test_residency_sweep.c
 * Offload, park, restore and discard with every driver call failing in turn, once and for good, and with a fork at each. While
 * calls fail every allocation is in a legal state; when they work again all is brought back and every byte compared. */
#include "tests/unit/residency_harness.h"
#include "tests/unit/sweep.h"

#define BLOCKS 2

static struct block blocks[BLOCKS]; /* the last one's bytes may be lost */
static const char *seen;

static bool prepare(void)
{
	static const uint64_t sizes[BLOCKS] = {3 * MIB, MIB};
	enum stats_native why;
	CUresult result;

	fixture_lc.config.extent_bytes = 2 * MIB;
	fixture_lc.config.free_wait_ns = 2000000;
	for (unsigned i = 0; i < BLOCKS; i++) {
		blocks[i] = (struct block){.bytes = sizes[i], .seed = i * 1000 + 1};
		if (memory_alloc(&fixture_lc, sizes[i], &blocks[i].address, &result, &why, NULL) != MEMORY_ANSWERED || result != CUDA_SUCCESS ||
			!fill_block(&blocks[i]))
			return false;
	}
	return true;
}

static void go(enum residency target, const struct block *only)
{
	enum sublet_err err = move_to(target, only);

	if ((err != SUBLET_OK) != (report.failed != 0) && err != SUBLET_ERR_SYSTEM && err != SUBLET_ERR_UNSUPPORTED)
		seen = "failures that were not reported, or reports of none";
	if (err && failure.code != err)
		seen = "an error without a sentence";
	for (unsigned i = 0; i < BLOCKS && !seen; i++)
		seen = illegal_state(blocks[i].address);
	if (!ledger_adds_up())
		seen = "bytes by residency do not add up";
}

static const char *outcome(void)
{
	const char *first = seen;

	seen = NULL;
	return first;
}

static const char *offload_and_restore(void)
{
	go(RESIDENCY_HOST, NULL);
	go(RESIDENCY_DEVICE, NULL);
	go(RESIDENCY_HOST, &blocks[0]); /* from a pool that has its extents */
	go(RESIDENCY_DEVICE, NULL);
	return outcome();
}

static const char *park_and_restore(void)
{
	go(RESIDENCY_PARKED, NULL);
	go(RESIDENCY_DEVICE, NULL);
	return outcome();
}

static const char *there_and_back_by_all_ways(void)
{
	fixture_lc.config.verify = true;
	go(RESIDENCY_HOST, NULL);
	go(RESIDENCY_PARKED, NULL);
	go(RESIDENCY_HOST, NULL);
	go(RESIDENCY_PARKED, &blocks[0]);
	go(RESIDENCY_DEVICE, NULL);
	return outcome();
}

static const char *discard_and_restore(void)
{
	go(RESIDENCY_EMPTY, &blocks[1]);
	go(RESIDENCY_PARKED, NULL);
	go(RESIDENCY_EMPTY, &blocks[1]);
	go(RESIDENCY_DEVICE, NULL);
	return outcome();
}

/* A free is answered, or refused and the memory left as it was. */
static const char *free_where_it_is(void)
{
	CUresult result;

	go(RESIDENCY_HOST, &blocks[0]);
	go(RESIDENCY_PARKED, &blocks[1]);
	for (unsigned i = 0; i < BLOCKS; i++) {
		if (memory_free(&fixture_lc, blocks[i].address, &result) != MEMORY_ANSWERED)
			seen = "a managed address that free does not know";
	}
	reclaim_wait(&fixture_lc, 20000000ull);
	return outcome();
}

/* The driver works again: whatever was left where comes back whole. */
static void bring_back_and_compare(void)
{
	/* Memory of the device does not survive a fork. */
	if (sweep_in_child())
		return;
	fixture_lc.config.free_wait_ns = 10000000000ull; /* with a driver that works it need not be short */
	for (unsigned i = 0; i < BLOCKS; i++) {
		if (!record_of(blocks[i].address))
			continue;
		if (move_to(RESIDENCY_DEVICE, &blocks[i]))
			fail_msg("%s: %s", sweep_where(), failure.text);
		if (i < BLOCKS - 1 && !same_bytes(&blocks[i]))
			fail_msg("%s: block %u has lost bytes", sweep_where(), i);
	}
	if (fixture_page.verify_mismatches)
		fail_msg("%s: bytes are said to have changed that have not", sweep_where());
	free_all();
}

#define SWEPT(run)                                                                                                     \
	static const struct sweep_scenario run##_scenario = {#run, prepare, run, bring_back_and_compare};               \
	static void run##_with_each_call_failing(void **state)                                                         \
	{                                                                                                              \
		sweep(&run##_scenario);                                                                                \
	}                                                                                                              \
	static void run##_with_a_fork_at_each_call(void **state)                                                       \
	{                                                                                                              \
		sweep_fork(&run##_scenario);                                                                           \
	}

SWEPT(offload_and_restore)
SWEPT(park_and_restore)
SWEPT(there_and_back_by_all_ways)
SWEPT(discard_and_restore)
SWEPT(free_where_it_is)

#define TESTS(name) cmocka_unit_test(name##_with_each_call_failing), cmocka_unit_test(name##_with_a_fork_at_each_call)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TESTS(offload_and_restore), TESTS(park_and_restore), TESTS(there_and_back_by_all_ways), TESTS(discard_and_restore),
		TESTS(free_where_it_is),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
