/* tests/unit/test_fork.c
 * What a forked child may find that the sweep's forks, at the entry of driver calls, meet by chance or never: locks held by
 * other threads, waits for threads that are not there, lists that are forgotten while they are walked. A child ends with a
 * status; cmocka's jumps would lead it into the parent's tests. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "lifecycle/memory.h"
#include "tests/unit/lifecycle_fixture.h"

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

/* Forks; the child does as the preloaded library's handler, then @use, and ends with what that returns. */
static int in_child(int (*use)(void))
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		fixture_child_begin();
		_exit(use());
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return -1;
	return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

static int take_every_lock(void)
{
	fixture_lock_all();
	fixture_unlock_all();
	return 0;
}

static void locks_held_by_the_forking_thread_are_free_in_its_child(void **state)
{
	int found;

	fixture_lock_all();
	found = in_child(take_every_lock);
	fixture_unlock_all();
	assert_int_equal(found, 0);
}

static void *hold_every_lock(void *arg)
{
	pthread_barrier_t *barrier = arg;

	fixture_lock_all();
	pthread_barrier_wait(barrier); /* held */
	pthread_barrier_wait(barrier); /* forked */
	fixture_unlock_all();
	return NULL;
}

static void locks_held_by_another_thread_are_free_in_a_forked_child(void **state)
{
	pthread_barrier_t barrier;
	pthread_t thread;
	int found;

	assert_int_equal(pthread_barrier_init(&barrier, NULL, 2), 0);
	assert_int_equal(pthread_create(&thread, NULL, hold_every_lock, &barrier), 0);
	pthread_barrier_wait(&barrier);
	found = in_child(take_every_lock);
	pthread_barrier_wait(&barrier);
	pthread_join(thread, NULL);
	pthread_barrier_destroy(&barrier);
	assert_int_equal(found, 0);
}

/* The thread that prepares it is not in the child; one that waited for it is, when its signal handler forked. */
static int ask_for_the_device(void)
{
	return lifecycle_device(&fixture_lc, 0);
}

static void device_that_another_thread_prepares_is_unusable_in_a_forked_child(void **state)
{
	int found;

	fixture_lc.devices[0].readiness = DEVICE_PREPARING;
	found = in_child(ask_for_the_device);
	fixture_lc.devices[0].readiness = DEVICE_UNTRIED;
	assert_int_equal(found, 0);
}

/* ---- waits ---- */

#define WAITERS 3
#define FORKS 400

static bool waiters_end; /* atomic */

static void *wait_again_and_again(void *arg)
{
	while (!__atomic_load_n(&waiters_end, __ATOMIC_ACQUIRE))
		reclaim_settle(&fixture_lc, 200000);
	return NULL;
}

static int tell_again(void)
{
	for (int i = 0; i < 3; i++)
		reclaim_kick(&fixture_lc);
	return 0;
}

/* Without the mend every tenth child or so hung: threads that had been woken, and were not there to leave. */
static void forked_child_waits_for_no_waiter_of_its_parent(void **state)
{
	pthread_t waiters[WAITERS];
	int found = 0;

	ranked_lock(&fixture_lc.reclaim.lock);
	fixture_lc.reclaim.giving_back++; /* what the waiters wait for */
	ranked_unlock(&fixture_lc.reclaim.lock);
	__atomic_store_n(&waiters_end, false, __ATOMIC_RELEASE);
	for (int i = 0; i < WAITERS; i++)
		assert_int_equal(pthread_create(&waiters[i], NULL, wait_again_and_again, NULL), 0);
	for (int i = 0; i < FORKS && !found; i++) {
		reclaim_kick(&fixture_lc);
		found = in_child(tell_again);
	}
	__atomic_store_n(&waiters_end, true, __ATOMIC_RELEASE);
	for (int i = 0; i < WAITERS; i++)
		pthread_join(waiters[i], NULL);
	ranked_lock(&fixture_lc.reclaim.lock);
	fixture_lc.reclaim.giving_back--;
	ranked_unlock(&fixture_lc.reclaim.lock);
	assert_int_equal(found, 0);
}

/* ---- lists ---- */

/* A fork within a driver call: in the child the call returns into a list that was forgotten. No process is needed for that. */
static CUresult forgotten_within_record(CUcontext context, CUevent event)
{
	contexts_forget(&fixture_lc.contexts);
	cuEventDestroy(event); /* a destroyed context takes its events along */
	return CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

static CUresult forgotten_within_destroy(CUevent event)
{
	CUresult result = cuEventDestroy(event);

	contexts_forget(&fixture_lc.contexts);
	return result;
}

static void contexts_forgotten_within_a_mark_stay_forgotten(void **state)
{
	struct driver driver = fixture_lc.driver;
	struct context_mark marks[MARKS_MAX];
	CUcontext context;
	size_t count;

	assert_int_equal(cuCtxGetCurrent(&context), CUDA_SUCCESS);
	lifecycle_context_seen(&fixture_lc, context, 0);
	fixture_lc.driver.CtxRecordEvent = forgotten_within_record;
	assert_int_equal(contexts_mark(&fixture_lc.contexts, marks, MARKS_MAX, &count), CUDA_SUCCESS);
	fixture_lc.driver = driver;
	assert_int_equal(count, 0);
	assert_int_equal(fixture_lc.contexts.count, 0);
}

static void contexts_forgotten_within_a_refused_end_stay_forgotten(void **state)
{
	struct driver driver = fixture_lc.driver;
	struct context_end end;
	struct context_mark marks[MARKS_MAX];
	CUcontext context;
	size_t count;

	assert_int_equal(cuCtxGetCurrent(&context), CUDA_SUCCESS);
	lifecycle_context_seen(&fixture_lc, context, 0);
	lifecycle_context_end_begin(&fixture_lc, context, &end);
	lifecycle_context_seen(&fixture_lc, context, 0);
	/* an event to keep, which is destroyed with what was noted meanwhile */
	assert_int_equal(contexts_mark(&fixture_lc.contexts, marks, MARKS_MAX, &count), CUDA_SUCCESS);
	while (count)
		context_mark_give_back(&fixture_lc.contexts, &marks[--count]);
	fixture_lc.driver.EventDestroy = forgotten_within_destroy;
	lifecycle_context_end(&fixture_lc, &end, false);
	fixture_lc.driver = driver;
	assert_int_equal(fixture_lc.contexts.count, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(locks_held_by_the_forking_thread_are_free_in_its_child),
		TEST(locks_held_by_another_thread_are_free_in_a_forked_child),
		TEST(device_that_another_thread_prepares_is_unusable_in_a_forked_child),
		TEST(forked_child_waits_for_no_waiter_of_its_parent),
		TEST(contexts_forgotten_within_a_mark_stay_forgotten),
		TEST(contexts_forgotten_within_a_refused_end_stay_forgotten),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
