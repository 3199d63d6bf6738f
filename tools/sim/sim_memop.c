/* tools/sim/sim_memop.c
 * Stream memory operations: a stream that waits for a word in memory, or writes one. */
#include "tools/sim/sim_exec.h"

#include <string.h>
#include <unistd.h>

#define BATCH_MAX 256 /* the documented limit of cuStreamBatchMemOp */

struct batch {
	struct sim_context *context;
	unsigned count, flags;
	CUstreamBatchMemOpParams list[BATCH_MAX]; /* only @count of them are kept */
};

static bool satisfied(uint64_t seen, uint64_t value, unsigned flags, bool wide)
{
	switch (flags & 3) {
	case CU_STREAM_WAIT_VALUE_GEQ: /* cyclic, as documented */
		return wide ? (int64_t)(seen - value) >= 0 : (int32_t)((uint32_t)seen - (uint32_t)value) >= 0;
	case CU_STREAM_WAIT_VALUE_EQ:
		return wide ? seen == value : (uint32_t)seen == (uint32_t)value;
	case CU_STREAM_WAIT_VALUE_AND:
		return (wide ? seen & value : (uint32_t)seen & (uint32_t)value) != 0;
	default:
		return (wide ? ~(seen | value) : ~((uint32_t)seen | (uint32_t)value)) != 0;
	}
}

static void wait_value(const struct batch *batch, const CUstreamBatchMemOpParams *op, bool wide)
{
	const void *at = (const void *)(uintptr_t)op->waitValue.address;
	unsigned rounds = 0;

	for (;;) {
		uint64_t seen = wide ? __atomic_load_n((const uint64_t *)at, __ATOMIC_ACQUIRE)
				     : __atomic_load_n((const uint32_t *)at, __ATOMIC_ACQUIRE);

		if (satisfied(seen, wide ? op->waitValue.value64 : op->waitValue.value, op->waitValue.flags, wide))
			return;
		/* A context that was lost, or a reset, must not leave a thread behind. */
		if (__atomic_load_n(&sim_stopping, __ATOMIC_ACQUIRE) || batch->context->sticky)
			return;
		usleep(++rounds < 100 ? 20 : 200);
	}
}

static void run_batch(void *arg)
{
	const struct batch *batch = arg;

	for (unsigned i = 0; i < batch->count; i++) {
		const CUstreamBatchMemOpParams *op = &batch->list[i];

		switch (op->operation) {
		case CU_STREAM_MEM_OP_WAIT_VALUE_32:
		case CU_STREAM_MEM_OP_WAIT_VALUE_64:
			wait_value(batch, op, op->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64);
			break;
		case CU_STREAM_MEM_OP_WRITE_VALUE_32:
			__atomic_store_n((uint32_t *)(uintptr_t)op->writeValue.address, op->writeValue.value, __ATOMIC_RELEASE);
			break;
		case CU_STREAM_MEM_OP_WRITE_VALUE_64:
			__atomic_store_n((uint64_t *)(uintptr_t)op->writeValue.address, op->writeValue.value64,
				__ATOMIC_RELEASE);
			break;
		case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
		case CU_STREAM_MEM_OP_BARRIER:
			__atomic_thread_fence(__ATOMIC_SEQ_CST);
			break;
		}
	}
}

static const struct sim_work_kind batch_kind = {.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, .run = run_batch};

static CUresult check(const CUstreamBatchMemOpParams *op)
{
	switch (op->operation) {
	case CU_STREAM_MEM_OP_WAIT_VALUE_32:
	case CU_STREAM_MEM_OP_WRITE_VALUE_32:
		/* Both structs have the address in the same place. */
		return op->waitValue.address % 4 == 0 && sim_range_ok(op->waitValue.address, 4) ? CUDA_SUCCESS
												 : CUDA_ERROR_INVALID_VALUE;
	case CU_STREAM_MEM_OP_WAIT_VALUE_64:
	case CU_STREAM_MEM_OP_WRITE_VALUE_64:
		return op->waitValue.address % 8 == 0 && sim_range_ok(op->waitValue.address, 8) ? CUDA_SUCCESS
												 : CUDA_ERROR_INVALID_VALUE;
	case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
	case CU_STREAM_MEM_OP_BARRIER:
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_batch_work(struct sim_context *ctx, unsigned count, const CUstreamBatchMemOpParams *list, unsigned flags,
	void *buffer, struct sim_work *work)
{
	struct batch *batch = buffer;

	_Static_assert(sizeof(*batch) <= SIM_BATCH_BYTES_MAX, "a batch fits its buffer");
	if (!list || !count || count > BATCH_MAX || flags)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned i = 0; i < count; i++) {
		if (check(&list[i]) != CUDA_SUCCESS)
			return CUDA_ERROR_INVALID_VALUE;
	}
	batch->context = ctx;
	batch->count = count;
	batch->flags = flags;
	memcpy(batch->list, list, count * sizeof(*list));
	*work = (struct sim_work){&batch_kind, batch, offsetof(struct batch, list) + count * sizeof(*list), false};
	return CUDA_SUCCESS;
}

void sim_batch_describe(const struct sim_work *work, CUDA_BATCH_MEM_OP_NODE_PARAMS *ret)
{
	struct batch *batch = work->arg;

	*ret = (CUDA_BATCH_MEM_OP_NODE_PARAMS){(CUcontext)batch->context, batch->count, batch->list, batch->flags};
}

static CUresult submit(struct sim_context *ctx, CUstream stream, bool per_thread, unsigned count,
	const CUstreamBatchMemOpParams *list, unsigned flags)
{
	_Alignas(16) unsigned char buffer[SIM_BATCH_BYTES_MAX];
	struct sim_work work;
	CUresult result = sim_batch_work(ctx, count, list, flags, buffer, &work);

	return result == CUDA_SUCCESS ? sim_submit_work(ctx, stream, per_thread, &work) : result;
}

static CUresult wait_one(struct sim_context *ctx, CUstream stream, bool per_thread, CUdeviceptr address, uint64_t value,
	unsigned flags, CUstreamBatchMemOpType operation)
{
	CUstreamBatchMemOpParams op = {.waitValue = {.operation = operation, .address = address, .value64 = value, .flags = flags}};

	if (flags & ~(3u | CU_STREAM_WAIT_VALUE_FLUSH))
		return CUDA_ERROR_INVALID_VALUE;
	return submit(ctx, stream, per_thread, 1, &op, 0);
}

static CUresult write_one(struct sim_context *ctx, CUstream stream, bool per_thread, CUdeviceptr address, uint64_t value,
	unsigned flags, CUstreamBatchMemOpType operation)
{
	CUstreamBatchMemOpParams op = {.writeValue = {.operation = operation, .address = address, .value64 = value, .flags = flags}};

	if (flags & ~(unsigned)CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER)
		return CUDA_ERROR_INVALID_VALUE;
	return submit(ctx, stream, per_thread, 1, &op, 0);
}

/* Both ABIs of a call do the same; the first one needed the administrator's permission on hardware. */
#define FOUR(symbol, params, call)                                                                                     \
	CUresult CUDAAPI symbol params                                                                                 \
	{                                                                                                              \
		const bool twin = false;                                                                               \
		ENTER_CONTEXT(symbol, ctx);                                                                            \
		return call;                                                                                           \
	}                                                                                                              \
	CUresult CUDAAPI symbol##_ptsz params                                                                          \
	{                                                                                                              \
		const bool twin = true;                                                                                \
		ENTER_CONTEXT(symbol##_ptsz, ctx);                                                                     \
		return call;                                                                                           \
	}                                                                                                              \
	CUresult CUDAAPI symbol##_v2 params                                                                            \
	{                                                                                                              \
		const bool twin = false;                                                                               \
		ENTER_CONTEXT(symbol##_v2, ctx);                                                                       \
		return call;                                                                                           \
	}                                                                                                              \
	CUresult CUDAAPI symbol##_v2_ptsz params                                                                       \
	{                                                                                                              \
		const bool twin = true;                                                                                \
		ENTER_CONTEXT(symbol##_v2_ptsz, ctx);                                                                  \
		return call;                                                                                           \
	}

FOUR(cuStreamWaitValue32, (CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags),
	wait_one(ctx, stream, twin, address, value, flags, CU_STREAM_MEM_OP_WAIT_VALUE_32))
FOUR(cuStreamWaitValue64, (CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags),
	wait_one(ctx, stream, twin, address, value, flags, CU_STREAM_MEM_OP_WAIT_VALUE_64))
FOUR(cuStreamWriteValue32, (CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags),
	write_one(ctx, stream, twin, address, value, flags, CU_STREAM_MEM_OP_WRITE_VALUE_32))
FOUR(cuStreamWriteValue64, (CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags),
	write_one(ctx, stream, twin, address, value, flags, CU_STREAM_MEM_OP_WRITE_VALUE_64))
FOUR(cuStreamBatchMemOp, (CUstream stream, unsigned int count, CUstreamBatchMemOpParams *list, unsigned int flags),
	submit(ctx, stream, twin, count, list, flags))
