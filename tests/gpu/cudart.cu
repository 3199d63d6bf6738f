/* tests/gpu/cudart.cu
 * A CUDA runtime program that uses much of what programs use, and prints checksums and relations, never raw addresses,
 * so that a run under Sublet can be compared with a plain run word for word. Built twice by run.sh: with the static
 * runtime, and with the shared one and a default stream per thread. The last line of its output is one JSON object.
 *
 *   cudart [--small]     --small: nothing over 64 MiB, for memory checkers */
#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <time.h>

#include "kernels.cu"

#define CHECK(call)                                                                                                    \
	do {                                                                                                           \
		cudaError_t check_error = (call);                                                                      \
		if (check_error != cudaSuccess) {                                                                      \
			fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorName(check_error));  \
			exit(1);                                                                                       \
		}                                                                                                      \
	} while (0)

static const size_t KiB = 1ull << 10, MiB = 1ull << 20, GiB = 1ull << 30;

static std::string exact, info;

__attribute__((format(printf, 3, 4))) static void say(std::string *to, const char *key, const char *format, ...)
{
	char value[256];
	va_list args;

	va_start(args, format);
	vsnprintf(value, sizeof(value), format, args);
	va_end(args);
	if (!to->empty())
		*to += ", ";
	*to += "\"" + std::string(key) + "\": \"" + value + "\"";
}

/* The runtime's code of a call that may fail, without leaving the error behind. */
static int code_of(cudaError_t error)
{
	cudaGetLastError();
	return (int)error;
}

static double now_s()
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

static unsigned long long *sum_cell;

static unsigned long long checksum(const void *bytes, size_t size)
{
	unsigned long long sum = 0;

	CHECK(cudaMemset(sum_cell, 0, sizeof(sum)));
	sum_words<<<264, 256>>>((const uint32_t *)bytes, size / 4, sum_cell);
	CHECK(cudaGetLastError());
	CHECK(cudaMemcpy(&sum, sum_cell, sizeof(sum), cudaMemcpyDeviceToHost));
	return sum;
}

static void fill(void *bytes, size_t size, uint32_t seed)
{
	fill_words<<<264, 256>>>((uint32_t *)bytes, size / 4, seed);
	CHECK(cudaGetLastError());
}

typedef CUresult (*address_range_fn)(CUdeviceptr *, size_t *, CUdeviceptr);
typedef CUresult (*pointer_attribute_fn)(void *, CUpointer_attribute, CUdeviceptr);
typedef CUresult (*current_fn)(CUcontext *);

static address_range_fn address_range;
static pointer_attribute_fn pointer_attribute;
static current_fn current_context;

static void *entry_point(const char *name)
{
	void *found = NULL;
	cudaDriverEntryPointQueryResult status;

	CHECK(cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &status));
	if (status != cudaDriverEntryPointSuccess || !found) {
		fprintf(stderr, "no driver entry point '%s'\n", name);
		exit(1);
	}
	return found;
}

static void test_sizes(bool small)
{
	const size_t sizes[] = {4, KiB, 25 * KiB, 128 * KiB, MiB - 4, MiB, MiB + 4, 2 * MiB, 2 * MiB + 4, 20 * MiB,
		64 * MiB + 4 * KiB, GiB + 2 * MiB, 4 * GiB};
	struct block {
		char *p;
		size_t size;
	};
	std::vector<block> blocks;
	unsigned long long ids[16] = {0};
	bool distinct_ids = true;
	int overlaps = 0;

	for (size_t size : sizes) {
		char key[64];
		char *p = NULL;
		CUdeviceptr base = 0, start = 0, device_pointer = 0;
		CUcontext owner = NULL, current = NULL;
		size_t range = 0, range_size = 0;
		unsigned memory_type = 0, managed = 9, ordinal = 99;
		int legacy_ipc = -1, mapped = -1;
		cudaPointerAttributes attributes;

		if (small && size > 64 * MiB + 4 * KiB)
			continue;
		CHECK(cudaMalloc(&p, size));
		fill(p, size, (uint32_t)(size / 4));
		snprintf(key, sizeof(key), "sum %zu", size);
		say(&exact, key, "%llx", checksum(p, size));

		CHECK(cudaPointerGetAttributes(&attributes, p + size / 2));
		snprintf(key, sizeof(key), "attributes %zu", size);
		say(&exact, key, "type %d device %d pointer %d host %d", attributes.type, attributes.device,
			attributes.devicePointer == p + size / 2, attributes.hostPointer != NULL);

		snprintf(key, sizeof(key), "range %zu", size);
		int code = address_range(&base, &range, (CUdeviceptr)p + size / 2);
		say(&exact, key, "code %d base %d size %d aligned %d", code, base == (CUdeviceptr)p, range == size,
			(uintptr_t)p % 256 == 0);

		CUdeviceptr at = (CUdeviceptr)p + size / 2;
		current_context(&current);
		pointer_attribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, at);
		pointer_attribute(&memory_type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at);
		pointer_attribute(&device_pointer, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, at);
		pointer_attribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, at);
		pointer_attribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at);
		pointer_attribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, at);
		pointer_attribute(&range_size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, at);
		pointer_attribute(&ids[blocks.size()], CU_POINTER_ATTRIBUTE_BUFFER_ID, at);
		pointer_attribute(&legacy_ipc, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, at);
		pointer_attribute(&mapped, CU_POINTER_ATTRIBUTE_MAPPED, at);
		snprintf(key, sizeof(key), "driver attributes %zu", size);
		say(&exact, key, "context %d type %u pointer %d managed %u device %u start %d size %d",
			owner == current, memory_type, device_pointer == at, managed & 1, ordinal,
			start == (CUdeviceptr)p, range_size == size);
		snprintf(key, sizeof(key), "driver attributes %zu", size);
		say(&info, key, "legacy ipc %d mapped %d", legacy_ipc, mapped);
		for (size_t i = 0; i < blocks.size(); i++)
			if (ids[i] == ids[blocks.size()] || !ids[i])
				distinct_ids = false;
		blocks.push_back({p, size});
	}
	for (size_t i = 0; i < blocks.size(); i++)
		for (size_t j = 0; j < i; j++)
			if (blocks[i].p < blocks[j].p + blocks[j].size && blocks[j].p < blocks[i].p + blocks[i].size)
				overlaps++;
	say(&exact, "blocks overlap", "%d", overlaps);
	say(&exact, "buffer ids differ", "%d", distinct_ids);
	/* written all, then read again: no two share a byte */
	for (auto &b : blocks) {
		char key[64];
		uint32_t words[2] = {0, 0};

		snprintf(key, sizeof(key), "again %zu", b.size);
		CHECK(cudaMemcpy(&words[0], b.p, 4, cudaMemcpyDefault));
		CHECK(cudaMemcpy(&words[1], b.p + b.size - 4, 4, cudaMemcpyDeviceToHost));
		say(&exact, key, "%llx %x %x", checksum(b.p, b.size), words[0], words[1]);
	}
	/* out of order: middle first */
	for (size_t i = 1; i < blocks.size(); i += 2)
		CHECK(cudaFree(blocks[i].p));
	for (size_t i = 0; i < blocks.size(); i += 2)
		CHECK(cudaFree(blocks[i].p));
}

/* Free memory goes down with an allocation and up at once with its free; total does not move. Meaningful only while no
 * other process uses the device. */
static void test_memory_info(bool small)
{
	size_t size = small ? 64 * MiB : 2 * GiB, slack = 64 * MiB;
	size_t free_before, free_held, free_after, total_before, total_after;
	void *p;

	CHECK(cudaDeviceSynchronize());
	CHECK(cudaMemGetInfo(&free_before, &total_before));
	CHECK(cudaMalloc(&p, size));
	CHECK(cudaMemGetInfo(&free_held, &total_after));
	CHECK(cudaFree(p));
	CHECK(cudaMemGetInfo(&free_after, &total_after));
	say(&exact, "memory info", "fell %d rose %d total same %d",
		free_before >= free_held + size && free_before <= free_held + size + slack,
		free_after + slack >= free_before && free_after <= free_before + slack, total_before == total_after);
	say(&info, "memory info", "before %zu held %zu after %zu MiB", free_before / MiB, free_held / MiB,
		free_after / MiB);
}

static void test_errors()
{
	char *p = NULL, *q = NULL;
	size_t free_bytes, total;

	CHECK(cudaMalloc(&p, 8 * MiB));
	CHECK(cudaMemGetInfo(&free_bytes, &total));
	say(&exact, "allocate 1 PiB", "%d", code_of(cudaMalloc(&q, 1ull << 50)));
	say(&exact, "allocate twice the device", "%d", code_of(cudaMalloc(&q, 2 * total)));
	say(&exact, "allocate nothing", "%d null %d", code_of(cudaMalloc(&q, 0)), q == NULL);
	say(&exact, "free null", "%d", code_of(cudaFree(NULL)));
	say(&exact, "free inside", "%d", code_of(cudaFree(p + 4 * KiB)));
	say(&exact, "free elsewhere", "%d", code_of(cudaFree((void *)0x1000)));
	fill(p, 8 * MiB, 5);
	say(&exact, "sum after errors", "%llx", checksum(p, 8 * MiB));
	say(&exact, "free", "%d", code_of(cudaFree(p)));
	say(&exact, "free twice", "%d", code_of(cudaFree(p)));
	say(&exact, "after errors", "%d", code_of(cudaDeviceSynchronize()));
}

static void test_streams(bool small)
{
	enum { STREAMS = 4 };
	size_t size = small ? 4 * MiB : 32 * MiB;
	cudaStream_t streams[STREAMS];
	cudaEvent_t event;
	uint32_t *host[STREAMS];
	char *device[STREAMS], *copy;

	CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
	CHECK(cudaMalloc(&copy, STREAMS * size));
	for (int s = 0; s < STREAMS; s++) {
		CHECK(cudaStreamCreateWithFlags(&streams[s], cudaStreamNonBlocking));
		CHECK(cudaHostAlloc(&host[s], size, cudaHostAllocDefault));
		CHECK(cudaMalloc(&device[s], size));
		for (size_t i = 0; i < size / 4; i++)
			host[s][i] = (uint32_t)(i * 2654435761u + s);
	}
	for (int s = 0; s < STREAMS; s++) {
		CHECK(cudaMemcpyAsync(device[s], host[s], size, cudaMemcpyHostToDevice, streams[s]));
		CHECK(cudaMemcpyAsync(copy + s * size, device[s], size, cudaMemcpyDeviceToDevice, streams[s]));
		CHECK(cudaEventRecord(event, streams[s]));
		CHECK(cudaStreamWaitEvent(streams[(s + 1) % STREAMS], event, 0));
		CHECK(cudaMemsetAsync(device[s] + size / 2, s + 1, size / 4, streams[s]));
		CHECK(cudaMemcpyAsync(host[s], device[s], size, cudaMemcpyDeviceToHost, streams[s]));
	}
	for (int s = 0; s < STREAMS; s++)
		CHECK(cudaStreamSynchronize(streams[s]));
	say(&exact, "streams", "%llx %llx %x %x", checksum(copy, STREAMS * size), checksum(device[3], size),
		host[0][size / 8 + 1], host[3][7]);
	for (int s = 0; s < STREAMS; s++) {
		CHECK(cudaFree(device[s]));
		CHECK(cudaFreeHost(host[s]));
		CHECK(cudaStreamDestroy(streams[s]));
	}
	CHECK(cudaFree(copy));
	CHECK(cudaEventDestroy(event));
}

static void test_graph(bool small)
{
	size_t size = small ? 4 * MiB : 64 * MiB;
	cudaStream_t stream;
	cudaGraph_t graph = NULL;
	cudaGraphExec_t exec;
	char *a, *b, *inside = NULL;

	CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	CHECK(cudaMalloc(&a, size));
	CHECK(cudaMalloc(&b, size));
	CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
	fill_words<<<132, 256, 0, stream>>>((uint32_t *)a, size / 4, 11);
	CHECK(cudaMemcpyAsync(b, a, size / 2, cudaMemcpyDeviceToDevice, stream));
	CHECK(cudaMemsetAsync(b + size / 2, 0x5a, size / 2, stream));
	fill_words<<<132, 256, 0, stream>>>((uint32_t *)(b + size / 2), size / 16, 12);
	CHECK(cudaStreamEndCapture(stream, &graph));
	CHECK(cudaGraphInstantiate(&exec, graph, 0));
	for (int i = 0; i < 20; i++) {
		CHECK(cudaMemsetAsync(a, i, size, stream));
		CHECK(cudaGraphLaunch(exec, stream));
	}
	CHECK(cudaStreamSynchronize(stream));
	say(&exact, "graph", "%llx %llx", checksum(a, size), checksum(b, size));
	CHECK(cudaGraphExecDestroy(exec));
	CHECK(cudaGraphDestroy(graph));

	/* an allocation while capturing: refused in global mode, and the capture is lost; allowed in relaxed mode */
	graph = NULL;
	CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
	int refused = code_of(cudaMalloc(&inside, 4 * MiB));
	int ended = code_of(cudaStreamEndCapture(stream, &graph));
	say(&exact, "allocate in a global capture", "%d then %d graph %d", refused, ended, graph != NULL);
	graph = NULL;
	CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
	int allowed = code_of(cudaMalloc(&inside, 4 * MiB));
	if (allowed == cudaSuccess)
		CHECK(cudaMemsetAsync(inside, 0x33, 4 * MiB, stream));
	ended = code_of(cudaStreamEndCapture(stream, &graph));
	say(&exact, "allocate in a relaxed capture", "%d then %d graph %d", allowed, ended, graph != NULL);
	if (graph && allowed == cudaSuccess) {
		CHECK(cudaGraphInstantiate(&exec, graph, 0));
		CHECK(cudaGraphLaunch(exec, stream));
		CHECK(cudaStreamSynchronize(stream));
		say(&exact, "graph over memory born in it", "%llx", checksum(inside, 4 * MiB));
		CHECK(cudaGraphExecDestroy(exec));
		CHECK(cudaGraphDestroy(graph));
	}
	if (inside)
		CHECK(cudaFree(inside));

	/* another thread allocates and frees while this one captures thread-locally: no business of the capture */
	int other_code = -1;
	graph = NULL;
	CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
	CHECK(cudaMemsetAsync(a, 1, size, stream));
	std::thread([&] {
		char *p = NULL;

		other_code = code_of(cudaMalloc(&p, 8 * MiB));
		if (p)
			other_code += code_of(cudaFree(p));
	}).join();
	ended = code_of(cudaStreamEndCapture(stream, &graph));
	say(&exact, "allocate beside a thread-local capture", "%d then %d graph %d", other_code, ended, graph != NULL);
	if (graph)
		CHECK(cudaGraphDestroy(graph));
	CHECK(cudaFree(a));
	CHECK(cudaFree(b));
	CHECK(cudaStreamDestroy(stream));
}

static void test_other_memory(bool small)
{
	cudaStream_t stream;
	size_t pitch = 0, size = small ? 4 * MiB : 48 * MiB;
	char *p, *q, *managed, *registered;

	CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	/* pitched */
	const size_t width = 5000, height = 1500;
	std::vector<unsigned char> from(width * height), to(width * height);
	for (size_t i = 0; i < from.size(); i++)
		from[i] = (unsigned char)(i * 31 + i / 977);
	CHECK(cudaMallocPitch(&p, &pitch, width, height));
	CHECK(cudaMemset2D(p, pitch, 7, width, height));
	CHECK(cudaMemcpy2D(p, pitch, from.data(), width, width, height, cudaMemcpyHostToDevice));
	CHECK(cudaMemcpy2D(to.data(), width, p, pitch, width, height, cudaMemcpyDeviceToHost));
	say(&exact, "pitched", "pitch %zu same %d", pitch, memcmp(from.data(), to.data(), from.size()) == 0);
	CHECK(cudaFree(p));
	/* array */
	cudaArray_t array;
	cudaChannelFormatDesc byte = cudaCreateChannelDesc<unsigned char>();
	CHECK(cudaMallocArray(&array, &byte, width, height));
	memset(to.data(), 0, to.size());
	CHECK(cudaMemcpy2DToArray(array, 0, 0, from.data(), width, width, height, cudaMemcpyHostToDevice));
	CHECK(cudaMemcpy2DFromArray(to.data(), width, array, 0, 0, width, height, cudaMemcpyDeviceToHost));
	say(&exact, "array", "same %d", memcmp(from.data(), to.data(), from.size()) == 0);
	CHECK(cudaFreeArray(array));
	/* stream-ordered, and the two kinds of free crossed */
	CHECK(cudaMallocAsync(&p, size, stream));
	fill_words<<<132, 256, 0, stream>>>((uint32_t *)p, size / 4, 21);
	CHECK(cudaMalloc(&q, size));
	CHECK(cudaMemcpyAsync(q, p, size, cudaMemcpyDeviceToDevice, stream));
	CHECK(cudaFreeAsync(p, stream));
	CHECK(cudaStreamSynchronize(stream));
	say(&exact, "pool", "%llx", checksum(q, size));
	say(&exact, "pool free of a plain pointer", "%d", code_of(cudaFreeAsync(q, stream)));
	CHECK(cudaStreamSynchronize(stream));
	CHECK(cudaMallocAsync(&p, size, stream));
	CHECK(cudaStreamSynchronize(stream));
	say(&exact, "plain free of a pool pointer", "%d", code_of(cudaFree(p)));
	cudaMemPool_t pool;
	CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
	CHECK(cudaMemPoolTrimTo(pool, 0));
	/* managed, registered */
	int concurrent = 0;
	CHECK(cudaDeviceGetAttribute(&concurrent, cudaDevAttrConcurrentManagedAccess, 0));
	CHECK(cudaMallocManaged(&managed, 4 * MiB));
	fill(managed, 4 * MiB, 31);
	CHECK(cudaDeviceSynchronize());
	say(&exact, "managed", "%x %x", ((uint32_t *)managed)[0], ((uint32_t *)managed)[MiB - 1]);
	CHECK(cudaFree(managed));
	registered = (char *)aligned_alloc(4096, 4 * MiB);
	memset(registered, 0x17, 4 * MiB);
	CHECK(cudaHostRegister(registered, 4 * MiB, cudaHostRegisterMapped));
	char *alias = NULL;
	CHECK(cudaHostGetDevicePointer(&alias, registered, 0));
	say(&exact, "registered", "%llx", checksum(alias, 4 * MiB));
	CHECK(cudaHostUnregister(registered));
	free(registered);
	CHECK(cudaStreamDestroy(stream));
}

__device__ uint32_t module_words[1 << 20];

static void test_symbol()
{
	std::vector<uint32_t> words(1 << 20, 0);
	void *p = NULL;

	for (size_t i = 0; i < words.size(); i++)
		words[i] = (uint32_t)(i * 7 + 3);
	CHECK(cudaMemcpyToSymbol(module_words, words.data(), words.size() * 4));
	CHECK(cudaGetSymbolAddress(&p, module_words));
	say(&exact, "module variable", "%llx", checksum(p, words.size() * 4));
}

/* Frees a block a kernel is still writing, takes and writes another at once: neither may see the other. */
static void test_free_while_used(bool small)
{
	size_t size = small ? 16 * MiB : 256 * MiB;
	cudaStream_t busy, other;
	unsigned long long *cell, result[2] = {0, 0};
	char *p, *q;

	CHECK(cudaStreamCreateWithFlags(&busy, cudaStreamNonBlocking));
	CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
	CHECK(cudaMalloc(&cell, sizeof(result)));
	CHECK(cudaMemset(cell, 0, sizeof(result)));
	CHECK(cudaDeviceSynchronize());
	CHECK(cudaMalloc(&p, size));
	hold_words<<<32, 256, 0, busy>>>((uint32_t *)p, size / 4, 60 * 1000000ull, 3, cell);
	CHECK(cudaGetLastError());
	double begin = now_s();
	CHECK(cudaFree(p));
	double freed = now_s() - begin;
	CHECK(cudaMalloc(&q, size));
	fill_words<<<64, 256, 0, other>>>((uint32_t *)q, size / 4, 77);
	CHECK(cudaStreamSynchronize(other));
	CHECK(cudaStreamSynchronize(busy));
	CHECK(cudaMemcpy(result, cell, sizeof(result), cudaMemcpyDeviceToHost));
	say(&exact, "free while used", "foreign words %llu ran %d new block %llx", result[0], result[1] > 0,
		checksum(q, size));
	say(&info, "free while used", "free took %.2f ms", freed * 1e3);
	CHECK(cudaFree(q));
	CHECK(cudaFree(cell));
	CHECK(cudaStreamDestroy(busy));
	CHECK(cudaStreamDestroy(other));
}

static void test_threads(bool small)
{
	enum { THREADS = 8 };
	unsigned long long sums[THREADS] = {0};
	std::vector<std::thread> threads;
	int rounds = small ? 10 : 100;

	for (int t = 0; t < THREADS; t++)
		threads.emplace_back([t, rounds, &sums] {
			cudaStream_t stream;
			unsigned long long *cell;
			uint64_t random = 88172645463325252ull + t;

			CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
			CHECK(cudaMalloc(&cell, 8));
			CHECK(cudaMemsetAsync(cell, 0, 8, stream));
			for (int r = 0; r < rounds; r++) {
				char *p[3];
				size_t size[3];

				for (int k = 0; k < 3; k++) {
					random ^= random << 13, random ^= random >> 7, random ^= random << 17;
					size[k] = 64 * KiB + random % (8 * MiB) / 4 * 4;
					CHECK(cudaMalloc(&p[k], size[k]));
					fill_words<<<32, 256, 0, stream>>>(
						(uint32_t *)p[k], size[k] / 4, (uint32_t)random);
				}
				for (int k = 0; k < 3; k++)
					sum_words<<<32, 256, 0, stream>>>((uint32_t *)p[k], size[k] / 4, cell);
				for (int k = 0; k < 3; k++)
					CHECK(cudaFree(p[(k + 1) %
							 3])); /* the sums may still be running: the free's business */
			}
			CHECK(cudaMemcpyAsync(&sums[t], cell, 8, cudaMemcpyDeviceToHost, stream));
			CHECK(cudaStreamSynchronize(stream));
			CHECK(cudaFree(cell));
			CHECK(cudaStreamDestroy(stream));
		});
	for (auto &thread : threads)
		thread.join();
	unsigned long long all = 0;
	for (int t = 0; t < THREADS; t++)
		all = all * 31 + sums[t];
	say(&exact, "threads", "%llx", all);
}

/* cudaDeviceReset takes every allocation along, and the process can begin again. */
static void test_reset(bool small)
{
	size_t size = small ? 64 * MiB : 2 * GiB, free_before, free_after, total;
	void *p;

	CHECK(cudaMemGetInfo(&free_before, &total));
	CHECK(cudaMalloc(&p, size));
	CHECK(cudaMemset(p, 1, size));
	CHECK(cudaDeviceReset());
	CHECK(cudaMemGetInfo(&free_after, &total));
	say(&exact, "reset", "memory back %d", free_after + 512 * MiB >= free_before);
	CHECK(cudaMalloc(&sum_cell, 8));
	CHECK(cudaMalloc(&p, 8 * MiB));
	fill(p, 8 * MiB, 91);
	say(&exact, "after reset", "%llx", checksum(p, 8 * MiB));
	CHECK(cudaFree(p));
}

int main(int argc, char **argv)
{
	bool small = argc > 1 && strcmp(argv[1], "--small") == 0;
	double begin = now_s();
	int version = 0;

	CHECK(cudaSetDevice(0));
	CHECK(cudaRuntimeGetVersion(&version));
	CHECK(cudaMalloc(&sum_cell, sizeof(*sum_cell)));
	address_range = (address_range_fn)entry_point("cuMemGetAddressRange");
	pointer_attribute = (pointer_attribute_fn)entry_point("cuPointerGetAttribute");
	current_context = (current_fn)entry_point("cuCtxGetCurrent");

	test_sizes(small);
	test_memory_info(small);
	test_errors();
	test_streams(small);
	test_graph(small);
	test_other_memory(small);
	test_symbol();
	test_free_while_used(small);
	test_threads(small);
	test_reset(small);

	say(&info, "runtime", "%d", version);
	say(&info, "seconds", "%.2f", now_s() - begin);
	printf("{\"exact\": {%s}, \"info\": {%s}}\n", exact.c_str(), info.c_str());
	return 0;
}
