/* tools/sim/sim_pointer.c
 * Questions about addresses: ranges, pointer attributes, memory info, handles for address ranges. Answers as driver 580
 * gave them on an H200. */
#include "tools/sim/sim_memory.h"

#include <fcntl.h>
#include <string.h>

CUresult CUDAAPI cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
	uint64_t used;

	ENTER_CONTEXT(cuMemGetInfo_v2, context);
	if (!free_bytes || !total)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim_lock);
	used = sim_machine_used(context->device);
	pthread_mutex_unlock(&sim_lock);
	*total = sim_config.capacity;
	*free_bytes = used < sim_config.capacity ? sim_config.capacity - used : 0;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr ptr)
{
	struct sim_mapping *mapping;
	struct sim_block *block;

	ENTER(cuMemGetAddressRange_v2);
	pthread_mutex_lock(&sim_lock);
	block = sim_block_at(ptr);
	mapping = block ? NULL : sim_mapping_at(ptr);
	if (base && (block || mapping))
		*base = block ? block->address : mapping->address;
	if (size && (block || mapping))
		*size = block ? block->bytes : mapping->bytes;
	pthread_mutex_unlock(&sim_lock);
	return block || mapping ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

/* Bytes of an attribute's value; 0: not an attribute. */
static size_t value_bytes(CUpointer_attribute attribute)
{
	switch ((int)attribute) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
	case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
	case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
	case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
		return 8;
	case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
		return sizeof(CUDA_POINTER_ATTRIBUTE_P2P_TOKENS);
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
	case CU_POINTER_ATTRIBUTE_MAPPED:
	case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
	case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
	case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
		return 4;
	default:
		return 0;
	}
}

static uint64_t rights(const struct sim_mapping *mapping)
{
	struct sim_context *ctx = sim_current();
	uint32_t bit = 1u << (ctx ? ctx->device : 0);

	return (mapping->readable & bit ? CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READ : 0) |
	       (mapping->writable & bit ? CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE : 0);
}

/* sim_lock held. INVALID_VALUE: not known memory, or it has no such property. */
static CUresult attribute_of(CUpointer_attribute attribute, CUdeviceptr ptr, uint64_t *ret_value)
{
	struct sim_block *block = sim_block_at(ptr);
	struct sim_mapping *mapping = block ? NULL : sim_mapping_at(ptr);
	bool host = block ? block->kind == SIM_HOST_ALLOC || block->kind == SIM_HOST_REGISTERED
			  : mapping && mapping->handle->location == SIM_HOST;
	bool plain = block && block->kind == SIM_PLAIN, pool = block && block->chunk && block->chunk->pool;
	uint64_t base = 0, bytes = 0;

	if (!block && !mapping)
		return CUDA_ERROR_INVALID_VALUE;
	switch ((int)attribute) {
	case CU_POINTER_ATTRIBUTE_CONTEXT: /* VMM memory and pools belong to a device, not to a context */
		*ret_value = block && !pool ? (uint64_t)(uintptr_t)block->context : 0;
		break;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		*ret_value = host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
		break;
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
		*ret_value = ptr;
		break;
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		if (!host && !(block && block->kind == SIM_UVM))
			return CUDA_ERROR_INVALID_VALUE;
		*ret_value = ptr;
		break;
	case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
		if (host)
			return CUDA_ERROR_INVALID_VALUE;
		*ret_value = 0;
		break;
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
		*ret_value = block ? block->sync_memops : !host;
		break;
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
		*ret_value = block ? block->buffer_id : mapping->buffer_id;
		break;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
		*ret_value = block && block->kind == SIM_UVM;
		break;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		*ret_value = block ? (uint64_t)block->device : host ? 0 : (uint64_t)mapping->handle->location;
		break;
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
		*ret_value = plain;
		break;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE: /* of VMM memory the reservation */
		if (block) {
			base = block->address;
			bytes = block->bytes;
		} else {
			sim_reservation_at(ptr, &base, &bytes);
		}
		*ret_value = attribute == CU_POINTER_ATTRIBUTE_RANGE_SIZE ? bytes : base;
		break;
	case CU_POINTER_ATTRIBUTE_MAPPED:
		*ret_value = 1;
		break;
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
		*ret_value = mapping ? mapping->handle->prop.requestedHandleTypes : 0;
		break;
	case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
		*ret_value = mapping ? mapping->handle->prop.allocFlags.gpuDirectRDMACapable : plain;
		break;
	case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
		*ret_value = mapping ? rights(mapping) : CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE;
		break;
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
		*ret_value = pool ? (uint64_t)(uintptr_t)sim_pool_handle(block) : 0;
		break;
	case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
		*ret_value = mapping	    ? mapping->bytes
			     : block->chunk ? block->chunk->bytes
					    : (block->bytes + SIM_PAGE - 1) & ~(SIM_PAGE - 1);
		break;
	case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
		*ret_value = mapping ? mapping->address : block->chunk ? block->chunk->address : block->address;
		break;
	case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
		*ret_value = mapping ? mapping->handle->physical : block->physical ? block->physical : block->buffer_id;
		break;
	case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
		*ret_value = plain;
		break;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
	uint64_t value[2] = {0};
	CUresult result;

	ENTER(cuPointerGetAttribute);
	if (!data || !value_bytes(attribute))
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim_lock);
	result = attribute_of(attribute, ptr, value);
	pthread_mutex_unlock(&sim_lock);
	if (result == CUDA_SUCCESS)
		memcpy(data, value, value_bytes(attribute));
	return result;
}

/* Documented: no error for a pointer that is not known; its attributes are then empty. */
CUresult CUDAAPI cuPointerGetAttributes(unsigned int count, CUpointer_attribute *attributes, void **data, CUdeviceptr ptr)
{
	ENTER(cuPointerGetAttributes);
	if (!count || !attributes || !data)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned i = 0; i < count; i++) {
		if (!data[i] || !value_bytes(attributes[i]))
			return CUDA_ERROR_INVALID_VALUE;
	}
	pthread_mutex_lock(&sim_lock);
	for (unsigned i = 0; i < count; i++) {
		uint64_t value[2] = {0};

		if (attribute_of(attributes[i], ptr, value) != CUDA_SUCCESS && attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
			value[0] = (uint64_t)CU_DEVICE_INVALID;
		memcpy(data[i], value, value_bytes(attributes[i]));
	}
	pthread_mutex_unlock(&sim_lock);
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr ptr)
{
	struct sim_block *block;

	ENTER(cuPointerSetAttribute);
	if (!value || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim_lock);
	block = sim_block_at(ptr);
	/* Nothing changes: copies and sets of this driver end before a later one begins to be visible. */
	if (block)
		block->sync_memops = *(const unsigned *)value != 0;
	pthread_mutex_unlock(&sim_lock);
	return block ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* A dma-buf: a descriptor of the memory behind a range that lies in one piece of device memory. */
CUresult CUDAAPI cuMemGetHandleForAddressRange(void *handle, CUdeviceptr ptr, size_t size, CUmemRangeHandleType type,
	unsigned long long flags)
{
	struct sim_mapping *mapping;
	struct sim_block *block;
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	int source = -1, fd = -1;
	uint64_t physical = 0;

	ENTER_CONTEXT(cuMemGetHandleForAddressRange, context);
	if (!handle || !size || type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD ||
		(flags & ~(unsigned long long)CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE) || ptr % 4096 || size % 4096)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim_lock);
	block = sim_block_at(ptr);
	mapping = block ? NULL : sim_mapping_at(ptr);
	if (block && block->kind == SIM_PLAIN && ptr + size <= block->chunk->address + block->chunk->bytes) {
		source = block->chunk->fd;
		physical = block->physical;
	} else if (mapping && ptr + size <= mapping->address + mapping->bytes) {
		source = mapping->handle->fd;
		physical = mapping->handle->physical;
	} else if (mapping) {
		/* Hardware makes one buffer of several extents; one descriptor cannot stand for several files here. */
		result = CUDA_ERROR_NOT_SUPPORTED;
	}
	if (source >= 0) {
		fd = fcntl(source, F_DUPFD_CLOEXEC, 0);
		result = fd >= 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (fd >= 0) {
		sim_machine_exported(physical);
		*(int *)handle = fd;
	}
	pthread_mutex_unlock(&sim_lock);
	return result;
}
