/* tools/sim/sim_copy_calls.c
 * Entry points of copies and sets. The first ABI of each, with 32-bit addresses, is left to the skeleton: it cannot name
 * memory of a 64-bit device. */
#include "tools/sim/sim_copy.h"

#include <stdlib.h>
#include <string.h>

/* Is @stream being captured? Then nothing is waited for: the copy is only noted. */
static bool captured(struct sim_context *ctx, CUstream handle, bool per_thread)
{
	struct sim_stream *stream;
	bool result;

	if (!__atomic_load_n(&sim_captures_active, __ATOMIC_ACQUIRE))
		return false;
	pthread_mutex_lock(&sim_lock);
	stream = sim_stream_of(ctx, handle, per_thread);
	result = stream && stream->capture;
	pthread_mutex_unlock(&sim_lock);
	return result;
}

static CUresult copy(struct sim_context *ctx, const CUDA_MEMCPY3D *c, CUstream stream, bool per_thread, bool synchronous)
{
	_Alignas(16) unsigned char buffer[SIM_COPY_BYTES_MAX];
	struct sim_work work;
	void *heap = NULL;
	CUresult result;
	bool wait = synchronous;

	/* Nothing to do is fine, even without addresses. */
	if (!c->WidthInBytes || !c->Height || !c->Depth)
		return CUDA_SUCCESS;
	result = sim_copy_work(ctx, c, buffer, &work);
	if (result == CUDA_SUCCESS && synchronous)
		result = sim_capture_check(false);
	if (result != CUDA_SUCCESS)
		return result;
	if (!synchronous && !captured(ctx, stream, per_thread))
		wait = sim_copy_settle(&work, &heap);
	/* Whoever waits may as well do it. */
	work.brief = wait || c->WidthInBytes * c->Height * c->Depth <= SIM_COPY_INLINE_MAX;
	result = sim_submit_work(ctx, stream, per_thread, &work);
	free(heap);
	return result == CUDA_SUCCESS && wait ? sim_wait_stream(ctx, stream, per_thread) : result;
}

/* ---- one dimension ---- */

static CUDA_MEMCPY3D line(CUmemorytype to_type, uint64_t to, CUmemorytype from_type, uint64_t from, size_t bytes)
{
	CUDA_MEMCPY3D c = {.srcMemoryType = from_type, .dstMemoryType = to_type, .WidthInBytes = bytes, .Height = 1, .Depth = 1};

	if (from_type == CU_MEMORYTYPE_HOST)
		c.srcHost = (const void *)(uintptr_t)from;
	else
		c.srcDevice = from;
	if (to_type == CU_MEMORYTYPE_HOST)
		c.dstHost = (void *)(uintptr_t)to;
	else
		c.dstDevice = to;
	return c;
}

#define U64(x) ((uint64_t)(uintptr_t)(x))
#define COPY(symbol, to_type, to_place, from_type, from_place)                                                         \
	CUresult CUDAAPI symbol(to_type to, from_type from, size_t n)                                                  \
	{                                                                                                              \
		CUDA_MEMCPY3D c = line(to_place, U64(to), from_place, U64(from), n);                                   \
		ENTER_CONTEXT(symbol, ctx);                                                                            \
		return copy(ctx, &c, NULL, false, true);                                                               \
	}                                                                                                              \
	CUresult CUDAAPI symbol##_ptds(to_type to, from_type from, size_t n)                                           \
	{                                                                                                              \
		CUDA_MEMCPY3D c = line(to_place, U64(to), from_place, U64(from), n);                                   \
		ENTER_CONTEXT(symbol##_ptds, ctx);                                                                     \
		return copy(ctx, &c, NULL, true, true);                                                                \
	}
#define COPY_ASYNC(symbol, to_type, to_place, from_type, from_place)                                                   \
	CUresult CUDAAPI symbol(to_type to, from_type from, size_t n, CUstream s)                                      \
	{                                                                                                              \
		CUDA_MEMCPY3D c = line(to_place, U64(to), from_place, U64(from), n);                                   \
		ENTER_CONTEXT(symbol, ctx);                                                                            \
		return copy(ctx, &c, s, false, false);                                                                 \
	}                                                                                                              \
	CUresult CUDAAPI symbol##_ptsz(to_type to, from_type from, size_t n, CUstream s)                               \
	{                                                                                                              \
		CUDA_MEMCPY3D c = line(to_place, U64(to), from_place, U64(from), n);                                   \
		ENTER_CONTEXT(symbol##_ptsz, ctx);                                                                     \
		return copy(ctx, &c, s, true, false);                                                                  \
	}
#define HOST CU_MEMORYTYPE_HOST
#define DEVICE CU_MEMORYTYPE_DEVICE
#define UNIFIED CU_MEMORYTYPE_UNIFIED
COPY(cuMemcpy, CUdeviceptr, UNIFIED, CUdeviceptr, UNIFIED)
COPY(cuMemcpyHtoD_v2, CUdeviceptr, DEVICE, const void *, HOST)
COPY(cuMemcpyDtoH_v2, void *, HOST, CUdeviceptr, DEVICE)
COPY(cuMemcpyDtoD_v2, CUdeviceptr, DEVICE, CUdeviceptr, DEVICE)
COPY_ASYNC(cuMemcpyAsync, CUdeviceptr, UNIFIED, CUdeviceptr, UNIFIED)
COPY_ASYNC(cuMemcpyHtoDAsync_v2, CUdeviceptr, DEVICE, const void *, HOST)
COPY_ASYNC(cuMemcpyDtoHAsync_v2, void *, HOST, CUdeviceptr, DEVICE)
COPY_ASYNC(cuMemcpyDtoDAsync_v2, CUdeviceptr, DEVICE, CUdeviceptr, DEVICE)

/* ---- between contexts ---- */

static CUresult peer(struct sim_context *ctx, CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
	size_t bytes, CUstream stream, bool per_thread, bool synchronous)
{
	CUDA_MEMCPY3D c = line(DEVICE, to, DEVICE, from, bytes);
	bool known;

	pthread_mutex_lock(&sim_lock);
	known = sim_context_of(to_context) && sim_context_of(from_context);
	pthread_mutex_unlock(&sim_lock);
	return known ? copy(ctx, &c, stream, per_thread, synchronous) : CUDA_ERROR_INVALID_CONTEXT;
}

#define PEER (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t n)
#define PEER_ASYNC (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t n, CUstream s)
#define CALL(symbol, params, call)                                                                                     \
	CUresult CUDAAPI symbol params                                                                                 \
	{                                                                                                              \
		ENTER_CONTEXT(symbol, ctx);                                                                            \
		return call;                                                                                           \
	}
CALL(cuMemcpyPeer, PEER, peer(ctx, to, to_context, from, from_context, n, NULL, false, true))
CALL(cuMemcpyPeer_ptds, PEER, peer(ctx, to, to_context, from, from_context, n, NULL, true, true))
CALL(cuMemcpyPeerAsync, PEER_ASYNC, peer(ctx, to, to_context, from, from_context, n, s, false, false))
CALL(cuMemcpyPeerAsync_ptsz, PEER_ASYNC, peer(ctx, to, to_context, from, from_context, n, s, true, false))

/* ---- two and three dimensions ---- */

static CUresult copy_2d(struct sim_context *ctx, const CUDA_MEMCPY2D *p, CUstream stream, bool per_thread, bool synchronous)
{
	CUDA_MEMCPY3D c;

	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	c = (CUDA_MEMCPY3D){.srcXInBytes = p->srcXInBytes, .srcY = p->srcY, .srcMemoryType = p->srcMemoryType,
		.srcHost = p->srcHost, .srcDevice = p->srcDevice, .srcArray = p->srcArray, .srcPitch = p->srcPitch,
		.dstXInBytes = p->dstXInBytes, .dstY = p->dstY, .dstMemoryType = p->dstMemoryType, .dstHost = p->dstHost,
		.dstDevice = p->dstDevice, .dstArray = p->dstArray, .dstPitch = p->dstPitch, .WidthInBytes = p->WidthInBytes,
		.Height = p->Height, .Depth = 1};
	return copy(ctx, &c, stream, per_thread, synchronous);
}

static CUresult copy_3d(struct sim_context *ctx, const CUDA_MEMCPY3D *p, CUstream stream, bool per_thread, bool synchronous)
{
	return p ? copy(ctx, p, stream, per_thread, synchronous) : CUDA_ERROR_INVALID_VALUE;
}

/* The same layout but for two contexts where the plain form has reserved fields. */
static CUresult copy_3d_peer(struct sim_context *ctx, const CUDA_MEMCPY3D_PEER *p, CUstream stream, bool per_thread,
	bool synchronous)
{
	CUDA_MEMCPY3D c;

	_Static_assert(sizeof(CUDA_MEMCPY3D) == sizeof(CUDA_MEMCPY3D_PEER), "the two forms differ in names only");
	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(&c, p, sizeof(c));
	c.reserved0 = c.reserved1 = NULL;
	return copy(ctx, &c, stream, per_thread, synchronous);
}

CALL(cuMemcpy2D_v2, (const CUDA_MEMCPY2D *p), copy_2d(ctx, p, NULL, false, true))
CALL(cuMemcpy2D_v2_ptds, (const CUDA_MEMCPY2D *p), copy_2d(ctx, p, NULL, true, true))
CALL(cuMemcpy2DUnaligned_v2, (const CUDA_MEMCPY2D *p), copy_2d(ctx, p, NULL, false, true))
CALL(cuMemcpy2DUnaligned_v2_ptds, (const CUDA_MEMCPY2D *p), copy_2d(ctx, p, NULL, true, true))
CALL(cuMemcpy2DAsync_v2, (const CUDA_MEMCPY2D *p, CUstream s), copy_2d(ctx, p, s, false, false))
CALL(cuMemcpy2DAsync_v2_ptsz, (const CUDA_MEMCPY2D *p, CUstream s), copy_2d(ctx, p, s, true, false))
CALL(cuMemcpy3D_v2, (const CUDA_MEMCPY3D *p), copy_3d(ctx, p, NULL, false, true))
CALL(cuMemcpy3D_v2_ptds, (const CUDA_MEMCPY3D *p), copy_3d(ctx, p, NULL, true, true))
CALL(cuMemcpy3DAsync_v2, (const CUDA_MEMCPY3D *p, CUstream s), copy_3d(ctx, p, s, false, false))
CALL(cuMemcpy3DAsync_v2_ptsz, (const CUDA_MEMCPY3D *p, CUstream s), copy_3d(ctx, p, s, true, false))
CALL(cuMemcpy3DPeer, (const CUDA_MEMCPY3D_PEER *p), copy_3d_peer(ctx, p, NULL, false, true))
CALL(cuMemcpy3DPeer_ptds, (const CUDA_MEMCPY3D_PEER *p), copy_3d_peer(ctx, p, NULL, true, true))
CALL(cuMemcpy3DPeerAsync, (const CUDA_MEMCPY3D_PEER *p, CUstream s), copy_3d_peer(ctx, p, s, false, false))
CALL(cuMemcpy3DPeerAsync_ptsz, (const CUDA_MEMCPY3D_PEER *p, CUstream s), copy_3d_peer(ctx, p, s, true, false))

/* ---- batches ---- */

static CUresult batch(struct sim_context *ctx, const CUdeviceptr *to, const CUdeviceptr *from, const size_t *bytes, size_t count,
	const size_t *attributes_from, size_t attribute_count, size_t *ret_failed, CUstream stream, bool per_thread)
{
	if (ret_failed)
		*ret_failed = SIZE_MAX;
	if (!to || !from || !bytes || !count || !attributes_from || !attribute_count || attributes_from[0])
		return CUDA_ERROR_INVALID_VALUE;
	/* Documented: not on the legacy stream. */
	if ((!stream && !per_thread) || stream == CU_STREAM_LEGACY)
		return CUDA_ERROR_INVALID_VALUE;
	if (captured(ctx, stream, per_thread))
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	for (size_t i = 0; i < count; i++) {
		CUDA_MEMCPY3D c = line(UNIFIED, to[i], UNIFIED, from[i], bytes[i]);
		CUresult result = copy(ctx, &c, stream, per_thread, false);

		if (result != CUDA_SUCCESS) {
			if (ret_failed)
				*ret_failed = i;
			return result;
		}
	}
	return CUDA_SUCCESS;
}

#define BATCH_V1                                                                                                       \
	(CUdeviceptr * to, CUdeviceptr * from, size_t * n, size_t count, CUmemcpyAttributes * attributes,              \
		size_t * starts, size_t attribute_count, size_t * failed, CUstream s)
#define BATCH_V2                                                                                                       \
	(CUdeviceptr * to, CUdeviceptr * from, size_t * n, size_t count, CUmemcpyAttributes * attributes,              \
		size_t * starts, size_t attribute_count, CUstream s)
CALL(cuMemcpyBatchAsync, BATCH_V1, batch(ctx, to, from, n, count, starts, attribute_count, failed, s, false))
CALL(cuMemcpyBatchAsync_ptsz, BATCH_V1, batch(ctx, to, from, n, count, starts, attribute_count, failed, s, true))
CALL(cuMemcpyBatchAsync_v2, BATCH_V2, batch(ctx, to, from, n, count, starts, attribute_count, NULL, s, false))
CALL(cuMemcpyBatchAsync_v2_ptsz, BATCH_V2, batch(ctx, to, from, n, count, starts, attribute_count, NULL, s, true))

/* ---- sets ---- */

static CUresult set(struct sim_context *ctx, CUDA_MEMSET_NODE_PARAMS s, CUstream stream, bool per_thread, bool synchronous)
{
	_Alignas(16) unsigned char buffer[SIM_SET_BYTES_MAX];
	struct sim_work work;
	CUresult result;

	if (!s.width || !s.height)
		return CUDA_SUCCESS;
	result = sim_set_work(ctx, &s, buffer, &work);
	if (result == CUDA_SUCCESS && synchronous)
		result = sim_capture_check(false);
	if (result == CUDA_SUCCESS)
		result = sim_submit_work(ctx, stream, per_thread, &work);
	return result == CUDA_SUCCESS && synchronous ? sim_wait_stream(ctx, stream, per_thread) : result;
}

static CUDA_MEMSET_NODE_PARAMS area(CUdeviceptr to, size_t pitch, unsigned value, unsigned width, size_t columns, size_t rows)
{
	return (CUDA_MEMSET_NODE_PARAMS){to, pitch, value, width, columns, rows};
}

#define LINE area(to, 0, value, width, n, 1)
#define AREA area(to, pitch, value, width, columns, rows)
#define SET(symbol, async_symbol, symbol_2d, async_symbol_2d, type, size)                                              \
	SET_CALLS(symbol, async_symbol, (CUdeviceptr to, type value, size_t n),                                        \
		(CUdeviceptr to, type value, size_t n, CUstream s), LINE, size)                                        \
	SET_CALLS(symbol_2d, async_symbol_2d, (CUdeviceptr to, size_t pitch, type value, size_t columns, size_t rows), \
		(CUdeviceptr to, size_t pitch, type value, size_t columns, size_t rows, CUstream s), AREA, size)
#define SET_CALL(symbol, params, shape, size, stream, twin, synchronous)                                               \
	CUresult CUDAAPI symbol params                                                                                 \
	{                                                                                                              \
		const unsigned width = size;                                                                           \
		ENTER_CONTEXT(symbol, ctx);                                                                            \
		return set(ctx, shape, stream, twin, synchronous);                                                     \
	}
#define SET_CALLS(symbol, async_symbol, params, async_params, shape, size)                                             \
	SET_CALL(symbol, params, shape, size, NULL, false, true)                                                       \
	SET_CALL(symbol##_ptds, params, shape, size, NULL, true, true)                                                 \
	SET_CALL(async_symbol, async_params, shape, size, s, false, false)                                             \
	SET_CALL(async_symbol##_ptsz, async_params, shape, size, s, true, false)
SET(cuMemsetD8_v2, cuMemsetD8Async, cuMemsetD2D8_v2, cuMemsetD2D8Async, unsigned char, 1)
SET(cuMemsetD16_v2, cuMemsetD16Async, cuMemsetD2D16_v2, cuMemsetD2D16Async, unsigned short, 2)
SET(cuMemsetD32_v2, cuMemsetD32Async, cuMemsetD2D32_v2, cuMemsetD2D32Async, unsigned int, 4)
