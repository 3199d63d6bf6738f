/* tests/unit/test_faults.c
 * What was wrong in lifecycle/ once, one case each, named for it. Where two threads have to meet, the second one's part is
 * done by a hook within the driver call at which it came. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <pthread.h>
#include <cmocka.h>

#include "lifecycle/answers.h"
#include "lifecycle/memory.h"
#include "tests/unit/lifecycle_fixture.h"
#include "tools/sim/sim.h"

#define OK(call) assert_int_equal((call), CUDA_SUCCESS)

static CUcontext primary;

static int setup(void **state)
{
	setenv("SUBLET_SIM_DEVICES", "2", 1);
	return fixture_begin() && cuCtxGetCurrent(&primary) == CUDA_SUCCESS ? 0 : -1;
}

static int teardown(void **state)
{
	const char *left;

	sublet_sim_on_call(NULL);
	left = fixture_end();
	if (left)
		fail_msg("%s", left);
	return 0;
}

static CUdeviceptr managed(uint64_t bytes)
{
	enum stats_native why;
	CUdeviceptr address = 0;
	CUresult result;

	assert_int_equal(memory_alloc(&fixture_lc, bytes, &address, &result, &why, NULL), MEMORY_ANSWERED);
	OK(result);
	return address;
}

static void give(CUdeviceptr address)
{
	CUresult result;

	assert_int_equal(memory_free(&fixture_lc, address, &result), MEMORY_ANSWERED);
	OK(result);
}

/* ---- the second thread: @act at the @at-th call of @symbol ---- */

static struct {
	const char *symbol;
	unsigned at, seen;
	void (*act)(void);
} meeting;

static void meet(const char *symbol)
{
	void (*act)(void) = __atomic_load_n(&meeting.act, __ATOMIC_ACQUIRE);

	if (act && strcmp(symbol, meeting.symbol) == 0 && ++meeting.seen == meeting.at) {
		__atomic_store_n(&meeting.act, NULL, __ATOMIC_RELEASE);
		act();
	}
}

static void given_meeting(const char *symbol, unsigned at, void (*act)(void))
{
	meeting.symbol = symbol;
	meeting.at = at;
	meeting.seen = 0;
	__atomic_store_n(&meeting.act, act, __ATOMIC_RELEASE);
	sublet_sim_on_call(meet);
}

static void assert_met(void)
{
	sublet_sim_on_call(NULL);
	assert_null(meeting.act);
}

/* ---- captures and contexts ---- */

static void begin_capture(CUstream stream)
{
	CUresult result;

	captures_begin_lock(&fixture_lc.captures, stream, false);
	result = cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
	captures_begin_unlock(&fixture_lc.captures, result, stream, false);
	OK(result);
}

static void end_capture(CUstream stream)
{
	uint64_t moment = captures_moment(&fixture_lc.captures);
	CUgraph graph;
	CUresult result = cuStreamEndCapture(stream, &graph);

	captures_end(&fixture_lc.captures, moment, result, stream, false);
	OK(result);
	OK(cuGraphDestroy(graph));
}

static void end_context(CUcontext context)
{
	struct context_end end;

	lifecycle_context_end_begin(&fixture_lc, context, &end);
	OK(cuCtxDestroy_v2(context));
	lifecycle_context_end(&fixture_lc, &end, true);
}

/* It was noted with the context that was current: the other one's end left it there for good, and no free was ever served. */
static void capture_ends_with_the_context_of_its_stream(void **state)
{
	CUcontext second;
	CUstream stream;

	OK(cuCtxCreate_v4(&second, NULL, 0, 0));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuCtxSetCurrent(primary));
	begin_capture(stream);
	assert_true(captures_any(&fixture_lc.captures));
	end_context(second);
	assert_false(captures_any(&fixture_lc.captures));
}

static void capture_outlives_a_context_that_was_only_current(void **state)
{
	CUcontext second;
	CUstream stream;

	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuCtxCreate_v4(&second, NULL, 0, 0));
	begin_capture(stream);
	OK(cuCtxSetCurrent(primary));
	end_context(second);
	assert_true(captures_any(&fixture_lc.captures));
	end_capture(stream);
	OK(cuStreamDestroy_v2(stream));
}

/* The handle of a context that ends is another thread's new context before the destroying call is back. */
static void capture_of_the_next_context_of_a_handle_survives_the_end(void **state)
{
	struct context_end end;
	CUstream stream;

	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	lifecycle_context_end_begin(&fixture_lc, primary, &end);
	begin_capture(stream);
	lifecycle_context_left(&fixture_lc, &end, true);
	assert_true(captures_any(&fixture_lc.captures));
	end_capture(stream);
	OK(cuStreamDestroy_v2(stream));
}

/* Memory of more devices than the page has room for is native; what their contexts do with the memory of others is waited
 * for all the same. */
static void context_of_a_device_beyond_the_page_is_known(void **state)
{
	CUcontext far = (CUcontext)(uintptr_t)0x1000;

	lifecycle_context_seen(&fixture_lc, far, STATS_DEVICES + 1);
	assert_int_equal(contexts_device_of(&fixture_lc.contexts, far), STATS_DEVICES + 1);
}

static size_t rights_of(int device)
{
	CUmemAccessDesc access[ACCESS_MAX];
	uint64_t generation;

	return contexts_access_list(&fixture_lc.contexts, device, access, ACCESS_MAX, &generation);
}

static void peers_of_the_next_context_of_a_handle_survive_the_end(void **state)
{
	CUcontext other = (CUcontext)(uintptr_t)0x1000;
	struct context_end end;

	contexts_note(&fixture_lc.contexts, primary, 0);
	assert_true(contexts_peer_enable(&fixture_lc.contexts, primary, other, 0, 1));
	assert_int_equal(rights_of(1), 2);
	contexts_end_begin(&fixture_lc.contexts, primary, &end);
	contexts_note(&fixture_lc.contexts, primary, 0);
	assert_true(contexts_peer_enable(&fixture_lc.contexts, primary, other, 0, 1));
	contexts_drop(&fixture_lc.contexts, &end);
	assert_int_equal(rights_of(1), 2);
	assert_int_equal(fixture_lc.contexts.peer_count, 1);
}

/* ---- rights of peers ---- */

static unsigned long long right_to(CUdeviceptr address, int device)
{
	CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
	unsigned long long flags = 0;

	OK(cuMemGetAccess(&flags, &location, address));
	return flags;
}

static CUcontext peer_a = (CUcontext)(uintptr_t)0x1000, peer_b = (CUcontext)(uintptr_t)0x2000;

static void enable_b(void)
{
	assert_true(contexts_peer_enable(&fixture_lc.contexts, peer_b, primary, 1, 0));
	memory_replay_access(&fixture_lc, 0, -1);
}

/* Two contexts of device 1; while one gives its right up the other gets one. It had none when the first replay came last. */
static void right_that_is_given_while_another_is_revoked_stays(void **state)
{
	CUdeviceptr address = managed(4 * MIB);

	assert_true(contexts_peer_enable(&fixture_lc.contexts, peer_a, primary, 1, 0));
	memory_replay_access(&fixture_lc, 0, -1);
	assert_int_equal(right_to(address, 1), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	contexts_peer_disable(&fixture_lc.contexts, peer_a, primary);
	given_meeting("cuThreadExchangeStreamCaptureMode", 1, enable_b);
	memory_replay_access(&fixture_lc, 0, 1);
	assert_met();
	assert_int_equal(right_to(address, 1), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	give(address);
}

static void disable_a(void)
{
	contexts_peer_disable(&fixture_lc.contexts, peer_a, primary);
	memory_replay_access(&fixture_lc, 0, 1);
}

/* Mapped while the peer was enabled, found by nobody yet when it no longer was: it kept its right. */
static void right_that_is_revoked_during_an_allocation_is_not_kept(void **state)
{
	CUdeviceptr address;

	assert_true(contexts_peer_enable(&fixture_lc.contexts, peer_a, primary, 1, 0));
	give(managed(4 * MIB)); /* prepares the device, so that the next set-access is the allocation's */
	given_meeting("cuMemSetAccess", 1, disable_a);
	address = managed(6 * MIB);
	assert_met();
	assert_int_equal(right_to(address, 1), 0);
	assert_int_equal(right_to(address, 0), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	give(address);
}

/* ---- frees that are refused ---- */

static void end_primary(void)
{
	struct context_end end;

	sublet_sim_fail(NULL, 0, false, 0);
	lifecycle_context_end_begin(&fixture_lc, primary, &end);
	OK(cuDevicePrimaryCtxReset_v2(0));
	lifecycle_context_end(&fixture_lc, &end, true);
}

/* The free of a lost context's memory puts the record back, behind the end that has collected them: it was there for good. */
static void refused_free_beside_the_end_of_its_context_leaves_nothing(void **state)
{
	CUdeviceptr address = managed(4 * MIB);
	struct sim_counts counts;
	CUresult result;

	fixture_lc.config.free_sync = true;
	sublet_sim_fail("cuCtxSynchronize", 1, true, CUDA_ERROR_ILLEGAL_ADDRESS);
	/* entering the free, then leaving it, when it has its answer */
	given_meeting("cuThreadExchangeStreamCaptureMode", 2, end_primary);
	assert_int_equal(memory_free(&fixture_lc, address, &result), MEMORY_ANSWERED);
	assert_met();
	assert_int_equal(fixture_lc.records.live_count, 0);
	assert_int_equal(fixture_page.device[0].managed.bytes, 0);
	sublet_sim_counts(&counts);
	assert_int_equal(counts.live_mappings, 0);
}

/* ---- frees that the driver never lets through ---- */

/* At the end of the process, or without a helper, the thread that frees does the work itself. It went on for ever where the
 * driver refused to tell, with another error than that of a lost context. */
static void free_without_a_helper_ends_when_the_driver_refuses_to_tell(void **state)
{
	CUdeviceptr first = managed(4 * MIB), second = managed(4 * MIB);
	CUresult result;

	lifecycle_stop(&fixture_lc);
	alarm(20);
	sublet_sim_fail("cuEventQuery", 1, true, CUDA_ERROR_UNKNOWN);
	give(first);
	sublet_sim_fail("cuCtxRecordEvent", 1, true, CUDA_ERROR_UNKNOWN);
	assert_true(sublet_sim_fail_also("cuCtxSynchronize", 1, true, CUDA_ERROR_UNKNOWN));
	assert_int_equal(memory_free_async(&fixture_lc, second, &result), MEMORY_ANSWERED);
	OK(result);
	alarm(0);
	assert_int_equal(fixture_lc.reclaim.pending, 2);
	sublet_sim_fail(NULL, 0, false, 0);
	assert_true(reclaim_wait(&fixture_lc, 5000000000ull));
}

/* ---- a mark that has to wait ---- */

static bool inside, served, served_in_time;

static void wait_until_served(void)
{
	__atomic_store_n(&inside, true, __ATOMIC_RELEASE);
	for (int i = 0; i < 5000 && !__atomic_load_n(&served, __ATOMIC_ACQUIRE); i++)
		usleep(1000);
	served_in_time = __atomic_load_n(&served, __ATOMIC_ACQUIRE);
}

/* The thread that the work in the full queue waits for, in the end. */
static void *alloc_and_free(void *arg)
{
	enum stats_native why;
	CUdeviceptr address = 0;
	CUresult result;

	while (!__atomic_load_n(&inside, __ATOMIC_ACQUIRE))
		usleep(1000);
	if (cuCtxSetCurrent(primary) == CUDA_SUCCESS &&
		memory_alloc(&fixture_lc, 4 * MIB, &address, &result, &why, NULL) == MEMORY_ANSWERED && result == CUDA_SUCCESS &&
		memory_free(&fixture_lc, address, &result) == MEMORY_ANSWERED && result == CUDA_SUCCESS)
		__atomic_store_n(&served, true, __ATOMIC_RELEASE);
	return arg;
}

/* Recording an event waits for room in the queue of a stream. With the locks held meanwhile other threads could neither
 * allocate nor free, and what they were about to launch was perhaps what the queue waited for. */
static void other_threads_are_served_while_a_mark_waits_for_room(void **state)
{
	CUdeviceptr address = managed(4 * MIB);
	pthread_t thread;

	inside = served = served_in_time = false;
	assert_int_equal(pthread_create(&thread, NULL, alloc_and_free, NULL), 0);
	given_meeting("cuCtxRecordEvent", 1, wait_until_served);
	give(address);
	pthread_join(thread, NULL);
	assert_met();
	assert_true(served_in_time);
	assert_true(reclaim_wait(&fixture_lc, 5000000000ull));
}

/* ---- a lost context ---- */

static void lose_context(void)
{
	CUdeviceptr nowhere;
	size_t words = 1;
	uint32_t value = 1;
	void *params[] = {&nowhere, &words, &value};
	CUmodule module;
	CUfunction fill;

	OK(cuMemAddressReserve(&nowhere, 2 * MIB, 0, 0, 0));
	OK(cuModuleLoadData(&module, "sublet-sim:builtin"));
	OK(cuModuleGetFunction(&fill, module, "sim_fill32"));
	OK(cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	assert_int_equal(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
	OK(cuMemAddressFree(nowhere, 2 * MIB));
}

/* It was answered with memory; the program went on until something else told it. */
static void alloc_in_a_lost_context_is_left_to_the_driver(void **state)
{
	CUdeviceptr first = managed(4 * MIB), second = 0;
	enum stats_native why;
	CUresult result;

	lose_context();
	assert_int_equal(memory_alloc(&fixture_lc, 4 * MIB, &second, &result, &why, NULL), MEMORY_PASS);
	assert_int_equal(cuMemAlloc_v2(&second, 4 * MIB), CUDA_ERROR_ILLEGAL_ADDRESS);
	assert_int_equal(memory_free_async(&fixture_lc, first, &result), MEMORY_ANSWERED);
	assert_int_equal(result, CUDA_ERROR_ILLEGAL_ADDRESS);
	assert_true(answer_address_range(&fixture_lc, first, NULL, NULL));
	end_primary();
	OK(cuDevicePrimaryCtxRetain(&primary, 0));
	OK(cuCtxSetCurrent(primary));
	give(managed(4 * MIB));
}

/* ---- fork ---- */

/* A wrapper that a signal handler's fork interrupted goes on in the child. The helper, which was leaving the condition, is not
 * there; a broadcast waited for it. */
static void forked_child_does_not_touch_the_condition(void **state)
{
	int status = -1;
	pid_t pid;

	give(managed(4 * MIB));
	pid = fork();
	if (pid == 0) {
		signal(SIGALRM, SIG_DFL);
		alarm(5);
		ranked_lock_fork_child();
		lifecycle_forget(&fixture_lc);
		/* as a thread leaves it that is in the middle of it: its own lock is held */
		memset(&fixture_lc.reclaim.changed, 0xff, sizeof(fixture_lc.reclaim.changed));
		reclaim_kick(&fixture_lc);
		fixture_lc.reclaim.giving_back = 1;
		reclaim_settle(&fixture_lc, 2000000);
		_exit(0);
	}
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* ---- memory that the application maps itself ---- */

/* An unmap that went past Sublet, and the address taken again: the first mapping held its memory in the count for good. */
static void mapping_over_one_that_ended_unseen_is_counted_once(void **state)
{
	CUmemAllocationProp prop = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
	const struct stats_bytes *vmm = &fixture_page.device[0].native[STATS_NATIVE_VMM];
	struct native *native = &fixture_lc.native;
	uint64_t at = 1ull << 40;

	native_vmm_created(native, 1, 8 * MIB, &prop);
	native_vmm_created(native, 2, 4 * MIB, &prop);
	native_vmm_mapped(native, at, 8 * MIB, 1);
	native_vmm_released(native, 1);
	assert_int_equal(vmm->bytes, 12 * MIB);
	native_vmm_mapped(native, at, 4 * MIB, 2);
	assert_int_equal(vmm->bytes, 4 * MIB);
	assert_null(granules_find(native->granules, at + 4 * MIB, GRANULE_FOREIGN));
	native_vmm_released(native, 2);
	native_vmm_unmapped(native, at, 4 * MIB);
	assert_int_equal(vmm->bytes, 0);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(capture_ends_with_the_context_of_its_stream),
		CASE(capture_outlives_a_context_that_was_only_current),
		CASE(capture_of_the_next_context_of_a_handle_survives_the_end),
		CASE(context_of_a_device_beyond_the_page_is_known),
		CASE(peers_of_the_next_context_of_a_handle_survive_the_end),
		CASE(right_that_is_given_while_another_is_revoked_stays),
		CASE(right_that_is_revoked_during_an_allocation_is_not_kept),
		CASE(refused_free_beside_the_end_of_its_context_leaves_nothing),
		CASE(free_without_a_helper_ends_when_the_driver_refuses_to_tell),
		CASE(other_threads_are_served_while_a_mark_waits_for_room),
		CASE(alloc_in_a_lost_context_is_left_to_the_driver),
		CASE(forked_child_does_not_touch_the_condition),
		CASE(mapping_over_one_that_ended_unseen_is_counted_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
