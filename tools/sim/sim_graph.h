/* tools/sim/sim_graph.h
 * Graphs and executables for the files that build, ask and run them. Graphs, nodes and executables are never given back to
 * the heap before reset but used again, so that a stale handle is refused and not followed. sim_lock covers everything. */
#ifndef SUBLET_TOOLS_SIM_SIM_GRAPH_H
#define SUBLET_TOOLS_SIM_SIM_GRAPH_H

#include "tools/sim/sim_exec.h"

struct sim_user_object;
struct sim_held {
	struct sim_user_object *object;
	unsigned count;
};

struct sim_graph {
	uint32_t magic;
	bool alive, owned; /* @owned: by a node or an executable, so not the program's to destroy */
	struct sim_node **nodes;
	size_t count, capacity;
	bool sorted; /* nodes are in an order that respects every edge */
	unsigned references;
	struct sim_held *held;
	size_t held_count, held_capacity;
	struct sim_graph *next;
};

struct sim_exec {
	uint32_t magic;
	bool alive;
	struct sim_graph *graph; /* replaced, not changed, while a launch of it is under way */
	unsigned long long flags;
	struct sim_dep last; /* launches of one executable run one after the other */
	struct sim_exec *next;
};
struct sim_exec *sim_exec_of(CUgraphExec handle);

/* Give the node made from @origin other work of the same type; sim_lock held. Copies @work. */
CUresult sim_exec_replace(struct sim_exec *exec, const struct sim_node *origin, const struct sim_work *work);

/* All of these with sim_lock held. */
/* A copy whose nodes remember those of @graph (or, for @keep, what those remember). NULL: memory ran out. */
struct sim_graph *sim_graph_copy(struct sim_graph *graph, bool keep);
/* Bring the nodes in order; false: there is a cycle. */
bool sim_graph_sort(struct sim_graph *graph);
bool sim_edge_add(struct sim_node *from, struct sim_node *to, const CUgraphEdgeData *data);
void sim_node_free(struct sim_node *node); /* of a graph that lets it go */
/* The node of @graph that was made from @origin; NULL: none. */
struct sim_node *sim_node_from(struct sim_graph *graph, const struct sim_node *origin);
/* Work that runs @graph, which is copied with the work. */
struct sim_work sim_child_work(struct sim_graph **graph);
struct sim_graph *sim_child_graph(const struct sim_node *node); /* NULL: no such node */
struct sim_work sim_empty_work(void);
/* Without sim_lock: run the nodes of a sorted graph. */
void sim_graph_run(struct sim_graph *graph, struct sim_context *ctx);
uint64_t sim_graph_run_timed(struct sim_graph *graph, struct sim_context *ctx, uint64_t ready_ns);

/* ---- user objects (sim_user_object.c) ---- */
bool sim_held_copy(struct sim_graph *to, const struct sim_graph *from);
void sim_held_release(struct sim_graph *graph);
void sim_user_objects_drop_all(void);

/* ---- memory of graphs (sim_graph_memory.c) ---- */
struct sim_graph_memory;
CUresult sim_graph_alloc_work(struct sim_context *ctx, uint64_t bytes, struct sim_graph_memory **ret, struct sim_work *work);
CUresult sim_graph_free_work(uint64_t address, struct sim_graph_memory **ret, struct sim_work *work);
void sim_graph_memory_describe(const struct sim_work *work, uint64_t *ret_address, uint64_t *ret_bytes);
/* May a launch of @graph allocate? INVALID_VALUE while memory of an earlier one is not freed, unless @free_first. */
CUresult sim_graph_memory_launch(struct sim_graph *graph, bool free_first);
void sim_graph_memory_settle(void); /* without sim_lock: give back what nobody refers to any more */
void sim_graph_memory_drop_all(void);

#endif
