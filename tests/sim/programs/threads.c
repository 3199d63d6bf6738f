/* tests/sim/programs/threads.c
 * Eight threads take, fill, copy, check and free at once, half of them through the per-thread default stream's twins, while
 * one more asks for free memory all the time. */
#include <pthread.h>
#include <stdatomic.h>

#include "program.h"

#define THREADS 8
#define ROUNDS 40

static CUcontext context;
static atomic_int wrong, stop;

static void complain(int thread, int round, const char *what, int code)
{
	printf("thread %d round %d: %s %d\n", thread, round, what, code);
	wrong++;
}

#define MUST(call)                                                                                                     \
	do {                                                                                                           \
		CUresult result_ = (call);                                                                             \
		if (result_ != CUDA_SUCCESS)                                                                           \
			complain(me, round, #call, (int)result_);                                                      \
	} while (0)

static void one_round(int me, int round)
{
	size_t bytes = (size_t)(1 + (me + round) % 4) * MIB + (size_t)(round % 3) * 512, size = 0;
	uint32_t value = (uint32_t)(me * 1000 + round), ends[2] = {0, 0};
	CUdeviceptr from = 0, to = 0, base = 0;

	MUST(cuMemAlloc(&from, bytes));
	MUST(cuMemAlloc(&to, bytes));
	if (me % 2) {
		MUST(cuMemsetD32Async(from, value, bytes / 4, CU_STREAM_PER_THREAD));
		MUST(cuMemcpyDtoDAsync(to, from, bytes, CU_STREAM_PER_THREAD));
		MUST(cuStreamSynchronize(CU_STREAM_PER_THREAD));
	} else {
		MUST(cuMemsetD32(from, value, bytes / 4));
		MUST(cuMemcpyDtoD(to, from, bytes));
	}
	MUST(cuMemFree(from));
	MUST(cuMemcpyDtoH(&ends[0], to, 4));
	MUST(cuMemcpyDtoH(&ends[1], to + bytes - 4, 4));
	MUST(cuMemGetAddressRange(&base, &size, to + bytes / 2));
	if (ends[0] != value || ends[1] != value || base != to || size != bytes)
		complain(me, round, "bytes", 0);
	MUST(cuMemFree(to));
}

static void *work(void *arg)
{
	int me = (int)(intptr_t)arg;

	NEED(cuCtxSetCurrent(context));
	for (int round = 0; round < ROUNDS; round++)
		one_round(me, round);
	return NULL;
}

static void *watch(void *arg)
{
	size_t free_bytes, total;
	int me = THREADS, round = 0;

	(void)arg;
	NEED(cuCtxSetCurrent(context));
	for (; !stop; round++) {
		MUST(cuMemGetInfo(&free_bytes, &total));
		/* at most two allocations of 5 MiB per thread, in whole pages */
		if (free_bytes > total || total - free_bytes > THREADS * 2 * 6 * MIB)
			complain(me, round, "free memory", (int)(free_bytes / MIB));
	}
	return NULL;
}

int main(void)
{
	pthread_t threads[THREADS + 1];
	size_t free_bytes, total;

	context = program_start();
	for (int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, work, (void *)(intptr_t)i);
	pthread_create(&threads[THREADS], NULL, watch, NULL);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	stop = 1;
	pthread_join(threads[THREADS], NULL);
	NEED(cuMemGetInfo(&free_bytes, &total));
	printf("wrong %d, taken %zu\n", wrong, total - free_bytes);
	return 0;
}
