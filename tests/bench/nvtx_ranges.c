/* tests/bench/nvtx_ranges.c NAME
 * What pushing and popping one NVTX range costs a program: the median of several runs, in nanoseconds of processor time. */
#include <cuda.h>
#include <nvtx3/nvToolsExt.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { RUNS = 25, LOOPS = 100000 };

static double used_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

int main(int argc, char **argv)
{
	double runs[RUNS];

	if (argc != 2 || cuInit(0) != CUDA_SUCCESS)
		return 99;
	nvtxInitialize(NULL);
	for (int r = 0; r < RUNS; r++) {
		double begun = used_ns();

		for (int i = 0; i < LOOPS; i++) {
			nvtxRangePushA(argv[1]);
			nvtxRangePop();
		}
		runs[r] = (used_ns() - begun) / LOOPS;
	}
	qsort(runs, RUNS, sizeof(runs[0]), by_value);
	printf("%.2f\n", runs[RUNS / 2]);
	return 0;
}
