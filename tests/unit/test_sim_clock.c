/* tests/unit/test_sim_clock.c
 * The virtual clock of the simulated driver. Rates are low, so that the real work of this machine fits inside them. */
#include "tests/unit/sim_harness.h"

#include <sys/wait.h>
#include <time.h>

#include "tests/unit/scratch.h"

#define BYTES ((size_t)32 << 20)
#define ONE_MS 67.1 /* BYTES at 500 MB/s */

static CUstream first, second;
static CUevent start, end[2];
static CUdeviceptr device[2];
static void *host[2];

static void begin(const char *speed)
{
	sublet_sim_reset();
	setenv("SUBLET_SIM_SPEED", speed, 1);
	setup(NULL);
	OK(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
	OK(cuEventCreate(&start, 0));
	for (int i = 0; i < 2; i++) {
		OK(cuEventCreate(&end[i], 0));
		OK(cuMemAlloc(&device[i], BYTES));
		OK(cuMemHostAlloc(&host[i], BYTES, 0));
		memset(host[i], i, BYTES);
	}
}

static int finish(void **state)
{
	teardown(NULL);
	unsetenv("SUBLET_SIM_SPEED");
	return 0;
}

static float elapsed(CUevent to)
{
	float ms = 0;

	OK(cuEventSynchronize(to));
	OK(cuEventElapsedTime(&ms, start, to));
	return ms;
}

static float longer(float a, float b)
{
	return a > b ? a : b;
}

static void assert_near(double seen, double wanted, double part)
{
	if (seen < wanted * (1 - part) || seen > wanted * (1 + part))
		fail_msg("%g is not near %g", seen, wanted);
}

static void clock_times_a_copy_by_its_rate(void **state)
{
	begin("pcie=500MB/s,duplex=750MB/s,copy=0s");
	OK(cuEventRecord(start, first));
	OK(cuMemcpyHtoDAsync(device[0], host[0], BYTES, first));
	OK(cuEventRecord(end[0], first));
	assert_near(elapsed(end[0]), ONE_MS, 0.1);
}

static void clock_serves_one_direction_in_turn(void **state)
{
	begin("pcie=500MB/s,duplex=750MB/s,copy=0s");
	OK(cuEventRecord(start, first));
	OK(cuMemcpyHtoDAsync(device[0], host[0], BYTES, first));
	OK(cuMemcpyHtoDAsync(device[1], host[1], BYTES, second));
	OK(cuEventRecord(end[0], first));
	OK(cuEventRecord(end[1], second));
	assert_near(longer(elapsed(end[0]), elapsed(end[1])), 2 * ONE_MS, 0.1);
}

/* FACTS: 55 GB/s one way, 87 to 101 both: less than twice, more than once. */
static void clock_slows_both_directions_together(void **state)
{
	begin("pcie=500MB/s,duplex=750MB/s,copy=0s");
	OK(cuEventRecord(start, first));
	OK(cuMemcpyHtoDAsync(device[0], host[0], BYTES, first));
	OK(cuMemcpyDtoHAsync(host[1], device[1], BYTES, second));
	OK(cuEventRecord(end[0], first));
	OK(cuEventRecord(end[1], second));
	assert_near(longer(elapsed(end[0]), elapsed(end[1])), 2 * BYTES / 750e6 * 1e3, 0.15);
}

static void clock_keeps_kernel_and_copy_overlapped(void **state)
{
	size_t words = BYTES / 4;

	begin("pcie=500MB/s,hbm=500MB/s,copy=0s,launch=0s");
	OK(cuEventRecord(start, first));
	OK(cuMemcpyHtoDAsync(device[0], host[0], BYTES, first));
	OK(launch_fill(device[1], words, 3, second)); /* writes BYTES of device memory */
	OK(cuEventRecord(end[0], first));
	OK(cuEventRecord(end[1], second));
	assert_near(longer(elapsed(end[0]), elapsed(end[1])), ONE_MS, 0.15);
}

/* A kernel on host pages mapped for the device works at the speed of the link. */
static void clock_times_kernel_on_host_memory_by_the_link(void **state)
{
	CUdeviceptr p;

	begin("pcie=500MB/s,hbm=100GB/s,copy=0s,launch=0s");
	OK(cuMemHostGetDevicePointer(&p, host[0], 0));
	OK(cuEventRecord(start, first));
	OK(launch_fill(p, BYTES / 4, 3, first));
	OK(cuEventRecord(end[0], first));
	assert_near(elapsed(end[0]), ONE_MS, 0.1);
}

static void clock_slowed_down_keeps_event_times(void **state)
{
	uint64_t from, to;
	struct timespec t;

	begin("pcie=1GB/s,copy=0s,slow=3");
	clock_gettime(CLOCK_MONOTONIC, &t);
	from = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
	OK(cuEventRecord(start, first));
	OK(cuMemcpyHtoDAsync(device[0], host[0], BYTES, first));
	OK(cuEventRecord(end[0], first));
	assert_near(elapsed(end[0]), ONE_MS / 2, 0.1);
	clock_gettime(CLOCK_MONOTONIC, &t);
	to = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
	assert_true((double)(to - from) / 1e6 >= ONE_MS / 2 * 3 * 0.95);
}

static void clock_overlaps_branches_of_a_graph(void **state)
{
	CUgraphExec exec;
	CUgraph graph;
	CUevent join;

	begin("pcie=500MB/s,duplex=1GB/s,copy=0s");
	OK(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
	OK(cuStreamBeginCapture(first, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cuEventRecord(join, first));
	OK(cuStreamWaitEvent(second, join, 0));
	OK(cuMemcpyHtoDAsync(device[0], host[0], BYTES, first));
	OK(cuMemcpyDtoHAsync(host[1], device[1], BYTES, second));
	OK(cuEventRecord(join, second));
	OK(cuStreamWaitEvent(first, join, 0));
	OK(cuStreamEndCapture(first, &graph));
	OK(cuGraphInstantiate(&exec, graph, 0));
	OK(cuEventRecord(start, first));
	OK(cuGraphLaunch(exec, first));
	OK(cuEventRecord(end[0], first));
	assert_near(elapsed(end[0]), ONE_MS, 0.15);
}

static void clock_off_takes_no_time_of_its_own(void **state)
{
	uint64_t before, after;

	sublet_sim_reset();
	unsetenv("SUBLET_SIM_SPEED");
	setup(NULL);
	before = sublet_sim_now_ns();
	OK(cuMemAlloc(&device[0], 4096));
	OK(cuMemsetD8(device[0], 1, 4096));
	after = sublet_sim_now_ns();
	assert_true(after > before);
}

/* Processes of one machine share its engines. */
static void clock_is_shared_by_processes(void **state)
{
	char folder[] = "/tmp/sim_clock_XXXXXX";
	uint64_t from = 0, to[2];
	int go[2], answer[2];
	pid_t child;
	char byte;
	int status;

	sublet_sim_reset();
	assert_non_null(mkdtemp(folder));
	assert_int_equal(pipe(go) | pipe(answer), 0);
	setenv("SUBLET_SIM_MACHINE", folder, 1);
	child = fork();
	assert_true(child >= 0);
	begin("pcie=500MB/s,copy=0s");
	if (child) {
		assert_int_equal(read(answer[0], &byte, 1), 1); /* both are ready */
		from = sublet_sim_now_ns();
		assert_int_equal(write(go[1], "", 1), 1);
	} else {
		assert_int_equal(write(answer[1], "", 1), 1);
		assert_int_equal(read(go[0], &byte, 1), 1);
	}
	OK(cuMemcpyHtoD(device[0], host[0], BYTES));
	to[0] = sublet_sim_now_ns();
	if (!child) {
		assert_int_equal(write(answer[1], to, sizeof(*to)), (int)sizeof(*to));
		sublet_sim_reset();
		_exit(0);
	}
	assert_int_equal(read(answer[0], &to[1], sizeof(*to)), (int)sizeof(*to));
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	/* an upper bound would time the machine: the two might begin late */
	assert_true((double)((to[0] > to[1] ? to[0] : to[1]) - from) / 1e6 >= 2 * ONE_MS * 0.95);
	teardown(NULL);
	unsetenv("SUBLET_SIM_MACHINE");
	scratch_remove(folder);
	setup(NULL); /* for the common teardown */
}

#define TIMED(name) cmocka_unit_test_teardown(name, finish)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TIMED(clock_times_a_copy_by_its_rate),
		TIMED(clock_serves_one_direction_in_turn),
		TIMED(clock_slows_both_directions_together),
		TIMED(clock_keeps_kernel_and_copy_overlapped),
		TIMED(clock_times_kernel_on_host_memory_by_the_link),
		TIMED(clock_slowed_down_keeps_event_times),
		TIMED(clock_overlaps_branches_of_a_graph),
		TIMED(clock_off_takes_no_time_of_its_own),
		TIMED(clock_is_shared_by_processes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
