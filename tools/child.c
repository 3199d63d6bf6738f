/* tools/child.c
 * fork, wait with a deadline, kill. */
#include "tools/child.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

enum {
	POLL_NS = 2000000, /* short beside what a child does: dlopen of a driver alone takes longer */
	KILL_WAIT_MS = 1000,
};

struct returned {
	volatile bool is_set;
	volatile int number;
};

void *child_memory(size_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	return memory == MAP_FAILED ? NULL : memory;
}

/* True when the child has ended in time; then *@ret_status is what waitpid says. */
static bool wait_for(pid_t pid, unsigned int timeout_ms, int *ret_status)
{
	uint64_t deadline = clock_now_ns() + timeout_ms * CLOCK_NS_PER_MS;

	for (;;) {
		bool late = clock_now_ns() >= deadline;
		pid_t got = waitpid(pid, ret_status, WNOHANG);

		if (got == pid)
			return true;
		/* asked once more after the deadline: this process may not have run for a while */
		if (late)
			return false;
		clock_sleep_ns(POLL_NS);
	}
}

static void be_child(int (*function)(void *arg), void *arg, struct returned *returned)
{
	const struct rlimit none = {0};

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setrlimit(RLIMIT_CORE, &none);
	dup2(STDERR_FILENO, STDOUT_FILENO);
	returned->number = function(arg);
	returned->is_set = true;
	_exit(0);
}

struct child_outcome child_run(int (*function)(void *arg), void *arg, unsigned int timeout_ms)
{
	struct returned *returned = child_memory(sizeof(*returned));
	struct child_outcome outcome = {CHILD_NOT_STARTED, errno};
	int status = 0;
	pid_t pid;

	if (!returned)
		return outcome;
	fflush(NULL); /* exit() in the child would print it a second time */
	pid = fork();
	if (pid == 0)
		be_child(function, arg, returned);
	outcome.number = errno;
	if (pid > 0) {
		if (!wait_for(pid, timeout_ms, &status)) {
			outcome = (struct child_outcome){CHILD_HUNG, 0};
			kill(pid, SIGKILL);
			wait_for(pid, KILL_WAIT_MS, &status);
		} else if (WIFSIGNALED(status)) {
			outcome = (struct child_outcome){CHILD_CRASHED, WTERMSIG(status)};
		} else if (returned->is_set) {
			outcome = (struct child_outcome){CHILD_RETURNED, returned->number};
		} else {
			outcome = (struct child_outcome){CHILD_LEFT, WEXITSTATUS(status)};
		}
	}
	munmap(returned, sizeof(*returned));
	return outcome;
}
