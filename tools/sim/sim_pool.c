/* tools/sim/sim_pool.c
 * Stream-ordered memory. A pool grows by chunks of 32 MiB, as on hardware, keeps what was freed, and gives whole chunks back
 * when the program waits for the device and more is reserved than the release threshold. A free counts at the call; its
 * range may be taken again at once by the same stream, and by others when the stream has come to the free. */
#include "tools/sim/sim_pool.h"

#include <stdlib.h>
#include <string.h>

#define POOL_CHUNK (32ull << 20)

static struct sim_pool *pools;
struct sim_pool *sim_pool_current_of[SIM_DEVICES_MAX + 1];

struct sim_pool *sim_pool_new(const CUmemPoolProps *props, int location)
{
	struct sim_pool *pool = calloc(1, sizeof(*pool));

	if (!pool)
		return NULL;
	*pool = (struct sim_pool){.props = *props, .location = location, .reuse = {1, 1, 1},
		.readable = location == SIM_HOST ? SIM_POOL_HOST_BIT : 1u << location, .next = pools};
	pools = pool;
	return pool;
}

struct sim_pool *sim_pool_default(int location)
{
	CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED};
	struct sim_pool *pool;

	for (pool = pools; pool; pool = pool->next) {
		if (pool->is_default && pool->location == location)
			return pool;
	}
	props.location.type = location == SIM_HOST ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE;
	props.location.id = location == SIM_HOST ? 0 : location;
	pool = sim_pool_new(&props, location);
	if (pool)
		pool->is_default = true;
	return pool;
}

struct sim_pool *sim_pool_current(int location)
{
	struct sim_pool *pool = sim_pool_current_of[location + 1];

	return pool ? pool : sim_pool_default(location);
}

struct sim_pool *sim_pool_of(CUmemoryPool handle)
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

void sim_pool_trim(struct sim_pool *pool, uint64_t keep)
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

void sim_pool_drop_if_over(struct sim_pool *pool)
{
	struct sim_pool **at = &pools;

	if (!pool->destroyed || pool->blocks)
		return;
	for (struct sim_chunk *chunk = pool->chunks; chunk; chunk = chunk->next) {
		if (chunk->range_count)
			return; /* a free that its stream has not come to */
	}
	sim_pool_trim(pool, 0);
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
			sim_pool_trim(pool, pool->threshold);
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
			sim_pool_trim(pool, 0);
		chunk = pool->reserved + grow > limit ? NULL : sim_chunk_new(pool->location, grow, pool);
		if (!chunk) { /* what lies unused in any pool of this place may make the room */
			for (struct sim_pool *other = pools; other; other = other->next) {
				if (other->location == pool->location)
					sim_pool_trim(other, 0);
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
	sim_pool_drop_if_over(pool);
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
		sim_pool_drop_if_over(pool);
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
	pool = !stream ? NULL : from ? sim_pool_of(from) : sim_pool_current(stream->context->device);
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

bool sim_pool_props(CUmemoryPool handle, CUmemPoolProps *ret_props)
{
	struct sim_pool *pool;

	pthread_mutex_lock(&sim_lock);
	pool = sim_pool_of(handle);
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
	pool = sim_pool_new(props, props->location.type == CU_MEM_LOCATION_TYPE_DEVICE ? props->location.id : SIM_HOST);
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
	pool = sim_pool_of(handle);
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
	memset(sim_pool_current_of, 0, sizeof(sim_pool_current_of));
}
