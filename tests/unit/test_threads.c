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
	unsigned number;
	const char *(*work)(const struct worker *worker);
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
		if (memory_alloc(&fixture_lc, bytes, slot, &result, &why, NULL) != MEMORY_ANSWERED || result != CUDA_SUCCESS)
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

/* ---- beside captures, rights and ends of contexts ---- */

#define LIVES 12

/* One allocation, which stays native while any thread captures. */
static const char *take_and_give(unsigned number)
{
	CUdeviceptr address = 0, base;
	CUresult result;
	enum stats_native why;
	size_t size;

	if (memory_alloc(&fixture_lc, (1 + number % 5) * MIB, &address, &result, &why, NULL) == MEMORY_PASS)
		return why == STATS_NATIVE_CAPTURE ? NULL : "an allocation is passed on without a capture";
	if (result != CUDA_SUCCESS || !answer_address_range(&fixture_lc, address, &base, &size) || base != address)
		return "an allocation is not answered with success";
	memory_replay_access(&fixture_lc, 0, -1);
	records_expose(&fixture_lc.records, address, MIB);
	if (memory_free(&fixture_lc, address, &result) != MEMORY_ANSWERED || result != CUDA_SUCCESS)
		return "a free is not answered with success";
	return NULL;
}

static const char *capture(const struct worker *worker)
{
	CUgraph graph = NULL;
	CUstream stream;
	CUresult begun, ended;
	uint64_t moment;
	const char *wrong;

	if (cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
		return "no stream";
	captures_begin_lock(&fixture_lc.captures, stream, false);
	begun = cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
	captures_begin_unlock(&fixture_lc.captures, begun, stream, false);
	wrong = take_and_give(worker->number);
	moment = captures_moment(&fixture_lc.captures);
	ended = cuStreamEndCapture(stream, &graph);
	if (captures_end(&fixture_lc.captures, moment, ended, stream, false))
		reclaim_kick(&fixture_lc);
	if (begun != CUDA_SUCCESS || ended != CUDA_SUCCESS || cuGraphDestroy(graph) != CUDA_SUCCESS ||
		cuStreamDestroy_v2(stream) != CUDA_SUCCESS)
		wrong = "a capture is refused";
	return wrong;
}

/* A context of its own, a peer of itself, that takes an allocation along. */
static const char *live_and_end(const struct worker *worker)
{
	struct context_end end;
	CUdeviceptr left = 0;
	CUcontext context;
	CUresult result;
	enum stats_native why;
	const char *wrong;

	if (cuCtxCreate_v4(&context, NULL, 0, 0) != CUDA_SUCCESS)
		return "no context";
	lifecycle_context_seen(&fixture_lc, context, 0);
	if (!contexts_peer_enable(&fixture_lc.contexts, context, context, 0, 0))
		return "a peer is not noted";
	wrong = take_and_give(worker->number);
	(void)memory_alloc(&fixture_lc, 2 * MIB, &left, &result, &why, NULL);
	lifecycle_context_end_begin(&fixture_lc, context, &end);
	result = cuCtxDestroy_v2(context);
	lifecycle_context_end(&fixture_lc, &end, result == CUDA_SUCCESS);
	if (!wrong && result != CUDA_SUCCESS)
		wrong = "a context cannot be destroyed";
	return cuCtxSetCurrent(worker->context) == CUDA_SUCCESS ? wrong : "the context cannot be made current";
}

static const char *lives(const struct worker *worker)
{
	const char *wrong = cuCtxSetCurrent(worker->context) == CUDA_SUCCESS ? NULL : "the context cannot be made current";

	for (unsigned i = 0; i < LIVES && !wrong; i++) {
		switch (worker->number % 3) {
		case 0: wrong = live_and_end(worker); break;
		case 1: wrong = capture(worker); break;
		default: wrong = take_and_give(worker->number + i); break;
		}
	}
	return wrong;
}

static void *worker_main(void *arg)
{
	struct worker *worker = arg;

	pthread_barrier_wait(worker->start);
	worker->wrong = worker->work(worker);
	return NULL;
}

/* The device is first used by all threads together, so that its preparation is contended too. */
static void run_together(const char *(*work)(const struct worker *worker))
{
	struct worker workers[THREADS] = {0};
	pthread_barrier_t start;
	const char *left;

	assert_true(fixture_begin());
	assert_int_equal(pthread_barrier_init(&start, NULL, THREADS), 0);
	for (unsigned i = 0; i < THREADS; i++) {
		workers[i].start = &start;
		workers[i].number = i;
		workers[i].work = work;
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
	run_together(rounds);
}

static void memory_beside_captures_rights_and_ends_of_contexts_leaves_nothing(void **state)
{
	run_together(lives);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(memory_of_eight_threads_stays_apart_and_leaves_nothing),
		cmocka_unit_test(memory_beside_captures_rights_and_ends_of_contexts_leaves_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
