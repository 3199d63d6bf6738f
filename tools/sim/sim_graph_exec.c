/* tools/sim/sim_graph_exec.c
 * Executables: a copy of a graph whose nodes remember the graph's, launched as one operation of a stream. A change while a
 * launch is under way makes a new copy, as changes are for later launches only. */
#include "tools/sim/sim_graph.h"

#include <stdlib.h>
#include <string.h>

#define MAGIC_EXEC 0x53694578
#define FLAGS                                                                                                          \
	(CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |                        \
		CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY)

static struct sim_exec *execs; /* living and dead */

struct sim_exec *sim_exec_of(CUgraphExec handle)
{
	struct sim_exec *exec = (struct sim_exec *)handle;

	return exec && exec->magic == MAGIC_EXEC && exec->alive ? exec : NULL;
}

static struct sim_exec *exec_new(void)
{
	struct sim_exec *exec;

	for (exec = execs; exec && exec->alive; exec = exec->next)
		;
	if (!exec) {
		exec = calloc(1, sizeof(*exec));
		if (!exec)
			return NULL;
		exec->next = execs;
		execs = exec;
	}
	*exec = (struct sim_exec){.magic = MAGIC_EXEC, .alive = true, .next = exec->next};
	return exec;
}

/* ---- making ---- */

static CUresult instantiate(CUgraphExec *ret_exec, CUgraph handle, unsigned long long flags, CUgraphInstantiateResult *ret_why)
{
	CUgraphInstantiateResult why = CUDA_GRAPH_INSTANTIATE_SUCCESS;
	CUresult result = CUDA_SUCCESS;
	struct sim_exec *exec = NULL;
	struct sim_graph *graph;

	if (!ret_exec || flags & ~(unsigned long long)FLAGS)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim_lock);
	graph = sim_graph_of(handle);
	if (!graph || graph->owned) {
		result = CUDA_ERROR_INVALID_VALUE;
		why = CUDA_GRAPH_INSTANTIATE_ERROR;
	} else if (!sim_graph_sort(graph)) {
		result = CUDA_ERROR_INVALID_VALUE;
		why = CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE;
	}
	if (result == CUDA_SUCCESS) {
		exec = exec_new();
		if (exec)
			exec->graph = sim_graph_copy(graph, false);
		if (!exec || !exec->graph) {
			if (exec)
				exec->alive = false;
			result = CUDA_ERROR_OUT_OF_MEMORY;
			why = CUDA_GRAPH_INSTANTIATE_ERROR;
		}
	}
	if (result == CUDA_SUCCESS) {
		exec->graph->owned = true;
		exec->flags = flags;
		*ret_exec = (CUgraphExec)exec;
	}
	pthread_mutex_unlock(&sim_lock);
	if (ret_why)
		*ret_why = why;
	return result;
}

CUresult CUDAAPI cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
	ENTER(cuGraphInstantiateWithFlags);
	return instantiate(exec, graph, flags, NULL);
}

static CUresult instantiate_logged(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node, char *log, size_t log_bytes)
{
	if (error_node)
		*error_node = NULL;
	if (log && log_bytes)
		*log = '\0';
	return instantiate(exec, graph, 0, NULL);
}

CUresult CUDAAPI cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node, char *log, size_t log_bytes)
{
	ENTER(cuGraphInstantiate);
	return instantiate_logged(exec, graph, error_node, log, log_bytes);
}

CUresult CUDAAPI cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node, char *log, size_t log_bytes)
{
	ENTER(cuGraphInstantiate_v2);
	return instantiate_logged(exec, graph, error_node, log, log_bytes);
}

static CUresult instantiate_with(CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	params->hErrNode_out = NULL;
	return instantiate(exec, graph, params->flags, &params->result_out);
}

CUresult CUDAAPI cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
	ENTER(cuGraphInstantiateWithParams);
	return instantiate_with(exec, graph, params);
}

CUresult CUDAAPI cuGraphInstantiateWithParams_ptsz(CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
	ENTER(cuGraphInstantiateWithParams_ptsz);
	return instantiate_with(exec, graph, params);
}

CUresult CUDAAPI cuGraphExecDestroy(CUgraphExec handle)
{
	struct sim_exec *exec;

	ENTER(cuGraphExecDestroy);
	pthread_mutex_lock(&sim_lock);
	exec = sim_exec_of(handle);
	if (exec) {
		sim_graph_free(exec->graph);
		exec->alive = false;
	}
	pthread_mutex_unlock(&sim_lock);
	sim_graph_memory_settle();
	return exec ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuGraphExecGetFlags(CUgraphExec handle, cuuint64_t *flags)
{
	struct sim_exec *exec;

	ENTER(cuGraphExecGetFlags);
	if (!flags)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim_lock);
	exec = sim_exec_of(handle);
	if (exec)
		*flags = exec->flags;
	pthread_mutex_unlock(&sim_lock);
	return exec ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- running ---- */

struct run {
	struct sim_graph *graph;
	struct sim_context *context;
};

static void run_graph(void *arg)
{
	struct run *run = arg;

	sim_graph_run(run->graph, run->context);
}

static uint64_t run_graph_timed(void *arg, struct sim_context *ctx, uint64_t ready_ns)
{
	return sim_graph_run_timed(((struct run *)arg)->graph, ctx, ready_ns);
}

static bool retain_run(void *arg)
{
	((struct run *)arg)->graph->references++;
	return true;
}

static void release_run(void *arg)
{
	sim_graph_free(((struct run *)arg)->graph);
}

static const struct sim_work_kind run_kind = {.type = CU_GRAPH_NODE_TYPE_GRAPH, .run = run_graph,
	.run_timed = run_graph_timed, .retain = retain_run, .release = release_run};

static CUresult launch(struct sim_context *ctx, CUgraphExec handle, CUstream stream_handle, bool per_thread)
{
	struct sim_stream *stream;
	struct sim_exec *exec;
	CUresult result;

	sim_graph_memory_settle();
	pthread_mutex_lock(&sim_lock);
	exec = sim_exec_of(handle);
	stream = sim_stream_of(ctx, stream_handle, per_thread);
	if (!exec)
		result = CUDA_ERROR_INVALID_VALUE;
	else if (!stream)
		result = CUDA_ERROR_INVALID_HANDLE;
	else
		result = sim_stream_usable(stream);
	if (result == CUDA_SUCCESS && stream->capture) {
		struct sim_work work = sim_child_work(&exec->graph);

		result = sim_capture_note(stream, &work, NULL);
	} else if (result == CUDA_SUCCESS) {
		struct run run = {exec->graph, stream->context};
		struct sim_work work = {&run_kind, &run, sizeof(run), false};

		result = sim_graph_memory_launch(exec->graph, exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
		if (result == CUDA_SUCCESS)
			result = sim_enqueue(stream, &work, &exec->last, exec->last.stream != NULL);
		if (result == CUDA_SUCCESS)
			exec->last = (struct sim_dep){stream, stream->queued};
	}
	pthread_mutex_unlock(&sim_lock);
	return result;
}

SIM_BOTH(cuGraphLaunch, (CUgraphExec exec, CUstream stream), launch(ctx, exec, stream, twin))

static CUresult upload(struct sim_context *ctx, CUgraphExec handle, CUstream stream_handle, bool per_thread)
{
	struct sim_stream *stream;
	CUresult result;

	pthread_mutex_lock(&sim_lock);
	stream = sim_stream_of(ctx, stream_handle, per_thread);
	result = sim_exec_of(handle) ? sim_stream_uncaptured(stream) : CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		result = sim_enqueue_marker(stream, NULL, 0);
	pthread_mutex_unlock(&sim_lock);
	return result;
}

SIM_BOTH(cuGraphUpload, (CUgraphExec exec, CUstream stream), upload(ctx, exec, stream, twin))

/* ---- changing ---- */

/* sim_lock held. */
CUresult sim_exec_replace(struct sim_exec *exec, const struct sim_node *origin, const struct sim_work *work)
{
	struct sim_node *node = sim_node_from(exec->graph, origin);
	struct sim_work copy;

	if (!node || node->work.kind->type != work->kind->type)
		return CUDA_ERROR_INVALID_VALUE;
	if (exec->graph->references > 1) {
		struct sim_graph *graph = sim_graph_copy(exec->graph, true);

		if (!graph)
			return CUDA_ERROR_OUT_OF_MEMORY;
		graph->owned = true;
		sim_graph_free(exec->graph);
		exec->graph = graph;
		node = sim_node_from(graph, origin);
	}
	if (!sim_work_copy(&copy, work))
		return CUDA_ERROR_OUT_OF_MEMORY;
	sim_work_release(&node->work);
	node->work = copy;
	return CUDA_SUCCESS;
}

static CUresult enable(CUgraphExec handle, CUgraphNode node_handle, const unsigned *set, unsigned *ret_get)
{
	struct sim_node *origin, *node = NULL;
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	struct sim_exec *exec;

	pthread_mutex_lock(&sim_lock);
	exec = sim_exec_of(handle);
	origin = sim_node_of(node_handle);
	if (exec && origin)
		node = sim_node_from(exec->graph, origin);
	/* Documented: kernel, memset and memcpy nodes only. */
	if (node && (node->work.kind->type == CU_GRAPH_NODE_TYPE_KERNEL || node->work.kind->type == CU_GRAPH_NODE_TYPE_MEMSET ||
			    node->work.kind->type == CU_GRAPH_NODE_TYPE_MEMCPY))
		result = set ? sim_exec_replace(exec, origin, &node->work) : CUDA_SUCCESS;
	if (result == CUDA_SUCCESS) {
		node = sim_node_from(exec->graph, origin);
		if (set)
			node->enabled = *set != 0;
		else
			*ret_get = node->enabled;
	}
	pthread_mutex_unlock(&sim_lock);
	return result;
}

CUresult CUDAAPI cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode node, unsigned int enabled)
{
	ENTER(cuGraphNodeSetEnabled);
	return enable(exec, node, &enabled, NULL);
}

CUresult CUDAAPI cuGraphNodeGetEnabled(CUgraphExec exec, CUgraphNode node, unsigned int *enabled)
{
	ENTER(cuGraphNodeGetEnabled);
	return enabled ? enable(exec, node, NULL, enabled) : CUDA_ERROR_INVALID_VALUE;
}

/* sim_lock held; both graphs are sorted. Where they first differ in more than parameters. */
static CUgraphExecUpdateResult compare(const struct sim_graph *have, const struct sim_graph *want, struct sim_node **ret_node)
{
	*ret_node = NULL;
	if (have->count != want->count)
		return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
	for (size_t i = 0; i < have->count; i++) {
		const struct sim_node *a = have->nodes[i], *b = want->nodes[i];

		*ret_node = want->nodes[i];
		if (a->work.kind->type != b->work.kind->type)
			return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
		if (a->edge_count != b->edge_count)
			return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
		for (size_t e = 0; e < a->edge_count; e++) {
			if (a->edges[e].from->position != b->edges[e].from->position)
				return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
		}
		/* The memory of such nodes was placed when they were made. */
		if (a->work.kind->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || a->work.kind->type == CU_GRAPH_NODE_TYPE_MEM_FREE)
			return CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
	}
	*ret_node = NULL;
	return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

static CUresult update(CUgraphExec handle, CUgraph graph_handle, CUgraphExecUpdateResultInfo *ret)
{
	CUresult result = CUDA_SUCCESS;
	struct sim_node *node = NULL;
	struct sim_graph *graph;
	struct sim_exec *exec;

	ret->result = CU_GRAPH_EXEC_UPDATE_ERROR;
	ret->errorNode = ret->errorFromNode = NULL;
	pthread_mutex_lock(&sim_lock);
	exec = sim_exec_of(handle);
	graph = sim_graph_of(graph_handle);
	if (!exec || !graph || graph->owned || !sim_graph_sort(graph)) {
		result = CUDA_ERROR_INVALID_VALUE;
	} else {
		sim_graph_sort(exec->graph);
		ret->result = compare(exec->graph, graph, &node);
		ret->errorNode = (CUgraphNode)node;
		result = ret->result == CU_GRAPH_EXEC_UPDATE_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
	}
	for (size_t i = 0; result == CUDA_SUCCESS && i < graph->count; i++)
		result = sim_exec_replace(exec, exec->graph->nodes[i]->origin, &graph->nodes[i]->work);
	pthread_mutex_unlock(&sim_lock);
	return result;
}

CUresult CUDAAPI cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *error_node, CUgraphExecUpdateResult *why)
{
	CUgraphExecUpdateResultInfo info;
	CUresult result;

	ENTER(cuGraphExecUpdate);
	result = update(exec, graph, &info);
	if (error_node)
		*error_node = info.errorNode;
	if (why)
		*why = info.result;
	return result;
}

CUresult CUDAAPI cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info)
{
	ENTER(cuGraphExecUpdate_v2);
	return info ? update(exec, graph, info) : CUDA_ERROR_INVALID_VALUE;
}

void sim_execs_drop_all(void)
{
	while (execs) {
		struct sim_exec *exec = execs;

		execs = exec->next;
		if (exec->alive)
			sim_graph_free(exec->graph);
		exec->magic = 0;
		free(exec);
	}
}
