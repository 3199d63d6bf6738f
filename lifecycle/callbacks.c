/* lifecycle/callbacks.c
 * The run functions are called by the driver's threads: they take no lock. */
#include "lifecycle/callbacks.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "lifecycle/gate.h"

struct callback {
	CUhostFn function;
	CUstreamCallback stream_function; /* instead */
	void *arg;
	bool once;
	struct callback *next; /* of the same hash */
};

void callbacks_init(struct callbacks *callbacks)
{
	memset(callbacks, 0, sizeof(*callbacks));
	ranked_lock_init(&callbacks->lock, RANK_CALLBACKS);
}

static void free_chain(void *value)
{
	struct callback *callback = value;

	while (callback) {
		struct callback *next = callback->next;

		free(callback);
		callback = next;
	}
}

void callbacks_release(struct callbacks *callbacks)
{
	map_clear(&callbacks->kept, free_chain);
	ranked_lock_release(&callbacks->lock);
}

static struct callback *make(CUhostFn function, CUstreamCallback stream_function, void *arg, bool once)
{
	struct callback *callback = malloc(sizeof(*callback));

	if (callback)
		*callback = (struct callback){.function = function, .stream_function = stream_function, .arg = arg, .once = once};
	return callback;
}

struct callback *callback_once(CUhostFn function, void *arg)
{
	return make(function, NULL, arg, true);
}

struct callback *callback_of_stream(CUstreamCallback function, void *arg)
{
	return make(NULL, function, arg, true);
}

struct callback *callback_kept(struct callbacks *callbacks, CUhostFn function, void *arg)
{
	uint64_t hash = (uint64_t)(uintptr_t)function * 0x9e3779b97f4a7c15ull ^ (uint64_t)(uintptr_t)arg;
	struct callback *first, *found;

	ranked_lock(&callbacks->lock);
	first = map_get(&callbacks->kept, hash);
	for (found = first; found && (found->function != function || found->arg != arg);)
		found = found->next;
	if (!found && (found = make(function, NULL, arg, false))) {
		found->next = first;
		if (!map_put(&callbacks->kept, hash, found)) {
			free(found);
			found = NULL;
		}
	}
	ranked_unlock(&callbacks->lock);
	return found;
}

void callback_unused(struct callback *callback)
{
	if (callback && callback->once)
		free(callback);
}

/* Copied, so that nothing is held here while the function runs: it may end the process or its thread. */
static struct callback take(void *arg)
{
	struct callback callback = *(struct callback *)arg;

	if (callback.once)
		free(arg);
	return callback;
}

void CUDA_CB callback_run(void *arg)
{
	struct callback callback = take(arg);
	struct gate_slot *slot = gate_callback_begin();

	callback.function(callback.arg);
	gate_callback_end(slot);
}

void CUDA_CB callback_run_stream(CUstream stream, CUresult status, void *arg)
{
	struct callback callback = take(arg);
	struct gate_slot *slot = gate_callback_begin();

	callback.stream_function(stream, status, callback.arg);
	gate_callback_end(slot);
}

void callback_reveal(CUhostFn *function, void **arg)
{
	if (*function == callback_run) {
		const struct callback *callback = *arg;

		*function = callback->function;
		*arg = callback->arg;
	}
}
