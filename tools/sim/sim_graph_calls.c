/* tools/sim/sim_graph_calls.c
 * Graphs as a structure: making, copying and ending them, their nodes and edges, and a picture of them. */
#include "tools/sim/sim_graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- graphs ---- */

CUresult CUDAAPI cuGraphCreate(CUgraph *ret_graph, unsigned int flags)
{
	struct sim_graph *graph;

	ENTER(cuGraphCreate);
	if (!ret_graph || flags)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim_lock);
	graph = sim_graph_new();
	pthread_mutex_unlock(&sim_lock);
	*ret_graph = (CUgraph)graph;
	return graph ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult CUDAAPI cuGraphDestroy(CUgraph handle)
{
	struct sim_graph *graph;

	ENTER(cuGraphDestroy);
	pthread_mutex_lock(&sim_lock);
	graph = sim_graph_of(handle);
	if (graph && graph->owned)
		graph = NULL;
	sim_graph_free(graph);
	pthread_mutex_unlock(&sim_lock);
	sim_graph_memory_settle();
	return graph ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuGraphClone(CUgraph *ret_graph, CUgraph handle)
{
	struct sim_graph *graph, *copy = NULL;
	CUresult result = CUDA_SUCCESS;

	ENTER(cuGraphClone);
	if (!ret_graph)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim_lock);
	graph = sim_graph_of(handle);
	if (!graph || !sim_graph_sort(graph)) {
		result = CUDA_ERROR_INVALID_VALUE;
	} else {
		copy = sim_graph_copy(graph, false);
		*ret_graph = (CUgraph)copy;
		result = copy ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	}
	pthread_mutex_unlock(&sim_lock);
	return result;
}

CUresult CUDAAPI cuGraphNodeFindInClone(CUgraphNode *ret_node, CUgraphNode origin, CUgraph handle)
{
	struct sim_node *node = NULL;
	struct sim_graph *graph;

	ENTER(cuGraphNodeFindInClone);
	if (!ret_node)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim_lock);
	graph = sim_graph_of(handle);
	if (graph && sim_node_of(origin))
		node = sim_node_from(graph, (struct sim_node *)origin);
	*ret_node = (CUgraphNode)node;
	pthread_mutex_unlock(&sim_lock);
	return node ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- lists: without an array the count, else up to as many as there is room for, and NULL behind the last ---- */

struct list {
	CUgraphNode *first, *second;
	CUgraphEdgeData *data;
	size_t room, count;
};

static void put(struct list *list, struct sim_node *first, struct sim_node *second, const CUgraphEdgeData *data)
{
	if (list->count < list->room) {
		if (list->first)
			list->first[list->count] = (CUgraphNode)first;
		if (list->second)
			list->second[list->count] = (CUgraphNode)second;
		if (list->data)
			list->data[list->count] = data ? *data : (CUgraphEdgeData){0};
	}
	list->count++;
}

static void finish(struct list *list, size_t *ret_count)
{
	for (size_t i = list->count; i < list->room; i++) {
		if (list->first)
			list->first[i] = NULL;
		if (list->second)
			list->second[i] = NULL;
	}
	*ret_count = list->room && list->count > list->room ? list->room : list->count;
}

enum which { ALL_NODES, ROOTS, EDGES };

static CUresult list_graph(CUgraph handle, enum which which, CUgraphNode *first, CUgraphNode *second, CUgraphEdgeData *data,
	size_t *count)
{
	struct list list = {first, second, data, 0, 0};
	struct sim_graph *graph;

	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	list.room = first || second ? *count : 0;
	pthread_mutex_lock(&sim_lock);
	graph = sim_graph_of(handle);
	for (size_t i = 0; graph && i < graph->count; i++) {
		struct sim_node *node = graph->nodes[i];

		if (which == ALL_NODES || (which == ROOTS && !node->edge_count))
			put(&list, node, NULL, NULL);
		for (size_t e = 0; which == EDGES && e < node->edge_count; e++)
			put(&list, node->edges[e].from, node, &node->edges[e].data);
	}
	if (graph)
		finish(&list, count);
	pthread_mutex_unlock(&sim_lock);
	return graph ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
	ENTER(cuGraphGetNodes);
	return list_graph(graph, ALL_NODES, nodes, NULL, NULL, count);
}

CUresult CUDAAPI cuGraphGetRootNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
	ENTER(cuGraphGetRootNodes);
	return list_graph(graph, ROOTS, nodes, NULL, NULL, count);
}

CUresult CUDAAPI cuGraphGetEdges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *count)
{
	ENTER(cuGraphGetEdges);
	return list_graph(graph, EDGES, from, to, NULL, count);
}

CUresult CUDAAPI cuGraphGetEdges_v2(CUgraph graph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *data, size_t *count)
{
	ENTER(cuGraphGetEdges_v2);
	return list_graph(graph, EDGES, from, to, data, count);
}

static CUresult list_node(CUgraphNode handle, bool before, CUgraphNode *nodes, CUgraphEdgeData *data, size_t *count)
{
	struct list list = {nodes, NULL, data, 0, 0};
	struct sim_node *node;

	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	list.room = nodes ? *count : 0;
	pthread_mutex_lock(&sim_lock);
	node = sim_node_of(handle);
	for (size_t e = 0; node && before && e < node->edge_count; e++)
		put(&list, node->edges[e].from, NULL, &node->edges[e].data);
	for (size_t i = 0; node && !before && i < node->graph->count; i++) {
		struct sim_node *other = node->graph->nodes[i];

		for (size_t e = 0; e < other->edge_count; e++) {
			if (other->edges[e].from == node)
				put(&list, other, NULL, &other->edges[e].data);
		}
	}
	if (node)
		finish(&list, count);
	pthread_mutex_unlock(&sim_lock);
	return node ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *nodes, size_t *count)
{
	ENTER(cuGraphNodeGetDependencies);
	return list_node(node, true, nodes, NULL, count);
}

CUresult CUDAAPI cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode *nodes, CUgraphEdgeData *data, size_t *count)
{
	ENTER(cuGraphNodeGetDependencies_v2);
	return list_node(node, true, nodes, data, count);
}

CUresult CUDAAPI cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode *nodes, size_t *count)
{
	ENTER(cuGraphNodeGetDependentNodes);
	return list_node(node, false, nodes, NULL, count);
}

CUresult CUDAAPI cuGraphNodeGetDependentNodes_v2(CUgraphNode node, CUgraphNode *nodes, CUgraphEdgeData *data, size_t *count)
{
	ENTER(cuGraphNodeGetDependentNodes_v2);
	return list_node(node, false, nodes, data, count);
}

CUresult CUDAAPI cuGraphNodeGetType(CUgraphNode handle, CUgraphNodeType *type)
{
	struct sim_node *node;

	ENTER(cuGraphNodeGetType);
	pthread_mutex_lock(&sim_lock);
	node = type ? sim_node_of(handle) : NULL;
	if (node)
		*type = node->work.kind->type;
	pthread_mutex_unlock(&sim_lock);
	return node ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- edges ---- */

static struct sim_edge *edge_between(struct sim_node *from, struct sim_node *to)
{
	for (size_t e = 0; e < to->edge_count; e++) {
		if (to->edges[e].from == from)
			return &to->edges[e];
	}
	return NULL;
}

static CUresult change(CUgraph handle, bool take, const CUgraphNode *from, const CUgraphNode *to, const CUgraphEdgeData *data,
	size_t count)
{
	CUresult result = CUDA_SUCCESS;
	struct sim_graph *graph;

	if (count && (!from || !to))
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim_lock);
	graph = sim_graph_of(handle);
	if (!graph)
		result = CUDA_ERROR_INVALID_VALUE;
	/* All are checked before any is changed. */
	for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
		struct sim_node *a = sim_node_of(from[i]), *b = sim_node_of(to[i]);

		if (!a || !b || a->graph != graph || b->graph != graph || a == b || (edge_between(a, b) != NULL) != take)
			result = CUDA_ERROR_INVALID_VALUE;
	}
	for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
		struct sim_node *a = (struct sim_node *)from[i], *b = (struct sim_node *)to[i];

		if (take) {
			struct sim_edge *edge = edge_between(a, b);

			if (edge)
				*edge = b->edges[--b->edge_count];
		} else {
			graph->sorted = false;
			if (!sim_edge_add(a, b, data ? &data[i] : NULL))
				result = CUDA_ERROR_OUT_OF_MEMORY;
		}
	}
	pthread_mutex_unlock(&sim_lock);
	return result;
}

CUresult CUDAAPI cuGraphAddDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count)
{
	ENTER(cuGraphAddDependencies);
	return change(graph, false, from, to, NULL, count);
}

CUresult CUDAAPI cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
	const CUgraphEdgeData *data, size_t count)
{
	ENTER(cuGraphAddDependencies_v2);
	return change(graph, false, from, to, data, count);
}

CUresult CUDAAPI cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count)
{
	ENTER(cuGraphRemoveDependencies);
	return change(graph, true, from, to, NULL, count);
}

CUresult CUDAAPI cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
	const CUgraphEdgeData *data, size_t count)
{
	ENTER(cuGraphRemoveDependencies_v2);
	return change(graph, true, from, to, data, count);
}

CUresult CUDAAPI cuGraphDestroyNode(CUgraphNode handle)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	struct sim_node *node;

	ENTER(cuGraphDestroyNode);
	pthread_mutex_lock(&sim_lock);
	node = sim_node_of(handle);
	if (node && (node->work.kind->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || node->work.kind->type == CU_GRAPH_NODE_TYPE_MEM_FREE)) {
		result = CUDA_ERROR_NOT_SUPPORTED; /* documented: such nodes stay */
	} else if (node) {
		struct sim_graph *graph = node->graph;
		size_t at = graph->count;

		for (size_t i = 0; i < graph->count; i++) {
			struct sim_edge *edge = edge_between(node, graph->nodes[i]);

			if (edge)
				*edge = graph->nodes[i]->edges[--graph->nodes[i]->edge_count];
			if (graph->nodes[i] == node)
				at = i;
		}
		sim_capture_forget(node);
		graph->count--;
		memmove(&graph->nodes[at], &graph->nodes[at + 1], (graph->count - at) * sizeof(*graph->nodes));
		sim_node_free(node);
		result = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&sim_lock);
	return result;
}

/* ---- a picture, for Graphviz ---- */

CUresult CUDAAPI cuGraphDebugDotPrint(CUgraph handle, const char *path, unsigned int flags)
{
	static const char *const names[] = {"KERNEL", "MEMCPY", "MEMSET", "HOST", "GRAPH", "EMPTY", "WAIT_EVENT", "EVENT_RECORD",
		"EXT_SEMAS_SIGNAL", "EXT_SEMAS_WAIT", "MEM_ALLOC", "MEM_FREE", "BATCH_MEM_OP", "CONDITIONAL"};
	struct sim_graph *graph;
	FILE *file;

	ENTER(cuGraphDebugDotPrint);
	file = path ? fopen(path, "we") : NULL;
	if (!file)
		return path ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim_lock);
	graph = sim_graph_of(handle);
	fprintf(file, "digraph dot {\n");
	for (size_t i = 0; graph && i < graph->count; i++) {
		struct sim_node *node = graph->nodes[i];

		fprintf(file, "\tn%p [label=\"%s\"]\n", (void *)node, names[node->work.kind->type]);
		for (size_t e = 0; e < node->edge_count; e++)
			fprintf(file, "\tn%p -> n%p\n", (void *)node->edges[e].from, (void *)node);
	}
	pthread_mutex_unlock(&sim_lock);
	fprintf(file, "}\n");
	return fclose(file) != 0 ? CUDA_ERROR_OPERATING_SYSTEM : graph ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
