/* tools/sim/sim_graph_memory.c
 * Memory that graphs allocate: nodes of cuGraphAddMemAllocNode, and stream-ordered allocations noted in a capture. Its
 * address is fixed when the node is made. Here its pages are there from then on, too, until no graph and no executable
 * refers to it: earlier than on hardware, which takes them at the first launch. */
#include "tools/sim/sim_graph.h"

#include <stdlib.h>

struct sim_graph_memory {
	uint64_t address, bytes;
	int device;
	unsigned references; /* nodes, in graphs and executables */
	bool in_use;	     /* allocated by a launch and not freed yet, in the order of submission */
	struct sim_graph_memory *next;
};
static struct sim_graph_memory *memories;

/* Per device; the high marks are reset by the program. */
static uint64_t used_high[SIM_DEVICES_MAX], reserved_high[SIM_DEVICES_MAX];

static void sums(int device, uint64_t *ret_used, uint64_t *ret_reserved)
{
	*ret_used = *ret_reserved = 0;
	for (struct sim_graph_memory *memory = memories; memory; memory = memory->next) {
		if (memory->device != device)
			continue;
		*ret_reserved += memory->bytes;
		*ret_used += memory->in_use ? memory->bytes : 0;
	}
	if (*ret_used > used_high[device])
		used_high[device] = *ret_used;
	if (*ret_reserved > reserved_high[device])
		reserved_high[device] = *ret_reserved;
}

static void note(struct sim_graph_memory *memory, bool in_use)
{
	uint64_t used, reserved;

	memory->in_use = in_use;
	sums(memory->device, &used, &reserved);
}

/* sim_lock held. */
static struct sim_graph_memory *memory_at(uint64_t address)
{
	struct sim_graph_memory *memory;

	for (memory = memories; memory && memory->address != address; memory = memory->next)
		;
	return memory;
}

/* ---- as work: what a launch does is settled when it is submitted, so that running it changes nothing ---- */

static void nothing(void *arg)
{
}

static bool retain(void *arg)
{
	(*(struct sim_graph_memory **)arg)->references++;
	return true;
}

static void release(void *arg)
{
	(*(struct sim_graph_memory **)arg)->references--;
}

static const struct sim_work_kind alloc_kind = {
	.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC, .run = nothing, .retain = retain, .release = release};
static const struct sim_work_kind free_kind = {
	.type = CU_GRAPH_NODE_TYPE_MEM_FREE, .run = nothing, .retain = retain, .release = release};

CUresult sim_graph_alloc_work(struct sim_context *ctx, uint64_t bytes, struct sim_graph_memory **ret, struct sim_work *work)
{
	struct sim_graph_memory *memory;
	uint64_t address;
	CUresult result = sim_pool_take(ctx, bytes, &address);

	if (result != CUDA_SUCCESS)
		return result;
	memory = calloc(1, sizeof(*memory));
	if (!memory) {
		sim_pool_return(address);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*memory = (struct sim_graph_memory){.address = address, .bytes = bytes, .device = ctx->device};
	pthread_mutex_lock(&sim_lock);
	memory->next = memories;
	memories = memory;
	note(memory, false);
	pthread_mutex_unlock(&sim_lock);
	*ret = memory;
	*work = (struct sim_work){&alloc_kind, ret, sizeof(*ret), true};
	return CUDA_SUCCESS;
}

CUresult sim_graph_free_work(uint64_t address, struct sim_graph_memory **ret, struct sim_work *work)
{
	pthread_mutex_lock(&sim_lock);
	*ret = memory_at(address);
	pthread_mutex_unlock(&sim_lock);
	*work = (struct sim_work){&free_kind, ret, sizeof(*ret), true};
	return *ret ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

void sim_graph_memory_describe(const struct sim_work *work, uint64_t *ret_address, uint64_t *ret_bytes)
{
	const struct sim_graph_memory *memory = *(struct sim_graph_memory **)work->arg;

	*ret_address = memory->address;
	*ret_bytes = memory->bytes;
}

static struct sim_graph_memory *memory_of(const struct sim_node *node, const struct sim_work_kind *kind)
{
	return node->work.kind == kind ? *(struct sim_graph_memory **)node->work.arg : NULL;
}

CUresult sim_graph_memory_launch(struct sim_graph *graph, bool free_first)
{
	for (size_t i = 0; i < graph->count; i++) {
		struct sim_graph_memory *memory = memory_of(graph->nodes[i], &alloc_kind);

		if (memory && memory->in_use && !free_first)
			return CUDA_ERROR_INVALID_VALUE;
	}
	for (size_t i = 0; i < graph->count; i++) {
		struct sim_graph_memory *taken = memory_of(graph->nodes[i], &alloc_kind);
		struct sim_graph_memory *given = memory_of(graph->nodes[i], &free_kind);

		if (taken)
			note(taken, true);
		if (given)
			note(given, false);
	}
	return CUDA_SUCCESS;
}

/* ---- stream-ordered calls ---- */

bool sim_graph_alloc_async(struct sim_context *ctx, CUstream handle, bool per_thread, uint64_t bytes, CUdeviceptr *ret_ptr,
	CUresult *ret_result)
{
	struct sim_graph_memory *memory;
	struct sim_stream *stream;
	struct sim_work work;
	bool captured;

	if (!__atomic_load_n(&sim_captures_active, __ATOMIC_ACQUIRE))
		return false;
	pthread_mutex_lock(&sim_lock);
	stream = sim_stream_of(ctx, handle, per_thread);
	captured = stream && stream->capture;
	pthread_mutex_unlock(&sim_lock);
	if (!captured)
		return false;
	*ret_result = sim_graph_alloc_work(ctx, bytes, &memory, &work);
	if (*ret_result == CUDA_SUCCESS)
		*ret_result = sim_submit_work(ctx, handle, per_thread, &work);
	if (*ret_result == CUDA_SUCCESS)
		*ret_ptr = memory->address;
	return true;
}

bool sim_graph_free_async(struct sim_context *ctx, CUstream handle, bool per_thread, CUdeviceptr ptr, CUresult *ret_result)
{
	struct sim_graph_memory *memory;
	struct sim_stream *stream;
	struct sim_work work;
	bool captured;

	pthread_mutex_lock(&sim_lock);
	memory = memory_at(ptr);
	stream = sim_stream_of(ctx, handle, per_thread);
	captured = stream && stream->capture;
	if (memory && stream && !captured) {
		*ret_result = memory->in_use ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
		note(memory, false);
	}
	if (!memory && captured) {
		/* Documented: a capture frees only what graphs allocated. */
		stream->capture->invalid = true;
		*ret_result = CUDA_ERROR_INVALID_VALUE;
	}
	pthread_mutex_unlock(&sim_lock);
	if (!memory || !stream || !captured)
		return (memory && stream) || (captured && !memory);
	*ret_result = sim_graph_free_work(ptr, &memory, &work);
	if (*ret_result == CUDA_SUCCESS)
		*ret_result = sim_submit_work(ctx, handle, per_thread, &work);
	return true;
}

/* ---- what the device keeps for graphs ---- */

void sim_graph_memory_settle(void)
{
	for (;;) {
		struct sim_graph_memory **at, *dead = NULL;

		pthread_mutex_lock(&sim_lock);
		for (at = &memories; *at; at = &(*at)->next) {
			if (!(*at)->references && !(*at)->in_use) {
				dead = *at;
				*at = dead->next;
				break;
			}
		}
		pthread_mutex_unlock(&sim_lock);
		if (!dead)
			return;
		sim_pool_return(dead->address);
		free(dead);
	}
}

/* The blocks themselves go with those of the reset. */
void sim_graph_memory_drop_all(void)
{
	while (memories) {
		struct sim_graph_memory *memory = memories;

		memories = memory->next;
		free(memory);
	}
	for (int d = 0; d < SIM_DEVICES_MAX; d++)
		used_high[d] = reserved_high[d] = 0;
}

static CUresult device_ok(CUdevice device, const void *value)
{
	return !value ? CUDA_ERROR_INVALID_VALUE
	       : device >= 0 && device < sim_config.devices ? CUDA_SUCCESS
							     : CUDA_ERROR_INVALID_DEVICE;
}

CUresult CUDAAPI cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute, void *value)
{
	uint64_t used, reserved;
	CUresult result;

	ENTER(cuDeviceGetGraphMemAttribute);
	result = device_ok(device, value);
	if (result != CUDA_SUCCESS)
		return result;
	pthread_mutex_lock(&sim_lock);
	sums(device, &used, &reserved);
	switch (attribute) {
	case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
		*(cuuint64_t *)value = used;
		break;
	case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
		*(cuuint64_t *)value = used_high[device];
		break;
	case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
		*(cuuint64_t *)value = reserved;
		break;
	case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
		*(cuuint64_t *)value = reserved_high[device];
		break;
	default:
		result = CUDA_ERROR_INVALID_VALUE;
	}
	pthread_mutex_unlock(&sim_lock);
	return result;
}

CUresult CUDAAPI cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute, void *value)
{
	CUresult result;

	ENTER(cuDeviceSetGraphMemAttribute);
	result = device_ok(device, value);
	if (result != CUDA_SUCCESS)
		return result;
	/* Only the high marks, and only to zero. */
	if (*(cuuint64_t *)value ||
		(attribute != CU_GRAPH_MEM_ATTR_USED_MEM_HIGH && attribute != CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH))
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim_lock);
	if (attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH)
		used_high[device] = 0;
	else
		reserved_high[device] = 0;
	pthread_mutex_unlock(&sim_lock);
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGraphMemTrim(CUdevice device)
{
	ENTER(cuDeviceGraphMemTrim);
	if (device < 0 || device >= sim_config.devices)
		return CUDA_ERROR_INVALID_DEVICE;
	sim_graph_memory_settle();
	return CUDA_SUCCESS;
}
