/* tests/unit/test_gate.c
 * The gate by itself: who waits, who does not, what a hold guarantees and what it says when it does not come about. */
#include "tests/unit/gate_harness.h"

#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "lifecycle/memory.h"

/* ---- waiting ---- */

static CUresult launch_noop(void *stream)
{
	return launch(noop, stream, NULL);
}

static void hold_of_an_idle_process_comes_at_once_and_ends(void **state)
{
	uint64_t before = clock_now_ns();

	hold(&patient);
	assert_true(clock_now_ns() - before < 5000 * MS);
	hold(&patient); /* held already */
	gate_open(&fixture_lc);
	assert_false(gate_is_shut(&fixture_lc.gate));
	gate_open(&fixture_lc);
	OK(launch_noop(NULL));
}

static void call_waits_while_held_and_goes_on_when_open(void **state)
{
	uint64_t calls;
	struct runner runner;

	hold(&patient);
	calls = sublet_sim_calls("cuLaunchKernel");
	run(&runner, launch_noop, NULL);
	UNTIL(gate_busy_slot(true));
	clock_sleep_ns(20 * MS);
	assert_false(is_over(&runner));
	assert_int_equal(sublet_sim_calls("cuLaunchKernel"), calls);
	gate_open(&fixture_lc);
	OK(join(&runner));
	assert_int_equal(sublet_sim_calls("cuLaunchKernel"), calls + 1);
	assert_null(gate_busy_slot(true));
}

static void hold_waits_for_work_of_every_stream(void **state)
{
	CUstream stream;
	struct runner runner;

	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	occupy(stream);
	assert_int_equal(gate_hold(&fixture_lc, &brief, &error), SUBLET_ERR_TIMEOUT);
	assert_false(gate_is_shut(&fixture_lc.gate));
	assert_non_null(strstr(error.text, "work of device 0, context 0x"));
	assert_non_null(strstr(error.text, "last kernel 'sim_spin'"));
	__atomic_store_n(flag, 1, __ATOMIC_RELEASE);
	hold(&patient);
	OK(cuStreamQuery(stream));
	gate_open(&fixture_lc);
	run(&runner, launch_noop, stream);
	OK(join(&runner));
	OK(cuStreamDestroy(stream));
}

static void name_of_an_unloaded_kernel_is_not_asked_for(void **state)
{
	CUstream stream;

	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	occupy(stream);
	gate_kernels_gone(&fixture_lc.gate);
	assert_int_equal(gate_hold(&fixture_lc, &brief, &error), SUBLET_ERR_TIMEOUT);
	assert_null(strstr(error.text, "kernel"));
	__atomic_store_n(flag, 1, __ATOMIC_RELEASE);
	OK(cuStreamDestroy(stream));
}

static CUresult hold_twice(void *arg)
{
	struct errinfo other;

	*(enum sublet_err *)arg = gate_hold(&fixture_lc, &patient, &other);
	return CUDA_SUCCESS;
}

static void second_hold_meanwhile_is_refused(void **state)
{
	enum sublet_err first = SUBLET_ERR_COUNT;
	struct runner runner;

	occupy(NULL);
	run(&runner, hold_twice, &first);
	UNTIL(gate_is_shut(&fixture_lc.gate));
	assert_int_equal(gate_hold(&fixture_lc, &brief, &error), SUBLET_ERR_INVALID);
	gate_open(&fixture_lc); /* not held yet: nothing to end */
	__atomic_store_n(flag, 1, __ATOMIC_RELEASE);
	OK(join(&runner));
	assert_int_equal(first, SUBLET_OK);
	assert_true(gate_is_shut(&fixture_lc.gate));
}

static void hold_in_the_middle_of_a_call_names_thread_and_call(void **state)
{
	struct gate_slot *slot = gate_enter(&fixture_lc.gate, "cuMemcpyDtoH_v2", NULL);
	char thread[32];

	snprintf(thread, sizeof(thread), "(%d)", (int)syscall(SYS_gettid));
	assert_int_equal(gate_hold(&fixture_lc, &brief, &error), SUBLET_ERR_TIMEOUT);
	assert_non_null(strstr(error.text, thread));
	assert_non_null(strstr(error.text, "'test_gate'"));
	assert_non_null(strstr(error.text, "stays in cuMemcpyDtoH_v2"));
	gate_leave(slot);
	hold(&patient);
}

/* ---- the soft hold ---- */

static unsigned wishes;

static void wish(void *arg)
{
	__atomic_fetch_add((unsigned *)arg, 1, __ATOMIC_ACQ_REL);
}

static void soft_hold_is_asked_for_once_per_hold(void **state)
{
	struct runner runners[3];

	wishes = 0;
	gate_on_wait(&fixture_lc.gate, 40 * MS, wish, &wishes);
	for (unsigned round = 1; round <= 2; round++) {
		uint64_t begun;

		hold(&patient);
		begun = clock_now_ns();
		for (int i = 0; i < 3; i++)
			run(&runners[i], launch_noop, NULL);
		UNTIL(__atomic_load_n(&wishes, __ATOMIC_ACQUIRE) == round);
		assert_true(clock_now_ns() - begun >= 40 * MS);
		clock_sleep_ns(60 * MS);
		assert_int_equal(__atomic_load_n(&wishes, __ATOMIC_ACQUIRE), round);
		gate_open(&fixture_lc);
		for (int i = 0; i < 3; i++)
			OK(join(&runners[i]));
	}
}

static void soft_hold_is_not_asked_for_by_a_call_that_waits_briefly(void **state)
{
	struct runner runner;

	wishes = 0;
	gate_on_wait(&fixture_lc.gate, 60000 * MS, wish, &wishes);
	hold(&patient);
	run(&runner, launch_noop, NULL);
	UNTIL(gate_busy_slot(true));
	clock_sleep_ns(20 * MS);
	gate_open(&fixture_lc);
	OK(join(&runner));
	assert_int_equal(wishes, 0);
}

/* ---- allocation is never gated ---- */

static CUresult allocate_and_free(void *arg)
{
	enum stats_native why;
	CUdeviceptr address;
	CUresult result = CUDA_ERROR_UNKNOWN;

	if (memory_alloc(&fixture_lc, 4 * MIB, &address, &result, &why, NULL) != MEMORY_ANSWERED || result != CUDA_SUCCESS)
		return result ? result : CUDA_ERROR_UNKNOWN;
	return memory_free(&fixture_lc, address, &result) == MEMORY_ANSWERED ? result : CUDA_ERROR_UNKNOWN;
}

static void allocation_while_everything_is_shut_is_served(void **state)
{
	struct runner runner;

	hold(&patient);
	run(&runner, allocate_and_free, NULL);
	OK(join(&runner));
	assert_true(gate_is_shut(&fixture_lc.gate));
}

/* ---- depth above zero ---- */

static void on_signal(int number)
{
	struct gate_slot *slot = gate_enter(&fixture_lc.gate, "in a handler", NULL);

	gate_leave(slot);
}

static CUresult signal_inside_a_call(void *arg)
{
	struct gate_slot *slot = gate_enter(&fixture_lc.gate, "outer", NULL);

	__atomic_store_n((int *)arg, 1, __ATOMIC_RELEASE);
	UNTIL(gate_is_shut(&fixture_lc.gate));
	raise(SIGUSR1); /* waits for ever if the handler's call does */
	gate_leave(slot);
	return CUDA_SUCCESS;
}

static void handler_that_interrupts_a_gated_call_does_not_wait(void **state)
{
	struct sigaction action = {.sa_handler = on_signal}, before;
	struct runner runner;
	int inside = 0;

	sigaction(SIGUSR1, &action, &before);
	run(&runner, signal_inside_a_call, &inside);
	UNTIL(__atomic_load_n(&inside, __ATOMIC_ACQUIRE));
	hold(&patient);
	OK(join(&runner));
	sigaction(SIGUSR1, &before, NULL);
}

struct reentry {
	CUstream stream;
	CUdeviceptr words;
	int begun; /* atomic */
	CUresult result;
};

/* What a host function is not allowed to do, and some do: launch. */
static void CUDA_CB launch_inside(void *arg)
{
	struct reentry *reentry = arg;
	size_t count = 1;
	uint32_t addend = 5;
	void *params[] = {&reentry->words, &count, &addend};

	__atomic_store_n(&reentry->begun, 1, __ATOMIC_RELEASE);
	UNTIL(gate_is_shut(&fixture_lc.gate));
	clock_sleep_ns(2 * MS); /* the closer has its marks by now */
	cuCtxSetCurrent(context);
	reentry->result = launch(add, reentry->stream, params);
}

static void CUDA_CB launch_inside_stream(CUstream stream, CUresult status, void *arg)
{
	launch_inside(arg);
}

/* What was launched inside is over once it is held, although it came after the closer's marks. */
static void held_after_reentry(struct reentry *reentry)
{
	/* one try that lasts: it must not be the opening between tries that lets the call through */
	static const struct gate_timing one_try = {.deadline_ns = 60000 * MS, .timeout_ns = 60000 * MS};
	uint32_t *word = (uint32_t *)(uintptr_t)reentry->words;

	UNTIL(__atomic_load_n(&reentry->begun, __ATOMIC_ACQUIRE));
	hold(&one_try);
	OK(reentry->result);
	assert_int_equal(*word, 5);
	OK(cuStreamQuery(reentry->stream));
	gate_open(&fixture_lc);
	*word = 0;
	reentry->begun = 0;
	reentry->result = CUDA_ERROR_UNKNOWN;
}

static void given_reentry(struct reentry *reentry, CUstream *ret_stream)
{
	*reentry = (struct reentry){.words = (CUdeviceptr)(uintptr_t)(flag + 16), .result = CUDA_ERROR_UNKNOWN};
	OK(cuStreamCreate(&reentry->stream, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(ret_stream, CU_STREAM_NON_BLOCKING));
}

static void host_function_that_launches_does_not_wait_and_is_waited_for(void **state)
{
	struct reentry reentry;
	CUstream stream;

	given_reentry(&reentry, &stream);
	for (int i = 0; i < 5; i++) {
		OK(GATED(cuLaunchHostFunc(stream, callback_run, callback_once(launch_inside, &reentry))));
		held_after_reentry(&reentry);
		OK(GATED(cuStreamAddCallback(stream, callback_run_stream, callback_of_stream(launch_inside_stream, &reentry), 0)));
		held_after_reentry(&reentry);
	}
	OK(cuStreamDestroy(stream));
	OK(cuStreamDestroy(reentry.stream));
}

static void graph_host_node_that_launches_does_not_wait_and_is_waited_for(void **state)
{
	struct callback *kept;
	CUDA_HOST_NODE_PARAMS params;
	struct reentry reentry;
	CUgraphExec exec;
	CUgraphNode node;
	CUstream stream;
	CUgraph graph;

	given_reentry(&reentry, &stream);
	kept = callback_kept(&fixture_lc.callbacks, launch_inside, &reentry);
	assert_ptr_equal(callback_kept(&fixture_lc.callbacks, launch_inside, &reentry), kept);
	assert_ptr_not_equal(callback_kept(&fixture_lc.callbacks, launch_inside, NULL), kept);
	params = (CUDA_HOST_NODE_PARAMS){callback_run, kept};
	OK(cuGraphCreate(&graph, 0));
	OK(cuGraphAddHostNode(&node, graph, NULL, 0, &params));
	OK(cuGraphInstantiate(&exec, graph, 0));
	OK(cuGraphHostNodeGetParams(node, &params));
	callback_reveal(&params.fn, &params.userData);
	assert_ptr_equal(params.fn, launch_inside);
	assert_ptr_equal(params.userData, &reentry);
	for (int i = 0; i < 3; i++) { /* the same note, each time */
		OK(GATED(cuGraphLaunch(exec, stream)));
		held_after_reentry(&reentry);
	}
	OK(cuGraphExecDestroy(exec));
	OK(cuGraphDestroy(graph));
	OK(cuStreamDestroy(stream));
	OK(cuStreamDestroy(reentry.stream));
}

/* ---- threads and processes that end ---- */

static CUresult end_inside(void *arg)
{
	gate_enter(&fixture_lc.gate, "never left", NULL);
	__atomic_store_n((int *)arg, 1, __ATOMIC_RELEASE);
	pthread_exit(NULL);
}

static void *vanish_inside(void *arg)
{
	gate_enter(&fixture_lc.gate, "never left", NULL);
	__atomic_store_n((int *)arg, 1, __ATOMIC_RELEASE);
	syscall(SYS_exit, 0); /* no destructor of the key runs */
	return NULL;
}

static void thread_that_exits_with_a_marked_slot_is_not_waited_for(void **state)
{
	struct runner runner;
	int inside = 0;

	run(&runner, end_inside, &inside);
	UNTIL(__atomic_load_n(&inside, __ATOMIC_ACQUIRE));
	pthread_join(runner.thread, NULL);
	assert_null(gate_busy_slot(false));
	hold(&patient);
}

static void thread_that_vanishes_with_a_marked_slot_is_not_waited_for(void **state)
{
	pthread_t thread;
	int inside = 0;

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
	print_message("skipped: a sanitizer keeps what it knows of such a thread, for the next one on its stack\n");
	skip();
#endif
	assert_int_equal(pthread_create(&thread, NULL, vanish_inside, &inside), 0);
	UNTIL(__atomic_load_n(&inside, __ATOMIC_ACQUIRE));
	hold(&patient);
	assert_null(gate_busy_slot(false));
	pthread_join(thread, NULL);
}

static CUresult stay_inside(void *arg)
{
	struct gate_slot *slot = gate_enter(&fixture_lc.gate, "stays", NULL);

	__atomic_store_n((int *)arg, 1, __ATOMIC_RELEASE);
	UNTIL(__atomic_load_n((int *)arg, __ATOMIC_ACQUIRE) == 2);
	gate_leave(slot);
	return CUDA_SUCCESS;
}

/* Another thread is marked, this one is inside a call, the gate is shut: the child has none of it. */
static void child_forked_in_the_middle_finds_the_gate_open(void **state)
{
	enum sublet_err held = SUBLET_ERR_COUNT;
	struct runner other, closer;
	struct gate_slot *slot;
	int inside = 0, status;
	pid_t child;

	run(&other, stay_inside, &inside);
	UNTIL(__atomic_load_n(&inside, __ATOMIC_ACQUIRE));
	slot = gate_enter(&fixture_lc.gate, "this thread's", NULL);
	run(&closer, hold_twice, &held);
	UNTIL(gate_is_shut(&fixture_lc.gate));
	child = fork();
	if (child == 0) {
		alarm(20);
		ranked_lock_fork_child();
		lifecycle_forget(&fixture_lc);
		if (gate_is_shut(&fixture_lc.gate) || gate_busy_slot(false) != slot || gate_busy_slot(true))
			_exit(1);
		gate_leave(slot);
		gate_leave(gate_enter(&fixture_lc.gate, "in the child", NULL));
		_exit(gate_busy_slot(false) ? 2 : 0);
	}
	assert_true(child > 0);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	gate_leave(slot);
	__atomic_store_n(&inside, 2, __ATOMIC_RELEASE);
	OK(join(&other));
	OK(join(&closer));
	assert_int_equal(held, SUBLET_OK);
}

/* More threads than the first slots, all marked at once. */
static void slots_of_a_hundred_threads_are_all_waited_for(void **state)
{
	enum { THREADS = 100 };
	struct runner runners[THREADS];
	int inside[THREADS] = {0};

	for (int i = 0; i < THREADS; i++)
		run(&runners[i], stay_inside, &inside[i]);
	for (int i = 0; i < THREADS; i++)
		UNTIL(__atomic_load_n(&inside[i], __ATOMIC_ACQUIRE));
	for (int i = 0; i < THREADS; i++) {
		assert_non_null(gate_busy_slot(false));
		__atomic_store_n(&inside[i], 2, __ATOMIC_RELEASE);
		OK(join(&runners[i]));
	}
	assert_null(gate_busy_slot(false));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		GATE_CASE(hold_of_an_idle_process_comes_at_once_and_ends),
		GATE_CASE(call_waits_while_held_and_goes_on_when_open),
		GATE_CASE(hold_waits_for_work_of_every_stream),
		GATE_CASE(name_of_an_unloaded_kernel_is_not_asked_for),
		GATE_CASE(second_hold_meanwhile_is_refused),
		GATE_CASE(hold_in_the_middle_of_a_call_names_thread_and_call),
		GATE_CASE(soft_hold_is_asked_for_once_per_hold),
		GATE_CASE(soft_hold_is_not_asked_for_by_a_call_that_waits_briefly),
		GATE_CASE(allocation_while_everything_is_shut_is_served),
		GATE_CASE(handler_that_interrupts_a_gated_call_does_not_wait),
		GATE_CASE(host_function_that_launches_does_not_wait_and_is_waited_for),
		GATE_CASE(graph_host_node_that_launches_does_not_wait_and_is_waited_for),
		GATE_CASE(thread_that_exits_with_a_marked_slot_is_not_waited_for),
		GATE_CASE(thread_that_vanishes_with_a_marked_slot_is_not_waited_for),
		GATE_CASE(child_forked_in_the_middle_finds_the_gate_open),
		GATE_CASE(slots_of_a_hundred_threads_are_all_waited_for),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
