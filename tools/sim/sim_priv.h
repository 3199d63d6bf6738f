/* tools/sim/sim_priv.h
 * What every file of the simulated driver needs: the entry of a call, the one lock, handles, the calling thread.
 *
 * Locking: one mutex, sim_lock(), guards all state of this process. It is never held while a kernel, a host function, the
 * test hook or a transfer runs, nor while anything waits. The machine file has its own mutex (sim_machine.h), taken inside it.
 * No file calls an exported cu* function: in a process with a preloaded library that name may not be ours. */
#ifndef SUBLET_SIM_PRIV_H
#define SUBLET_SIM_PRIV_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Definitions inherit this from the declarations in cuda.h: entry points are exported, everything else stays hidden. */
#pragma GCC visibility push(default)
#include "shim/cuda_abi.h"
#pragma GCC visibility pop

/* ---- Entries ---- */

enum sim_entry {
#define WRAP(symbol, base, since, stream, need, group, params, args) SIM_ENTRY_##symbol,
#define PASS(symbol, base, since, stream, need, reason, params, args) SIM_ENTRY_##symbol,
#include "shim/entries.def"
	SIM_ENTRY_COUNT
};

const char *sim_entry_name(enum sim_entry entry);

enum sim_enter_flags {
	SIM_ANYTIME = 1u << 0, /* allowed before cuInit, after fork and inside host functions */
};

/* Everything that happens before the body of an entry: hook, counters, log, injection, initialised, forked. */
CUresult sim_enter(enum sim_entry entry, unsigned int flags);

#define SIM_ENTER(symbol)                                                                                              \
	do {                                                                                                           \
		CUresult enter_ = sim_enter(SIM_ENTRY_##symbol, 0);                                                    \
		if (enter_ != CUDA_SUCCESS)                                                                            \
			return enter_;                                                                                 \
	} while (0)

/* The definition of an entry whose work is the expression @call. */
#define SIM_CALL(symbol, params, call)                                                                                 \
	CUresult CUDAAPI symbol params                                                                                 \
	{                                                                                                              \
		SIM_ENTER(symbol);                                                                                     \
		return call;                                                                                           \
	}

/* An entry and its per-thread twin (@suffix _ptsz or _ptds): @call may use `twin`, which says which of the two it is. */
#define SIM_TWIN(symbol, suffix, params, call)                                                                         \
	CUresult CUDAAPI symbol params                                                                                 \
	{                                                                                                              \
		const bool twin __attribute__((unused)) = false;                                                       \
		SIM_ENTER(symbol);                                                                                     \
		return call;                                                                                           \
	}                                                                                                              \
	CUresult CUDAAPI symbol##suffix params                                                                         \
	{                                                                                                              \
		const bool twin __attribute__((unused)) = true;                                                        \
		SIM_ENTER(symbol##suffix);                                                                             \
		return call;                                                                                           \
	}

/* ---- Configuration (sim_config.c) ---- */

enum sim_feature {
	SIM_VMM,
	SIM_POSIX_FD,
	SIM_HOST_NUMA,
	SIM_HOST_VMM,
	SIM_RDMA,
	SIM_POOLS,
	SIM_MANAGED,
	SIM_CTX_RECORD_EVENT,
	SIM_PARAM_INFO,
	SIM_PEER,
	SIM_DMA_BUF,
	SIM_IPC,
	SIM_FABRIC,
	SIM_FEATURE_COUNT
};

struct sim_config {
	int devices;
	uint64_t capacity_bytes;
	uint64_t host_capacity_bytes;
	int driver_version;
	double speed;
	bool verbose;
	uint32_t without; /* bit per feature */
	char machine[4000];
};

/* Reads the environment at the first call. */
const struct sim_config *sim_config(void);
void sim_config_forget(void);
static inline bool sim_has(enum sim_feature feature)
{
	return (sim_config()->without & (1u << feature)) == 0;
}
/* Whether the row of @entry is there on this machine. */
bool sim_entry_present(enum sim_entry entry);
bool sim_parse_size(const char *text, uint64_t *ret_bytes);

/* ---- Injection, counters, log (sim_fail.c) ---- */

/* Count and log one call of @entry; the code it shall fail with, or CUDA_SUCCESS. */
CUresult sim_fail_count(enum sim_entry entry);
uint64_t sim_fail_calls(enum sim_entry entry);
uint64_t sim_fail_total(void);
void sim_fail_load_environment(const char *text);
void sim_fail_reset(void);
void sim_fail_fork_child(void);

/* ---- State of the process (sim_entry.c) ---- */

void sim_lock(void);
void sim_unlock(void);
/* Wait for any completion, or anything else that is announced; the lock is given up meanwhile. */
void sim_wait(void);
void sim_announce(void);

bool sim_initialised(void);
void sim_initialised_set(bool yes);
/* After a fork the child has no driver: every call says so, and nothing of the parent is touched. */
bool sim_forked(void);

/* ---- The calling thread (sim_entry.c) ---- */

#define SIM_CONTEXT_STACK 64

struct sim_context;
struct sim_stream;

struct sim_thread {
	struct sim_context *stack[SIM_CONTEXT_STACK];
	int depth;
	int capture_mode; /* CUstreamCaptureMode, for calls that are unsafe during capture */
	int in_callback;  /* host functions and stream call-backs */
	int in_hook;
	struct sim_stream *own_stream; /* per-thread default stream of the context used last */
	struct sim_context *own_context;
	uint64_t id; /* never used again */
	uint64_t epoch; /* of sim_reset: a thread of an older epoch starts anew */
};

struct sim_thread *sim_thread(void);
/* Called at thread exit, lock held: give the thread's default streams back (sim_stream.c). */
void sim_stream_thread_gone(uint64_t thread_id);

/* ---- Handles (sim_object.c) ---- */

enum sim_type {
	SIM_T_CONTEXT,
	SIM_T_STREAM,
	SIM_T_EVENT,
	SIM_T_MODULE,
	SIM_T_FUNCTION,
	SIM_T_LIBRARY,
	SIM_T_KERNEL,
	SIM_T_GRAPH,
	SIM_T_NODE,
	SIM_T_EXEC,
	SIM_T_POOL,
	SIM_T_GREEN,
	SIM_T_USER_OBJECT,
	SIM_T_ARRAY,
	SIM_T_LINK,
	SIM_T_COUNT
};

/* First member of every struct whose address is a handle: so that a stale or foreign handle is an error and not a crash. */
struct sim_object {
	enum sim_type type;
	struct sim_object *next, *prev; /* all of one type */
	struct sim_object *chain;       /* in the bucket */
};

void sim_object_add(struct sim_object *object, enum sim_type type);
void sim_object_remove(struct sim_object *object);
/* The object if @handle is a live one of @type, else NULL. Lock held. */
void *sim_object_find(const void *handle, enum sim_type type);
struct sim_object *sim_object_first(enum sim_type type);
size_t sim_object_count(enum sim_type type);

#define SIM_EACH(object, type_name) for (struct sim_object *object = sim_object_first(type_name); object; object = object->next)

/* ---- Small helpers ---- */

#define SIM_PAGE ((size_t)2 << 20) /* granularity of device memory */

static inline uint64_t sim_round_up(uint64_t value, uint64_t unit)
{
	return (value + unit - 1) / unit * unit;
}

static inline int sim_min_int(int a, int b)
{
	return a < b ? a : b;
}

#endif
