/* tests/sim/interpose/work.h
 * What the programs and plugins here do with the driver, however they came by its functions: a managed and a small
 * allocation, written, read back and freed. All that is printed is the same with and without Sublet. */
#ifndef SUBLET_TESTS_INTERPOSE_WORK_H
#define SUBLET_TESTS_INTERPOSE_WORK_H

#include <stddef.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* The names of the exports, not those that cuda.h makes of them. */
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#define WORK_BYTES ((size_t)4 << 20)
#define WORK_SMALL_BYTES ((size_t)64 << 10)

/* Line-buffered output survives what ends a process, and a forked child does not print it again. */
#define SAY(call) say(#call, (int)(call))

static inline int say(const char *call, int result)
{
	int length = 0;

	/* up to the arguments: those differ with the way */
	while (call[length] && call[length] != '(')
		length++;
	printf("%.*s %d\n", length, call, result);
	fflush(stdout);
	return result;
}

#define WORK_CALLS(X)                                                                                                  \
	X(cuInit)                                                                                                      \
	X(cuDevicePrimaryCtxRetain)                                                                                    \
	X(cuCtxSetCurrent)                                                                                             \
	X(cuMemAlloc_v2)                                                                                               \
	X(cuMemFree_v2)                                                                                                \
	X(cuMemGetInfo_v2)                                                                                             \
	X(cuMemGetAddressRange_v2)                                                                                     \
	X(cuMemsetD8_v2)                                                                                               \
	X(cuMemcpyDtoH_v2)                                                                                             \
	X(cuCtxSynchronize)

struct work_calls {
#define X(symbol) __typeof__(&symbol) symbol;
	WORK_CALLS(X)
#undef X
};

/* 0, or the exit status 1 when @find does not know one of them. */
static inline int work_find(struct work_calls *calls, void *(*find)(const char *symbol))
{
#define X(symbol)                                                                                                      \
	calls->symbol = (__typeof__(&symbol))find(#symbol);                                                            \
	if (!calls->symbol) {                                                                                          \
		printf("no %s\n", #symbol);                                                                            \
		return 1;                                                                                              \
	}
	WORK_CALLS(X)
#undef X
	return 0;
}

/* As a macro, so that a linked program makes its calls through its own tables (WORK(cuda_) with nothing before the name). */
#define WORK(from)													\
	do {														\
		CUdeviceptr work_big = 0, work_small = 0, work_base = 0;						\
		size_t work_free, work_total, work_bytes = 0;								\
		static unsigned char work_back[WORK_BYTES];								\
		unsigned work_sum = 0;											\
		CUcontext work_context;											\
															\
		SAY(from cuInit(0));											\
		SAY(from cuDevicePrimaryCtxRetain(&work_context, 0));							\
		SAY(from cuCtxSetCurrent(work_context));								\
		SAY(from cuMemAlloc_v2(&work_big, WORK_BYTES));								\
		SAY(from cuMemAlloc_v2(&work_small, WORK_SMALL_BYTES));							\
		SAY(from cuMemGetInfo_v2(&work_free, &work_total));							\
		SAY(from cuMemGetAddressRange_v2(&work_base, &work_bytes, work_big + 5));				\
		printf("range %d %zu\n", work_base == work_big, work_bytes);						\
		SAY(from cuMemsetD8_v2(work_big, 7, WORK_BYTES));							\
		SAY(from cuMemsetD8_v2(work_small, 9, WORK_SMALL_BYTES));						\
		SAY(from cuMemcpyDtoH_v2(work_back, work_big, WORK_BYTES));						\
		for (size_t i = 0; i < WORK_BYTES; i++)									\
			work_sum += work_back[i];									\
		SAY(from cuMemcpyDtoH_v2(work_back, work_small, WORK_SMALL_BYTES));					\
		for (size_t i = 0; i < WORK_SMALL_BYTES; i++)								\
			work_sum += work_back[i];									\
		printf("sum %u of %zu\n", work_sum, work_total);							\
		SAY(from cuMemFree_v2(work_big));									\
		SAY(from cuMemFree_v2(work_small));									\
		SAY(from cuMemFree_v2(work_small));									\
		SAY(from cuCtxSynchronize());										\
	} while (0)

#endif
