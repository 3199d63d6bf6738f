/* tests/gpu/kernels.cu
 * The kernels of the driver-API programs in tests/gpu and tests/bench. Those programs need no nvcc: they load the text
 * in kernels_ptx.h, which is made from this file with tests/gpu/make_kernels_ptx.sh. Integer arithmetic only, so that
 * every checksum is exact on every device. */
#include <cstddef>
#include <cstdint>

__device__ static uint32_t mix(uint64_t index, uint32_t seed)
{
	uint64_t x = index + 0x9e3779b97f4a7c15ull * (seed + 1ull);

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return (uint32_t)(x ^ (x >> 31));
}

extern "C" __global__ void null_kernel(void)
{
}

extern "C" __global__ void fill_words(uint32_t *words, uint64_t count, uint32_t seed)
{
	for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < count;
		i += (uint64_t)gridDim.x * blockDim.x)
		words[i] = mix(i, seed);
}

/* *sum += every word times an odd number of its place: a swap of two words is seen. */
extern "C" __global__ void sum_words(const uint32_t *words, uint64_t count, unsigned long long *sum)
{
	unsigned long long part = 0;

	for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < count;
		i += (uint64_t)gridDim.x * blockDim.x)
		part += words[i] * (2ull * i + 1);
	atomicAdd(sum, part);
}

/* result[0] += words that differ from what fill_words with @seed wrote. */
extern "C" __global__ void check_words(const uint32_t *words, uint64_t count, uint32_t seed, unsigned long long *result)
{
	for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < count;
		i += (uint64_t)gridDim.x * blockDim.x)
		if (words[i] != mix(i, seed))
			atomicAdd(result, 1ull);
}

__device__ static uint64_t now_ns(void)
{
	uint64_t t;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
	return t;
}

/* Keeps writing all of @words for @busy_ns, and before each new round reads back what the round before it wrote:
 * somebody else writing the same pages meanwhile is counted in result[0]. result[1] gets the rounds of thread 0. */
extern "C" __global__ void hold_words(
	uint32_t *words, uint64_t count, uint64_t busy_ns, uint32_t seed, unsigned long long *result)
{
	volatile uint32_t *own = words;
	uint64_t first = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x;
	uint64_t stride = (uint64_t)gridDim.x * blockDim.x;
	uint64_t end = now_ns() + busy_ns;
	unsigned long long bad = 0;
	uint32_t round = 0;

	do {
		for (uint64_t i = first; i < count; i += stride) {
			if (round && own[i] != mix(i, seed + round - 1))
				bad++;
			own[i] = mix(i, seed + round);
		}
		round++;
	} while (now_ns() < end);
	for (uint64_t i = first; i < count; i += stride)
		if (own[i] != mix(i, seed + round - 1))
			bad++;
	if (bad)
		atomicAdd(&result[0], bad);
	if (first == 0)
		atomicAdd(&result[1], (unsigned long long)round);
}
