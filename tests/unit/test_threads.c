/* tests/unit/test_threads.c
 * One lifecycle used by many threads at once: made for the thread sanitizer (tests/sanitize.sh thread), and without it a
 * check that nothing is left and no answer is about another thread's memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <pthread.h>
#include <cmocka.h>

#include "lifecycle/answers.h"
#include "lifecycle/memory.h"
#include "tests/unit/lifecycle_fixture.h"

#define THREADS 8
#define ROUNDS 60
#define HELD 3

struct worker {
	pthread_t thread;
	pthread_barrier_t *start;
	CUcontext context;
	const char *(*work)(const struct worker *worker);
	unsigned number;
	const char *wrong; /* read after the join; cmocka's asserts jump, which only its own thread may */
};

static const char *rounds(const struct worker *worker)
{
	CUdeviceptr held[HELD] = {0}, base;
	size_t size, free_bytes, total;
	CUresult result;
	enum stats_native why;

	if (cuCtxSetCurrent(worker->context) != CUDA_SUCCESS)
		return "the context cannot be made current";
	for (unsigned i = 0; i < ROUNDS; i++) {
		uint64_t bytes = (1 + (worker->number + i) % 5) * MIB;
		CUdeviceptr *slot = &held[i % HELD];

		lifecycle_context_seen(&fixture_lc, worker->context, 0);
		if (*slot && (memory_free(&fixture_lc, *slot, &result) != MEMORY_ANSWERED || result != CUDA_SUCCESS))
			return "a free is not answered with success";
		if (memory_alloc(&fixture_lc, bytes, slot, &result, &why) != MEMORY_ANSWERED || result != CUDA_SUCCESS)
			return "an allocation is not answered with success";
		if (!answer_address_range(&fixture_lc, *slot + bytes - 1, &base, &size) || base != *slot || size != bytes)
			return "the range is not that of this thread's allocation";
		if (i % 8 == 0 && answer_memory_info(&fixture_lc, &free_bytes, &total) != CUDA_SUCCESS)
			return "memory info is not answered";
		native_note(&fixture_lc.native, 0x1000 + worker->number, 4096, 0, STATS_NATIVE_SMALL);
		if (!native_take(&fixture_lc.native, 0x1000 + worker->number).known)
			return "native memory that was noted is unknown";
	}
	for (int i = 0; i < HELD; i++) {
		if (memory_free(&fixture_lc, held[i], &result) != MEMORY_ANSWERED || result != CUDA_SUCCESS)
			return "a last free is not answered with success";
	}
	return NULL;
}

static void *worker_main(void *arg)
{
	struct worker *worker = arg;

	pthread_barrier_wait(worker->start);
	worker->wrong = worker->work(worker);
	return NULL;
}

/* Contexts come and go, with memory of theirs; every other round the end of the primary one is refused. */
static const char *ends(const struct worker *worker)
{
	for (unsigned i = 0; i < ROUNDS; i++) {
		struct context_end end;
		CUdeviceptr address;
		CUcontext own;
		CUresult result;
		enum stats_native why;

		lifecycle_context_end_begin(&fixture_lc, worker->context, &end);
		lifecycle_context_end(&fixture_lc, &end, false);
		if (cuCtxCreate_v4(&own, NULL, 0, 0) != CUDA_SUCCESS)
			return "a context cannot be made";
		lifecycle_context_seen(&fixture_lc, own, 0);
		if (memory_alloc(&fixture_lc, 3 * MIB, &address, &result, &why) != MEMORY_ANSWERED || result != CUDA_SUCCESS)
			return "an allocation in a context of its own is not answered with success";
		lifecycle_context_end_begin(&fixture_lc, own, &end);
		if (cuCtxDestroy_v2(own) != CUDA_SUCCESS)
			return "a context cannot be destroyed";
		lifecycle_context_end(&fixture_lc, &end, true);
	}
	return NULL;
}

/* The device is first used by all threads together, so that its preparation is contended too. */
static void given_threads(unsigned that_end_contexts)
{
	struct worker workers[THREADS] = {0};
	pthread_barrier_t start;
	const char *left;

	assert_true(fixture_begin());
	assert_int_equal(pthread_barrier_init(&start, NULL, THREADS), 0);
	for (unsigned i = 0; i < THREADS; i++) {
		workers[i].start = &start;
		workers[i].number = i;
		workers[i].work = i < that_end_contexts ? ends : rounds;
		assert_int_equal(cuCtxGetCurrent(&workers[i].context), CUDA_SUCCESS);
		assert_int_equal(pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]), 0);
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(workers[i].thread, NULL);
	pthread_barrier_destroy(&start);
	left = fixture_end();
	for (unsigned i = 0; i < THREADS; i++) {
		if (workers[i].wrong)
			fail_msg("thread %u: %s", i, workers[i].wrong);
	}
	if (left)
		fail_msg("%s", left);
}

static void memory_of_eight_threads_stays_apart_and_leaves_nothing(void **state)
{
	given_threads(0);
}

static void contexts_that_end_beside_frees_leave_nothing(void **state)
{
	given_threads(2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(memory_of_eight_threads_stays_apart_and_leaves_nothing),
		cmocka_unit_test(contexts_that_end_beside_frees_leave_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
