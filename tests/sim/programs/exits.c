/* tests/sim/programs/exits.c HOW
 * A process ends while allocations are live: by return, by exit from another thread or a signal handler, with handlers that
 * still use the driver, by _exit, by a signal. */
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "program.h"

static CUdeviceptr held, spare;
static CUcontext context;

static void last_words(void)
{
	CUdeviceptr at;

	printf("atexit\n");
	TRY(cuMemFree(spare));
	TRY(cuMemAlloc(&at, 2 * MIB));
	TRY(cuMemsetD8(at, 1, 2 * MIB));
	program_show_bytes("held", held, MIB);
	TRY(cuMemFree(at));
}

static void *end_it(void *arg)
{
	(void)arg;
	exit(11);
}

static void on_signal(int number)
{
	(void)number;
	exit(12);
}

static void on_signal__exit(int number)
{
	(void)number;
	_exit(13);
}

static void *take_and_free(void *arg)
{
	CUdeviceptr at;

	(void)arg;
	NEED(cuCtxSetCurrent(context));
	/* until the process ends: an error then is no news */
	while (cuMemAlloc(&at, 2 * MIB) == CUDA_SUCCESS && cuMemFree(at) == CUDA_SUCCESS)
		;
	pause();
	return NULL;
}

/* exit from a handler in the middle of an allocation or a free: not allowed, and done. Many times, to hit every place. */
static int ends_anywhere(void)
{
	for (int i = 0; i < 24; i++) {
		int status = -1;
		pid_t child = fork();

		if (child == 0) {
			context = program_start();
			signal(SIGALRM, on_signal);
			ualarm((useconds_t)(3000 + 137 * i), 0);
			take_and_free(NULL);
		}
		waitpid(child, &status, 0);
		printf("child ended with %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
	}
	return 0;
}

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "";
	pthread_t thread;

	program_begin();
	if (strcmp(how, "exit_anywhere") == 0)
		return ends_anywhere();
	if (strcmp(how, "atexit_before") == 0)
		atexit(last_words);
	context = program_start();
	NEED(cuMemAlloc(&held, 8 * MIB));
	NEED(cuMemAlloc(&spare, 4 * MIB));
	NEED(cuMemsetD8(held, 0x71, 8 * MIB));
	printf("ends by %s\n", how);
	if (strcmp(how, "atexit_after") == 0)
		atexit(last_words);
	if (strcmp(how, "thread") == 0) {
		pthread_create(&thread, NULL, end_it, NULL);
		pthread_join(thread, NULL);
	} else if (strcmp(how, "busy") == 0) {
		for (int i = 0; i < 4; i++)
			pthread_create(&thread, NULL, take_and_free, NULL);
		usleep(20000);
		return 10;
	} else if (strcmp(how, "exit_in_handler") == 0) {
		signal(SIGUSR1, on_signal);
		raise(SIGUSR1);
	} else if (strcmp(how, "_exit_in_handler") == 0) {
		signal(SIGALRM, on_signal__exit);
		ualarm(20000, 0);
		take_and_free(NULL);
	} else if (strcmp(how, "_exit") == 0) {
		_exit(14);
	} else if (strcmp(how, "killed") == 0) {
		raise(SIGKILL);
	} else if (strcmp(how, "aborted") == 0) {
		abort();
	}
	return 0;
}
