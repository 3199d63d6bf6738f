/* tests/unit/test_client.c
 * lifecycle/client.h against a real coordinator, on a thread of this process: what the thread checker has to see. The rest is
 * in tests/cli, over processes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "lifecycle/client_priv.h"
#include "lifecycle/coordinator.h"
#include "lifecycle/endpoint.h"
#include "lifecycle/memory.h"
#include "tests/unit/lifecycle_fixture.h"
#include "tests/unit/scratch.h"

/* Rules of client.yaml. It is compiled by another program: policy/source and lifecycle do not go into one. */
enum { RULE_LARGE, RULE_NAMED, RULE_REST, RULES };

static char session[] = "/tmp/sublet-unit-XXXXXX";
static uint64_t policy_block[8192]; /* aligned as mapped pages are */
static size_t policy_bytes;
static struct coordinator *coordinator;
static pthread_t coordinator_thread;

static void *coordinate(void *arg)
{
	struct errinfo error;

	return (void *)(intptr_t)coordinator_run(coordinator, &error);
}

static void start_coordinator(void)
{
	struct coordinator_config config = {.session = session,
		.policy = policy_block,
		.policy_bytes = policy_bytes,
		.policy_name = "test",
		.pool_bytes = 64 * MIB};
	struct errinfo error = {0};
	pid_t other;

	if (coordinator_new(&coordinator, &config, &other, &error))
		fail_msg("%s", error.text);
	assert_int_equal(pthread_create(&coordinator_thread, NULL, coordinate, NULL), 0);
}

/* By a message, as a command does it. */
static void stop_coordinator(void)
{
	struct protocol_message message;
	struct errinfo error = {0};
	void *result;
	int folder = endpoint_folder(session, &error), fd;

	assert_int_equal(endpoint_connect(folder, &fd, NULL, &error), ENDPOINT_CONNECTED);
	protocol_begin(&message, PROTOCOL_HELLO, 1);
	message.hello.peer = PEER_CONTROL;
	protocol_length(&message);
	assert_int_equal(endpoint_send(fd, &message, -1, &error), CARRIED);
	protocol_begin(&message, PROTOCOL_ASK_STOP, 2);
	protocol_length(&message);
	assert_int_equal(endpoint_send(fd, &message, -1, &error), CARRIED);
	pthread_join(coordinator_thread, &result);
	assert_null(result);
	close(fd);
	close(folder);
	coordinator_free(coordinator);
}

static bool joined(void)
{
	struct client *client = &fixture_lc.client;
	bool is_joined;

	ranked_lock(&client->lock);
	is_joined = client->socket.fd >= 0;
	ranked_unlock(&client->lock);
	return is_joined;
}

static void wait_joined(bool wanted)
{
	for (int i = 0; i < 2000 && joined() != wanted; i++)
		clock_sleep_ns(10 * CLOCK_NS_PER_MS);
	assert_int_equal(joined(), wanted);
}

static CUdeviceptr alloc(uint64_t bytes)
{
	CUdeviceptr address = 0;
	enum stats_native why;
	CUresult result;

	assert_int_equal(memory_alloc(&fixture_lc, bytes, &address, &result, &why, NULL), MEMORY_ANSWERED);
	assert_int_equal(result, CUDA_SUCCESS);
	return address;
}

static void free_at(CUdeviceptr address)
{
	CUresult result;

	assert_int_equal(memory_free(&fixture_lc, address, &result), MEMORY_ANSWERED);
}

/* Allocations of each rule; the last is those of none. */
static void assert_counts(uint32_t large, uint32_t named, uint32_t rest, uint32_t none)
{
	const uint32_t wanted[RULES + 1] = {large, named, rest, none};
	struct service_object rows[8];
	uint32_t counts[RULES + 1] = {0};
	size_t count;

	service_objects(&fixture_lc, rows, 8, &count);
	for (size_t i = 0; i < count; i++)
		counts[rows[i].rule < RULES ? rows[i].rule : RULES] = rows[i].count;
	assert_memory_equal(counts, wanted, sizeof(wanted));
}

static int setup(void **state)
{
	return fixture_begin() ? 0 : -1;
}

static int teardown(void **state)
{
	const char *left = fixture_end();

	if (left)
		fail_msg("%s", left);
	return 0;
}

static void allocations_get_their_rule_when_made_and_when_the_policy_comes(void **state)
{
	CUdeviceptr before = alloc(4 * MIB), large, named, rest;

	assert_counts(0, 0, 0, 1);
	start_coordinator();
	client_start(&fixture_lc, session, "train");
	assert_true(joined());
	assert_counts(0, 0, 1, 0);
	large = alloc(8 * MIB);
	rest = alloc(4 * MIB);
	pthread_setname_np(pthread_self(), "unit-named");
	named = alloc(4 * MIB);
	pthread_setname_np(pthread_self(), "test");
	assert_counts(1, 1, 2, 0);
	stop_coordinator();
	wait_joined(false);
	/* the last policy stays in force */
	free_at(alloc(4 * MIB));
	assert_counts(1, 1, 2, 0);
	free_at(before);
	free_at(large);
	free_at(named);
	free_at(rest);
}

static void host_bytes_are_asked_of_the_session_and_kept_to_its_cap_without_one(void **state)
{
	struct host_pool_hooks *hooks = &fixture_lc.host_pool.hooks;
	char why[96] = "";
	int fd;

	start_coordinator();
	client_start(&fixture_lc, session, "train");
	assert_true(hooks->credit(hooks->arg, 48 * MIB, why, sizeof(why)));
	assert_false(hooks->credit(hooks->arg, 32 * MIB, why, sizeof(why)));
	assert_non_null(strstr(why, "48.00 MiB of 64.00 MiB are in use"));
	assert_false(hooks->take(hooks->arg, 16 * MIB, 1, &fd));
	hooks->made(hooks->arg, 48 * MIB, 2, dup(STDIN_FILENO));
	hooks->give(hooks->arg, 48 * MIB, 2);
	assert_true(hooks->credit(hooks->arg, 32 * MIB, why, sizeof(why)));
	stop_coordinator();
	wait_joined(false);
	assert_true(hooks->credit(hooks->arg, 32 * MIB, why, sizeof(why)));
	assert_false(hooks->credit(hooks->arg, 1, why, sizeof(why)));
	hooks->give(hooks->arg, 32 * MIB, 0);
	/* the next one is told what is held */
	start_coordinator();
	wait_joined(true);
	assert_false(hooks->credit(hooks->arg, 48 * MIB, why, sizeof(why)));
	assert_true(hooks->credit(hooks->arg, 32 * MIB, why, sizeof(why)));
	hooks->give(hooks->arg, 64 * MIB, 0);
	stop_coordinator();
}

static CUresult result_of_alloc(uint64_t bytes, CUdeviceptr *ret_address)
{
	enum stats_native why;
	CUresult result = CUDA_SUCCESS;

	assert_int_equal(memory_alloc(&fixture_lc, bytes, ret_address, &result, &why, NULL), MEMORY_ANSWERED);
	return result;
}

static void device_bytes_are_asked_of_the_session_and_not_limited_without_one(void **state)
{
	CUdeviceptr most, more;

	start_coordinator();
	client_start(&fixture_lc, session, "train");
	most = alloc(60 * MIB);
	assert_int_equal(result_of_alloc(6 * MIB, &more), CUDA_ERROR_OUT_OF_MEMORY);
	free_at(alloc(4 * MIB));
	stop_coordinator();
	wait_joined(false);
	more = alloc(60 * MIB);
	start_coordinator();
	wait_joined(true);
	assert_int_equal(result_of_alloc(8 * MIB, &(CUdeviceptr){0}), CUDA_ERROR_OUT_OF_MEMORY);
	free_at(more);
	free_at(alloc(4 * MIB));
	assert_int_equal(fixture_lc.ledger.devices[0].taken_bytes, 0);
	free_at(most);
	stop_coordinator();
}

static bool stop_threads;

/* What went wrong there, or NULL: cmocka's assertions end the process on other threads than its own. */
static const char *allocate_and_free(void)
{
	static char text[64];
	CUdeviceptr address = 0;
	enum stats_native why = 0;
	CUresult result = CUDA_SUCCESS;
	enum memory_verdict verdict = memory_alloc(&fixture_lc, 4 * MIB, &address, &result, &why, NULL);

	if (verdict != MEMORY_ANSWERED || result != CUDA_SUCCESS) {
		snprintf(text, sizeof(text), "alloc: verdict %d, result %d, why %d", (int)verdict, (int)result, (int)why);
		return text;
	}
	return memory_free(&fixture_lc, address, &result) == MEMORY_ANSWERED ? NULL : "free was passed on";
}

static void *allocate_on(void *arg)
{
	const char *wrong = NULL;
	CUcontext context;

	cuDevicePrimaryCtxRetain(&context, 0);
	cuCtxSetCurrent(context);
	while (!wrong && !__atomic_load_n(&stop_threads, __ATOMIC_ACQUIRE))
		wrong = allocate_and_free();
	cuDevicePrimaryCtxRelease(0);
	return (void *)wrong;
}

static void *ask_on(void *arg)
{
	struct host_pool_hooks *hooks = &fixture_lc.host_pool.hooks;
	char why[96];
	int fd;

	while (!__atomic_load_n(&stop_threads, __ATOMIC_ACQUIRE)) {
		if (hooks->credit(hooks->arg, MIB, why, sizeof(why)))
			hooks->give(hooks->arg, MIB, 0);
		if (hooks->take(hooks->arg, MIB, 1, &fd))
			close(fd);
	}
	return NULL;
}

static void coordinators_that_come_and_go_beside_threads_at_work(void **state)
{
	pthread_t threads[3];
	void *wrong[3];

	__atomic_store_n(&stop_threads, false, __ATOMIC_RELEASE);
	start_coordinator();
	client_start(&fixture_lc, session, "train");
	pthread_create(&threads[0], NULL, allocate_on, NULL);
	pthread_create(&threads[1], NULL, allocate_on, NULL);
	pthread_create(&threads[2], NULL, ask_on, NULL);
	for (int i = 0; i < 4; i++) {
		clock_sleep_ns(20 * CLOCK_NS_PER_MS);
		stop_coordinator();
		start_coordinator();
		wait_joined(true);
	}
	__atomic_store_n(&stop_threads, true, __ATOMIC_RELEASE);
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], &wrong[i]);
	stop_coordinator();
	for (int i = 0; i < 3; i++)
		if (wrong[i])
			fail_msg("%s", (const char *)wrong[i]);
}

static void a_forked_child_lets_go_of_the_connection_and_the_parent_keeps_it(void **state)
{
	int status = -1;
	pid_t child;

	start_coordinator();
	client_start(&fixture_lc, session, "train");
	child = fork();
	if (child == 0) {
		ranked_lock_fork_child();
		client_forget(&fixture_lc.client);
		_exit(fixture_lc.client.socket.fd == -1 && client_rule(&fixture_lc.client, &(struct allocation){.size_bytes = 8 * MIB}, &(struct caller){0}) == RULE_LARGE
			      ? 0
			      : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	free_at(alloc(4 * MIB));
	assert_true(joined());
	stop_coordinator();
}

static void *arrive_on(void *arg)
{
	struct errinfo error;

	pthread_cancel(pthread_self());
	*(enum sublet_err *)arg = client_arrive_at(&fixture_lc, "p", &error);
	pthread_testcancel();
	return NULL;
}

static void a_thread_that_is_cancelled_while_it_waits_for_a_phase_leaves_no_lock_behind(void **state)
{
	enum sublet_err err = SUBLET_ERR_COUNT;
	pthread_t thread;

	start_coordinator();
	client_start(&fixture_lc, session, "train");
	assert_int_equal(pthread_create(&thread, NULL, arrive_on, &err), 0);
	pthread_join(thread, NULL);
	assert_int_equal(err, SUBLET_OK);
	assert_true(ranked_lock_within(&fixture_lc.client.lock, 1000 * CLOCK_NS_PER_MS));
	ranked_unlock(&fixture_lc.client.lock);
	stop_coordinator();
}

static void queue_step(enum protocol_step step)
{
	struct protocol_message message;

	protocol_begin(&message, PROTOCOL_STEP, 0); /* of no barrier that the coordinator knows */
	message.step.step = step;
	message.step.timeout_ns = 500 * CLOCK_NS_PER_MS;
	message.step.patience_ns = 60000 * CLOCK_NS_PER_MS;
	client_queue_step(&fixture_lc, fixture_lc.client.connection, &message);
}

static uint32_t steps_left(void)
{
	struct client *client = &fixture_lc.client;
	uint32_t count;

	ranked_lock(&client->lock);
	count = client->steps_count;
	ranked_unlock(&client->lock);
	return count;
}

/* It finds all that the coordinator asked of it and gave up on, and the last word counts. */
static void a_process_that_was_stopped_is_not_left_held_by_steps_that_do_not_fit(void **state)
{
	struct gate_slot *slot;

	start_coordinator();
	client_start(&fixture_lc, session, "train");
	slot = gate_enter(&fixture_lc.gate, "cuLaunchKernel", NULL); /* the first hold takes its time */
	queue_step(PROTOCOL_STEP_HOLD);
	while (steps_left())
		clock_sleep_ns(CLOCK_NS_PER_MS);
	for (int i = 0; i < 8; i++) {
		queue_step(PROTOCOL_STEP_REOPEN);
		queue_step(PROTOCOL_STEP_HOLD);
	}
	queue_step(PROTOCOL_STEP_REOPEN);
	gate_leave(slot);
	while (steps_left())
		clock_sleep_ns(CLOCK_NS_PER_MS);
	clock_sleep_ns(300 * CLOCK_NS_PER_MS);
	for (int i = 0; i < 1000 && gate_is_shut(&fixture_lc.gate); i++)
		clock_sleep_ns(10 * CLOCK_NS_PER_MS);
	assert_false(gate_is_shut(&fixture_lc.gate));
	stop_coordinator();
}

static int setup_group(void **state)
{
	FILE *file = fopen(getenv("SUBLET_TEST_BLOCK"), "rb");

	setenv("SUBLET_LOG", "session:off", 1);
	log_init();
	policy_bytes = file ? fread(policy_block, 1, sizeof(policy_block), file) : 0;
	if (file)
		fclose(file);
	return policy_bytes && mkdtemp(session) ? 0 : -1;
}

static int teardown_group(void **state)
{
	scratch_remove(session);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(allocations_get_their_rule_when_made_and_when_the_policy_comes, setup, teardown),
		cmocka_unit_test_setup_teardown(
			device_bytes_are_asked_of_the_session_and_not_limited_without_one, setup, teardown),
		cmocka_unit_test_setup_teardown(
			host_bytes_are_asked_of_the_session_and_kept_to_its_cap_without_one, setup, teardown),
		cmocka_unit_test_setup_teardown(coordinators_that_come_and_go_beside_threads_at_work, setup, teardown),
		cmocka_unit_test_setup_teardown(
			a_forked_child_lets_go_of_the_connection_and_the_parent_keeps_it, setup, teardown),
		cmocka_unit_test_setup_teardown(
			a_thread_that_is_cancelled_while_it_waits_for_a_phase_leaves_no_lock_behind, setup, teardown),
		cmocka_unit_test_setup_teardown(
			a_process_that_was_stopped_is_not_left_held_by_steps_that_do_not_fit, setup, teardown),
	};

	return cmocka_run_group_tests(tests, setup_group, teardown_group);
}
