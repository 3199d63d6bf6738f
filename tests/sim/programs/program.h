/* tests/sim/programs/program.h
 * What the programs share. They are plain programs of the driver API that know nothing of Sublet, and print what they see:
 * statuses, sizes, bytes, relations of addresses. Never an address, for that may differ. */
#ifndef PROGRAM_H
#define PROGRAM_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

/* Prints the call and its answer. */
#define TRY(call) program_try(#call, (call))
/* For calls that the rest of the program rests on. */
#define NEED(call)                                                                                                     \
	do {                                                                                                           \
		CUresult result_ = (call);                                                                             \
		if (result_ != CUDA_SUCCESS) {                                                                         \
			printf("cannot go on: %s -> %d\n", #call, (int)result_);                                       \
			exit(99);                                                                                      \
		}                                                                                                      \
	} while (0)
/* Prints a thing that holds or does not. */
#define SHOW(condition) printf("%s: %s\n", #condition, (condition) ? "yes" : "no")

static inline CUresult program_try(const char *text, CUresult result)
{
	printf("%s -> %d\n", text, (int)result);
	return result;
}

/* Whole lines, also when a child or a signal ends the process. */
static inline void program_begin(void)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
}

/* The usual way: primary context of device 0, current. */
static inline CUcontext program_start(void)
{
	CUcontext context;

	program_begin();
	NEED(cuInit(0));
	NEED(cuDevicePrimaryCtxRetain(&context, 0));
	NEED(cuCtxSetCurrent(context));
	return context;
}

/* FNV-1a. */
static inline uint64_t program_sum(const void *bytes, size_t count)
{
	const unsigned char *p = bytes;
	uint64_t sum = 14695981039346656037ull;

	for (size_t i = 0; i < count; i++)
		sum = (sum ^ p[i]) * 1099511628211ull;
	return sum;
}

/* Reads @count bytes of device memory back and prints what they add up to. */
static inline void program_show_bytes(const char *what, CUdeviceptr from, size_t count)
{
	void *copy = malloc(count);
	CUresult result = copy ? cuMemcpyDtoH(copy, from, count) : CUDA_ERROR_OUT_OF_MEMORY;

	if (result == CUDA_SUCCESS)
		printf("%s: %zu bytes, sum %016llx\n", what, count, (unsigned long long)program_sum(copy, count));
	else
		printf("%s: %zu bytes, not readable: %d\n", what, count, (int)result);
	free(copy);
}

static inline CUfunction program_kernel(const char *name)
{
	CUfunction function;
	CUmodule module;

	NEED(cuModuleLoadData(&module, "sublet-sim:builtin"));
	NEED(cuModuleGetFunction(&function, module, name));
	return function;
}

/* sim_fill32 and sim_add32. */
static inline CUresult program_launch(CUfunction kernel, CUdeviceptr to, size_t words, uint32_t value, CUstream stream)
{
	void *params[] = {&to, &words, &value};

	return cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}

#endif
