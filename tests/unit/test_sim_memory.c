/* tests/unit/test_sim_memory.c
 * The simulated driver's memory, machine, resolver and controls. Expected codes are those of driver 580 on an H200 where
 * they were seen, else of the comments in cuda.h. */
#include "tests/unit/sim_harness.h"
#include "tests/unit/sim_process.h"

#include <fcntl.h>
#include <signal.h>

#include "base/list.h"

/* Of tools/sim/sim_priv.h, which cannot be included here: it declares every ABI under its own name. */
uint64_t *sim_machine_lock_used(int location);
uint32_t sim_machine_scans(void);
CUresult cuGetProcAddress_v2(const char *name, void **pfn, int version, cuuint64_t flags, CUdriverProcAddressQueryResult *status);
#undef cuGetProcAddress
CUresult cuGetProcAddress(const char *name, void **pfn, int version, cuuint64_t flags);
/* not among the low terabytes, which the address sanitizer maps: mapped memory is somebody's */
#define NOWHERE ((CUdeviceptr)0x500000000000)

/* ---- growth of tables fails on demand ---- */

static bool no_room;
bool __real_list_room(void *list, size_t count, size_t *capacity, size_t element_bytes);
bool __wrap_list_room(void *list, size_t count, size_t *capacity, size_t element_bytes);

bool __wrap_list_room(void *list, size_t count, size_t *capacity, size_t element_bytes)
{
	return !no_room && __real_list_room(list, count, capacity, element_bytes);
}

static void reserve_without_room_in_table_hands_nothing_out(void **state)
{
	struct sim_counts counts;
	CUdeviceptr p = 1;

	no_room = true;
	FAILS(cuMemAddressReserve(&p, 4 * MIB, 0, 0, 0), CUDA_ERROR_OUT_OF_MEMORY);
	no_room = false;
	assert_int_equal(p, 1);
	sublet_sim_counts(&counts);
	assert_int_equal(counts.reserved_bytes, 0);
	OK(cuMemAddressReserve(&p, 4 * MIB, 0, 0, 0));
	OK(cuMemAddressFree(p, 4 * MIB));
}

/* ---- copies and where their ends may lie ---- */

static void copy_from_unknown_device_address_is_refused(void **state)
{
	CUdeviceptr p, hole;
	char bytes[16];

	OK(cuMemAlloc(&p, 4096));
	OK(cuMemAddressReserve(&hole, 4 * MIB, 0, 0, 0));
	for (int i = 0; i < 2; i++) {
		CUdeviceptr bad = i ? hole : NOWHERE;

		FAILS(cuMemcpyDtoD(p, bad, 16), CUDA_ERROR_INVALID_VALUE);
		FAILS(cuMemcpyDtoD(bad, p, 16), CUDA_ERROR_INVALID_VALUE);
		FAILS(cuMemcpyDtoH(bytes, bad, 16), CUDA_ERROR_INVALID_VALUE);
		FAILS(cuMemcpyHtoD(bad, bytes, 16), CUDA_ERROR_INVALID_VALUE);
		FAILS(cuMemcpyDtoDAsync(p, bad, 16, NULL), CUDA_ERROR_INVALID_VALUE);
		FAILS(cuMemcpy(p, bad, 16), CUDA_ERROR_INVALID_VALUE);
		FAILS(cuMemcpy(bad, p, 16), CUDA_ERROR_INVALID_VALUE);
		FAILS(cuMemsetD8(bad, 1, 16), CUDA_ERROR_INVALID_VALUE);
	}
	OK(cuCtxSynchronize());
	OK(cuMemAddressFree(hole, 4 * MIB));
}

static void copy_with_pageable_memory_as_device_end_is_refused(void **state)
{
	char *pageable = calloc(1, 4096);
	CUdeviceptr p, host = (CUdeviceptr)(uintptr_t)pageable;
	void *pinned;

	OK(cuMemAlloc(&p, 4096));
	OK(cuMemHostAlloc(&pinned, 4096, 0));
	FAILS(cuMemcpyDtoD(p, host, 16), CUDA_ERROR_INVALID_VALUE);
	FAILS(cuMemcpyDtoD(host, p, 16), CUDA_ERROR_INVALID_VALUE);
	FAILS(cuMemcpyHtoD(host, pageable, 16), CUDA_ERROR_INVALID_VALUE);
	FAILS(cuMemcpyDtoH(pageable, host, 16), CUDA_ERROR_INVALID_VALUE);
	FAILS(cuMemsetD8(host, 1, 16), CUDA_ERROR_INVALID_VALUE);
	/* The unified form takes any memory, and pinned memory is the device's too. */
	OK(cuMemcpy(p, host, 16));
	OK(cuMemcpyDtoD(p, (CUdeviceptr)(uintptr_t)pinned, 16));
	OK(cuMemcpyHtoD((CUdeviceptr)(uintptr_t)pinned, pageable, 16));
	OK(cuMemsetD8((CUdeviceptr)(uintptr_t)pinned, 1, 16));
	free(pageable);
}

/* ---- attributes of VMM memory ---- */

static void range_of_vmm_memory_is_its_reservation(void **state)
{
	CUmemGenericAllocationHandle handle = make_handle(2 * MIB);
	CUdeviceptr r, base;
	size_t size;

	OK(cuMemAddressReserve(&r, 16 * MIB, 0, 0, 0));
	map_for_device(r + 4 * MIB, 2 * MIB, handle);
	assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, r + 5 * MIB), r);
	assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_RANGE_SIZE, r + 5 * MIB), 16 * MIB);
	OK(cuMemGetAddressRange(&base, &size, r + 5 * MIB));
	assert_int_equal(base, r + 4 * MIB);
	assert_int_equal(size, 2 * MIB);
	FAILS(cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, r), CUDA_ERROR_INVALID_VALUE);
	FAILS(cuMemGetAddressRange(&base, &size, r), CUDA_ERROR_NOT_FOUND);
}

static void buffer_id_is_of_the_mapping_and_block_id_of_the_backing(void **state)
{
	CUmemGenericAllocationHandle one = make_handle(2 * MIB), two = make_handle(2 * MIB);
	uint64_t first;
	CUdeviceptr r;

	OK(cuMemAddressReserve(&r, 16 * MIB, 0, 0, 0));
	map_for_device(r, 2 * MIB, one);
	map_for_device(r + 2 * MIB, 2 * MIB, one);
	map_for_device(r + 4 * MIB, 2 * MIB, two);
	first = attribute(CU_POINTER_ATTRIBUTE_BUFFER_ID, r);
	assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_BUFFER_ID, r + MIB), first);
	assert_int_not_equal(attribute(CU_POINTER_ATTRIBUTE_BUFFER_ID, r + 2 * MIB), first);
	assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, r),
		attribute(CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, r + 2 * MIB));
	assert_int_not_equal(attribute(CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, r),
		attribute(CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, r + 4 * MIB));
	/* New pages at the same address are another buffer, which registration caches rely on. */
	OK(cuMemUnmap(r, 2 * MIB));
	map_for_device(r, 2 * MIB, two);
	assert_int_not_equal(attribute(CU_POINTER_ATTRIBUTE_BUFFER_ID, r), first);
}

/* ---- the machine: memory that several processes hold ---- */

static int hold_extents(void *arg)
{
	int *pipes = arg, fd = pipes[2];
	CUmemGenericAllocationHandle handle;
	char c;

	if (cuInit(0) ||
		cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR))
		return 1;
	close(pipes[1]);
	/* Holds it until the pipe closes. */
	return write(pipes[3], "x", 1) != 1 || read(pipes[0], &c, 1) != 0;
}

static void extent_held_by_twelve_processes_lives_until_the_last(void **state)
{
	CUmemGenericAllocationHandle handle;
	int go[2], ready[2], args[4];
	pid_t children[12];
	char c;

	assert_int_equal(pipe(go) | pipe(ready), 0);
	/* The holders start before this process has a driver: it does not survive a fork. */
	args[2] = -1;
	{
		/* The extent is made by a first child, which hands its descriptor down by leaving it open for this process. */
		int channel[2];
		pid_t maker;

		assert_int_equal(pipe(channel), 0);
		maker = fork();
		if (maker == 0) {
			int fd;

			if (cuInit(0))
				_exit(1);
			handle = make_handle(2 * MIB);
			if (cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) ||
				write(channel[1], &fd, sizeof(fd)) != sizeof(fd))
				_exit(1);
			pause();
			_exit(0);
		}
		{
			char path[64];
			int fd;

			assert_int_equal(read(channel[0], &fd, sizeof(fd)), sizeof(fd));
			snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)maker, fd);
			args[2] = open(path, O_RDWR | O_CLOEXEC);
			assert_true(args[2] >= 0);
		}
		args[0] = go[0];
		args[1] = go[1];
		args[3] = ready[1];
		for (int i = 0; i < 12; i++)
			children[i] = spawn(hold_extents, args);
		for (int i = 0; i < 12; i++)
			assert_int_equal(read(ready[0], &c, 1), 1);
		kill(maker, SIGKILL);
		ended(maker);
		close(args[2]);
		start();
		assert_int_equal(device_bytes(), 2 * MIB);
		close(go[1]);
		for (int i = 0; i < 12; i++)
			assert_int_equal(ended(children[i]), 0);
		assert_int_equal(device_bytes(), 0);
		close(channel[0]);
		close(channel[1]);
	}
	close(go[0]);
	close(ready[0]);
	close(ready[1]);
}

static int die_with_lock_and_wrong_sum(void *arg)
{
	if (cuInit(0))
		return 1;
	make_handle(6 * MIB);
	*sim_machine_lock_used(0) += 1234567;
	_exit(0);
}

static void sums_are_counted_anew_when_lock_owner_died(void **state)
{
	CUmemGenericAllocationHandle handle;

	assert_int_equal(ended(spawn(die_with_lock_and_wrong_sum, NULL)), 0);
	start();
	assert_int_equal(device_bytes(), 0);
	handle = make_handle(4 * MIB);
	assert_int_equal(device_bytes(), 4 * MIB);
	OK(cuMemRelease(handle));
	assert_int_equal(device_bytes(), 0);
}

static int take_and_die(void *arg)
{
	CUdeviceptr p;

	if (cuInit(0))
		return 1;
	start();
	make_handle(6 * MIB);
	return cuMemAlloc(&p, 3 * MIB) || cuMemFree(p);
}

static void peak_of_machine_is_of_all_processes_until_it_is_reset(void **state)
{
	CUmemGenericAllocationHandle handle;
	struct sim_usage usage;

	assert_false(sublet_sim_usage(0, false, &usage));
	assert_int_equal(ended(spawn(take_and_die, NULL)), 0);
	start();
	assert_false(sublet_sim_usage(1, false, &usage));
	handle = make_handle(2 * MIB);
	assert_true(sublet_sim_usage(0, true, &usage));
	assert_int_equal(usage.used_bytes, 2 * MIB);
	assert_int_equal(usage.peak_bytes, 10 * MIB); /* of the one that is gone: 6, and 3 in whole pages */
	assert_int_equal(usage.capacity_bytes, 80ull << 30);
	assert_int_equal(usage.host_bytes + usage.host_peak_bytes, 0);
	OK(cuMemRelease(handle));
	assert_true(sublet_sim_usage(0, false, &usage));
	assert_int_equal(usage.used_bytes, 0);
	assert_int_equal(usage.peak_bytes, 2 * MIB);
}

static void memory_info_passes_once_over_processes_for_all_orphans(void **state)
{
	enum { COUNT = 20 };
	int fds[COUNT];
	uint32_t before;
	size_t free_bytes, total;

	start();
	for (int i = 0; i < COUNT; i++) {
		CUmemGenericAllocationHandle handle = make_handle(2 * MIB);

		OK(cuMemExportToShareableHandle(&fds[i], handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
		OK(cuMemRelease(handle));
	}
	before = sim_machine_scans();
	OK(cuMemGetInfo(&free_bytes, &total));
	assert_int_equal(total - free_bytes, COUNT * 2 * MIB);
	assert_int_equal(sim_machine_scans(), before + 1);
	for (int i = 0; i < COUNT; i++)
		close(fds[i]);
	OK(cuMemGetInfo(&free_bytes, &total));
	assert_int_equal(free_bytes, total);
	before = sim_machine_scans();
	OK(cuMemGetInfo(&free_bytes, &total));
	assert_int_equal(sim_machine_scans(), before);
}

static void orphaned_extent_is_imported_again(void **state)
{
	CUmemGenericAllocationHandle handle;
	int fd;

	start();
	handle = make_handle(2 * MIB);
	OK(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	OK(cuMemRelease(handle));
	assert_int_equal(device_bytes(), 2 * MIB);
	OK(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	close(fd);
	assert_int_equal(device_bytes(), 2 * MIB);
	OK(cuMemRelease(handle));
	assert_int_equal(device_bytes(), 0);
}

/* ---- resolver ---- */

static void resolver_refuses_version_newer_than_driver(void **state)
{
	CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
	void *p;

	FAILS(cuGetProcAddress_v2("cuMemAlloc", &p, 13010, 0, &status), CUDA_ERROR_INVALID_VALUE);
	FAILS(cuGetProcAddress_v2("cuNothing", &p, 99990, 0, &status), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
	FAILS(cuGetProcAddress_v2("cuMemAlloc", &p, 12000, 8, &status), CUDA_ERROR_INVALID_VALUE);
}

static void resolver_tells_missing_name_by_status_in_second_abi(void **state)
{
	CUdriverProcAddressQueryResult status;
	void *p = &status;

	OK(cuGetProcAddress_v2("cuNothing", &p, 12000, 0, &status));
	assert_null(p);
	assert_int_equal(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
	OK(cuGetProcAddress_v2("cuMemAlloc", &p, 0, 0, &status));
	assert_int_equal(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
	OK(cuGetProcAddress_v2("cuNothing", &p, 12000, 0, NULL));
	FAILS(cuGetProcAddress("cuNothing", &p, 12000, 0), CUDA_ERROR_NOT_FOUND);
}

static void resolver_calls_are_counted_and_failable(void **state)
{
	static const CUuuid known = {"\x6b\xd5\xfb\x6c\x5b\xf4\xe7\x4a\x89\x87\xd9\x39\x12\xfd\x9d\xf9"};
	uint64_t before = sublet_sim_calls("cuGetProcAddress_v2");
	const void *table;
	void *p;

	OK(cuGetProcAddress_v2("cuMemAlloc", &p, 12000, 0, NULL));
	assert_int_equal(sublet_sim_calls("cuGetProcAddress_v2"), before + 1);
	sublet_sim_fail("cuGetProcAddress_v2", 1, false, 0);
	FAILS(cuGetProcAddress_v2("cuMemAlloc", &p, 12000, 0, NULL), CUDA_ERROR_NOT_FOUND);
	assert_true(sublet_sim_fail_fired());
	sublet_sim_fail("cuGetExportTable", 1, false, CUDA_ERROR_NOT_SUPPORTED);
	FAILS(cuGetExportTable(&table, &known), CUDA_ERROR_NOT_SUPPORTED);
	OK(cuGetExportTable(&table, &known));
	assert_int_equal(sublet_sim_calls("cuGetExportTable"), 2);
	/* No place in it is a jump to nothing. */
	for (size_t i = 1; i < *(const size_t *)table / sizeof(void *); i++)
		assert_int_equal(((CUresult(**)(void))table)[i](), CUDA_ERROR_NOT_SUPPORTED);
}

static void export_table_of_unknown_id_is_refused(void **state)
{
	static const CUuuid unknown = {"0123456789abcde"};
	const void *table = NULL;

	FAILS(cuGetExportTable(&table, &unknown), CUDA_ERROR_INVALID_VALUE);
	assert_null(table);
}

static void internal_pointers_are_no_exports_and_work(void **state)
{
	CUresult (*get_count)(int *);
	uint64_t before;
	int count = 0;

	setenv("SUBLET_SIM_INTERNAL_POINTERS", "1", 1);
	OK(cuInit(0));
	OK(cuGetProcAddress_v2("cuDeviceGetCount", (void **)&get_count, 12000, 0, NULL));
	assert_ptr_not_equal(get_count, cuDeviceGetCount);
	before = sublet_sim_calls("cuDeviceGetCount");
	OK(get_count(&count));
	assert_int_equal(count, 1);
	assert_int_equal(sublet_sim_calls("cuDeviceGetCount"), before + 1);
}

/* ---- controls ---- */

static void without_names_parts_by_whole_words(void **state)
{
	int supported = 0;

	setenv("SUBLET_SIM_WITHOUT", "vmmx,xhost_numa", 1);
	OK(cuInit(0));
	OK(cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0));
	assert_int_equal(supported, 1);
	sublet_sim_reset();
	setenv("SUBLET_SIM_WITHOUT", "host_numa,vmm", 1);
	OK(cuInit(0));
	OK(cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0));
	assert_int_equal(supported, 0);
}

static void without_ctx_record_event_hides_and_refuses_it(void **state)
{
	CUdriverProcAddressQueryResult status;
	CUevent event;
	void *p;

	setenv("SUBLET_SIM_WITHOUT", "ctx_record_event", 1);
	start();
	OK(cuGetProcAddress_v2("cuCtxRecordEvent", &p, 13000, 0, &status));
	assert_null(p);
	OK(cuEventCreate(&event, 0));
	FAILS(cuCtxRecordEvent(context, event), CUDA_ERROR_NOT_SUPPORTED);
}

static void several_failures_are_injected_at_once(void **state)
{
	CUdeviceptr p;
	CUevent event;

	sublet_sim_fail("cuMemAlloc_v2", 2, false, 0);
	assert_true(sublet_sim_fail_also("cuEventCreate", 1, true, CUDA_ERROR_UNKNOWN));
	assert_false(sublet_sim_fail_also("cuNothing", 1, true, 0));
	OK(cuMemAlloc(&p, 4096));
	FAILS(cuEventCreate(&event, 0), CUDA_ERROR_UNKNOWN);
	FAILS(cuMemAlloc(&p, 4096), CUDA_ERROR_OUT_OF_MEMORY);
	FAILS(cuEventCreate(&event, 0), CUDA_ERROR_UNKNOWN);
	sublet_sim_fail(NULL, 0, false, 0);
	OK(cuEventCreate(&event, 0));
}

static void log_has_a_line_per_call(void **state)
{
	char path[80], text[2000], wanted[200];
	int fd, count;
	ssize_t length;

	snprintf(path, sizeof(path), "%s/log", machine);
	setenv("SUBLET_SIM_LOG", path, 1);
	setenv("SUBLET_SIM_FAIL", "cuDeviceGetCount:1=801", 1);
	OK(cuInit(0));
	FAILS(cuDeviceGetCount(&count), CUDA_ERROR_NOT_SUPPORTED);
	fd = open(path, O_RDONLY);
	length = read(fd, text, sizeof(text) - 1);
	close(fd);
	assert_true(length > 0);
	text[length] = '\0';
	snprintf(wanted, sizeof(wanted), "%d %d cuInit\n%d %d cuDeviceGetCount refused 801\n", (int)getpid(), (int)getpid(),
		(int)getpid(), (int)getpid());
	assert_string_equal(text, wanted);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(reserve_without_room_in_table_hands_nothing_out),
		CASE(copy_from_unknown_device_address_is_refused),
		CASE(copy_with_pageable_memory_as_device_end_is_refused),
		CASE(range_of_vmm_memory_is_its_reservation),
		CASE(buffer_id_is_of_the_mapping_and_block_id_of_the_backing),
		MACHINE_CASE(extent_held_by_twelve_processes_lives_until_the_last),
		MACHINE_CASE(sums_are_counted_anew_when_lock_owner_died),
		MACHINE_CASE(peak_of_machine_is_of_all_processes_until_it_is_reset),
		MACHINE_CASE(memory_info_passes_once_over_processes_for_all_orphans),
		MACHINE_CASE(orphaned_extent_is_imported_again),
		CASE(resolver_refuses_version_newer_than_driver),
		CASE(resolver_tells_missing_name_by_status_in_second_abi),
		CASE(resolver_calls_are_counted_and_failable),
		CASE(export_table_of_unknown_id_is_refused),
		MACHINE_CASE(internal_pointers_are_no_exports_and_work),
		MACHINE_CASE(without_names_parts_by_whole_words),
		MACHINE_CASE(without_ctx_record_event_hides_and_refuses_it),
		CASE(several_failures_are_injected_at_once),
		MACHINE_CASE(log_has_a_line_per_call),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
