/* tests/sim/interpose/faults.c
 * usage: faults WHAT [SYMBOL]
 * What broke Sublet once, by name of the fault: each prints the same with and without it. Linked with the simulated driver,
 * whose control functions it finds by dlsym. What happened only below Sublet is told on stderr. */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "work.h"

#include "tools/sim/sim.h"

static const char *target;
static unsigned happened, wrong;
static pthread_t program_thread;
static bool child_goes_on;

static void on_call(void (*hook)(const char *symbol))
{
	__typeof__(&sublet_sim_on_call) set = (__typeof__(set))dlsym(RTLD_DEFAULT, "sublet_sim_on_call");

	if (!set) {
		printf("not the simulated driver\n");
		exit(1);
	}
	set(hook);
}

static CUdeviceptr managed(size_t bytes)
{
	CUdeviceptr address = 0;

	SAY(cuMemAlloc_v2(&address, bytes));
	return address;
}

static void context(void)
{
	CUcontext primary;

	SAY(cuInit(0));
	SAY(cuDevicePrimaryCtxRetain(&primary, 0));
	SAY(cuCtxSetCurrent(primary));
}

/* ---- a log line into a pipe that nobody reads any more ---- */

static void closed_pipe(void)
{
	int ends[2], kept = dup(STDERR_FILENO);

	signal(SIGPIPE, SIG_DFL);
	if (pipe(ends) != 0)
		exit(1);
	dup2(ends[1], STDERR_FILENO);
	close(ends[0]);
	close(ends[1]);
	WORK();
	/* the summary is to be read */
	dup2(kept, STDERR_FILENO);
}

/* ---- a signal handler forks in the middle of a wrapper ---- */

static void fork_now(int number)
{
	int status = -1;
	pid_t child = fork();

	(void)number;
	happened++;
	if (child == 0 && child_goes_on)
		return;
	if (child == 0)
		_exit(0);
	if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
		wrong++;
}

static void fork_in_target(const char *symbol)
{
	if (strcmp(symbol, target) != 0)
		return;
	/* Sublet's helper thread takes no signals; it forks all the same */
	if (pthread_equal(pthread_self(), program_thread))
		raise(SIGUSR1);
	else if (!child_goes_on)
		fork_now(0);
}

/* Frees may be served later by a thread of Sublet's: not before that is done is the hook taken away. */
static void wait_for_pages(void)
{
	__typeof__(&sublet_sim_counts) count = (__typeof__(count))dlsym(RTLD_DEFAULT, "sublet_sim_counts");
	struct sim_counts counts = {.live_mappings = 1};

	for (int i = 0; i < 5000 && counts.live_mappings; i++) {
		count(&counts);
		usleep(1000);
	}
	printf("all given back: %d\n", counts.live_mappings == 0);
}

static void fork_in_call(void)
{
	pid_t self = getpid();

	signal(SIGUSR1, fork_now);
	context();
	on_call(fork_in_target);
	for (int round = 0; round < 3; round++) {
		CUdeviceptr address = 0, small = 0;
		int results[4] = {cuMemAlloc_v2(&address, WORK_BYTES), cuMemAlloc_v2(&small, WORK_SMALL_BYTES),
			cuMemFree_v2(address), cuMemFree_v2(small)};

		/* whatever a child was told: CUDA is not for it */
		if (getpid() != self)
			_exit(0);
		printf("round %d: %d %d %d %d\n", round, results[0], results[1], results[2], results[3]);
	}
	SAY(cuCtxSynchronize());
	wait_for_pages();
	on_call(NULL);
	WORK();
	printf("children that ended badly: %u\n", wrong);
	fprintf(stderr, "happened %u times\n", happened);
}

/* ---- the driver calls back into the program, which calls the driver ---- */

static struct work_calls again;
static __thread bool inside;

static void *of_driver(const char *symbol)
{
	return dlsym(RTLD_DEFAULT, symbol);
}

static void call_again(const char *symbol)
{
	size_t free_bytes, total_bytes;
	CUdeviceptr address = 0;

	(void)symbol;
	/* a context is current in the program's thread only */
	if (inside || !pthread_equal(pthread_self(), program_thread))
		return;
	inside = true;
	happened++;
	wrong += again.cuMemGetInfo_v2(&free_bytes, &total_bytes) != CUDA_SUCCESS;
	wrong += again.cuMemAlloc_v2(&address, WORK_BYTES) != CUDA_SUCCESS || !address;
	wrong += again.cuMemsetD8_v2(address, 3, WORK_BYTES) != CUDA_SUCCESS;
	wrong += again.cuMemFree_v2(address) != CUDA_SUCCESS;
	inside = false;
}

static void re_entry(void)
{
	context();
	if (work_find(&again, of_driver) != 0)
		exit(1);
	on_call(call_again);
	for (int round = 0; round < 3; round++) {
		CUdeviceptr address = managed(2 * WORK_BYTES);

		SAY(cuMemFree_v2(address));
	}
	WORK();
	SAY(cuCtxSynchronize());
	on_call(NULL);
	printf("wrong answers inside: %u\n", wrong);
	fprintf(stderr, "happened %u times\n", happened);
}

/* ---- pages that the program holds by a handle of its own ---- */

static void retained_handle(void)
{
	CUmemAccessDesc access = {.location.type = CU_MEM_LOCATION_TYPE_DEVICE, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	size_t granule = (size_t)2 << 20, bytes = WORK_BYTES;
	CUmemGenericAllocationHandle handle;
	unsigned char held = 1, back = 0;
	CUdeviceptr first, view, next[8];

	context();
	first = managed(WORK_BYTES);
	SAY(cuMemsetD8_v2(first, held, WORK_BYTES));
	if (cuMemRetainAllocationHandle(&handle, (void *)first) == CUDA_SUCCESS) {
		/* The driver's own refusal for plain memory is what a run without Sublet gets. */
		happened++;
		wrong += cuMemAddressReserve(&view, bytes, 0, 0, 0) != CUDA_SUCCESS;
		/* the driver maps whole handles only; how much of the allocation is behind this one is Sublet's choice */
		while (bytes >= granule && cuMemMap(view, bytes, 0, handle, 0) != CUDA_SUCCESS)
			bytes /= 2;
		wrong += cuMemSetAccess(view, bytes, &access, 1) != CUDA_SUCCESS;
	}
	SAY(cuMemFree_v2(first));
	for (int i = 0; i < 8; i++) {
		next[i] = managed(WORK_BYTES);
		SAY(cuMemsetD8_v2(next[i], 2, WORK_BYTES));
	}
	if (happened) {
		if (cuMemcpyDtoH_v2(&back, view, 1) != CUDA_SUCCESS || back != held)
			wrong++;
		/* and the other way: what the holder writes is nobody else's memory */
		if (cuMemsetD8_v2(view, 9, bytes) != CUDA_SUCCESS)
			wrong++;
	}
	for (int i = 0; i < 8; i++) {
		SAY(cuMemcpyDtoH_v2(&back, next[i], 1));
		printf("byte %d\n", back);
		SAY(cuMemFree_v2(next[i]));
	}
	if (happened && (cuMemUnmap(view, bytes) != CUDA_SUCCESS || cuMemRelease(handle) != CUDA_SUCCESS ||
				cuMemAddressFree(view, WORK_BYTES) != CUDA_SUCCESS))
		wrong++;
	printf("held pages changed, or lost: %u\n", wrong);
	fprintf(stderr, "happened %u times\n", happened);
}

/* ---- a free on one stream while another is being captured ---- */

static void free_beside_capture(void)
{
	static const CUstreamCaptureMode modes[] = {CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL};
	CUstream captured, other;

	context();
	SAY(cuStreamCreate(&captured, CU_STREAM_NON_BLOCKING));
	SAY(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	for (int i = 0; i < 2; i++) {
		CUdeviceptr one = managed(WORK_BYTES), two = managed(WORK_BYTES);
		CUgraph graph = NULL;

		SAY(cuStreamBeginCapture_v2(captured, modes[i]));
		SAY(cuMemFreeAsync(one, other));
		SAY(cuStreamEndCapture(captured, &graph));
		SAY(cuMemFreeAsync(two, other));
		SAY(cuGraphDestroy(graph));
	}
	SAY(cuStreamSynchronize(other));
	SAY(cuCtxSynchronize());
}

/* ---- rights of a peer that the driver refuses for one of Sublet's mappings ---- */

/* What device 1 may do there, which the driver tells of Sublet's mappings only. */
static void say_rights(const CUdeviceptr there[2])
{
	CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1};
	unsigned long long flags[2] = {0, 0};

	for (int i = 0; i < 2; i++)
		cuMemGetAccess(&flags[i], &location, there[i]);
	fprintf(stderr, "rights %llu %llu\n", flags[0], flags[1]);
}

static void peer_refused(void)
{
	__typeof__(&sublet_sim_fail) fail = (__typeof__(fail))dlsym(RTLD_DEFAULT, "sublet_sim_fail");
	CUcontext contexts[2];
	CUdeviceptr there[2], here;

	SAY(cuInit(0));
	for (int i = 0; i < 2; i++)
		SAY(cuDevicePrimaryCtxRetain(&contexts[i], i));
	SAY(cuCtxSetCurrent(contexts[0]));
	there[0] = managed(WORK_BYTES);
	there[1] = managed(WORK_BYTES);
	SAY(cuCtxSetCurrent(contexts[1]));
	here = managed(WORK_BYTES);
	fail("cuMemSetAccess", 2, false, CUDA_ERROR_OUT_OF_MEMORY);
	fprintf(stderr, "enabled %d\n", (int)cuCtxEnablePeerAccess(contexts[0], 0));
	fail(NULL, 0, false, 0);
	say_rights(there);
	fprintf(stderr, "again %d\n", (int)cuCtxEnablePeerAccess(contexts[0], 0));
	say_rights(there);
	for (int i = 0; i < 2; i++)
		SAY(cuMemcpyDtoD_v2(here, there[i], WORK_BYTES));
	SAY(cuMemFree_v2(here));
	for (int i = 0; i < 2; i++)
		SAY(cuMemFree_v2(there[i]));
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";

	target = argc > 2 ? argv[2] : "";
	child_goes_on = argc > 3;
	program_thread = pthread_self();
	if (strcmp(what, "closed_pipe") == 0)
		closed_pipe();
	else if (strcmp(what, "fork_in_call") == 0)
		fork_in_call();
	else if (strcmp(what, "re_entry") == 0)
		re_entry();
	else if (strcmp(what, "retained_handle") == 0)
		retained_handle();
	else if (strcmp(what, "free_beside_capture") == 0)
		free_beside_capture();
	else if (strcmp(what, "peer_refused") == 0)
		peer_refused();
	else
		return 2;
	return 0;
}
