/* tests/unit/test_host_pool.c
 * The host pool: what is kept, what is destroyed to make room, what it says when it is full, and how a session takes part. */
#include "tests/unit/residency_harness.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

static struct host_extent *taken(uint64_t bytes)
{
	struct host_extent *extent = NULL;

	if (host_pool_take(&fixture_lc, 0, bytes, &extent, &failure))
		fail_msg("%s", failure.text);
	return extent;
}

static void an_extent_is_made_once_and_kept_at_its_address(void **state)
{
	struct host_extent *first = taken(4 * MIB), *second = taken(4 * MIB), *other = taken(2 * MIB);
	uint64_t address = first->address, creates = sublet_sim_calls("cuMemCreate"), maps = sublet_sim_calls("cuMemMap");

	memset((void *)(uintptr_t)address, 1, 4 * MIB); /* the CPU may use it */
	assert_int_equal(fixture_page.host_pool_bytes, 10 * MIB);
	assert_int_equal(fixture_page.host_pool_free_bytes, 0);
	host_pool_put(&fixture_lc, other);
	host_pool_put(&fixture_lc, second);
	host_pool_put(&fixture_lc, first);
	assert_int_equal(fixture_page.host_pool_free_bytes, 10 * MIB);
	assert_int_equal(taken(4 * MIB)->address, address); /* the last one first: its pages are the warmest */
	assert_ptr_equal(taken(2 * MIB), other);
	assert_ptr_equal(taken(4 * MIB), second);
	assert_int_equal(sublet_sim_calls("cuMemCreate"), creates);
	assert_int_equal(sublet_sim_calls("cuMemMap"), maps);
	first->next = second;
	second->next = other;
	host_pool_put(&fixture_lc, first); /* a list */
	assert_int_equal(fixture_page.host_pool_free_bytes, 10 * MIB);
}

static void a_full_pool_says_what_is_needed_the_cap_and_who_holds_what(void **state)
{
	struct block block = new_block(6 * MIB, 1), more = new_block(4 * MIB, 2);

	fixture_lc.config.host_pool_bytes = 8 * MIB;
	MOVED(RESIDENCY_HOST, &block);
	assert_int_equal(move_to(RESIDENCY_HOST, &more), SUBLET_ERR_NOMEM);
	assert_non_null(strstr(failure.text, "for 2.00 MiB more"));
	assert_non_null(strstr(failure.text, "the cap is 8.00 MiB"));
	assert_non_null(strstr(failure.text, "holds 8.00 MiB")); /* what was taken for it in this moment included */
	assert_int_equal(residency_of(&more), RESIDENCY_DEVICE);
	assert_true(same_bytes(&more));
	assert_int_equal(report.failed, 1);
	assert_int_equal(fixture_page.host_pool_bytes - fixture_page.host_pool_free_bytes, 6 * MIB);
	MOVED(RESIDENCY_DEVICE, NULL);
	MOVED(RESIDENCY_HOST, &more);
	MOVED(RESIDENCY_DEVICE, NULL);
	assert_true(same_bytes(&block));
	assert_true(same_bytes(&more));
}

/* A request that does not fit is refused before a byte has moved. */
static void a_pool_too_small_for_a_request_leaves_all_on_the_device(void **state)
{
	struct block blocks[4];
	uint64_t copies = sublet_sim_calls("cuMemcpyAsync");

	for (unsigned i = 0; i < 4; i++)
		blocks[i] = new_block(4 * MIB, i);
	fixture_lc.config.host_pool_bytes = 14 * MIB;
	assert_int_equal(move_to(RESIDENCY_HOST, NULL), SUBLET_ERR_NOMEM);
	assert_int_equal(sublet_sim_calls("cuMemcpyAsync"), copies);
	assert_int_equal(report.holes, 0);
	for (unsigned i = 0; i < 4; i++)
		assert_true(same_bytes(&blocks[i]));
}

static void kept_extents_of_other_sizes_make_room_under_the_cap(void **state)
{
	struct host_extent *large, *small;

	fixture_lc.config.host_pool_bytes = 10 * MIB;
	large = taken(8 * MIB);
	host_pool_put(&fixture_lc, large);
	small = taken(4 * MIB);
	assert_int_equal(fixture_page.host_pool_bytes, 4 * MIB);
	assert_int_equal(host_pool_take(&fixture_lc, 0, 8 * MIB, &large, &failure), SUBLET_ERR_NOMEM);
	host_pool_put(&fixture_lc, small);
	host_pool_put(&fixture_lc, taken(8 * MIB));
	assert_int_equal(fixture_page.host_pool_bytes, 8 * MIB);
	assert_int_equal(host_pool_take(&fixture_lc, 0, 12 * MIB, &large, &failure), SUBLET_ERR_NOMEM);
	assert_int_equal(fixture_page.host_pool_bytes, 8 * MIB); /* more than the cap: nothing is destroyed for nothing */
}

static void a_full_node_is_no_memory_and_leaves_everything(void **state)
{
	struct block block = new_block(6 * MIB, 1);

	sublet_sim_fail("cuMemCreate", 3, true, CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(move_to(RESIDENCY_PARKED, NULL), SUBLET_ERR_NOMEM);
	sublet_sim_fail(NULL, 0, false, 0);
	assert_int_equal(residency_of(&block), RESIDENCY_DEVICE);
	assert_int_equal(fixture_page.host_pool_free_bytes, fixture_page.host_pool_bytes);
	assert_true(same_bytes(&block));
	MOVED(RESIDENCY_PARKED, NULL);
	assert_true(same_bytes(&block));
}

static void filling_up_front_makes_what_a_first_offload_needs(void **state)
{
	struct block block = new_block(8 * MIB, 1);
	uint64_t creates;

	assert_int_equal(host_pool_fill(&fixture_lc, 0, 8 * MIB, 2 * MIB, &failure), SUBLET_OK);
	assert_int_equal(fixture_page.host_pool_free_bytes, 8 * MIB);
	creates = sublet_sim_calls("cuMemCreate");
	MOVED(RESIDENCY_HOST, NULL);
	assert_int_equal(sublet_sim_calls("cuMemCreate"), creates);
	MOVED(RESIDENCY_DEVICE, NULL);
	assert_true(same_bytes(&block));
	fixture_lc.config.host_pool_bytes = 9 * MIB;
	assert_int_equal(host_pool_fill(&fixture_lc, 0, 20 * MIB, 4 * MIB, &failure), SUBLET_ERR_NOMEM);
	assert_int_equal(host_pool_fill(&fixture_lc, 0, 4 * MIB, 2 * MIB, &failure), SUBLET_OK); /* there is more already */
}

/* ---- without HOST_NUMA ---- */

static int setup_without_numa(void **state)
{
	setenv("SUBLET_SIM_WITHOUT", "host_numa", 1);
	return setup(state);
}

static void without_host_numa_offload_works_and_parking_is_refused(void **state)
{
	struct block block = new_block(6 * MIB, 1);

	assert_int_equal(move_to(RESIDENCY_PARKED, NULL), SUBLET_ERR_UNSUPPORTED);
	assert_non_null(strstr(failure.text, "HOST_NUMA"));
	assert_int_equal(residency_of(&block), RESIDENCY_DEVICE);
	for (int i = 0; i < 3; i++) {
		MOVED(RESIDENCY_HOST, NULL);
		assert_int_equal(fixture_lc.host_pool.kind, HOST_POOL_REGISTERED);
		assert_int_equal(sublet_sim_calls("cuMemHostRegister_v2"), 3);
		assert_int_equal(move_to(RESIDENCY_PARKED, NULL), SUBLET_ERR_UNSUPPORTED);
		assert_int_equal(residency_of(&block), RESIDENCY_HOST);
		MOVED(RESIDENCY_DEVICE, NULL);
		assert_true(same_bytes(&block));
	}
	MOVED(RESIDENCY_HOST, NULL); /* and is freed there */
}

/* The signal that the kernel has for it would end this process. */
static void limit_of_file_sizes_refuses_an_offload_and_sends_no_signal(void **state)
{
	struct block block = new_block(6 * MIB, 1);
	struct rlimit old, small;
	enum sublet_err err;

	assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
	small = (struct rlimit){MIB, old.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	err = move_to(RESIDENCY_HOST, NULL);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
	assert_int_equal(err, SUBLET_ERR_NOMEM);
	assert_int_equal(residency_of(&block), RESIDENCY_DEVICE);
	assert_true(same_bytes(&block));
	MOVED(RESIDENCY_HOST, NULL);
	MOVED(RESIDENCY_DEVICE, NULL);
	assert_true(same_bytes(&block));
}

/* ---- with a session ---- */

struct session {
	uint64_t left, given, made_bytes, numbers; /* sum of those made and not given back */
	unsigned credits, takes, made;
	int shared[8]; /* descriptors that others have let go of */
	unsigned shared_count;
	uint64_t shared_bytes;
};

static struct session session; /* outlives the test: the pool still gives back to it when it is released */

static bool credit(void *arg, uint64_t bytes, char *why, size_t why_size)
{
	struct session *of = arg;

	of->credits++;
	if (bytes > of->left) {
		snprintf(why, why_size, "1000.00 MiB of 1.00 GiB are in use: pid 4194304 (train) 700.00 MiB, "
					"rollout holds 3.00 GiB; raise host_pool or SUBLET_HOST_POOL");
		return false;
	}
	of->left -= bytes;
	return true;
}

static void give(void *arg, uint64_t bytes, uint64_t extent)
{
	struct session *of = arg;

	of->left += bytes;
	of->given += bytes;
	of->numbers -= extent;
}

static bool take(void *arg, uint64_t bytes, uint64_t extent, int *ret_fd)
{
	struct session *of = arg;

	of->takes++;
	if (!of->shared_count || bytes != of->shared_bytes)
		return false;
	*ret_fd = of->shared[--of->shared_count];
	return true;
}

static void made(void *arg, uint64_t bytes, uint64_t extent, int fd)
{
	struct session *of = arg;

	of->made++;
	of->made_bytes += bytes;
	assert_true(extent > 0);
	of->numbers += extent;
	assert_true(fcntl(fd, F_GETFD) >= 0);
	close(fd);
}

static void join(struct session *of)
{
	const struct host_pool_hooks hooks = {.credit = credit, .give = give, .take = take, .made = made, .arg = of};

	host_pool_set_hooks(&fixture_lc.host_pool, &hooks);
}

static void a_session_gives_credit_and_is_told_of_each_extent(void **state)
{
	session = (struct session){.left = 9 * MIB};
	struct block block = new_block(6 * MIB, 1), more = new_block(4 * MIB, 2);

	join(&session);
	MOVED(RESIDENCY_HOST, &block);
	assert_int_equal(session.made, 3);
	assert_int_equal(session.made_bytes, 6 * MIB);
	assert_int_equal(session.left, 3 * MIB);
	assert_int_equal(move_to(RESIDENCY_HOST, &more), SUBLET_ERR_NOMEM);
	assert_non_null(strstr(failure.text, "for 2.00 MiB more: 1000.00 MiB"));
	assert_non_null(strstr(failure.text, "rollout holds 3.00 GiB; raise host_pool or SUBLET_HOST_POOL")); /* all of it */
	MOVED(RESIDENCY_DEVICE, NULL);
	assert_int_equal(session.given, 0); /* what it has it keeps */
	host_pool_trim(&fixture_lc, UINT64_MAX, 0);
	assert_int_equal(session.left, 9 * MIB);
	assert_int_equal(session.numbers, 0); /* each by its own */
	assert_true(same_bytes(&block));
}

static void a_create_that_fails_returns_its_credit(void **state)
{
	session = (struct session){.left = 64 * MIB};
	struct host_extent *extent;

	join(&session);
	host_pool_put(&fixture_lc, taken(2 * MIB));
	for (int i = 0; i < 3; i++) {
		static const char *const calls[] = {"cuMemCreate", "cuMemMap", "cuMemSetAccess"};

		sublet_sim_fail(calls[i], 1, false, 0);
		assert_int_not_equal(host_pool_take(&fixture_lc, 0, 4 * MIB, &extent, &failure), SUBLET_OK);
		assert_int_equal(session.left, 62 * MIB);
		assert_int_equal(fixture_page.host_pool_bytes, 2 * MIB);
	}
	sublet_sim_fail("cuMemExportToShareableHandle", 1, true, 0); /* not shared, but usable */
	host_pool_put(&fixture_lc, taken(4 * MIB));
	assert_int_equal(session.made, 1);
}

static void an_extent_that_another_process_let_go_of_is_taken_over(void **state)
{
	session = (struct session){.left = 0, .shared_bytes = 2 * MIB};
	struct block block = new_block(6 * MIB, 1);
	CUmemGenericAllocationHandle foreign[3];
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA}};

	for (int i = 0; i < 3; i++) {
		OK(cuMemCreate(&foreign[i], 2 * MIB, &prop, 0));
		OK(cuMemExportToShareableHandle(&session.shared[i], foreign[i], CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
		OK(cuMemRelease(foreign[i]));
	}
	session.shared_count = 3;
	join(&session);
	MOVED(RESIDENCY_PARKED, NULL);
	assert_int_equal(session.shared_count, 0);
	assert_int_equal(session.credits, 0); /* it comes with its own */
	assert_int_equal(session.made, 0);
	assert_true(same_bytes(&block));
	MOVED(RESIDENCY_DEVICE, NULL);
	assert_true(same_bytes(&block));
}

static void a_descriptor_that_is_none_costs_its_credit_and_no_more(void **state)
{
	session = (struct session){.left = 8 * MIB, .shared_bytes = 2 * MIB, .shared = {open("/dev/null", O_RDONLY)}, .shared_count = 1};
	struct block block = new_block(2 * MIB, 1);

	join(&session);
	MOVED(RESIDENCY_HOST, NULL);
	assert_int_equal(session.given, 2 * MIB);
	assert_int_equal(session.credits, 1);
	MOVED(RESIDENCY_DEVICE, NULL);
	assert_true(same_bytes(&block));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(an_extent_is_made_once_and_kept_at_its_address),
		CASE(a_full_pool_says_what_is_needed_the_cap_and_who_holds_what),
		CASE(a_pool_too_small_for_a_request_leaves_all_on_the_device),
		CASE(kept_extents_of_other_sizes_make_room_under_the_cap),
		CASE(a_full_node_is_no_memory_and_leaves_everything),
		CASE(filling_up_front_makes_what_a_first_offload_needs),
		cmocka_unit_test_setup_teardown(without_host_numa_offload_works_and_parking_is_refused, setup_without_numa, teardown),
		cmocka_unit_test_setup_teardown(limit_of_file_sizes_refuses_an_offload_and_sends_no_signal, setup_without_numa, teardown),
		CASE(a_session_gives_credit_and_is_told_of_each_extent),
		CASE(a_create_that_fails_returns_its_credit),
		CASE(an_extent_that_another_process_let_go_of_is_taken_over),
		CASE(a_descriptor_that_is_none_costs_its_credit_and_no_more),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
