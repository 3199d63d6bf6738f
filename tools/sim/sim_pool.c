/* tools/sim/sim_pool.c
 * Stream-ordered memory. A pool grows by chunks of 32 MiB, as on hardware, keeps what was freed, and gives whole chunks back
 * when the program waits for the device and more is reserved than the release threshold. A free counts at the call; its
 * range may be taken again at once by the same stream, and by others when the stream has come to the free. */
#include "tools/sim/sim_memory.h"

#include <stdlib.h>
#include <string.h>

#define POOL_CHUNK (32ull << 20)

struct sim_pool {
	bool is_default, destroyed, imported;
	CUmemPoolProps props;
	int location;
	struct sim_chunk *chunks;
	int reuse[3]; /* follow event dependencies, opportunistic, internal dependencies */
	uint64_t threshold, used, used_high, reserved, reserved_high;
	uint64_t blocks;
	uint32_t readable; /* devices, and HOST_BIT */
	struct sim_pool *next;
};
#define HOST_BIT (1u << 31)

static struct sim_pool *pools;
static struct sim_pool *current[SIM_DEVICES_MAX];

static struct sim_pool *pool_new(const CUmemPoolProps *props, int location)
{
	struct sim_pool *pool = calloc(1, sizeof(*pool));

	if (!pool)
		return NULL;
	*pool = (struct sim_pool){.props = *props, .location = location, .reuse = {1, 1, 1},
		.readable = location == SIM_HOST ? HOST_BIT : 1u << location, .next = pools};
	pools = pool;
	return pool;
}

static struct sim_pool *default_pool(int device)
{
	CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED};
	struct sim_pool *pool;

	for (pool = pools; pool; pool = pool->next) {
		if (pool->is_default && pool->location == device)
			return pool;
	}
	props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	props.location.id = device;
	pool = pool_new(&props, device);
	if (pool)
		pool->is_default = true;
	return pool;
}

static struct sim_pool *current_pool(int device)
{
	return current[device] ? current[device] : default_pool(device);
}

static struct sim_pool *pool_of(CUmemoryPool handle)
{
	for (struct sim_pool *pool = pools; pool; pool = pool->next) {
		if (pool == (struct sim_pool *)handle && !pool->destroyed)
			return pool;
	}
	return NULL;
}

CUmemoryPool sim_pool_handle(const struct sim_block *block)
{
	return (CUmemoryPool)block->chunk->pool;
}

uint32_t sim_pool_readable(const struct sim_block *block)
{
	return block->chunk->pool->readable;
}

/* Empty chunks go until at most @keep bytes are reserved. */
static void trim(struct sim_pool *pool, uint64_t keep)
{
	struct sim_chunk **at = &pool->chunks;

	while (*at) {
		struct sim_chunk *chunk = *at;

		if (chunk->range_count || pool->reserved <= keep || pool->reserved - chunk->bytes < keep) {
			at = &chunk->next;
			continue;
		}
		*at = chunk->next;
		pool->reserved -= chunk->bytes;
		sim_chunk_free(chunk);
	}
}

static void drop_if_over(struct sim_pool *pool)
{
	struct sim_pool **at = &pools;

	if (!pool->destroyed || pool->blocks)
		return;
	for (struct sim_chunk *chunk = pool->chunks; chunk; chunk = chunk->next) {
		if (chunk->range_count)
			return; /* a free that its stream has not come to */
	}
	trim(pool, 0);
	while (*at != pool)
		at = &(*at)->next;
	*at = pool->next;
	free(pool);
}

void sim_pools_settle(void)
{
	pthread_mutex_lock(&sim_lock);
	for (struct sim_pool *pool = pools; pool; pool = pool->next) {
		if (pool->reserved > pool->threshold)
			trim(pool, pool->threshold);
	}
	pthread_mutex_unlock(&sim_lock);
}

/* ---- taking and giving ---- */

static CUresult take(struct sim_pool *pool, uint64_t bytes, struct sim_context *context, const struct sim_stream *stream,
	uint64_t *ret_address)
{
	uint64_t limit = pool->props.maxSize ? (pool->props.maxSize + POOL_CHUNK - 1) & ~(POOL_CHUNK - 1) : UINT64_MAX;
	uint64_t grow = (bytes + POOL_CHUNK - 1) & ~(POOL_CHUNK - 1);
	struct sim_block *block;
	struct sim_chunk *chunk;

	if (!bytes || bytes > 1ull << 46)
		return bytes ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
	for (chunk = pool->chunks; chunk && !sim_chunk_take(chunk, bytes, stream, ret_address); chunk = chunk->next)
		;
	if (!chunk) {
		if (pool->reserved + grow > limit)
			trim(pool, 0);
		chunk = pool->reserved + grow > limit ? NULL : sim_chunk_new(pool->location, grow, pool);
		if (!chunk) { /* what lies unused in any pool of this place may make the room */
			for (struct sim_pool *other = pools; other; other = other->next) {
				if (other->location == pool->location)
					trim(other, 0);
			}
			/* The last resort of a nearly full device: no more than is needed. */
			if (pool->reserved + grow <= limit)
				chunk = sim_chunk_new(pool->location, bytes, pool);
		}
		if (!chunk || !sim_chunk_take(chunk, bytes, NULL, ret_address)) {
			if (chunk)
				sim_chunk_free(chunk);
			return CUDA_ERROR_OUT_OF_MEMORY;
		}
		chunk->next = pool->chunks;
		pool->chunks = chunk;
		pool->reserved += chunk->bytes;
	}
	block = sim_block_new(*ret_address, bytes, SIM_POOL, context, chunk);
	if (!block) {
		sim_chunk_return(chunk, *ret_address);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (pool->location != SIM_HOST)
		block->device = pool->location;
	pool->blocks++;
	pool->used += bytes;
	if (pool->used > pool->used_high)
		pool->used_high = pool->used;
	if (pool->reserved > pool->reserved_high)
		pool->reserved_high = pool->reserved;
	return CUDA_SUCCESS;
}

void sim_pool_release_block(struct sim_block *block)
{
	struct sim_pool *pool = block->chunk->pool;

	pool->used -= block->bytes;
	pool->blocks--;
	sim_chunk_return(block->chunk, block->address);
	drop_if_over(pool);
}

struct pending_free {
	struct sim_pool *pool;
	uint64_t chunk_physical, serial;
};

/* On the stream: it has come to the free. */
static void free_reached(void *arg)
{
	struct pending_free *pending = arg;
	struct sim_pool *pool;

	pthread_mutex_lock(&sim_lock);
	for (pool = pools; pool && pool != pending->pool; pool = pool->next)
		;
	for (struct sim_chunk *chunk = pool ? pool->chunks : NULL; chunk; chunk = chunk->next) {
		if (chunk->physical == pending->chunk_physical) {
			sim_chunk_settle(chunk, pending->serial);
			break;
		}
	}
	if (pool)
		drop_if_over(pool);
	pthread_mutex_unlock(&sim_lock);
}

static void plain_free_reached(void *arg)
{
	sim_block_give_back(*(uint64_t *)arg, SIM_BIT(SIM_PLAIN) | SIM_BIT(SIM_POOL) | SIM_BIT(SIM_IPC));
}

static CUresult alloc_async(CUdeviceptr *ptr, size_t bytes, CUmemoryPool from, CUstream handle, struct sim_context *context,
	bool per_thread)
{
	struct sim_stream *stream;
	struct sim_pool *pool;
	uint64_t address;
	CUresult result;

	if (sim_config.without_pools)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!ptr)
		return CUDA_ERROR_INVALID_VALUE;
	if (sim_graph_alloc_async(context, handle, per_thread, bytes, ptr, &result))
		return result;
	pthread_mutex_lock(&sim_lock);
	stream = sim_stream_of(context, handle, per_thread);
	pool = !stream ? NULL : from ? pool_of(from) : current_pool(stream->context->device);
	if (!stream)
		result = CUDA_ERROR_INVALID_HANDLE;
	else if (!pool || pool->imported)
		result = CUDA_ERROR_INVALID_VALUE;
	else
		result = take(pool, bytes, context, stream, &address);
	pthread_mutex_unlock(&sim_lock);
	if (result == CUDA_SUCCESS)
		*ptr = address;
	return result;
}

static CUresult free_async(CUdeviceptr ptr, CUstream handle, struct sim_context *context, bool per_thread)
{
	struct pending_free *pending = malloc(sizeof(*pending));
	struct sim_block *block = NULL;
	struct sim_stream *stream;
	CUresult result = CUDA_ERROR_INVALID_VALUE;

	if (sim_config.without_pools || !ptr || !pending ||
		sim_graph_free_async(context, handle, per_thread, ptr, &result)) {
		free(pending);
		return sim_config.without_pools ? CUDA_ERROR_NOT_SUPPORTED : !ptr ? CUDA_SUCCESS : result;
	}
	pthread_mutex_lock(&sim_lock);
	stream = sim_stream_of(context, handle, per_thread);
	block = stream ? sim_block_at(ptr) : NULL;
	if (!stream)
		result = CUDA_ERROR_INVALID_HANDLE;
	else if (!block || block->address != ptr ||
		 (block->kind != SIM_POOL && block->kind != SIM_PLAIN && !sim_ipc_from_pool(block)))
		block = NULL;
	else if (block->chunk && block->chunk->pool && (block = sim_block_take_out(ptr, SIM_BIT(SIM_POOL)))) {
		struct sim_pool *pool = block->chunk->pool;

		pool->used -= block->bytes;
		pool->blocks--;
		*pending = (struct pending_free){pool, block->chunk->physical,
			sim_chunk_return_later(block->chunk, ptr, stream)};
		free(block);
		pthread_mutex_unlock(&sim_lock);
		return sim_submit(context, handle, per_thread, free_reached, pending, true);
	}
	pthread_mutex_unlock(&sim_lock);
	free(pending);
	if (block) { /* plain memory is taken as well, in order */
		uint64_t *arg = malloc(sizeof(*arg));

		if (!arg)
			return CUDA_ERROR_OUT_OF_MEMORY;
		*arg = ptr;
		return sim_submit(context, handle, per_thread, plain_free_reached, arg, true);
	}
	return result;
}

#define ORDERED(symbol, params, body)                                                                                  \
	CUresult CUDAAPI symbol params                                                                                 \
	{                                                                                                              \
		const bool twin = false;                                                                               \
		ENTER_CONTEXT(symbol, context);                                                                        \
		return body;                                                                                           \
	}                                                                                                              \
	CUresult CUDAAPI symbol##_ptsz params                                                                          \
	{                                                                                                              \
		const bool twin = true;                                                                                \
		ENTER_CONTEXT(symbol##_ptsz, context);                                                                 \
		return body;                                                                                           \
	}
ORDERED(cuMemAllocAsync, (CUdeviceptr * ptr, size_t bytes, CUstream stream),
	alloc_async(ptr, bytes, NULL, stream, context, twin))
ORDERED(cuMemAllocFromPoolAsync, (CUdeviceptr * ptr, size_t bytes, CUmemoryPool pool, CUstream stream),
	pool ? alloc_async(ptr, bytes, pool, stream, context, twin) : CUDA_ERROR_INVALID_VALUE)
ORDERED(cuMemFreeAsync, (CUdeviceptr ptr, CUstream stream), free_async(ptr, stream, context, twin))

/* ---- pools as objects ---- */

static CUresult device_pool(CUmemoryPool *ret_pool, CUdevice device, bool want_default)
{
	struct sim_pool *pool;

	if (!ret_pool)
		return CUDA_ERROR_INVALID_VALUE;
	if (device < 0 || device >= sim_config.devices)
		return CUDA_ERROR_INVALID_DEVICE;
	if (sim_config.without_pools)
		return CUDA_ERROR_NOT_SUPPORTED;
	pthread_mutex_lock(&sim_lock);
	pool = want_default ? default_pool(device) : current_pool(device);
	pthread_mutex_unlock(&sim_lock);
	*ret_pool = (CUmemoryPool)pool;
	return pool ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult CUDAAPI cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device)
{
	ENTER(cuDeviceGetDefaultMemPool);
	return device_pool(pool, device, true);
}

CUresult CUDAAPI cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device)
{
	ENTER(cuDeviceGetMemPool);
	return device_pool(pool, device, false);
}

CUresult CUDAAPI cuDeviceSetMemPool(CUdevice device, CUmemoryPool handle)
{
	struct sim_pool *pool;
	CUresult result = CUDA_SUCCESS;

	ENTER(cuDeviceSetMemPool);
	if (device < 0 || device >= sim_config.devices)
		return CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&sim_lock);
	pool = pool_of(handle);
	if (!pool || pool->location != device || pool->imported) /* documented: the pool must be local to the device */
		result = CUDA_ERROR_INVALID_VALUE;
	else
		current[device] = pool;
	pthread_mutex_unlock(&sim_lock);
	return result;
}

CUresult CUDAAPI cuMemPoolCreate(CUmemoryPool *ret_pool, const CUmemPoolProps *props)
{
	struct sim_pool *pool;
	int location = SIM_HOST;

	ENTER(cuMemPoolCreate);
	if (!ret_pool || !props || props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED)
		return CUDA_ERROR_INVALID_VALUE;
	if (sim_config.without_pools)
		return CUDA_ERROR_NOT_SUPPORTED;
	switch ((int)props->location.type) {
	case CU_MEM_LOCATION_TYPE_DEVICE:
		location = props->location.id;
		if (location < 0 || location >= sim_config.devices)
			return CUDA_ERROR_INVALID_DEVICE;
		break;
	case CU_MEM_LOCATION_TYPE_HOST:
		if (props->handleTypes != CU_MEM_HANDLE_TYPE_NONE)
			return CUDA_ERROR_INVALID_VALUE;
		break;
	case CU_MEM_LOCATION_TYPE_HOST_NUMA:
		if (props->location.id != 0)
			return CUDA_ERROR_INVALID_VALUE;
		break;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (props->handleTypes & CU_MEM_HANDLE_TYPE_FABRIC)
		return CUDA_ERROR_NOT_PERMITTED; /* no IMEX channel */
	if (props->handleTypes & ~(unsigned)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_INVALID_VALUE;
	if (props->handleTypes && sim_config.without_fd)
		return CUDA_ERROR_NOT_SUPPORTED;
	pthread_mutex_lock(&sim_lock);
	pool = pool_new(props, location);
	pthread_mutex_unlock(&sim_lock);
	*ret_pool = (CUmemoryPool)pool;
	return pool ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult CUDAAPI cuMemPoolDestroy(CUmemoryPool handle)
{
	struct sim_pool *pool;
	CUresult result = CUDA_SUCCESS;

	ENTER(cuMemPoolDestroy);
	pthread_mutex_lock(&sim_lock);
	pool = pool_of(handle);
	if (!pool || pool->is_default) {
		result = CUDA_ERROR_INVALID_VALUE;
	} else {
		for (int d = 0; d < SIM_DEVICES_MAX; d++) {
			if (current[d] == pool)
				current[d] = NULL;
		}
		pool->destroyed = true;
		drop_if_over(pool);
	}
	pthread_mutex_unlock(&sim_lock);
	return result;
}

CUresult CUDAAPI cuMemPoolTrimTo(CUmemoryPool handle, size_t keep)
{
	struct sim_pool *pool;

	ENTER(cuMemPoolTrimTo);
	pthread_mutex_lock(&sim_lock);
	pool = pool_of(handle);
	if (pool)
		trim(pool, keep);
	pthread_mutex_unlock(&sim_lock);
	return pool ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void *value)
{
	struct sim_pool *pool;
	CUresult result;

	ENTER(cuMemPoolGetAttribute);
	if (!value)
		return CUDA_ERROR_INVALID_VALUE;
	result = sim_capture_check(false); /* reported of hardware: the question invalidates a global capture */
	if (result != CUDA_SUCCESS)
		return result;
	pthread_mutex_lock(&sim_lock);
	pool = pool_of(handle);
	if (!pool) {
		result = CUDA_ERROR_INVALID_VALUE;
	} else {
		switch ((int)attribute) {
		case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
		case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
		case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
			*(int *)value = pool->reuse[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES];
			break;
		case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
			*(cuuint64_t *)value = pool->threshold;
			break;
		case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
			*(cuuint64_t *)value = pool->reserved;
			break;
		case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
			*(cuuint64_t *)value = pool->reserved_high;
			break;
		case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
			*(cuuint64_t *)value = pool->used;
			break;
		case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
			*(cuuint64_t *)value = pool->used_high;
			break;
		default:
			result = CUDA_ERROR_INVALID_VALUE;
		}
	}
	pthread_mutex_unlock(&sim_lock);
	return result;
}

CUresult CUDAAPI cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void *value)
{
	struct sim_pool *pool;
	CUresult result = CUDA_SUCCESS;

	ENTER(cuMemPoolSetAttribute);
	if (!value)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim_lock);
	pool = pool_of(handle);
	switch (pool ? (int)attribute : 0) {
	case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
		pool->reuse[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES] = *(int *)value != 0;
		break;
	case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
		pool->threshold = *(cuuint64_t *)value;
		break;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
	case CU_MEMPOOL_ATTR_USED_MEM_HIGH: /* only to zero, which means: from now on */
		if (*(cuuint64_t *)value)
			result = CUDA_ERROR_INVALID_VALUE;
		else if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH)
			pool->used_high = pool->used;
		else
			pool->reserved_high = pool->reserved;
		break;
	default: /* the current values are the driver's own */
		result = CUDA_ERROR_INVALID_VALUE;
	}
	pthread_mutex_unlock(&sim_lock);
	return result;
}

static uint32_t access_bit(const CUmemLocation *location)
{
	if (location->type == CU_MEM_LOCATION_TYPE_DEVICE)
		return location->id >= 0 && location->id < sim_config.devices ? 1u << location->id : 0;
	return location->type == CU_MEM_LOCATION_TYPE_HOST || location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA ? HOST_BIT : 0;
}

CUresult CUDAAPI cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc *list, size_t count)
{
	struct sim_pool *pool;
	CUresult result = CUDA_SUCCESS;
	uint32_t own, readable;

	ENTER(cuMemPoolSetAccess);
	if (!list || !count)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim_lock);
	pool = pool_of(handle);
	own = !pool ? 0 : pool->location == SIM_HOST ? HOST_BIT : 1u << pool->location;
	readable = pool ? pool->readable : 0;
	for (size_t i = 0; i < count; i++) {
		uint32_t bit = access_bit(&list[i].location);

		/* A pool's own device keeps its access, and pools know no read-only. */
		if (!pool || !bit || (bit == own && list[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) ||
			(bit == HOST_BIT && own != HOST_BIT) ||
			(list[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && list[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE))
			result = bit || !pool ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_DEVICE;
		readable = list[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE ? readable & ~bit : readable | bit;
	}
	if (result == CUDA_SUCCESS)
		pool->readable = readable;
	pthread_mutex_unlock(&sim_lock);
	return result;
}

CUresult CUDAAPI cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool handle, CUmemLocation *location)
{
	struct sim_pool *pool;
	uint32_t bit;

	ENTER(cuMemPoolGetAccess);
	if (!flags || !location)
		return CUDA_ERROR_INVALID_VALUE;
	bit = access_bit(location);
	pthread_mutex_lock(&sim_lock);
	pool = pool_of(handle);
	if (pool && bit)
		*flags = pool->readable & bit ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
	pthread_mutex_unlock(&sim_lock);
	return pool && bit ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

bool sim_pool_props(CUmemoryPool handle, CUmemPoolProps *ret_props)
{
	struct sim_pool *pool;

	pthread_mutex_lock(&sim_lock);
	pool = pool_of(handle);
	if (pool && !pool->imported)
		*ret_props = pool->props;
	else
		pool = NULL;
	pthread_mutex_unlock(&sim_lock);
	return pool != NULL;
}

CUmemoryPool sim_pool_import(const CUmemPoolProps *props)
{
	struct sim_pool *pool;

	pthread_mutex_lock(&sim_lock);
	pool = pool_new(props, props->location.type == CU_MEM_LOCATION_TYPE_DEVICE ? props->location.id : SIM_HOST);
	if (pool)
		pool->imported = true;
	pthread_mutex_unlock(&sim_lock);
	return (CUmemoryPool)pool;
}

bool sim_pool_imported(CUmemoryPool handle)
{
	struct sim_pool *pool;
	bool imported;

	pthread_mutex_lock(&sim_lock);
	pool = pool_of(handle);
	imported = pool && pool->imported;
	pthread_mutex_unlock(&sim_lock);
	return imported;
}

/* Blocks are gone already. */
void sim_pools_drop_all(void)
{
	while (pools) {
		struct sim_pool *pool = pools;

		while (pool->chunks) {
			struct sim_chunk *chunk = pool->chunks;

			pool->chunks = chunk->next;
			sim_chunk_free(chunk);
		}
		pools = pool->next;
		free(pool);
	}
	memset(current, 0, sizeof(current));
}
