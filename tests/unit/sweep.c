/* tests/unit/sweep.c */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lifecycle/memory.h"
#include "tests/unit/lifecycle_fixture.h"
#include "tests/unit/sweep.h"
#include "tools/sim/sim.h"

/* A scenario makes hundreds of calls, not more: a run that never stops firing is a loop. */
#define CALLS_MAX 5000

/* A child that waits at all waits for somebody who is not there. */
#define CHILD_WAIT_NS 1000000000ull

static const char *const symbols[] = {
	"*",
#define DRIVER_CALL(symbol, field, need) #symbol,
#include "lifecycle/driver.def"
};

/* A few extents fill it: the calls of a scenario, and with them the runs of its sweep, grow with the device. */
#define CAPACITY "8GiB"

static char where[128];

/* SUBLET_TEST_STRIDE=N: each Nth call only, for checkers under which all of them take hours. */
static unsigned stride(void)
{
	const char *text = getenv("SUBLET_TEST_STRIDE");
	int every = text ? atoi(text) : 1;

	return every > 1 ? (unsigned)every : 1;
}

const char *sweep_where(void)
{
	return where;
}

static const char *child_said; /* what was wrong with a forked child; by the thread that forked, which may be the helper */

static void begin(const struct sweep_scenario *scenario)
{
	child_said = NULL;
	fixture_config = lifecycle_config_default();
	fixture_config.arena_bytes = 1ull << 40;
	fixture_config.free_wait_ns = 20000000; /* with each call failing for good there is nothing to wait for */
	if (setenv("SUBLET_SIM_CAPACITY", CAPACITY, 1) != 0 || !fixture_begin() || (scenario->prepare && !scenario->prepare()))
		fail_msg("%s: cannot be prepared", scenario->name);
}

static void end(const struct sweep_scenario *scenario, const char *seen)
{
	const char *left;

	sublet_sim_fail(NULL, 0, false, 0);
	sublet_sim_on_call(NULL);
	if (scenario->finish)
		scenario->finish();
	left = fixture_end();
	if (child_said)
		seen = child_said; /* only now has the helper ended */
	if (seen || left)
		fail_msg("%s, %s: %s", scenario->name, where, seen ? seen : left);
}

void sweep(const struct sweep_scenario *scenario)
{
	unsigned runs = 0;

	for (size_t s = 0; s < sizeof(symbols) / sizeof(symbols[0]); s++) {
		for (int for_good = 0; for_good < 2; for_good++) {
			bool fired = true;

			for (unsigned nth = 1; fired; nth += stride()) {
				const char *seen;

				assert_true(nth < CALLS_MAX);
				snprintf(where, sizeof(where), "call %u of %s fails %s", nth, symbols[s], for_good ? "for good" : "once");
				begin(scenario);
				sublet_sim_fail(symbols[s], nth, for_good, 0);
				seen = scenario->run();
				fired = sublet_sim_fail_fired();
				end(scenario, seen);
				runs++;
			}
		}
	}
	print_message("%s: %u runs\n", scenario->name, runs);
}

/* ---- forks ---- */

static const struct sweep_scenario *forking;
static unsigned calls_seen, fork_at;
static pthread_t scenario_thread;
static bool forked; /* this process is the child */

bool sweep_in_child(void)
{
	return forked;
}

/* The child's exit status says what it found; it cannot use cmocka, whose jumps lead into the parent's test. */
enum child_found {
	CHILD_WELL,
	CHILD_CAPTURE,
	CHILD_CONTEXT,
	CHILD_HELPER,
	CHILD_EXTENT,
	CHILD_MEMORY,
	CHILD_PENDING,
	CHILD_GIVING_BACK,
	CHILD_FOUND_COUNT
};

static const char *const child_words[CHILD_FOUND_COUNT] = {
	[CHILD_CAPTURE] = "a forked child remembers a capture",
	[CHILD_CONTEXT] = "a forked child remembers a context",
	[CHILD_HELPER] = "a forked child counts on a helper thread",
	[CHILD_EXTENT] = "a forked child keeps an extent for the next allocation",
	[CHILD_MEMORY] = "a forked child was given memory",
	[CHILD_PENDING] = "a forked child waits for frees",
	[CHILD_GIVING_BACK] = "a forked child waits for pages on their way back",
};

static enum child_found child_forgot(void)
{
	if (captures_any(&fixture_lc.captures))
		return CHILD_CAPTURE;
	if (fixture_lc.contexts.count || fixture_lc.contexts.peer_count)
		return CHILD_CONTEXT;
	if (fixture_lc.reclaim.thread == RECLAIM_RUNNING || !fixture_lc.reclaim.stop || fixture_lc.reclaim.busy)
		return CHILD_HELPER;
	if (fixture_lc.reclaim.head || fixture_lc.reclaim.stranded)
		return CHILD_PENDING;
	return fixture_lc.reclaim.cache[0].count ? CHILD_EXTENT : CHILD_WELL;
}

/* Nothing here may wait, or ask for a lock that nobody is left to give up: the alarm would end the child. */
static enum child_found child_use(void)
{
	enum stats_native why;
	CUdeviceptr address = 0;
	CUresult result;
	uint64_t generation;
	bool settled;

	fixture_lock_all();
	fixture_unlock_all();
	if (memory_alloc(&fixture_lc, 4 * MIB, &address, &result, &why, NULL) == MEMORY_ANSWERED && result == CUDA_SUCCESS)
		return CHILD_MEMORY;
	reclaim_kick(&fixture_lc);
	if (!reclaim_wait(&fixture_lc, CHILD_WAIT_NS))
		return CHILD_PENDING;
	reclaim_held_bytes(&fixture_lc, 0, &generation, &settled);
	return settled ? CHILD_WELL : CHILD_GIVING_BACK;
}

/* As a handler of the preloaded library does it: the child forgets, then returns into what the fork interrupted. */
static void become_child(void)
{
	enum child_found found;

	forked = true;
	fixture_child_begin();
	found = child_forgot();
	/* The helper has no caller to return to: the child would be without a thread. */
	if (found == CHILD_WELL && !pthread_equal(pthread_self(), scenario_thread))
		found = child_use();
	else if (found == CHILD_WELL)
		return;
	_exit((int)found);
}

static void child_end(void)
{
	if (forking->finish)
		forking->finish();
	_exit((int)child_use());
}

static const char *child_outcome(pid_t pid)
{
	int status;

	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return "no child could be forked";
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
		return "a forked child hangs";
	if (WIFSIGNALED(status) || WEXITSTATUS(status) >= CHILD_FOUND_COUNT)
		return "a forked child crashed";
	return child_words[WEXITSTATUS(status)];
}

static void fork_on_call(const char *symbol)
{
	pid_t pid;

	if (__atomic_add_fetch(&calls_seen, 1, __ATOMIC_RELAXED) != fork_at)
		return;
	pid = fork();
	if (pid == 0)
		become_child();
	else
		child_said = child_outcome(pid);
}

void sweep_fork(const struct sweep_scenario *scenario)
{
	bool reached = true;

	forking = scenario;
	scenario_thread = pthread_self();
	for (fork_at = 1; reached; fork_at += stride()) {
		const char *seen;

		assert_true(fork_at < CALLS_MAX);
		snprintf(where, sizeof(where), "fork at call %u", fork_at);
		begin(scenario);
		__atomic_store_n(&calls_seen, 0, __ATOMIC_RELAXED);
		sublet_sim_on_call(fork_on_call);
		seen = scenario->run();
		if (forked)
			child_end();
		reached = __atomic_load_n(&calls_seen, __ATOMIC_RELAXED) >= fork_at;
		end(scenario, seen);
	}
	print_message("%s: %u forks\n", scenario->name, fork_at - 1);
}
