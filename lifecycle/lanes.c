/* lifecycle/lanes.c
 * The stream of a context that has ended went with it: then a new one is made in the next. */
#include "lifecycle/lanes.h"

#include "lifecycle/lifecycle.h"

enum sublet_err lanes_open(struct lanes *lanes, int device, struct errinfo *reterr)
{
	struct lifecycle *lc = lanes->lc;
	struct copy_lane *lane = &lc->mover.lanes[device];
	uint64_t id;
	CUcontext context, popped;
	CUresult result;

	if (lanes->borrowed[device])
		return SUBLET_OK;
	context = contexts_borrow(&lc->contexts, device, lane->context_id, &id);
	if (!context)
		return errinfo_set(reterr, SUBLET_ERR_DRIVER, 0, "no context on device %d to copy in", device);
	lanes->borrowed[device] = true;
	if (lane->context_id == id)
		return SUBLET_OK;
	/* The stream of a context that has ended went with it. */
	*lane = (struct copy_lane){.context = context};
	result = lc->driver.CtxPushCurrent(context);
	if (result == CUDA_SUCCESS) {
		result = lc->driver.StreamCreate(&lane->stream, CU_STREAM_NON_BLOCKING);
		lc->driver.CtxPopCurrent(&popped);
	}
	if (result == CUDA_SUCCESS)
		lane->context_id = id;
	contexts_return(&lc->contexts, id);
	lanes->borrowed[device] = false;
	if (result != CUDA_SUCCESS)
		return errinfo_set(reterr, SUBLET_ERR_DRIVER, (int)result, "no stream on device %d to copy on (driver error %d)", device,
			(int)result);
	return lanes_open(lanes, device, reterr);
}

void lanes_close(struct lanes *lanes)
{
	for (int d = 0; d < STATS_DEVICES; d++) {
		if (lanes->borrowed[d])
			contexts_return(&lanes->lc->contexts, lanes->lc->mover.lanes[d].context_id);
	}
}

void lanes_release(struct lifecycle *lc)
{
	for (int d = 0; d < STATS_DEVICES; d++) {
		struct copy_lane *lane = &lc->mover.lanes[d];
		CUcontext context, popped;
		uint64_t id;

		if (!lane->context_id)
			continue;
		context = contexts_borrow(&lc->contexts, d, lane->context_id, &id);
		if (context && id == lane->context_id && lc->driver.CtxPushCurrent(context) == CUDA_SUCCESS) {
			lc->driver.StreamDestroy(lane->stream);
			lc->driver.CtxPopCurrent(&popped);
		}
		if (context)
			contexts_return(&lc->contexts, id);
		*lane = (struct copy_lane){0};
	}
}

bool lanes_enter(struct lifecycle *lc, const struct copy_lane *lane)
{
	return lc->driver.CtxPushCurrent(lane->context) == CUDA_SUCCESS;
}

void lanes_leave(struct lifecycle *lc)
{
	CUcontext popped;

	lc->driver.CtxPopCurrent(&popped);
}
