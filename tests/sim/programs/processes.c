/* tests/sim/programs/processes.c HOW
 * A process that uses the device starts others: by fork, with the child leaving the driver alone, trying to use it, or using
 * it first; by fork and exec, vfork and posix_spawn. The parent's memory is its own all the while. */
#include <pthread.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "program.h"

extern char **environ;

static char *self;
static CUdeviceptr held;

static void wait_for(pid_t child)
{
	int status = 0;

	SHOW(child > 0 && waitpid(child, &status, 0) == child);
	if (WIFEXITED(status))
		printf("child ended with %d\n", WEXITSTATUS(status));
	else
		printf("child was ended by %d\n", WTERMSIG(status));
}

/* The whole life of a process with a device. */
static void live(size_t bytes)
{
	CUdeviceptr at;

	program_start();
	NEED(cuMemAlloc(&at, bytes));
	NEED(cuMemsetD8(at, 0x66, bytes));
	program_show_bytes("own", at, bytes);
	TRY(cuMemFree(at));
}

static void use_after_fork(void)
{
	CUdeviceptr at = 1;
	size_t free_bytes, total;
	CUdevice device;

	TRY(cuInit(0));
	TRY(cuDeviceGet(&device, 0));
	TRY(cuMemAlloc(&at, 4 * MIB));
	TRY(cuMemAlloc(&at, 64));
	TRY(cuMemGetInfo(&free_bytes, &total));
	TRY(cuMemGetAddressRange(NULL, NULL, held));
	TRY(cuMemsetD8(held, 1, 1));
	TRY(cuMemFree(held));
	TRY(cuCtxSynchronize());
}

static volatile int busy = 1;

static void *take_and_free(void *context)
{
	CUdeviceptr at;

	NEED(cuCtxSetCurrent(context));
	while (busy) {
		NEED(cuMemAlloc(&at, 2 * MIB));
		NEED(cuMemFree(at));
	}
	return NULL;
}

/* Threads are in the middle of everything when the fork happens; the children must come through. */
static void fork_under_load(CUcontext context)
{
	pthread_t threads[3];

	for (int i = 0; i < 3; i++)
		pthread_create(&threads[i], NULL, take_and_free, context);
	for (int i = 0; i < 20; i++) {
		pid_t child = fork();

		if (child == 0) {
			CUdeviceptr at;

			_exit(cuMemAlloc(&at, 4 * MIB) == CUDA_ERROR_NOT_INITIALIZED ? 3 : 4);
		}
		wait_for(child);
	}
	busy = 0;
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
}

static void start(const char *how, CUcontext context)
{
	char word[] = "child", *words[] = {self, word, NULL};
	pid_t child = -1;

	if (strcmp(how, "fork_unused") == 0) {
		child = fork();
		if (child == 0) {
			printf("in the child\n");
			exit(7);
		}
	} else if (strcmp(how, "fork_used") == 0) {
		child = fork();
		if (child == 0) {
			use_after_fork();
			exit(8);
		}
	} else if (strcmp(how, "fork_exec") == 0) {
		child = fork();
		if (child == 0) {
			execv(self, words);
			_exit(127);
		}
	} else if (strcmp(how, "vfork_exec") == 0) {
		child = vfork();
		if (child == 0) {
			execv(self, words);
			_exit(127);
		}
	} else if (strcmp(how, "spawn") == 0) {
		printf("posix_spawn -> %d\n", posix_spawn(&child, self, NULL, NULL, words, environ));
	} else if (strcmp(how, "system") == 0) {
		printf("system -> %d\n", system("echo a shell; exit 3"));
		return;
	} else if (strcmp(how, "fork_under_load") == 0) {
		fork_under_load(context);
		return;
	}
	wait_for(child);
}

int main(int argc, char **argv)
{
	CUcontext context;
	pid_t child;

	program_begin();
	self = argv[0];
	if (argc < 2)
		return 2;
	if (strcmp(argv[1], "child") == 0) {
		live(2 * MIB);
		return 6;
	}
	if (strcmp(argv[1], "fork_first") == 0) {
		child = fork();
		if (child == 0) {
			live(2 * MIB);
			exit(9);
		}
		wait_for(child);
	}
	context = program_start();
	NEED(cuMemAlloc(&held, 4 * MIB));
	NEED(cuMemsetD8(held, 0x67, 4 * MIB));
	if (strcmp(argv[1], "fork_first") != 0)
		start(argv[1], context);
	program_show_bytes("held by the parent", held, 4 * MIB);
	TRY(cuMemFree(held));
	return 0;
}
