/* tests/cli/forker.c
 * A CUDA program whose page must stay its own whatever it does with processes and its environment. Takes 4 MiB and does
 * what its word says, and whether its page is there afterwards.
 *   early-fork   a call before cuInit, a fork, and then both start the driver, the child taking 32 MiB
 *   _Fork clone  a child in which no fork handler runs ends by exit
 *   unsetenv     the environment is emptied before the end */
#include <cuda.h>
#include <dirent.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static char session[4096];

static void take(size_t mib)
{
	CUcontext context;
	CUdeviceptr address;

	if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) ||
		cuMemAlloc(&address, mib << 20))
		_exit(97);
}

/* "<who> has its page": the one of this process is there. */
static void say_page(const char *who)
{
	char path[4200];

	snprintf(path, sizeof(path), "%s/proc-%d.stats", session, (int)getpid());
	printf("%s %s\n", who, access(path, F_OK) == 0 ? "has its page" : "has no page");
	fflush(stdout);
}

static int wait_for(pid_t child)
{
	int how;

	return waitpid(child, &how, 0) == child && WIFEXITED(how) ? WEXITSTATUS(how) : 96;
}

int main(int argc, char **argv)
{
	const char *word = argc > 1 ? argv[1] : "";
	pid_t child;

	snprintf(session, sizeof(session), "%s", getenv("SUBLET_SESSION"));
	if (strcmp(word, "early-fork") == 0) {
		CUdeviceptr address;

		if (cuMemAlloc(&address, 4 << 20) != CUDA_ERROR_NOT_INITIALIZED)
			return 95;
		child = fork();
		if (child == 0) {
			take(32);
			say_page("child");
			exit(0);
		}
		if (wait_for(child))
			return 94;
		take(4);
		say_page("parent");
		return 0;
	}
	take(4);
	if (strcmp(word, "unsetenv") == 0)
		return clearenv();
	child = strcmp(word, "clone") == 0 ? (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) : _Fork();
	if (child == 0)
		exit(0); /* the handlers of atexit run */
	if (wait_for(child))
		return 93;
	say_page("parent");
	usleep(300000); /* time enough to be seen running */
	return 0;
}
