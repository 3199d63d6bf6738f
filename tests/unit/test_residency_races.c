/* tests/unit/test_residency_races.c
 * What other threads do while pages are on their way: a free, an export, a change of peers at each driver call that a move makes,
 * and threads that allocate, copy, compare and free while the process is offloaded, parked and restored all the time. Made for
 * the thread sanitizer too (tests/sanitize.sh thread). */
#include "tests/unit/residency_harness.h"

#include <pthread.h>

#include "base/clock.h"

/* ---- one event at each call of a move ---- */

static struct block blocks[2]; /* something happens to the first */
static unsigned calls, at_call;
static pthread_t other;
static bool started;
static pthread_t moving_thread;
static void *(*happens)(void *arg);

/* As long as the other thread may wait for a lock that the mover has in this call, it is not waited for. */
static void on_call(const char *symbol)
{
	/* Only the mover's, and how often it looks whether a copy is over is a matter of time, not of states. */
	if (!pthread_equal(pthread_self(), moving_thread) || started || strcmp(symbol, "cuEventQuery") == 0 || ++calls != at_call)
		return;
	started = pthread_create(&other, NULL, happens, NULL) == 0;
	for (int i = 0; i < 20 && !__atomic_load_n(&blocks[1].seed, __ATOMIC_ACQUIRE); i++)
		clock_sleep_ns(100000);
}

static void *free_first(void *arg)
{
	CUresult result = CUDA_ERROR_UNKNOWN;

	if (memory_free(&fixture_lc, blocks[0].address, &result) != MEMORY_ANSWERED)
		result = CUDA_ERROR_UNKNOWN;
	/* Once: the second one is no managed address any more. */
	if (memory_free(&fixture_lc, blocks[0].address, &result) == MEMORY_ANSWERED)
		result = CUDA_ERROR_UNKNOWN;
	__atomic_store_n(&blocks[1].seed, 1, __ATOMIC_RELEASE);
	return (void *)(uintptr_t)result;
}

static void *expose_first(void *arg)
{
	records_expose(&fixture_lc.records, blocks[0].address, blocks[0].bytes);
	__atomic_store_n(&blocks[1].seed, 1, __ATOMIC_RELEASE);
	return NULL;
}

static CUcontext mine, second;

static void *enable_peer(void *arg)
{
	bool enabled = contexts_peer_enable(&fixture_lc.contexts, second, mine, 1, 0);

	memory_replay_access(&fixture_lc, 0, -1);
	__atomic_store_n(&blocks[1].seed, 1, __ATOMIC_RELEASE);
	return (void *)(uintptr_t)!enabled;
}

static void *end_context(void *arg)
{
	struct context_end end;
	bool gone;

	lifecycle_context_end_begin(&fixture_lc, second, &end);
	gone = cuCtxDestroy_v2(second) == CUDA_SUCCESS;
	lifecycle_context_end(&fixture_lc, &end, gone);
	__atomic_store_n(&blocks[1].seed, 1, __ATOMIC_RELEASE);
	return (void *)(uintptr_t)!gone;
}

/* Move from @from to @to with the event at call number at_call. False: there is no such call. */
static bool move_with_event(enum residency from, enum residency to)
{
	enum sublet_err err;
	void *result;

	if (from != RESIDENCY_DEVICE)
		MOVED(from, NULL);
	calls = 0;
	started = false;
	moving_thread = pthread_self();
	sublet_sim_on_call(on_call);
	err = move_to(to, NULL);
	sublet_sim_on_call(NULL);
	if (started) {
		pthread_join(other, &result);
		assert_null(result);
	}
	/* With the only context on its way out there is nowhere to copy in; its allocations go with it. */
	if (err && !(happens == end_context && started))
		fail_msg("%s", failure.text);
	if (!started)
		return false;
	return true;
}

static const enum residency ways[][2] = {
	{RESIDENCY_DEVICE, RESIDENCY_HOST},
	{RESIDENCY_DEVICE, RESIDENCY_PARKED},
	{RESIDENCY_DEVICE, RESIDENCY_EMPTY},
	{RESIDENCY_HOST, RESIDENCY_DEVICE},
	{RESIDENCY_HOST, RESIDENCY_PARKED},
	{RESIDENCY_PARKED, RESIDENCY_DEVICE},
	{RESIDENCY_PARKED, RESIDENCY_HOST},
	{RESIDENCY_EMPTY, RESIDENCY_DEVICE},
};

#define WAYS (sizeof(ways) / sizeof(ways[0]))

/* @begin makes the blocks. @check looks at what is left, with the event done. */
static void at_each_call(void *(*event)(void *), void (*begin)(void), void (*check)(enum residency from, enum residency to))
{
	unsigned runs = 0;

	happens = event;
	for (unsigned w = 0; w < WAYS; w++) {
		bool happened = true;

		for (at_call = 1; happened; at_call++) {
			setenv("SUBLET_SIM_DEVICES", "2", 1); /* for the peer */
			assert_int_equal(setup(NULL), 0);
			begin();
			blocks[0] = new_block(3 * MIB, 5);
			blocks[1] = new_block(2 * MIB, 0);
			happened = move_with_event(ways[w][0], ways[w][1]);
			if (happened)
				check(ways[w][0], ways[w][1]);
			assert_true(ledger_adds_up());
			assert_int_equal(teardown(NULL), 0);
			runs++;
		}
	}
	print_message("%u runs\n", runs);
}

static void nothing(void)
{
}

static void check_freed(enum residency from, enum residency to)
{
	struct allocation_view view;

	assert_false(records_view(&fixture_lc.records, blocks[0].address, &view));
	assert_int_equal(residency_of(&blocks[1]), to);
	assert_null(illegal_state(blocks[1].address));
	assert_int_equal(fixture_page.device[0].managed.bytes, 2 * MIB);
	assert_true(reclaim_wait(&fixture_lc, 10000000000ull));
}

static void a_free_at_each_call_of_a_move_works_once_and_leaves_nothing(void **state)
{
	at_each_call(free_first, nothing, check_freed);
}

/* Either it came too late for this move, or the move was undone: never in between, and no byte is lost. */
static void check_exposed(enum residency from, enum residency to)
{
	enum residency is = residency_of(&blocks[0]);

	assert_true(is == from || is == to);
	assert_null(illegal_state(blocks[0].address));
	assert_int_equal(residency_of(&blocks[1]), to);
	if ((is == RESIDENCY_DEVICE || is == RESIDENCY_PARKED) && from != RESIDENCY_EMPTY)
		assert_true(same_bytes(&blocks[0]));
	assert_int_equal(report.failed, 0);
}

static void an_export_at_each_call_of_a_move_leaves_one_or_the_other(void **state)
{
	at_each_call(expose_first, nothing, check_exposed);
}

static void begin_with_peer(void)
{
	OK(cuCtxGetCurrent(&mine));
	OK(cuDevicePrimaryCtxRetain(&second, 1));
	lifecycle_context_seen(&fixture_lc, second, 1);
}

static void check_peer(enum residency from, enum residency to)
{
	CUmemLocation peer = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1};
	unsigned long long flags;

	for (int i = 0; i < 2; i++) {
		if (to != RESIDENCY_DEVICE && to != RESIDENCY_PARKED)
			continue;
		OK(cuMemGetAccess(&flags, &peer, blocks[i].address));
		assert_int_equal(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	}
}

static void a_peer_that_comes_at_each_call_of_a_move_gets_its_rights(void **state)
{
	at_each_call(enable_peer, begin_with_peer, check_peer);
}

/* The allocations are of `second`; the copies may be made in it, and its end waits for them. */
static void begin_in_second(void)
{
	OK(cuCtxCreate_v4(&second, NULL, 0, 0));
}

static void check_ended(enum residency from, enum residency to)
{
	assert_int_equal(fixture_page.device[0].managed.bytes, 0);
	assert_true(reclaim_wait(&fixture_lc, 10000000000ull));
	assert_int_equal(fixture_page.host_pool_free_bytes, fixture_page.host_pool_bytes);
}

static void an_end_of_their_context_at_each_call_of_a_move_takes_all(void **state)
{
	at_each_call(end_context, begin_in_second, check_ended);
}

/* ---- threads that work while all is moved about ---- */

#define THREADS 4
#define ROUNDS 25

struct worker {
	pthread_t thread;
	CUcontext context;
	unsigned number;
	const char *wrong;
};

static unsigned working;

static bool gated_same(const struct block *block, bool fill)
{
	struct gate_slot *slot = gate_enter(&fixture_lc.gate, "copy", NULL);
	bool good = fill ? fill_block(block) : same_bytes(block);

	gate_leave(slot);
	return good;
}

static const char *rounds(const struct worker *worker)
{
	struct block held[3] = {{0}};
	CUdeviceptr base;
	CUresult result;
	size_t size, free_now, total;
	enum stats_native why;
	unsigned long long id;

	if (cuCtxSetCurrent(worker->context) != CUDA_SUCCESS)
		return "the context cannot be made current";
	for (unsigned i = 0; i < ROUNDS + 3; i++) {
		struct block *block = &held[i % 3];

		if (block->address && !gated_same(block, false))
			return "bytes have changed";
		if (block->address && (memory_free(&fixture_lc, block->address, &result) != MEMORY_ANSWERED || result != CUDA_SUCCESS))
			return "a free is not answered with success";
		*block = (struct block){.bytes = (1 + (worker->number + i) % 4) * MIB, .seed = worker->number * 100 + i};
		if (i >= ROUNDS)
			continue;
		if (memory_alloc(&fixture_lc, block->bytes, &block->address, &result, &why, NULL) != MEMORY_ANSWERED || result != CUDA_SUCCESS)
			return "an allocation is not answered with success";
		if (!gated_same(block, true))
			return "memory cannot be filled";
		if (!answer_address_range(&fixture_lc, block->address + block->bytes - 1, &base, &size) || base != block->address)
			return "the range is not that of this thread's allocation";
		if (!answer_pointer_attribute(&fixture_lc, &id, CU_POINTER_ATTRIBUTE_BUFFER_ID, block->address, &result) ||
			result != CUDA_SUCCESS || !id)
			return "no buffer id";
		if (answer_memory_info(&fixture_lc, &free_now, &total) != CUDA_SUCCESS || free_now > total)
			return "memory info is not answered";
		/* Freed wherever it is, perhaps on its way: nothing waits for that. */
		if (i % 5 == 4) {
			if (memory_free(&fixture_lc, block->address, &result) != MEMORY_ANSWERED || result != CUDA_SUCCESS)
				return "a free of what may be moving is not answered with success";
			block->address = 0;
		}
	}
	return NULL;
}

static void *worker_main(void *arg)
{
	struct worker *worker = arg;

	worker->wrong = rounds(worker);
	__atomic_sub_fetch(&working, 1, __ATOMIC_RELEASE);
	return NULL;
}

static void threads_go_on_while_their_memory_is_moved_about(void **state)
{
	static const enum service_verb verbs[] = {SERVICE_OFFLOAD, SERVICE_RESTORE, SERVICE_OFFLOAD, SERVICE_PARK, SERVICE_PARK,
		SERVICE_RESTORE};
	struct worker workers[THREADS] = {0};

	working = THREADS;
	for (unsigned i = 0; i < THREADS; i++) {
		workers[i].number = i;
		OK(cuCtxGetCurrent(&workers[i].context));
		assert_int_equal(pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]), 0);
	}
	for (unsigned i = 0; __atomic_load_n(&working, __ATOMIC_ACQUIRE); i++) {
		const struct service_request request = {.verb = verbs[i % 6], .object = SERVICE_ALL};

		if (service_do(&fixture_lc, &request, &report, &failure))
			fail_msg("%s", failure.text);
		clock_sleep_ns(2000000);
	}
	for (unsigned i = 0; i < THREADS; i++) {
		pthread_join(workers[i].thread, NULL);
		if (workers[i].wrong)
			fail_msg("thread %u: %s", i, workers[i].wrong);
	}
	assert_false(service_held(&fixture_lc) && mover_holes(&fixture_lc) == 0 && fixture_lc.records.live);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_free_at_each_call_of_a_move_works_once_and_leaves_nothing),
		cmocka_unit_test(an_export_at_each_call_of_a_move_leaves_one_or_the_other),
		cmocka_unit_test(a_peer_that_comes_at_each_call_of_a_move_gets_its_rights),
		cmocka_unit_test(an_end_of_their_context_at_each_call_of_a_move_takes_all),
		CASE(threads_go_on_while_their_memory_is_moved_about),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
