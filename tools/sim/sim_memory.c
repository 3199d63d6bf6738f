/* tools/sim/sim_memory.c
 * Plain device memory, host memory, and questions about addresses. A plain block is an anonymous mapping that counts
 * against the device in whole pages of 2 MiB only when it is at least that large; small ones share pages, as they do on
 * hardware. */
#include "tools/sim/sim_priv.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/list.h"

/* Sorted by address. */
static struct sim_block **blocks;
static size_t block_count, block_capacity;

/* Index of the first block that ends after @address. */
static size_t first_after(uint64_t address)
{
	size_t low = 0, high = block_count;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (blocks[middle]->address + blocks[middle]->bytes <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

struct sim_block *sim_block_at(uint64_t address)
{
	size_t i = first_after(address);

	return i < block_count && blocks[i]->address <= address ? blocks[i] : NULL;
}

static bool insert(struct sim_block *block)
{
	size_t i = first_after(block->address);

	if (!list_room(&blocks, block_count, &block_capacity, sizeof(*blocks)))
		return false;
	memmove(&blocks[i + 1], &blocks[i], (block_count - i) * sizeof(*blocks));
	blocks[i] = block;
	block_count++;
	return true;
}

static void take_out(struct sim_block *block)
{
	size_t i = first_after(block->address);

	memmove(&blocks[i], &blocks[i + 1], (block_count - i - 1) * sizeof(*blocks));
	block_count--;
}

static uint64_t mapped_bytes(const struct sim_block *block)
{
	return (block->bytes + 4095) & ~4095ull;
}

/* sim_lock held; the block is out of the table. */
static void release(struct sim_block *block)
{
	if (block->kind != SIM_HOST_REGISTERED)
		munmap((void *)block->address, mapped_bytes(block));
	if (block->physical)
		sim_machine_unref(block->physical);
	free(block);
}

static CUresult allocate(uint64_t bytes, enum sim_kind kind, struct sim_context *context, uint64_t *ret_address)
{
	uint64_t charged = bytes < SIM_PAGE ? (bytes + 511) & ~511ull : (bytes + SIM_PAGE - 1) & ~(SIM_PAGE - 1);
	struct sim_block *block;
	void *area;
	bool on_device = kind == SIM_PLAIN || kind == SIM_POOL;

	if (!bytes)
		return CUDA_ERROR_INVALID_VALUE;
	if (bytes > 1ull << 46)
		return CUDA_ERROR_OUT_OF_MEMORY;
	block = calloc(1, sizeof(*block));
	if (!block)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*block = (struct sim_block){.bytes = bytes, .kind = kind, .context = context, .device = context->device};
	pthread_mutex_lock(&sim_lock);
	if (on_device)
		block->physical = sim_machine_take(context->device, charged);
	area = on_device && !block->physical ? MAP_FAILED
					      : mmap(NULL, mapped_bytes(block), PROT_READ | PROT_WRITE,
							MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	block->address = (uint64_t)(uintptr_t)area;
	block->buffer_id = sim_next_buffer_id();
	if (area == MAP_FAILED || !insert(block)) {
		if (block->physical)
			sim_machine_unref(block->physical);
		if (area != MAP_FAILED)
			munmap(area, mapped_bytes(block));
		free(block);
		block = NULL;
	} else {
		*ret_address = block->address;
	}
	pthread_mutex_unlock(&sim_lock);
	return block ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult give_back(uint64_t address, unsigned kinds)
{
	struct sim_block *block;

	pthread_mutex_lock(&sim_lock);
	block = sim_block_at(address);
	if (!block || block->address != address || !(kinds & (1u << block->kind)))
		block = NULL;
	if (block) {
		take_out(block);
		release(block);
	}
	pthread_mutex_unlock(&sim_lock);
	return block ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuMemAlloc_v2(CUdeviceptr *ptr, size_t bytes)
{
	uint64_t address;
	CUresult result;

	ENTER_CONTEXT(cuMemAlloc_v2, context);
	if (!ptr || !bytes)
		return CUDA_ERROR_INVALID_VALUE;
	result = sim_capture_check(false);
	if (result == CUDA_SUCCESS)
		result = allocate(bytes, SIM_PLAIN, context, &address);
	if (result == CUDA_SUCCESS)
		*ptr = address;
	return result;
}

CUresult CUDAAPI cuMemAllocPitch_v2(CUdeviceptr *ptr, size_t *pitch, size_t width, size_t height, unsigned int element)
{
	uint64_t address;
	CUresult result;

	ENTER_CONTEXT(cuMemAllocPitch_v2, context);
	if (!ptr || !pitch || !width || !height)
		return CUDA_ERROR_INVALID_VALUE;
	result = sim_capture_check(false);
	*pitch = (width + 511) & ~(size_t)511;
	if (result == CUDA_SUCCESS)
		result = allocate(*pitch * height, SIM_PLAIN, context, &address);
	if (result == CUDA_SUCCESS)
		*ptr = address;
	return result;
}

CUresult CUDAAPI cuMemAllocManaged(CUdeviceptr *ptr, size_t bytes, unsigned int flags)
{
	uint64_t address;
	CUresult result;

	ENTER_CONTEXT(cuMemAllocManaged, context);
	result = allocate(bytes, SIM_UVM, context, &address);
	if (result == CUDA_SUCCESS)
		*ptr = address;
	return result;
}

CUresult CUDAAPI cuMemFree_v2(CUdeviceptr ptr)
{
	struct sim_block *block;
	CUresult result;

	ENTER_CONTEXT(cuMemFree_v2, context);
	if (!ptr)
		return CUDA_SUCCESS;
	result = sim_capture_check(false);
	if (result != CUDA_SUCCESS)
		return result;
	pthread_mutex_lock(&sim_lock);
	block = sim_block_at(ptr);
	pthread_mutex_unlock(&sim_lock);
	if (!block)
		return CUDA_ERROR_INVALID_VALUE;
	sim_wait_device(context->device); /* its documented implicit synchronisation */
	return give_back(ptr, 1u << SIM_PLAIN | 1u << SIM_UVM | 1u << SIM_POOL);
}

/* Stream-ordered memory: one pool without limits of its own. A free is queued behind the work of its stream. */
static void free_pool_block(void *arg)
{
	give_back(*(uint64_t *)arg, 1u << SIM_POOL | 1u << SIM_PLAIN);
}

static CUresult alloc_async(CUdeviceptr *ptr, size_t bytes, CUstream stream, struct sim_context *context, bool per_thread)
{
	uint64_t address;
	CUresult result = CUDA_ERROR_INVALID_VALUE;

	if (ptr && sim_graph_alloc_async(context, stream, per_thread, bytes, ptr, &result))
		return result;
	if (ptr)
		result = allocate(bytes, SIM_POOL, context, &address);
	if (result == CUDA_SUCCESS)
		*ptr = address;
	return result;
}

static CUresult free_async(CUdeviceptr ptr, CUstream stream, struct sim_context *context, bool per_thread)
{
	struct sim_block *block;
	CUresult result;
	uint64_t *arg;

	if (sim_graph_free_async(context, stream, per_thread, ptr, &result))
		return result;
	pthread_mutex_lock(&sim_lock);
	block = sim_block_at(ptr);
	pthread_mutex_unlock(&sim_lock);
	if (!block || block->address != ptr || (block->kind != SIM_POOL && block->kind != SIM_PLAIN))
		return CUDA_ERROR_INVALID_VALUE;
	arg = malloc(sizeof(*arg));
	if (!arg)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*arg = ptr;
	return sim_submit(context, stream, per_thread, free_pool_block, arg, true);
}

CUresult CUDAAPI cuMemAllocAsync(CUdeviceptr *ptr, size_t bytes, CUstream stream)
{
	ENTER_CONTEXT(cuMemAllocAsync, context);
	return alloc_async(ptr, bytes, stream, context, false);
}

CUresult CUDAAPI cuMemAllocAsync_ptsz(CUdeviceptr *ptr, size_t bytes, CUstream stream)
{
	ENTER_CONTEXT(cuMemAllocAsync_ptsz, context);
	return alloc_async(ptr, bytes, stream, context, true);
}

CUresult CUDAAPI cuMemFreeAsync(CUdeviceptr ptr, CUstream stream)
{
	ENTER_CONTEXT(cuMemFreeAsync, context);
	return free_async(ptr, stream, context, false);
}

CUresult CUDAAPI cuMemFreeAsync_ptsz(CUdeviceptr ptr, CUstream stream)
{
	ENTER_CONTEXT(cuMemFreeAsync_ptsz, context);
	return free_async(ptr, stream, context, true);
}

/* ---- host memory ---- */

CUresult CUDAAPI cuMemHostAlloc(void **ptr, size_t bytes, unsigned int flags)
{
	uint64_t address;
	CUresult result;

	ENTER_CONTEXT(cuMemHostAlloc, context);
	result = allocate(bytes, SIM_HOST_ALLOC, context, &address);
	if (result == CUDA_SUCCESS)
		*ptr = (void *)(uintptr_t)address;
	return result;
}

CUresult CUDAAPI cuMemAllocHost_v2(void **ptr, size_t bytes)
{
	uint64_t address;
	CUresult result;

	ENTER_CONTEXT(cuMemAllocHost_v2, context);
	result = allocate(bytes, SIM_HOST_ALLOC, context, &address);
	if (result == CUDA_SUCCESS)
		*ptr = (void *)(uintptr_t)address;
	return result;
}

CUresult CUDAAPI cuMemFreeHost(void *ptr)
{
	ENTER_CONTEXT(cuMemFreeHost, context);
	sim_wait_device(context->device);
	return give_back((uint64_t)(uintptr_t)ptr, 1u << SIM_HOST_ALLOC);
}

CUresult CUDAAPI cuMemHostRegister_v2(void *ptr, size_t bytes, unsigned int flags)
{
	struct sim_block *block;
	bool inserted;

	ENTER_CONTEXT(cuMemHostRegister_v2, context);
	block = calloc(1, sizeof(*block));
	if (!block)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*block = (struct sim_block){.address = (uint64_t)(uintptr_t)ptr, .bytes = bytes, .kind = SIM_HOST_REGISTERED,
		.context = context, .device = context->device};
	pthread_mutex_lock(&sim_lock);
	inserted = bytes && !sim_block_at(block->address) && insert(block);
	pthread_mutex_unlock(&sim_lock);
	if (!inserted)
		free(block);
	return inserted ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
}

CUresult CUDAAPI cuMemHostUnregister(void *ptr)
{
	ENTER_CONTEXT(cuMemHostUnregister, context);
	return give_back((uint64_t)(uintptr_t)ptr, 1u << SIM_HOST_REGISTERED) == CUDA_SUCCESS
		       ? CUDA_SUCCESS
		       : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

CUresult CUDAAPI cuMemHostGetDevicePointer_v2(CUdeviceptr *ret_ptr, void *ptr, unsigned int flags)
{
	ENTER(cuMemHostGetDevicePointer_v2);
	*ret_ptr = (CUdeviceptr)(uintptr_t)ptr;
	return CUDA_SUCCESS;
}

/* ---- answers ---- */

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
	*free_bytes = sim_config.capacity - used;
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

static CUresult attribute_of(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
	struct sim_block *block = sim_block_at(ptr);
	struct sim_mapping *mapping = block ? NULL : sim_mapping_at(ptr);
	bool host = block ? block->kind == SIM_HOST_ALLOC || block->kind == SIM_HOST_REGISTERED
			  : mapping && mapping->handle->location == SIM_HOST;
	uint64_t base = 0, bytes = 0;

	if (!block && !mapping)
		return CUDA_ERROR_INVALID_VALUE;
	switch ((int)attribute) {
	case CU_POINTER_ATTRIBUTE_CONTEXT: /* VMM memory belongs to a device, not to a context */
		*(CUcontext *)data = block ? (CUcontext)block->context : NULL;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		*(unsigned *)data = host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
		*(CUdeviceptr *)data = ptr;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		if (!host)
			return CUDA_ERROR_INVALID_VALUE;
		*(void **)data = (void *)ptr;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
		*(unsigned long long *)data = block ? block->buffer_id : mapping->buffer_id;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
		*(unsigned *)data = block && block->kind == SIM_UVM;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		*(int *)data = block ? block->device : mapping->handle->location < 0 ? 0 : mapping->handle->location;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
		*(unsigned *)data = block && block->kind == SIM_PLAIN;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		/* Of VMM memory the reservation, seen on driver 580. */
		if (block) {
			base = block->address;
			bytes = block->bytes;
		} else {
			sim_reservation_at(ptr, &base, &bytes);
		}
		*(uint64_t *)data = attribute == CU_POINTER_ATTRIBUTE_RANGE_SIZE ? bytes : base;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
		*(uint64_t *)data = block ? block->physical : mapping->handle->physical;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MAPPED:
		*(unsigned *)data = 1;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult CUDAAPI cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
	CUresult result;

	ENTER(cuPointerGetAttribute);
	if (!data)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim_lock);
	result = attribute_of(data, attribute, ptr);
	pthread_mutex_unlock(&sim_lock);
	return result;
}

CUresult CUDAAPI cuPointerGetAttributes(unsigned int count, CUpointer_attribute *attributes, void **data, CUdeviceptr ptr)
{
	ENTER(cuPointerGetAttributes);
	pthread_mutex_lock(&sim_lock);
	for (unsigned i = 0; i < count; i++) {
		if (attribute_of(data[i], attributes[i], ptr) != CUDA_SUCCESS)
			memset(data[i], 0, attributes[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE ? 4 : 1);
	}
	pthread_mutex_unlock(&sim_lock);
	return CUDA_SUCCESS;
}

/* Legacy IPC: not yet in the simulation beyond its refusal of VMM memory. */
CUresult CUDAAPI cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr ptr)
{
	struct sim_block *block;

	ENTER(cuIpcGetMemHandle);
	pthread_mutex_lock(&sim_lock);
	block = sim_block_at(ptr);
	pthread_mutex_unlock(&sim_lock);
	return block ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
}

/* Is [address, end), of which the driver knows nothing, the program's own memory? sim_lock held. */
static bool pageable_ok(uint64_t address, uint64_t end)
{
	unsigned char resident[4096];

	if (address >= end || sim_reservation_between(address, end))
		return false;
	address &= ~4095ull;
	while (address < end) {
		uint64_t bytes = end - address < sizeof(resident) * 4096 ? end - address : sizeof(resident) * 4096;

		if (mincore((void *)address, bytes, resident) != 0)
			return false; /* not mapped: hardware reads it with the CPU and dies; here the call is refused */
		address += bytes;
	}
	return true;
}

bool sim_known(uint64_t address)
{
	bool known;

	pthread_mutex_lock(&sim_lock);
	known = sim_block_at(address) || sim_mapping_at(address);
	pthread_mutex_unlock(&sim_lock);
	return known;
}

bool sim_range_ok(uint64_t address, uint64_t bytes)
{
	uint64_t end = address + bytes;
	bool ok = end >= address;

	pthread_mutex_lock(&sim_lock);
	while (ok && address < end) {
		struct sim_block *block = sim_block_at(address);
		struct sim_mapping *mapping = block ? NULL : sim_mapping_at(address);

		if (block) {
			ok = block->kind == SIM_HOST_REGISTERED || end <= block->address + block->bytes;
			address = block->address + block->bytes;
		} else if (mapping) {
			ok = mapping->readable != 0;
			address = mapping->address + mapping->bytes;
		} else {
			ok = pageable_ok(address, end);
			break;
		}
	}
	pthread_mutex_unlock(&sim_lock);
	return ok;
}

void sim_memory_drop(struct sim_context *context)
{
	for (size_t i = block_count; i-- > 0;) {
		struct sim_block *block = blocks[i];

		if (context && block->context != context)
			continue;
		take_out(block);
		release(block);
	}
}

uint64_t sim_live_blocks(void)
{
	uint64_t count = 0;

	for (size_t i = 0; i < block_count; i++)
		count += blocks[i]->kind == SIM_PLAIN || blocks[i]->kind == SIM_POOL;
	return count;
}

CUresult sim_pool_take(struct sim_context *context, uint64_t bytes, uint64_t *ret_address)
{
	return allocate(bytes, SIM_POOL, context, ret_address);
}

void sim_pool_return(uint64_t address)
{
	give_back(address, 1u << SIM_POOL);
}
