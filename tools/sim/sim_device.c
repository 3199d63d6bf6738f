/* tools/sim/sim_device.c
 * What the driver says about its devices and about its errors. The answers are those of an H200 with driver 580, but for what
 * the environment sets (sim.h) and for what this driver has not. */
#include "tools/sim/sim_priv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- errors ---- */

static const struct {
	CUresult code;
	const char *name, *text;
} errors[] = {
#define ERROR(name, text) {name, #name, text},
#include "tools/sim/errors.def"
};

static CUresult look_up(enum sim_call call, CUresult code, const char **ret_text, bool want_name)
{
	CUresult result = sim_enter(call, true);

	if (result != CUDA_SUCCESS)
		return result;
	if (!ret_text)
		return CUDA_ERROR_INVALID_VALUE;
	*ret_text = NULL;
	for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]) && !*ret_text; i++) {
		if (errors[i].code == code)
			*ret_text = want_name ? errors[i].name : errors[i].text;
	}
	return *ret_text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuGetErrorName(CUresult error, const char **text)
{
	return look_up(SIM_cuGetErrorName, error, text, true);
}

CUresult CUDAAPI cuGetErrorString(CUresult error, const char **text)
{
	return look_up(SIM_cuGetErrorString, error, text, false);
}

/* ---- devices ---- */

static CUresult device_ok(CUdevice device)
{
	return device >= 0 && device < sim_config.devices ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

/* Begins a question about @device whose answer goes to @out. */
#define ASK(symbol, out, device)                                                                                       \
	ENTER(symbol);                                                                                                 \
	if (!(out))                                                                                                    \
		return CUDA_ERROR_INVALID_VALUE;                                                                       \
	if (device_ok(device) != CUDA_SUCCESS)                                                                         \
	return CUDA_ERROR_INVALID_DEVICE

CUresult CUDAAPI cuDeviceGetCount(int *count)
{
	ENTER(cuDeviceGetCount);
	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	*count = sim_config.devices;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGet(CUdevice *device, int ordinal)
{
	ASK(cuDeviceGet, device, ordinal);
	*device = ordinal;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetName(char *name, int length, CUdevice device)
{
	ASK(cuDeviceGetName, name, device);
	if (length <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	snprintf(name, (size_t)length, "Sublet simulated device");
	return CUDA_SUCCESS;
}

/* The same in every process: peers compare it. */
static void uuid_of(CUdevice device, CUuuid *ret)
{
	char text[32];

	snprintf(text, sizeof(text), "sublet-sim-%04d", device);
	memcpy(ret->bytes, text, sizeof(ret->bytes));
}

CUresult CUDAAPI cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
	ASK(cuDeviceGetUuid, uuid, device);
	uuid_of(device, uuid);
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
	ASK(cuDeviceGetUuid_v2, uuid, device);
	uuid_of(device, uuid);
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
	ASK(cuDeviceTotalMem_v2, bytes, device);
	*bytes = sim_config.capacity;
	return CUDA_SUCCESS;
}

#define PCI_BUS(device) (16 + (device)) /* domain 0, device 0 */

CUresult CUDAAPI cuDeviceGetPCIBusId(char *id, int length, CUdevice device)
{
	char text[32];

	ASK(cuDeviceGetPCIBusId, id, device);
	snprintf(text, sizeof(text), "0000:%02X:00.0", PCI_BUS(device));
	/* Documented: at most length characters with the terminator, and 13 hold all of it. */
	if (length <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	snprintf(id, (size_t)length, "%s", text);
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetByPCIBusId(CUdevice *device, const char *id)
{
	unsigned domain = 0, bus, slot, function = 0;
	int end = 0;

	ENTER(cuDeviceGetByPCIBusId);
	if (!device || !id)
		return CUDA_ERROR_INVALID_VALUE;
	/* Forms of the documentation: domain:bus:device.function, domain:bus:device, bus:device.function. */
	if (!(sscanf(id, "%x:%x:%x.%x%n", &domain, &bus, &slot, &function, &end) == 4 && !id[end]) &&
		!(sscanf(id, "%x:%x:%x%n", &domain, &bus, &slot, &end) == 3 && !id[end]) &&
		!(domain = 0, sscanf(id, "%x:%x.%x%n", &bus, &slot, &function, &end) == 3 && !id[end]))
		return CUDA_ERROR_INVALID_VALUE;
	for (int i = 0; i < sim_config.devices; i++) {
		if (domain == 0 && bus == (unsigned)PCI_BUS(i) && slot == 0 && function == 0) {
			*device = i;
			return CUDA_SUCCESS;
		}
	}
	return CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuDeviceComputeCapability(int *major, int *minor, CUdevice device)
{
	ASK(cuDeviceComputeCapability, major && minor, device);
	*major = 9;
	*minor = 0;
	return CUDA_SUCCESS;
}

/* By number, from 1 on. */
static const int attributes[CU_DEVICE_ATTRIBUTE_MAX] = {
	0,
	/* 1 */ 1024, 1024, 1024, 64, 2147483647, 65535, 65535, 49152, 65536, 32, 2147483647, 65536, 1980000, 512, 1,
	/* 16 */ 132, 0, 0, 1, 0, 131072, 131072, 65536, 16384, 16384, 16384, 32768, 32768, 2048, 512,
	/* 31 */ 1, 1, 0, 6, 0, 3201000, 6016, 62914560, 2048, 3, 1, 32768, 2048, 1, 32768,
	/* 46 */ 32768, 8192, 8192, 32768, 0, 32, 32768, 32768, 2046, 32768, 131072, 65536, 16384, 16384, 16384,
	/* 61 */ 32768, 2048, 32768, 32768, 2048, 32768, 32768, 2046, 268435456, 131072, 65000, 2097120, 32768, 32768, 9,
	/* 76 */ 0, 32768, 1, 1, 1, 233472, 65536, 1, 0, 0, 0, 2, 0, 1, 1,
	/* 91 */ 1, 0, 0, 0, 1, 1, 232448, 0, 1, 0, 0, 1, 1, 0, 0,
	/* 106 */ 32, 1, 39321600, 134217728, 1, 1024, 1, 1, 1, 1, 1, 1, 100, 9, 1,
	/* 121 */ 1, 1, 1, 1, 1, 4, 1, 1, 1, 0, -1, 0, 0, 0, 0,
	/* 136 */ 0, 0, 0, 590680286, 415174878, 1, 1, 0, 1, 1, 0, 0,
};

static int attribute_of(CUdevice_attribute attribute, CUdevice device)
{
	bool vmm = !sim_config.without_vmm, pools = !sim_config.without_pools;

	switch ((int)attribute) {
	case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
		return PCI_BUS(device);
	case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID:
	case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID:
		return 0;
	case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED: /* advertised and then refused, as without IMEX */
		return vmm;
	case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
		return vmm && !sim_config.without_fd;
	case CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
		return vmm && !sim_config.without_host_numa;
	case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
		return pools;
	case CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES:
		return pools && !sim_config.without_fd ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : 0;
	case CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED:
		return pools && !sim_config.without_host_numa;
	/* Not simulated. */
	case CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS:
	case CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED:
		return 0;
	default:
		return attributes[attribute];
	}
}

CUresult CUDAAPI cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
	ASK(cuDeviceGetAttribute, value, device);
	if (attribute <= 0 || attribute >= CU_DEVICE_ATTRIBUTE_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	*value = attribute_of(attribute, device);
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetProperties(CUdevprop *prop, CUdevice device)
{
	ASK(cuDeviceGetProperties, prop, device);
	*prop = (CUdevprop){
		.maxThreadsPerBlock = attributes[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK],
		.maxThreadsDim = {attributes[CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X], attributes[CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y],
			attributes[CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z]},
		.maxGridSize = {attributes[CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X], attributes[CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y],
			attributes[CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z]},
		.sharedMemPerBlock = attributes[CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK],
		.totalConstantMemory = attributes[CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY],
		.SIMDWidth = attributes[CU_DEVICE_ATTRIBUTE_WARP_SIZE],
		.memPitch = attributes[CU_DEVICE_ATTRIBUTE_MAX_PITCH],
		.regsPerBlock = attributes[CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK],
		.clockRate = attributes[CU_DEVICE_ATTRIBUTE_CLOCK_RATE],
		.textureAlign = attributes[CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT],
	};
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetTexture1DLinearMaxWidth(size_t *elements, CUarray_format format, unsigned channels, CUdevice device)
{
	ASK(cuDeviceGetTexture1DLinearMaxWidth, elements, device);
	*elements = (size_t)attributes[CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH];
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetExecAffinitySupport(int *supported, CUexecAffinityType type, CUdevice device)
{
	ASK(cuDeviceGetExecAffinitySupport, supported, device);
	*supported = 0; /* needs MPS */
	return CUDA_SUCCESS;
}

/* ---- peers: every device reaches every other one ---- */

CUresult CUDAAPI cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
	ASK(cuDeviceCanAccessPeer, can, device);
	if (device_ok(peer) != CUDA_SUCCESS)
		return CUDA_ERROR_INVALID_DEVICE;
	*can = device != peer;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attribute, CUdevice device, CUdevice peer)
{
	ASK(cuDeviceGetP2PAttribute, value, device);
	/* Documented: both the same device is an error. */
	if (device_ok(peer) != CUDA_SUCCESS || device == peer)
		return CUDA_ERROR_INVALID_DEVICE;
	switch ((int)attribute) {
	case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK:
		*value = 0;
		return CUDA_SUCCESS;
	case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
	case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
		*value = 1;
		return CUDA_SUCCESS;
	case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED: /* no arrays here */
	case CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED:
		*value = 0;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

/* ---- what a device can be divided into ---- */

#define PROCESSORS 132
#define PARTITION 8 /* documented for compute capability 9 */

static CUresult resource(CUdevResource *ret, CUdevResourceType type)
{
	if (!ret || type != CU_DEV_RESOURCE_TYPE_SM)
		return ret ? CUDA_ERROR_INVALID_RESOURCE_TYPE : CUDA_ERROR_INVALID_VALUE;
	*ret = (CUdevResource){.type = type, .sm = {PROCESSORS, PARTITION, PARTITION}};
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetDevResource(CUdevice device, CUdevResource *ret_resource, CUdevResourceType type)
{
	ENTER(cuDeviceGetDevResource);
	if (device < 0 || device >= sim_config.devices)
		return CUDA_ERROR_INVALID_DEVICE;
	return resource(ret_resource, type);
}

CUresult CUDAAPI cuCtxGetDevResource(CUcontext handle, CUdevResource *ret_resource, CUdevResourceType type)
{
	bool known;

	ENTER(cuCtxGetDevResource);
	pthread_mutex_lock(&sim_lock);
	known = handle ? sim_context_of(handle) != NULL : sim_current() != NULL;
	pthread_mutex_unlock(&sim_lock);
	return known ? resource(ret_resource, type) : CUDA_ERROR_INVALID_CONTEXT;
}
