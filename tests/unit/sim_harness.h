/* tests/unit/sim_harness.h
 * What the tests of the simulated driver share: a fresh driver with one context, kernels of the test program itself, and a
 * gate that keeps a stream busy until the test opens it. */
#ifndef SUBLET_TESTS_UNIT_SIM_HARNESS_H
#define SUBLET_TESTS_UNIT_SIM_HARNESS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include <cuda.h>

#include "tools/sim/sim.h"

#define OK(call) assert_int_equal((call), CUDA_SUCCESS)
#define FAILS(call, code) assert_int_equal((call), (code))

static CUcontext context;
static CUmodule builtin;
static CUfunction fill, add, spin, busy;
static uint32_t *gate; /* pinned: a spin kernel waits until it is not 0 */

static int setup(void **state)
{
	sublet_sim_reset();
	OK(cuInit(0));
	OK(cuDevicePrimaryCtxRetain(&context, 0));
	OK(cuCtxSetCurrent(context));
	OK(cuModuleLoadData(&builtin, "sublet-sim:builtin"));
	OK(cuModuleGetFunction(&fill, builtin, "sim_fill32"));
	OK(cuModuleGetFunction(&add, builtin, "sim_add32"));
	OK(cuModuleGetFunction(&spin, builtin, "sim_spin"));
	OK(cuModuleGetFunction(&busy, builtin, "sim_busy"));
	OK(cuMemHostAlloc((void **)&gate, 4096, 0));
	*gate = 0;
	return 0;
}

static int teardown(void **state)
{
	__atomic_store_n(gate, 1, __ATOMIC_RELEASE);
	sublet_sim_reset();
	return 0;
}

static __attribute__((unused)) void close_gate(CUstream stream)
{
	void *params[] = {&gate};

	__atomic_store_n(gate, 0, __ATOMIC_RELEASE);
	OK(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
}

static __attribute__((unused)) void open_gate(void)
{
	__atomic_store_n(gate, 1, __ATOMIC_RELEASE);
}

static __attribute__((unused)) CUresult launch_fill(CUdeviceptr p, size_t words, uint32_t value, CUstream stream)
{
	void *params[] = {&p, &words, &value};

	return cuLaunchKernel(fill, 1, 1, 1, 32, 1, 1, 0, stream, params, NULL);
}

static __attribute__((unused)) CUresult launch_add(CUdeviceptr p, size_t words, uint32_t value, CUstream stream)
{
	void *params[] = {&p, &words, &value};

	return cuLaunchKernel(add, 1, 1, 1, 32, 1, 1, 0, stream, params, NULL);
}

static __attribute__((unused)) uint32_t word_at(CUdeviceptr p)
{
	uint32_t value = 0;

	OK(cuMemcpyDtoH(&value, p, sizeof(value)));
	return value;
}

/* A word that can be read while a stream is busy or a capture is going on: pinned memory. */
static __attribute__((unused)) volatile uint32_t *pinned_word(CUdeviceptr *ret_device)
{
	void *p;

	OK(cuMemHostAlloc(&p, 4096, 0));
	memset(p, 0, 4096);
	OK(cuMemHostGetDevicePointer(ret_device, p, 0));
	return p;
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

#endif
