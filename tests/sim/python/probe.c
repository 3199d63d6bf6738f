/* tests/sim/python/probe.c
 * The Python stack reader for programs in Python to call by ctypes: CDLL releases the GIL around a call, PyDLL keeps
 * it. Knows nothing of Python itself, so one build serves every interpreter. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "lifecycle/callers/python.h"

#define EXPORTED __attribute__((visibility("default")))

EXPORTED void probe_prepare(void);
EXPORTED void probe_describe(char *text, size_t room);
EXPORTED int probe_frames(char *text, size_t room);
EXPORTED int probe_frames_without_python(char *text, size_t room);
EXPORTED int probe_frames_with_mutex(char *text, size_t room);
EXPORTED int probe_mutex_is_held(void);
EXPORTED int probe_wait_for_mutex(void);
EXPORTED double probe_median_us(int times);
EXPORTED double probe_median_us_without_python(int times);
EXPORTED int probe_fork_frames(char *text, size_t room);

void probe_prepare(void)
{
	python_prepare();
}

void probe_describe(char *text, size_t room)
{
	python_describe(text, room);
}

/* The frames, one a line, in @text; the count. -1: there was no room, -2: errno or the signal mask was changed. */
int probe_frames(char *text, size_t room)
{
	const char *frames[PYTHON_FRAMES_MAX];
	sigset_t before, after;
	size_t count, at = 0;

	/* the kernel writes the part that it knows */
	memset(&before, 0, sizeof(before));
	memset(&after, 0, sizeof(after));
	sigprocmask(SIG_BLOCK, NULL, &before);
	errno = EXDEV;
	count = python_frames(frames, PYTHON_FRAMES_MAX);
	if (errno != EXDEV)
		return -2;
	sigprocmask(SIG_BLOCK, NULL, &after);
	if (memcmp(&before, &after, sizeof(before)) != 0)
		return -2;
	for (size_t i = 0; i < count; i++) {
		size_t length = strlen(frames[i]);

		if (length + 2 > room - at)
			return -1;
		memcpy(text + at, frames[i], length);
		at += length;
		text[at++] = '\n';
	}
	text[at] = '\0';
	return (int)count;
}

struct call {
	char *text;
	size_t room;
	int count;
};

static void *frames_of_thread(void *arg)
{
	struct call *call = arg;

	call->count = probe_frames(call->text, call->room);
	return NULL;
}

/* The same in a thread that Python has never seen. */
int probe_frames_without_python(char *text, size_t room)
{
	struct call call = {text, room, -3};
	pthread_t thread;

	if (pthread_create(&thread, NULL, frames_of_thread, &call) != 0)
		return -3;
	pthread_join(thread, NULL);
	return call.count;
}

/* As an allocator has one, held while it allocates. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static bool is_held, is_awaited; /* atomic */

static bool await(const bool *flag)
{
	for (int i = 0; i < 20000; i++) {
		if (__atomic_load_n(flag, __ATOMIC_ACQUIRE))
			return true;
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
	return false;
}

/* To be called with the GIL released: takes the mutex, waits until another thread waits for it with the GIL held, then
 * reads. */
int probe_frames_with_mutex(char *text, size_t room)
{
	int count = -4;

	pthread_mutex_lock(&mutex);
	__atomic_store_n(&is_held, true, __ATOMIC_RELEASE);
	if (await(&is_awaited)) {
		/* it said so just before it waits */
		nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
		count = probe_frames(text, room);
	}
	pthread_mutex_unlock(&mutex);
	return count;
}

int probe_mutex_is_held(void)
{
	return __atomic_load_n(&is_held, __ATOMIC_ACQUIRE);
}

/* To be called with the GIL held, once the mutex is: 0 when the mutex came free within 20 s. */
int probe_wait_for_mutex(void)
{
	struct timespec until;
	int error;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 20;
	__atomic_store_n(&is_awaited, true, __ATOMIC_RELEASE);
	error = pthread_mutex_timedlock(&mutex, &until);
	if (!error)
		pthread_mutex_unlock(&mutex);
	return error;
}

/* The median of @times readings, in microseconds. */
double probe_median_us(int times)
{
	static double took[10000];
	const char *frames[PYTHON_FRAMES_MAX];

	if (times > 10000)
		times = 10000;
	for (int i = 0; i < times; i++) {
		struct timespec from, to;
		int at = i;

		clock_gettime(CLOCK_MONOTONIC, &from);
		python_frames(frames, PYTHON_FRAMES_MAX);
		clock_gettime(CLOCK_MONOTONIC, &to);
		double now = (double)(to.tv_sec - from.tv_sec) * 1e6 + (double)(to.tv_nsec - from.tv_nsec) / 1e3;

		for (; at > 0 && took[at - 1] > now; at--)
			took[at] = took[at - 1];
		took[at] = now;
	}
	return took[times / 2];
}

static void *median_of_thread(void *arg)
{
	double *median = arg;

	*median = probe_median_us((int)*median);
	return NULL;
}

/* The same in a thread that Python has never seen. */
double probe_median_us_without_python(int times)
{
	double median = times;
	pthread_t thread;

	if (pthread_create(&thread, NULL, median_of_thread, &median) != 0)
		return -1;
	pthread_join(thread, NULL);
	return median;
}

/* In a child that Python was not told of: the count there plus 1, by exit status. */
int probe_fork_frames(char *text, size_t room)
{
	pid_t child = fork();

	if (child == 0)
		_exit(probe_frames(text, room) + 1);
	return (int)child;
}
