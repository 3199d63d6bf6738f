/* tools/sim/sim_memory.c
 * The table of memory that the driver gave out, plain device memory and managed memory. Small plain blocks share chunks of
 * 2 MiB, as they do on hardware. */
#include "tools/sim/sim_memory.h"

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

struct sim_block *sim_block_between(uint64_t address, uint64_t end)
{
	size_t i = first_after(address);

	return i < block_count && blocks[i]->address < end ? blocks[i] : NULL;
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

struct sim_block *sim_block_new(uint64_t address, uint64_t bytes, enum sim_kind kind, struct sim_context *context,
	struct sim_chunk *chunk)
{
	struct sim_block *block = calloc(1, sizeof(*block));

	if (!block)
		return NULL;
	*block = (struct sim_block){.address = address, .bytes = bytes, .kind = kind, .context = context, .chunk = chunk,
		.device = context ? context->device : 0, .buffer_id = sim_next_buffer_id(),
		.physical = chunk ? chunk->physical : 0,
		.sync_memops = kind != SIM_HOST_ALLOC && kind != SIM_HOST_REGISTERED};
	if (!insert(block)) {
		free(block);
		return NULL;
	}
	return block;
}

struct sim_block *sim_block_take_out(uint64_t address, unsigned kinds)
{
	struct sim_block *block = sim_block_at(address);

	if (!block || block->address != address || !(kinds & SIM_BIT(block->kind)))
		return NULL;
	take_out(block);
	return block;
}

struct sim_block *sim_block_each(size_t *position)
{
	return *position < block_count ? blocks[(*position)++] : NULL;
}

/* ---- plain memory ---- */

static struct sim_chunk *plain_chunks;

static struct sim_chunk *plain_chunk(int device, uint64_t bytes, uint64_t *ret_address)
{
	bool shares = bytes <= SIM_PAGE / 2;
	struct sim_chunk *chunk;

	for (chunk = plain_chunks; shares && chunk; chunk = chunk->next) {
		if (chunk->location == device && chunk->bytes == SIM_PAGE && sim_chunk_take(chunk, bytes, NULL, ret_address))
			return chunk;
	}
	chunk = sim_chunk_new(device, bytes, NULL);
	if (chunk && !sim_chunk_take(chunk, bytes, NULL, ret_address)) {
		sim_chunk_free(chunk);
		return NULL;
	}
	if (chunk) {
		chunk->next = plain_chunks;
		plain_chunks = chunk;
	}
	return chunk;
}

static void return_plain(struct sim_chunk *chunk, uint64_t address)
{
	struct sim_chunk **at = &plain_chunks;

	sim_chunk_return(chunk, address);
	if (chunk->range_count)
		return;
	while (*at != chunk)
		at = &(*at)->next;
	*at = chunk->next;
	sim_chunk_free(chunk);
}

/* sim_lock held; the block is out of the table. */
static void release(struct sim_block *block)
{
	if (block->kind == SIM_IPC)
		sim_ipc_release_block(block);
	else if (block->chunk && block->chunk->pool)
		sim_pool_release_block(block);
	else if (block->chunk)
		return_plain(block->chunk, block->address);
	else if (block->kind == SIM_HOST_ALLOC || block->kind == SIM_UVM)
		munmap((void *)block->address, (block->bytes + 4095) & ~4095ull);
	free(block);
}

CUresult sim_block_allocate(uint64_t bytes, enum sim_kind kind, struct sim_context *context, unsigned flags,
	uint64_t *ret_address)
{
	bool on_device = kind == SIM_PLAIN || kind == SIM_POOL;
	struct sim_block *block = NULL;
	struct sim_chunk *chunk = NULL;
	uint64_t address = 0;
	void *area;

	if (!bytes)
		return CUDA_ERROR_INVALID_VALUE;
	if (bytes > 1ull << 46)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_lock(&sim_lock);
	if (on_device) {
		chunk = plain_chunk(context->device, bytes, &address);
	} else {
		area = mmap(NULL, (bytes + 4095) & ~4095ull, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		address = area == MAP_FAILED ? 0 : (uint64_t)(uintptr_t)area;
	}
	if (address)
		block = sim_block_new(address, bytes, kind, context, chunk);
	if (block) {
		block->flags = flags;
		*ret_address = address;
	} else if (chunk) {
		return_plain(chunk, address);
	} else if (address) {
		munmap((void *)address, (bytes + 4095) & ~4095ull);
	}
	pthread_mutex_unlock(&sim_lock);
	return block ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult sim_block_give_back(uint64_t address, unsigned kinds)
{
	struct sim_block *block;

	pthread_mutex_lock(&sim_lock);
	block = sim_block_take_out(address, kinds);
	if (block)
		release(block);
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
		result = sim_block_allocate(bytes, SIM_PLAIN, context, 0, &address);
	if (result == CUDA_SUCCESS)
		*ptr = address;
	return result;
}

CUresult CUDAAPI cuMemAllocPitch_v2(CUdeviceptr *ptr, size_t *ret_pitch, size_t width, size_t height, unsigned int element)
{
	size_t pitch = (width + 511) & ~(size_t)511;
	uint64_t address;
	CUresult result;

	ENTER_CONTEXT(cuMemAllocPitch_v2, context);
	/* Documented: the largest access that is to be aligned, 4, 8 or 16 bytes. */
	if (!ptr || !ret_pitch || !width || !height || (element != 4 && element != 8 && element != 16) ||
		pitch < width || height > (1ull << 46) / pitch)
		return CUDA_ERROR_INVALID_VALUE;
	result = sim_capture_check(false);
	if (result == CUDA_SUCCESS)
		result = sim_block_allocate(pitch * height, SIM_PLAIN, context, 0, &address);
	if (result == CUDA_SUCCESS) {
		*ptr = address;
		*ret_pitch = pitch;
	}
	return result;
}

/* Managed memory takes no device memory by itself: pages move where they are touched, and here they stay on the host. */
CUresult CUDAAPI cuMemAllocManaged(CUdeviceptr *ptr, size_t bytes, unsigned int flags)
{
	uint64_t address;
	CUresult result;

	ENTER_CONTEXT(cuMemAllocManaged, context);
	if (!ptr || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
		return CUDA_ERROR_INVALID_VALUE;
	result = sim_capture_check(false);
	if (result == CUDA_SUCCESS)
		result = sim_block_allocate(bytes, SIM_UVM, context, flags, &address);
	if (result == CUDA_SUCCESS)
		*ptr = address;
	return result;
}

CUresult CUDAAPI cuMemFree_v2(CUdeviceptr ptr)
{
	unsigned kinds = SIM_BIT(SIM_PLAIN) | SIM_BIT(SIM_UVM) | SIM_BIT(SIM_POOL);
	struct sim_block *block;
	CUresult result;
	int device = 0;

	ENTER_CONTEXT(cuMemFree_v2, context);
	if (!ptr)
		return CUDA_SUCCESS;
	result = sim_capture_check(false);
	if (result != CUDA_SUCCESS)
		return result;
	pthread_mutex_lock(&sim_lock);
	block = sim_block_at(ptr);
	if (block)
		device = block->device;
	if (block && sim_ipc_from_pool(block))
		kinds |= SIM_BIT(SIM_IPC);
	pthread_mutex_unlock(&sim_lock);
	if (!block)
		return CUDA_ERROR_INVALID_VALUE;
	sim_wait_device(device); /* its documented implicit synchronisation */
	result = sim_block_give_back(ptr, kinds);
	sim_pools_settle();
	return result;
}

/* Memory of graphs: plain memory in all but its name, and in no pool. */
CUresult sim_pool_take(struct sim_context *context, uint64_t bytes, uint64_t *ret_address)
{
	return sim_block_allocate(bytes, SIM_POOL, context, 0, ret_address);
}

void sim_pool_return(uint64_t address)
{
	sim_block_give_back(address, SIM_BIT(SIM_POOL));
}

void sim_memory_global(uint64_t address, uint64_t bytes)
{
	if (bytes && !sim_block_at(address))
		sim_block_new(address, bytes, SIM_GLOBAL, NULL, NULL);
}

/* ---- may it be touched? ---- */

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

bool sim_may_touch(const struct sim_context *ctx, uint64_t address)
{
	uint32_t own = 1u << ctx->device;
	struct sim_mapping *mapping;
	struct sim_block *block;
	bool may = true;

	pthread_mutex_lock(&sim_lock);
	block = sim_block_at(address);
	mapping = block ? NULL : sim_mapping_at(address);
	if (mapping)
		may = (mapping->readable & own) != 0;
	else if (block && block->chunk && block->chunk->pool)
		may = (sim_pool_readable(block) & own) != 0;
	else if (block && block->chunk && block->device != ctx->device) /* opened IPC memory enables its peer by itself */
		may = block->kind == SIM_IPC || (ctx->peers & (1u << block->device)) != 0;
	pthread_mutex_unlock(&sim_lock);
	return may;
}

void sim_memory_drop(struct sim_context *context)
{
	sim_arrays_drop(context);
	for (size_t i = block_count; i-- > 0;) {
		struct sim_block *block = blocks[i];

		/* Memory of pools belongs to the pool, globals to their module. */
		if (context && (block->context != context || (block->chunk && block->chunk->pool) || block->kind == SIM_GLOBAL))
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
