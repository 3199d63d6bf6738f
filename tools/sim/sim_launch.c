/* tools/sim/sim_launch.c
 * Launches of kernels. The parameters are copied at the call, as the driver does, into one block of bytes that a stream, a
 * capture or a graph can keep. A launch that finds its stream idle and its kernel brief allocates nothing. */
#include "tools/sim/sim_exec.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

struct launch_args {
	struct sim_function *function;
	struct sim_context *context;
	struct sim_launch launch;
	bool cooperative;
	_Alignas(16) unsigned char params[];
};
_Static_assert(sizeof(struct launch_args) + SIM_PARAM_BYTES_MAX <= SIM_LAUNCH_BYTES_MAX, "a launch fits its buffer");

static void run_launch(void *arg)
{
	struct launch_args *args = arg;
	const struct sim_kernel_info *info = args->function->info;
	void *params[SIM_PARAMS_MAX];

	for (unsigned i = 0; i < info->param_count; i++) {
		params[i] = args->params + args->function->offset[i];
		/* Page rights are of the process, not of a device: with several, a parameter counts as a touch. */
		if (sim_config.devices > 1 && info->param_bytes[i] == sizeof(uint64_t) &&
			!sim_may_touch(args->context, *(uint64_t *)params[i]))
			raise(SIGSEGV); /* ends in the guard */
	}
	info->run(&args->launch, params);
}

static const struct sim_work_kind launch_kind = {
	.type = CU_GRAPH_NODE_TYPE_KERNEL, .run = run_launch, .cost = sim_clock_kernel_cost};

/* The packed buffer of @extra; false: malformed. */
static bool unpack(void **extra, const void **ret_packed, size_t *ret_bytes)
{
	*ret_packed = NULL;
	*ret_bytes = 0;
	for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
		if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER)
			*ret_packed = extra[1];
		else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE)
			*ret_bytes = *(size_t *)extra[1];
		else
			return false;
	}
	return true;
}

static bool shape_ok(const struct sim_function *function, const struct sim_launch *shape)
{
	const unsigned *g = shape->grid, *b = shape->block;

	return g[0] && g[1] && g[2] && b[0] && b[1] && b[2] && g[0] <= 0x7fffffff && g[1] <= 65535 && g[2] <= 65535 &&
	       b[0] <= 1024 && b[1] <= 1024 && b[2] <= 64 && (uint64_t)b[0] * b[1] * b[2] <= 1024 &&
	       shape->shared_bytes <= (unsigned)function->dynamic_shared_bytes;
}

CUresult sim_launch_work(struct sim_context *ctx, const void *handle, const struct sim_launch *shape, void **params,
	void **extra, void *buffer, struct sim_work *work)
{
	struct sim_function *function = sim_function_of(handle);
	struct launch_args *args = buffer;
	const struct sim_kernel_info *info;
	const void *packed = NULL;
	size_t packed_bytes = 0;
	CUcontext home;

	if (!function)
		return CUDA_ERROR_INVALID_HANDLE;
	home = sim_function_context(function);
	if (home && home != (CUcontext)ctx)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!shape_ok(function, shape) || (params && extra) || (extra && !unpack(extra, &packed, &packed_bytes)))
		return CUDA_ERROR_INVALID_VALUE;
	info = function->info;
	if (info->param_count && !params && (!packed || packed_bytes < function->param_bytes))
		return CUDA_ERROR_INVALID_VALUE;
	args->function = function;
	args->context = ctx;
	args->launch = *shape;
	args->cooperative = false;
	for (unsigned i = 0; i < info->param_count; i++)
		memcpy(args->params + function->offset[i],
			packed ? (const unsigned char *)packed + function->offset[i] : params[i], info->param_bytes[i]);
	*work = (struct sim_work){&launch_kind, args, sizeof(*args) + function->param_bytes, info->brief};
	return CUDA_SUCCESS;
}

void sim_launch_describe(const struct sim_work *work, CUDA_KERNEL_NODE_PARAMS_v2 *ret, void **ret_params)
{
	struct launch_args *args = work->arg;
	struct sim_function *function = args->function;

	memset(ret, 0, sizeof(*ret));
	/* A CUkernel is answered as the CUfunction it stands for, when it was given as one. */
	ret->func = (CUfunction)function;
	ret->gridDimX = args->launch.grid[0];
	ret->gridDimY = args->launch.grid[1];
	ret->gridDimZ = args->launch.grid[2];
	ret->blockDimX = args->launch.block[0];
	ret->blockDimY = args->launch.block[1];
	ret->blockDimZ = args->launch.block[2];
	ret->sharedMemBytes = args->launch.shared_bytes;
	for (unsigned i = 0; i < function->info->param_count; i++)
		ret_params[i] = args->params + function->offset[i];
	ret->kernelParams = ret_params;
	ret->kern = function->library ? (CUkernel)function : NULL;
	ret->ctx = (CUcontext)args->context;
}

static CUresult launch(struct sim_context *ctx, CUfunction function, const struct sim_launch *shape, CUstream stream,
	bool per_thread, void **params, void **extra)
{
	_Alignas(16) unsigned char buffer[SIM_LAUNCH_BYTES_MAX];
	struct sim_work work;
	CUresult result = sim_launch_work(ctx, function, shape, params, extra, buffer, &work);

	return result == CUDA_SUCCESS ? sim_submit_work(ctx, stream, per_thread, &work) : result;
}

#define LAUNCH(symbol, twin)                                                                                           \
	CUresult CUDAAPI symbol(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,         \
		unsigned bz, unsigned shared, CUstream stream, void **params, void **extra)                            \
	{                                                                                                              \
		struct sim_launch shape = {{gx, gy, gz}, {bx, by, bz}, shared};                                        \
		ENTER_CONTEXT(symbol, ctx);                                                                            \
		return launch(ctx, f, &shape, stream, twin, params, extra);                                            \
	}
LAUNCH(cuLaunchKernel, false)
LAUNCH(cuLaunchKernel_ptsz, true)

/* ---- cooperative ---- */

/* All blocks of a cooperative grid run at the same time. */
static CUresult fits(const void *handle, const struct sim_launch *shape)
{
	const struct sim_function *function = sim_function_of(handle);
	uint64_t threads = (uint64_t)shape->block[0] * shape->block[1] * shape->block[2];
	uint64_t blocks = (uint64_t)shape->grid[0] * shape->grid[1] * shape->grid[2];

	if (!function)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!threads || threads > 1024)
		return CUDA_ERROR_INVALID_VALUE;
	return blocks > 132ull * (unsigned)sim_blocks_per_processor(function, (int)threads, shape->shared_bytes)
		       ? CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE
		       : CUDA_SUCCESS;
}

static CUresult launch_cooperative(struct sim_context *ctx, CUfunction function, const struct sim_launch *shape,
	CUstream stream, bool per_thread, void **params)
{
	CUresult result = fits(function, shape);

	return result == CUDA_SUCCESS ? launch(ctx, function, shape, stream, per_thread, params, NULL) : result;
}

#define LAUNCH_COOPERATIVE(symbol, twin)                                                                               \
	CUresult CUDAAPI symbol(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,         \
		unsigned bz, unsigned shared, CUstream stream, void **params)                                          \
	{                                                                                                              \
		struct sim_launch shape = {{gx, gy, gz}, {bx, by, bz}, shared};                                        \
		ENTER_CONTEXT(symbol, ctx);                                                                            \
		return launch_cooperative(ctx, f, &shape, stream, twin, params);                                       \
	}
LAUNCH_COOPERATIVE(cuLaunchCooperativeKernel, false)
LAUNCH_COOPERATIVE(cuLaunchCooperativeKernel_ptsz, true)

/* One launch per device, on a stream of that device that is not a default stream. */
CUresult CUDAAPI cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *list, unsigned int count, unsigned int flags)
{
	ENTER_CONTEXT(cuLaunchCooperativeKernelMultiDevice, ctx);
	if (!list || !count || count > (unsigned)sim_config.devices || flags > 3)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned i = 0; i < count; i++) {
		const CUDA_LAUNCH_PARAMS *p = &list[i];
		struct sim_launch shape = {{p->gridDimX, p->gridDimY, p->gridDimZ}, {p->blockDimX, p->blockDimY, p->blockDimZ},
			p->sharedMemBytes};
		struct sim_stream *stream = NULL;
		CUresult result;

		pthread_mutex_lock(&sim_lock);
		if (p->hStream && p->hStream != CU_STREAM_LEGACY && p->hStream != CU_STREAM_PER_THREAD)
			stream = sim_stream_of(ctx, p->hStream, false);
		pthread_mutex_unlock(&sim_lock);
		if (!stream)
			return CUDA_ERROR_INVALID_HANDLE;
		result = launch_cooperative(stream->context, p->function, &shape, p->hStream, false, p->kernelParams);
		if (result != CUDA_SUCCESS)
			return result;
	}
	return CUDA_SUCCESS;
}

/* ---- with attributes ---- */

static CUresult record_after(struct sim_context *ctx, CUevent handle, CUstream stream_handle, bool per_thread)
{
	struct sim_stream *stream;
	struct sim_event *event;
	CUresult result = CUDA_ERROR_INVALID_HANDLE;

	pthread_mutex_lock(&sim_lock);
	event = sim_event_of(handle);
	stream = sim_stream_of(ctx, stream_handle, per_thread);
	if (event && stream)
		result = stream->capture ? CUDA_ERROR_NOT_SUPPORTED : sim_event_record_on(event, stream);
	pthread_mutex_unlock(&sim_lock);
	return result;
}

static CUresult launch_ex(struct sim_context *ctx, const CUlaunchConfig *c, CUfunction function, void **params, void **extra,
	bool per_thread)
{
	struct sim_launch shape;
	CUevent event = NULL;
	CUresult result;

	if (!c || (c->numAttrs && !c->attrs))
		return CUDA_ERROR_INVALID_VALUE;
	shape = (struct sim_launch){{c->gridDimX, c->gridDimY, c->gridDimZ}, {c->blockDimX, c->blockDimY, c->blockDimZ},
		c->sharedMemBytes};
	for (unsigned i = 0; i < c->numAttrs; i++) {
		const CUlaunchAttributeValue *value = &c->attrs[i].value;

		if ((unsigned)c->attrs[i].id >= CU_LAUNCH_ATTRIBUTE_MAX)
			return CUDA_ERROR_INVALID_VALUE;
		if (c->attrs[i].id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE && value->cooperative) {
			result = fits(function, &shape);
			if (result != CUDA_SUCCESS)
				return result;
		} else if (c->attrs[i].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) {
			/* A cluster divides the grid in every direction. */
			if (!value->clusterDim.x || !value->clusterDim.y || !value->clusterDim.z ||
				c->gridDimX % value->clusterDim.x || c->gridDimY % value->clusterDim.y ||
				c->gridDimZ % value->clusterDim.z)
				return CUDA_ERROR_INVALID_VALUE;
			if (value->clusterDim.x * value->clusterDim.y * value->clusterDim.z > 16)
				return CUDA_ERROR_INVALID_CLUSTER_SIZE;
		} else if (c->attrs[i].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT) {
			event = value->programmaticEvent.event;
		} else if (c->attrs[i].id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT) {
			event = value->launchCompletionEvent.event;
		}
	}
	result = launch(ctx, function, &shape, c->hStream, per_thread, params, extra);
	/* Both events may come later than promised: at the end of the kernel. */
	return result == CUDA_SUCCESS && event ? record_after(ctx, event, c->hStream, per_thread) : result;
}

CUresult CUDAAPI cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params, void **extra)
{
	ENTER_CONTEXT(cuLaunchKernelEx, ctx);
	return launch_ex(ctx, config, function, params, extra, false);
}

CUresult CUDAAPI cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction function, void **params, void **extra)
{
	ENTER_CONTEXT(cuLaunchKernelEx_ptsz, ctx);
	return launch_ex(ctx, config, function, params, extra, true);
}

/* ---- before cuLaunchKernel: shape and parameters are state of the function ---- */

struct sim_old_launch {
	struct sim_launch shape;
	size_t bytes;
	unsigned char params[SIM_PARAM_BYTES_MAX];
};

static struct sim_old_launch *old_of(CUfunction handle)
{
	struct sim_function *function = sim_function_of(handle);

	if (function && !function->old)
		function->old = calloc(1, sizeof(*function->old));
	return function ? function->old : NULL;
}

static CUresult put(CUfunction handle, int offset, const void *bytes, size_t count)
{
	struct sim_old_launch *old = old_of(handle);

	if (!old)
		return CUDA_ERROR_INVALID_HANDLE;
	if (offset < 0 || (size_t)offset + count > sizeof(old->params))
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(old->params + offset, bytes, count);
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuFuncSetBlockShape(CUfunction function, int x, int y, int z)
{
	struct sim_old_launch *old = old_of(function);

	ENTER_CONTEXT(cuFuncSetBlockShape, ctx);
	if (!old || x <= 0 || y <= 0 || z <= 0)
		return old ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
	old->shape.block[0] = (unsigned)x;
	old->shape.block[1] = (unsigned)y;
	old->shape.block[2] = (unsigned)z;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuFuncSetSharedSize(CUfunction function, unsigned int bytes)
{
	struct sim_old_launch *old = old_of(function);

	ENTER_CONTEXT(cuFuncSetSharedSize, ctx);
	if (!old)
		return CUDA_ERROR_INVALID_HANDLE;
	old->shape.shared_bytes = bytes;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuParamSetSize(CUfunction function, unsigned int bytes)
{
	struct sim_old_launch *old = old_of(function);

	ENTER_CONTEXT(cuParamSetSize, ctx);
	if (!old || bytes > sizeof(old->params))
		return old ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
	old->bytes = bytes;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuParamSeti(CUfunction function, int offset, unsigned int value)
{
	ENTER_CONTEXT(cuParamSeti, ctx);
	return put(function, offset, &value, sizeof(value));
}

CUresult CUDAAPI cuParamSetf(CUfunction function, int offset, float value)
{
	ENTER_CONTEXT(cuParamSetf, ctx);
	return put(function, offset, &value, sizeof(value));
}

CUresult CUDAAPI cuParamSetv(CUfunction function, int offset, void *bytes, unsigned int count)
{
	ENTER_CONTEXT(cuParamSetv, ctx);
	return put(function, offset, bytes, count);
}

static CUresult launch_old(struct sim_context *ctx, CUfunction function, int width, int height, CUstream stream)
{
	struct sim_old_launch *old = old_of(function);
	struct sim_launch shape;
	void *extra[5];

	if (!old)
		return CUDA_ERROR_INVALID_HANDLE;
	if (width <= 0 || height <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	shape = old->shape;
	shape.grid[0] = (unsigned)width;
	shape.grid[1] = (unsigned)height;
	shape.grid[2] = 1;
	extra[0] = CU_LAUNCH_PARAM_BUFFER_POINTER;
	extra[1] = old->params;
	extra[2] = CU_LAUNCH_PARAM_BUFFER_SIZE;
	extra[3] = &old->bytes;
	extra[4] = CU_LAUNCH_PARAM_END;
	return launch(ctx, function, &shape, stream, false, NULL, extra);
}

CUresult CUDAAPI cuLaunch(CUfunction function)
{
	ENTER_CONTEXT(cuLaunch, ctx);
	return launch_old(ctx, function, 1, 1, NULL);
}

CUresult CUDAAPI cuLaunchGrid(CUfunction function, int width, int height)
{
	ENTER_CONTEXT(cuLaunchGrid, ctx);
	return launch_old(ctx, function, width, height, NULL);
}

CUresult CUDAAPI cuLaunchGridAsync(CUfunction function, int width, int height, CUstream stream)
{
	ENTER_CONTEXT(cuLaunchGridAsync, ctx);
	return launch_old(ctx, function, width, height, stream);
}
