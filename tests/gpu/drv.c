/* tests/gpu/drv.c
 * A driver-API program that prints checksums and relations, never raw addresses, so that a run under Sublet can be
 * compared with a plain run word for word. One source, three ways to the driver, chosen when it is compiled:
 *
 *   -DVIA_LINK      linked with -lcuda, calls the symbols
 *   -DVIA_DLSYM     dlopen of libcuda.so.1, then dlsym of the versioned names
 *   -DVIA_PROCADDR  dlsym of cuGetProcAddress_v2, then the base names
 *
 * The last line of its output is one JSON object. */
#include <cuda.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels_ptx.h"

/* still exported, no longer in the headers under this signature */
extern CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device);

/* clang-format off */
#define DRIVER_CALLS(X)                                                                                                \
	X(cuInit) X(cuDeviceGet) X(cuDeviceTotalMem) X(cuDevicePrimaryCtxRetain) X(cuDevicePrimaryCtxRelease)          \
	X(cuCtxSetCurrent) X(cuCtxGetCurrent) X(cuCtxSynchronize) X(cuCtxDestroy) X(cuCtxPopCurrent)                   \
	X(cuModuleLoadData) X(cuModuleGetFunction) X(cuModuleUnload) X(cuMemAlloc) X(cuMemFree) X(cuMemGetInfo)        \
	X(cuMemGetAddressRange) X(cuMemAllocPitch) X(cuMemHostAlloc) X(cuMemFreeHost) X(cuMemcpyHtoD)                  \
	X(cuMemcpyDtoH) X(cuMemcpyDtoD) X(cuMemcpy) X(cuMemcpyHtoDAsync) X(cuMemcpyDtoHAsync) X(cuMemcpy2D)            \
	X(cuMemsetD8) X(cuMemsetD16) X(cuMemsetD32) X(cuMemsetD2D8) X(cuMemsetD32Async)                                \
	X(cuPointerGetAttribute) X(cuPointerGetAttributes) X(cuLaunchKernel) X(cuLaunchKernelEx)                       \
	X(cuLaunchHostFunc) X(cuStreamCreate) X(cuStreamDestroy) X(cuStreamSynchronize) X(cuStreamBeginCapture)        \
	X(cuStreamEndCapture) X(cuGraphInstantiateWithFlags) X(cuGraphLaunch) X(cuGraphExecDestroy) X(cuGraphDestroy)           \
	X(cuEventCreate) X(cuEventRecord) X(cuEventSynchronize) X(cuEventDestroy) X(cuStreamWaitEvent)                 \
	X(cuMemGetAllocationGranularity) X(cuMemAddressReserve) X(cuMemAddressFree) X(cuMemCreate)                     \
	X(cuMemRelease) X(cuMemMap) X(cuMemUnmap) X(cuMemSetAccess)
/* clang-format on */

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)

#if defined(VIA_LINK)
#define DRV(name) name
#define create_context cuCtxCreate_v2

static void resolve_all(void)
{
}
#else
#define DECLARE(name) static __typeof__(&name) p_##name;
DRIVER_CALLS(DECLARE)
static __typeof__(&cuCtxCreate_v2) create_context;
#define DRV(name) p_##name

static void *driver;

static void *resolve(const char *symbol, const char *base)
{
	void *found = NULL;
#if defined(VIA_DLSYM)
	(void)base;
	found = dlsym(driver, symbol);
#elif defined(VIA_PROCADDR)
	typedef CUresult (*lookup_fn)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);
	lookup_fn lookup = (lookup_fn)dlsym(driver, "cuGetProcAddress_v2");
	CUdriverProcAddressQueryResult status;

	if (!lookup ||
		lookup(base, &found, strcmp(base, "cuCtxCreate") == 0 ? 3020 : 12000, 0, &status) != CUDA_SUCCESS)
		found = NULL;
#else
#error "compile with -DVIA_LINK, -DVIA_DLSYM or -DVIA_PROCADDR"
#endif
	if (!found) {
		fprintf(stderr, "drv: the driver has no '%s'\n", symbol);
		exit(1);
	}
	return found;
}

static void resolve_all(void)
{
	driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!driver) {
		fprintf(stderr, "drv: %s\n", dlerror());
		exit(1);
	}
#define RESOLVE(name) p_##name = (__typeof__(&name))resolve(TEXT(name), #name);
	DRIVER_CALLS(RESOLVE)
	create_context = (__typeof__(&cuCtxCreate_v2))resolve("cuCtxCreate_v2", "cuCtxCreate");
}
#endif

#define CHECK(call)                                                                                                    \
	do {                                                                                                           \
		CUresult check_code = (call);                                                                          \
		if (check_code != CUDA_SUCCESS) {                                                                      \
			fprintf(stderr, "drv.c:%d: %s: CUresult %d\n", __LINE__, #call, (int)check_code);              \
			exit(1);                                                                                       \
		}                                                                                                      \
	} while (0)

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)

static char exact[16384], info[4096];

__attribute__((format(printf, 4, 5))) static void say(char *to, size_t room, const char *key, const char *format, ...)
{
	size_t used = strlen(to);
	va_list args;

	used += (size_t)snprintf(to + used, room - used, "%s\"%s\": \"", used ? ", " : "", key);
	va_start(args, format);
	used += (size_t)vsnprintf(to + used, room - used, format, args);
	va_end(args);
	snprintf(to + used, room - used, "\"");
}

#define SAY(...) say(exact, sizeof(exact), __VA_ARGS__)
#define NOTE(...) say(info, sizeof(info), __VA_ARGS__)

static CUdevice device;
static CUcontext context;
static CUmodule module;
static CUfunction fill_words, sum_words, hold_words;
static CUdeviceptr cell;

static void load_kernels(void)
{
	CHECK(DRV(cuModuleLoadData)(&module, kernels_ptx));
	CHECK(DRV(cuModuleGetFunction)(&fill_words, module, "fill_words"));
	CHECK(DRV(cuModuleGetFunction)(&sum_words, module, "sum_words"));
	CHECK(DRV(cuModuleGetFunction)(&hold_words, module, "hold_words"));
}

static void fill(CUdeviceptr at, size_t size, unsigned seed, CUstream stream)
{
	unsigned long long count = size / 4;
	void *params[] = {&at, &count, &seed};

	CHECK(DRV(cuLaunchKernel)(fill_words, 264, 1, 1, 256, 1, 1, 0, stream, params, NULL));
}

/* The same launch with its arguments in one buffer. */
static void fill_extra(CUdeviceptr at, size_t size, unsigned seed, CUstream stream)
{
	struct {
		CUdeviceptr at;
		unsigned long long count;
		unsigned seed;
	} args = {at, size / 4, seed};
	size_t bytes = 20;
	void *extra[] = {
		CU_LAUNCH_PARAM_BUFFER_POINTER, &args, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};

	CHECK(DRV(cuLaunchKernel)(fill_words, 264, 1, 1, 256, 1, 1, 0, stream, NULL, extra));
}

static void fill_ex(CUdeviceptr at, size_t size, unsigned seed, CUstream stream)
{
	unsigned long long count = size / 4;
	void *params[] = {&at, &count, &seed};
	CUlaunchConfig config = {.gridDimX = 264,
		.gridDimY = 1,
		.gridDimZ = 1,
		.blockDimX = 256,
		.blockDimY = 1,
		.blockDimZ = 1,
		.hStream = stream};

	CHECK(DRV(cuLaunchKernelEx)(&config, fill_words, params, NULL));
}

static unsigned long long checksum(CUdeviceptr at, size_t size)
{
	unsigned long long count = size / 4, sum = 0;
	void *params[] = {&at, &count, &cell};

	CHECK(DRV(cuMemsetD8)(cell, 0, 8));
	CHECK(DRV(cuLaunchKernel)(sum_words, 264, 1, 1, 256, 1, 1, 0, NULL, params, NULL));
	CHECK(DRV(cuMemcpyDtoH)(&sum, cell, 8));
	return sum;
}

static void test_sizes(void)
{
	static const size_t sizes[] = {
		4, KIB, 128 * KIB, MIB - 4, MIB, 2 * MIB, 2 * MIB + 4, 20 * MIB, 64 * MIB, 3 * GIB};
	CUdeviceptr blocks[10];
	char key[64];

	for (int i = 0; i < 10; i++) {
		size_t size = sizes[i], range = 0;
		CUdeviceptr base = 0, at, start = 0;
		CUcontext owner = NULL;
		unsigned type = 0;
		size_t range_size = 0;
		CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
			CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
		void *answers[] = {&owner, &type, &start, &range_size};

		CHECK(DRV(cuMemAlloc)(&blocks[i], size));
		at = blocks[i] + size / 2;
		switch (i % 3) {
		case 0:
			fill(blocks[i], size, (unsigned)i, NULL);
			break;
		case 1:
			fill_extra(blocks[i], size, (unsigned)i, NULL);
			break;
		case 2:
			fill_ex(blocks[i], size, (unsigned)i, NULL);
			break;
		}
		snprintf(key, sizeof(key), "sum %zu", size);
		SAY(key, "%llx", checksum(blocks[i], size));
		snprintf(key, sizeof(key), "range %zu", size);
		int code = (int)DRV(cuMemGetAddressRange)(&base, &range, at);
		SAY(key, "code %d base %d size %d", code, base == blocks[i], range == size);
		snprintf(key, sizeof(key), "attributes %zu", size);
		code = (int)DRV(cuPointerGetAttributes)(4, wanted, answers, at);
		SAY(key, "code %d context %d type %u start %d size %d", code, owner == context, type,
			start == blocks[i], range_size == size);
	}
	for (int i = 0; i < 10; i++) {
		snprintf(key, sizeof(key), "again %zu", sizes[i]);
		SAY(key, "%llx", checksum(blocks[i], sizes[i]));
		CHECK(DRV(cuMemFree)(blocks[i]));
	}
}

static void test_copies(void)
{
	enum { WIDTH = 3000, HEIGHT = 700 };
	size_t size = 24 * MIB, pitch = 0;
	unsigned *host = malloc(size), *back = calloc(1, size), *pinned = NULL;
	CUdeviceptr a, b, pitched;
	CUstream stream;
	CUmemorytype type = 0;

	for (size_t i = 0; i < size / 4; i++)
		host[i] = (unsigned)(i * 2246822519u);
	CHECK(DRV(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
	CHECK(DRV(cuMemHostAlloc)((void **)&pinned, size, 0));
	CHECK(DRV(cuMemAlloc)(&a, size));
	CHECK(DRV(cuMemAlloc)(&b, size));
	CHECK(DRV(cuMemcpyHtoD)(a, host, size));
	CHECK(DRV(cuMemcpyDtoD)(b, a, size));
	CHECK(DRV(cuMemcpyDtoH)(back, b, size));
	SAY("copy there and back", "same %d", memcmp(host, back, size) == 0);
	CHECK(DRV(cuMemsetD8)(b, 0x11, size));
	CHECK(DRV(cuMemsetD16)(b + MIB, 0x2222, MIB));
	CHECK(DRV(cuMemsetD32)(b + 4 * MIB, 0x33333333, MIB));
	CHECK(DRV(cuMemsetD2D8)(b + 12 * MIB, 4096, 0x44, 1000, 512));
	CHECK(DRV(cuMemcpy)(b + 20 * MIB, a, MIB));
	SAY("sets", "%llx", checksum(b, size));
	memcpy(pinned, host, size);
	CHECK(DRV(cuMemcpyHtoDAsync)(b, pinned, size, stream));
	CHECK(DRV(cuMemsetD32Async)(b + MIB, 9, 1000, stream));
	CHECK(DRV(cuMemcpyDtoHAsync)(pinned, b, size, stream));
	CHECK(DRV(cuStreamSynchronize)(stream));
	SAY("async copies", "%x %x %llx", pinned[0], pinned[MIB / 4 + 999], checksum(b, size));
	CHECK(DRV(cuMemAllocPitch)(&pitched, &pitch, WIDTH, HEIGHT, 4));
	CUDA_MEMCPY2D in = {.srcMemoryType = CU_MEMORYTYPE_HOST,
		.srcHost = host,
		.srcPitch = WIDTH,
		.dstMemoryType = CU_MEMORYTYPE_DEVICE,
		.dstDevice = pitched,
		.dstPitch = pitch,
		.WidthInBytes = WIDTH,
		.Height = HEIGHT};
	CUDA_MEMCPY2D out = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
		.srcDevice = pitched,
		.srcPitch = pitch,
		.dstMemoryType = CU_MEMORYTYPE_HOST,
		.dstHost = back,
		.dstPitch = WIDTH,
		.WidthInBytes = WIDTH,
		.Height = HEIGHT};
	memset(back, 0, WIDTH * HEIGHT);
	CHECK(DRV(cuMemcpy2D)(&in));
	CHECK(DRV(cuMemcpy2D)(&out));
	SAY("pitched", "pitch %zu same %d", pitch, memcmp(host, back, WIDTH * HEIGHT) == 0);
	CHECK(DRV(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, a));
	SAY("memory type", "%d", (int)type);
	CHECK(DRV(cuMemFree)(pitched));
	CHECK(DRV(cuMemFree)(a));
	CHECK(DRV(cuMemFree)(b));
	CHECK(DRV(cuMemFreeHost)(pinned));
	CHECK(DRV(cuStreamDestroy)(stream));
	free(host);
	free(back);
}

static void count_call(void *counter)
{
	__atomic_add_fetch((int *)counter, 1, __ATOMIC_RELAXED);
}

static void test_graph(void)
{
	CUstream stream, second;
	CUevent event;
	CUgraph graph;
	CUgraphExec exec;
	CUdeviceptr a, b;
	int calls = 0;

	CHECK(DRV(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
	CHECK(DRV(cuStreamCreate)(&second, CU_STREAM_NON_BLOCKING));
	CHECK(DRV(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING));
	CHECK(DRV(cuMemAlloc)(&a, 16 * MIB));
	CHECK(DRV(cuMemAlloc)(&b, 16 * MIB));
	CHECK(DRV(cuStreamBeginCapture)(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	fill(a, 16 * MIB, 5, stream);
	fill_extra(b, 8 * MIB, 6, stream);
	CHECK(DRV(cuMemsetD32Async)(b + 8 * MIB, 0xabcdef, MIB, stream));
	CHECK(DRV(cuLaunchHostFunc)(stream, count_call, &calls));
	CHECK(DRV(cuStreamEndCapture)(stream, &graph));
	CHECK(DRV(cuGraphInstantiateWithFlags)(&exec, graph, 0));
	for (int i = 0; i < 10; i++)
		CHECK(DRV(cuGraphLaunch)(exec, stream));
	CHECK(DRV(cuEventRecord)(event, stream));
	CHECK(DRV(cuStreamWaitEvent)(second, event, 0));
	fill_ex(b + 12 * MIB, 4 * MIB, 8, second);
	CHECK(DRV(cuStreamSynchronize)(second));
	CHECK(DRV(cuEventSynchronize)(event));
	SAY("graph", "%llx %llx host calls %d", checksum(a, 16 * MIB), checksum(b, 16 * MIB), calls);
	CHECK(DRV(cuGraphExecDestroy)(exec));
	CHECK(DRV(cuGraphDestroy)(graph));
	CHECK(DRV(cuMemFree)(a));
	CHECK(DRV(cuMemFree)(b));
	CHECK(DRV(cuEventDestroy)(event));
	CHECK(DRV(cuStreamDestroy)(stream));
	CHECK(DRV(cuStreamDestroy)(second));
}

/* A program that uses the VMM calls itself. */
static void test_own_vmm(void)
{
	CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
	CUmemAccessDesc access = {
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemGenericAllocationHandle handle;
	CUdeviceptr at, base = 0;
	size_t page = 0, range = 0, size;

	prop.location.id = device;
	access.location.id = device;
	CHECK(DRV(cuMemGetAllocationGranularity)(&page, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	size = 8 * page;
	CHECK(DRV(cuMemAddressReserve)(&at, 2 * size, 0, 0, 0));
	CHECK(DRV(cuMemCreate)(&handle, size, &prop, 0));
	CHECK(DRV(cuMemMap)(at, size, 0, handle, 0));
	CHECK(DRV(cuMemMap)(at + size, size, 0, handle, 0));
	CHECK(DRV(cuMemSetAccess)(at, 2 * size, &access, 1));
	fill(at, size, 13, NULL);
	int code = (int)DRV(cuMemGetAddressRange)(&base, &range, at + 100);
	SAY("own pages", "page %zu sums %llx %llx range %d %d %d", page, checksum(at, size), checksum(at + size, size),
		code, base == at, range == size);
	SAY("own pages given to cuMemFree", "%d", (int)DRV(cuMemFree)(at));
	CHECK(DRV(cuCtxSynchronize)());
	CHECK(DRV(cuMemUnmap)(at, 2 * size));
	CHECK(DRV(cuMemRelease)(handle));
	CHECK(DRV(cuMemAddressFree)(at, 2 * size));
}

static void test_errors(void)
{
	CUdeviceptr at = 0;
	size_t total = 0, free_bytes = 0;

	CHECK(DRV(cuMemGetInfo)(&free_bytes, &total));
	SAY("allocate nothing", "%d", (int)DRV(cuMemAlloc)(&at, 0));
	SAY("allocate too much", "%d %d", (int)DRV(cuMemAlloc)(&at, 2 * total),
		(int)DRV(cuMemAlloc)(&at, (size_t)1 << 50));
	SAY("free nothing", "%d", (int)DRV(cuMemFree)(0));
	SAY("free elsewhere", "%d", (int)DRV(cuMemFree)(0x1000));
	CHECK(DRV(cuMemAlloc)(&at, 8 * MIB));
	SAY("free inside", "%d", (int)DRV(cuMemFree)(at + 2 * MIB));
	fill(at, 8 * MIB, 17, NULL);
	SAY("still there", "%llx", checksum(at, 8 * MIB));
	SAY("free", "%d", (int)DRV(cuMemFree)(at));
	SAY("free twice", "%d", (int)DRV(cuMemFree)(at));
	SAY("no result pointer", "%d", (int)DRV(cuMemAlloc)(NULL, 8 * MIB));
}

/* Meaningful only while no other process uses the device. */
static void test_memory_info(void)
{
	size_t before, held, after, total, device_total = 0, size = 2 * GIB, slack = 64 * MIB;
	CUdeviceptr at;

	CHECK(DRV(cuMemGetInfo)(&before, &total));
	CHECK(DRV(cuDeviceTotalMem)(&device_total, device));
	CHECK(DRV(cuMemAlloc)(&at, size));
	CHECK(DRV(cuMemGetInfo)(&held, &total));
	CHECK(DRV(cuMemFree)(at));
	CHECK(DRV(cuMemGetInfo)(&after, &total));
	SAY("memory info", "fell %d rose %d total %d", before >= held + size && before <= held + size + slack,
		after + slack >= before, total == device_total);
	NOTE("memory info", "before %zu held %zu after %zu MiB", before / MIB, held / MIB, after / MIB);
}

/* A context that goes takes its allocations along. */
static void test_second_context(void)
{
	size_t before, after, total;
	CUcontext second = NULL, popped = NULL, current = NULL;
	CUdeviceptr at;

	CHECK(DRV(cuMemGetInfo)(&before, &total));
	CHECK(create_context(&second, 0, device));
	CHECK(DRV(cuMemAlloc)(&at, GIB));
	CHECK(DRV(cuMemsetD8)(at, 1, GIB));
	CHECK(DRV(cuCtxSynchronize)());
	CUcontext owner = NULL;
	CHECK(DRV(cuPointerGetAttribute)(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, at));
	SAY("second context owns", "%d", owner == second);
	CHECK(DRV(cuCtxPopCurrent)(&popped));
	CHECK(DRV(cuCtxDestroy)(second));
	CHECK(DRV(cuCtxSetCurrent)(context));
	CHECK(DRV(cuCtxGetCurrent)(&current));
	CHECK(DRV(cuMemGetInfo)(&after, &total));
	SAY("second context gone", "popped %d current %d memory back %d", popped == second, current == context,
		after + 256 * MIB >= before);
}

struct worker {
	unsigned seed;
	unsigned long long sum;
};

static void *worker_main(void *data)
{
	struct worker *w = data;
	CUstream stream;
	CUdeviceptr mine, at;
	unsigned long long random = 2862933555777941757ull * (w->seed + 1) + 3037000493ull;

	CHECK(DRV(cuCtxSetCurrent)(context));
	CHECK(DRV(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
	CHECK(DRV(cuMemAlloc)(&mine, 8));
	CHECK(DRV(cuMemsetD8)(mine, 0, 8));
	CHECK(DRV(cuStreamSynchronize)(NULL));
	for (int i = 0; i < 150; i++) {
		random = 2862933555777941757ull * random + 3037000493ull;
		size_t size = 64 * KIB + (size_t)(random >> 40) % (6 * MIB) / 4 * 4;
		unsigned long long count = size / 4;
		void *params[] = {&at, &count, &mine};

		CHECK(DRV(cuMemAlloc)(&at, size));
		fill(at, size, (unsigned)(random >> 13), stream);
		CHECK(DRV(cuLaunchKernel)(sum_words, 32, 1, 1, 256, 1, 1, 0, stream, params, NULL));
		CHECK(DRV(cuMemFree)(at));
	}
	CHECK(DRV(cuStreamSynchronize)(stream));
	CHECK(DRV(cuMemcpyDtoH)(&w->sum, mine, 8));
	CHECK(DRV(cuMemFree)(mine));
	CHECK(DRV(cuStreamDestroy)(stream));
	return NULL;
}

static void test_threads(void)
{
	pthread_t threads[6];
	struct worker workers[6];
	unsigned long long all = 0;

	for (unsigned i = 0; i < 6; i++) {
		workers[i] = (struct worker){.seed = i};
		if (pthread_create(&threads[i], NULL, worker_main, &workers[i]) != 0)
			exit(1);
	}
	for (int i = 0; i < 6; i++) {
		pthread_join(threads[i], NULL);
		all = all * 31 + workers[i].sum;
	}
	SAY("threads", "%llx", all);
}

/* A child made by fork has no driver, and leaves its parent's alone. */
static void test_fork(void)
{
	int status = 0;
	CUdeviceptr at;

	CHECK(DRV(cuMemAlloc)(&at, 8 * MIB));
	fill(at, 8 * MIB, 19, NULL);
	CHECK(DRV(cuCtxSynchronize)());
	pid_t child = fork();
	if (child == 0) {
		alarm(10);
		_exit((int)DRV(cuInit)(0) & 0x7f);
	}
	if (child < 0 || waitpid(child, &status, 0) != child)
		status = -1;
	SAY("forked child", "ended %d code %d", WIFEXITED(status), WIFEXITED(status) ? WEXITSTATUS(status) : -1);
	SAY("after the fork", "%llx", checksum(at, 8 * MIB));
	CHECK(DRV(cuMemFree)(at));
}

static void test_free_while_used(void)
{
	CUstream busy, other;
	CUdeviceptr p, q, result_at;
	unsigned long long count = 64 * MIB / 4, ns = 60 * 1000000ull, result[2] = {0, 0};
	unsigned seed = 3;
	void *params[] = {&p, &count, &ns, &seed, &result_at};

	CHECK(DRV(cuStreamCreate)(&busy, CU_STREAM_NON_BLOCKING));
	CHECK(DRV(cuStreamCreate)(&other, CU_STREAM_NON_BLOCKING));
	CHECK(DRV(cuMemAlloc)(&result_at, 16));
	CHECK(DRV(cuMemsetD8)(result_at, 0, 16));
	CHECK(DRV(cuMemAlloc)(&p, 64 * MIB));
	CHECK(DRV(cuCtxSynchronize)());
	CHECK(DRV(cuLaunchKernel)(hold_words, 32, 1, 1, 256, 1, 1, 0, busy, params, NULL));
	CHECK(DRV(cuMemFree)(p));
	CHECK(DRV(cuMemAlloc)(&q, 64 * MIB));
	fill(q, 64 * MIB, 77, other);
	CHECK(DRV(cuStreamSynchronize)(other));
	CHECK(DRV(cuStreamSynchronize)(busy));
	CHECK(DRV(cuMemcpyDtoH)(result, result_at, 16));
	SAY("free while used", "foreign words %llu ran %d new block %llx", result[0], result[1] > 0,
		checksum(q, 64 * MIB));
	CHECK(DRV(cuMemFree)(q));
	CHECK(DRV(cuMemFree)(result_at));
	CHECK(DRV(cuStreamDestroy)(busy));
	CHECK(DRV(cuStreamDestroy)(other));
}

int main(void)
{
	resolve_all();
	CHECK(DRV(cuInit)(0));
	CHECK(DRV(cuDeviceGet)(&device, 0));
	CHECK(DRV(cuDevicePrimaryCtxRetain)(&context, device));
	CHECK(DRV(cuCtxSetCurrent)(context));
	load_kernels();
	CHECK(DRV(cuMemAlloc)(&cell, 8));
	test_sizes();
	test_copies();
	test_graph();
	test_own_vmm();
	test_errors();
	test_memory_info();
	test_second_context();
	test_threads();
	test_fork();
	test_free_while_used();
	CHECK(DRV(cuMemFree)(cell));
	CHECK(DRV(cuModuleUnload)(module));
	CHECK(DRV(cuDevicePrimaryCtxRelease)(device));
	printf("{\"exact\": {%s}, \"info\": {%s}}\n", exact, info);
	return 0;
}
