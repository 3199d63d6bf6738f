/* shim/wrap_callback.c
 * GROUP(CALLBACK): what the driver calls back is given to it behind a function of ours (lifecycle/callbacks.h). Queuing a
 * call-back on a stream is gated, so that none runs while pages move; giving one to a graph is not, its launch is. */
#include "shim/shim.h"

#include "lifecycle/callbacks.h"

/* A host function that is being captured belongs to a graph. The driver is asked whatever captures are known: one that
 * began past Sublet would run the function more often than once. */
static struct callback *host_function(CUstream stream, bool per_thread, CUhostFn function, void *arg)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	struct callback *callback;
	CUresult result;

	shim_enter();
	if (!stream && per_thread)
		stream = CU_STREAM_PER_THREAD;
	result = shim_hot.lifecycle.driver.StreamIsCapturing(stream, &status);
	if (result == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_NONE)
		callback = callback_once(function, arg);
	else
		callback = callback_kept(&shim_hot.lifecycle.callbacks, function, arg);
	shim_leave();
	return callback;
}

/* Through the gate; @args are the driver's with a call-back of ours, @plain as the application gave them. */
#define QUEUE(symbol, wrapped, function, args, plain)                                                                  \
	do {                                                                                                           \
		struct callback *callback_;                                                                            \
		struct gate_slot *slot_;                                                                               \
		CUresult result_;                                                                                      \
                                                                                                                       \
		if (!shim_active() || !(function))                                                                     \
			return FORWARD(symbol, plain);                                                                 \
		slot_ = gate_enter(&shim_hot.lifecycle.gate, #symbol, NULL);                                               \
		if (!slot_)                                                                                            \
			return GATE_REFUSAL;                                                                           \
		callback_ = wrapped;                                                                                   \
		result_ = callback_ ? FORWARD(symbol, args) : FORWARD(symbol, plain);                                  \
		gate_leave(slot_);                                                                                     \
		if (result_ != CUDA_SUCCESS)                                                                           \
			callback_unused(callback_);                                                                    \
		return result_;                                                                                        \
	} while (0)

CUresult CUDAAPI cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void *userData)
{
	QUEUE(cuLaunchHostFunc, host_function(hStream, false, fn, userData), fn, (hStream, callback_run, callback_),
		(hStream, fn, userData));
}

CUresult CUDAAPI cuLaunchHostFunc_ptsz(CUstream hStream, CUhostFn fn, void *userData)
{
	QUEUE(cuLaunchHostFunc_ptsz, host_function(hStream, true, fn, userData), fn, (hStream, callback_run, callback_),
		(hStream, fn, userData));
}

CUresult CUDAAPI cuStreamAddCallback(CUstream hStream, CUstreamCallback callback, void *userData, unsigned int flags)
{
	QUEUE(cuStreamAddCallback, callback_of_stream(callback, userData), callback,
		(hStream, callback_run_stream, callback_, flags), (hStream, callback, userData, flags));
}

CUresult CUDAAPI cuStreamAddCallback_ptsz(CUstream hStream, CUstreamCallback callback, void *userData, unsigned int flags)
{
	QUEUE(cuStreamAddCallback_ptsz, callback_of_stream(callback, userData), callback,
		(hStream, callback_run_stream, callback_, flags), (hStream, callback, userData, flags));
}

/* ---- graphs ---- */

/* Put ours in the place of the application's pair. */
static void hide(CUhostFn *function, void **arg)
{
	struct callback *callback;

	if (!*function)
		return; /* the driver's to refuse */
	shim_enter();
	callback = callback_kept(&shim_hot.lifecycle.callbacks, *function, *arg);
	shim_leave();
	if (callback) {
		*function = callback_run;
		*arg = callback;
	}
}

static const CUDA_HOST_NODE_PARAMS *hidden(const CUDA_HOST_NODE_PARAMS *params, CUDA_HOST_NODE_PARAMS *copy)
{
	if (!params || !shim_active())
		return params;
	*copy = *params;
	hide(&copy->fn, &copy->userData);
	return copy;
}

CUresult CUDAAPI cuGraphAddHostNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
	size_t numDependencies, const CUDA_HOST_NODE_PARAMS *nodeParams)
{
	CUDA_HOST_NODE_PARAMS copy;

	return FORWARD(cuGraphAddHostNode, (phGraphNode, hGraph, dependencies, numDependencies, hidden(nodeParams, &copy)));
}

CUresult CUDAAPI cuGraphHostNodeSetParams(CUgraphNode hNode, const CUDA_HOST_NODE_PARAMS *nodeParams)
{
	CUDA_HOST_NODE_PARAMS copy;

	return FORWARD(cuGraphHostNodeSetParams, (hNode, hidden(nodeParams, &copy)));
}

CUresult CUDAAPI cuGraphExecHostNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, const CUDA_HOST_NODE_PARAMS *nodeParams)
{
	CUDA_HOST_NODE_PARAMS copy;

	return FORWARD(cuGraphExecHostNodeSetParams, (hGraphExec, hNode, hidden(nodeParams, &copy)));
}

CUresult CUDAAPI cuGraphHostNodeGetParams(CUgraphNode hNode, CUDA_HOST_NODE_PARAMS *nodeParams)
{
	CUresult result = FORWARD(cuGraphHostNodeGetParams, (hNode, nodeParams));

	if (result == CUDA_SUCCESS && nodeParams)
		callback_reveal(&nodeParams->fn, &nodeParams->userData);
	return result;
}

/* A node of any type; other types have fields that the driver fills in, so only a host node's are copied. */
static CUgraphNodeParams *hidden_node(CUgraphNodeParams *params, CUgraphNodeParams *copy)
{
	if (!params || params->type != CU_GRAPH_NODE_TYPE_HOST || !shim_active())
		return params;
	*copy = *params;
	hide(&copy->host.fn, &copy->host.userData);
	return copy;
}

CUresult CUDAAPI cuGraphAddNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
	size_t numDependencies, CUgraphNodeParams *nodeParams)
{
	CUgraphNodeParams copy;

	return FORWARD(cuGraphAddNode, (phGraphNode, hGraph, dependencies, numDependencies, hidden_node(nodeParams, &copy)));
}

CUresult CUDAAPI cuGraphAddNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
	const CUgraphEdgeData *dependencyData, size_t numDependencies, CUgraphNodeParams *nodeParams)
{
	CUgraphNodeParams copy;

	return FORWARD(cuGraphAddNode_v2,
		(phGraphNode, hGraph, dependencies, dependencyData, numDependencies, hidden_node(nodeParams, &copy)));
}

CUresult CUDAAPI cuGraphNodeSetParams(CUgraphNode hNode, CUgraphNodeParams *nodeParams)
{
	CUgraphNodeParams copy;

	return FORWARD(cuGraphNodeSetParams, (hNode, hidden_node(nodeParams, &copy)));
}

CUresult CUDAAPI cuGraphExecNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, CUgraphNodeParams *nodeParams)
{
	CUgraphNodeParams copy;

	return FORWARD(cuGraphExecNodeSetParams, (hGraphExec, hNode, hidden_node(nodeParams, &copy)));
}
