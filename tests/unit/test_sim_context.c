/* tests/unit/test_sim_context.c
 * The simulated driver's devices, errors, contexts, peers, and memory rules that are not about pools. Values as an H200 with
 * driver 580 gave them, else as the comments in cuda.h. */
#include "tests/unit/sim_harness.h"
#include "tests/unit/sim_process.h"

/* ---- errors and devices ---- */

static void every_error_has_name_and_text(void **state)
{
	const char *text;

	OK(cuGetErrorName(CUDA_ERROR_ILLEGAL_ADDRESS, &text));
	assert_string_equal(text, "CUDA_ERROR_ILLEGAL_ADDRESS");
	OK(cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text));
	assert_string_equal(text, "out of memory");
	OK(cuGetErrorString(CUDA_ERROR_UNKNOWN, &text));
	FAILS(cuGetErrorName((CUresult)12345, &text), CUDA_ERROR_INVALID_VALUE);
	assert_null(text);
}

static void device_answers_are_those_of_an_h200(void **state)
{
	static const struct {
		CUdevice_attribute attribute;
		int value;
	} wanted[] = {{CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9}, {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 132},
		{CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 62914560}, {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 232448},
		{CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048}, {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 6016},
		{CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, 0}, {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1},
		{CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, 0}, {CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, 1}};
	int value;
	size_t total;

	for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
		OK(cuDeviceGetAttribute(&value, wanted[i].attribute, 0));
		assert_int_equal(value, wanted[i].value);
	}
	FAILS(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MAX, 0), CUDA_ERROR_INVALID_VALUE);
	FAILS(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 1), CUDA_ERROR_INVALID_DEVICE);
	OK(cuDeviceTotalMem(&total, 0));
	assert_int_equal(total, 80ull << 30);
}

static void devices_are_told_apart_by_bus_and_uuid(void **state)
{
	CUuuid one, two;
	CUdevice device;
	char id[32];

	setenv("SUBLET_SIM_DEVICES", "2", 1);
	OK(cuInit(0));
	OK(cuDeviceGetUuid(&one, 0));
	OK(cuDeviceGetUuid(&two, 1));
	assert_memory_not_equal(one.bytes, two.bytes, 16);
	OK(cuDeviceGetPCIBusId(id, sizeof(id), 1));
	OK(cuDeviceGetByPCIBusId(&device, id));
	assert_int_equal(device, 1);
	FAILS(cuDeviceGetByPCIBusId(&device, "0000:99:00.0"), CUDA_ERROR_INVALID_VALUE);
	FAILS(cuDeviceGetByPCIBusId(&device, "nonsense"), CUDA_ERROR_INVALID_VALUE);
}

/* ---- contexts ---- */

static void context_limits_are_kept_and_checked(void **state)
{
	size_t value;

	OK(cuCtxGetLimit(&value, CU_LIMIT_STACK_SIZE));
	assert_int_equal(value, 1024);
	OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096));
	OK(cuCtxGetLimit(&value, CU_LIMIT_STACK_SIZE));
	assert_int_equal(value, 4096);
	OK(cuCtxGetLimit(&value, CU_LIMIT_PRINTF_FIFO_SIZE));
	assert_int_equal(value, 8650752);
	FAILS(cuCtxGetLimit(&value, CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH), CUDA_ERROR_UNSUPPORTED_LIMIT);
	FAILS(cuCtxGetLimit(&value, CU_LIMIT_MAX), CUDA_ERROR_INVALID_VALUE);
	FAILS(cuCtxSetLimit(CU_LIMIT_MAX_L2_FETCH_GRANULARITY, 129), CUDA_ERROR_INVALID_VALUE);
}

static void context_state_is_kept(void **state)
{
	unsigned long long id, other;
	CUfunc_cache cache;
	CUcontext second;
	unsigned value;

	OK(cuCtxGetFlags(&value));
	assert_int_equal(value, CU_CTX_MAP_HOST);
	OK(cuCtxGetApiVersion(context, &value));
	assert_int_equal(value, 3020);
	OK(cuCtxSetCacheConfig(CU_FUNC_CACHE_PREFER_L1));
	OK(cuCtxGetCacheConfig(&cache));
	assert_int_equal(cache, CU_FUNC_CACHE_PREFER_L1);
	FAILS(cuCtxSetCacheConfig((CUfunc_cache)9), CUDA_ERROR_INVALID_VALUE);
	OK(cuCtxResetPersistingL2Cache());
	OK(cuCtxGetId(context, &id));
	OK(cuCtxCreate(&second, NULL, CU_CTX_SCHED_SPIN, 0));
	OK(cuCtxGetId(NULL, &other));
	assert_true(id != other);
	OK(cuCtxGetFlags(&value));
	assert_int_equal(value, CU_CTX_SCHED_SPIN | CU_CTX_MAP_HOST);
	FAILS(cuCtxCreate(&second, NULL, CU_CTX_SCHED_SPIN | CU_CTX_SCHED_YIELD, 0), CUDA_ERROR_INVALID_VALUE);
	FAILS(cuCtxCreate(&second, NULL, 1 << 10, 0), CUDA_ERROR_INVALID_VALUE);
}

static void context_stack_pushes_pops_and_detaches(void **state)
{
	CUcontext second, current;
	CUdevice device;

	OK(cuCtxCreate(&second, NULL, 0, 0));
	OK(cuCtxGetCurrent(&current));
	assert_ptr_equal(current, second);
	OK(cuCtxPushCurrent(context));
	OK(cuCtxPopCurrent(&current));
	assert_ptr_equal(current, context);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations" /* programs call it still */
	FAILS(cuCtxDetach(context), CUDA_ERROR_INVALID_CONTEXT);
	OK(cuCtxDetach(second));
#pragma GCC diagnostic pop
	FAILS(cuCtxSetCurrent(second), CUDA_ERROR_INVALID_CONTEXT);
	FAILS(cuCtxDestroy(context), CUDA_ERROR_INVALID_CONTEXT);
	while (cuCtxPopCurrent(NULL) == CUDA_SUCCESS)
		;
	FAILS(cuCtxGetDevice(&device), CUDA_ERROR_INVALID_CONTEXT);
	OK(cuCtxSetCurrent(context));
}

static void primary_context_flags_and_state(void **state)
{
	unsigned flags;
	int active;

	OK(cuInit(0));
	OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
	assert_int_equal(active, 0);
	OK(cuDevicePrimaryCtxSetFlags(0, CU_CTX_SCHED_BLOCKING_SYNC));
	OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
	assert_int_equal(flags, CU_CTX_SCHED_BLOCKING_SYNC);
	assert_int_equal(active, 0);
	FAILS(cuDevicePrimaryCtxSetFlags(0, 1 << 10), CUDA_ERROR_INVALID_VALUE);
	FAILS(cuDevicePrimaryCtxSetFlags(5, 0), CUDA_ERROR_INVALID_DEVICE);
	start();
	OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
	assert_int_equal(flags, CU_CTX_SCHED_BLOCKING_SYNC);
	assert_int_equal(active, 1);
	OK(cuDevicePrimaryCtxRelease(0));
	FAILS(cuDevicePrimaryCtxRelease(0), CUDA_ERROR_INVALID_CONTEXT);
}

/* ---- peers ---- */

static CUcontext peer;
static CUfunction peer_fill;

static void start_two(void)
{
	setenv("SUBLET_SIM_DEVICES", "2", 1);
	start();
	OK(cuModuleLoadData(&builtin, "sublet-sim:builtin"));
	OK(cuModuleGetFunction(&peer_fill, builtin, "sim_fill32"));
	OK(cuDevicePrimaryCtxRetain(&peer, 1));
}

static CUresult fill_and_wait(CUdeviceptr p)
{
	size_t words = 16;
	uint32_t value = 5;
	void *params[] = {&p, &words, &value};
	CUresult result = cuLaunchKernel(peer_fill, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL);

	return result ? result : cuCtxSynchronize();
}

static void peer_access_has_its_errors(void **state)
{
	int can;

	start_two();
	OK(cuDeviceCanAccessPeer(&can, 0, 1));
	assert_int_equal(can, 1);
	OK(cuDeviceCanAccessPeer(&can, 1, 1));
	assert_int_equal(can, 0);
	FAILS(cuDeviceCanAccessPeer(&can, 0, 2), CUDA_ERROR_INVALID_DEVICE);
	FAILS(cuCtxDisablePeerAccess(peer), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
	FAILS(cuCtxEnablePeerAccess(peer, 1), CUDA_ERROR_INVALID_VALUE);
	FAILS(cuCtxEnablePeerAccess(context, 0), CUDA_ERROR_INVALID_DEVICE);
	FAILS(cuCtxEnablePeerAccess(NULL, 0), CUDA_ERROR_INVALID_CONTEXT);
	OK(cuCtxEnablePeerAccess(peer, 0));
	FAILS(cuCtxEnablePeerAccess(peer, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
	OK(cuCtxDisablePeerAccess(peer));
}

static void kernel_on_peer_memory_needs_access(void **state)
{
	CUdeviceptr p;

	start_two();
	OK(cuCtxSetCurrent(peer));
	OK(cuMemAlloc(&p, 4096));
	OK(cuCtxSetCurrent(context));
	OK(cuCtxEnablePeerAccess(peer, 0));
	OK(fill_and_wait(p));
	assert_int_equal(word_at(p), 5);
	OK(cuCtxDisablePeerAccess(peer));
	assert_int_equal(word_at(p), 5); /* copies need none: the driver stages them */
	FAILS(fill_and_wait(p), CUDA_ERROR_ILLEGAL_ADDRESS);
	FAILS(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void peer_access_does_not_reach_vmm_memory(void **state)
{
	CUmemAccessDesc both[2] = {{.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1},
					   .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
		{.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE}};
	CUmemAllocationProp prop = device_prop(CU_MEM_HANDLE_TYPE_NONE);
	CUmemGenericAllocationHandle handle;
	unsigned long long flags;
	CUdeviceptr r;

	start_two();
	prop.location.id = 1;
	OK(cuMemCreate(&handle, 2 * MIB, &prop, 0));
	OK(cuMemAddressReserve(&r, 2 * MIB, 0, 0, 0));
	OK(cuMemMap(r, 2 * MIB, 0, handle, 0));
	OK(cuMemSetAccess(r, 2 * MIB, both, 1));
	OK(cuMemGetAccess(&flags, &both[1].location, r));
	assert_int_equal(flags, 0);
	OK(cuMemSetAccess(r, 2 * MIB, both, 2));
	OK(fill_and_wait(r));
	both[1].flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
	OK(cuMemSetAccess(r, 2 * MIB, &both[1], 1));
	OK(cuCtxEnablePeerAccess(peer, 0));
	FAILS(fill_and_wait(r), CUDA_ERROR_ILLEGAL_ADDRESS);
}

/* ---- memory outside pools ---- */

static void host_memory_of_vmm_follows_the_rules_of_locations(void **state)
{
	CUmemAccessDesc cpu = {.location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA}, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemAllocationProp prop = device_prop(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	CUmemGenericAllocationHandle handle;
	CUdeviceptr r;

	OK(cuMemAddressReserve(&r, 4 * MIB, 0, 0, 0));
	prop.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
	FAILS(cuMemCreate(&handle, 2 * MIB, &prop, 0), CUDA_ERROR_INVALID_VALUE);
	prop.location.type = CU_MEM_LOCATION_TYPE_HOST;
	FAILS(cuMemCreate(&handle, 2 * MIB, &prop, 0), CUDA_ERROR_INVALID_VALUE);
	prop.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
	prop.location.id = 7;
	FAILS(cuMemCreate(&handle, 2 * MIB, &prop, 0), CUDA_ERROR_INVALID_VALUE);
	prop.location.id = 0;
	OK(cuMemCreate(&handle, 2 * MIB, &prop, 0));
	assert_int_equal(device_bytes(), 0);
	map_for_device(r, 2 * MIB, handle);
	OK(cuMemSetAccess(r, 2 * MIB, &cpu, 1));
	*(volatile uint32_t *)r = 9;
	assert_int_equal(word_at(r), 9);
	/* The CPU gets no access to device memory. */
	map_for_device(r + 2 * MIB, 2 * MIB, make_handle(2 * MIB));
	FAILS(cuMemSetAccess(r + 2 * MIB, 2 * MIB, &cpu, 1), CUDA_ERROR_INVALID_VALUE);
	cpu.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	cpu.location.id = 5;
	FAILS(cuMemSetAccess(r, 2 * MIB, &cpu, 1), CUDA_ERROR_INVALID_DEVICE);
}

static void small_allocations_share_two_mebibytes(void **state)
{
	CUdeviceptr a, b, c;

	OK(cuMemAlloc(&a, 5));
	OK(cuMemAlloc(&b, 1000));
	assert_int_equal(device_bytes(), 2 * MIB);
	assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_RANGE_SIZE, a), 5);
	assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_MAPPING_SIZE, a), 2 * MIB);
	assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, a), attribute(CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, b));
	OK(cuMemAlloc(&c, 3 * MIB));
	assert_int_equal(c % (2 * MIB), 0);
	assert_int_equal(device_bytes(), 6 * MIB);
	OK(cuMemFree(a));
	OK(cuMemFree(c));
	assert_int_equal(device_bytes(), 2 * MIB);
	OK(cuMemFree(b));
	assert_int_equal(device_bytes(), 0);
}

static void managed_and_pitched_memory_check_their_arguments(void **state)
{
	CUdeviceptr p;
	size_t pitch;

	FAILS(cuMemAllocManaged(&p, 4096, 0), CUDA_ERROR_INVALID_VALUE);
	FAILS(cuMemAllocManaged(&p, 4096, CU_MEM_ATTACH_SINGLE), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemAllocManaged(&p, 4096, CU_MEM_ATTACH_GLOBAL));
	assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_IS_MANAGED, p), 1);
	OK(cuMemFree(p));
	OK(cuMemAllocPitch(&p, &pitch, 1000, 3, 4));
	assert_int_equal(pitch, 1024);
	FAILS(cuMemAllocPitch(&p, &pitch, 1000, 3, 3), CUDA_ERROR_INVALID_VALUE);
}

static void managed_memory_keeps_advice_and_prefetches(void **state)
{
	CUmemLocation device = {.type = CU_MEM_LOCATION_TYPE_DEVICE}, host = {.type = CU_MEM_LOCATION_TYPE_HOST},
		      none = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 9};
	CUdeviceptr p, plain;
	int value;

	OK(cuMemAllocManaged(&p, 2 * MIB, CU_MEM_ATTACH_GLOBAL));
	OK(cuMemAlloc(&plain, 4096));
	OK(cuMemRangeGetAttribute(&value, sizeof(value), CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, p, MIB));
	assert_int_equal(value, CU_DEVICE_INVALID);
	OK(cuMemAdvise(p, MIB, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, device));
	OK(cuMemRangeGetAttribute(&value, sizeof(value), CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, p, MIB));
	assert_int_equal(value, 0);
	OK(cuMemAdvise(p, MIB, CU_MEM_ADVISE_SET_READ_MOSTLY, none));
	OK(cuMemRangeGetAttribute(&value, sizeof(value), CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, p, MIB));
	assert_int_equal(value, 1);
	OK(cuMemPrefetchAsync(p, 2 * MIB, host, 0, NULL));
	OK(cuMemRangeGetAttribute(&value, sizeof(value), CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, p, MIB));
	assert_int_equal(value, CU_DEVICE_CPU);
	FAILS(cuMemPrefetchAsync(p, 3 * MIB, host, 0, NULL), CUDA_ERROR_INVALID_VALUE);
	FAILS(cuMemPrefetchAsync(p, MIB, none, 0, NULL), CUDA_ERROR_INVALID_DEVICE);
	FAILS(cuMemPrefetchAsync(plain, 4096, device, 0, NULL), CUDA_ERROR_INVALID_VALUE);
	FAILS(cuMemAdvise(plain, 4096, CU_MEM_ADVISE_SET_READ_MOSTLY, device), CUDA_ERROR_INVALID_VALUE);
}

static void attributes_of_unknown_memory_are_empty_and_no_error(void **state)
{
	CUpointer_attribute list[3] = {CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
		CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
	uint64_t ctx = 1;
	unsigned type = 1, sync;
	int ordinal = 1;
	void *data[3] = {&ctx, &type, &ordinal};
	CUdeviceptr p;

	OK(cuPointerGetAttributes(3, list, data, 0x7000000000));
	assert_int_equal(ctx, 0);
	assert_int_equal(type, 0);
	assert_int_equal(ordinal, CU_DEVICE_INVALID);
	OK(cuMemAlloc(&p, 4096));
	OK(cuPointerGetAttributes(3, list, data, p + 8));
	assert_int_equal(ctx, (uintptr_t)context);
	assert_int_equal(type, CU_MEMORYTYPE_DEVICE);
	assert_int_equal(ordinal, 0);
	assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p), 1);
	sync = 0;
	OK(cuPointerSetAttribute(&sync, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p));
	assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p), 0);
	FAILS(cuPointerSetAttribute(&sync, CU_POINTER_ATTRIBUTE_BUFFER_ID, p), CUDA_ERROR_INVALID_VALUE);
}

static void dma_buf_keeps_its_memory(void **state)
{
	CUmemGenericAllocationHandle handle = make_handle(2 * MIB);
	CUdeviceptr r;
	int fd = -1;

	OK(cuMemAddressReserve(&r, 4 * MIB, 0, 0, 0));
	map_for_device(r, 2 * MIB, handle);
	FAILS(cuMemGetHandleForAddressRange(&fd, r, 4 * MIB, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0), CUDA_ERROR_NOT_SUPPORTED);
	FAILS(cuMemGetHandleForAddressRange(&fd, (CUdeviceptr)(uintptr_t)gate, 4096, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0),
		CUDA_ERROR_INVALID_VALUE);
	OK(cuMemGetHandleForAddressRange(&fd, r, 2 * MIB, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
	OK(cuMemUnmap(r, 2 * MIB));
	OK(cuMemRelease(handle));
	assert_int_equal(device_bytes(), 2 * MIB);
	close(fd);
	assert_int_equal(device_bytes(), 0);
}

static void array_bytes_count_on_the_device(void **state)
{
	CUDA_ARRAY3D_DESCRIPTOR full = {.Width = 1024, .Height = 1024, .Depth = 2, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
	CUDA_ARRAY_DESCRIPTOR flat = {100, 0, CU_AD_FORMAT_HALF, 4}, back;
	CUarray one, two;

	OK(cuArray3DCreate(&one, &full));
	assert_int_equal(device_bytes(), 8 * MIB);
	OK(cuArrayCreate(&two, &flat));
	OK(cuArrayGetDescriptor(&back, two));
	assert_memory_equal(&back, &flat, sizeof(flat));
	OK(cuArrayDestroy(one));
	FAILS(cuArrayDestroy(one), CUDA_ERROR_INVALID_HANDLE);
	full.NumChannels = 3;
	FAILS(cuArray3DCreate(&one, &full), CUDA_ERROR_INVALID_VALUE);
	OK(cuArrayDestroy(two));
	assert_int_equal(device_bytes(), 0);
}

static void device_resource_is_its_processors(void **state)
{
	CUdevResource resource;

	OK(cuDeviceGetDevResource(0, &resource, CU_DEV_RESOURCE_TYPE_SM));
	assert_int_equal(resource.sm.smCount, 132);
	OK(cuCtxGetDevResource(context, &resource, CU_DEV_RESOURCE_TYPE_SM));
	FAILS(cuDeviceGetDevResource(0, &resource, CU_DEV_RESOURCE_TYPE_INVALID), CUDA_ERROR_INVALID_RESOURCE_TYPE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(every_error_has_name_and_text),
		CASE(device_answers_are_those_of_an_h200),
		MACHINE_CASE(devices_are_told_apart_by_bus_and_uuid),
		CASE(context_limits_are_kept_and_checked),
		CASE(context_state_is_kept),
		CASE(context_stack_pushes_pops_and_detaches),
		MACHINE_CASE(primary_context_flags_and_state),
		MACHINE_CASE(peer_access_has_its_errors),
		MACHINE_CASE(kernel_on_peer_memory_needs_access),
		MACHINE_CASE(peer_access_does_not_reach_vmm_memory),
		CASE(host_memory_of_vmm_follows_the_rules_of_locations),
		CASE(small_allocations_share_two_mebibytes),
		CASE(managed_and_pitched_memory_check_their_arguments),
		CASE(managed_memory_keeps_advice_and_prefetches),
		CASE(attributes_of_unknown_memory_are_empty_and_no_error),
		CASE(dma_buf_keeps_its_memory),
		CASE(array_bytes_count_on_the_device),
		CASE(device_resource_is_its_processors),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
