/* tests/unit/test_memory.c
 * lifecycle/ over the simulated driver, linked statically. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "lifecycle/answers.h"
#include "lifecycle/memory.h"
#include "tests/unit/lifecycle_fixture.h"

static int setup(void **state)
{
	return fixture_begin() ? 0 : -1;
}

static int teardown(void **state)
{
	const char *left = fixture_end();

	if (left)
		fail_msg("%s", left);
	return 0;
}

static enum memory_verdict alloc(uint64_t bytes, CUdeviceptr *address, CUresult *result)
{
	enum stats_native why;

	return memory_alloc(&fixture_lc, bytes, address, result, &why, NULL);
}

static void memory_alloc_then_free_gives_everything_back(void **state)
{
	CUdeviceptr a = 0, base;
	CUresult result;
	size_t size, free_before, free_after, total;

	cuMemGetInfo_v2(&free_before, &total);
	assert_int_equal(alloc(5 * MIB, &a, &result), MEMORY_ANSWERED);
	assert_int_equal(result, CUDA_SUCCESS);
	assert_true(answer_address_range(&fixture_lc, a + MIB, &base, &size));
	assert_int_equal(base, a);
	assert_int_equal(size, 5 * MIB);
	assert_false(answer_address_range(&fixture_lc, a + 5 * MIB, &base, &size));
	assert_int_equal(memory_free(&fixture_lc, a + MIB, &result), MEMORY_PASS);
	assert_int_equal(memory_free(&fixture_lc, a, &result), MEMORY_ANSWERED);
	assert_int_equal(memory_free(&fixture_lc, a, &result), MEMORY_PASS);
	assert_int_equal(answer_memory_info(&fixture_lc, &free_after, &total), CUDA_SUCCESS);
	assert_int_equal(free_after, free_before);
	assert_int_equal(fixture_page.device[0].managed.bytes, 0);
}

static void memory_alloc_small_passes(void **state)
{
	CUdeviceptr a;
	CUresult result;

	assert_int_equal(alloc(MIB - 1, &a, &result), MEMORY_PASS);
}

/* A release of the primary context that is not the last: what allocates meanwhile notes the context once more. Forty of
 * them would leave more contexts than a free has marks for. */
static void ends_that_are_refused_leave_one_context_and_its_marks(void **state)
{
	CUcontext context;
	CUdeviceptr a = 0, b = 0;
	CUresult result;

	assert_int_equal(cuCtxGetCurrent(&context), CUDA_SUCCESS);
	assert_int_equal(alloc(4 * MIB, &a, &result), MEMORY_ANSWERED);
	for (int i = 0; i < 40; i++) {
		struct context_end end;

		lifecycle_context_end_begin(&fixture_lc, context, &end);
		assert_int_equal(alloc(4 * MIB, &b, &result), MEMORY_ANSWERED);
		assert_int_equal(memory_free(&fixture_lc, b, &result), MEMORY_ANSWERED);
		assert_int_equal(result, CUDA_SUCCESS);
		lifecycle_context_end(&fixture_lc, &end, false);
		assert_int_equal(fixture_lc.contexts.count, 1);
	}
	assert_true(reclaim_wait(&fixture_lc, 5000000000ull));
	assert_int_equal(memory_free(&fixture_lc, a, &result), MEMORY_ANSWERED);
	assert_int_equal(result, CUDA_SUCCESS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(memory_alloc_then_free_gives_everything_back, setup, teardown),
		cmocka_unit_test_setup_teardown(memory_alloc_small_passes, setup, teardown),
		cmocka_unit_test_setup_teardown(ends_that_are_refused_leave_one_context_and_its_marks, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
