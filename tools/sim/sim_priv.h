/* tools/sim/sim_priv.h
 * What the files of the simulated driver share. One lock (sim_lock) covers every table; streams are queues with a worker
 * each, and all waiting is on one condition (sim_moved), signalled whenever an operation ends. Simple beats fast here. */
#ifndef SUBLET_TOOLS_SIM_SIM_PRIV_H
#define SUBLET_TOOLS_SIM_SIM_PRIV_H

#include "shim/cuda_abi.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/sim/sim.h"

#define SIM_EXPORT __attribute__((visibility("default")))
#define SIM_PAGE (2ull << 20)
#define SIM_DEVICES_MAX 16
#define SIM_HOST (-1) /* location of host memory in the machine's table */

extern pthread_mutex_t sim_lock;
extern pthread_cond_t sim_moved;

struct sim_config {
	uint64_t capacity, host_capacity;
	int devices, driver_version, queue; /* @queue: operations a stream takes before a call waits, 0: any number */
	bool without_vmm, without_record, without_fd, without_host_numa, without_pools, internal_pointers;
};
extern struct sim_config sim_config;

/* ---- every entry point begins with one of these ---- */
enum sim_call {
#define WRAP(symbol, base, since, stream, need, group, params, args) SIM_##symbol,
#define PASS(symbol, base, since, stream, need, reason, params, args) SIM_##symbol,
#include "shim/entries.def"
	SIM_CALL_COUNT
};
CUresult sim_enter(enum sim_call call, bool before_init);
/* Any call after cuInit. */
#define ENTER(symbol)                                                                                                  \
	do {                                                                                                           \
		CUresult enter_ = sim_enter(SIM_##symbol, false);                                                      \
		if (enter_ != CUDA_SUCCESS)                                                                            \
			return enter_;                                                                                 \
	} while (0)
/* A call that needs a current context, which is put in @ctx; a lost one gives its error. */
#define ENTER_CONTEXT(symbol, ctx)                                                                                     \
	ENTER(symbol);                                                                                                 \
	struct sim_context *ctx = sim_current();                                                                       \
	if (!ctx)                                                                                                      \
		return CUDA_ERROR_INVALID_CONTEXT;                                                                     \
	if (ctx->sticky)                                                                                               \
		return ctx->sticky

/* ---- machine: capacity shared by processes (sim_machine.c) ---- */
bool sim_machine_open(void);
void sim_machine_close(void);
const char *sim_machine_token(void);
/* Take @bytes at @location (device, or SIM_HOST); the id names the physical memory machine-wide, 0 when full. */
uint64_t sim_machine_take(int location, uint64_t bytes);
/* Another reference of this process to physical memory @id, and one less; the bytes go with the last one of all. */
bool sim_machine_ref(uint64_t id, uint64_t *ret_bytes, int *ret_location);
void sim_machine_unref(uint64_t id);
void sim_machine_exported(uint64_t id);
uint64_t sim_machine_used(int location);
uint64_t sim_machine_peak(int location, bool reset); /* the most that was in use since the last reset */
/* For tests: takes the lock of the table for good and answers where the sum is kept; passes over all processes so far. */
uint64_t *sim_machine_lock_used(int location);
uint32_t sim_machine_scans(void);

/* ---- contexts (sim_context.c) ---- */
struct sim_context {
	int device;
	bool primary;
	_Atomic bool alive; /* read without sim_lock by threads that use a context while another one ends it */
	unsigned retained, flags;
	_Atomic CUresult sticky; /* the error of a lost context, else 0; read as `alive` is */
	struct sim_stream *streams;
	struct sim_stream *legacy;
	uint32_t peers; /* devices this context may access */
	uint64_t id;	/* unique in the process, and never used again */
	unsigned api_version, attached;
	size_t limits[CU_LIMIT_MAX];
	CUfunc_cache cache;
	CUsharedconfig bank;
	struct sim_context *next;
};
struct sim_context *sim_current(void);
struct sim_context *sim_context_of(CUcontext handle); /* NULL: no such living context */
void sim_contexts_drop_all(void);
extern struct sim_context *sim_contexts;
CUstreamCaptureMode *sim_thread_mode(void);

/* ---- streams (sim_stream.c) ---- */
struct sim_dep {
	struct sim_stream *stream;
	uint64_t ticket;
};
struct sim_stream {
	struct sim_context *context;
	bool blocking; /* synchronises with the legacy stream */
	bool alive, worker, stop;
	uint64_t owner; /* thread of a per-thread default stream, else 0 */
	uint64_t queued, done;
	uint64_t end_ns; /* virtual clock, when the last operation that ran was over */
	struct sim_op *head, *tail;
	struct sim_capture *capture; /* being captured; @tips: the nodes its next one goes behind */
	struct sim_node **tips;
	size_t tip_count, tip_capacity;
	unsigned users;
	unsigned flags;
	int priority;
	uint64_t id;
	struct sim_attributes *attributes;
	struct sim_stream *next, *all_next;
};
/* The stream a handle means; NULL: invalid. Call with sim_lock held. @per_thread: the twin's meaning of 0. */
struct sim_stream *sim_stream_of(struct sim_context *ctx, CUstream handle, bool per_thread);
/* Queue @run on @stream; a stream being captured refuses it. Takes @arg (malloc'd). Takes sim_lock. */
CUresult sim_submit(struct sim_context *ctx, CUstream handle, bool per_thread, void (*run)(void *), void *arg, bool brief);
/* Wait until what is queued on the streams of @ctx (or of the whole device) has run. Without sim_lock. */
void sim_wait_context(struct sim_context *ctx);
void sim_wait_device(int device);
CUresult sim_wait_stream(struct sim_context *ctx, CUstream handle, bool per_thread);
void sim_streams_drop_all(void);
/* The streams and events of a context that ends, whose work is over; sim_lock held. */
void sim_streams_end(struct sim_context *ctx);
uint64_t sim_live_streams(void), sim_live_events(void);
/* May a call that is unsafe during capture go on? Else CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, and the captures that
 * forbid it are invalid. @always: also in RELAXED mode (context-wide calls). */
CUresult sim_capture_check(bool always);

/* ---- memory (sim_memory.c, sim_vmm.c) ---- */
enum sim_kind { SIM_PLAIN, SIM_HOST_ALLOC, SIM_HOST_REGISTERED, SIM_UVM, SIM_POOL, SIM_IPC, SIM_GLOBAL };
struct sim_block {
	uint64_t address, bytes;
	enum sim_kind kind;
	struct sim_context *context;
	int device;
	uint64_t physical, buffer_id;
	unsigned flags, opened; /* as given at the allocation; opens of an IPC handle */
	bool sync_memops;
	bool read_mostly, preferred_known, prefetch_known; /* advice on managed memory */
	CUmemLocation preferred, prefetched;
	struct sim_chunk *chunk; /* NULL: not in one */
};
struct sim_handle {
	uint64_t physical, bytes;
	int location; /* device or SIM_HOST */
	int fd;
	unsigned refs, maps;
	CUmemAllocationProp prop;
};
struct sim_mapping {
	uint64_t address, bytes;
	struct sim_handle *handle;
	uint64_t buffer_id;
	uint32_t readable, writable; /* devices with access */
};
struct sim_block *sim_block_at(uint64_t address);     /* containing; sim_lock held */
struct sim_mapping *sim_mapping_at(uint64_t address); /* containing; sim_lock held */
CUresult sim_block_allocate(uint64_t bytes, enum sim_kind kind, struct sim_context *context, unsigned flags,
	uint64_t *ret_address); /* takes sim_lock, as the next */
CUresult sim_block_give_back(uint64_t address, unsigned kinds);
/* May kernels of @ctx touch what lies at @address? True also for what the driver does not know. Takes sim_lock. */
bool sim_may_touch(const struct sim_context *ctx, uint64_t address);
/* The program waited for the device: pool memory above the release thresholds goes back. Takes sim_lock. */
void sim_pools_settle(void);
/* A variable of a module is device memory from now on; sim_lock held. */
void sim_memory_global(uint64_t address, uint64_t bytes);
bool sim_reserved(uint64_t address);
/* The reservation that contains @address; is there any in [address, end)? sim_lock held. */
bool sim_reservation_at(uint64_t address, uint64_t *ret_address, uint64_t *ret_bytes);
bool sim_reservation_between(uint64_t address, uint64_t end);
/* Memory that the driver gave, mapped or pinned. Takes sim_lock. */
bool sim_known(uint64_t address);
uint64_t sim_next_buffer_id(void);
/* Is [address, address + bytes) something the device may touch, or ordinary host memory? */
bool sim_range_ok(uint64_t address, uint64_t bytes);
/* Every block of @ctx, of all contexts when NULL; sim_lock held. */
void sim_memory_drop(struct sim_context *ctx);
void sim_vmm_drop_all(void);
uint64_t sim_live_blocks(void);
void sim_vmm_counts(struct sim_counts *counts);

/* Memory of the stream-ordered kind outside any order, for graphs; takes sim_lock (sim_memory.c). */
CUresult sim_pool_take(struct sim_context *ctx, uint64_t bytes, uint64_t *ret_address);
void sim_pool_return(uint64_t address);
/* Is this stream-ordered call one about memory of graphs? Then it is done, with *@ret_result (sim_graph_memory.c). */
bool sim_graph_alloc_async(struct sim_context *ctx, CUstream stream, bool per_thread, uint64_t bytes, CUdeviceptr *ret_ptr,
	CUresult *ret_result);
bool sim_graph_free_async(struct sim_context *ctx, CUstream stream, bool per_thread, CUdeviceptr ptr, CUresult *ret_result);

/* ---- modules (sim_module.c) ---- */
void sim_modules_drop_all(void);
/* ---- graphs (sim_graph.c) ---- */
struct sim_graph *sim_graph_new(void);
void sim_graph_free(struct sim_graph *graph);

#endif
