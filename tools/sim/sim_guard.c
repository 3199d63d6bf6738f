/* tools/sim/sim_guard.c
 * Faults of the simulated device: a kernel or a copy that touches memory that is not mapped loses its context with
 * CUDA_ERROR_ILLEGAL_ADDRESS, as on hardware, and not the process. Faults of anything else go where they went before. */
#include "tools/sim/sim_exec.h"

#include <setjmp.h>
#include <signal.h>

static __thread sigjmp_buf *guard;
static struct sigaction previous[2]; /* SEGV, BUS */
static const int numbers[2] = {SIGSEGV, SIGBUS};

static void on_fault(int number, siginfo_t *info, void *ucontext)
{
	struct sigaction *before = &previous[number == SIGBUS];

	if (guard)
		siglongjmp(*guard, 1);
	if (before->sa_flags & SA_SIGINFO) {
		before->sa_sigaction(number, info, ucontext);
	} else if (before->sa_handler != SIG_IGN && before->sa_handler != SIG_DFL) {
		before->sa_handler(number);
	} else {
		signal(number, SIG_DFL);
		raise(number);
	}
}

/* A program may have set its own handlers since the last time (Python's faulthandler does, test frameworks do for each
 * test): they become the previous ones. */
void sim_guard_install(void)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	/* NODEFER: the jump out of the handler then needs no signal mask restored, which would be a system call per kernel. */
	struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER}, now;

	pthread_mutex_lock(&lock);
	for (int i = 0; i < 2; i++) {
		if (sigaction(numbers[i], NULL, &now) == 0 && now.sa_sigaction != on_fault) {
			previous[i] = now;
			sigaction(numbers[i], &action, NULL);
		}
	}
	pthread_mutex_unlock(&lock);
}

void sim_guard_run(const struct sim_work *work, struct sim_context *ctx)
{
	sigjmp_buf here, *outer = guard;

	guard = &here;
	if (sigsetjmp(here, 0) == 0)
		work->kind->run(work->arg);
	else
		ctx->sticky = CUDA_ERROR_ILLEGAL_ADDRESS;
	guard = outer;
}
