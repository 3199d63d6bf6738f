/* shim/wrap_context.c
 * GROUP(CONTEXT): contexts come and go, and with them their allocations; peers get and lose their rights. */
#include "shim/shim.h"

#include "lifecycle/memory.h"

static void seen(CUresult result, const CUcontext *context, CUdevice device)
{
	if (result == CUDA_SUCCESS && context && shim_active()) {
		shim_enter();
		lifecycle_context_seen(&shim_hot.lifecycle, *context, device);
		shim_leave();
	}
}

CUresult CUDAAPI cuCtxCreate_v2(CUcontext *pctx, unsigned int flags, CUdevice dev)
{
	CUresult result = FORWARD(cuCtxCreate_v2, (pctx, flags, dev));

	seen(result, pctx, dev);
	return result;
}

CUresult CUDAAPI cuCtxCreate_v3(CUcontext *pctx, CUexecAffinityParam *paramsArray, int numParams, unsigned int flags, CUdevice dev)
{
	CUresult result = FORWARD(cuCtxCreate_v3, (pctx, paramsArray, numParams, flags, dev));

	seen(result, pctx, dev);
	return result;
}

CUresult CUDAAPI cuCtxCreate_v4(CUcontext *pctx, CUctxCreateParams *ctxCreateParams, unsigned int flags, CUdevice dev)
{
	CUresult result = FORWARD(cuCtxCreate_v4, (pctx, ctxCreateParams, flags, dev));

	seen(result, pctx, dev);
	return result;
}

/* One at a time with releases and resets: whether a release was the last one is asked after it, and a retain in between
 * would change the answer. */
CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev)
{
	CUresult result;

	if (!shim_active())
		return FORWARD(cuDevicePrimaryCtxRetain, (pctx, dev));
	shim_enter();
	ranked_lock(&shim_hot.lifecycle.contexts.primary_lock);
	result = FORWARD(cuDevicePrimaryCtxRetain, (pctx, dev));
	if (result == CUDA_SUCCESS && pctx) {
		lifecycle_context_seen(&shim_hot.lifecycle, *pctx, dev);
		contexts_primary(&shim_hot.lifecycle.contexts, *pctx);
	}
	ranked_unlock(&shim_hot.lifecycle.contexts.primary_lock);
	shim_leave();
	return result;
}

/* ---- ends ---- */

#define ENDING(symbol, args, context)                                                                                  \
	do {                                                                                                           \
		struct context_end end_;                                                                               \
		CUresult result_;                                                                                      \
		if (!shim_active())                                                                                    \
			return FORWARD(symbol, args);                                                                  \
		shim_enter();                                                                                          \
		lifecycle_context_end_begin(&shim_hot.lifecycle, context, &end_);                                          \
		result_ = FORWARD(symbol, args);                                                                       \
		lifecycle_context_end(&shim_hot.lifecycle, &end_, result_ == CUDA_SUCCESS);                                \
		shim_leave();                                                                                          \
		return result_;                                                                                        \
	} while (0)

CUresult CUDAAPI cuCtxDestroy(CUcontext ctx)
{
	ENDING(cuCtxDestroy, (ctx), ctx);
}

CUresult CUDAAPI cuCtxDestroy_v2(CUcontext ctx)
{
	ENDING(cuCtxDestroy_v2, (ctx), ctx);
}

/* Deprecated since CUDA 4: ends the context when nobody is attached any more. */
CUresult CUDAAPI cuCtxDetach(CUcontext ctx)
{
	CUresult result;
	struct context_end end;
	unsigned int version;
	bool alive;

	if (!shim_active())
		return FORWARD(cuCtxDetach, (ctx));
	shim_enter();
	lifecycle_context_end_begin(&shim_hot.lifecycle, ctx, &end);
	result = FORWARD(cuCtxDetach, (ctx));
	alive = result != CUDA_SUCCESS || (shim_hot.lifecycle.driver.CtxGetApiVersion &&
						  shim_hot.lifecycle.driver.CtxGetApiVersion(ctx, &version) == CUDA_SUCCESS);
	lifecycle_context_end(&shim_hot.lifecycle, &end, !alive);
	shim_leave();
	return result;
}

/* A green context is a share of its device's primary context, and its memory that of the device: allocations stay. */
CUresult CUDAAPI cuGreenCtxDestroy(CUgreenCtx hCtx)
{
	CUcontext context = NULL;
	struct context_end end;
	CUresult result;

	if (!shim_active() || !shim_hot.lifecycle.driver.CtxFromGreenCtx ||
		shim_hot.lifecycle.driver.CtxFromGreenCtx(&context, hCtx) != CUDA_SUCCESS)
		return FORWARD(cuGreenCtxDestroy, (hCtx));
	shim_enter();
	lifecycle_context_end_begin(&shim_hot.lifecycle, context, &end);
	result = FORWARD(cuGreenCtxDestroy, (hCtx));
	lifecycle_context_left(&shim_hot.lifecycle, &end, result == CUDA_SUCCESS);
	shim_leave();
	return result;
}

/* The primary context ends with its last release; a reset empties it at once, whoever holds it. */
#define PRIMARY_ENDING(symbol, dev, reset)                                                                             \
	do {                                                                                                           \
		CUcontext context_;                                                                                    \
		struct context_end end_;                                                                               \
		CUresult result_;                                                                                      \
		unsigned int flags_;                                                                                   \
		int active_ = 1;                                                                                       \
		if (!shim_active())                                                                                    \
			return FORWARD(symbol, (dev));                                                                 \
		shim_enter();                                                                                          \
		ranked_lock(&shim_hot.lifecycle.contexts.primary_lock);                                                    \
		context_ = contexts_primary_of(&shim_hot.lifecycle.contexts, dev);                                         \
		lifecycle_context_end_begin(&shim_hot.lifecycle, context_, &end_);                                         \
		result_ = FORWARD(symbol, (dev));                                                                      \
		if (result_ == CUDA_SUCCESS && !(reset) &&                                                             \
			shim_hot.lifecycle.driver.DevicePrimaryCtxGetState(dev, &flags_, &active_) != CUDA_SUCCESS)        \
			active_ = 1;                                                                                   \
		lifecycle_context_end(&shim_hot.lifecycle, &end_,                                                          \
			context_ && result_ == CUDA_SUCCESS && ((reset) || !active_));                                 \
		ranked_unlock(&shim_hot.lifecycle.contexts.primary_lock);                                                  \
		shim_leave();                                                                                          \
		return result_;                                                                                        \
	} while (0)

CUresult CUDAAPI cuDevicePrimaryCtxRelease(CUdevice dev)
{
	PRIMARY_ENDING(cuDevicePrimaryCtxRelease, dev, false);
}

CUresult CUDAAPI cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
	PRIMARY_ENDING(cuDevicePrimaryCtxRelease_v2, dev, false);
}

CUresult CUDAAPI cuDevicePrimaryCtxReset(CUdevice dev)
{
	PRIMARY_ENDING(cuDevicePrimaryCtxReset, dev, true);
}

CUresult CUDAAPI cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
	PRIMARY_ENDING(cuDevicePrimaryCtxReset_v2, dev, true);
}

/* ---- peers: the driver's switch does not reach VMM memory, whose rights are per mapping ---- */

static int device_of(CUcontext context)
{
	int device = contexts_device_of(&shim_hot.lifecycle.contexts, context);
	CUcontext popped;
	CUdevice found;

	if (device >= 0 || shim_hot.lifecycle.driver.CtxPushCurrent(context) != CUDA_SUCCESS)
		return device;
	/* Its kernels may use managed memory without its ever having allocated any. */
	if (shim_hot.lifecycle.driver.CtxGetDevice(&found) == CUDA_SUCCESS) {
		device = found;
		contexts_note(&shim_hot.lifecycle.contexts, context, device);
	}
	shim_hot.lifecycle.driver.CtxPopCurrent(&popped);
	return device;
}

/* Kernels of @from_context may use managed memory of device @to from here on, as the driver has allowed for its own. When the
 * rights cannot be had a success would let them fault: then it is as if it had not been asked, and the reason is returned. */
static CUresult grant(CUcontext from_context, CUcontext to_context, int from, int to)
{
	CUresult result = CUDA_ERROR_OUT_OF_MEMORY;

	if (contexts_peer_enable(&shim_hot.lifecycle.contexts, from_context, to_context, from, to)) {
		result = memory_replay_access(&shim_hot.lifecycle, to, -1);
		if (result == CUDA_SUCCESS)
			return result;
		contexts_peer_disable(&shim_hot.lifecycle.contexts, from_context, to_context);
		(void)memory_replay_access(&shim_hot.lifecycle, to, from);
	}
	(void)FORWARD(cuCtxDisablePeerAccess, (to_context));
	return result;
}

CUresult CUDAAPI cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags)
{
	CUresult result = FORWARD(cuCtxEnablePeerAccess, (peerContext, Flags));
	CUcontext current = NULL;

	if (result != CUDA_SUCCESS || !shim_active())
		return result;
	shim_enter();
	if (shim_hot.lifecycle.driver.CtxGetCurrent(&current) == CUDA_SUCCESS && current) {
		int from = device_of(current), to = device_of(peerContext);

		if (from >= 0 && to >= 0 && from != to)
			result = grant(current, peerContext, from, to);
	}
	shim_leave();
	return result;
}

CUresult CUDAAPI cuCtxDisablePeerAccess(CUcontext peerContext)
{
	CUresult result = FORWARD(cuCtxDisablePeerAccess, (peerContext));
	CUcontext current = NULL;

	if (result != CUDA_SUCCESS || !shim_active())
		return result;
	shim_enter();
	if (shim_hot.lifecycle.driver.CtxGetCurrent(&current) == CUDA_SUCCESS && current) {
		int from = device_of(current), to = device_of(peerContext);

		contexts_peer_disable(&shim_hot.lifecycle.contexts, current, peerContext);
		if (from >= 0 && to >= 0 && from != to)
			(void)memory_replay_access(&shim_hot.lifecycle, to, from);
	}
	shim_leave();
	return result;
}
