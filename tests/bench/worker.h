/* tests/bench/worker.h
 * What a measuring program shares: the driver's calls by one of two ways, a clock, and the conversation with bench.py.
 * A worker says "ready", then answers each line of its input with one line; plain and Sublet workers live side by side
 * and are asked in turn, so that a drift of the machine meets both alike. Header-only: each worker is one file.
 *
 *   -DVIA_LINK   linked with -lcuda
 *   -DVIA_DLSYM  dlopen of libcuda.so.1, then dlsym */
#ifndef SUBLET_TESTS_BENCH_WORKER_H
#define SUBLET_TESTS_BENCH_WORKER_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* sched_setaffinity */
#endif

#include <cuda.h>

#include <dlfcn.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)

#if defined(VIA_LINK)
#define DRV(name) name
#define DRIVER_TABLE(CALLS)                                                                                            \
	static void resolve_all(void)                                                                                  \
	{                                                                                                              \
	}
#elif defined(VIA_DLSYM)
#define DRV(name) p_##name
#define DECLARE_CALL(name) static __typeof__(&name) p_##name;
#define RESOLVE_CALL(name)                                                                                             \
	p_##name = (__typeof__(&name))dlsym(driver, TEXT(name));                                                       \
	if (!p_##name) {                                                                                               \
		fprintf(stderr, "the driver has no '%s'\n", TEXT(name));                                               \
		exit(1);                                                                                               \
	}
#define DRIVER_TABLE(CALLS)                                                                                            \
	CALLS(DECLARE_CALL)                                                                                            \
	static void resolve_all(void)                                                                                  \
	{                                                                                                              \
		void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);                                          \
                                                                                                                       \
		if (!driver) {                                                                                         \
			fprintf(stderr, "%s\n", dlerror());                                                            \
			exit(1);                                                                                       \
		}                                                                                                      \
		CALLS(RESOLVE_CALL)                                                                                    \
	}
#else
#error "compile with -DVIA_LINK or -DVIA_DLSYM"
#endif

#define CHECK(call)                                                                                                    \
	do {                                                                                                           \
		CUresult check_code = (call);                                                                          \
		if (check_code != CUDA_SUCCESS) {                                                                      \
			fprintf(stderr, "%s:%d: %s: CUresult %d\n", __FILE__, __LINE__, #call, (int)check_code);       \
			exit(1);                                                                                       \
		}                                                                                                      \
	} while (0)

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Keep the calling thread on one processor, the same in every worker: they never run at the same time. Call it after
 * the driver has made its threads, which would inherit the choice. */
static void stay_on_one_processor(void)
{
	cpu_set_t allowed, one;
	int wanted, seen = 0;

	if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0)
		return;
	wanted = CPU_COUNT(&allowed) / 2;
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, &allowed) || seen++ != wanted)
			continue;
		CPU_ZERO(&one);
		CPU_SET(cpu, &one);
		sched_setaffinity(0, sizeof(one), &one);
		return;
	}
}

/* One command of a worker: prints its one line of answer. */
struct worker_command {
	const char *name;
	void (*run)(unsigned long long a, unsigned long long b);
};

/* Until "quit" or the end of input. */
static int serve(const struct worker_command *commands)
{
	char line[256], name[64];

	printf("ready\n");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		const struct worker_command *command;
		unsigned long long a = 0, b = 0;

		if (sscanf(line, "%63s %llu %llu", name, &a, &b) < 1 || strcmp(name, "quit") == 0)
			break;
		for (command = commands; command->name && strcmp(command->name, name) != 0; command++)
			;
		if (!command->name) {
			fprintf(stderr, "unknown command '%s'\n", name);
			return 2;
		}
		command->run(a, b);
		fflush(stdout);
	}
	return 0;
}

#endif
