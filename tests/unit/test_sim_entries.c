/* tests/unit/test_sim_entries.c
 * What every entry point of the simulated driver has in common: it is counted, fails on demand with the code asked for, and
 * says NOT_INITIALIZED before cuInit where the driver would. */
#include "tools/sim/sim_priv.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

/* Called with nothing but zeros: all that is asked comes before an argument is looked at. */
typedef CUresult any_call(long, long, long, long, long, long, long, long, long, long, long, long);

static const struct {
	const char *symbol;
	any_call *call;
} rows[] = {
#define WRAP(symbol, base, since, stream, need, group, params, args) {#symbol, (any_call *)(void *)symbol},
#define PASS(symbol, base, since, stream, need, reason, params, args)                                                  \
	WRAP(symbol, base, since, stream, need, reason, params, args)
#include "shim/entries.def"
};
#define ROWS (sizeof(rows) / sizeof(rows[0]))

static CUresult call(size_t i)
{
	return rows[i].call(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
}

static int setup(void **state)
{
	CUcontext context;

	sublet_sim_reset();
	return cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context);
}

static int teardown(void **state)
{
	sublet_sim_reset();
	return 0;
}

static void every_entry_point_is_counted_and_failable(void **state)
{
	unsigned wrong = 0;

	for (size_t i = 0; i < ROWS; i++) {
		uint64_t before = sublet_sim_calls(rows[i].symbol);
		CUresult result;

		sublet_sim_fail(rows[i].symbol, 1, false, CUDA_ERROR_OPERATING_SYSTEM);
		result = call(i);
		if (result != CUDA_ERROR_OPERATING_SYSTEM || !sublet_sim_fail_fired() ||
			sublet_sim_calls(rows[i].symbol) != before + 1) {
			print_error("%s: %d, counted %d times\n", rows[i].symbol, (int)result,
				(int)(sublet_sim_calls(rows[i].symbol) - before));
			wrong++;
		}
	}
	assert_int_equal(wrong, 0);
}

static void entry_points_wait_for_init(void **state)
{
	static const char *const without_init[] = {"cuInit", "cuDriverGetVersion", "cuGetErrorName", "cuGetErrorString",
		"cuGetExportTable", "cuGetProcAddress", "cuGetProcAddress_v2"};
	unsigned wrong = 0;

	sublet_sim_reset();
	for (size_t i = 0; i < ROWS; i++) {
		bool exempt = false;
		CUresult result;

		for (size_t w = 0; w < sizeof(without_init) / sizeof(without_init[0]); w++)
			exempt |= strcmp(rows[i].symbol, without_init[w]) == 0;
		if (exempt)
			continue;
		result = call(i);
		if (result != CUDA_ERROR_NOT_INITIALIZED) {
			print_error("%s: %d\n", rows[i].symbol, (int)result);
			wrong++;
		}
	}
	assert_int_equal(wrong, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(every_entry_point_is_counted_and_failable, setup, teardown),
		cmocka_unit_test_setup_teardown(entry_points_wait_for_init, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
