/* tests/unit/test_residency_faults.c
 * What users of similar software were hit by (SCENARIOS.md; the numbers in the names are its rows), as far as one process shows
 * it, and frees in every residency. Another process is played by native memory of this one. */
#include "tests/unit/residency_harness.h"

#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static CUdeviceptr ballast(uint64_t bytes)
{
	CUdeviceptr address = 0;

	OK(cuMemAlloc_v2(&address, bytes));
	return address;
}

/* ---- resume or wake runs out of memory ---- */

static void row_1_restore_without_room_fails_cleanly_and_works_when_there_is(void **state)
{
	struct block block = new_block(150 * MIB, 5);
	CUdeviceptr other;

	/* Row 9: not once only. */
	for (int i = 0; i < 3; i++) {
		MOVED(RESIDENCY_HOST, NULL);
		other = ballast(150 * MIB);
		assert_int_equal(move_to(RESIDENCY_DEVICE, NULL), SUBLET_ERR_NOMEM);
		assert_int_equal(failure.driver_code, CUDA_ERROR_OUT_OF_MEMORY);
		assert_int_equal(report.failed, 1);
		assert_int_equal(report.holes, 1);
		assert_int_equal(residency_of(&block), RESIDENCY_HOST);
		assert_null(illegal_state(block.address));
		OK(cuMemFree_v2(other));
		MOVED(RESIDENCY_DEVICE, NULL);
		assert_true(same_bytes(&block));
	}
}

static void row_3_nothing_is_mapped_or_copied_after_a_create_that_failed(void **state)
{
	struct block block = new_block(10 * MIB, 5); /* five extents */
	uint64_t maps, copies, creates;

	MOVED(RESIDENCY_HOST, NULL);
	maps = sublet_sim_calls("cuMemMap");
	copies = sublet_sim_calls("cuMemcpyAsync");
	creates = sublet_sim_calls("cuMemCreate");
	sublet_sim_fail("cuMemCreate", 3, true, 0);
	assert_int_equal(move_to(RESIDENCY_DEVICE, NULL), SUBLET_ERR_NOMEM);
	assert_int_equal(sublet_sim_calls("cuMemCreate") - creates, 3);
	assert_int_equal(sublet_sim_calls("cuMemMap") - maps, 2);
	assert_int_equal(sublet_sim_calls("cuMemcpyAsync") - copies, 2);
	sublet_sim_fail(NULL, 0, false, 0);
	MOVED(RESIDENCY_DEVICE, NULL);
	assert_true(same_bytes(&block));
}

static void row_4_a_restore_that_fails_in_the_middle_gives_all_it_took_back(void **state)
{
	struct block blocks[6];
	size_t before;
	CUdeviceptr other;

	for (unsigned i = 0; i < 6; i++)
		blocks[i] = new_block(20 * MIB, i);
	MOVED(RESIDENCY_HOST, NULL);
	other = ballast(256 * MIB - 70 * MIB); /* three of them fit, and a half */
	before = free_bytes();
	assert_int_equal(move_to(RESIDENCY_DEVICE, NULL), SUBLET_ERR_NOMEM);
	assert_int_equal(free_bytes(), before);
	assert_int_equal(report.failed, 6);
	assert_int_equal(report.moved, 0);
	for (unsigned i = 0; i < 6; i++)
		assert_int_equal(residency_of(&blocks[i]), RESIDENCY_HOST);
	OK(cuMemFree_v2(other));
	MOVED(RESIDENCY_DEVICE, NULL);
	for (unsigned i = 0; i < 6; i++)
		assert_true(same_bytes(&blocks[i]));
}

/* Row 7: memory that the process itself has freed and keeps is given back before a restore fails. */
static void row_7_restore_uses_what_the_process_keeps_for_later(void **state)
{
	struct block block = new_block(100 * MIB, 5), kept;
	CUdeviceptr other;

	MOVED(RESIDENCY_HOST, NULL);
	fixture_lc.config.cache_bytes = 1 * GIB;
	kept = new_block(100 * MIB, 6);
	free_block(&kept); /* 50 extents of 2 MiB in the cache */
	assert_int_equal(fixture_page.device[0].cached_bytes, 100 * MIB);
	other = ballast(80 * MIB);
	MOVED(RESIDENCY_DEVICE, NULL);
	assert_true(same_bytes(&block));
	OK(cuMemFree_v2(other));
}

/* ---- double, partial and out-of-order requests ---- */

static void row_11_repeated_requests_are_no_ops(void **state)
{
	static const enum residency order[] = {RESIDENCY_HOST, RESIDENCY_HOST, RESIDENCY_DEVICE, RESIDENCY_DEVICE,
		RESIDENCY_PARKED, RESIDENCY_PARKED, RESIDENCY_HOST, RESIDENCY_HOST, RESIDENCY_DEVICE};
	struct block block = new_block(5 * MIB, 5);
	CUresult result;

	for (unsigned i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
		bool repeated = residency_of(&block) == order[i];
		uint64_t releases = sublet_sim_calls("cuMemRelease");

		MOVED(order[i], NULL);
		assert_int_equal(report.already, repeated);
		assert_int_equal(report.moved, !repeated);
		assert_true(!repeated || sublet_sim_calls("cuMemRelease") == releases);
		assert_null(illegal_state(block.address));
	}
	assert_true(same_bytes(&block));
	MOVED(RESIDENCY_EMPTY, NULL);
	MOVED(RESIDENCY_EMPTY, NULL);
	assert_int_equal(report.already, 1);
	MOVED(RESIDENCY_HOST, NULL); /* there are no bytes to keep */
	assert_int_equal(report.already, 1);
	assert_int_equal(residency_of(&block), RESIDENCY_EMPTY);
	free_block(&block);
	assert_int_equal(memory_free(&fixture_lc, block.address, &result), MEMORY_PASS);
	MOVED(RESIDENCY_DEVICE, NULL);
	assert_int_equal(report.moved + report.already, 0);
}

static void requests_that_contradict_themselves_are_errors(void **state)
{
	struct block block = new_block(2 * MIB, 5);
	struct move_request request = {.target = RESIDENCY_EMPTY};

	assert_int_equal(mover_move(&fixture_lc, &request, &report, &failure), SUBLET_ERR_INVALID);
	request = (struct move_request){.target = RESIDENCY_HOST, .discard = true};
	assert_int_equal(mover_move(&fixture_lc, &request, &report, &failure), SUBLET_ERR_INVALID);
	request = (struct move_request){.target = RESIDENCY_COUNT};
	assert_int_equal(mover_move(&fixture_lc, &request, &report, &failure), SUBLET_ERR_INVALID);
	assert_true(same_bytes(&block));
}

static void row_12_free_in_each_residency_works_once_and_the_address_is_used_again(void **state)
{
	size_t all = free_bytes();

	for (int r = 0; r < RESIDENCY_COUNT; r++) {
		struct block block = new_block(6 * MIB, 5), next;
		uint64_t pool;
		CUresult result;

		if (r != RESIDENCY_DEVICE)
			MOVED((enum residency)r, NULL);
		pool = fixture_page.host_pool_bytes;
		free_block(&block);
		assert_int_equal(memory_free(&fixture_lc, block.address, &result), MEMORY_PASS);
		assert_true(reclaim_wait(&fixture_lc, 5000000000ull));
		assert_int_equal(fixture_page.device[0].managed.bytes, 0);
		assert_int_equal(fixture_page.host_pool_bytes, pool);
		assert_int_equal(fixture_page.host_pool_free_bytes, pool); /* and kept for the next */
		assert_int_equal(free_bytes(), all);
		next = new_block(6 * MIB, 6);
		assert_int_equal(next.address, block.address);
		assert_true(same_bytes(&next));
		free_block(&next);
		assert_true(reclaim_wait(&fixture_lc, 5000000000ull));
	}
}

static void *free_on_a_thread(void *arg)
{
	CUresult result = CUDA_ERROR_UNKNOWN;

	if (memory_free(&fixture_lc, *(CUdeviceptr *)arg, &result) != MEMORY_ANSWERED)
		result = CUDA_ERROR_UNKNOWN;
	return (void *)(intptr_t)result;
}

static void row_13_free_on_another_thread_without_a_context(void **state)
{
	struct block block = new_block(4 * MIB, 5);
	pthread_t thread;
	void *result;

	MOVED(RESIDENCY_HOST, NULL);
	assert_int_equal(pthread_create(&thread, NULL, free_on_a_thread, &block.address), 0);
	pthread_join(thread, &result);
	assert_int_equal((intptr_t)result, CUDA_SUCCESS);
	assert_int_equal(fixture_page.device[0].managed.bytes, 0);
}

/* A query that fails says "no" and leaves nothing behind: here, that there is no HOST_NUMA memory. */
static void row_18_a_failed_query_does_not_spoil_what_follows(void **state)
{
	struct block block = new_block(4 * MIB, 5);

	sublet_sim_fail("cuDeviceGetAttribute", 1, true, CUDA_ERROR_INVALID_VALUE);
	MOVED(RESIDENCY_HOST, NULL);
	assert_int_equal(fixture_lc.host_pool.kind, HOST_POOL_REGISTERED);
	MOVED(RESIDENCY_DEVICE, NULL);
	sublet_sim_fail(NULL, 0, false, 0);
	assert_true(same_bytes(&block));
}

static void row_19_restoring_one_object_leaves_the_copies_of_the_others(void **state)
{
	struct block weights = new_block(6 * MIB, 1), cache = new_block(10 * MIB, 2);

	MOVED(RESIDENCY_HOST, NULL);
	MOVED(RESIDENCY_DEVICE, &cache);
	assert_int_equal(residency_of(&weights), RESIDENCY_HOST);
	assert_int_equal(report.holes, 1);
	assert_true(same_bytes(&cache));
	MOVED(RESIDENCY_HOST, &cache); /* into extents that are not those of the weights */
	MOVED(RESIDENCY_DEVICE, &cache);
	MOVED(RESIDENCY_DEVICE, &weights);
	assert_true(same_bytes(&weights));
	assert_true(same_bytes(&cache));
}

/* ---- silent wrong data ---- */

/* Small buffers lie in pages of their own or the driver's, never in those of a discarded neighbour. */
static void row_21_a_discard_takes_what_was_named_and_nothing_beside_it(void **state)
{
	struct block before = new_block(MIB, 1), weights = new_block(MIB + 512, 2), after = new_block(MIB, 3);
	struct block small = {ballast(4096), 4096, 4};

	assert_true(fill_block(&small));
	MOVED(RESIDENCY_EMPTY, &weights);
	assert_int_equal(report.moved, 1);
	assert_true(same_bytes(&before));
	assert_true(same_bytes(&after));
	assert_true(same_bytes(&small));
	MOVED(RESIDENCY_DEVICE, NULL);
	assert_true(same_bytes(&before));
	assert_true(same_bytes(&after));
	OK(cuMemFree_v2(small.address));
}

static void row_22_fresh_pages_hold_the_poison_that_was_asked_for(void **state)
{
	static const unsigned char poisons[] = {0xff, 0x00};
	struct block block = new_block(5 * MIB, 9);

	fixture_lc.config.poisons = true;
	for (int i = 0; i < 2; i++) {
		fixture_lc.config.poison = poisons[i];
		assert_true(fill_block(&block));
		MOVED(RESIDENCY_EMPTY, NULL);
		MOVED(RESIDENCY_DEVICE, NULL);
		assert_true(all_bytes_are(block.address, block.bytes, poisons[i]));
		/* The same for those of the host, which a block left before. */
		assert_true(fill_block(&block));
		MOVED(RESIDENCY_HOST, NULL);
		MOVED(RESIDENCY_EMPTY, NULL);
		MOVED(RESIDENCY_PARKED, NULL);
		assert_true(all_bytes_are(block.address, block.bytes, poisons[i]));
		MOVED(RESIDENCY_DEVICE, NULL);
	}
}

static void row_26_all_that_is_live_is_the_same_after_a_cycle(void **state)
{
	struct block blocks[24];

	for (unsigned i = 0; i < 24; i++)
		blocks[i] = new_block(MIB + i * 300 * 1024, i * 77);
	for (unsigned i = 0; i < 24; i += 5)
		free_block(&blocks[i]);
	MOVED(RESIDENCY_HOST, NULL);
	for (unsigned i = 0; i < 24; i += 5) /* others come and go meanwhile */
		blocks[i] = new_block(2 * MIB, i * 77);
	MOVED(RESIDENCY_DEVICE, NULL);
	for (unsigned i = 0; i < 24; i++)
		assert_true(same_bytes(&blocks[i]));
}

static void verify_finds_bytes_that_changed_in_the_pool(void **state)
{
	struct block good = new_block(4 * MIB, 1), bad = new_block(6 * MIB, 2);
	uint32_t *word, was;

	fixture_lc.config.verify = true;
	MOVED(RESIDENCY_HOST, NULL);
	word = (uint32_t *)(uintptr_t)record_of(bad.address)->host->next->address + 1000;
	was = *word;
	*word ^= 1;
	for (int i = 0; i < 2; i++) { /* neither way out */
		assert_int_equal(move_to(i ? RESIDENCY_PARKED : RESIDENCY_DEVICE, NULL), SUBLET_ERR_SYSTEM);
		assert_non_null(strstr(failure.text, "SUBLET_VERIFY"));
		assert_int_equal(residency_of(&bad), RESIDENCY_HOST);
		assert_null(illegal_state(bad.address));
		assert_int_equal(report.failed, 1);
		assert_true(same_bytes(&good));
	}
	assert_int_equal(fixture_page.verify_mismatches, 2);
	*word = was;
	MOVED(RESIDENCY_DEVICE, NULL);
	assert_true(same_bytes(&bad));
	/* What a parked allocation is written meanwhile is no fault. */
	MOVED(RESIDENCY_PARKED, NULL);
	bad.seed = 3;
	assert_true(fill_block(&bad));
	MOVED(RESIDENCY_HOST, NULL);
	MOVED(RESIDENCY_DEVICE, NULL);
	assert_true(same_bytes(&bad));
	fixture_lc.config.verify = false;
	MOVED(RESIDENCY_HOST, NULL);
	fixture_lc.config.verify = true;
	MOVED(RESIDENCY_DEVICE, NULL);
	assert_true(same_bytes(&bad));
}

/* ---- host side ---- */

/* Row 44: no pinning per allocation and no synchronous copy; what is pinned stays pinned. */
static void row_44_a_second_offload_pins_nothing_and_copies_whole_extents(void **state)
{
	static const char *const slow[] = {"cuMemHostRegister_v2", "cuMemHostAlloc", "cuMemcpyDtoH_v2", "cuMemcpy", "cuCtxSynchronize"};
	static const unsigned pieces[] = {1, 8, 40};
	uint64_t before[5];

	for (unsigned p = 0; p < 3; p++) {
		for (unsigned i = 0; i < pieces[p]; i++)
			new_block(80 * MIB / pieces[p], i);
		for (int cycle = 0; cycle < 2; cycle++) {
			uint64_t creates, copies;

			for (unsigned i = 0; i < 5; i++)
				before[i] = sublet_sim_calls(slow[i]);
			creates = sublet_sim_calls("cuMemCreate");
			copies = sublet_sim_calls("cuMemcpyAsync");
			MOVED(RESIDENCY_HOST, NULL);
			assert_int_equal(sublet_sim_calls("cuMemcpyAsync") - copies, 40); /* extents of 2 MiB */
			for (unsigned i = 0; i < 5; i++)
				assert_int_equal(sublet_sim_calls(slow[i]), before[i]);
			if (p + (unsigned)cycle)
				assert_int_equal(sublet_sim_calls("cuMemCreate"), creates);
			MOVED(RESIDENCY_DEVICE, NULL);
		}
		free_all();
		assert_true(reclaim_wait(&fixture_lc, 5000000000ull));
	}
}

static long resident_kib(void)
{
	FILE *file = fopen("/proc/self/statm", "r");
	long pages = 0, resident = 0;

	if (file && fscanf(file, "%ld %ld", &pages, &resident) != 2)
		resident = 0;
	if (file)
		fclose(file);
	return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

static void row_45_resident_memory_is_flat_over_100_cycles(void **state)
{
	long after_ten = 0;

	for (unsigned i = 0; i < 4; i++)
		new_block(4 * MIB, i);
	for (int cycle = 0; cycle < 100; cycle++) {
		MOVED(RESIDENCY_HOST, NULL);
		MOVED(RESIDENCY_DEVICE, NULL);
		if (cycle == 10)
			after_ten = resident_kib();
	}
	assert_true(after_ten > 0);
	assert_in_range(resident_kib(), 0, after_ten + 4096);
}

/* ---- others ---- */

static void exposed_pages_stay_and_are_named(void **state)
{
	struct block held = new_block(4 * MIB, 1), other = new_block(4 * MIB, 2);
	char address[32];

	records_expose(&fixture_lc.records, held.address, held.bytes);
	MOVED(RESIDENCY_HOST, NULL);
	assert_int_equal(report.skipped, 1);
	assert_int_equal(report.skipped_bytes, 4 * MIB);
	snprintf(address, sizeof(address), "0x%llx", (unsigned long long)held.address);
	assert_non_null(strstr(report.text, address));
	assert_int_equal(residency_of(&held), RESIDENCY_DEVICE);
	assert_int_equal(residency_of(&other), RESIDENCY_HOST);
	assert_true(same_bytes(&held));
	MOVED(RESIDENCY_DEVICE, NULL);
	assert_true(same_bytes(&other));
}

static void memory_made_while_others_are_away_is_whole_and_no_hole(void **state)
{
	struct block old = new_block(4 * MIB, 1), made;

	MOVED(RESIDENCY_HOST, NULL);
	made = new_block(4 * MIB, 2);
	assert_int_equal(mover_holes(&fixture_lc), 1);
	assert_int_equal(residency_of(&made), RESIDENCY_DEVICE);
	assert_true(same_bytes(&made));
	MOVED(RESIDENCY_DEVICE, NULL);
	assert_true(same_bytes(&old));
	assert_true(same_bytes(&made));
}

/* Rights of peers follow the pages: enabled before, while away, and while parked. */
static void peers_reach_what_comes_back(void **state)
{
	struct block block = new_block(4 * MIB, 1);
	CUmemLocation peer = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1};
	unsigned long long flags;
	CUcontext mine, second;

	OK(cuCtxGetCurrent(&mine));
	OK(cuDevicePrimaryCtxRetain(&second, 1));
	lifecycle_context_seen(&fixture_lc, second, 1);
	assert_true(contexts_peer_enable(&fixture_lc.contexts, second, mine, 1, 0));
	memory_replay_access(&fixture_lc, 0, -1);
	for (int r = RESIDENCY_PARKED; r < RESIDENCY_COUNT; r++) {
		MOVED((enum residency)r, NULL);
		memory_replay_access(&fixture_lc, 0, -1); /* nothing is there: no error and no harm */
		if (r == RESIDENCY_PARKED) {
			OK(cuMemGetAccess(&flags, &peer, block.address + 2 * MIB));
			assert_int_equal(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
		}
		MOVED(RESIDENCY_DEVICE, NULL);
		OK(cuMemGetAccess(&flags, &peer, block.address + 2 * MIB));
		assert_int_equal(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	}
	contexts_peer_disable(&fixture_lc.contexts, second, mine);
	MOVED(RESIDENCY_HOST, NULL);
	MOVED(RESIDENCY_DEVICE, NULL);
	OK(cuMemGetAccess(&flags, &peer, block.address));
	assert_int_equal(flags, 0);
	OK(cuDevicePrimaryCtxRelease_v2(1));
}

static int setup_two_devices(void **state)
{
	setenv("SUBLET_SIM_DEVICES", "2", 1);
	return setup(state);
}

static void allocations_of_two_devices_move_in_one_request(void **state)
{
	struct block here = new_block(6 * MIB, 1), there;
	CUcontext mine, second;

	OK(cuCtxGetCurrent(&mine));
	OK(cuDevicePrimaryCtxRetain(&second, 1));
	OK(cuCtxSetCurrent(second));
	there = new_block(6 * MIB, 2);
	OK(cuCtxSetCurrent(mine));
	for (int i = 0; i < 3; i++) {
		MOVED(i == 1 ? RESIDENCY_PARKED : RESIDENCY_HOST, NULL);
		assert_int_equal(fixture_page.device[1].residency_bytes[RESIDENCY_DEVICE], 0);
		MOVED(RESIDENCY_DEVICE, NULL);
		assert_int_equal(report.moved, 2);
		assert_true(same_bytes(&here));
		assert_true(same_bytes(&there));
	}
}

static void allocations_end_with_their_context_wherever_they_are(void **state)
{
	CUcontext context, popped;

	for (int r = RESIDENCY_PARKED; r < RESIDENCY_COUNT; r++) {
		struct context_end end;

		OK(cuCtxCreate_v4(&context, NULL, 0, 0));
		new_block(4 * MIB, 1);
		MOVED((enum residency)r, NULL);
		lifecycle_context_end_begin(&fixture_lc, context, &end);
		OK(cuCtxDestroy_v2(context));
		lifecycle_context_end(&fixture_lc, &end, true);
		assert_int_equal(fixture_page.device[0].managed.bytes, 0);
		assert_int_equal(fixture_page.host_pool_free_bytes, fixture_page.host_pool_bytes);
		(void)popped;
	}
}

/* The stream of a context that has gone is not used again. */
static void moves_go_on_in_another_context_when_theirs_has_ended(void **state)
{
	struct context_end end;
	CUcontext first;
	struct block block;

	OK(cuCtxCreate_v4(&first, NULL, 0, 0));
	new_block(2 * MIB, 1);
	MOVED(RESIDENCY_HOST, NULL); /* only `first` is known: the stream is made in it */
	lifecycle_context_end_begin(&fixture_lc, first, &end);
	OK(cuCtxDestroy_v2(first));
	lifecycle_context_end(&fixture_lc, &end, true);
	block = new_block(4 * MIB, 2);
	MOVED(RESIDENCY_HOST, NULL);
	MOVED(RESIDENCY_DEVICE, NULL);
	assert_true(same_bytes(&block));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(row_1_restore_without_room_fails_cleanly_and_works_when_there_is),
		CASE(row_3_nothing_is_mapped_or_copied_after_a_create_that_failed),
		CASE(row_4_a_restore_that_fails_in_the_middle_gives_all_it_took_back),
		CASE(row_7_restore_uses_what_the_process_keeps_for_later),
		CASE(row_11_repeated_requests_are_no_ops),
		CASE(requests_that_contradict_themselves_are_errors),
		CASE(row_12_free_in_each_residency_works_once_and_the_address_is_used_again),
		CASE(row_13_free_on_another_thread_without_a_context),
		CASE(row_18_a_failed_query_does_not_spoil_what_follows),
		CASE(row_19_restoring_one_object_leaves_the_copies_of_the_others),
		CASE(row_21_a_discard_takes_what_was_named_and_nothing_beside_it),
		CASE(row_22_fresh_pages_hold_the_poison_that_was_asked_for),
		CASE(row_26_all_that_is_live_is_the_same_after_a_cycle),
		CASE(verify_finds_bytes_that_changed_in_the_pool),
		CASE(row_44_a_second_offload_pins_nothing_and_copies_whole_extents),
		CASE(row_45_resident_memory_is_flat_over_100_cycles),
		CASE(exposed_pages_stay_and_are_named),
		CASE(memory_made_while_others_are_away_is_whole_and_no_hole),
		cmocka_unit_test_setup_teardown(peers_reach_what_comes_back, setup_two_devices, teardown),
		cmocka_unit_test_setup_teardown(allocations_of_two_devices_move_in_one_request, setup_two_devices, teardown),
		CASE(allocations_end_with_their_context_wherever_they_are),
		CASE(moves_go_on_in_another_context_when_theirs_has_ended),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
