/* tools/sim/sim_exec.h
 * What the files that execute share: one operation (`struct sim_work`), which a stream queues, a capture notes and a graph
 * keeps, so that all three run the same code; the handles of modules and kernels; captures; graphs; the clock. As in
 * sim_priv.h one lock (sim_lock) covers every table. Handles are kept until reset, so that a stale one is refused and not
 * followed. */
#ifndef SUBLET_TOOLS_SIM_SIM_EXEC_H
#define SUBLET_TOOLS_SIM_SIM_EXEC_H

#include "tools/sim/sim_priv.h"

/* ---- work ----
 * @arg is plain bytes: copies of it are made with memcpy and then told to `retain`, where the bytes refer to something
 * that must live as long (a child graph). */
struct sim_cost;
struct sim_work_kind {
	CUgraphNodeType type;
	void (*run)(void *arg);			/* without sim_lock; under the guard of sim_guard_run */
	bool (*retain)(void *arg);		/* NULL: refers to nothing counted; false: memory ran out */
	/* On the virtual clock, instead of `run`: when the work is over. NULL: by `cost`. */
	uint64_t (*run_timed)(void *arg, struct sim_context *ctx, uint64_t ready_ns);
	void (*release)(void *arg);		/* before the bytes of a copy are freed; NULL as above */
	/* After `run`, with @ret zeroed but for its device; NULL: takes no time on the virtual clock. */
	void (*cost)(const void *arg, struct sim_cost *ret);
	bool always; /* runs in a lost context too */
};
struct sim_work {
	const struct sim_work_kind *kind;
	void *arg;
	size_t bytes;
	bool brief; /* may run on the submitting thread when its stream is idle */
};
/* A copy that owns its bytes; false: memory ran out. */
bool sim_work_copy(struct sim_work *ret, const struct sim_work *work);
void sim_work_release(struct sim_work *work);

struct sim_op {
	struct sim_work work;
	struct sim_dep *deps;
	size_t dep_count;
	uint64_t ticket, submitted_ns;
	struct sim_op *next;
};

/* ---- streams (sim_stream.c) ---- */
/* Queue @work on @stream, or note it in the stream's capture. Borrows @work and its bytes. Takes sim_lock.
 * @node: the node it became in a capture, may be NULL. */
CUresult sim_submit_work(struct sim_context *ctx, CUstream handle, bool per_thread, const struct sim_work *work);
/* The same with sim_lock held (given up while a brief operation runs) and a stream that is not capturing; waits in the
 * queue for @deps too. */
CUresult sim_enqueue(struct sim_stream *stream, const struct sim_work *work, const struct sim_dep *deps, size_t dep_count);
/* sim_lock held: may @stream be used now? SUCCESS, or the sticky error, or IMPLICIT where it is the legacy stream and a
 * stream it synchronises with is captured, whose capture is then invalid. */
CUresult sim_stream_usable(struct sim_stream *stream);
/* sim_lock held: the same for a call that cannot be captured: UNSUPPORTED when @stream is, whose capture is then invalid;
 * INVALID_HANDLE when it is NULL. */
CUresult sim_stream_uncaptured(struct sim_stream *stream);
/* An operation that does nothing, behind @deps. */
CUresult sim_enqueue_marker(struct sim_stream *stream, const struct sim_dep *deps, size_t dep_count);
bool sim_deps_passed(const struct sim_dep *deps, size_t count);
void sim_deps_wait(const struct sim_dep *deps, size_t count); /* sim_lock held, given up */
/* sim_lock held, given up: until @stream takes one operation more (SUBLET_SIM_QUEUE). */
void sim_stream_wait_for_room(struct sim_stream *stream);
bool sim_stream_idle(const struct sim_stream *stream);
/* A number of this thread that no other thread of the process ever has. */
uint64_t sim_thread_id(void);
extern struct sim_stream *sim_all_streams;
struct sim_stream *sim_stream_new(struct sim_context *ctx, bool blocking); /* sim_lock held */

/* Launch attributes that streams and kernel nodes keep. */
struct sim_attributes {
	uint32_t set; /* bit per CUlaunchAttributeID */
	CUlaunchAttributeValue value[CU_LAUNCH_ATTRIBUTE_MAX];
};
CUresult sim_attributes_set(struct sim_attributes **list, CUlaunchAttributeID id, const CUlaunchAttributeValue *value);
void sim_attributes_get(const struct sim_attributes *list, CUlaunchAttributeID id, CUlaunchAttributeValue *ret);
CUresult sim_attributes_copy(struct sim_attributes **to, const struct sim_attributes *from);
/* A host function as work. Borrows @call. */
struct sim_work sim_host_work(CUDA_HOST_NODE_PARAMS *call);
/* One body, two names: the stream form and its per-thread twin. `twin` in @body says which. */
#define SIM_BOTH(symbol, params, body)                                                                                 \
	CUresult CUDAAPI symbol params                                                                                 \
	{                                                                                                              \
		const bool twin = false;                                                                               \
		ENTER_CONTEXT(symbol, ctx);                                                                            \
		return body;                                                                                           \
	}                                                                                                              \
	CUresult CUDAAPI symbol##_ptsz params                                                                          \
	{                                                                                                              \
		const bool twin = true;                                                                                \
		ENTER_CONTEXT(symbol##_ptsz, ctx);                                                                     \
		return body;                                                                                           \
	}

/* ---- faults (sim_guard.c) ----
 * Run @work as the device would: a touch of memory that is not there loses @ctx and not the process. */
void sim_guard_install(void); /* before each operation that may fault; takes no other lock */
void sim_guard_run(const struct sim_work *work, struct sim_context *ctx);

/* ---- events (sim_event.c) ---- */
struct sim_event {
	struct sim_context *context;
	unsigned flags;
	bool alive, recorded;
	struct sim_dep *deps;
	size_t dep_count, dep_capacity;
	uint64_t generation; /* rises with each record */
	uint64_t at_ns;	     /* when the work before the latest record was done, 0: not yet known */
	struct sim_capture *capture; /* referenced; NULL: last recorded outside a capture */
	struct sim_node **tips;
	size_t tip_count;
	struct sim_event *next;
};
struct sim_event *sim_event_of(CUevent handle); /* sim_lock held; NULL: no such living event */
CUresult sim_event_record_on(struct sim_event *event, struct sim_stream *stream); /* sim_lock held, may be given up */
/* Work on the event that *@event names: record it, or wait for it, from inside a graph. Borrows @event. */
struct sim_work sim_event_record_work(struct sim_event **event);
struct sim_work sim_event_wait_work(struct sim_event **event);
void sim_events_drop_all(void); /* sim_lock held, as the next */
void sim_events_end(struct sim_context *ctx);

/* ---- captures (sim_capture.c) ---- */
struct sim_capture {
	struct sim_graph *graph;
	bool callers_graph; /* begun with cuStreamBeginCaptureToGraph: the graph outlives a failed capture */
	bool invalid, ended;
	uint64_t id, owner; /* @owner: thread that began it */
	CUstreamCaptureMode mode;
	struct sim_stream *origin;
	unsigned references;
};
extern unsigned sim_captures_active; /* sim_lock; 0: nothing captures, which makes every check short */
void sim_capture_unref(struct sim_capture *capture);
/* sim_lock held. The node that @work becomes in the capture of @stream, behind what the stream did before. */
CUresult sim_capture_note(struct sim_stream *stream, const struct sim_work *work, struct sim_node **ret_node);
/* sim_lock held: @stream goes behind @tips, joining @capture if it was in none. */
CUresult sim_capture_join(struct sim_stream *stream, struct sim_capture *capture, struct sim_node *const *tips, size_t count);
void sim_capture_forget(const struct sim_node *node); /* sim_lock held: @node is about to go */
/* sim_lock held: the capture @stream is in ends, as its stream is going away. */
void sim_capture_abandon(struct sim_stream *stream);

/* ---- modules and kernels (sim_module.c) ---- */
#define SIM_PARAM_BYTES_MAX 4096
struct sim_function { /* CUfunction, and CUkernel when @library is set */
	uint32_t magic;
	bool alive;
	const struct sim_kernel_info *info;
	struct sim_module *module;
	struct sim_library *library;
	struct sim_function *kernel; /* of a CUfunction that came from a CUkernel */
	size_t offset[SIM_PARAMS_MAX], param_bytes;
	int dynamic_shared_bytes, carveout, cluster[3], non_portable_cluster, cluster_policy;
	struct sim_old_launch *old; /* state of the calls before cuLaunchKernel */
	struct sim_function *next;
};
struct sim_function *sim_function_of(const void *handle); /* CUfunction or CUkernel; NULL: neither, or unloaded */
struct sim_function *sim_function_in(struct sim_function *kernel, struct sim_context *ctx); /* sim_lock held */
CUcontext sim_function_context(const struct sim_function *function); /* NULL: of a CUkernel */
void sim_modules_end(struct sim_context *ctx); /* sim_lock held */
extern const struct sim_kernel_info sim_builtin_kernels[];
extern const size_t sim_builtin_kernel_count;

/* ---- launches and copies as work ---- */
/* Fills @buffer (SIM_LAUNCH_BYTES_MAX bytes) and @work with a launch of @function. */
#define SIM_LAUNCH_BYTES_MAX (SIM_PARAM_BYTES_MAX + 128)
CUresult sim_launch_work(struct sim_context *ctx, const void *function, const struct sim_launch *shape, void **params,
	void **extra, void *buffer, struct sim_work *work);
/* What a launch was made of, for node queries; @ret_params: at least SIM_PARAMS_MAX pointers into the work's bytes. */
void sim_launch_describe(const struct sim_work *work, CUDA_KERNEL_NODE_PARAMS_v2 *ret, void **ret_params);

int sim_blocks_per_processor(const struct sim_function *function, int threads, size_t shared_bytes);
/* The same for stream memory operations; the answer borrows the work's bytes. */
#define SIM_BATCH_BYTES_MAX (256 * sizeof(CUstreamBatchMemOpParams) + 32)
CUresult sim_batch_work(struct sim_context *ctx, unsigned count, const CUstreamBatchMemOpParams *list, unsigned flags,
	void *buffer, struct sim_work *work);
void sim_batch_describe(const struct sim_work *work, CUDA_BATCH_MEM_OP_NODE_PARAMS *ret);
extern bool sim_stopping; /* a reset is under way: nothing may wait for the program any more */

/* ---- graphs (sim_graph.c) ---- */
struct sim_node {
	uint32_t magic;
	bool alive, enabled;
	struct sim_graph *graph;
	struct sim_work work;
	struct sim_edge *edges; /* towards what must come before */
	size_t edge_count, edge_capacity;
	const struct sim_node *origin; /* in a clone or an executable: the node it was made from */
	size_t position; /* in the order of running; valid while the graph is not changed */
	void *params[SIM_PARAMS_MAX]; /* answers of cuGraphKernelNodeGetParams */
	struct sim_attributes *attributes;
	struct sim_node *next_dead;
};
struct sim_edge {
	struct sim_node *from;
	CUgraphEdgeData data;
};
/* sim_lock held. A new node behind @from; NULL: memory ran out. Copies @work. */
struct sim_node *sim_node_add(struct sim_graph *graph, const struct sim_work *work, struct sim_node *const *from,
	const CUgraphEdgeData *data, size_t count);
bool sim_node_reaches(const struct sim_node *from, const struct sim_node *to);
struct sim_node *sim_node_of(CUgraphNode handle);
struct sim_graph *sim_graph_of(CUgraph handle);
void sim_graphs_drop_all(void); /* sim_lock held, as the next */
void sim_execs_drop_all(void);

/* ---- clock (sim_clock.c) ----
 * Where nothing is modelled the virtual clock is the monotonic one and work takes no time of its own. */
enum sim_engine { SIM_TO_DEVICE, SIM_TO_HOST, SIM_DEVICE_MEMORY, SIM_ENGINE_COUNT };
struct sim_cost {
	int device;
	uint64_t fixed_ns;
	uint64_t bytes[SIM_ENGINE_COUNT]; /* the engines work at the same time */
};
extern bool sim_clock_on;
void sim_clock_open(void); /* reads SUBLET_SIM_SPEED; sim_lock held, as the next */
void sim_clock_close(void);
uint64_t sim_clock_now(void); /* nanoseconds, as all times inside the driver: not scaled by `slow` */
double sim_clock_scaled(double ns); /* as the program is told */
/* sim_guard_run, and what it takes: the time at which the work is over. */
uint64_t sim_run_timed(const struct sim_work *work, struct sim_context *ctx, uint64_t ready_ns);
/* The same without waiting for that time. */
uint64_t sim_run_claimed(const struct sim_work *work, struct sim_context *ctx, uint64_t ready_ns);
/* Of a kernel: what it told through sublet_sim_touched, and its launch; of a copy: its start. */
void sim_clock_kernel_cost(const void *arg, struct sim_cost *ret);
void sim_clock_copy_cost(struct sim_cost *ret);
/* A read and a write of device-visible memory, added to @ret by where the pages are. */
void sim_clock_access(struct sim_cost *ret, uint64_t address, uint64_t read_bytes, uint64_t written_bytes);

#endif
