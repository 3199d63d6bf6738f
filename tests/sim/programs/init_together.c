/* tests/sim/programs/init_together.c
 * Sixteen threads start the driver at the same moment, each takes memory as soon as its own start has returned. */
#include <pthread.h>

#include "program.h"

#define THREADS 16

static pthread_barrier_t line;
static CUdeviceptr taken[THREADS];

static void *start(void *arg)
{
	int me = (int)(intptr_t)arg;
	CUcontext context;

	pthread_barrier_wait(&line);
	NEED(cuInit(0));
	NEED(cuDevicePrimaryCtxRetain(&context, 0));
	NEED(cuCtxSetCurrent(context));
	NEED(cuMemAlloc(&taken[me], 2 * MIB));
	NEED(cuMemsetD8(taken[me], (unsigned char)me, 2 * MIB));
	return NULL;
}

int main(void)
{
	pthread_t threads[THREADS];
	CUcontext context;

	program_begin();
	pthread_barrier_init(&line, NULL, THREADS);
	for (int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, start, (void *)(intptr_t)i);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	NEED(cuDevicePrimaryCtxRetain(&context, 0));
	NEED(cuCtxSetCurrent(context));
	for (int i = 0; i < THREADS; i++) {
		program_show_bytes("taken", taken[i], 2 * MIB);
		TRY(cuMemFree(taken[i]));
	}
	return 0;
}
