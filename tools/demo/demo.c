/* tools/demo/demo.c
 * A plain program of the driver API that knows nothing of Sublet: takes buffers, lets kernels work on them, frees one
 * and takes another, and prints where each lies and what is in it. The kernels are the simulated driver's built-in
 * ones, so it runs there only. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cuda.h>

#define MIB ((size_t)1 << 20)

/* Ends the program with the driver's name for what went wrong. */
#define CHECK(call) check(call, #call)

struct buffer {
	const char *name;
	size_t size_bytes;
	CUdeviceptr address;
};

static CUfunction fill, add;

static void check(CUresult result, const char *call)
{
	const char *name = "unknown error";

	if (result == CUDA_SUCCESS)
		return;
	cuGetErrorName(result, &name);
	fprintf(stderr, "demo: %s: %s\n", call, name);
	exit(1);
}

static void launch(CUfunction kernel, struct buffer *buffer, uint32_t value)
{
	size_t words = buffer->size_bytes / sizeof(uint32_t);
	void *params[] = {&buffer->address, &words, &value};

	CHECK(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
}

static void take(struct buffer *buffer, uint32_t value)
{
	CHECK(cuMemAlloc(&buffer->address, buffer->size_bytes));
	launch(fill, buffer, value);
}

/* FNV-1a over the bytes, by way of a copy back to the host. */
static uint64_t checksum(const struct buffer *buffer)
{
	unsigned char *copy = malloc(buffer->size_bytes);
	uint64_t sum = 14695981039346656037ull;

	if (!copy)
		check(CUDA_ERROR_OUT_OF_MEMORY, "malloc");
	CHECK(cuMemcpyDtoH(copy, buffer->address, buffer->size_bytes));
	for (size_t i = 0; i < buffer->size_bytes; i += 64)
		sum = (sum ^ copy[i]) * 1099511628211ull;
	free(copy);
	return sum;
}

/* Only memory made of mapped handles can give one away, the driver's own refuses: so the difference is visible to a
 * program that asks. */
static const char *kind_of(const struct buffer *buffer)
{
	CUmemGenericAllocationHandle handle;

	if (cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)buffer->address) != CUDA_SUCCESS)
		return "driver";
	CHECK(cuMemRelease(handle));
	return "extents";
}

static void show(const struct buffer *buffer)
{
	printf("%-12s %7zu KiB  %#14llx  %-8s %016llx\n", buffer->name, buffer->size_bytes / 1024,
		(unsigned long long)buffer->address, kind_of(buffer), (unsigned long long)checksum(buffer));
}

int main(void)
{
	struct buffer weights = {"weights", 64 * MIB, 0}, optimizer = {"optimizer", 128 * MIB, 0},
		      activations = {"activations", 48 * MIB, 0}, kv_cache = {"kv_cache", 96 * MIB, 0},
		      counters = {"counters", MIB / 16, 0};
	CUcontext context;
	CUdevice device;
	CUmodule module;

	CHECK(cuInit(0));
	CHECK(cuDeviceGet(&device, 0));
	CHECK(cuDevicePrimaryCtxRetain(&context, device));
	CHECK(cuCtxSetCurrent(context));
	CHECK(cuModuleLoadData(&module, "sublet-sim:builtin"));
	CHECK(cuModuleGetFunction(&fill, module, "sim_fill32"));
	CHECK(cuModuleGetFunction(&add, module, "sim_add32"));

	/* a training step: the optimizer reads what the activations left and writes the weights */
	take(&weights, 1);
	take(&optimizer, 20);
	take(&activations, 300);
	take(&counters, 4000);
	launch(add, &weights, 5);
	launch(add, &optimizer, 7);
	CHECK(cuMemFree(activations.address));

	/* generation: the room of the activations goes to the cache */
	take(&kv_cache, 50000);
	launch(add, &kv_cache, 9);
	CHECK(cuCtxSynchronize());

	printf("%-12s %11s  %14s  %-8s %s\n", "buffer", "size", "address", "memory", "checksum");
	show(&weights);
	show(&optimizer);
	show(&kv_cache);
	show(&counters);

	CHECK(cuMemFree(weights.address));
	CHECK(cuMemFree(optimizer.address));
	CHECK(cuMemFree(kv_cache.address));
	CHECK(cuMemFree(counters.address));
	CHECK(cuModuleUnload(module));
	CHECK(cuDevicePrimaryCtxRelease(device));
	return 0;
}
