/* lifecycle/drain.c
 * Takes no lock of its own; see contexts.h and captures.h for theirs. */
#include "lifecycle/drain.h"

#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "lifecycle/lifecycle.h"

CUresult drain_mark(struct lifecycle *lc, struct context_mark *marks, size_t capacity, uint32_t *ret_count)
{
	size_t count = 0;
	CUresult result;

	if (!captures_exclude(&lc->captures))
		return CUDA_ERROR_NOT_READY;
	result = contexts_mark(&lc->contexts, marks, capacity, &count);
	captures_admit(&lc->captures);
	*ret_count = (uint32_t)count;
	return result;
}

CUresult drain_passed(struct lifecycle *lc, struct context_mark *marks, uint32_t *count)
{
	while (*count) {
		struct context_mark *last = &marks[*count - 1];
		CUresult result = context_mark_query(&lc->contexts, last);

		if (result == CUDA_ERROR_NOT_READY)
			return result;
		context_mark_give_back(&lc->contexts, last);
		if (*count) /* else a child forked inside one of these calls, which has forgotten the marks */
			--*count;
		if (result != CUDA_SUCCESS && !context_says_lost(result)) {
			drain_give_up(lc, marks, count);
			return CUDA_ERROR_NOT_SUPPORTED;
		}
	}
	return CUDA_SUCCESS;
}

void drain_give_up(struct lifecycle *lc, struct context_mark *marks, uint32_t *count)
{
	while (*count)
		context_mark_give_back(&lc->contexts, &marks[--*count]);
}

bool drain_pause(uint64_t *pause_ns, uint64_t until_ns)
{
	if (clock_now_ns() >= until_ns)
		return false;
	*pause_ns = *pause_ns ? *pause_ns * 2 : 20000;
	if (*pause_ns > CLOCK_NS_PER_MS)
		*pause_ns = CLOCK_NS_PER_MS;
	clock_sleep_ns(*pause_ns);
	return true;
}

/* ---- the thread ---- */

static unsigned load(const unsigned *word)
{
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static void do_job(struct lifecycle *lc)
{
	struct drainer *drainer = &lc->drainer;
	CUresult own;

	drain_give_up(lc, drainer->marks, &drainer->count); /* of an earlier job that was over too late */
	drainer->result = drain_mark(lc, drainer->marks, DRAIN_MARKS_MAX, &drainer->count);
	/* A capture that begins after the deadline of this job, with the gate open, may be invalidated (as with frees, reclaim.c). */
	if (drainer->result == CUDA_ERROR_NOT_SUPPORTED)
		drainer->result = contexts_synchronize(&lc->contexts, -1, &own);
}

static void *drainer_main(void *arg)
{
	struct lifecycle *lc = arg;
	struct drainer *drainer = &lc->drainer;
	struct driver_scope scope;

	pthread_setname_np(pthread_self(), "sublet-drain");
	if (lc->config.thread_begins)
		lc->config.thread_begins();
	for (;;) {
		unsigned asked;

		while ((asked = load(&drainer->asked)) == drainer->done && !load(&drainer->stop))
			word_wait(&drainer->asked, asked, WAIT_FOR_GOOD);
		__atomic_store_n(&drainer->calling, 1, __ATOMIC_SEQ_CST);
		if (__atomic_load_n(&drainer->stop, __ATOMIC_SEQ_CST))
			break;
		driver_enter(&lc->driver, &scope);
		do_job(lc);
		driver_leave(&lc->driver, &scope);
		__atomic_store_n(&drainer->calling, 0, __ATOMIC_RELEASE);
		__atomic_store_n(&drainer->done, asked, __ATOMIC_RELEASE);
		word_wake(&drainer->done);
	}
	__atomic_store_n(&drainer->calling, 0, __ATOMIC_RELEASE);
	return NULL;
}

/* Wait until the thread has done all it was asked for. */
static bool wait_done(struct drainer *drainer, uint64_t until_ns)
{
	unsigned done;

	while ((done = load(&drainer->done)) != load(&drainer->asked)) {
		uint64_t now = clock_now_ns();

		if (now >= until_ns)
			return false;
		word_wait(&drainer->done, done, until_ns - now);
	}
	return true;
}

static bool make_marks(struct lifecycle *lc, uint64_t until_ns)
{
	struct drainer *drainer = &lc->drainer;

	if (!wait_done(drainer, until_ns))
		return false; /* one of an earlier try, which says nothing about now */
	if (!drainer->started) {
		drainer->started = thread_start(&drainer->thread, drainer_main, lc) == 0;
		if (!drainer->started) {
			log_limited(LOG_GATE, LOG_WARN, WHOSE_NONE, "no thread for the drain: a hold may last beyond its deadline");
			do_job(lc);
			return true;
		}
	}
	__atomic_fetch_add(&drainer->asked, 1, __ATOMIC_ACQ_REL);
	word_wake(&drainer->asked);
	return wait_done(drainer, until_ns);
}

CUresult drainer_drain(struct lifecycle *lc, uint64_t until_ns, CUcontext *ret_context)
{
	struct drainer *drainer = &lc->drainer;
	uint64_t pause_ns = 0;
	CUresult result;

	*ret_context = NULL;
	do {
		if (!make_marks(lc, until_ns))
			return CUDA_ERROR_TIMEOUT;
		result = drainer->result;
		if (result == CUDA_ERROR_NOT_READY && captures_under_way(&lc->captures, NULL))
			return result;
		while (result == CUDA_SUCCESS) {
			result = drain_passed(lc, drainer->marks, &drainer->count);
			if (result == CUDA_SUCCESS)
				return result;
			if (result == CUDA_ERROR_NOT_READY && drain_pause(&pause_ns, until_ns)) {
				result = CUDA_SUCCESS;
			} else if (result == CUDA_ERROR_NOT_READY) {
				if (drainer->count)
					*ret_context = drainer->marks[drainer->count - 1].handle;
				drain_give_up(lc, drainer->marks, &drainer->count);
				return CUDA_ERROR_TIMEOUT;
			}
		}
		/* an error that tells nothing, or a free that is taking its marks: again, but not for ever */
	} while (drain_pause(&pause_ns, until_ns));
	return result == CUDA_ERROR_NOT_READY ? CUDA_ERROR_TIMEOUT : result;
}

bool drainer_stop(struct drainer *drainer, uint64_t wait_ns)
{
	uint64_t until_ns = clock_now_ns() + wait_ns, pause_ns = 0;

	__atomic_store_n(&drainer->stop, 1, __ATOMIC_SEQ_CST);
	__atomic_fetch_add(&drainer->asked, 1, __ATOMIC_SEQ_CST); /* or it might fall asleep right after the wake */
	word_wake(&drainer->asked);
	while (__atomic_load_n(&drainer->calling, __ATOMIC_SEQ_CST)) {
		if (!drain_pause(&pause_ns, until_ns))
			return false;
	}
	return true;
}

void drainer_join(struct lifecycle *lc)
{
	drainer_stop(&lc->drainer, 0);
	if (lc->drainer.started)
		pthread_join(lc->drainer.thread, NULL);
	lc->drainer.started = false;
	drain_give_up(lc, lc->drainer.marks, &lc->drainer.count);
}

void drainer_forget(struct drainer *drainer)
{
	memset(drainer, 0, sizeof(*drainer));
}
