/* tools/probe_abi.h
 * The few types and numbers of the driver's interface that the probe needs, spelled out here because tools/ has no
 * cuda.h. They are part of the driver's ABI and cannot change; tests/unit/test_probe_abi.c compares them with the
 * header. */
#ifndef SUBLET_TOOLS_PROBE_ABI_H
#define SUBLET_TOOLS_PROBE_ABI_H

typedef unsigned long long probe_u64; /* CUdeviceptr, CUmemGenericAllocationHandle and the flags beside them */

struct probe_location {
	int type;
	int id;
};

struct probe_allocation { /* CUmemAllocationProp */
	int type;
	int handle_types;
	struct probe_location location;
	void *win32;
	struct {
		unsigned char compression, rdma_capable;
		unsigned short usage;
		unsigned char reserved[4];
	} flags;
};

struct probe_access { /* CUmemAccessDesc */
	struct probe_location location;
	int flags;
};

enum probe_attribute {
	PROBE_ATTRIBUTE_VMM = 102,
	PROBE_ATTRIBUTE_POSIX_FD = 103,
	PROBE_ATTRIBUTE_RDMA = 110,
	PROBE_ATTRIBUTE_MPS = 133,
	PROBE_ATTRIBUTE_HOST_NUMA_ID = 134,
	PROBE_ATTRIBUTE_HOST_NUMA = 141,
};

enum probe_number {
	PROBE_TYPE_PINNED = 1,
	PROBE_LOCATION_DEVICE = 1,
	PROBE_LOCATION_HOST_NUMA = 3,
	PROBE_HANDLE_POSIX_FD = 1,
	PROBE_ACCESS_READWRITE = 3,
	PROBE_GRANULARITY_MINIMUM = 0,
	PROBE_EVENT_DISABLE_TIMING = 2,
};

enum probe_result { /* CUresult */
	PROBE_SUCCESS = 0,
	PROBE_OUT_OF_MEMORY = 2,
	PROBE_STUB_LIBRARY = 34,
	PROBE_DEVICE_UNAVAILABLE = 46,
	PROBE_NO_DEVICE = 100,
	PROBE_OPERATING_SYSTEM = 304,
	PROBE_NOT_SUPPORTED = 801,
	PROBE_SYSTEM_NOT_READY = 802,
	PROBE_SYSTEM_DRIVER_MISMATCH = 803,
	PROBE_COMPAT_NOT_SUPPORTED = 804,
	PROBE_MPS_CONNECTION_FAILED = 805,
	PROBE_MPS_RPC_FAILURE = 806,
	PROBE_MPS_SERVER_NOT_READY = 807,
	PROBE_MPS_MAX_CLIENTS = 808,
	PROBE_UNKNOWN = 999,
};

#endif
