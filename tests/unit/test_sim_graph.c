/* tests/unit/test_sim_graph.c
 * The simulated driver's graphs: nodes of each kind, queries, executables and their changes, user objects, memory. */
#include "tests/unit/sim_harness.h"

static CUstream stream;
static CUdeviceptr memory; /* one zeroed page on the device */

static int setup_graph(void **state)
{
	setup(state);
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuMemAlloc(&memory, 4096));
	OK(cuMemsetD8(memory, 0, 4096));
	return 0;
}

static CUDA_KERNEL_NODE_PARAMS kernel_params(CUfunction function, void **params)
{
	return (CUDA_KERNEL_NODE_PARAMS){.func = function, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1,
		.blockDimY = 1, .blockDimZ = 1, .kernelParams = params};
}

static void run(CUgraphExec exec)
{
	OK(cuGraphLaunch(exec, stream));
	OK(cuStreamSynchronize(stream));
}

static void CUDA_CB count_up(void *user)
{
	__atomic_add_fetch((int *)user, 1, __ATOMIC_SEQ_CST);
}

/* fill(memory, 1 word, value) -> add(memory, 1 word, 10) */
static void build_two(CUgraph *ret_graph, CUgraphNode *ret_fill, CUgraphNode *ret_add, uint32_t value)
{
	size_t words = 1;
	uint32_t ten = 10;
	void *fill_params[] = {&memory, &words, &value}, *add_params[] = {&memory, &words, &ten};
	CUDA_KERNEL_NODE_PARAMS f = kernel_params(fill, fill_params), a = kernel_params(add, add_params);

	OK(cuGraphCreate(ret_graph, 0));
	OK(cuGraphAddKernelNode(ret_fill, *ret_graph, NULL, 0, &f));
	OK(cuGraphAddKernelNode(ret_add, *ret_graph, ret_fill, 1, &a));
}

static void graph_of_kernels_runs_in_order(void **state)
{
	CUgraphNode f, a, list[4], from[4], to[4];
	CUgraphNodeType type;
	CUgraphExec exec;
	CUgraph graph;
	size_t count = 0;

	build_two(&graph, &f, &a, 5);
	OK(cuGraphGetNodes(graph, NULL, &count));
	assert_int_equal(count, 2);
	count = 4;
	OK(cuGraphGetNodes(graph, list, &count));
	assert_int_equal(count, 2);
	assert_null(list[2]);
	count = 4;
	OK(cuGraphGetRootNodes(graph, list, &count));
	assert_int_equal(count, 1);
	assert_ptr_equal(list[0], f);
	count = 4;
	OK(cuGraphGetEdges(graph, from, to, NULL, &count));
	assert_int_equal(count, 1);
	assert_ptr_equal(from[0], f);
	assert_ptr_equal(to[0], a);
	count = 4;
	OK(cuGraphNodeGetDependencies(a, list, NULL, &count));
	assert_int_equal(count, 1);
	count = 4;
	OK(cuGraphNodeGetDependentNodes(f, list, NULL, &count));
	assert_ptr_equal(list[0], a);
	OK(cuGraphNodeGetType(f, &type));
	assert_int_equal(type, CU_GRAPH_NODE_TYPE_KERNEL);
	OK(cuGraphInstantiate(&exec, graph, 0));
	OK(cuGraphDestroy(graph)); /* the executable needs it no more */
	run(exec);
	assert_int_equal(word_at(memory), 15);
	run(exec);
	assert_int_equal(word_at(memory), 15);
	FAILS(cuGraphGetNodes(graph, NULL, &count), CUDA_ERROR_INVALID_VALUE);
	FAILS(cuGraphNodeGetType(f, &type), CUDA_ERROR_INVALID_VALUE);
	OK(cuGraphExecDestroy(exec));
	FAILS(cuGraphLaunch(exec, stream), CUDA_ERROR_INVALID_VALUE);
}

static void graph_with_cycle_is_refused(void **state)
{
	CUDA_GRAPH_INSTANTIATE_PARAMS params = {0};
	CUgraphNode f, a;
	CUgraphExec exec;
	CUgraph graph;

	build_two(&graph, &f, &a, 5);
	OK(cuGraphAddDependencies(graph, &a, &f, NULL, 1));
	FAILS(cuGraphInstantiateWithParams(&exec, graph, &params), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(params.result_out, CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE);
	OK(cuGraphRemoveDependencies(graph, &f, &a, NULL, 1)); /* now add before fill */
	OK(cuGraphInstantiate(&exec, graph, 0));
	run(exec);
	assert_int_equal(word_at(memory), 5);
	FAILS(cuGraphAddDependencies(graph, &a, &f, NULL, 1), CUDA_ERROR_INVALID_VALUE); /* there already */
	FAILS(cuGraphAddDependencies(graph, &a, &a, NULL, 1), CUDA_ERROR_INVALID_VALUE);
}

static void graph_params_can_be_asked_and_set(void **state)
{
	CUgraphNode f, a;
	CUgraphExec exec, second;
	CUgraph graph;
	CUDA_KERNEL_NODE_PARAMS seen;
	size_t words = 2;
	uint32_t value = 100;
	void *params[] = {&memory, &words, &value};
	CUDA_KERNEL_NODE_PARAMS set = kernel_params(fill, params);
	unsigned enabled;

	build_two(&graph, &f, &a, 5);
	OK(cuGraphKernelNodeGetParams(f, &seen));
	assert_ptr_equal(seen.func, fill);
	assert_int_equal(*(uint32_t *)seen.kernelParams[2], 5);
	OK(cuGraphInstantiate(&exec, graph, 0));
	OK(cuGraphExecKernelNodeSetParams(exec, f, &set));
	run(exec);
	assert_int_equal(word_at(memory), 110);
	assert_int_equal(word_at(memory + 4), 100);
	OK(cuGraphKernelNodeGetParams(f, &seen)); /* the graph keeps its own */
	assert_int_equal(*(uint32_t *)seen.kernelParams[2], 5);
	value = 200;
	OK(cuGraphKernelNodeSetParams(f, &set));
	OK(cuGraphInstantiate(&second, graph, 0));
	run(second);
	assert_int_equal(word_at(memory), 210);
	OK(cuGraphNodeSetEnabled(second, a, 0));
	OK(cuGraphNodeGetEnabled(second, a, &enabled));
	assert_int_equal(enabled, 0);
	run(second);
	assert_int_equal(word_at(memory), 200);
}

static void graph_change_leaves_launch_in_flight_alone(void **state)
{
	CUgraphNode f, a;
	CUgraphExec exec;
	CUgraph graph;
	size_t words = 1;
	uint32_t value = 50;
	void *params[] = {&memory, &words, &value};
	CUDA_KERNEL_NODE_PARAMS set = kernel_params(fill, params);

	build_two(&graph, &f, &a, 1);
	OK(cuGraphInstantiate(&exec, graph, 0));
	close_gate(stream);
	OK(cuGraphLaunch(exec, stream));
	OK(cuGraphExecKernelNodeSetParams(exec, f, &set));
	open_gate();
	OK(cuStreamSynchronize(stream));
	assert_int_equal(word_at(memory), 11);
	run(exec);
	assert_int_equal(word_at(memory), 60);
}

static void graph_update_takes_parameters_and_refuses_topology(void **state)
{
	CUgraphExecUpdateResultInfo info;
	CUgraphNode f, a, e;
	CUgraph graph, other;
	CUgraphExec exec;

	build_two(&graph, &f, &a, 1);
	OK(cuGraphInstantiate(&exec, graph, 0));
	build_two(&other, &f, &a, 70);
	OK(cuGraphExecUpdate(exec, other, &info));
	run(exec);
	assert_int_equal(word_at(memory), 80);
	OK(cuGraphAddEmptyNode(&e, other, NULL, 0));
	FAILS(cuGraphExecUpdate(exec, other, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
	assert_int_equal(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
	run(exec);
	assert_int_equal(word_at(memory), 80);
}

static void graph_nodes_of_every_kind_run(void **state)
{
	int count = 0;
	uint32_t host_word = 3;
	CUDA_MEMSET_NODE_PARAMS set = {.dst = memory, .value = 0x01010101, .elementSize = 4, .width = 4, .height = 1}, set_seen;
	CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = memory, .dstMemoryType = CU_MEMORYTYPE_HOST,
		.dstHost = &host_word, .WidthInBytes = 4, .Height = 1, .Depth = 1}, copy_seen;
	CUDA_HOST_NODE_PARAMS host = {count_up, &count}, host_seen;
	CUstreamBatchMemOpParams op = {.writeValue = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32, .address = memory + 64, .value = 8}};
	CUDA_BATCH_MEM_OP_NODE_PARAMS batch = {context, 1, &op, 0}, batch_seen;
	CUgraphNodeParams general = {.type = CU_GRAPH_NODE_TYPE_EMPTY};
	CUgraphNode nodes[10], found;
	CUgraph graph, child, embedded, clone;
	CUevent event, event_seen;
	CUgraphExec exec;
	size_t n = 0;

	OK(cuEventCreate(&event, 0));
	OK(cuGraphCreate(&child, 0));
	OK(cuGraphAddHostNode(&nodes[0], child, NULL, 0, &host));
	OK(cuGraphCreate(&graph, 0));
	OK(cuGraphAddMemsetNode(&nodes[0], graph, NULL, 0, &set, context));
	OK(cuGraphAddMemcpyNode(&nodes[1], graph, &nodes[0], 1, &copy, context));
	OK(cuGraphAddHostNode(&nodes[2], graph, &nodes[1], 1, &host));
	OK(cuGraphAddChildGraphNode(&nodes[3], graph, &nodes[2], 1, child));
	OK(cuGraphAddNode(&nodes[4], graph, &nodes[3], NULL, 1, &general));
	OK(cuGraphAddBatchMemOpNode(&nodes[5], graph, &nodes[4], 1, &batch));
	OK(cuGraphAddEventRecordNode(&nodes[6], graph, &nodes[5], 1, event));
	OK(cuGraphAddEventWaitNode(&nodes[7], graph, &nodes[6], 1, event));
	OK(cuGraphMemsetNodeGetParams(nodes[0], &set_seen));
	assert_int_equal(set_seen.value, 0x01010101);
	OK(cuGraphMemcpyNodeGetParams(nodes[1], &copy_seen));
	assert_ptr_equal(copy_seen.dstHost, &host_word);
	OK(cuGraphHostNodeGetParams(nodes[2], &host_seen));
	assert_ptr_equal(host_seen.userData, &count);
	OK(cuGraphBatchMemOpNodeGetParams(nodes[5], &batch_seen));
	assert_int_equal(batch_seen.paramArray[0].writeValue.value, 8);
	OK(cuGraphEventRecordNodeGetEvent(nodes[6], &event_seen));
	assert_ptr_equal(event_seen, event);
	OK(cuGraphChildGraphNodeGetGraph(nodes[3], &embedded));
	assert_ptr_not_equal(embedded, child);
	OK(cuGraphGetNodes(embedded, NULL, &n));
	assert_int_equal(n, 1);
	FAILS(cuGraphDestroy(embedded), CUDA_ERROR_INVALID_VALUE); /* the node's */
	FAILS(cuGraphMemsetNodeGetParams(nodes[1], &set_seen), CUDA_ERROR_INVALID_VALUE);
	OK(cuGraphClone(&clone, graph));
	OK(cuGraphNodeFindInClone(&found, nodes[2], clone));
	OK(cuGraphHostNodeGetParams(found, &host_seen));
	assert_ptr_equal(host_seen.userData, &count);
	OK(cuGraphInstantiate(&exec, clone, 0));
	run(exec);
	assert_int_equal(host_word, 0x01010101);
	assert_int_equal(count, 2);
	assert_int_equal(word_at(memory + 64), 8);
	OK(cuEventQuery(event));
	OK(cuGraphDestroyNode(nodes[2]));
	n = 0;
	OK(cuGraphGetNodes(graph, NULL, &n));
	assert_int_equal(n, 7);
}

static void graph_node_with_bad_parameters_is_refused(void **state)
{
	CUDA_MEMSET_NODE_PARAMS set = {.dst = memory, .elementSize = 3, .width = 4, .height = 1};
	CUDA_KERNEL_NODE_PARAMS k = kernel_params(fill, NULL);
	CUgraph graph, other;
	CUgraphNode node, foreign, twice[2];

	OK(cuGraphCreate(&graph, 0));
	OK(cuGraphCreate(&other, 0));
	FAILS(cuGraphAddMemsetNode(&node, graph, NULL, 0, &set, context), CUDA_ERROR_INVALID_VALUE);
	FAILS(cuGraphAddKernelNode(&node, graph, NULL, 0, &k), CUDA_ERROR_INVALID_VALUE);
	OK(cuGraphAddEmptyNode(&foreign, other, NULL, 0));
	FAILS(cuGraphAddEmptyNode(&node, graph, &foreign, 1), CUDA_ERROR_INVALID_VALUE);
	twice[0] = twice[1] = foreign;
	FAILS(cuGraphAddEmptyNode(&node, other, twice, 2), CUDA_ERROR_INVALID_VALUE);
	FAILS(cuGraphCreate(&graph, 1), CUDA_ERROR_INVALID_VALUE);
}

static void graph_faulting_kernel_loses_the_context(void **state)
{
	CUdeviceptr reserved;
	CUgraphNode f, a;
	CUgraphExec exec;
	CUgraph graph;
	size_t words = 1;
	uint32_t value = 50;
	void *params[] = {&reserved, &words, &value};
	CUDA_KERNEL_NODE_PARAMS set = kernel_params(fill, params);

	OK(cuMemAddressReserve(&reserved, 2 << 20, 0, 0, 0));
	build_two(&graph, &f, &a, 1);
	OK(cuGraphInstantiate(&exec, graph, 0));
	OK(cuGraphExecKernelNodeSetParams(exec, f, &set));
	OK(cuGraphLaunch(exec, stream));
	FAILS(cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
	FAILS(cuGraphLaunch(exec, stream), CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void user_object_lives_as_long_as_its_graphs(void **state)
{
	static int destroyed;
	CUuserObject object;
	CUgraphExec exec;
	CUgraph graph;

	destroyed = 0;
	FAILS(cuUserObjectCreate(&object, &destroyed, count_up, 1, 0), CUDA_ERROR_INVALID_VALUE);
	OK(cuUserObjectCreate(&object, &destroyed, count_up, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
	OK(cuGraphCreate(&graph, 0));
	OK(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
	OK(cuGraphInstantiate(&exec, graph, 0));
	OK(cuGraphDestroy(graph));
	usleep(10000);
	assert_int_equal(__atomic_load_n(&destroyed, __ATOMIC_SEQ_CST), 0);
	OK(cuGraphExecDestroy(exec));
	for (int i = 0; i < 500 && !__atomic_load_n(&destroyed, __ATOMIC_SEQ_CST); i++)
		usleep(10000);
	assert_int_equal(destroyed, 1);
}

static void graph_memory_is_counted_until_nobody_refers_to_it(void **state)
{
	CUDA_MEM_ALLOC_NODE_PARAMS alloc = {.bytesize = 4 << 20,
		.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}}};
	CUDA_MEMSET_NODE_PARAMS set = {.value = 9, .elementSize = 1, .width = 64, .height = 1};
	CUgraphNode a, s, f;
	CUgraphExec exec;
	CUgraph graph;
	cuuint64_t used, reserved, high;

	OK(cuGraphCreate(&graph, 0));
	OK(cuGraphAddMemAllocNode(&a, graph, NULL, 0, &alloc));
	set.dst = alloc.dptr;
	OK(cuGraphAddMemsetNode(&s, graph, &a, 1, &set, context));
	OK(cuGraphInstantiate(&exec, graph, 0));
	run(exec);
	OK(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &used));
	assert_int_equal(used, 4 << 20);
	assert_int_equal(word_at(alloc.dptr), 0x09090909);
	FAILS(cuGraphLaunch(exec, stream), CUDA_ERROR_INVALID_VALUE); /* its memory was not freed */
	OK(cuMemFreeAsync(alloc.dptr, stream));
	run(exec);
	OK(cuMemFreeAsync(alloc.dptr, stream));
	OK(cuGraphAddMemFreeNode(&f, graph, &s, 1, alloc.dptr));
	FAILS(cuGraphDestroyNode(a), CUDA_ERROR_NOT_SUPPORTED);
	OK(cuGraphExecDestroy(exec));
	OK(cuGraphInstantiate(&exec, graph, 0));
	run(exec);
	run(exec); /* frees what it takes */
	OK(cuGraphExecDestroy(exec));
	OK(cuGraphDestroy(graph));
	OK(cuDeviceGraphMemTrim(0));
	OK(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &reserved));
	assert_int_equal(reserved, 0);
	OK(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH, &high));
	assert_int_equal(high, 4 << 20);
	high = 0;
	OK(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH, &high));
}

static void graph_picture_is_written(void **state)
{
	char path[] = "/tmp/sim_graph_XXXXXX", text[4096] = "";
	CUgraphNode f, a;
	CUgraph graph;
	FILE *file;
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	close(fd);
	build_two(&graph, &f, &a, 1);
	OK(cuGraphDebugDotPrint(graph, path, 0));
	file = fopen(path, "r");
	assert_non_null(file);
	assert_true(fread(text, 1, sizeof(text) - 1, file) > 0);
	fclose(file);
	unlink(path);
	assert_non_null(strstr(text, "KERNEL"));
	assert_non_null(strstr(text, "->"));
}

#undef CASE
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup_graph, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(graph_of_kernels_runs_in_order),
		CASE(graph_with_cycle_is_refused),
		CASE(graph_params_can_be_asked_and_set),
		CASE(graph_change_leaves_launch_in_flight_alone),
		CASE(graph_update_takes_parameters_and_refuses_topology),
		CASE(graph_nodes_of_every_kind_run),
		CASE(graph_node_with_bad_parameters_is_refused),
		CASE(graph_faulting_kernel_loses_the_context),
		CASE(user_object_lives_as_long_as_its_graphs),
		CASE(graph_memory_is_counted_until_nobody_refers_to_it),
		CASE(graph_picture_is_written),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
