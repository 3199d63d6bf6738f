/* lifecycle/callers/python.c
 * The interpreters that python_prepare found, and the way from a thread to its frames. The list of interpreters only
 * grows: an allocation may be reading a row while its library is unloaded, which it notices by what it reads. */
#include "lifecycle/callers/python.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lifecycle/callers/foreign.h"
#include "lifecycle/callers/python_priv.h"

enum { HINTS = 64, UNSAID = 1 };

static struct python_runtime runtimes[PYTHON_RUNTIMES_MAX];
static uint32_t runtime_count; /* atomic: rows below it are written */
static uint32_t preparing;     /* atomic; pid of who does it, 0 */
static uint32_t unknown;       /* atomic; version of an interpreter that cannot be read, or UNSAID */
static struct python_hint hints[HINTS];

/* Of the search under way; python_prepare's. */
static uint32_t seen, seen_unknown;

static void add_runtime(uint64_t address, uint32_t version, const struct python_layout *layout)
{
	const uint32_t count = __atomic_load_n(&runtime_count, __ATOMIC_RELAXED);

	if (!layout) {
		seen_unknown = version ? version : UNSAID;
		return;
	}
	for (uint32_t i = 0; i < count; i++) {
		if (runtimes[i].address == address && memcmp(&runtimes[i].layout, layout, sizeof(*layout)) == 0) {
			seen |= 1u << i;
			__atomic_store_n(&runtimes[i].gone, 0, __ATOMIC_RELEASE);
			return;
		}
	}
	if (count == PYTHON_RUNTIMES_MAX)
		return;
	memset(&runtimes[count], 0, sizeof(runtimes[count]));
	runtimes[count].address = address;
	memcpy(&runtimes[count].layout, layout, sizeof(*layout));
	seen |= 1u << count;
	__atomic_store_n(&runtime_count, count + 1, __ATOMIC_RELEASE);
}

/* False while another thread does it. One that was doing it in the parent of a forked child does it no more. */
static bool begin_preparing(void)
{
	const uint32_t self = (uint32_t)getpid();
	uint32_t who = __atomic_load_n(&preparing, __ATOMIC_RELAXED);

	return who != self &&
	       __atomic_compare_exchange_n(&preparing, &who, self, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

void python_prepare(void)
{
	const int error_before = errno;

	if (!begin_preparing())
		return;
	seen = seen_unknown = 0;
	if (python_find(add_runtime)) {
		__atomic_store_n(&unknown, seen_unknown, __ATOMIC_RELAXED);
		for (uint32_t i = 0; i < runtime_count; i++) {
			if (!(seen & 1u << i))
				__atomic_store_n(&runtimes[i].gone, 1, __ATOMIC_RELEASE);
		}
	}
	__atomic_store_n(&preparing, 0, __ATOMIC_RELEASE);
	errno = error_before;
}

/* What is remembered of the calling thread, NULL when somebody else has the place in this moment: a thread whose number
 * falls on the same one, or this thread, interrupted by a signal. In a forked child a place may stay taken, and is done
 * without. */
static struct python_hint *take_hint(void)
{
	const uint64_t thread = (uint64_t)pthread_self();
	struct python_hint *hint = &hints[(thread * 0x9e3779b97f4a7c15ull >> 32) % HINTS];

	if (__atomic_exchange_n(&hint->taken, 1, __ATOMIC_ACQUIRE))
		return NULL;
	if (hint->thread != thread) {
		hint->thread = thread;
		hint->runtime = NULL;
		hint->state = 0;
		hint->frame_count = hint->state_count = 0;
	}
	return hint;
}

/* The runtime in which the calling thread runs Python. Of several the one whose evaluation began last, if that can be
 * told. */
static struct python_runtime *find_thread(struct python_hint *hint, struct python_thread *ret_thread)
{
	const uint32_t count = __atomic_load_n(&runtime_count, __ATOMIC_ACQUIRE);
	struct python_runtime *best = NULL;
	struct python_thread thread;
	uint64_t anchor, best_anchor;

	for (uint32_t i = 0; i < count; i++) {
		if (__atomic_load_n(&runtimes[i].gone, __ATOMIC_ACQUIRE) ||
			!python_thread_find(&runtimes[i], hint, &thread))
			continue;
		if (best) {
			best_anchor = python_anchor(best, ret_thread);
			anchor = python_anchor(&runtimes[i], &thread);
			if (!anchor || !best_anchor)
				return NULL;
			if (anchor > best_anchor)
				continue;
		}
		best = &runtimes[i];
		*ret_thread = thread;
	}
	return best;
}

size_t python_frames(const char **ret_frames, size_t room)
{
	const int error_before = errno;
	struct python_thread thread;
	struct python_runtime *runtime;
	struct python_hint *hint;
	uint64_t codes[PYTHON_FRAMES_MAX];
	size_t count = 0, told = 0;

	if (!__atomic_load_n(&runtime_count, __ATOMIC_ACQUIRE))
		return 0;
	if (room > PYTHON_FRAMES_MAX)
		room = PYTHON_FRAMES_MAX;
	hint = take_hint();
	runtime = find_thread(hint, &thread);
	if (runtime && python_codes(runtime, thread.frame, hint, codes, room, &count) &&
		!python_texts(runtime, codes, count, ret_frames, &told))
		told = 0;
	if (hint)
		__atomic_store_n(&hint->taken, 0, __ATOMIC_RELEASE);
	errno = error_before;
	return told;
}

void python_describe(char *ret_text, size_t room)
{
	const uint32_t count = __atomic_load_n(&runtime_count, __ATOMIC_ACQUIRE);
	size_t length = 0;
	uint32_t version;

	if (!room)
		return;
	ret_text[0] = '\0';
	if (!foreign_works()) {
		snprintf(ret_text, room, "memory cannot be read");
		return;
	}
	for (uint32_t i = 0; i < count && length < room; i++) {
		if (!__atomic_load_n(&runtimes[i].gone, __ATOMIC_ACQUIRE))
			length += (size_t)snprintf(ret_text + length, room - length, "%s3.%u%s", length ? ", " : "",
				runtimes[i].layout.minor, runtimes[i].layout.free_threaded ? "t" : "");
	}
	if (length)
		return;
	version = __atomic_load_n(&unknown, __ATOMIC_RELAXED);
	if (version && version != UNSAID)
		snprintf(ret_text, room, "unknown version %u.%u", version >> 24, version >> 16 & 0xff);
	else
		snprintf(ret_text, room, version ? "unknown version" : "no interpreter");
}
