/* tests/unit/test_residency.c
 * Every way from one residency to another: contents, what is mapped, what is counted, what is answered. */
#include "tests/unit/residency_harness.h"

#include "policy/decide.h"

static void table_has_the_steps_that_policies_are_planned_with(void **state)
{
	for (int from = 0; from < RESIDENCY_COUNT; from++) {
		for (int to = 0; to < RESIDENCY_COUNT; to++) {
			const struct residency_change *change = residency_change((enum residency)from, (enum residency)to);
			uint32_t steps = policy_steps((enum policy_residency)from, (enum policy_residency)to);

			assert_int_equal(change != NULL, steps != 0);
			if (change) {
				assert_int_equal(change->takes_host, !!(steps & POLICY_ACT_TAKE_HOST));
				assert_non_null(change->prepare);
			}
		}
	}
}

/* From each residency to each other: reached from the device first. Bytes live through all but `empty`. */
static void every_transition_keeps_its_promise(void **state)
{
	size_t all = free_bytes();

	for (int from = 0; from < RESIDENCY_COUNT; from++) {
		for (int to = 0; to < RESIDENCY_COUNT; to++) {
			struct block block = new_block(5 * MIB, 7);
			const bool kept = from != RESIDENCY_EMPTY && to != RESIDENCY_EMPTY;
			const bool reached = residency_change((enum residency)from, (enum residency)to) || from == to;

			if (from != RESIDENCY_DEVICE)
				MOVED((enum residency)from, NULL);
			MOVED((enum residency)to, NULL);
			assert_int_equal(residency_of(&block), reached ? to : from);
			assert_null(illegal_state(block.address));
			assert_true(ledger_adds_up());
			assert_int_equal(fixture_page.device[0].residency_bytes[reached ? to : from], 6 * MIB);
			assert_int_equal(all - free_bytes(), residency_of(&block) == RESIDENCY_DEVICE ? 6 * MIB : 0);
			if (to == RESIDENCY_DEVICE || to == RESIDENCY_PARKED)
				assert_int_equal(same_bytes(&block), kept);
			MOVED(RESIDENCY_DEVICE, NULL);
			assert_int_equal(same_bytes(&block), kept);
			assert_int_equal(report.holes, 0);
			free_block(&block);
			assert_true(reclaim_wait(&fixture_lc, 5000000000ull));
		}
	}
}

static void holes_are_refused_by_copies_and_parked_memory_works(void **state)
{
	struct block block = new_block(4 * MIB, 3);
	uint32_t word = 0;

	MOVED(RESIDENCY_HOST, NULL);
	assert_int_equal(report.holes, 1);
	assert_int_not_equal(cuMemcpyDtoH_v2(&word, block.address, 4), CUDA_SUCCESS);
	MOVED(RESIDENCY_PARKED, NULL);
	assert_int_equal(report.holes, 0);
	block.seed = 99;
	assert_true(fill_block(&block)); /* what is written while parked is kept */
	MOVED(RESIDENCY_HOST, NULL);
	MOVED(RESIDENCY_DEVICE, NULL);
	assert_true(same_bytes(&block));
}

static void a_hundred_cycles_keep_every_byte_and_use_no_more_memory(void **state)
{
	static const uint64_t sizes[] = {MIB, 5 * MIB, 2 * MIB, 9 * MIB + 4096, 3 * MIB};
	struct block blocks[5];
	struct sim_counts first, now;
	uint64_t pool = 0;

	for (unsigned i = 0; i < 5; i++)
		blocks[i] = new_block(sizes[i], i * 1000);
	for (unsigned cycle = 0; cycle < 100; cycle++) {
		MOVED(cycle % 3 == 1 ? RESIDENCY_PARKED : RESIDENCY_HOST, NULL);
		assert_int_equal(report.moved, 5);
		if (cycle % 4 == 3)
			MOVED(RESIDENCY_PARKED, NULL);
		MOVED(RESIDENCY_DEVICE, NULL);
		assert_int_equal(report.moved, 5);
		for (unsigned i = 0; i < 5; i++) {
			assert_true(same_bytes(&blocks[i]));
			assert_null(illegal_state(blocks[i].address));
		}
		sublet_sim_counts(cycle ? &now : &first);
		if (!cycle) {
			pool = fixture_page.host_pool_bytes;
			continue;
		}
		assert_int_equal(now.live_handles, first.live_handles);
		assert_int_equal(now.live_mappings, first.live_mappings);
		assert_int_equal(now.live_events, first.live_events);
		assert_int_equal(now.live_streams, first.live_streams);
		assert_int_equal(now.reserved_bytes, first.reserved_bytes);
		assert_int_equal(now.device_bytes[0], first.device_bytes[0]);
		assert_int_equal(fixture_page.host_pool_bytes, pool);
		assert_int_equal(fixture_page.host_pool_free_bytes, pool);
	}
}

/* ---- answers ---- */

static unsigned long long attribute(CUdeviceptr address, CUpointer_attribute which, CUresult expected)
{
	unsigned long long value = 0;
	CUresult result = CUDA_ERROR_UNKNOWN;

	if (!answer_pointer_attribute(&fixture_lc, &value, which, address, &result))
		result = cuPointerGetAttribute(&value, which, address);
	assert_int_equal(result, expected);
	return value;
}

/* As cuPointerGetAttributes gives them to PyTorch and others. */
static void attributes(CUdeviceptr address, CUmemorytype *type, void **host, CUdeviceptr *device, unsigned long long *id)
{
	CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_HOST_POINTER,
		CU_POINTER_ATTRIBUTE_DEVICE_POINTER, CU_POINTER_ATTRIBUTE_BUFFER_ID};
	void *data[] = {type, host, device, id};

	OK(cuPointerGetAttributes(4, which, data, answer_pointer_to_ask(&fixture_lc, address)));
	answer_pointer_attributes(&fixture_lc, 4, which, data, address);
}

static void answers_are_those_of_device_memory_in_every_residency(void **state)
{
	static const CUpointer_attribute same[] = {CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
		CU_POINTER_ATTRIBUTE_DEVICE_POINTER, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
		CU_POINTER_ATTRIBUTE_RANGE_SIZE, CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_MAPPED,
		CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
		CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE,
		CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
		CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE};
	struct block block = new_block(3 * MIB, 1);
	CUdeviceptr inside = block.address + 2 * MIB + 8, base, device;
	unsigned long long before[15], ids[8], listed;
	CUmemorytype type;
	unsigned count = 0;
	size_t size;
	void *host;

	for (unsigned i = 0; i < 15; i++)
		before[i] = attribute(inside, same[i], CUDA_SUCCESS);
	ids[count++] = attribute(inside, CU_POINTER_ATTRIBUTE_BUFFER_ID, CUDA_SUCCESS);
	for (int r = RESIDENCY_PARKED; r <= RESIDENCY_COUNT; r++) {
		MOVED(r == RESIDENCY_COUNT ? RESIDENCY_DEVICE : (enum residency)r, NULL);
		for (unsigned i = 0; i < 15; i++)
			assert_int_equal(attribute(inside, same[i], CUDA_SUCCESS), before[i]);
		attribute(inside, CU_POINTER_ATTRIBUTE_HOST_POINTER, CUDA_ERROR_INVALID_VALUE);
		assert_true(answer_address_range(&fixture_lc, inside, &base, &size));
		assert_int_equal(base, block.address);
		assert_int_equal(size, 3 * MIB);
		ids[count++] = attribute(inside, CU_POINTER_ATTRIBUTE_BUFFER_ID, CUDA_SUCCESS);
		attributes(inside, &type, &host, &device, &listed);
		assert_int_equal(type, CU_MEMORYTYPE_DEVICE);
		assert_null(host);
		assert_int_equal(device, inside);
		assert_int_equal(listed, ids[count - 1]);
	}
	for (unsigned i = 0; i < count; i++) {
		for (unsigned j = i + 1; j < count; j++)
			assert_int_not_equal(ids[i], ids[j]);
	}
}

static void memory_info_counts_what_has_left_as_free(void **state)
{
	size_t before, now, total;
	struct block block;

	OK(answer_memory_info(&fixture_lc, &before, &total));
	block = new_block(8 * MIB, 1);
	for (int r = RESIDENCY_PARKED; r < RESIDENCY_COUNT; r++) {
		MOVED((enum residency)r, NULL);
		OK(answer_memory_info(&fixture_lc, &now, &total));
		assert_int_equal(now, before);
	}
	MOVED(RESIDENCY_DEVICE, NULL);
	OK(answer_memory_info(&fixture_lc, &now, &total));
	assert_int_equal(now, before - 8 * MIB);
	MOVED(RESIDENCY_PARKED, NULL);
	free_block(&block); /* gives no device memory back */
	OK(answer_memory_info(&fixture_lc, &now, &total));
	assert_int_equal(now, before);
}

/* ---- pages that the application holds a handle of ---- */

/* The mark may come in the moment in which the pages have just left: then nothing is left to be kept in its place. */
static void exposed_memory_without_pages_is_brought_back(void **state)
{
	struct block block = new_block(4 * MIB, 1);

	MOVED(RESIDENCY_HOST, &block);
	records_expose(&fixture_lc.records, block.address, 1);
	MOVED(RESIDENCY_DEVICE, &block);
	assert_int_equal(report.moved, 1);
	assert_int_equal(report.holes, 0);
	assert_true(same_bytes(&block));
	MOVED(RESIDENCY_HOST, &block); /* now there are some */
	assert_int_equal(report.skipped, 1);
	assert_int_equal(residency_of(&block), RESIDENCY_DEVICE);
}

static void parked_pages_that_were_exposed_are_given_to_nobody_else(void **state)
{
	struct block block = new_block(4 * MIB, 1), next;
	CUmemGenericAllocationHandle retained;

	MOVED(RESIDENCY_PARKED, &block);
	OK(cuMemRetainAllocationHandle(&retained, (void *)(uintptr_t)block.address));
	records_expose(&fixture_lc.records, block.address, 1);
	free_block(&block);
	assert_true(reclaim_wait(&fixture_lc, 5000000000ull));
	assert_int_equal(fixture_page.host_pool_free_bytes, 0);
	next = new_block(4 * MIB, 2);
	MOVED(RESIDENCY_HOST, &next);
	assert_int_equal(fixture_page.host_pool_bytes, 4 * MIB); /* the others went */
	MOVED(RESIDENCY_DEVICE, &next);
	assert_true(same_bytes(&next));
	OK(cuMemRelease(retained));
}

/* The cost of coming back is per extent; only what is copied gains by small ones. */
static void memory_that_was_discarded_returns_in_large_extents_and_can_be_copied(void **state)
{
	static const enum residency away[] = {RESIDENCY_HOST, RESIDENCY_PARKED};
	struct block block;

	fixture_lc.config.extent_bytes = 6 * MIB;
	fixture_lc.copied_extent_bytes = 2 * MIB;
	block = new_block(14 * MIB, 1);
	assert_int_equal(record_of(block.address)->backing.count, 7);
	MOVED(RESIDENCY_EMPTY, &block);
	MOVED(RESIDENCY_DEVICE, &block);
	assert_int_equal(record_of(block.address)->backing.count, 3);
	for (size_t i = 0; i < sizeof(away) / sizeof(away[0]); i++) {
		assert_true(fill_block(&block));
		MOVED(away[i], &block);
		MOVED(RESIDENCY_DEVICE, &block);
		assert_true(same_bytes(&block));
	}
	MOVED(RESIDENCY_EMPTY, &block);
	MOVED(RESIDENCY_PARKED, &block); /* from there it would be copied */
	assert_int_equal(record_of(block.address)->backing.count, 7);
	MOVED(RESIDENCY_DEVICE, &block);
}

static unsigned access_calls;

static CUresult CUDAAPI count_access(CUdeviceptr at, size_t bytes, const CUmemAccessDesc *access, size_t count)
{
	access_calls++;
	return cuMemSetAccess(at, bytes, access, count);
}

/* The driver takes as long to give access to one extent as to make it; only what is copied at once needs it at once. */
static void memory_without_content_is_given_access_in_one_call(void **state)
{
	struct block block;

	fixture_lc.config.extent_bytes = 2 * MIB;
	fixture_lc.copied_extent_bytes = 2 * MIB;
	block = new_block(14 * MIB, 1);
	fixture_lc.driver.MemSetAccess = count_access;
	MOVED(RESIDENCY_EMPTY, &block);
	access_calls = 0;
	MOVED(RESIDENCY_DEVICE, &block);
	assert_int_equal(record_of(block.address)->backing.count, 7);
	assert_int_equal(access_calls, 1);
	assert_true(fill_block(&block));
	assert_true(same_bytes(&block));
	MOVED(RESIDENCY_HOST, &block);
	access_calls = 0;
	MOVED(RESIDENCY_DEVICE, &block);
	assert_int_equal(access_calls, 7); /* each is copied into while the next is made */
	assert_true(same_bytes(&block));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(table_has_the_steps_that_policies_are_planned_with),
		CASE(every_transition_keeps_its_promise),
		CASE(holes_are_refused_by_copies_and_parked_memory_works),
		CASE(a_hundred_cycles_keep_every_byte_and_use_no_more_memory),
		CASE(answers_are_those_of_device_memory_in_every_residency),
		CASE(memory_info_counts_what_has_left_as_free),
		CASE(exposed_memory_without_pages_is_brought_back),
		CASE(parked_pages_that_were_exposed_are_given_to_nobody_else),
		CASE(memory_that_was_discarded_returns_in_large_extents_and_can_be_copied),
		CASE(memory_without_content_is_given_access_in_one_call),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
