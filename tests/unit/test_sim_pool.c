/* tests/unit/test_sim_pool.c
 * The simulated driver's stream-ordered memory, legacy IPC and host memory. Numbers and codes as an H200 with driver 580
 * gave them, else as the comments in cuda.h. */
#include "tests/unit/sim_harness.h"
#include "tests/unit/sim_process.h"

#include <fcntl.h>
#include <sys/mman.h>

static CUmemoryPool pool;

static int setup_pool(void **state)
{
	setup(state);
	OK(cuDeviceGetDefaultMemPool(&pool, 0));
	return 0;
}

#define POOL_CASE(name) cmocka_unit_test_setup_teardown(name, setup_pool, teardown)

static uint64_t of_pool(CUmemPool_attribute which)
{
	cuuint64_t value = 0;

	OK(cuMemPoolGetAttribute(pool, which, &value));
	return value;
}

#define USED of_pool(CU_MEMPOOL_ATTR_USED_MEM_CURRENT)
#define USED_HIGH of_pool(CU_MEMPOOL_ATTR_USED_MEM_HIGH)
#define RESERVED of_pool(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)
#define RESERVED_HIGH of_pool(CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)

static void pool_reserves_by_32_mib_and_gives_back_at_synchronize(void **state)
{
	CUdeviceptr p;

	OK(cuMemAllocAsync(&p, 4 * MIB, NULL));
	assert_int_equal(USED, 4 * MIB);
	assert_int_equal(RESERVED, 32 * MIB);
	assert_int_equal(device_bytes(), 32 * MIB);
	OK(cuMemFreeAsync(p, NULL));
	assert_int_equal(USED, 0);
	assert_int_equal(USED_HIGH, 4 * MIB);
	assert_int_equal(RESERVED, 32 * MIB);
	OK(cuCtxSynchronize());
	assert_int_equal(RESERVED, 0);
	assert_int_equal(RESERVED_HIGH, 32 * MIB);
	assert_int_equal(device_bytes(), 0);
}

static void pool_keeps_up_to_its_threshold_until_trimmed(void **state)
{
	cuuint64_t threshold = 64 * MIB;
	CUdeviceptr p;

	OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
	OK(cuMemAllocAsync(&p, 100 * MIB, NULL));
	assert_int_equal(RESERVED, 128 * MIB);
	OK(cuMemFreeAsync(p, NULL));
	OK(cuMemAllocAsync(&p, MIB, NULL));
	assert_int_equal(RESERVED, 128 * MIB);
	OK(cuStreamSynchronize(NULL));
	assert_int_equal(RESERVED, 128 * MIB); /* in use in part */
	OK(cuMemFreeAsync(p, NULL));
	OK(cuMemPoolTrimTo(pool, 200 * MIB));
	assert_int_equal(RESERVED, 128 * MIB);
	OK(cuMemPoolTrimTo(pool, 0));
	assert_int_equal(RESERVED, 0);
}

static void pool_attributes_that_are_the_drivers_cannot_be_set(void **state)
{
	cuuint64_t zero = 0, five = 5;
	int off = 0, is;

	FAILS(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &zero), CUDA_ERROR_INVALID_VALUE);
	FAILS(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &zero), CUDA_ERROR_INVALID_VALUE);
	FAILS(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &five), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero));
	OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &is));
	assert_int_equal(is, 1);
	OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &off));
	OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &is));
	assert_int_equal(is, 0);
	FAILS(cuMemPoolGetAttribute(pool, (CUmemPool_attribute)99, &zero), CUDA_ERROR_INVALID_VALUE);
}

static void free_async_refuses_what_is_no_allocation(void **state)
{
	CUdeviceptr p, plain;
	void *host;

	OK(cuMemAllocAsync(&p, 1000, NULL));
	assert_int_equal(USED, 1000);
	OK(cuMemAlloc(&plain, 4096));
	OK(cuMemHostAlloc(&host, 4096, 0));
	FAILS(cuMemFreeAsync(p + 8, NULL), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemFreeAsync(p, NULL));
	FAILS(cuMemFreeAsync(p, NULL), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemFreeAsync(0, NULL));
	OK(cuMemFreeAsync(plain, NULL));
	FAILS(cuMemFreeAsync((CUdeviceptr)(uintptr_t)host, NULL), CUDA_ERROR_INVALID_VALUE);
	FAILS(cuMemAllocAsync(&p, 0, NULL), CUDA_ERROR_INVALID_VALUE);
	FAILS(cuMemAllocAsync(&p, (size_t)1 << 50, NULL), CUDA_ERROR_OUT_OF_MEMORY);
}

static void pending_free_is_reused_by_its_own_stream_only(void **state)
{
	CUstream one, two;
	CUdeviceptr a, b, c, d;

	OK(cuStreamCreate(&one, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&two, CU_STREAM_NON_BLOCKING));
	OK(cuMemAllocAsync(&a, 20 * MIB, one));
	close_gate(one);
	OK(cuMemFreeAsync(a, one));
	OK(cuMemAllocAsync(&b, 20 * MIB, two));
	assert_int_not_equal(b, a);
	OK(cuMemAllocAsync(&c, 20 * MIB, one));
	assert_int_equal(c, a);
	open_gate();
	OK(cuStreamSynchronize(one));
	/* The free that was reached is not that of the new use. */
	OK(launch_fill(c, 4, 7, one));
	OK(cuMemAllocAsync(&d, 20 * MIB, two));
	assert_int_not_equal(d, c);
	OK(cuStreamSynchronize(one));
	assert_int_equal(word_at(c), 7);
	OK(cuMemFreeAsync(b, two));
	OK(cuStreamSynchronize(two));
	OK(cuMemAllocAsync(&b, 20 * MIB, one));
}

static void pool_memory_has_no_context_and_no_legacy_handle(void **state)
{
	CUipcMemHandle handle;
	CUdeviceptr p;

	OK(cuMemAllocAsync(&p, 4 * MIB, NULL));
	assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_CONTEXT, p), 0);
	assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, p), (uintptr_t)pool);
	assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, p), 0);
	assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_RANGE_SIZE, p), 4 * MIB);
	assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_MAPPING_SIZE, p), 32 * MIB);
	FAILS(cuIpcGetMemHandle(&handle, p), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemFree(p));
	assert_int_equal(USED, 0);
}

static void own_pool_is_current_until_destroyed(void **state)
{
	CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .maxSize = 40 * MIB};
	CUmemoryPool own, current;
	CUdeviceptr p, q;

	props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	OK(cuMemPoolCreate(&own, &props));
	OK(cuDeviceSetMemPool(0, own));
	OK(cuMemAllocAsync(&p, MIB, NULL));
	assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, p), (uintptr_t)own);
	FAILS(cuMemAllocAsync(&q, 200 * MIB, NULL), CUDA_ERROR_OUT_OF_MEMORY);
	OK(cuMemAllocFromPoolAsync(&q, 200 * MIB, pool, NULL));
	FAILS(cuMemPoolDestroy(pool), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemPoolDestroy(own));
	FAILS(cuMemPoolDestroy(own), CUDA_ERROR_INVALID_VALUE);
	OK(cuDeviceGetMemPool(&current, 0));
	assert_ptr_equal(current, pool);
	/* What came from it lives on until it is freed. */
	OK(cuMemsetD8(p, 1, MIB));
	OK(cuMemFreeAsync(q, NULL));
	OK(cuMemFreeAsync(p, NULL));
	OK(cuCtxSynchronize());
	assert_int_equal(device_bytes(), 0);
}

static void pool_create_follows_the_rules_of_locations(void **state)
{
	CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED};
	CUmemoryPool own;
	CUdeviceptr p;

	props.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
	FAILS(cuMemPoolCreate(&own, &props), CUDA_ERROR_INVALID_VALUE);
	props.location.type = CU_MEM_LOCATION_TYPE_HOST;
	props.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	FAILS(cuMemPoolCreate(&own, &props), CUDA_ERROR_INVALID_VALUE);
	props.handleTypes = CU_MEM_HANDLE_TYPE_NONE;
	OK(cuMemPoolCreate(&own, &props));
	OK(cuMemAllocFromPoolAsync(&p, MIB, own, NULL));
	assert_int_equal(device_bytes(), 0);
	OK(cuMemsetD8(p, 3, MIB));
	OK(cuCtxSynchronize());
	assert_int_equal(*(unsigned char *)p, 3);
}

static void pools_are_found_by_location(void **state)
{
	CUmemLocation device = {.type = CU_MEM_LOCATION_TYPE_DEVICE}, host = {.type = CU_MEM_LOCATION_TYPE_HOST};
	CUmemoryPool found, host_pool;

	OK(cuMemGetDefaultMemPool(&found, &device, CU_MEM_ALLOCATION_TYPE_PINNED));
	assert_ptr_equal(found, pool);
	OK(cuMemGetMemPool(&host_pool, &host, CU_MEM_ALLOCATION_TYPE_PINNED));
	assert_ptr_not_equal(host_pool, pool);
	FAILS(cuMemSetMemPool(&device, CU_MEM_ALLOCATION_TYPE_PINNED, host_pool), CUDA_ERROR_INVALID_VALUE);
	device.id = 3;
	FAILS(cuMemGetMemPool(&found, &device, CU_MEM_ALLOCATION_TYPE_PINNED), CUDA_ERROR_INVALID_DEVICE);
}

static void graph_memory_is_in_no_pool(void **state)
{
	CUgraph graph;
	CUstream stream;
	CUdeviceptr p;

	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	OK(cuMemAllocAsync(&p, MIB, stream));
	OK(cuMemFreeAsync(p, stream));
	OK(cuStreamEndCapture(stream, &graph));
	assert_int_equal(RESERVED_HIGH, 0);
	OK(cuGraphDestroy(graph));
}

static void pools_can_be_absent(void **state)
{
	int supported;
	CUdeviceptr p;

	setenv("SUBLET_SIM_WITHOUT", "pools", 1);
	start();
	OK(cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 0));
	assert_int_equal(supported, 0);
	FAILS(cuMemAllocAsync(&p, MIB, NULL), CUDA_ERROR_NOT_SUPPORTED);
	FAILS(cuDeviceGetDefaultMemPool(&pool, 0), CUDA_ERROR_NOT_SUPPORTED);
}

/* ---- legacy IPC ---- */

struct channel {
	int to_child[2], to_parent[2];
};

/* Opens what the parent names twice, adds to it, closes it, and says so. */
static int importer(void *arg)
{
	struct channel *channel = arg;
	CUipcMemHandle handle;
	CUdeviceptr p, again;
	uint32_t word;
	char c = 'x';

	if (read(channel->to_child[0], &handle, sizeof(handle)) != sizeof(handle))
		return 1;
	if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context))
		return 2;
	if (cuIpcOpenMemHandle(&p, handle, 0) != CUDA_ERROR_INVALID_VALUE)
		return 3;
	if (cuIpcOpenMemHandle(&p, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) ||
		cuIpcOpenMemHandle(&again, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) || p != again)
		return 4;
	if (cuMemcpyDtoH(&word, p, 4) || word != 41)
		return 5;
	if (cuMemsetD32(p, 42, 1) || cuMemFree(p) != CUDA_ERROR_INVALID_VALUE)
		return 6;
	if (write(channel->to_parent[1], &c, 1) != 1 || read(channel->to_child[0], &c, 1) != 1)
		return 7;
	/* The exporter freed it: the bytes stay for who has them open. */
	if (cuMemcpyDtoH(&word, p, 4) || word != 42)
		return 8;
	if (cuIpcCloseMemHandle(p) || cuMemcpyDtoH(&word, p, 4))
		return 9;
	if (cuIpcCloseMemHandle(p) || cuIpcCloseMemHandle(p) != CUDA_ERROR_INVALID_VALUE)
		return 10;
	return cuMemcpyDtoH(&word, p, 4) != CUDA_ERROR_INVALID_VALUE;
}

static void ipc_memory_is_shared_with_another_process(void **state)
{
	struct channel channel;
	CUipcMemHandle handle;
	CUdeviceptr p, below;
	pid_t child;
	char c;

	assert_int_equal(pipe(channel.to_child) | pipe(channel.to_parent), 0);
	child = spawn(importer, &channel);
	start();
	OK(cuMemAlloc(&below, 1000));
	OK(cuMemAlloc(&p, 8000)); /* shares its pages with the first */
	OK(cuMemsetD32(p, 41, 1));
	OK(cuIpcGetMemHandle(&handle, p + 4096)); /* names the whole allocation */
	FAILS(cuIpcOpenMemHandle(&below, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), CUDA_ERROR_INVALID_CONTEXT);
	assert_int_equal(write(channel.to_child[1], &handle, sizeof(handle)), sizeof(handle));
	assert_int_equal(read(channel.to_parent[0], &c, 1), 1);
	assert_int_equal(word_at(p), 42);
	OK(cuMemFree(p));
	assert_int_equal(write(channel.to_child[1], "x", 1), 1);
	assert_int_equal(ended(child), 0);
}

static void ipc_refuses_what_is_no_plain_memory(void **state)
{
	CUmemGenericAllocationHandle extent = make_handle(2 * MIB);
	CUipcMemHandle handle, garbage = {{0}};
	CUdeviceptr r, p, managed;

	OK(cuMemAddressReserve(&r, 2 * MIB, 0, 0, 0));
	map_for_device(r, 2 * MIB, extent);
	OK(cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL));
	FAILS(cuIpcGetMemHandle(&handle, r), CUDA_ERROR_INVALID_VALUE);
	FAILS(cuIpcGetMemHandle(&handle, managed), CUDA_ERROR_INVALID_VALUE);
	FAILS(cuIpcGetMemHandle(&handle, (CUdeviceptr)(uintptr_t)gate), CUDA_ERROR_INVALID_VALUE);
	FAILS(cuIpcGetMemHandle(&handle, 0x7000000000), CUDA_ERROR_INVALID_VALUE);
	FAILS(cuIpcOpenMemHandle(&p, garbage, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), CUDA_ERROR_INVALID_VALUE);
	FAILS(cuIpcCloseMemHandle(managed), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, r), 0);
}

static int export_and_die(void *arg)
{
	struct channel *channel = arg;
	CUipcMemHandle handle;
	CUdeviceptr p;

	return cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) || cuMemAlloc(&p, 4 * MIB) ||
	       cuIpcGetMemHandle(&handle, p) || write(channel->to_parent[1], &handle, sizeof(handle)) != sizeof(handle);
}

static void ipc_handle_of_dead_process_cannot_be_opened(void **state)
{
	struct channel channel;
	CUipcMemHandle handle;
	CUdeviceptr p;

	assert_int_equal(pipe(channel.to_parent), 0);
	assert_int_equal(ended(spawn(export_and_die, &channel)), 0);
	assert_int_equal(read(channel.to_parent[0], &handle, sizeof(handle)), sizeof(handle));
	start();
	FAILS(cuIpcOpenMemHandle(&p, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), CUDA_ERROR_MAP_FAILED);
	assert_int_equal(device_bytes(), 0);
}

/* ---- pools of other processes ---- */

struct pool_message {
	CUmemPoolPtrExportData data;
	int pid, fd;
};

static int pool_importer(void *arg)
{
	struct channel *channel = arg;
	struct pool_message message;
	CUmemoryPool imported;
	CUdeviceptr p, q;
	char path[64];
	int fd;

	if (read(channel->to_child[0], &message, sizeof(message)) != sizeof(message))
		return 1;
	if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context))
		return 2;
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", message.pid, message.fd);
	fd = open(path, O_RDWR);
	if (cuMemPoolImportFromShareableHandle(&imported, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0))
		return 3;
	if (cuMemAllocFromPoolAsync(&q, MIB, imported, NULL) != CUDA_ERROR_INVALID_VALUE)
		return 4;
	if (cuMemPoolImportPointer(&p, imported, &message.data) || cuMemsetD32(p, 77, 1))
		return 5;
	return cuMemFreeAsync(p, NULL) || cuCtxSynchronize();
}

static void pool_memory_is_shared_with_another_process(void **state)
{
	CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
		.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
	struct pool_message message = {.pid = getpid()};
	struct channel channel;
	CUmemoryPool own;
	CUdeviceptr p;
	pid_t child;

	assert_int_equal(pipe(channel.to_child), 0);
	child = spawn(pool_importer, &channel);
	start();
	props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	OK(cuMemPoolCreate(&own, &props));
	OK(cuMemAllocFromPoolAsync(&p, MIB, own, NULL));
	OK(cuMemPoolExportToShareableHandle(&message.fd, own, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	OK(cuMemPoolExportPointer(&message.data, p));
	assert_int_equal(write(channel.to_child[1], &message, sizeof(message)), sizeof(message));
	assert_int_equal(ended(child), 0);
	assert_int_equal(word_at(p), 77);
	/* The default pool is not one to share. */
	OK(cuDeviceGetDefaultMemPool(&pool, 0));
	FAILS(cuMemPoolExportToShareableHandle(&message.fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
		CUDA_ERROR_INVALID_VALUE);
	OK(cuMemAllocAsync(&p, MIB, NULL));
	FAILS(cuMemPoolExportPointer(&message.data, p), CUDA_ERROR_INVALID_VALUE);
}

/* ---- host memory ---- */

static void host_register_follows_its_rules(void **state)
{
	char *area = mmap(NULL, 4 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CUdeviceptr p;
	unsigned flags;

	OK(cuMemAlloc(&p, 4096));
	OK(cuMemHostRegister(area + 100, 5000, CU_MEMHOSTREGISTER_DEVICEMAP));
	FAILS(cuMemHostRegister(area, 4096, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	FAILS(cuMemHostRegister(area + 100, 5000, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	FAILS(cuMemHostRegister(area + MIB, 0, 0), CUDA_ERROR_INVALID_VALUE);
	FAILS(cuMemHostRegister(NULL, 4096, 0), CUDA_ERROR_INVALID_VALUE);
	FAILS(cuMemHostRegister(gate, 4096, 0), CUDA_ERROR_INVALID_VALUE);
	FAILS(cuMemHostRegister((void *)p, 4096, 0), CUDA_ERROR_INVALID_VALUE);
	FAILS(cuMemHostRegister((void *)0x5000, 4096, 0), CUDA_ERROR_INVALID_VALUE);
	FAILS(cuMemHostRegister(area + MIB, 4096, 64), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemHostGetFlags(&flags, area + 200));
	assert_int_equal(flags, CU_MEMHOSTREGISTER_DEVICEMAP);
	FAILS(cuMemHostUnregister(area + 200), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemHostUnregister(area + 100));
	FAILS(cuMemHostUnregister(area + 100), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
	FAILS(cuMemHostUnregister(gate), CUDA_ERROR_INVALID_VALUE);
	munmap(area, 4 * MIB);
}

static void host_device_pointer_is_the_same_address(void **state)
{
	CUdeviceptr p = 0;
	char *pageable = malloc(64);
	void *host;
	unsigned flags;

	OK(cuMemHostGetDevicePointer(&p, gate + 1, 0));
	assert_int_equal(p, (uintptr_t)(gate + 1));
	FAILS(cuMemHostGetDevicePointer(&p, gate, 1), CUDA_ERROR_INVALID_VALUE);
	FAILS(cuMemHostGetDevicePointer(&p, pageable, 0), CUDA_ERROR_INVALID_VALUE);
	FAILS(cuMemHostGetFlags(&flags, pageable), CUDA_ERROR_INVALID_VALUE);
	FAILS(cuMemHostAlloc(&host, 4096, 8), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemHostAlloc(&host, 4096, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_WRITECOMBINED));
	OK(cuMemHostGetFlags(&flags, host));
	assert_int_equal(flags, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_WRITECOMBINED);
	FAILS(cuMemFreeHost((char *)host + 8), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemFreeHost(host));
	free(pageable);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		POOL_CASE(pool_reserves_by_32_mib_and_gives_back_at_synchronize),
		POOL_CASE(pool_keeps_up_to_its_threshold_until_trimmed),
		POOL_CASE(pool_attributes_that_are_the_drivers_cannot_be_set),
		POOL_CASE(free_async_refuses_what_is_no_allocation),
		POOL_CASE(pending_free_is_reused_by_its_own_stream_only),
		POOL_CASE(pool_memory_has_no_context_and_no_legacy_handle),
		POOL_CASE(own_pool_is_current_until_destroyed),
		POOL_CASE(pool_create_follows_the_rules_of_locations),
		POOL_CASE(pools_are_found_by_location),
		POOL_CASE(graph_memory_is_in_no_pool),
		MACHINE_CASE(pools_can_be_absent),
		MACHINE_CASE(ipc_memory_is_shared_with_another_process),
		POOL_CASE(ipc_refuses_what_is_no_plain_memory),
		MACHINE_CASE(ipc_handle_of_dead_process_cannot_be_opened),
		MACHINE_CASE(pool_memory_is_shared_with_another_process),
		POOL_CASE(host_register_follows_its_rules),
		POOL_CASE(host_device_pointer_is_the_same_address),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
