/* tests/unit/gate_harness.h
 * What the tests of the gate share: a lifecycle whose driver is the simulated one, gated calls as the entry points make
 * them, threads that report, and a clock. Each case runs with membarrier and with fences (GATE_CASE). */
#ifndef SUBLET_TESTS_UNIT_GATE_HARNESS_H
#define SUBLET_TESTS_UNIT_GATE_HARNESS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <pthread.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "lifecycle/callbacks.h"
#include "lifecycle/lifecycle.h"
#include "tests/unit/lifecycle_fixture.h"
#include "tools/sim/sim.h"

#define OK(call) assert_int_equal((call), CUDA_SUCCESS)
#define MS 1000000ull

/* A gated call: what a row of kind GATED expands to. */
static __attribute__((unused)) __thread struct gate_slot *gated_slot;
static __attribute__((unused)) __thread CUresult gated_result;
#define GATED(call)                                                                                                    \
	(gated_slot = gate_enter(&fixture_lc.gate, #call, NULL), gated_result = (call), gate_leave(gated_slot), gated_result)

static CUcontext context;
static CUfunction add, spin, noop;
static uint32_t *flag; /* pinned: a spin kernel waits until it is not 0 */
static struct errinfo error;

/* Long enough for a loaded machine, where the hold is to come about; short where it is not. */
static const struct gate_timing patient = {.deadline_ns = 20 * MS, .timeout_ns = 60000 * MS};
static const struct gate_timing brief = {.deadline_ns = 10 * MS, .timeout_ns = 100 * MS};

static void gate_begin(bool fences)
{
	CUmodule module;

	fixture_config = lifecycle_config_default();
	fixture_config.arena_bytes = 1ull << 40;
	fixture_config.gate_fences = fences;
	assert_true(fixture_begin());
	OK(cuCtxGetCurrent(&context));
	lifecycle_context_seen(&fixture_lc, context, 0);
	OK(cuModuleLoadData(&module, "sublet-sim:builtin"));
	OK(cuModuleGetFunction(&add, module, "sim_add32"));
	OK(cuModuleGetFunction(&spin, module, "sim_spin"));
	OK(cuModuleGetFunction(&noop, module, "sim_noop"));
	OK(cuMemHostAlloc((void **)&flag, 4096, 0));
	memset(flag, 0, 4096);
}

static int setup(void **state)
{
	gate_begin(false);
	return 0;
}

static int setup_fences(void **state)
{
	gate_begin(true);
	return 0;
}

static int teardown(void **state)
{
	const char *left;

	__atomic_store_n(flag, 1, __ATOMIC_RELEASE);
	gate_open(&fixture_lc);
	OK(cuCtxSynchronize());
	OK(cuMemFreeHost(flag));
	left = fixture_end();
	if (left)
		print_error("%s\n", left);
	return left != NULL;
}

#define GATE_CASE(name)                                                                                                \
	{#name, name, setup, teardown, NULL}, {#name " (fences)", name, setup_fences, teardown, NULL}

static __attribute__((unused)) CUresult launch(CUfunction function, CUstream stream, void **params)
{
	struct gate_slot *slot = gate_enter(&fixture_lc.gate, "cuLaunchKernel", function);
	CUresult result = cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);

	gate_leave(slot);
	return result;
}

/* Keep @stream busy until the flag is set. */
static __attribute__((unused)) void occupy(CUstream stream)
{
	void *params[] = {&flag};

	__atomic_store_n(flag, 0, __ATOMIC_RELEASE);
	OK(launch(spin, stream, params));
}

static __attribute__((unused)) void hold(const struct gate_timing *timing)
{
	enum sublet_err err = gate_hold(&fixture_lc, timing, &error);

	if (err)
		fail_msg("no hold: %s", error.text);
	assert_true(gate_is_shut(&fixture_lc.gate));
}

/* Wait until @condition holds: something another thread is about to do. A case that hangs is ended by its runner. */
#define UNTIL(condition)                                                                                               \
	do {                                                                                                           \
		while (!(condition))                                                                                   \
			clock_sleep_ns(200000);                                                                        \
	} while (0)

struct runner {
	pthread_t thread;
	CUresult (*body)(void *arg);
	void *arg;
	CUresult result;
	int over; /* atomic */
};

static __attribute__((unused)) void *runner_main(void *arg)
{
	struct runner *runner = arg;

	if (cuCtxSetCurrent(context) == CUDA_SUCCESS)
		runner->result = runner->body(runner->arg);
	__atomic_store_n(&runner->over, 1, __ATOMIC_RELEASE);
	return NULL;
}

static __attribute__((unused)) void run(struct runner *runner, CUresult (*body)(void *arg), void *arg)
{
	*runner = (struct runner){.body = body, .arg = arg, .result = CUDA_ERROR_UNKNOWN};
	assert_int_equal(pthread_create(&runner->thread, NULL, runner_main, runner), 0);
}

static __attribute__((unused)) bool is_over(const struct runner *runner)
{
	return __atomic_load_n(&runner->over, __ATOMIC_ACQUIRE) != 0;
}

static __attribute__((unused)) CUresult join(struct runner *runner)
{
	pthread_join(runner->thread, NULL);
	return runner->result;
}

#endif
