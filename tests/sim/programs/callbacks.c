/* tests/sim/programs/callbacks.c
 * Every way to give the driver a function of one's own: on a stream, captured, as a node of a graph and of its copies. Each
 * runs as often as it should, with its own argument, and the driver gives back what it was given. */
#include "program.h"

#include <pthread.h>

static unsigned runs[8];

static void CUDA_CB count(void *arg)
{
	__atomic_fetch_add((unsigned *)arg, 1, __ATOMIC_RELAXED);
}

static void CUDA_CB count_two(void *arg)
{
	__atomic_fetch_add((unsigned *)arg, 2, __ATOMIC_RELAXED);
}

static void CUDA_CB count_status(CUstream stream, CUresult status, void *arg)
{
	__atomic_fetch_add((unsigned *)arg, status == CUDA_SUCCESS ? 1 : 100, __ATOMIC_RELAXED);
}

static void show(CUstream stream)
{
	NEED(cuStreamSynchronize(stream));
	for (int i = 0; i < 8; i++)
		printf("%u%s", runs[i], i < 7 ? " " : "\n");
}

static void show_node(CUgraphNode node)
{
	CUDA_HOST_NODE_PARAMS params = {0};

	TRY(cuGraphHostNodeGetParams(node, &params));
	printf("function %s, argument %d\n", params.fn == count ? "count" : params.fn == count_two ? "count_two" : "another",
		(int)((unsigned *)params.userData - runs));
}

static void on_stream(CUstream stream)
{
	for (int i = 0; i < 1000; i++)
		NEED(cuLaunchHostFunc(stream, count, &runs[0]));
	TRY(cuStreamAddCallback(stream, count_status, &runs[1], 0));
	TRY(cuStreamAddCallback(stream, count_status, &runs[1], 1));
	TRY(cuStreamAddCallback(stream, NULL, &runs[1], 0));
	TRY(cuLaunchHostFunc(stream, NULL, NULL));
	TRY(cuLaunchHostFunc((CUstream)&runs, count, &runs[2]));
	TRY(cuLaunchHostFunc(CU_STREAM_PER_THREAD, count, &runs[2]));
	NEED(cuStreamSynchronize(CU_STREAM_PER_THREAD));
	show(stream);
}

static void captured(CUstream stream)
{
	CUgraphNode node;
	CUgraphExec exec;
	CUgraph graph;
	size_t nodes = 1;

	NEED(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	TRY(cuLaunchHostFunc(stream, count, &runs[3]));
	NEED(cuStreamEndCapture(stream, &graph));
	NEED(cuGraphGetNodes(graph, &node, &nodes));
	show_node(node);
	NEED(cuGraphInstantiate(&exec, graph, 0));
	for (int i = 0; i < 5; i++)
		NEED(cuGraphLaunch(exec, stream));
	show(stream);
	NEED(cuGraphExecDestroy(exec));
	NEED(cuGraphDestroy(graph));
}

static void nodes(CUstream stream)
{
	CUDA_HOST_NODE_PARAMS params = {count, &runs[4]}, other = {count_two, &runs[5]};
	CUgraphNodeParams any = {.type = CU_GRAPH_NODE_TYPE_HOST, .host = {count, &runs[6]}};
	CUgraphNode node, second, third;
	CUgraphExec exec;
	CUgraph graph, clone;

	NEED(cuGraphCreate(&graph, 0));
	TRY(cuGraphAddHostNode(&node, graph, NULL, 0, &params));
	TRY(cuGraphAddHostNode(&second, graph, &node, 1, NULL));
	params.fn = NULL;
	TRY(cuGraphAddHostNode(&second, graph, &node, 1, &params));
	TRY(cuGraphAddNode(&second, graph, &node, NULL, 1, &any));
	SHOW(any.host.fn == count && any.host.userData == &runs[6]);
	show_node(node);
	show_node(second);
	NEED(cuGraphClone(&clone, graph));
	NEED(cuGraphInstantiate(&exec, graph, 0));
	NEED(cuGraphLaunch(exec, stream));
	show(stream);
	TRY(cuGraphExecHostNodeSetParams(exec, node, &other));
	any.host.fn = count_two;
	TRY(cuGraphExecNodeSetParams(exec, second, &any));
	NEED(cuGraphLaunch(exec, stream));
	show(stream);
	show_node(node);
	TRY(cuGraphHostNodeSetParams(node, &other));
	any.host.userData = &runs[7];
	TRY(cuGraphNodeSetParams(second, &any));
	show_node(node);
	show_node(second);
	/* what was asked for is given again */
	NEED(cuGraphHostNodeGetParams(second, &params));
	TRY(cuGraphAddHostNode(&third, graph, &second, 1, &params));
	NEED(cuGraphExecDestroy(exec));
	NEED(cuGraphInstantiate(&exec, graph, 0));
	NEED(cuGraphLaunch(exec, stream));
	show(stream);
	NEED(cuGraphExecDestroy(exec));
	NEED(cuGraphInstantiate(&exec, clone, 0));
	NEED(cuGraphLaunch(exec, stream));
	show(stream);
	NEED(cuGraphExecDestroy(exec));
	NEED(cuGraphDestroy(clone));
	NEED(cuGraphDestroy(graph));
}

static void *from_thread(void *arg)
{
	CUstream stream;

	NEED(cuCtxSetCurrent(arg));
	NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (int i = 0; i < 100; i++)
		NEED(cuLaunchHostFunc(stream, count, &runs[1]));
	NEED(cuStreamSynchronize(stream));
	NEED(cuStreamDestroy(stream));
	return NULL;
}

int main(void)
{
	CUcontext context = program_start();
	pthread_t threads[8];
	CUdeviceptr block;
	CUstream stream;

	NEED(cuMemAlloc(&block, 4 * MIB));
	NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	on_stream(stream);
	captured(stream);
	nodes(stream);
	for (int i = 0; i < 8; i++)
		pthread_create(&threads[i], NULL, from_thread, context);
	for (int i = 0; i < 8; i++)
		pthread_join(threads[i], NULL);
	show(stream);
	TRY(cuStreamDestroy(stream));
	TRY(cuMemFree(block));
	return 0;
}
