/* tools/sim/sim_graph.c
 * Graphs as captured: nodes in the order they were noted, each with a copy of its operation. A launch runs them in that
 * order, which respects every dependency a capture can make. */
#include "tools/sim/sim_priv.h"

#include <stdlib.h>
#include <string.h>

#include "base/list.h"

struct node {
	CUgraphNodeType type;
	void (*run)(void *);
	void *arg;
};

struct sim_graph {
	struct node *nodes;
	size_t count, capacity;
	unsigned references; /* executables are shared with their launches; sim_lock */
};

struct sim_graph *sim_graph_new(void)
{
	struct sim_graph *graph = calloc(1, sizeof(struct sim_graph));

	if (graph)
		graph->references = 1;
	return graph;
}

void sim_graph_free(struct sim_graph *graph)
{
	if (!graph || --graph->references)
		return;
	for (size_t i = 0; i < graph->count; i++)
		free(graph->nodes[i].arg);
	free(graph->nodes);
	free(graph);
}

bool sim_graph_add(struct sim_graph *graph, CUgraphNodeType type, void (*run)(void *), const void *arg, size_t arg_bytes)
{
	void *copy = NULL;

	if (!list_room(&graph->nodes, graph->count, &graph->capacity, sizeof(*graph->nodes)))
		return false;
	if (arg_bytes) {
		copy = malloc(arg_bytes);
		if (!copy)
			return false;
		memcpy(copy, arg, arg_bytes);
	}
	graph->nodes[graph->count++] = (struct node){type, run, copy};
	return true;
}

CUresult CUDAAPI cuGraphCreate(CUgraph *graph, unsigned int flags)
{
	ENTER(cuGraphCreate);
	*graph = (CUgraph)sim_graph_new();
	return *graph ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult drop(struct sim_graph *graph)
{
	if (!graph)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim_lock);
	sim_graph_free(graph);
	pthread_mutex_unlock(&sim_lock);
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphDestroy(CUgraph graph)
{
	ENTER(cuGraphDestroy);
	return drop((struct sim_graph *)graph);
}

CUresult CUDAAPI cuGraphExecDestroy(CUgraphExec exec)
{
	ENTER(cuGraphExecDestroy);
	return drop((struct sim_graph *)exec);
}

/* Captured graphs do not change any more, so the executable is the graph with one more reference. */
static CUresult instantiate(CUgraphExec *ret_exec, CUgraph handle)
{
	struct sim_graph *graph = (struct sim_graph *)handle;

	if (!graph || !ret_exec)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim_lock);
	graph->references++;
	pthread_mutex_unlock(&sim_lock);
	*ret_exec = (CUgraphExec)graph;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
	ENTER(cuGraphInstantiateWithFlags);
	return instantiate(exec, graph);
}

CUresult CUDAAPI cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node, char *log, size_t log_bytes)
{
	ENTER(cuGraphInstantiate_v2);
	return instantiate(exec, graph);
}

CUresult CUDAAPI cuGraphGetNodes(CUgraph handle, CUgraphNode *nodes, size_t *count)
{
	struct sim_graph *graph = (struct sim_graph *)handle;

	ENTER(cuGraphGetNodes);
	if (!graph || !count)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; nodes && i < *count; i++)
		nodes[i] = i < graph->count ? (CUgraphNode)&graph->nodes[i] : NULL;
	*count = graph->count;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType *type)
{
	ENTER(cuGraphNodeGetType);
	if (!node || !type)
		return CUDA_ERROR_INVALID_VALUE;
	*type = ((struct node *)node)->type;
	return CUDA_SUCCESS;
}

static void run_graph(void *arg)
{
	struct sim_graph *graph = *(struct sim_graph **)arg;

	for (size_t i = 0; i < graph->count; i++) {
		if (graph->nodes[i].run)
			graph->nodes[i].run(graph->nodes[i].arg);
	}
	drop(graph);
}

static CUresult launch(struct sim_context *ctx, CUgraphExec exec, CUstream stream, bool per_thread)
{
	struct sim_graph **arg = malloc(sizeof(*arg));
	CUresult result;

	if (!arg || !exec) {
		free(arg);
		return exec ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
	}
	*arg = (struct sim_graph *)exec;
	pthread_mutex_lock(&sim_lock);
	(*arg)->references++;
	pthread_mutex_unlock(&sim_lock);
	result = sim_submit(ctx, stream, per_thread, run_graph, arg, false);
	if (result != CUDA_SUCCESS)
		drop((struct sim_graph *)exec);
	return result;
}

CUresult CUDAAPI cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
	ENTER_CONTEXT(cuGraphLaunch, ctx);
	return launch(ctx, exec, stream, false);
}

CUresult CUDAAPI cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream)
{
	ENTER_CONTEXT(cuGraphLaunch_ptsz, ctx);
	return launch(ctx, exec, stream, true);
}
