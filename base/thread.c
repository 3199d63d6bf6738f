/* base/thread.c
 * No lock, no allocation but the thread's own. */
#include "base/thread.h"

#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int thread_start(pthread_t *ret_thread, void *(*body)(void *arg), void *arg)
{
	sigset_t all, before;
	int error;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(ret_thread, NULL, body, arg);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return error;
}

void word_wait(const unsigned *word, unsigned value, uint64_t ns)
{
	struct timespec wait = {.tv_sec = (time_t)(ns / 1000000000ull), .tv_nsec = (long)(ns % 1000000000ull)};

	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, ns == WAIT_FOR_GOOD ? NULL : &wait, NULL, 0);
}

void word_wake(const unsigned *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}
