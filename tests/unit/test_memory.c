/* tests/unit/test_memory.c
 * lifecycle/ over the simulated driver, linked statically. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>
#include <dlfcn.h>

#include "lifecycle/answers.h"
#include "lifecycle/memory.h"
#include "tools/sim/sim.h"

#define MIB (1ull << 20)

static struct lifecycle lc;
static struct stats_page page;

static void *find(const char *symbol, void *arg)
{
#define DRIVER_CALL(name, field, need)                                                                                 \
	if (__builtin_strcmp(symbol, #name) == 0)                                                                      \
		return (void *)name;
#include "lifecycle/driver.def"
	return NULL;
}

static int setup(void **state)
{
	struct lifecycle_config config = lifecycle_config_default();
	struct driver driver;
	struct errinfo error;
	CUcontext context;

	sublet_sim_reset();
	page = (struct stats_page){0};
	config.arena_bytes = 1ull << 40;
	return cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) ||
	       driver_load(&driver, find, NULL, &error) || lifecycle_init(&lc, &driver, &config, &page, &error);
}

static int teardown(void **state)
{
	struct sim_counts counts;

	sublet_sim_fail(NULL, 0, false, 0);
	lifecycle_release(&lc);
	sublet_sim_counts(&counts);
	assert_int_equal(counts.live_handles, 0);
	assert_int_equal(counts.live_mappings, 0);
	assert_int_equal(counts.device_bytes[0], 0);
	return 0;
}

static enum memory_verdict alloc(uint64_t bytes, CUdeviceptr *address, CUresult *result)
{
	enum stats_native why;

	return memory_alloc(&lc, bytes, address, result, &why);
}

static void memory_alloc_then_free_gives_everything_back(void **state)
{
	CUdeviceptr a = 0, base;
	CUresult result;
	size_t size, free_before, free_after, total;

	cuMemGetInfo_v2(&free_before, &total);
	assert_int_equal(alloc(5 * MIB, &a, &result), MEMORY_ANSWERED);
	assert_int_equal(result, CUDA_SUCCESS);
	assert_true(answer_address_range(&lc, a + MIB, &base, &size));
	assert_int_equal(base, a);
	assert_int_equal(size, 5 * MIB);
	assert_false(answer_address_range(&lc, a + 5 * MIB, &base, &size));
	assert_int_equal(memory_free(&lc, a + MIB, &result), MEMORY_PASS);
	assert_int_equal(memory_free(&lc, a, &result), MEMORY_ANSWERED);
	assert_int_equal(memory_free(&lc, a, &result), MEMORY_PASS);
	assert_int_equal(answer_memory_info(&lc, &free_after, &total), CUDA_SUCCESS);
	assert_int_equal(free_after, free_before);
	assert_int_equal(page.device[0].managed.bytes, 0);
}

static void memory_alloc_small_passes(void **state)
{
	CUdeviceptr a;
	CUresult result;

	assert_int_equal(alloc(MIB - 1, &a, &result), MEMORY_PASS);
}


int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(memory_alloc_then_free_gives_everything_back, setup, teardown),
		cmocka_unit_test_setup_teardown(memory_alloc_small_passes, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
