/* tests/unit/test_probe_abi.c
 * The types and numbers that tools/ spells out for want of cuda.h are those of cuda.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <cuda.h>

#include "tools/probe_abi.h"

#define SAME_PLACE(ours, theirs, our_member, their_member)                                                             \
	do {                                                                                                           \
		assert_int_equal(offsetof(ours, our_member), offsetof(theirs, their_member));                          \
		assert_int_equal(sizeof(((ours *)0)->our_member), sizeof(((theirs *)0)->their_member));                \
	} while (0)

static void probe_structs_match_the_header(void **state)
{
	assert_int_equal(sizeof(struct probe_location), sizeof(CUmemLocation));
	SAME_PLACE(struct probe_location, CUmemLocation, type, type);
	SAME_PLACE(struct probe_location, CUmemLocation, id, id);
	assert_int_equal(sizeof(struct probe_allocation), sizeof(CUmemAllocationProp));
	SAME_PLACE(struct probe_allocation, CUmemAllocationProp, type, type);
	SAME_PLACE(struct probe_allocation, CUmemAllocationProp, handle_types, requestedHandleTypes);
	SAME_PLACE(struct probe_allocation, CUmemAllocationProp, location, location);
	SAME_PLACE(struct probe_allocation, CUmemAllocationProp, win32, win32HandleMetaData);
	SAME_PLACE(struct probe_allocation, CUmemAllocationProp, flags, allocFlags);
	SAME_PLACE(struct probe_allocation, CUmemAllocationProp, flags.rdma_capable, allocFlags.gpuDirectRDMACapable);
	SAME_PLACE(struct probe_allocation, CUmemAllocationProp, flags.usage, allocFlags.usage);
	assert_int_equal(sizeof(struct probe_access), sizeof(CUmemAccessDesc));
	SAME_PLACE(struct probe_access, CUmemAccessDesc, location, location);
	SAME_PLACE(struct probe_access, CUmemAccessDesc, flags, flags);
	assert_int_equal(sizeof(probe_u64), sizeof(CUdeviceptr));
	assert_int_equal(sizeof(probe_u64), sizeof(CUmemGenericAllocationHandle));
	assert_int_equal(sizeof(int), sizeof(CUdevice));
	assert_int_equal(sizeof(int), sizeof(CUresult));
}

static void probe_numbers_match_the_header(void **state)
{
	static const int pairs[][2] = {
		{PROBE_ATTRIBUTE_VMM, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED},
		{PROBE_ATTRIBUTE_POSIX_FD, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED},
		{PROBE_ATTRIBUTE_RDMA, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED},
		{PROBE_ATTRIBUTE_MPS, CU_DEVICE_ATTRIBUTE_MPS_ENABLED},
		{PROBE_ATTRIBUTE_HOST_NUMA_ID, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID},
		{PROBE_ATTRIBUTE_HOST_NUMA, CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED},
		{PROBE_TYPE_PINNED, CU_MEM_ALLOCATION_TYPE_PINNED},
		{PROBE_LOCATION_DEVICE, CU_MEM_LOCATION_TYPE_DEVICE},
		{PROBE_LOCATION_HOST_NUMA, CU_MEM_LOCATION_TYPE_HOST_NUMA},
		{PROBE_HANDLE_POSIX_FD, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR},
		{PROBE_ACCESS_READWRITE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
		{PROBE_GRANULARITY_MINIMUM, CU_MEM_ALLOC_GRANULARITY_MINIMUM},
		{PROBE_EVENT_DISABLE_TIMING, CU_EVENT_DISABLE_TIMING},
		{PROBE_SUCCESS, CUDA_SUCCESS},
		{PROBE_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY},
		{PROBE_STUB_LIBRARY, CUDA_ERROR_STUB_LIBRARY},
		{PROBE_DEVICE_UNAVAILABLE, CUDA_ERROR_DEVICE_UNAVAILABLE},
		{PROBE_NO_DEVICE, CUDA_ERROR_NO_DEVICE},
		{PROBE_OPERATING_SYSTEM, CUDA_ERROR_OPERATING_SYSTEM},
		{PROBE_NOT_SUPPORTED, CUDA_ERROR_NOT_SUPPORTED},
		{PROBE_SYSTEM_NOT_READY, CUDA_ERROR_SYSTEM_NOT_READY},
		{PROBE_SYSTEM_DRIVER_MISMATCH, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH},
		{PROBE_COMPAT_NOT_SUPPORTED, CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE},
		{PROBE_MPS_CONNECTION_FAILED, CUDA_ERROR_MPS_CONNECTION_FAILED},
		{PROBE_MPS_RPC_FAILURE, CUDA_ERROR_MPS_RPC_FAILURE},
		{PROBE_MPS_SERVER_NOT_READY, CUDA_ERROR_MPS_SERVER_NOT_READY},
		{PROBE_MPS_MAX_CLIENTS, CUDA_ERROR_MPS_MAX_CLIENTS_REACHED},
		{PROBE_UNKNOWN, CUDA_ERROR_UNKNOWN},
	};

	for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++)
		assert_int_equal(pairs[i][0], pairs[i][1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(probe_structs_match_the_header),
		cmocka_unit_test(probe_numbers_match_the_header),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
