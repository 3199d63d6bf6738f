/* tests/unit/sweep.c */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lifecycle/memory.h"
#include "tests/unit/lifecycle_fixture.h"
#include "tests/unit/sweep.h"
#include "tools/sim/sim.h"

/* A scenario makes hundreds of calls, not more: a run that never stops firing is a loop. */
#define CALLS_MAX 5000

static const char *const symbols[] = {
	"*",
#define DRIVER_CALL(symbol, field, need) #symbol,
#include "lifecycle/driver.def"
};

static char where[128];

const char *sweep_where(void)
{
	return where;
}

static void begin(const struct sweep_scenario *scenario)
{
	fixture_config = lifecycle_config_default();
	fixture_config.arena_bytes = 1ull << 40;
	fixture_config.free_wait_ns = 20000000; /* with each call failing for good there is nothing to wait for */
	if (!fixture_begin() || (scenario->prepare && !scenario->prepare()))
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
	if (seen || left)
		fail_msg("%s, %s: %s", scenario->name, where, seen ? seen : left);
}

void sweep(const struct sweep_scenario *scenario)
{
	unsigned runs = 0;

	for (size_t s = 0; s < sizeof(symbols) / sizeof(symbols[0]); s++) {
		for (int for_good = 0; for_good < 2; for_good++) {
			bool fired = true;

			for (unsigned nth = 1; fired; nth++) {
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

static unsigned calls_seen, fork_at;
static int child_status;

static void child(void)
{
	enum stats_native why;
	CUdeviceptr address = 0;
	CUresult result;

	alarm(10); /* a hang ends the child, and the test sees how it ended */
	sublet_sim_on_call(NULL);
	ranked_lock_fork_child();
	lifecycle_forget(&fixture_lc);
	if (memory_alloc(&fixture_lc, 4 * MIB, &address, &result, &why) == MEMORY_ANSWERED && result == CUDA_SUCCESS)
		_exit(2); /* CUDA does not work in a forked child */
	_exit(0);
}

static void fork_on_call(const char *symbol)
{
	pid_t pid;

	if (__atomic_add_fetch(&calls_seen, 1, __ATOMIC_RELAXED) != fork_at)
		return;
	pid = fork();
	if (pid == 0)
		child();
	if (pid < 0 || waitpid(pid, &child_status, 0) != pid)
		child_status = -1;
}

void sweep_fork(const struct sweep_scenario *scenario)
{
	bool reached = true;

	for (fork_at = 1; reached; fork_at++) {
		const char *seen;

		assert_true(fork_at < CALLS_MAX);
		snprintf(where, sizeof(where), "fork at call %u", fork_at);
		begin(scenario);
		child_status = 0;
		calls_seen = 0;
		sublet_sim_on_call(fork_on_call);
		seen = scenario->run();
		reached = calls_seen >= fork_at;
		if (child_status)
			seen = "the forked child did not end well";
		end(scenario, seen);
	}
	print_message("%s: %u forks\n", scenario->name, fork_at - 1);
}
