/* tools/sim/sim_entry.c
 * What every driver call passes through first, the one lock, and what the driver remembers of each thread.
 * A forked child is told apart by a flag that the fork handler sets: cheaper than asking for the process id on every call. */
#include "tools/sim/sim_priv.h"

#include <stdlib.h>
#include <string.h>

#include "tools/sim/sim.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool initialised;
static bool forked;

static sublet_sim_hook *hook;
static void *hook_data;

static __thread struct sim_thread this_thread;
static pthread_key_t thread_key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static uint64_t next_thread_id = 1;
static uint64_t epoch = 1;

static const char *const names[SIM_ENTRY_COUNT] = {
#define WRAP(symbol, base, since, stream, need, group, params, args) #symbol,
#define PASS(symbol, base, since, stream, need, reason, params, args) #symbol,
#include "shim/entries.def"
};

const char *sim_entry_name(enum sim_entry entry)
{
	return names[entry];
}

static void fork_child(void)
{
	/* Only a process in which the driver was started is unusable after fork; before that a fork changes nothing. */
	if (__atomic_load_n(&initialised, __ATOMIC_RELAXED))
		__atomic_store_n(&forked, true, __ATOMIC_RELAXED);
	pthread_mutex_init(&lock, NULL);
	pthread_cond_init(&changed, NULL);
	sim_fail_fork_child();
}

static void thread_gone(void *data)
{
	struct sim_thread *thread = data;

	if (sim_forked())
		return;
	sim_lock();
	if (thread->epoch == epoch)
		sim_stream_thread_gone(thread->id);
	sim_unlock();
}

static void start_once(void)
{
	pthread_key_create(&thread_key, thread_gone);
	pthread_atfork(NULL, NULL, fork_child);
}

struct sim_thread *sim_thread(void)
{
	struct sim_thread *thread = &this_thread;
	uint64_t now = __atomic_load_n(&epoch, __ATOMIC_RELAXED);

	if (thread->epoch != now) {
		int in_hook = thread->in_hook;

		pthread_once(&once, start_once);
		memset(thread, 0, sizeof(*thread));
		thread->in_hook = in_hook;
		thread->capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
		thread->id = __atomic_fetch_add(&next_thread_id, 1, __ATOMIC_RELAXED);
		thread->epoch = now;
		pthread_setspecific(thread_key, thread);
	}
	return thread;
}

void sim_lock(void)
{
	pthread_mutex_lock(&lock);
}

void sim_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

void sim_wait(void)
{
	pthread_cond_wait(&changed, &lock);
}

void sim_announce(void)
{
	pthread_cond_broadcast(&changed);
}

bool sim_initialised(void)
{
	return __atomic_load_n(&initialised, __ATOMIC_ACQUIRE);
}

void sim_initialised_set(bool yes)
{
	__atomic_store_n(&initialised, yes, __ATOMIC_RELEASE);
	if (!yes)
		__atomic_add_fetch(&epoch, 1, __ATOMIC_RELAXED);
}

bool sim_forked(void)
{
	return __atomic_load_n(&forked, __ATOMIC_RELAXED);
}

CUresult sim_enter(enum sim_entry entry, unsigned int flags)
{
	struct sim_thread *thread = sim_thread();
	sublet_sim_hook *call = __atomic_load_n(&hook, __ATOMIC_ACQUIRE);
	CUresult result;

	sim_config();
	if (call && !thread->in_hook) {
		thread->in_hook++;
		call(sim_entry_name(entry), hook_data);
		thread->in_hook--;
	}
	result = sim_fail_count(entry);
	if (result != CUDA_SUCCESS)
		return result;
	if (flags & SIM_ANYTIME)
		return CUDA_SUCCESS;
	if (sim_forked() || !sim_initialised())
		return CUDA_ERROR_NOT_INITIALIZED;
	if (thread->in_callback)
		return CUDA_ERROR_NOT_PERMITTED;
	return sim_entry_present(entry) ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

void sublet_sim_set_hook(sublet_sim_hook *new_hook, void *data)
{
	__atomic_store_n(&hook, NULL, __ATOMIC_RELEASE);
	hook_data = data;
	__atomic_store_n(&hook, new_hook, __ATOMIC_RELEASE);
}
