/* tests/unit/residency_harness.h
 * What the tests of residency share: managed memory with known contents, moves of all or some of it, and what may be true of
 * an allocation in each residency. The gate is shut in the sense that nothing is launched meanwhile. */
#ifndef SUBLET_TESTS_UNIT_RESIDENCY_HARNESS_H
#define SUBLET_TESTS_UNIT_RESIDENCY_HARNESS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "lifecycle/answers.h"
#include "lifecycle/memory.h"
#include "tests/unit/lifecycle_fixture.h"
#include "tools/sim/sim.h"

#define OK(call) assert_int_equal((call), CUDA_SUCCESS)

struct block {
	CUdeviceptr address;
	uint64_t bytes;
	uint32_t seed; /* its contents are words of seed + index */
};

static struct move_report report;
static struct errinfo failure;

/* Small extents, so that one allocation has several. */
static __attribute__((unused)) int setup(void **state)
{
	fixture_config = lifecycle_config_default();
	fixture_config.arena_bytes = 1ull << 40;
	fixture_config.extent_bytes = 2 * MIB;
	fixture_config.cache_bytes = 0; /* what is freed is free at once for who looks at the device */
	setenv("SUBLET_SIM_CAPACITY", "256MiB", 1);
	failure = (struct errinfo){0};
	return fixture_begin() ? 0 : -1;
}

/* As an application that frees all it has, wherever it is. */
static __attribute__((unused)) void free_all(void)
{
	CUresult result;

	while (fixture_lc.records.live) {
		CUdeviceptr address = fixture_lc.records.live->address;

		if (memory_free(&fixture_lc, address, &result) != MEMORY_ANSWERED || result != CUDA_SUCCESS)
			fail_msg("0x%llx cannot be freed", (unsigned long long)address);
	}
}

static __attribute__((unused)) int teardown(void **state)
{
	const char *left;

	sublet_sim_fail(NULL, 0, false, 0);
	free_all();
	left = fixture_end();

	unsetenv("SUBLET_SIM_CAPACITY");
	unsetenv("SUBLET_SIM_WITHOUT");
	unsetenv("SUBLET_SIM_DEVICES");
	unsetenv("SUBLET_SIM_HOST_CAPACITY");
	if (left)
		fail_msg("%s", left);
	return 0;
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

/* ---- contents ---- */

static __attribute__((unused)) bool fill_block(const struct block *block)
{
	uint32_t *words = malloc(block->bytes);
	bool filled;

	for (uint64_t i = 0; i < block->bytes / 4; i++)
		words[i] = block->seed + (uint32_t)i * 2654435761u;
	filled = cuMemcpyHtoD_v2(block->address, words, block->bytes) == CUDA_SUCCESS;
	free(words);
	return filled;
}

/* Read by a copy, as an application would; works on the device and parked. */
static __attribute__((unused)) bool same_bytes(const struct block *block)
{
	uint32_t *words = malloc(block->bytes);
	bool same = cuMemcpyDtoH_v2(words, block->address, block->bytes) == CUDA_SUCCESS;

	for (uint64_t i = 0; same && i < block->bytes / 4; i++)
		same = words[i] == block->seed + (uint32_t)i * 2654435761u;
	free(words);
	return same;
}

static __attribute__((unused)) bool all_bytes_are(CUdeviceptr address, uint64_t bytes, unsigned char value)
{
	unsigned char *got = malloc(bytes);
	bool same = cuMemcpyDtoH_v2(got, address, bytes) == CUDA_SUCCESS;

	for (uint64_t i = 0; same && i < bytes; i++)
		same = got[i] == value;
	free(got);
	return same;
}

/* ---- memory ---- */

static __attribute__((unused)) struct block new_block(uint64_t bytes, uint32_t seed)
{
	struct block block = {.bytes = bytes, .seed = seed};
	enum stats_native why;
	CUresult result;

	assert_int_equal(memory_alloc(&fixture_lc, bytes, &block.address, &result, &why, NULL), MEMORY_ANSWERED);
	assert_int_equal(result, CUDA_SUCCESS);
	assert_true(fill_block(&block));
	return block;
}

static __attribute__((unused)) void free_block(const struct block *block)
{
	CUresult result;

	assert_int_equal(memory_free(&fixture_lc, block->address, &result), MEMORY_ANSWERED);
	assert_int_equal(result, CUDA_SUCCESS);
}

static __attribute__((unused)) struct allocation *record_of(CUdeviceptr address)
{
	return granules_find(&fixture_lc.granules, address, GRANULE_MANAGED);
}

static __attribute__((unused)) enum residency residency_of(const struct block *block)
{
	struct allocation_view view;

	assert_true(records_view(&fixture_lc.records, block->address, &view));
	return view.residency;
}

static __attribute__((unused)) size_t free_bytes(void)
{
	size_t free = 0, total = 0;

	OK(cuMemGetInfo_v2(&free, &total)); /* as another process would see it */
	return free;
}

/* ---- moves ---- */

static bool selects_address(void *arg, const struct allocation *allocation)
{
	return allocation->address == *(const CUdeviceptr *)arg;
}

static __attribute__((unused)) enum sublet_err move_to(enum residency target, const struct block *only)
{
	CUdeviceptr address = only ? only->address : 0;
	struct move_request request = {
		.target = target,
		.discard = target == RESIDENCY_EMPTY,
		.selects = only ? selects_address : NULL,
		.arg = &address,
	};

	return mover_move(&fixture_lc, &request, &report, &failure);
}

#define MOVED(target, only)                                                                                            \
	do {                                                                                                           \
		if (move_to(target, only))                                                                             \
			fail_msg("%s", failure.text);                                                                  \
	} while (0)

/* Bytes by residency add up to what is managed. */
static __attribute__((unused)) bool ledger_adds_up(void)
{
	const struct stats_device *device = &fixture_page.device[0];
	uint64_t sum = 0;

	for (int r = 0; r < STATS_RESIDENCIES; r++)
		sum += device->residency_bytes[r];
	return sum == device->managed.bytes;
}

/* What an observer may find wrong with a live allocation that nobody moves; NULL: nothing. Works while driver calls fail. */
static __attribute__((unused)) const char *illegal_state(CUdeviceptr address)
{
	const struct allocation *a = record_of(address);
	uint64_t mapped = 0, held = 0;

	if (!a)
		return "a live allocation that cannot be found";
	for (uint32_t i = 0; i < a->backing.count; i++) {
		mapped += a->backing.extents[i].mapped ? a->backing.extents[i].bytes : 0;
		held += a->backing.extents[i].held ? a->backing.extents[i].bytes : 0;
	}
	if (a->moving || a->dead)
		return "an allocation that is still being moved";
	switch (a->residency) {
	case RESIDENCY_DEVICE:
		return mapped == a->span_bytes && held == a->span_bytes && !a->host ? NULL : "device, but not all of it or not only";
	case RESIDENCY_PARKED:
		return mapped == a->span_bytes && !held && host_extents_bytes(a->host) == a->span_bytes ? NULL : "parked, but not all of it";
	case RESIDENCY_HOST:
		/* between two memories each extent is in one of them (pieces.h) */
		return mapped == held && mapped + host_extents_bytes(a->host) == a->span_bytes && (mapped || !a->backing.count)
			       ? NULL
			       : "host, but not all of it or twice";
	case RESIDENCY_EMPTY:
		return !mapped && !held && !a->host ? NULL : "empty, but there is something";
	case RESIDENCY_COUNT:
		break;
	}
	return "a residency that is none";
}

#endif
