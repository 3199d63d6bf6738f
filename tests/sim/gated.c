/* tests/sim/gated.c rows|callback|pins|away|cancel|end
 * A program that shuts the gate of the Sublet it runs under, from inside: gated.py says where in libsublet.so the functions
 * are, which no program can call by name. What the entry points do is seen in the simulated driver's counts. */
#include "shim/cuda_abi.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lifecycle/lifecycle.h"

static const struct gate_timing patient = {.deadline_ns = 60000000000ull, .timeout_ns = 60000000000ull};

static enum sublet_err (*hold)(struct lifecycle *, const struct gate_timing *, struct errinfo *);
static void (*open_gate)(struct lifecycle *);
static struct lifecycle *lifecycle;
static uint64_t (*calls_of)(const char *symbol);
static void (*fail_calls)(const char *symbol, unsigned nth, bool for_good, int code);

#define NEED(condition)                                                                                                \
	do {                                                                                                           \
		if (!(condition)) {                                                                                    \
			fprintf(stderr, "gated.c:%d: not so: %s\n", __LINE__, #condition);                             \
			exit(99);                                                                                      \
		}                                                                                                      \
	} while (0)

static int find_library(struct dl_phdr_info *info, size_t size, void *arg)
{
	if (!strstr(info->dlpi_name, "libsublet.so"))
		return 0;
	*(uintptr_t *)arg = info->dlpi_addr;
	return 1;
}

static void *inside(const char *variable)
{
	const char *offset = getenv(variable);
	uintptr_t base = 0;

	NEED(offset && dl_iterate_phdr(find_library, &base) == 1);
	return (void *)(base + strtoul(offset, NULL, 16));
}

static void shut(void)
{
	struct errinfo error;

	if (hold(lifecycle, &patient, &error)) {
		fprintf(stderr, "%s\n", error.text);
		exit(99);
	}
}

/* ---- every gated row ---- */

typedef CUresult any_call(long, long, long, long, long, long, long, long, long, long, long, long);

struct row {
	const char *symbol;
	any_call *call;
	bool gated;
	uint64_t before;
	CUresult result;
	pthread_t thread;
	int over;
};

static struct row rows[] = {
#define WRAP(symbol, base, since, stream, need, group, params, args)
#define PASS(symbol, base, since, stream, need, reason, params, args)
#define GATED(symbol, base, since, stream, need, group, params, args) {#symbol, .gated = true},
#include "shim/entries.def"
	/* wrapped, and gated by hand */
	{"cuStreamBeginCapture", .gated = true},
	{"cuStreamBeginCapture_ptsz", .gated = true},
	{"cuStreamBeginCapture_v2", .gated = true},
	{"cuStreamBeginCapture_v2_ptsz", .gated = true},
	{"cuStreamBeginCaptureToGraph", .gated = true},
	{"cuStreamBeginCaptureToGraph_ptsz", .gated = true},
	{"cuLaunchHostFunc", .gated = true},
	{"cuLaunchHostFunc_ptsz", .gated = true},
	{"cuStreamAddCallback", .gated = true},
	{"cuStreamAddCallback_ptsz", .gated = true},
	/* never: allocation, free, queries, events, synchronisation */
	{"cuMemAllocManaged", .gated = false},
	{"cuMemAllocAsync", .gated = false},
	{"cuMemFreeAsync", .gated = false},
	{"cuMemHostAlloc", .gated = false},
	{"cuMemGetInfo_v2", .gated = false},
	{"cuPointerGetAttribute", .gated = false},
	{"cuEventRecord", .gated = false},
	{"cuEventQuery", .gated = false},
	{"cuEventSynchronize", .gated = false},
	{"cuStreamQuery", .gated = false},
	{"cuStreamSynchronize", .gated = false},
	{"cuStreamWaitEvent", .gated = false},
	{"cuStreamEndCapture", .gated = false},
	{"cuCtxSynchronize", .gated = false},
	{"cuGraphInstantiateWithFlags", .gated = false},
	{"cuModuleUnload", .gated = false},
};
#define ROWS (sizeof(rows) / sizeof(rows[0]))

static void *call_row(void *arg)
{
	struct row *row = arg;

	row->result = row->call(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1);
	__atomic_store_n(&row->over, 1, __ATOMIC_RELEASE);
	return NULL;
}

/* The driver fails each call before it looks at an argument, so any will do. */
static int all_rows(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);
	unsigned gated = 0, wrong = 0;

	shut();
	fail_calls("*", 1, true, CUDA_ERROR_OPERATING_SYSTEM);
	for (size_t i = 0; i < ROWS; i++) {
		rows[i].call = (any_call *)dlsym(driver, rows[i].symbol);
		rows[i].before = calls_of(rows[i].symbol);
		NEED(rows[i].call && pthread_create(&rows[i].thread, NULL, call_row, &rows[i]) == 0);
	}
	for (size_t i = 0; i < ROWS; i++) {
		if (!rows[i].gated)
			pthread_join(rows[i].thread, NULL);
	}
	usleep(100000);
	for (size_t i = 0; i < ROWS; i++) {
		if (rows[i].gated && (__atomic_load_n(&rows[i].over, __ATOMIC_ACQUIRE) || calls_of(rows[i].symbol) != rows[i].before)) {
			fprintf(stderr, "%s went past the gate\n", rows[i].symbol);
			wrong++;
		}
	}
	open_gate(lifecycle);
	for (size_t i = 0; i < ROWS; i++) {
		if (!rows[i].gated)
			continue;
		gated++;
		pthread_join(rows[i].thread, NULL);
		if (rows[i].result != CUDA_ERROR_OPERATING_SYSTEM || calls_of(rows[i].symbol) != rows[i].before + 1) {
			fprintf(stderr, "%s: %d, %d calls\n", rows[i].symbol, (int)rows[i].result,
				(int)(calls_of(rows[i].symbol) - rows[i].before));
			wrong++;
		}
	}
	fail_calls(NULL, 0, false, 0);
	printf("%u gated, %u wrong\n", gated, wrong);
	return wrong != 0;
}

/* ---- a call-back that makes a gated call while the gate shuts ---- */

static CUdeviceptr block;
static CUcontext context;
static int begun, done; /* atomic */

static void CUDA_CB set_inside(void *arg)
{
	__atomic_store_n(&begun, 1, __ATOMIC_RELEASE);
	usleep(30000); /* the closer has its marks by now */
	cuCtxSetCurrent(context);
	if (cuMemsetD8Async(block, 0x5a, 1 << 20, arg) == CUDA_SUCCESS)
		__atomic_store_n(&done, 1, __ATOMIC_RELEASE);
}

static void CUDA_CB set_inside_stream(CUstream stream, CUresult status, void *arg)
{
	set_inside(arg);
}

static void one_callback(void)
{
	unsigned char last = 0;

	while (!__atomic_load_n(&begun, __ATOMIC_ACQUIRE))
		usleep(100);
	shut();
	NEED(__atomic_load_n(&done, __ATOMIC_ACQUIRE));
	open_gate(lifecycle);
	NEED(cuMemcpyDtoH_v2(&last, block + (1 << 20) - 1, 1) == CUDA_SUCCESS && last == 0x5a);
	NEED(cuMemsetD8_v2(block, 0, 1 << 20) == CUDA_SUCCESS);
	begun = done = 0;
}

static int callbacks(void)
{
	CUstream stream, other;
	CUDA_HOST_NODE_PARAMS params = {.fn = set_inside};
	CUgraphExec exec;
	CUgraphNode node;
	CUgraph graph;

	NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
	NEED(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
	NEED(cuLaunchHostFunc(stream, set_inside, other) == CUDA_SUCCESS);
	one_callback();
	NEED(cuStreamAddCallback(stream, set_inside_stream, other, 0) == CUDA_SUCCESS);
	one_callback();
	params.userData = other;
	NEED(cuGraphCreate(&graph, 0) == CUDA_SUCCESS);
	NEED(cuGraphAddHostNode(&node, graph, NULL, 0, &params) == CUDA_SUCCESS);
	NEED(cuGraphInstantiateWithFlags(&exec, graph, 0) == CUDA_SUCCESS);
	for (int i = 0; i < 2; i++) {
		NEED(cuGraphLaunch(exec, stream) == CUDA_SUCCESS);
		one_callback();
	}
	printf("call-backs passed\n");
	return 0;
}

/* ---- a thread that is cancelled while it waits ---- */

static void *set_block(void *arg)
{
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
	__atomic_store_n(&begun, 1, __ATOMIC_RELEASE);
	cuMemsetD8_v2(block, 1, 1 << 20);
	pthread_testcancel();
	return NULL;
}

static int cancelled(void)
{
	pthread_t thread;
	void *end = NULL;

	shut();
	NEED(pthread_create(&thread, NULL, set_block, NULL) == 0);
	while (!__atomic_load_n(&begun, __ATOMIC_ACQUIRE))
		usleep(100);
	usleep(20000);
	NEED(pthread_cancel(thread) == 0);
	pthread_join(thread, &end);
	NEED(end == PTHREAD_CANCELED);
	open_gate(lifecycle);
	shut(); /* whose slot was its, is nobody's now */
	open_gate(lifecycle);
	printf("cancelled\n");
	return 0;
}

/* ---- calls that get hold of the pages themselves ---- */

struct pin {
	CUresult (*call)(void);
	pthread_t thread;
	CUresult result;
	int over; /* atomic */
};

static CUresult retain_pages(void)
{
	CUmemGenericAllocationHandle handle;
	CUresult result = cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)block);

	return result == CUDA_SUCCESS ? cuMemRelease(handle) : result;
}

static CUresult export_pages(void)
{
	int fd = -1;
	CUresult result = cuMemGetHandleForAddressRange(&fd, block, 1 << 20, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);

	if (result == CUDA_SUCCESS)
		close(fd);
	return result;
}

static void *call_pin(void *arg)
{
	struct pin *pin = arg;

	pin->result = cuCtxSetCurrent(context);
	if (pin->result == CUDA_SUCCESS)
		pin->result = pin->call();
	__atomic_store_n(&pin->over, 1, __ATOMIC_RELEASE);
	return NULL;
}

#define PINS 2

static int pinned(void)
{
	struct pin pins[PINS] = {{.call = retain_pages}, {.call = export_pages}};

	shut();
	for (size_t i = 0; i < PINS; i++)
		NEED(pthread_create(&pins[i].thread, NULL, call_pin, &pins[i]) == 0);
	usleep(100000);
	for (size_t i = 0; i < PINS; i++)
		NEED(!__atomic_load_n(&pins[i].over, __ATOMIC_ACQUIRE));
	open_gate(lifecycle);
	for (size_t i = 0; i < PINS; i++) {
		pthread_join(pins[i].thread, NULL);
		NEED(pins[i].result == CUDA_SUCCESS);
	}
	for (size_t i = 0; i < PINS; i++) {
		NEED(cuMemFree_v2(block) == CUDA_SUCCESS && cuMemAlloc_v2(&block, 1 << 20) == CUDA_SUCCESS);
		/* Each alone says that the pages stay. */
		pins[i].result = pins[i].call();
		NEED(pins[i].result == CUDA_SUCCESS);
		NEED(((const struct allocation *)lifecycle->records.live)->exposed);
	}
	printf("pins waited\n");
	return 0;
}

/* ---- the end of the process, while held ---- */

static void set_at_the_end(void)
{
	/* after Sublet's own handler, which was registered later */
	if (done)
		printf("at the end: %d\n", (int)cuMemsetD8_v2(block, 2, 1 << 20));
}

static unsigned char pattern[1 << 20];

/* The handler of a program that saves what it has; it was registered later than Sublet's and runs before, or before and runs
 * after. */
static void save(void)
{
	static unsigned char copy[1 << 20];

	CUresult result;

	if (!done)
		return;
	result = cuMemcpyDtoH_v2(copy, block, sizeof(copy));
	printf("saved: %d, %s\n", (int)result, memcmp(copy, pattern, sizeof(copy)) ? "other bytes" : "the same bytes");
	fflush(stdout);
}

static int away(void)
{
	enum sublet_err (*serve)(struct lifecycle *, const struct service_request *, struct move_report *, struct errinfo *) =
		(__typeof__(serve))inside("SERVICE_DO");
	const struct service_request request = {.verb = SERVICE_OFFLOAD, .object = SERVICE_ALL};
	struct move_report report;
	struct errinfo error;

	for (size_t i = 0; i < sizeof(pattern); i++)
		pattern[i] = (unsigned char)(i * 7 + (i >> 8));
	NEED(cuMemcpyHtoD_v2(block, pattern, sizeof(pattern)) == CUDA_SUCCESS);
	memset(&lifecycle->host_pool.hooks, 0, sizeof(lifecycle->host_pool.hooks)); /* no coordinator to give credit */
	NEED(serve(lifecycle, &request, &report, &error) == SUBLET_OK && report.moved == 1);
	done = 1;
	return 0;
}

static int ended(void)
{
	shut();
	done = 1;
	return 0;
}

int main(int argc, char **argv)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);
	CUdevice device;

	atexit(argc == 2 && strcmp(argv[1], "away") == 0 ? save : set_at_the_end);
	hold = (__typeof__(hold))inside("GATE_HOLD");
	open_gate = (__typeof__(open_gate))inside("GATE_OPEN");
	lifecycle = inside("LIFECYCLE");
	calls_of = (__typeof__(calls_of))dlsym(driver, "sublet_sim_calls");
	fail_calls = (__typeof__(fail_calls))dlsym(driver, "sublet_sim_fail");
	NEED(argc == 2 && calls_of && fail_calls && cuInit(0) == CUDA_SUCCESS && cuDeviceGet(&device, 0) == CUDA_SUCCESS);
	NEED(cuDevicePrimaryCtxRetain(&context, device) == CUDA_SUCCESS && cuCtxSetCurrent(context) == CUDA_SUCCESS);
	NEED(cuMemAlloc_v2(&block, 1 << 20) == CUDA_SUCCESS);
	if (strcmp(argv[1], "rows") == 0)
		return all_rows();
	if (strcmp(argv[1], "away") == 0)
		return away();
	if (strcmp(argv[1], "pins") == 0)
		return pinned();
	if (strcmp(argv[1], "callback") == 0)
		return callbacks();
	return strcmp(argv[1], "end") == 0 ? ended() : cancelled();
}
