/* tests/sim/interpose/forks.c
 * usage: forks locks|waits
 * One thread is kept inside a driver call that is made for it, another forks within a call of its own, and the child goes on
 * with that: what it meets there was left by a thread that it does not have. Without Sublet nothing is kept and nobody
 * forks. What happened is told on stderr.
 *   locks  the kept thread frees and holds what is held while its marks are made; the other one is about to make some
 *   waits  the kept thread's free synchronises the context that the other one lets go of, which waits for it (SUBLET_FREE=sync) */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "work.h"

#include "tools/sim/sim.h"

#define CHILD_ALARM_S 10
#define PATIENCE_MS 20000
#define FORK_AFTER_US 50000

static const char *kept_in, *forks_in;
static pthread_t program_thread;
static CUcontext context;
static CUdeviceptr freed_by_kept;
static int result_of_kept;
static bool kept, let_go, kept_is_done, forks_now, is_child; /* atomic, but for the last */
static unsigned happened, wrong;

static bool is_set(const bool *flag)
{
	return __atomic_load_n(flag, __ATOMIC_ACQUIRE);
}

static void set(bool *flag, bool value)
{
	__atomic_store_n(flag, value, __ATOMIC_RELEASE);
}

static void wait_for(const bool *flag, const bool *other)
{
	for (int i = 0; i < PATIENCE_MS && !is_set(flag) && !is_set(other); i++)
		usleep(1000);
}

static void on_call(void (*hook)(const char *symbol))
{
	__typeof__(&sublet_sim_on_call) hand_over = (__typeof__(hand_over))dlsym(RTLD_DEFAULT, "sublet_sim_on_call");

	if (!hand_over) {
		printf("not the simulated driver\n");
		exit(1);
	}
	hand_over(hook);
}

static void fork_once(int number)
{
	int status = -1;
	pid_t child;

	(void)number;
	if (!is_set(&forks_now))
		return;
	set(&forks_now, false);
	happened++;
	child = fork();
	if (child == 0) {
		is_child = true;
		signal(SIGALRM, SIG_DFL);
		alarm(CHILD_ALARM_S); /* a hang ends it */
		on_call(NULL);
		return;
	}
	if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
		wrong++;
	set(&let_go, true);
}

static void hook(const char *symbol)
{
	if (!pthread_equal(pthread_self(), program_thread)) {
		if (strcmp(symbol, kept_in) == 0 && !is_set(&kept)) {
			set(&kept, true);
			wait_for(&let_go, &let_go);
		}
	} else if (strcmp(symbol, forks_in) == 0) {
		fork_once(0);
	}
}

static void *keep(void *arg)
{
	(void)arg;
	cuCtxSetCurrent(context);
	result_of_kept = (int)cuMemFree_v2(freed_by_kept);
	set(&kept_is_done, true);
	return NULL;
}

/* Sublet's own thread has no part in this, and of the program's only this one is to be interrupted. */
static pthread_t start_kept(void)
{
	sigset_t timer, before;
	pthread_t thread;

	sigemptyset(&timer);
	sigaddset(&timer, SIGALRM);
	pthread_sigmask(SIG_BLOCK, &timer, &before);
	if (pthread_create(&thread, NULL, keep, NULL) != 0)
		exit(1);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	wait_for(&kept, &kept_is_done);
	return thread;
}

int main(int argc, char **argv)
{
	bool waits = argc > 1 && strcmp(argv[1], "waits") == 0;
	struct itimerval timer = {.it_interval.tv_usec = FORK_AFTER_US, .it_value.tv_usec = FORK_AFTER_US}, none = {0};
	CUdeviceptr freed = 0;
	pthread_t thread;
	int result;

	kept_in = waits ? "cuCtxSynchronize" : "cuCtxRecordEvent";
	forks_in = waits ? "" : "cuThreadExchangeStreamCaptureMode";
	program_thread = pthread_self();
	SAY(cuInit(0));
	SAY(cuDevicePrimaryCtxRetain(&context, 0));
	SAY(cuDevicePrimaryCtxRetain(&context, 0));
	SAY(cuCtxSetCurrent(context));
	SAY(cuMemAlloc_v2(&freed_by_kept, WORK_BYTES));
	SAY(cuMemAlloc_v2(&freed, WORK_BYTES));
	on_call(hook);
	thread = start_kept();
	if (waits) {
		signal(SIGALRM, fork_once);
		set(&forks_now, is_set(&kept));
		setitimer(ITIMER_REAL, &timer, NULL);
		result = (int)cuDevicePrimaryCtxRelease_v2(0);
		if (!is_child)
			setitimer(ITIMER_REAL, &none, NULL);
	} else {
		set(&forks_now, is_set(&kept));
		result = (int)cuMemFree_v2(freed);
	}
	/* whatever a child was told: CUDA is not for it */
	if (is_child)
		_exit(0);
	set(&forks_now, false);
	set(&let_go, true);
	pthread_join(thread, NULL);
	on_call(NULL);
	printf("the forking call: %d\nthe kept one: %d\n", result, result_of_kept);
	if (waits)
		SAY(cuMemFree_v2(freed));
	SAY(cuCtxSynchronize());
	printf("children that ended badly: %u\n", wrong);
	fprintf(stderr, "happened %u times\n", happened);
	return 0;
}
