/* lifecycle/contexts.c
 * A process has one or two contexts per device; lists are scanned. */
#include "lifecycle/contexts.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/list.h"

void contexts_init(struct contexts *contexts, const struct driver *driver)
{
	memset(contexts, 0, sizeof(*contexts));
	contexts->driver = driver;
	contexts->next_id = 1;
	ranked_lock_init(&contexts->primary_lock, RANK_PRIMARY);
	ranked_lock_init(&contexts->lock, RANK_CONTEXTS);
}

void contexts_release(struct contexts *contexts, bool call_driver)
{
	for (size_t i = 0; call_driver && i < contexts->count; i++) {
		while (contexts->list[i].spare_count)
			contexts->driver->EventDestroy(contexts->list[i].spare[--contexts->list[i].spare_count]);
	}
	free(contexts->list);
	free(contexts->peers);
	contexts->list = NULL;
	contexts->peers = NULL;
	contexts->count = contexts->capacity = 0;
	contexts->peer_count = contexts->peer_capacity = 0;
	ranked_lock_release(&contexts->lock);
	ranked_lock_release(&contexts->primary_lock);
}

void contexts_forget(struct contexts *contexts)
{
	contexts->count = 0;
	contexts->peer_count = 0;
}

static struct context *find_handle(struct contexts *contexts, CUcontext handle)
{
	for (size_t i = 0; i < contexts->count; i++) {
		if (contexts->list[i].handle == handle)
			return &contexts->list[i];
	}
	return NULL;
}

/* The last takes its place. None is left where the list was forgotten in the middle, by a child that was forked within a
 * driver call made for @context. */
static void take_out(struct contexts *contexts, struct context *context)
{
	if (contexts->count)
		*context = contexts->list[--contexts->count];
}

/* One whose end is under way may be another context by now: handles are used again. */
static struct context *find_living(struct contexts *contexts, CUcontext handle)
{
	for (size_t i = 0; i < contexts->count; i++) {
		if (contexts->list[i].handle == handle && !contexts->list[i].dying)
			return &contexts->list[i];
	}
	return NULL;
}

static struct context *find_id(struct contexts *contexts, uint64_t id)
{
	for (size_t i = 0; i < contexts->count; i++) {
		if (contexts->list[i].id == id)
			return &contexts->list[i];
	}
	return NULL;
}

uint64_t contexts_note(struct contexts *contexts, CUcontext handle, int device)
{
	struct context *context;
	uint64_t id = 0;

	ranked_lock(&contexts->lock);
	context = find_living(contexts, handle);
	if (context) {
		id = context->id;
	} else if (list_room(&contexts->list, contexts->count, &contexts->capacity, sizeof(*contexts->list))) {
		id = contexts->next_id++;
		contexts->list[contexts->count++] = (struct context){.handle = handle, .device = device, .id = id};
	}
	ranked_unlock(&contexts->lock);
	return id;
}

void contexts_primary(struct contexts *contexts, CUcontext handle)
{
	ranked_lock(&contexts->lock);
	for (size_t i = 0; i < contexts->count; i++) {
		if (contexts->list[i].handle == handle)
			contexts->list[i].primary = true;
	}
	ranked_unlock(&contexts->lock);
}

CUcontext contexts_primary_of(struct contexts *contexts, int device)
{
	CUcontext handle = NULL;

	ranked_lock(&contexts->lock);
	for (size_t i = 0; i < contexts->count; i++) {
		if (contexts->list[i].primary && contexts->list[i].device == device)
			handle = contexts->list[i].handle;
	}
	ranked_unlock(&contexts->lock);
	return handle;
}

/* Those that @end covers: known before it began. */
static bool covers(const struct context_end *end, const struct context *context)
{
	return context->handle == end->handle && context->id < end->before_id;
}

/* Does a thread name it to the driver without the lock? */
static bool is_used(struct contexts *contexts, const struct context_end *end)
{
	bool used = false;

	ranked_lock(&contexts->lock);
	for (size_t i = 0; i < contexts->count; i++)
		used = used || (covers(end, &contexts->list[i]) && contexts->list[i].users);
	ranked_unlock(&contexts->lock);
	return used;
}

void contexts_end_begin(struct contexts *contexts, CUcontext handle, struct context_end *end)
{
	ranked_lock(&contexts->lock);
	*end = (struct context_end){.handle = handle, .before_id = contexts->next_id};
	for (size_t i = 0; i < contexts->count; i++)
		contexts->list[i].dying += covers(end, &contexts->list[i]);
	ranked_unlock(&contexts->lock);
	/* Nobody begins to from here on. A free that is at it waits for the work no longer than the driver's own destroy would. */
	while (is_used(contexts, end))
		clock_sleep_ns(100000);
}

/* @kept lives on, so what was noted under its handle while its end was under way is the same context. */
static void forget_twins(struct contexts *contexts, const struct context *kept)
{
	const CUcontext handle = kept->handle;
	const uint64_t id = kept->id;

	for (size_t i = 0; i < contexts->count;) {
		struct context *twin = &contexts->list[i];

		/* One that is being synchronised is left for the next time. */
		if (twin->handle != handle || twin->id <= id || twin->users) {
			i++;
			continue;
		}
		while (twin->spare_count)
			contexts->driver->EventDestroy(twin->spare[--twin->spare_count]);
		take_out(contexts, twin);
	}
}

void contexts_end_undo(struct contexts *contexts, const struct context_end *end)
{
	struct context *kept = NULL;

	ranked_lock(&contexts->lock);
	for (size_t i = 0; i < contexts->count; i++) {
		struct context *context = &contexts->list[i];

		if (covers(end, context) && context->dying && --context->dying == 0 && (!kept || context->id < kept->id))
			kept = context;
	}
	if (kept)
		forget_twins(contexts, kept);
	ranked_unlock(&contexts->lock);
}

/* An event belongs to the context that is current when it is made. */
static CUresult make_event(const struct driver *driver, CUcontext context, CUevent *ret_event)
{
	CUcontext popped;
	CUresult result = driver->CtxPushCurrent(context);

	if (result != CUDA_SUCCESS)
		return result;
	result = driver->EventCreate(ret_event, CU_EVENT_DISABLE_TIMING);
	driver->CtxPopCurrent(&popped);
	return result;
}

/* The context of @handle that @id was given for, which may be known by an earlier one since (forget_twins). NULL: it is gone. */
static struct context *find_by_either_id(struct contexts *contexts, CUcontext handle, uint64_t id)
{
	struct context *found = NULL;

	for (size_t i = 0; i < contexts->count; i++) {
		struct context *context = &contexts->list[i];

		if (context->handle == handle && context->id <= id && (!found || context->id > found->id))
			found = context;
	}
	return found;
}

static struct context *find_marked(struct contexts *contexts, const struct context_mark *mark)
{
	return find_by_either_id(contexts, mark->handle, mark->context_id);
}

bool contexts_has(struct contexts *contexts, CUcontext handle, uint64_t id)
{
	bool has;

	ranked_lock(&contexts->lock);
	has = find_by_either_id(contexts, handle, id) != NULL;
	ranked_unlock(&contexts->lock);
	return has;
}

static void keep_or_destroy(struct contexts *contexts, struct context_mark *mark)
{
	struct context *context = find_marked(contexts, mark);

	if (!mark->event || !context)
		; /* the context has taken its events along */
	else if (context->spare_count < CONTEXT_EVENTS_KEPT)
		context->spare[context->spare_count++] = mark->event;
	else if (!context->dying)
		contexts->driver->EventDestroy(mark->event);
	mark->event = NULL;
}

/* One context that ended unseen. */
static void drop_one(struct contexts *contexts, struct context *context)
{
	contexts_forget_peers(contexts, context->handle, UINT64_MAX);
	take_out(contexts, context);
}

void contexts_drop(struct contexts *contexts, const struct context_end *end)
{
	bool dropped = false;

	ranked_lock(&contexts->lock);
	for (size_t i = 0; i < contexts->count;) {
		if (covers(end, &contexts->list[i])) {
			take_out(contexts, &contexts->list[i]);
			dropped = true;
		} else {
			i++;
		}
	}
	if (dropped)
		contexts_forget_peers(contexts, end->handle, end->before_id);
	ranked_unlock(&contexts->lock);
}

static bool says_gone(CUresult result)
{
	return result == CUDA_ERROR_CONTEXT_IS_DESTROYED || result == CUDA_ERROR_INVALID_CONTEXT;
}

bool context_says_lost(CUresult result)
{
	switch ((int)result) {
	case CUDA_ERROR_DEINITIALIZED:
	case CUDA_ERROR_INVALID_CONTEXT:
	case CUDA_ERROR_CONTEXT_IS_DESTROYED:
	case CUDA_ERROR_ECC_UNCORRECTABLE:
	case CUDA_ERROR_NVLINK_UNCORRECTABLE:
	case CUDA_ERROR_MPS_CLIENT_TERMINATED:
	case CUDA_ERROR_EXTERNAL_DEVICE:
	case CUDA_ERROR_CONTAINED:
	case CUDA_ERROR_TENSOR_MEMORY_LEAK:
	case CUDA_ERROR_MPS_RPC_FAILURE:
		return true;
	default: /* what a kernel did wrong: illegal address to launch failure, in cuda.h's order */
		return result == CUDA_ERROR_ILLEGAL_ADDRESS || result == CUDA_ERROR_LAUNCH_TIMEOUT ||
		       (result >= CUDA_ERROR_ASSERT && result <= CUDA_ERROR_LAUNCH_FAILED &&
			       result != CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED &&
			       result != CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED && result != CUDA_ERROR_TOO_MANY_PEERS);
	}
}

CUresult contexts_lost(struct contexts *contexts, CUcontext handle)
{
	CUresult result = CUDA_SUCCESS;
	struct context *context;

	ranked_lock(&contexts->lock);
	context = find_living(contexts, handle);
	if (context && !context->spare_count) {
		result = make_event(contexts->driver, handle, &context->spare[0]);
		context->spare_count = result == CUDA_SUCCESS;
	}
	if (context && context->spare_count)
		result = contexts->driver->EventQuery(context->spare[context->spare_count - 1]);
	ranked_unlock(&contexts->lock);
	return context_says_lost(result) ? result : CUDA_SUCCESS;
}

static bool says_capturing(CUresult result)
{
	return result >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED && result <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
}

/* The next context behind the id @after, whether it is dying or not. Caller holds the lock. */
static struct context *find_next(struct contexts *contexts, uint64_t after)
{
	struct context *next = NULL;

	for (size_t i = 0; i < contexts->count; i++) {
		struct context *context = &contexts->list[i];

		if (context->id > after && (!next || context->id < next->id))
			next = context;
	}
	return next;
}

/* The context ended unseen and another one has its handle: its events are not ours to destroy. */
static void forget_spares(struct contexts *contexts, const struct context_mark *mark)
{
	struct context *context;

	ranked_lock(&contexts->lock);
	context = find_id(contexts, mark->context_id);
	if (context)
		context->spare_count = 0;
	ranked_unlock(&contexts->lock);
}

/* No lock: recording waits where the queue of a stream is full, and what is in it may wait for another thread of the
 * application. */
static CUresult record(struct contexts *contexts, struct context_mark *mark)
{
	const struct driver *driver = contexts->driver;
	CUresult result;

	if (mark->event) {
		result = driver->CtxRecordEvent(mark->handle, mark->event);
		if (result != CUDA_ERROR_INVALID_HANDLE)
			return result;
		forget_spares(contexts, mark);
		mark->event = NULL;
	}
	result = make_event(driver, mark->handle, &mark->event);
	return result == CUDA_SUCCESS ? driver->CtxRecordEvent(mark->handle, mark->event) : result;
}

void context_mark_give_back(struct contexts *contexts, struct context_mark *mark)
{
	ranked_lock(&contexts->lock);
	if (mark->event)
		keep_or_destroy(contexts, mark);
	ranked_unlock(&contexts->lock);
}

static void end_use(struct contexts *contexts, uint64_t id, bool gone)
{
	struct context *context;

	ranked_lock(&contexts->lock);
	context = find_id(contexts, id);
	if (context && --context->users == 0 && gone)
		drop_one(contexts, context);
	ranked_unlock(&contexts->lock);
}

/* A mark in the context behind @after, in *ret_mark. False: there is none. */
static bool mark_next(struct contexts *contexts, uint64_t after, struct context_mark *ret_mark, CUresult *ret_result)
{
	struct context_mark mark = {0};
	struct context *context;
	bool dying;

	ranked_lock(&contexts->lock);
	context = find_next(contexts, after);
	if (!context) {
		ranked_unlock(&contexts->lock);
		return false;
	}
	mark.handle = context->handle;
	mark.context_id = context->id;
	dying = context->dying;
	context->users += !dying;
	if (!dying && context->spare_count)
		mark.event = context->spare[--context->spare_count];
	ranked_unlock(&contexts->lock);
	*ret_result = CUDA_SUCCESS;
	if (!dying) {
		*ret_result = record(contexts, &mark);
		if (*ret_result != CUDA_SUCCESS)
			context_mark_give_back(contexts, &mark);
		end_use(contexts, mark.context_id, says_gone(*ret_result));
	}
	*ret_mark = mark;
	return true;
}

CUresult contexts_mark(struct contexts *contexts, struct context_mark *marks, size_t capacity, size_t *ret_count)
{
	CUresult result = CUDA_SUCCESS, one;
	struct context_mark mark = {0};
	size_t count = 0;

	if (!contexts->driver->CtxRecordEvent)
		return CUDA_ERROR_NOT_SUPPORTED;
	while (result == CUDA_SUCCESS && mark_next(contexts, mark.context_id, &mark, &one)) {
		if (one == CUDA_SUCCESS && count < capacity) {
			marks[count++] = mark;
		} else if (one == CUDA_SUCCESS) {
			context_mark_give_back(contexts, &mark);
			result = CUDA_ERROR_NOT_SUPPORTED;
		} else if (!says_gone(one)) {
			result = says_capturing(one) ? CUDA_ERROR_NOT_READY : CUDA_ERROR_NOT_SUPPORTED;
		}
	}
	while (result != CUDA_SUCCESS && count)
		context_mark_give_back(contexts, &marks[--count]);
	*ret_count = count;
	return result;
}

CUresult context_mark_query(struct contexts *contexts, const struct context_mark *mark)
{
	CUresult result;
	struct context *context;

	/* Under the lock, so that the context (and with it the event) cannot be dropped in between. A query returns at once. */
	ranked_lock(&contexts->lock);
	context = find_marked(contexts, mark);
	if (!context)
		result = CUDA_SUCCESS;
	else if (context->dying)
		result = CUDA_ERROR_NOT_READY;
	else if (!mark->event)
		result = CUDA_ERROR_NOT_SUPPORTED;
	else
		result = contexts->driver->EventQuery(mark->event);
	ranked_unlock(&contexts->lock);
	return result;
}

CUcontext contexts_borrow(struct contexts *contexts, int device, uint64_t wanted, uint64_t *ret_id)
{
	struct context *best = NULL;
	CUcontext handle = NULL;

	ranked_lock(&contexts->lock);
	for (size_t i = 0; i < contexts->count; i++) {
		struct context *context = &contexts->list[i];

		if (context->device != device || context->dying)
			continue;
		if (!best || context->id == wanted || (context->primary && best->id != wanted))
			best = context;
	}
	if (best) {
		best->users++;
		*ret_id = best->id;
		handle = best->handle;
	}
	ranked_unlock(&contexts->lock);
	return handle;
}

CUresult contexts_mark_query_borrowed(struct contexts *contexts, const struct context_mark *mark)
{
	return mark->event ? contexts->driver->EventQuery(mark->event) : CUDA_ERROR_NOT_SUPPORTED;
}

void contexts_return(struct contexts *contexts, uint64_t id)
{
	end_use(contexts, id, false);
}

CUresult contexts_mark_stream(struct contexts *contexts, uint64_t id, CUstream stream, struct context_mark *ret_mark)
{
	struct context_mark mark = {.context_id = id};
	CUresult result = CUDA_SUCCESS;
	struct context *context;

	*ret_mark = (struct context_mark){0};
	ranked_lock(&contexts->lock);
	context = find_id(contexts, id);
	if (context) {
		mark.handle = context->handle;
		mark.event = context->spare_count ? context->spare[--context->spare_count] : NULL;
	}
	ranked_unlock(&contexts->lock);
	if (!context)
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	/* No lock, as in record(): the loan keeps the context. */
	if (!mark.event)
		result = make_event(contexts->driver, mark.handle, &mark.event);
	if (result == CUDA_SUCCESS)
		result = contexts->driver->EventRecord(mark.event, stream);
	if (result == CUDA_SUCCESS)
		*ret_mark = mark;
	else
		context_mark_give_back(contexts, &mark);
	return result;
}

CUresult contexts_synchronize(struct contexts *contexts, int device, CUresult *ret_own)
{
	/* One context per round, chosen by id under the lock, waited for without it. */
	for (uint64_t after = 0;;) {
		struct context *next = NULL;
		CUcontext handle, popped;
		CUresult result;
		bool dying = false;
		int of;

		ranked_lock(&contexts->lock);
		for (size_t i = 0; i < contexts->count; i++) {
			struct context *context = &contexts->list[i];

			dying = dying || context->dying;
			if (!context->dying && context->id > after && (!next || context->id < next->id))
				next = context;
		}
		if (!next) {
			ranked_unlock(&contexts->lock);
			/* One whose end the driver may yet refuse cannot be waited for now, and its work goes on. */
			return dying ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
		}
		after = next->id;
		handle = next->handle;
		of = next->device;
		next->users++;
		ranked_unlock(&contexts->lock);
		result = contexts->driver->CtxPushCurrent(handle);
		if (result == CUDA_SUCCESS) {
			result = contexts->driver->CtxSynchronize();
			contexts->driver->CtxPopCurrent(&popped);
		}
		end_use(contexts, after, says_gone(result));
		if (says_capturing(result))
			return CUDA_ERROR_NOT_READY;
		if (says_gone(result) || result == CUDA_SUCCESS)
			continue;
		/* Another device's trouble is not the answer to this free; its work may go on all the same. */
		if (of == device && *ret_own == CUDA_SUCCESS)
			*ret_own = result;
		if (!context_says_lost(result))
			return of == device ? result : CUDA_ERROR_NOT_READY;
	}
}

uint64_t contexts_devices(struct contexts *contexts)
{
	uint64_t devices = 0;

	ranked_lock(&contexts->lock);
	for (size_t i = 0; i < contexts->count; i++)
		if (contexts->list[i].device >= 0 && contexts->list[i].device < 64)
			devices |= 1ull << contexts->list[i].device;
	ranked_unlock(&contexts->lock);
	return devices;
}

int contexts_device_of(struct contexts *contexts, CUcontext handle)
{
	struct context *context;
	int device;

	ranked_lock(&contexts->lock);
	context = find_handle(contexts, handle);
	device = context ? context->device : -1;
	ranked_unlock(&contexts->lock);
	return device;
}
