/* tools/sim/sim_graph_nodes.c
 * Nodes of graphs: making one of each kind, asking for its parameters, changing them in a graph or an executable. All forms
 * of the calls go through CUgraphNodeParams, the driver's own form for every kind. */
#include "tools/sim/sim_copy.h"
#include "tools/sim/sim_graph.h"

#include <string.h>

/* What the bytes of a node's work are built in. */
struct draft {
	struct sim_work work;
	union {
		_Alignas(16) unsigned char batch[SIM_BATCH_BYTES_MAX];
		_Alignas(16) unsigned char launch[SIM_LAUNCH_BYTES_MAX];
		_Alignas(16) unsigned char copy[SIM_COPY_BYTES_MAX];
		_Alignas(16) unsigned char set[SIM_SET_BYTES_MAX];
		CUDA_HOST_NODE_PARAMS host;
		struct sim_graph *graph;
		struct sim_event *event;
		struct sim_graph_memory *memory;
	};
};

static CUresult draft_kernel(struct draft *draft, const CUDA_KERNEL_NODE_PARAMS_v3 *p)
{
	const struct sim_launch shape = {
		{p->gridDimX, p->gridDimY, p->gridDimZ}, {p->blockDimX, p->blockDimY, p->blockDimZ}, p->sharedMemBytes};
	const void *handle = p->func ? (const void *)p->func : (const void *)p->kern;
	struct sim_function *function = sim_function_of(handle);
	CUcontext home = function ? sim_function_context(function) : NULL;
	struct sim_context *ctx;

	pthread_mutex_lock(&sim_lock);
	ctx = home ? sim_context_of(home) : p->ctx && !p->func ? sim_context_of(p->ctx) : sim_current();
	pthread_mutex_unlock(&sim_lock);
	if (!function || !ctx)
		return function ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_VALUE;
	return sim_launch_work(ctx, handle, &shape, p->kernelParams, p->extra, draft->launch, &draft->work);
}

static CUresult draft_work(struct draft *draft, CUgraphNodeParams *p)
{
	struct sim_context *ctx = sim_current();

	switch (p->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		return draft_kernel(draft, &p->kernel);
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		return sim_copy_work(ctx, &p->memcpy.copyParams, draft->copy, &draft->work);
	case CU_GRAPH_NODE_TYPE_MEMSET: {
		CUDA_MEMSET_NODE_PARAMS s = {p->memset.dst, p->memset.pitch, p->memset.value, p->memset.elementSize,
			p->memset.width, p->memset.height};

		return sim_set_work(ctx, &s, draft->set, &draft->work);
	}
	case CU_GRAPH_NODE_TYPE_HOST:
		draft->host = (CUDA_HOST_NODE_PARAMS){p->host.fn, p->host.userData};
		draft->work = sim_host_work(&draft->host);
		return p->host.fn ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	case CU_GRAPH_NODE_TYPE_GRAPH:
		pthread_mutex_lock(&sim_lock);
		draft->graph = sim_graph_of(p->graph.graph);
		pthread_mutex_unlock(&sim_lock);
		if (!draft->graph || p->graph.ownership != CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE)
			return draft->graph ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
		draft->work = sim_child_work(&draft->graph);
		return CUDA_SUCCESS;
	case CU_GRAPH_NODE_TYPE_EMPTY:
		draft->work = sim_empty_work();
		return CUDA_SUCCESS;
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD: {
		bool wait = p->type == CU_GRAPH_NODE_TYPE_WAIT_EVENT;

		pthread_mutex_lock(&sim_lock);
		draft->event = sim_event_of(wait ? p->eventWait.event : p->eventRecord.event);
		pthread_mutex_unlock(&sim_lock);
		draft->work = wait ? sim_event_wait_work(&draft->event) : sim_event_record_work(&draft->event);
		return draft->event ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	}
	case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
		return sim_batch_work(ctx, p->memOp.count, p->memOp.paramArray, p->memOp.flags, draft->batch, &draft->work);
	case CU_GRAPH_NODE_TYPE_MEM_ALLOC: {
		CUresult result = ctx ? sim_graph_alloc_work(ctx, p->alloc.bytesize, &draft->memory, &draft->work)
				      : CUDA_ERROR_INVALID_CONTEXT;
		uint64_t bytes;

		if (result == CUDA_SUCCESS)
			sim_graph_memory_describe(&draft->work, (uint64_t *)&p->alloc.dptr, &bytes);
		return result;
	}
	case CU_GRAPH_NODE_TYPE_MEM_FREE:
		return sim_graph_free_work(p->free.dptr, &draft->memory, &draft->work);
	case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
	case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
	case CU_GRAPH_NODE_TYPE_CONDITIONAL:
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	return CUDA_ERROR_INVALID_VALUE;
}

/* ---- adding ---- */

static CUresult add(CUgraphNode *ret_node, CUgraph graph_handle, const CUgraphNode *from, const CUgraphEdgeData *data,
	size_t count, CUgraphNodeParams *p)
{
	CUresult result = CUDA_SUCCESS;
	struct sim_graph *graph;
	struct sim_node *node;
	struct draft draft;

	if (!ret_node || (count && !from))
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim_lock);
	graph = sim_graph_of(graph_handle);
	for (size_t i = 0; graph && i < count; i++) {
		node = sim_node_of(from[i]);
		if (!node || node->graph != graph)
			result = CUDA_ERROR_INVALID_VALUE;
		for (size_t j = 0; j < i; j++) {
			if (from[j] == from[i]) /* documented: no duplicates */
				result = CUDA_ERROR_INVALID_VALUE;
		}
	}
	pthread_mutex_unlock(&sim_lock);
	if (!graph || result != CUDA_SUCCESS)
		return CUDA_ERROR_INVALID_VALUE;
	result = draft_work(&draft, p);
	if (result != CUDA_SUCCESS)
		return result;
	pthread_mutex_lock(&sim_lock);
	node = sim_node_add(graph, &draft.work, (struct sim_node *const *)from, data, count);
	if (node)
		*ret_node = (CUgraphNode)node;
	pthread_mutex_unlock(&sim_lock);
	if (!node)
		sim_graph_memory_settle();
	return node ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult CUDAAPI cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *from, size_t count, CUgraphNodeParams *p)
{
	ENTER(cuGraphAddNode);
	return p ? add(node, graph, from, NULL, count, p) : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *from, const CUgraphEdgeData *data,
	size_t count, CUgraphNodeParams *p)
{
	ENTER(cuGraphAddNode_v2);
	return p ? add(node, graph, from, data, count, p) : CUDA_ERROR_INVALID_VALUE;
}

/* ---- the general form of what each kind is given ---- */

static CUgraphNodeParams of_kernel_v1(const CUDA_KERNEL_NODE_PARAMS_v1 *k)
{
	CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_KERNEL};

	memcpy(&p.kernel, k, sizeof(*k)); /* the later forms add fields at the end */
	return p;
}

static CUgraphNodeParams of_kernel(const CUDA_KERNEL_NODE_PARAMS_v2 *k)
{
	CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_KERNEL};

	_Static_assert(sizeof(*k) == sizeof(p.kernel), "the two forms are alike");
	memcpy(&p.kernel, k, sizeof(*k));
	return p;
}

static CUgraphNodeParams of_copy(const CUDA_MEMCPY3D *c, CUcontext ctx)
{
	return (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_MEMCPY, .memcpy = {.copyCtx = ctx, .copyParams = *c}};
}

static CUgraphNodeParams of_set(const CUDA_MEMSET_NODE_PARAMS *s, CUcontext ctx)
{
	return (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_MEMSET,
		.memset = {s->dst, s->pitch, s->value, s->elementSize, s->width, s->height, ctx}};
}

static CUgraphNodeParams of_host(const CUDA_HOST_NODE_PARAMS *h)
{
	return (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_HOST, .host = {h->fn, h->userData}};
}

static CUgraphNodeParams of_batch(const CUDA_BATCH_MEM_OP_NODE_PARAMS *b)
{
	return (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, .memOp = {b->ctx, b->count, b->paramArray, b->flags}};
}

static CUgraphNodeParams of_event(CUgraphNodeType type, CUevent event)
{
	CUgraphNodeParams p = {.type = type};

	p.eventWait.event = event; /* the same place as eventRecord.event */
	return p;
}

static CUgraphNodeParams of_child(CUgraph graph)
{
	return (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_GRAPH, .graph = {.graph = graph}};
}

#define ADD_PARAMS CUgraphNode *node, CUgraph graph, const CUgraphNode *from, size_t count
#define ADD(symbol, extra_param, given, general)                                                                       \
	CUresult CUDAAPI symbol(ADD_PARAMS, extra_param)                                                               \
	{                                                                                                              \
		CUgraphNodeParams general_;                                                                            \
		ENTER(symbol);                                                                                         \
		if (!(given))                                                                                          \
			return CUDA_ERROR_INVALID_VALUE;                                                               \
		general_ = general;                                                                                    \
		return add(node, graph, from, NULL, count, &general_);                                                 \
	}
ADD(cuGraphAddKernelNode, const CUDA_KERNEL_NODE_PARAMS_v1 *p, p, of_kernel_v1(p))
ADD(cuGraphAddKernelNode_v2, const CUDA_KERNEL_NODE_PARAMS_v2 *p, p, of_kernel(p))
ADD(cuGraphAddHostNode, const CUDA_HOST_NODE_PARAMS *p, p, of_host(p))
ADD(cuGraphAddChildGraphNode, CUgraph child, child, of_child(child))
ADD(cuGraphAddBatchMemOpNode, const CUDA_BATCH_MEM_OP_NODE_PARAMS *p, p, of_batch(p))
ADD(cuGraphAddEventRecordNode, CUevent event, event, of_event(CU_GRAPH_NODE_TYPE_EVENT_RECORD, event))
ADD(cuGraphAddEventWaitNode, CUevent event, event, of_event(CU_GRAPH_NODE_TYPE_WAIT_EVENT, event))

CUresult CUDAAPI cuGraphAddMemcpyNode(ADD_PARAMS, const CUDA_MEMCPY3D *c, CUcontext ctx)
{
	CUgraphNodeParams p;

	ENTER(cuGraphAddMemcpyNode);
	if (!c)
		return CUDA_ERROR_INVALID_VALUE;
	p = of_copy(c, ctx);
	return add(node, graph, from, NULL, count, &p);
}

CUresult CUDAAPI cuGraphAddMemsetNode(ADD_PARAMS, const CUDA_MEMSET_NODE_PARAMS *s, CUcontext ctx)
{
	CUgraphNodeParams p;

	ENTER(cuGraphAddMemsetNode);
	if (!s)
		return CUDA_ERROR_INVALID_VALUE;
	p = of_set(s, ctx);
	return add(node, graph, from, NULL, count, &p);
}

CUresult CUDAAPI cuGraphAddEmptyNode(ADD_PARAMS)
{
	CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_EMPTY};

	ENTER(cuGraphAddEmptyNode);
	return add(node, graph, from, NULL, count, &p);
}

CUresult CUDAAPI cuGraphAddMemAllocNode(ADD_PARAMS, CUDA_MEM_ALLOC_NODE_PARAMS *alloc)
{
	CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC};
	CUresult result;

	ENTER(cuGraphAddMemAllocNode);
	if (!alloc)
		return CUDA_ERROR_INVALID_VALUE;
	p.alloc.bytesize = alloc->bytesize;
	result = add(node, graph, from, NULL, count, &p);
	if (result == CUDA_SUCCESS)
		alloc->dptr = p.alloc.dptr;
	return result;
}

CUresult CUDAAPI cuGraphAddMemFreeNode(ADD_PARAMS, CUdeviceptr ptr)
{
	CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_MEM_FREE, .free = {ptr}};

	ENTER(cuGraphAddMemFreeNode);
	return add(node, graph, from, NULL, count, &p);
}

/* ---- changing ---- */

static CUresult set(CUgraphNode node_handle, CUgraphNodeParams *p)
{
	struct sim_work copy;
	struct draft draft;
	struct sim_node *node;
	CUresult result;

	pthread_mutex_lock(&sim_lock);
	node = sim_node_of(node_handle);
	result = node && node->work.kind->type == p->type ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_unlock(&sim_lock);
	if (result == CUDA_SUCCESS && (p->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || p->type == CU_GRAPH_NODE_TYPE_MEM_FREE))
		result = CUDA_ERROR_NOT_SUPPORTED;
	if (result == CUDA_SUCCESS)
		result = draft_work(&draft, p);
	if (result != CUDA_SUCCESS)
		return result;
	pthread_mutex_lock(&sim_lock);
	if (sim_work_copy(&copy, &draft.work)) {
		sim_work_release(&node->work);
		node->work = copy;
	} else {
		result = CUDA_ERROR_OUT_OF_MEMORY;
	}
	pthread_mutex_unlock(&sim_lock);
	return result;
}

static CUresult set_exec(CUgraphExec exec_handle, CUgraphNode node_handle, CUgraphNodeParams *p)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	struct sim_exec *exec;
	struct draft draft;

	pthread_mutex_lock(&sim_lock);
	exec = sim_exec_of(exec_handle);
	pthread_mutex_unlock(&sim_lock);
	if (exec && p->type != CU_GRAPH_NODE_TYPE_MEM_ALLOC && p->type != CU_GRAPH_NODE_TYPE_MEM_FREE)
		result = draft_work(&draft, p);
	if (result != CUDA_SUCCESS)
		return result;
	pthread_mutex_lock(&sim_lock);
	result = sim_node_of(node_handle) ? sim_exec_replace(exec, (struct sim_node *)node_handle, &draft.work)
					  : CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_unlock(&sim_lock);
	return result;
}

CUresult CUDAAPI cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams *p)
{
	ENTER(cuGraphNodeSetParams);
	return p ? set(node, p) : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *p)
{
	ENTER(cuGraphExecNodeSetParams);
	return p ? set_exec(exec, node, p) : CUDA_ERROR_INVALID_VALUE;
}

#define SET(symbol, exec_symbol, param, given, general)                                                                \
	CUresult CUDAAPI symbol(CUgraphNode node, param)                                                               \
	{                                                                                                              \
		CUgraphNodeParams general_;                                                                            \
		ENTER(symbol);                                                                                         \
		if (!(given))                                                                                          \
			return CUDA_ERROR_INVALID_VALUE;                                                               \
		general_ = general;                                                                                    \
		return set(node, &general_);                                                                           \
	}                                                                                                              \
	SET_EXEC(exec_symbol, param, given, general)
#define SET_EXEC(symbol, param, given, general)                                                                        \
	CUresult CUDAAPI symbol(CUgraphExec exec, CUgraphNode node, param)                                             \
	{                                                                                                              \
		CUgraphNodeParams general_;                                                                            \
		ENTER(symbol);                                                                                         \
		if (!(given))                                                                                          \
			return CUDA_ERROR_INVALID_VALUE;                                                               \
		general_ = general;                                                                                    \
		return set_exec(exec, node, &general_);                                                                \
	}
SET(cuGraphKernelNodeSetParams, cuGraphExecKernelNodeSetParams, const CUDA_KERNEL_NODE_PARAMS_v1 *p, p, of_kernel_v1(p))
SET(cuGraphKernelNodeSetParams_v2, cuGraphExecKernelNodeSetParams_v2, const CUDA_KERNEL_NODE_PARAMS_v2 *p, p, of_kernel(p))
SET(cuGraphHostNodeSetParams, cuGraphExecHostNodeSetParams, const CUDA_HOST_NODE_PARAMS *p, p, of_host(p))
SET(cuGraphBatchMemOpNodeSetParams, cuGraphExecBatchMemOpNodeSetParams, const CUDA_BATCH_MEM_OP_NODE_PARAMS *p, p, of_batch(p))
SET(cuGraphEventRecordNodeSetEvent, cuGraphExecEventRecordNodeSetEvent, CUevent event, event,
	of_event(CU_GRAPH_NODE_TYPE_EVENT_RECORD, event))
SET(cuGraphEventWaitNodeSetEvent, cuGraphExecEventWaitNodeSetEvent, CUevent event, event,
	of_event(CU_GRAPH_NODE_TYPE_WAIT_EVENT, event))
SET_EXEC(cuGraphExecChildGraphNodeSetParams, CUgraph child, child, of_child(child))

CUresult CUDAAPI cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D *c)
{
	CUgraphNodeParams p;

	ENTER(cuGraphMemcpyNodeSetParams);
	if (!c)
		return CUDA_ERROR_INVALID_VALUE;
	p = of_copy(c, NULL);
	return set(node, &p);
}

CUresult CUDAAPI cuGraphMemsetNodeSetParams(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *s)
{
	CUgraphNodeParams p;

	ENTER(cuGraphMemsetNodeSetParams);
	if (!s)
		return CUDA_ERROR_INVALID_VALUE;
	p = of_set(s, NULL);
	return set(node, &p);
}

CUresult CUDAAPI cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *c, CUcontext ctx)
{
	CUgraphNodeParams p;

	ENTER(cuGraphExecMemcpyNodeSetParams);
	if (!c)
		return CUDA_ERROR_INVALID_VALUE;
	p = of_copy(c, ctx);
	return set_exec(exec, node, &p);
}

CUresult CUDAAPI cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *s, CUcontext ctx)
{
	CUgraphNodeParams p;

	ENTER(cuGraphExecMemsetNodeSetParams);
	if (!s)
		return CUDA_ERROR_INVALID_VALUE;
	p = of_set(s, ctx);
	return set_exec(exec, node, &p);
}

/* ---- asking ---- */

/* sim_lock held; NULL: no such node of that type. */
static struct sim_node *node_of_type(CUgraphNode handle, CUgraphNodeType type)
{
	struct sim_node *node = sim_node_of(handle);

	return node && node->work.kind->type == type ? node : NULL;
}

#define GET(symbol, node_type, out_type, answer)                                                                       \
	CUresult CUDAAPI symbol(CUgraphNode handle, out_type *ret)                                                     \
	{                                                                                                              \
		struct sim_node *node;                                                                                 \
                                                                                                                       \
		ENTER(symbol);                                                                                         \
		pthread_mutex_lock(&sim_lock);                                                                         \
		node = ret ? node_of_type(handle, node_type) : NULL;                                                   \
		if (node) {                                                                                            \
			answer;                                                                                        \
		}                                                                                                      \
		pthread_mutex_unlock(&sim_lock);                                                                       \
		return node ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;                                                 \
	}

static void kernel_v1(struct sim_node *node, CUDA_KERNEL_NODE_PARAMS_v1 *ret)
{
	CUDA_KERNEL_NODE_PARAMS_v2 all;

	sim_launch_describe(&node->work, &all, node->params);
	memcpy(ret, &all, sizeof(*ret));
}

static void alloc_params(struct sim_node *node, CUDA_MEM_ALLOC_NODE_PARAMS *ret)
{
	uint64_t address, bytes;

	sim_graph_memory_describe(&node->work, &address, &bytes);
	*ret = (CUDA_MEM_ALLOC_NODE_PARAMS){.bytesize = bytes, .dptr = address};
	ret->poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
	ret->poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
}

static void free_params(struct sim_node *node, CUdeviceptr *ret)
{
	uint64_t address, bytes;

	sim_graph_memory_describe(&node->work, &address, &bytes);
	*ret = address;
}

GET(cuGraphKernelNodeGetParams, CU_GRAPH_NODE_TYPE_KERNEL, CUDA_KERNEL_NODE_PARAMS_v1, kernel_v1(node, ret))
GET(cuGraphKernelNodeGetParams_v2, CU_GRAPH_NODE_TYPE_KERNEL, CUDA_KERNEL_NODE_PARAMS_v2,
	sim_launch_describe(&node->work, ret, node->params))
GET(cuGraphMemcpyNodeGetParams, CU_GRAPH_NODE_TYPE_MEMCPY, CUDA_MEMCPY3D, sim_copy_describe(&node->work, ret))
GET(cuGraphMemsetNodeGetParams, CU_GRAPH_NODE_TYPE_MEMSET, CUDA_MEMSET_NODE_PARAMS, sim_set_describe(&node->work, ret))
GET(cuGraphHostNodeGetParams, CU_GRAPH_NODE_TYPE_HOST, CUDA_HOST_NODE_PARAMS,
	*ret = *(CUDA_HOST_NODE_PARAMS *)node->work.arg)
GET(cuGraphBatchMemOpNodeGetParams, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, CUDA_BATCH_MEM_OP_NODE_PARAMS,
	sim_batch_describe(&node->work, ret))
GET(cuGraphEventRecordNodeGetEvent, CU_GRAPH_NODE_TYPE_EVENT_RECORD, CUevent, *ret = *(CUevent *)node->work.arg)
GET(cuGraphEventWaitNodeGetEvent, CU_GRAPH_NODE_TYPE_WAIT_EVENT, CUevent, *ret = *(CUevent *)node->work.arg)
GET(cuGraphChildGraphNodeGetGraph, CU_GRAPH_NODE_TYPE_GRAPH, CUgraph, *ret = (CUgraph)sim_child_graph(node))
GET(cuGraphMemAllocNodeGetParams, CU_GRAPH_NODE_TYPE_MEM_ALLOC, CUDA_MEM_ALLOC_NODE_PARAMS, alloc_params(node, ret))
GET(cuGraphMemFreeNodeGetParams, CU_GRAPH_NODE_TYPE_MEM_FREE, CUdeviceptr, free_params(node, ret))

/* ---- launch attributes of kernel nodes ---- */

CUresult CUDAAPI cuGraphKernelNodeCopyAttributes(CUgraphNode to_handle, CUgraphNode from_handle)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	struct sim_node *to, *from;

	ENTER(cuGraphKernelNodeCopyAttributes);
	pthread_mutex_lock(&sim_lock);
	to = node_of_type(to_handle, CU_GRAPH_NODE_TYPE_KERNEL);
	from = node_of_type(from_handle, CU_GRAPH_NODE_TYPE_KERNEL);
	if (to && from)
		result = sim_attributes_copy(&to->attributes, from->attributes);
	pthread_mutex_unlock(&sim_lock);
	return result;
}

CUresult CUDAAPI cuGraphKernelNodeGetAttribute(CUgraphNode handle, CUkernelNodeAttrID id, CUkernelNodeAttrValue *ret)
{
	struct sim_node *node;

	ENTER(cuGraphKernelNodeGetAttribute);
	pthread_mutex_lock(&sim_lock);
	node = ret ? node_of_type(handle, CU_GRAPH_NODE_TYPE_KERNEL) : NULL;
	if (node)
		sim_attributes_get(node->attributes, id, ret);
	pthread_mutex_unlock(&sim_lock);
	return node ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuGraphKernelNodeSetAttribute(CUgraphNode handle, CUkernelNodeAttrID id, const CUkernelNodeAttrValue *value)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	struct sim_node *node;

	ENTER(cuGraphKernelNodeSetAttribute);
	pthread_mutex_lock(&sim_lock);
	node = value ? node_of_type(handle, CU_GRAPH_NODE_TYPE_KERNEL) : NULL;
	if (node)
		result = sim_attributes_set(&node->attributes, id, value);
	pthread_mutex_unlock(&sim_lock);
	return result;
}
