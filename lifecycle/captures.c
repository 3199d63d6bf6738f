/* lifecycle/captures.c
 * A handful of captures at most: a list is enough. */
#include "lifecycle/captures.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/list.h"
#include "base/log.h"

/* Other frees take microseconds; one that waits for room in the queue of a stream is not waited for. */
#define EXCLUDE_WAIT_NS 1000000ull

void captures_init(struct captures *captures, const struct driver *driver)
{
	memset(captures, 0, sizeof(*captures));
	captures->driver = driver;
	ranked_lock_init(&captures->lock, RANK_CAPTURE);
}

void captures_release(struct captures *captures)
{
	free(captures->list);
	captures->list = NULL;
	captures->count = captures->capacity = 0;
	ranked_lock_release(&captures->lock);
}

static void publish(struct captures *captures)
{
	__atomic_store_n(&captures->active, (unsigned)captures->count + captures->overflow, __ATOMIC_RELEASE);
}

void captures_forget(struct captures *captures)
{
	captures->count = 0;
	captures->overflow = false;
	publish(captures);
}

bool captures_any(const struct captures *captures)
{
	return __atomic_load_n(&captures->active, __ATOMIC_ACQUIRE) != 0;
}

/* A capture of a thread's own default stream ends with the thread, unseen. Caller holds the lock. */
static void drop_ended_threads(struct captures *captures)
{
	int process = (int)getpid();

	for (size_t i = 0; i < captures->count;) {
		int thread = captures->list[i].thread;

		if (thread && syscall(SYS_tgkill, process, thread, 0) != 0 && errno == ESRCH)
			captures->list[i] = captures->list[--captures->count];
		else
			i++;
	}
	publish(captures);
}

bool captures_exclude(struct captures *captures)
{
	if (!ranked_lock_within(&captures->lock, EXCLUDE_WAIT_NS))
		return false;
	if (captures->active)
		drop_ended_threads(captures);
	if (captures->active == 0)
		return true;
	ranked_unlock(&captures->lock);
	return false;
}

bool captures_under_way(struct captures *captures, struct capture *ret_one)
{
	struct capture one = {0};
	bool some = captures_any(captures);

	if (some && ranked_lock_within(&captures->lock, EXCLUDE_WAIT_NS)) {
		drop_ended_threads(captures);
		some = captures->active != 0;
		if (captures->count)
			one = captures->list[0];
		ranked_unlock(&captures->lock);
	}
	if (some && ret_one)
		*ret_one = one;
	return some;
}

void captures_admit(struct captures *captures)
{
	ranked_unlock(&captures->lock);
}

static struct capture make_key(CUstream stream, bool per_thread)
{
	struct capture key = {.stream = stream};

	if ((stream == NULL && per_thread) || stream == CU_STREAM_PER_THREAD) {
		key.stream = CU_STREAM_PER_THREAD;
		key.thread = (int)syscall(SYS_gettid);
	}
	return key;
}

/* The context whose end takes the capture with it: the stream's, which need not be the one that is current. */
static CUcontext context_of(const struct captures *captures, CUstream stream)
{
	const struct driver *driver = captures->driver;
	CUcontext context = NULL;

	/* It refuses streams of green contexts. */
	if (!driver->StreamGetCtx || driver->StreamGetCtx(stream, &context) != CUDA_SUCCESS || !context)
		driver->CtxGetCurrent(&context);
	return context;
}

void captures_begin_lock(struct captures *captures, CUstream stream, bool per_thread)
{
	ranked_lock(&captures->lock);
	/* Now: a stream that is being captured is asked nothing. */
	captures->beginning = context_of(captures, make_key(stream, per_thread).stream);
}

static size_t find(const struct captures *captures, const struct capture *key)
{
	size_t i;

	for (i = 0; i < captures->count; i++) {
		if (captures->list[i].stream == key->stream && captures->list[i].thread == key->thread)
			break;
	}
	return i;
}

void captures_begin_unlock(struct captures *captures, CUresult result, CUstream stream, bool per_thread)
{
	struct capture key = make_key(stream, per_thread);
	size_t index = find(captures, &key);

	key.context = captures->beginning;
	if (result == CUDA_SUCCESS)
		key.begun = __atomic_add_fetch(&captures->moment, 1, __ATOMIC_RELAXED);
	if (result == CUDA_SUCCESS && index < captures->count) {
		/* An earlier one of this handle that has ended unseen, or is about to be taken out. */
		captures->list[index] = key;
	} else if (result == CUDA_SUCCESS) {
		if (list_room(&captures->list, captures->count, &captures->capacity, sizeof(*captures->list))) {
			captures->list[captures->count++] = key;
		} else {
			captures->overflow = true;
			log_limited(LOG_CONTEXT, LOG_WARN, WHOSE_NONE,
				"no memory to note a stream capture: new allocations stay native in this process");
		}
	}
	publish(captures);
	ranked_unlock(&captures->lock);
}

static void drop(struct captures *captures, size_t index)
{
	captures->list[index] = captures->list[--captures->count];
}

/* Publish and unlock; true when the last capture has just gone. */
static bool finish(struct captures *captures, bool dropped)
{
	bool last;

	publish(captures);
	last = dropped && captures->active == 0;
	ranked_unlock(&captures->lock);
	return last;
}

uint64_t captures_moment(const struct captures *captures)
{
	return __atomic_load_n(&captures->moment, __ATOMIC_RELAXED);
}

bool captures_end(struct captures *captures, uint64_t moment, CUresult result, CUstream stream, bool per_thread)
{
	struct capture key = make_key(stream, per_thread);
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	bool dropped = false;
	size_t index;

	if (result != CUDA_SUCCESS && captures->driver->StreamIsCapturing(key.stream, &status) == CUDA_SUCCESS &&
		status != CU_STREAM_CAPTURE_STATUS_NONE)
		return false;
	ranked_lock(&captures->lock);
	index = find(captures, &key);
	if (index < captures->count && captures->list[index].begun <= moment) {
		drop(captures, index);
		dropped = true;
	}
	return finish(captures, dropped);
}

bool captures_stream_gone(struct captures *captures, uint64_t moment, CUstream stream)
{
	bool dropped = false;

	if (!captures_any(captures))
		return false;
	ranked_lock(&captures->lock);
	for (size_t i = 0; i < captures->count;) {
		if (captures->list[i].stream == stream && captures->list[i].thread == 0 && captures->list[i].begun <= moment) {
			drop(captures, i);
			dropped = true;
		} else {
			i++;
		}
	}
	return finish(captures, dropped);
}

bool captures_context_gone(struct captures *captures, uint64_t moment, CUcontext context)
{
	bool dropped = false;

	if (!captures_any(captures))
		return false;
	ranked_lock(&captures->lock);
	for (size_t i = 0; i < captures->count;) {
		if (captures->list[i].context == context && captures->list[i].begun <= moment) {
			drop(captures, i);
			dropped = true;
		} else {
			i++;
		}
	}
	return finish(captures, dropped);
}
