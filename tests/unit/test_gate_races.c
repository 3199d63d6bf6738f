/* tests/unit/test_gate_races.c
 * Many threads in front of one closer: nothing runs while it is held, and whatever the program itself waits for, a hold comes
 * about or says why not. Under the thread sanitizer (tests/sanitize.sh thread) the plain counters below are the proof that
 * a hold and a gated call exclude each other. */
#include "tests/unit/gate_harness.h"

#define LAUNCHERS 16
#define HOLDS 60

/* ---- sixteen threads that launch ---- */

struct launcher {
	struct runner runner;
	uint64_t calls;	    /* plain: written inside gated calls, read and written by the closer while held */
	CUdeviceptr word;   /* grows by one with each launch */
	CUstream stream;    /* NULL: the thread's own default stream */
	int *stop;	    /* atomic */
};

static CUresult launch_many(void *arg)
{
	struct launcher *launcher = arg;
	size_t count = 1;
	uint32_t addend = 1;
	void *params[] = {&launcher->word, &count, &addend};
	CUstream stream = launcher->stream ? launcher->stream : CU_STREAM_PER_THREAD;
	CUresult result = CUDA_SUCCESS;

	while (result == CUDA_SUCCESS && !__atomic_load_n(launcher->stop, __ATOMIC_ACQUIRE)) {
		struct gate_slot *slot = gate_own_slot;
		bool passed = false;

		/* as shim/gated.h */
		if (slot) {
			gate_mark(slot);
			passed = gate_pass(slot, __atomic_load_n(&fixture_lc.gate.word, __ATOMIC_ACQUIRE), "cuLaunchKernel", add);
		}
		if (!passed)
			slot = gate_enter(&fixture_lc.gate, "cuLaunchKernel", add);
		result = cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
		launcher->calls++;
		gate_leave(slot);
	}
	return result;
}

static void launchers_race_the_closer(bool own_streams)
{
	static struct launcher launchers[LAUNCHERS];
	uint32_t *words = flag + 16;
	uint64_t passed = 0;
	int stop = 0;

	for (int i = 0; i < LAUNCHERS; i++) {
		launchers[i] = (struct launcher){.word = (CUdeviceptr)(uintptr_t)(words + i), .stop = &stop};
		if (own_streams)
			OK(cuStreamCreate(&launchers[i].stream, CU_STREAM_NON_BLOCKING));
		run(&launchers[i].runner, launch_many, &launchers[i]);
	}
	for (int h = 0; h < HOLDS; h++) {
		hold(&patient);
		for (int i = 0; i < LAUNCHERS; i++) {
			/* every launch that was made has run, and none more: the closer may do with the memory what it likes */
			assert_int_equal(words[i], launchers[i].calls);
			passed += launchers[i].calls;
			launchers[i].calls = 0;
			words[i] = 0;
		}
		gate_open(&fixture_lc);
		if (h % 8 == 0)
			clock_sleep_ns(MS);
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
	for (int i = 0; i < LAUNCHERS; i++) {
		OK(join(&launchers[i].runner));
		passed += launchers[i].calls;
		if (own_streams)
			OK(cuStreamDestroy(launchers[i].stream));
	}
	assert_true(passed >= HOLDS);
	OK(cuCtxSynchronize());
}

static void sixteen_launching_threads_and_a_hold_exclude_each_other(void **state)
{
	launchers_race_the_closer(true);
}

static void work_of_per_thread_default_streams_is_waited_for(void **state)
{
	launchers_race_the_closer(false);
}

/* ---- captures ---- */

struct capturer {
	CUstream stream;
	int stop;	 /* atomic */
	unsigned begun;	 /* atomic */
	unsigned broken; /* captures that did not live */
};

/* As shim/wrap_capture.c does it. */
static CUresult capture_many(void *arg)
{
	struct capturer *capturer = arg;
	CUresult result = CUDA_SUCCESS;

	while (result == CUDA_SUCCESS && !__atomic_load_n(&capturer->stop, __ATOMIC_ACQUIRE)) {
		uint64_t moment;
		CUgraph graph = NULL;
		struct gate_slot *slot = gate_enter(&fixture_lc.gate, "cuStreamBeginCapture_v2", NULL);

		captures_begin_lock(&fixture_lc.captures, capturer->stream, false);
		result = cuStreamBeginCapture(capturer->stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
		captures_begin_unlock(&fixture_lc.captures, result, capturer->stream, false);
		gate_leave(slot);
		if (result != CUDA_SUCCESS)
			return result;
		__atomic_fetch_add(&capturer->begun, 1, __ATOMIC_ACQ_REL);
		/* gated as well: the hold must not keep it from ending */
		result = launch(noop, capturer->stream, NULL);
		moment = captures_moment(&fixture_lc.captures);
		if (cuStreamEndCapture(capturer->stream, &graph) != CUDA_SUCCESS)
			capturer->broken++;
		captures_end(&fixture_lc.captures, moment, CUDA_SUCCESS, capturer->stream, false);
		if (graph)
			cuGraphDestroy(graph);
	}
	return result;
}

static void capture_that_begins_while_the_gate_shuts_lives(void **state)
{
	struct capturer capturer = {0};
	struct runner runner;

	OK(cuStreamCreate(&capturer.stream, CU_STREAM_NON_BLOCKING));
	run(&runner, capture_many, &capturer);
	for (int h = 0; h < HOLDS; h++) {
		unsigned before = __atomic_load_n(&capturer.begun, __ATOMIC_ACQUIRE);

		hold(&patient);
		assert_false(captures_any(&fixture_lc.captures));
		gate_open(&fixture_lc);
		UNTIL(__atomic_load_n(&capturer.begun, __ATOMIC_ACQUIRE) > before);
	}
	__atomic_store_n(&capturer.stop, 1, __ATOMIC_RELEASE);
	OK(join(&runner));
	assert_int_equal(capturer.broken, 0);
	OK(cuStreamDestroy(capturer.stream));
}

static void capture_that_goes_on_is_named(void **state)
{
	CUstream stream;
	CUgraph graph;
	char text[32];

	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	captures_begin_lock(&fixture_lc.captures, stream, false);
	OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	captures_begin_unlock(&fixture_lc.captures, CUDA_SUCCESS, stream, false);
	assert_int_equal(gate_hold(&fixture_lc, &brief, &error), SUBLET_ERR_TIMEOUT);
	snprintf(text, sizeof(text), "stream %p of context", (void *)stream);
	assert_non_null(strstr(error.text, text));
	assert_non_null(strstr(error.text, "is being captured"));
	assert_false(gate_is_shut(&fixture_lc.gate));
	OK(cuStreamEndCapture(stream, &graph));
	captures_end(&fixture_lc.captures, captures_moment(&fixture_lc.captures), CUDA_SUCCESS, stream, false);
	hold(&patient);
	OK(cuGraphDestroy(graph));
	OK(cuStreamDestroy(stream));
}

/* ---- what the program itself waits for ---- */

struct signal {
	CUstream waits, signals;
	CUdeviceptr word;
	int shut; /* atomic: send the signal once the gate has been seen shut */
	void *copy;
	CUdeviceptr source;
};

static CUresult send_signal(void *arg)
{
	struct signal *signal = arg;

	UNTIL(gate_is_shut(&fixture_lc.gate));
	return GATED(cuStreamWriteValue32(signal->signals, signal->word, 7, 0));
}

static CUresult copy_to_host(void *arg)
{
	struct signal *signal = arg;

	/* of the stream that waits, and back only when it is done */
	return GATED(cuMemcpyDtoH(signal->copy, signal->source, 1024));
}

static void given_signal(struct signal *signal, unsigned flags)
{
	*signal = (struct signal){.word = (CUdeviceptr)(uintptr_t)(flag + 16)};
	OK(cuStreamCreate(&signal->waits, flags));
	OK(cuStreamCreate(&signal->signals, CU_STREAM_NON_BLOCKING));
	OK(GATED(cuStreamWaitValue32(signal->waits, signal->word, 7, CU_STREAM_WAIT_VALUE_EQ)));
}

static void end_signal(struct signal *signal)
{
	OK(cuStreamSynchronize(signal->waits));
	OK(cuStreamDestroy(signal->waits));
	OK(cuStreamDestroy(signal->signals));
}

static void stream_that_waits_for_another_threads_gated_call_is_let_through(void **state)
{
	struct signal signal;
	struct runner runner;

	given_signal(&signal, CU_STREAM_NON_BLOCKING);
	run(&runner, send_signal, &signal);
	hold(&patient);
	assert_int_equal(flag[16], 7);
	OK(join(&runner));
	gate_open(&fixture_lc);
	end_signal(&signal);
}

static void stream_that_waits_for_nobody_is_named_and_the_gate_opens(void **state)
{
	struct signal signal;

	given_signal(&signal, CU_STREAM_NON_BLOCKING);
	assert_int_equal(gate_hold(&fixture_lc, &brief, &error), SUBLET_ERR_TIMEOUT);
	assert_non_null(strstr(error.text, "work of device 0"));
	assert_false(gate_is_shut(&fixture_lc.gate));
	OK(GATED(cuStreamWriteValue32(signal.signals, signal.word, 7, 0)));
	end_signal(&signal);
}

static void synchronous_copy_that_blocks_is_let_through_or_named(void **state)
{
	struct runner copier, sender;
	struct signal signal;
	char bytes[1024];

	given_signal(&signal, CU_STREAM_DEFAULT); /* the copy, on the legacy stream, is behind it */
	signal.copy = bytes;
	OK(cuMemAlloc(&signal.source, sizeof(bytes)));
	run(&copier, copy_to_host, &signal);
	UNTIL(gate_busy_slot(false));
	assert_int_equal(gate_hold(&fixture_lc, &brief, &error), SUBLET_ERR_TIMEOUT);
	assert_non_null(strstr(error.text, "stays in cuMemcpyDtoH"));
	run(&sender, send_signal, &signal);
	hold(&patient);
	OK(join(&sender));
	OK(join(&copier));
	gate_open(&fixture_lc);
	OK(cuMemFree(signal.source));
	end_signal(&signal);
}

/* ---- a full launch queue ---- */

static CUresult launch_into_full_queue(void *arg)
{
	CUresult result = CUDA_SUCCESS;

	for (int i = 0; i < 8 && result == CUDA_SUCCESS; i++)
		result = launch(noop, arg, NULL);
	return result;
}

static CUresult raise_flag(void *arg)
{
	UNTIL(gate_is_shut(&fixture_lc.gate));
	return GATED(cuStreamWriteValue32(arg, (CUdeviceptr)(uintptr_t)flag, 1, 0));
}

/* The launch stays inside the driver, marked, until the stream has room, and that comes with another thread's gated call. */
static void full_launch_queue_is_let_through_or_named(void **state)
{
	struct runner launcher, other;
	CUstream stream, signals;

	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&signals, CU_STREAM_NON_BLOCKING));
	occupy(stream);
	run(&launcher, launch_into_full_queue, stream);
	do {
		clock_sleep_ns(20 * MS);
	} while (!gate_busy_slot(false));
	assert_false(is_over(&launcher));
	assert_int_equal(gate_hold(&fixture_lc, &brief, &error), SUBLET_ERR_TIMEOUT);
	assert_non_null(strstr(error.text, "stays in cuLaunchKernel; last kernel 'sim_noop'"));
	run(&other, raise_flag, signals);
	hold(&patient);
	OK(join(&other));
	gate_open(&fixture_lc);
	OK(join(&launcher));
	OK(cuStreamDestroy(stream));
	OK(cuStreamDestroy(signals));
}

/* No call is inside the driver, but the closer's own marks find no room. */
static void full_queue_that_takes_no_mark_is_let_through_or_named(void **state)
{
	struct runner other;
	CUstream stream, signals;

	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&signals, CU_STREAM_NON_BLOCKING));
	occupy(stream);
	for (int i = 1; i < 4; i++)
		OK(launch(noop, stream, NULL));
	assert_int_equal(gate_hold(&fixture_lc, &brief, &error), SUBLET_ERR_TIMEOUT);
	assert_non_null(strstr(error.text, "room in a full queue; last kernel 'sim_noop'"));
	assert_false(gate_is_shut(&fixture_lc.gate));
	run(&other, raise_flag, signals);
	hold(&patient);
	OK(join(&other));
	OK(cuStreamQuery(stream));
	gate_open(&fixture_lc);
	OK(cuStreamDestroy(stream));
	OK(cuStreamDestroy(signals));
}

static int setup_queue(void **state)
{
	setenv("SUBLET_SIM_QUEUE", "4", 1);
	return setup(state);
}

static int teardown_environment(void **state)
{
	int failed = teardown(state);

	unsetenv("SUBLET_SIM_QUEUE");
	unsetenv("SUBLET_SIM_WITHOUT");
	return failed;
}

/* ---- a driver that cannot mark contexts ---- */

static int setup_without_marks(void **state)
{
	setenv("SUBLET_SIM_WITHOUT", "ctx_record_event", 1);
	return setup(state);
}

static void driver_without_context_events_is_drained_by_synchronizing(void **state)
{
	CUstream stream;

	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	hold(&patient);
	gate_open(&fixture_lc);
	occupy(stream);
	assert_int_equal(gate_hold(&fixture_lc, &brief, &error), SUBLET_ERR_TIMEOUT);
	assert_non_null(strstr(error.text, "the driver waits for work"));
	assert_false(gate_is_shut(&fixture_lc.gate));
	__atomic_store_n(flag, 1, __ATOMIC_RELEASE);
	/* the synchronise of before may still be under way, and says nothing about now */
	hold(&patient);
	OK(cuStreamQuery(stream));
	gate_open(&fixture_lc);
	OK(cuStreamDestroy(stream));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		GATE_CASE(sixteen_launching_threads_and_a_hold_exclude_each_other),
		GATE_CASE(work_of_per_thread_default_streams_is_waited_for),
		GATE_CASE(capture_that_begins_while_the_gate_shuts_lives),
		GATE_CASE(capture_that_goes_on_is_named),
		GATE_CASE(stream_that_waits_for_another_threads_gated_call_is_let_through),
		GATE_CASE(stream_that_waits_for_nobody_is_named_and_the_gate_opens),
		GATE_CASE(synchronous_copy_that_blocks_is_let_through_or_named),
		cmocka_unit_test_setup_teardown(full_launch_queue_is_let_through_or_named, setup_queue, teardown_environment),
		cmocka_unit_test_setup_teardown(full_queue_that_takes_no_mark_is_let_through_or_named, setup_queue,
			teardown_environment),
		cmocka_unit_test_setup_teardown(driver_without_context_events_is_drained_by_synchronizing, setup_without_marks,
			teardown_environment),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
