/* tests/bench/callers.c
 * How long a native stack of 40 frames takes that goes through the program and ten libraries, its texts included: the first one of a
 * process, the first one from another function, and any later one. Prints processor time in microseconds (the later ones: median of
 * many), and fails above the bar: with the Python stack 50 us (DESIGN.md 7). */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/errors.h"
#include "lifecycle/callers/native.h"

enum { FRAMES = 40, RUNS = 2001, LIBRARIES = 10 };
static const double bar_us = 35;

typedef void (*reader)(void *arg);
typedef void (*function)(reader read, void *arg); /* of a library; two more of its functions stand between it and @read */

static const char *const names[LIBRARIES] = {
	"plain", "errno", "descriptors", "fork", "threads", "replaced", "loader", "list", "twin1", "twin2"};
static function functions[LIBRARIES];
static double times[RUNS];
static size_t frames;
static const char *texts[FRAMES];

static double used_us(void)
{
	struct timespec t;

	/* of this thread, so that a loaded machine gives the same answer */
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static __attribute__((noinline)) double read_us(void)
{
	double start = used_us();

	frames = native_stack(NULL, texts, FRAMES);
	return used_us() - start;
}

/* Goes through the libraries from @next on, and reads the stack behind the last. */
static void descend(void *arg)
{
	uintptr_t next = (uintptr_t)arg;

	if (next < LIBRARIES) {
		functions[next](descend, (void *)(next + 1));
	} else {
		for (int i = 0; i < RUNS; i++)
			times[i] = read_us();
	}
	__asm__ volatile("" : : : "memory"); /* keeps the call from being a jump */
}

static int by_value(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

static void load(int number)
{
	char path[4096], name[64];
	void *handle;

	snprintf(path, sizeof(path), "%s/lib%s.so", getenv("SUBLET_TEST_PLUGINS"), names[number]);
	snprintf(name, sizeof(name), "%s_outer", names[number]);
	handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	functions[number] = handle ? (function)dlsym(handle, name) : NULL;
	if (!functions[number]) {
		fprintf(stderr, "callers bench: %s\n", dlerror());
		exit(1);
	}
}

int main(void)
{
	struct errinfo error;

	native_own_code = NULL; /* the functions here are in one object with the library's */
	if (!native_prepare(&error)) {
		fprintf(stderr, "callers bench: %s\n", error.text);
		return 1;
	}
	for (int i = 0; i < LIBRARIES; i++)
		load(i);
	descend((void *)0);
	printf("%-64s %8.1f us\n", "native stack of 40 frames, 11 objects, the first of the process", times[0]);
	descend((void *)0);
	printf("%-64s %8.1f us\n", "the first from another function", times[0]);
	qsort(times, RUNS, sizeof(*times), by_value);
	printf("%-64s %8.2f us (p99 %.2f)\n", "a later one, median", times[RUNS / 2], times[RUNS * 99 / 100]);
	if (frames != FRAMES || !texts[2] || strcmp(texts[2], "libtwin2.so:twin2_inner") != 0) {
		fprintf(stderr, "callers bench: %zu frames, the third is '%s'\n", frames, frames > 2 && texts[2] ? texts[2] : "none");
		return 1;
	}
	if (times[RUNS / 2] > bar_us) {
		fprintf(stderr, "callers bench: above the bar of %.0f us\n", bar_us);
		return 1;
	}
	return 0;
}
