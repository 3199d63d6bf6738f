/* tests/unit/test_sweep.c
 * Allocation, free, contexts, peers and captures with every driver call failing in turn, and with a fork at each. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "lifecycle/answers.h"
#include "lifecycle/memory.h"
#include "tests/unit/lifecycle_fixture.h"
#include "tests/unit/sweep.h"
#include "tools/sim/sim.h"

#define LIVE_MAX 8
/* Longer than a free takes that nothing hinders. */
#define WAIT_NS 20000000ull

static CUdeviceptr live[LIVE_MAX];
static const char *seen;

/* What an application may be answered: memory, or the driver's own "out of memory". Anything else goes to the driver. */
static void alloc(unsigned slot, uint64_t bytes)
{
	enum stats_native why;
	CUresult result = CUDA_SUCCESS;
	CUdeviceptr base;
	size_t size;

	if (live[slot]) /* its free was refused */
		return;
	if (memory_alloc(&fixture_lc, bytes, &live[slot], &result, &why, NULL) == MEMORY_PASS)
		return;
	if (result == CUDA_SUCCESS) {
		if (!live[slot] || !answer_address_range(&fixture_lc, live[slot] + bytes - 1, &base, &size) || base != live[slot] ||
			size != bytes)
			seen = "an allocation that cannot be found";
	} else if (result != CUDA_ERROR_OUT_OF_MEMORY) {
		seen = "an allocation answered with another error than out of memory";
	}
}

/* A free that is refused leaves the memory as it was. */
static void give(unsigned slot)
{
	CUresult result = CUDA_SUCCESS;
	CUdeviceptr base;
	size_t size;

	if (!live[slot])
		return;
	if (memory_free(&fixture_lc, live[slot], &result) == MEMORY_PASS)
		seen = "a managed address that free does not know";
	else if (result == CUDA_SUCCESS)
		live[slot] = 0;
	else if (!answer_address_range(&fixture_lc, live[slot], &base, &size))
		seen = "a refused free that took the memory all the same";
}

static void give_all(void)
{
	for (unsigned slot = 0; slot < LIVE_MAX; slot++)
		give(slot);
}

static const char *outcome(void)
{
	const char *first = seen;

	seen = NULL;
	return first;
}

static const char *alloc_and_free(void)
{
	size_t free_bytes, total;

	alloc(0, 5 * MIB);
	alloc(1, 3 * GIB);
	give(0);
	alloc(2, 5 * MIB);
	alloc(3, 2 * MIB);
	give(3);
	alloc(3, 2 * MIB);
	answer_memory_info(&fixture_lc, &free_bytes, &total);
	give(1);
	give_all();
	reclaim_wait(&fixture_lc, WAIT_NS);
	return outcome();
}

static const char *alloc_and_free_sync(void)
{
	alloc(0, 5 * MIB);
	give(0);
	alloc(1, 8 * MIB);
	give_all();
	return outcome();
}

static bool sync_config(void)
{
	fixture_lc.config.free_sync = true;
	return true;
}

static const char *full_device(void)
{
	alloc(0, 6 * GIB);
	alloc(1, 3 * GIB);
	give(0);
	alloc(1, 3 * GIB);
	alloc(2, 6 * GIB);
	give_all();
	return outcome();
}

/* ---- contexts ---- */

static CUcontext second;

static bool make_second(void)
{
	return cuCtxCreate_v4(&second, NULL, 0, 0) == CUDA_SUCCESS;
}

static const char *context_that_ends(void)
{
	struct context_end end;
	CUcontext popped;
	bool gone;

	lifecycle_context_seen(&fixture_lc, second, 0);
	alloc(0, 4 * MIB);
	alloc(1, 4 * MIB);
	give(1);
	alloc(2, 6 * MIB);
	lifecycle_context_end_begin(&fixture_lc, second, &end);
	gone = cuCtxDestroy_v2(second) == CUDA_SUCCESS;
	lifecycle_context_end(&fixture_lc, &end, gone);
	if (gone) {
		second = NULL;
		live[0] = live[1] = live[2] = 0;
	} else {
		cuCtxPopCurrent_v2(&popped);
	}
	alloc(3, 4 * MIB);
	give(3);
	return outcome();
}

/* What comes to be known meanwhile is known twice, until the end is refused. */
static const char *context_whose_end_is_refused(void)
{
	struct context_end end;

	lifecycle_context_seen(&fixture_lc, second, 0);
	alloc(0, 4 * MIB);
	lifecycle_context_end_begin(&fixture_lc, second, &end);
	alloc(1, 4 * MIB);
	give(1);
	lifecycle_context_end(&fixture_lc, &end, false);
	give(0);
	give_all();
	return outcome();
}

/* The context ends without our seeing it; what was allocated under the other one can be freed all the same. */
static const char *context_that_ends_unseen(void)
{
	CUcontext popped;

	alloc(0, 4 * MIB); /* notes the second context, which is current */
	give(0);
	cuCtxPopCurrent_v2(&popped);
	alloc(1, 4 * MIB);
	if (second && cuCtxDestroy_v2(second) == CUDA_SUCCESS)
		second = NULL;
	give(1);
	give_all();
	return outcome();
}

static void end_second(void)
{
	give_all();
	if (second)
		cuCtxDestroy_v2(second);
	second = NULL;
}

/* ---- peers ---- */

static const char *access_replayed(void)
{
	CUcontext context = NULL;

	alloc(0, 4 * MIB);
	alloc(1, 6 * MIB);
	cuCtxGetCurrent(&context);
	contexts_peer_enable(&fixture_lc.contexts, context, context, 0, 0);
	memory_replay_access(&fixture_lc, 0, -1);
	contexts_peer_disable(&fixture_lc.contexts, context, context);
	give_all();
	return outcome();
}

/* ---- captures ---- */

static CUstream stream;

static bool make_stream(void)
{
	return cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS;
}

static void end_capture(void)
{
	CUgraph graph = NULL;
	CUresult result = cuStreamEndCapture(stream, &graph);

	if (captures_end(&fixture_lc.captures, captures_moment(&fixture_lc.captures), result, stream, false))
		reclaim_kick(&fixture_lc);
	if (graph)
		cuGraphDestroy(graph);
}

static const char *free_during_capture(void)
{
	CUresult begun;

	alloc(0, 4 * MIB);
	alloc(1, 4 * MIB);
	captures_begin_lock(&fixture_lc.captures, stream, false);
	begun = cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
	captures_begin_unlock(&fixture_lc.captures, begun, stream, false);
	give(0);
	alloc(2, 4 * MIB);
	if (begun == CUDA_SUCCESS)
		end_capture();
	give(1);
	give_all();
	reclaim_wait(&fixture_lc, WAIT_NS);
	return outcome();
}

static void end_stream(void)
{
	give_all();
	if (captures_any(&fixture_lc.captures))
		end_capture();
	cuStreamDestroy_v2(stream);
}

/* Work on a stream, and frees that are pending: whatever fails, the gate is held or open again, and opens. */
static const char *hold_beside_work(void)
{
	static const struct gate_timing timing = {.deadline_ns = 5000000, .timeout_ns = 20000000};
	enum sublet_err err;

	alloc(0, 4 * MIB);
	alloc(1, 4 * MIB);
	if (live[0])
		cuMemsetD8Async(live[0], 1, 4 * MIB, stream);
	give(1);
	err = gate_hold(&fixture_lc, &timing, NULL);
	if (gate_is_shut(&fixture_lc.gate) != (err == SUBLET_OK))
		seen = "a gate that is neither held nor open";
	alloc(1, 4 * MIB);
	give(0);
	gate_open(&fixture_lc);
	if (gate_is_shut(&fixture_lc.gate))
		seen = "a gate that does not open";
	give_all();
	reclaim_wait(&fixture_lc, WAIT_NS);
	return outcome();
}

#define SWEPT(name, prepare, run, finish)                                                                              \
	static const struct sweep_scenario name##_scenario = {#name, prepare, run, finish};                            \
	static void name##_with_each_call_failing(void **state)                                                        \
	{                                                                                                              \
		sweep(&name##_scenario);                                                                               \
	}                                                                                                              \
	static void name##_with_a_fork_at_each_call(void **state)                                                      \
	{                                                                                                              \
		sweep_fork(&name##_scenario);                                                                          \
	}

SWEPT(alloc_and_free, NULL, alloc_and_free, give_all)
SWEPT(alloc_and_free_sync, sync_config, alloc_and_free_sync, give_all)
SWEPT(full_device, NULL, full_device, give_all)
SWEPT(context_that_ends, make_second, context_that_ends, end_second)
SWEPT(context_whose_end_is_refused, make_second, context_whose_end_is_refused, end_second)
SWEPT(context_that_ends_unseen, make_second, context_that_ends_unseen, end_second)
SWEPT(access_replayed, NULL, access_replayed, give_all)
SWEPT(free_during_capture, make_stream, free_during_capture, end_stream)
SWEPT(hold_beside_work, make_stream, hold_beside_work, end_stream)

#define TESTS(name) cmocka_unit_test(name##_with_each_call_failing), cmocka_unit_test(name##_with_a_fork_at_each_call)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TESTS(alloc_and_free),
		TESTS(alloc_and_free_sync),
		TESTS(full_device),
		TESTS(context_that_ends),
		TESTS(context_whose_end_is_refused),
		TESTS(context_that_ends_unseen),
		TESTS(access_replayed),
		TESTS(free_during_capture),
		TESTS(hold_beside_work),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
