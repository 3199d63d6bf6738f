/* tools/sim/sim_copy.c
 * Copies and sets as work: every form of the driver's calls becomes one three-dimensional copy or one two-dimensional set.
 * Addresses are checked at the call, where hardware refuses them and the context stays usable; what is unmapped between the
 * call and the run loses the context. The entry points are in sim_copy_calls.c. */
#include "tools/sim/sim_copy.h"

#include <stdlib.h>
#include <string.h>

/* ---- where the ends of a copy lie ---- */

uint64_t sim_copy_source(const CUDA_MEMCPY3D *c)
{
	uint64_t base = c->srcMemoryType == CU_MEMORYTYPE_HOST ? (uint64_t)(uintptr_t)c->srcHost : c->srcDevice;

	return base + (c->srcZ * c->srcHeight + c->srcY) * c->srcPitch + c->srcXInBytes;
}

uint64_t sim_copy_target(const CUDA_MEMCPY3D *c)
{
	uint64_t base = c->dstMemoryType == CU_MEMORYTYPE_HOST ? (uint64_t)(uintptr_t)c->dstHost : c->dstDevice;

	return base + (c->dstZ * c->dstHeight + c->dstY) * c->dstPitch + c->dstXInBytes;
}

static uint64_t span(const CUDA_MEMCPY3D *c, size_t pitch, size_t height)
{
	return ((c->Depth - 1) * height + c->Height - 1) * pitch + c->WidthInBytes;
}

/* Neither known to the driver nor reserved: the program's own pages. */
static bool pageable(uint64_t address)
{
	bool known;

	pthread_mutex_lock(&sim_lock);
	known = sim_block_at(address) || sim_mapping_at(address) || sim_reserved(address);
	pthread_mutex_unlock(&sim_lock);
	return !known;
}

static bool linear(CUmemorytype type)
{
	return type == CU_MEMORYTYPE_HOST || type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_UNIFIED;
}

/* ---- copies ---- */

struct copy_args {
	CUDA_MEMCPY3D c;
	struct sim_context *context;
	bool inlined; /* the source is in @bytes */
	unsigned char bytes[];
};

static void run_copy(void *arg)
{
	struct copy_args *args = arg;
	const CUDA_MEMCPY3D *c = &args->c;
	uint64_t from = sim_copy_source(c), to = sim_copy_target(c);

	if (args->inlined) {
		memcpy((void *)(uintptr_t)to, args->bytes, c->WidthInBytes);
		return;
	}
	for (size_t z = 0; z < c->Depth; z++) {
		for (size_t y = 0; y < c->Height; y++)
			memmove((void *)(uintptr_t)(to + (z * c->dstHeight + y) * c->dstPitch),
				(const void *)(uintptr_t)(from + (z * c->srcHeight + y) * c->srcPitch), c->WidthInBytes);
	}
}

static void copy_cost(const void *arg, struct sim_cost *ret)
{
	const CUDA_MEMCPY3D *c = &((const struct copy_args *)arg)->c;
	uint64_t bytes = c->WidthInBytes * c->Height * c->Depth;

	sim_clock_copy_cost(ret);
	sim_clock_access(ret, sim_copy_source(c), bytes, 0);
	sim_clock_access(ret, sim_copy_target(c), 0, bytes);
	/* Over the link the device's own memory is never what one waits for. */
	if (ret->bytes[SIM_TO_DEVICE] || ret->bytes[SIM_TO_HOST])
		ret->bytes[SIM_DEVICE_MEMORY] = 0;
}

static const struct sim_work_kind copy_kind = {.type = CU_GRAPH_NODE_TYPE_MEMCPY, .run = run_copy, .cost = copy_cost};

CUresult sim_copy_work(struct sim_context *ctx, const CUDA_MEMCPY3D *given, void *buffer, struct sim_work *work)
{
	struct copy_args *args = buffer;
	CUDA_MEMCPY3D *c = &args->c;

	_Static_assert(sizeof(*args) <= SIM_COPY_BYTES_MAX, "a copy fits its buffer");
	if (!given || given->srcLOD || given->dstLOD)
		return CUDA_ERROR_INVALID_VALUE;
	if (given->srcMemoryType == CU_MEMORYTYPE_ARRAY || given->dstMemoryType == CU_MEMORYTYPE_ARRAY)
		return CUDA_ERROR_NOT_SUPPORTED; /* no arrays here */
	*c = *given;
	if (!linear(c->srcMemoryType) || !linear(c->dstMemoryType))
		return CUDA_ERROR_INVALID_VALUE;
	if (!c->WidthInBytes || !c->Height || !c->Depth)
		return CUDA_ERROR_INVALID_VALUE;
	/* Pitch and height may be left out where they do not matter. */
	c->srcPitch = c->srcPitch ? c->srcPitch : c->WidthInBytes + c->srcXInBytes;
	c->dstPitch = c->dstPitch ? c->dstPitch : c->WidthInBytes + c->dstXInBytes;
	c->srcHeight = c->srcHeight ? c->srcHeight : c->Height + c->srcY;
	c->dstHeight = c->dstHeight ? c->dstHeight : c->Height + c->dstY;
	if (c->srcPitch < c->WidthInBytes + c->srcXInBytes || c->dstPitch < c->WidthInBytes + c->dstXInBytes ||
		c->srcHeight < c->Height + c->srcY || c->dstHeight < c->Height + c->dstY)
		return CUDA_ERROR_INVALID_VALUE;
	/* An end said to be on the device is memory that the driver knows, pinned host memory included. */
	if ((c->srcMemoryType == CU_MEMORYTYPE_DEVICE && !sim_known(sim_copy_source(c))) ||
		(c->dstMemoryType == CU_MEMORYTYPE_DEVICE && !sim_known(sim_copy_target(c))))
		return CUDA_ERROR_INVALID_VALUE;
	if (!sim_range_ok(sim_copy_source(c), span(c, c->srcPitch, c->srcHeight)) ||
		!sim_range_ok(sim_copy_target(c), span(c, c->dstPitch, c->dstHeight)))
		return CUDA_ERROR_INVALID_VALUE;
	args->context = ctx;
	args->inlined = false;
	*work = (struct sim_work){&copy_kind, args, sizeof(*args), false};
	return CUDA_SUCCESS;
}

void sim_copy_describe(const struct sim_work *work, CUDA_MEMCPY3D *ret)
{
	*ret = ((const struct copy_args *)work->arg)->c;
}

bool sim_copy_settle(struct sim_work *work, void **ret_heap)
{
	struct copy_args *args = work->arg, *bigger;
	const CUDA_MEMCPY3D *c = &args->c;
	uint64_t from = sim_copy_source(c);

	*ret_heap = NULL;
	if (pageable(sim_copy_target(c)))
		return true;
	if (!pageable(from))
		return false;
	/* Small data travels with the command, so that the source may be reused when the call returns. */
	if (c->Height != 1 || c->Depth != 1 || c->WidthInBytes > SIM_COPY_INLINE_MAX)
		return true;
	bigger = malloc(sizeof(*bigger) + c->WidthInBytes);
	if (!bigger)
		return true;
	*bigger = *args;
	bigger->inlined = true;
	memcpy(bigger->bytes, (const void *)(uintptr_t)from, c->WidthInBytes);
	work->arg = *ret_heap = bigger;
	work->bytes = sizeof(*bigger) + c->WidthInBytes;
	return false;
}

/* ---- sets ---- */

struct set_args {
	CUDA_MEMSET_NODE_PARAMS s;
	struct sim_context *context;
};

static void run_set(void *arg)
{
	const CUDA_MEMSET_NODE_PARAMS *s = &((const struct set_args *)arg)->s;

	for (size_t y = 0; y < s->height; y++) {
		void *row = (void *)(uintptr_t)(s->dst + y * s->pitch);

		if (s->elementSize == 1)
			memset(row, (int)s->value, s->width);
		for (size_t i = 0; s->elementSize == 2 && i < s->width; i++)
			((uint16_t *)row)[i] = (uint16_t)s->value;
		for (size_t i = 0; s->elementSize == 4 && i < s->width; i++)
			((uint32_t *)row)[i] = s->value;
	}
}

static void set_cost(const void *arg, struct sim_cost *ret)
{
	const CUDA_MEMSET_NODE_PARAMS *s = &((const struct set_args *)arg)->s;

	sim_clock_copy_cost(ret);
	sim_clock_access(ret, s->dst, 0, s->width * s->elementSize * s->height);
}

static const struct sim_work_kind set_kind = {.type = CU_GRAPH_NODE_TYPE_MEMSET, .run = run_set, .cost = set_cost};

CUresult sim_set_work(struct sim_context *ctx, const CUDA_MEMSET_NODE_PARAMS *given, void *buffer, struct sim_work *work)
{
	struct set_args *args = buffer;
	CUDA_MEMSET_NODE_PARAMS *s = &args->s;

	if (!given || (given->elementSize != 1 && given->elementSize != 2 && given->elementSize != 4) || !given->width ||
		!given->height || given->dst % given->elementSize)
		return CUDA_ERROR_INVALID_VALUE;
	*s = *given;
	if (s->height == 1)
		s->pitch = s->width * s->elementSize;
	if (s->pitch < s->width * s->elementSize ||
		!sim_range_ok(s->dst, (s->height - 1) * s->pitch + s->width * s->elementSize) || pageable(s->dst))
		return CUDA_ERROR_INVALID_VALUE;
	args->context = ctx;
	*work = (struct sim_work){&set_kind, args, sizeof(*args), s->width * s->height <= SIM_COPY_INLINE_MAX};
	return CUDA_SUCCESS;
}

void sim_set_describe(const struct sim_work *work, CUDA_MEMSET_NODE_PARAMS *ret)
{
	*ret = ((const struct set_args *)work->arg)->s;
}
