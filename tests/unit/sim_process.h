/* tests/unit/sim_process.h
 * For tests of the simulated driver's memory: handles and mappings in one line, a machine of its own with an environment,
 * and other processes on it. */
#ifndef SUBLET_TESTS_UNIT_SIM_PROCESS_H
#define SUBLET_TESTS_UNIT_SIM_PROCESS_H

#include <sys/wait.h>

#include "tests/unit/sim_harness.h"

#define MIB ((size_t)1 << 20)

static __attribute__((unused)) CUmemAllocationProp device_prop(CUmemAllocationHandleType type)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .requestedHandleTypes = type};

	prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	return prop;
}

static __attribute__((unused)) CUmemGenericAllocationHandle make_handle(size_t bytes)
{
	CUmemAllocationProp prop = device_prop(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	CUmemGenericAllocationHandle handle;

	OK(cuMemCreate(&handle, bytes, &prop, 0));
	return handle;
}

static __attribute__((unused)) void map_for_device(CUdeviceptr at, size_t bytes, CUmemGenericAllocationHandle handle)
{
	CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

	OK(cuMemMap(at, bytes, 0, handle, 0));
	OK(cuMemSetAccess(at, bytes, &access, 1));
}

static __attribute__((unused)) uint64_t attribute(CUpointer_attribute which, CUdeviceptr p)
{
	uint64_t value[8] = {0};

	OK(cuPointerGetAttribute(value, which, p));
	return value[0];
}

static __attribute__((unused)) uint64_t device_bytes(void)
{
	struct sim_counts counts;

	sublet_sim_counts(&counts);
	return counts.device_bytes[0];
}

/* ---- a driver of its own per case, with an environment ---- */

static char machine[64];

static __attribute__((unused)) int setup_machine(void **state)
{
	strcpy(machine, "/tmp/sublet-sim-test-XXXXXX");
	sublet_sim_reset();
	return mkdtemp(machine) == NULL || setenv("SUBLET_SIM_MACHINE", machine, 1);
}

static __attribute__((unused)) int teardown_machine(void **state)
{
	char path[80];

	sublet_sim_reset();
	unsetenv("SUBLET_SIM_MACHINE");
	unsetenv("SUBLET_SIM_CAPACITY");
	unsetenv("SUBLET_SIM_WITHOUT");
	unsetenv("SUBLET_SIM_DEVICES");
	unsetenv("SUBLET_SIM_INTERNAL_POINTERS");
	unsetenv("SUBLET_SIM_FAIL");
	unsetenv("SUBLET_SIM_LOG");
	snprintf(path, sizeof(path), "%s/machine", machine);
	unlink(path);
	snprintf(path, sizeof(path), "%s/log", machine);
	unlink(path);
	rmdir(machine);
	return 0;
}

#define MACHINE_CASE(name) cmocka_unit_test_setup_teardown(name, setup_machine, teardown_machine)

static __attribute__((unused)) void start(void)
{
	OK(cuInit(0));
	OK(cuDevicePrimaryCtxRetain(&context, 0));
	OK(cuCtxSetCurrent(context));
}

/* Runs @body in a child, which is a process of its own on the machine; true when it ended with 0. */
static __attribute__((unused)) pid_t spawn(int (*body)(void *), void *arg)
{
	pid_t child = fork();

	if (child == 0)
		_exit(body(arg));
	return child;
}

static __attribute__((unused)) int ended(pid_t child)
{
	int status;

	assert_int_equal(waitpid(child, &status, 0), child);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

#endif
