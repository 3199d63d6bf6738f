/* tests/unit/test_sim_exec.c
 * The simulated driver's execution: modules and kernels, launches, streams, events, memory operations, faults. */
#include "tests/unit/sim_harness.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sys/mman.h>

CUresult cuLaunchKernel_ptsz(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
	unsigned shared, CUstream stream, void **params, void **extra);
CUresult cuStreamGetId_ptsz(CUstream stream, unsigned long long *id);

/* ---- kernels of this program ("sublet-sim:self") ---- */

struct wide {
	uint64_t a, b, c;
};

__attribute__((visibility("default"))) uint32_t test_global[4];

static void test_mix(const struct sim_launch *launch, void **params)
{
	uint64_t *out = *(uint64_t **)params[0];
	const struct wide *w = params[2];

	out[0] = *(uint8_t *)params[1];
	out[1] = w->a + w->b + w->c;
	out[2] = *(uint32_t *)params[3];
	out[3] = launch->grid[0] * launch->block[0];
	test_global[1] = test_global[0] + 1;
}
SIM_KERNEL(test_mix, 8, 1, sizeof(struct wide), 4);

/* ---- modules and libraries ---- */

static void module_of_program_has_its_kernels(void **state)
{
	CUmodule module;
	CUfunction function, all[4];
	const char *name;
	unsigned count;
	size_t offset, size;

	OK(cuModuleLoadData(&module, "sublet-sim:self"));
	OK(cuModuleGetFunctionCount(&count, module));
	assert_int_equal(count, 1);
	OK(cuModuleEnumerateFunctions(all, 4, module));
	OK(cuModuleGetFunction(&function, module, "test_mix"));
	assert_ptr_equal(all[0], function);
	OK(cuFuncGetName(&name, function));
	assert_string_equal(name, "test_mix");
	FAILS(cuModuleGetFunction(&function, module, "nothing"), CUDA_ERROR_NOT_FOUND);
	/* 8 at 0, 1 at 8, 24 at 16, 4 at 40 */
	OK(cuFuncGetParamInfo(all[0], 2, &offset, &size));
	assert_int_equal(offset, 16);
	assert_int_equal(size, 24);
	OK(cuFuncGetParamInfo(all[0], 3, &offset, NULL));
	assert_int_equal(offset, 40);
	FAILS(cuFuncGetParamInfo(all[0], 4, &offset, &size), CUDA_ERROR_INVALID_VALUE);
}

static void module_unloaded_refuses_its_functions(void **state)
{
	CUdeviceptr p;
	CUmodule module;

	OK(cuMemAlloc(&p, 4096));
	OK(cuModuleUnload(builtin));
	FAILS(launch_fill(p, 1, 1, NULL), CUDA_ERROR_INVALID_HANDLE);
	FAILS(cuModuleUnload(builtin), CUDA_ERROR_INVALID_HANDLE);
	FAILS(cuModuleLoad(&module, "/nonexistent/file"), CUDA_ERROR_FILE_NOT_FOUND);
	FAILS(cuModuleLoadData(&module, "garbage image"), CUDA_ERROR_INVALID_IMAGE);
	FAILS(cuModuleLoadData(&module, "\177ELF"), CUDA_ERROR_NO_BINARY_FOR_GPU);
	OK(cuModuleLoadData(&builtin, "sublet-sim:builtin"));
	OK(cuModuleGetFunction(&fill, builtin, "sim_fill32"));
	OK(cuModuleGetFunction(&spin, builtin, "sim_spin"));
}

static void module_of_context_that_ended_is_gone(void **state)
{
	CUcontext second;
	CUmodule module;
	CUfunction function;

	OK(cuCtxCreate(&second, NULL, 0, 0));
	OK(cuModuleLoadData(&module, "sublet-sim:builtin"));
	OK(cuCtxDestroy(second));
	OK(cuCtxSetCurrent(context));
	FAILS(cuModuleGetFunction(&function, module, "sim_noop"), CUDA_ERROR_INVALID_HANDLE);
}

static void module_global_is_seen_by_kernel_and_copies(void **state)
{
	CUdeviceptr address, out;
	CUmodule module;
	CUfunction function;
	size_t bytes;
	uint32_t value = 41, after[4];
	uint8_t small = 7;
	uint32_t last = 9;
	struct wide w = {1, 2, 3};
	void *params[] = {&out, &small, &w, &last};
	uint64_t seen[4];

	OK(cuModuleLoadData(&module, "sublet-sim:self"));
	OK(cuModuleGetGlobal(&address, &bytes, module, "test_global"));
	assert_int_equal(bytes, sizeof(test_global));
	FAILS(cuModuleGetGlobal(&address, &bytes, module, "no_global"), CUDA_ERROR_NOT_FOUND);
	OK(cuModuleGetGlobal(&address, NULL, module, "test_global"));
	OK(cuMemcpyHtoD(address, &value, sizeof(value)));
	OK(cuMemAlloc(&out, 4096));
	OK(cuModuleGetFunction(&function, module, "test_mix"));
	OK(cuLaunchKernel(function, 3, 1, 1, 5, 1, 1, 0, NULL, params, NULL));
	OK(cuMemcpyDtoH(seen, out, sizeof(seen)));
	assert_int_equal(seen[0], 7);
	assert_int_equal(seen[1], 6);
	assert_int_equal(seen[2], 9);
	assert_int_equal(seen[3], 15);
	OK(cuMemcpyDtoH(after, address, sizeof(after)));
	assert_int_equal(after[1], 42);
}

static void library_kernel_launches_as_function(void **state)
{
	CUlibrary library, of_kernel;
	CUkernel kernel, all[8];
	CUfunction function;
	CUmodule module, of_function;
	CUdeviceptr p;
	unsigned count;
	size_t offset, size, words = 4;
	uint32_t value = 5;
	void *params[] = {&p, &words, &value};

	OK(cuLibraryLoadData(&library, "sublet-sim:builtin", NULL, NULL, 0, NULL, NULL, 0));
	OK(cuLibraryGetKernelCount(&count, library));
	assert_int_equal(count, 6);
	OK(cuLibraryEnumerateKernels(all, 8, library));
	OK(cuLibraryGetKernel(&kernel, library, "sim_fill32"));
	OK(cuKernelGetLibrary(&of_kernel, kernel));
	assert_ptr_equal(of_kernel, library);
	OK(cuKernelGetParamInfo(kernel, 2, &offset, &size));
	assert_int_equal(offset, 16);
	/* as on hardware: the cuFunc query refuses a kernel handle, a launch takes it */
	FAILS(cuFuncGetParamInfo((CUfunction)kernel, 0, &offset, &size), CUDA_ERROR_INVALID_HANDLE);
	OK(cuMemAlloc(&p, 4096));
	OK(cuLaunchKernel((CUfunction)kernel, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	assert_int_equal(word_at(p + 12), 5);
	OK(cuKernelGetFunction(&function, kernel));
	OK(cuLibraryGetModule(&module, library));
	OK(cuFuncGetModule(&of_function, function));
	assert_ptr_equal(module, of_function);
	FAILS(cuModuleUnload(module), CUDA_ERROR_NOT_PERMITTED);
	value = 6;
	OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	assert_int_equal(word_at(p), 6);
	OK(cuLibraryUnload(library));
	FAILS(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL), CUDA_ERROR_INVALID_HANDLE);
	FAILS(cuLibraryGetKernel(&kernel, library, "sim_noop"), CUDA_ERROR_INVALID_HANDLE);
}

static void function_attributes_are_kept_and_bounded(void **state)
{
	int value, blocks, grid, threads;
	size_t bytes;

	OK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, fill));
	assert_int_equal(value, 1024);
	OK(cuFuncSetAttribute(fill, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100 << 10));
	OK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, fill));
	assert_int_equal(value, 100 << 10);
	FAILS(cuFuncSetAttribute(fill, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 300 << 10), CUDA_ERROR_INVALID_VALUE);
	FAILS(cuFuncSetAttribute(fill, CU_FUNC_ATTRIBUTE_NUM_REGS, 8), CUDA_ERROR_INVALID_VALUE);
	OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, fill, 256, 0));
	assert_int_equal(blocks, 8);
	OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, fill, 256, 100 << 10));
	assert_int_equal(blocks, 2);
	OK(cuOccupancyMaxPotentialBlockSize(&grid, &threads, fill, NULL, 0, 0));
	assert_int_equal(grid * threads, 132 * 2048);
	OK(cuOccupancyAvailableDynamicSMemPerBlock(&bytes, fill, 2, 256));
	assert_int_equal(bytes, 113 << 10);
}

/* ---- launches ---- */

static void launch_takes_packed_parameters(void **state)
{
	struct {
		CUdeviceptr p;
		size_t words;
		uint32_t value;
	} packed = {.words = 2, .value = 77};
	size_t bytes = 20, too_few = 12;
	void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
	void *small[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &too_few, CU_LAUNCH_PARAM_END};
	void *params[] = {&packed.p, &packed.words, &packed.value};
	CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, NULL, NULL, 0};

	OK(cuMemAlloc(&packed.p, 4096));
	OK(cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra));
	assert_int_equal(word_at(packed.p + 4), 77);
	packed.value = 78;
	OK(cuLaunchKernelEx(&config, fill, NULL, extra));
	assert_int_equal(word_at(packed.p), 78);
	FAILS(cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, small), CUDA_ERROR_INVALID_VALUE);
	FAILS(cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, NULL, params, extra), CUDA_ERROR_INVALID_VALUE);
	FAILS(cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
}

static void launch_with_bad_shape_is_refused(void **state)
{
	CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, .value.clusterDim = {2, 1, 1}};
	CUlaunchConfig config = {3, 1, 1, 1, 1, 1, 0, NULL, &attribute, 1};
	CUfunction noop;

	OK(cuModuleGetFunction(&noop, builtin, "sim_noop"));
	FAILS(cuLaunchKernel(noop, 0, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
	FAILS(cuLaunchKernel(noop, 1, 1, 1, 1025, 1, 1, 0, NULL, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
	FAILS(cuLaunchKernel(noop, 1, 70000, 1, 1, 1, 1, 0, NULL, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
	FAILS(cuLaunchKernel(noop, 1, 1, 1, 1, 1, 1, 60 << 10, NULL, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
	FAILS(cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), CUDA_ERROR_INVALID_HANDLE);
	FAILS(cuLaunchCooperativeKernel(noop, 132 * 2 + 1, 1, 1, 1024, 1, 1, 0, NULL, NULL),
		CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
	OK(cuLaunchCooperativeKernel(noop, 132 * 2, 1, 1, 1024, 1, 1, 0, NULL, NULL));
	FAILS(cuLaunchKernelEx(&config, noop, NULL, NULL), CUDA_ERROR_INVALID_VALUE); /* 3 is not a multiple of 2 */
	config.gridDimX = 4;
	OK(cuLaunchKernelEx(&config, noop, NULL, NULL));
}

static void launch_of_other_context_is_refused(void **state)
{
	CUcontext second;
	CUfunction noop;

	OK(cuModuleGetFunction(&noop, builtin, "sim_noop"));
	OK(cuCtxCreate(&second, NULL, 0, 0));
	FAILS(cuLaunchKernel(noop, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), CUDA_ERROR_INVALID_HANDLE);
	OK(cuCtxDestroy(second));
	OK(cuCtxSetCurrent(context));
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations" /* old programs use them */
static void launch_old_form_runs(void **state)
{
	CUdeviceptr p;
	uint64_t words = 1;

	OK(cuMemAlloc(&p, 4096));
	OK(cuFuncSetBlockShape(fill, 1, 1, 1));
	OK(cuParamSetv(fill, 0, &p, 8));
	OK(cuParamSetv(fill, 8, &words, 8));
	OK(cuParamSeti(fill, 16, 123));
	OK(cuParamSetSize(fill, 20));
	OK(cuLaunch(fill));
	assert_int_equal(word_at(p), 123);
}
#pragma GCC diagnostic pop

/* ---- streams ---- */

static void legacy_stream_waits_for_blocking_streams(void **state)
{
	CUstream blocking, other;
	CUdeviceptr p;
	volatile uint32_t *word = pinned_word(&p);

	OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
	OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	close_gate(blocking);
	OK(launch_fill(p, 1, 1, NULL)); /* behind the gate */
	OK(launch_fill(p + 64, 1, 1, blocking)); /* behind the legacy stream */
	OK(launch_fill(p + 128, 1, 1, other));
	OK(cuStreamSynchronize(other));
	assert_int_equal(word[32], 1);
	assert_int_equal(word[0], 0);
	FAILS(cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
	FAILS(cuStreamQuery(blocking), CUDA_ERROR_NOT_READY);
	OK(cuStreamQuery(other));
	open_gate();
	OK(cuStreamSynchronize(blocking));
	assert_int_equal(word[0], 1);
	assert_int_equal(word[16], 1);
	OK(cuStreamQuery(NULL));
}

static void *thread_stream(void *arg)
{
	OK(cuCtxSetCurrent(context));
	OK(cuStreamGetId(CU_STREAM_PER_THREAD, arg));
	return NULL;
}

static void per_thread_stream_is_one_per_thread(void **state)
{
	unsigned long long here, twin, there;
	pthread_t thread;

	OK(cuStreamGetId(CU_STREAM_PER_THREAD, &here));
	OK(cuStreamGetId_ptsz(NULL, &twin));
	assert_true(here == twin);
	assert_int_equal(pthread_create(&thread, NULL, thread_stream, &there), 0);
	pthread_join(thread, NULL);
	assert_true(here != there);
	OK(cuStreamGetId(NULL, &there));
	assert_true(here != there);
	FAILS(cuStreamDestroy(CU_STREAM_PER_THREAD), CUDA_ERROR_INVALID_HANDLE);
}

static void per_thread_launch_does_not_wait_for_another_stream(void **state)
{
	CUstream stream;
	CUdeviceptr p;
	size_t words = 1;
	uint32_t value = 3;
	void *params[] = {&p, &words, &value};
	volatile uint32_t *word = pinned_word(&p);

	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	close_gate(stream);
	OK(cuLaunchKernel_ptsz(fill, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
	assert_int_equal(*word, 3);
	FAILS(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
}

static void stream_facts_are_answered(void **state)
{
	CUstreamAttrValue value = {.accessPolicyWindow.num_bytes = 4096}, back;
	CUstream stream, second;
	CUcontext of_stream;
	CUdevice device = -1;
	unsigned flags;
	int priority, least, greatest;

	OK(cuCtxGetStreamPriorityRange(&least, &greatest));
	OK(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, greatest - 10));
	OK(cuStreamGetPriority(stream, &priority));
	assert_int_equal(priority, greatest);
	OK(cuStreamGetFlags(stream, &flags));
	assert_int_equal(flags, CU_STREAM_NON_BLOCKING);
	OK(cuStreamGetCtx(stream, &of_stream));
	assert_ptr_equal(of_stream, context);
	OK(cuStreamGetDevice(stream, &device));
	assert_int_equal(device, 0);
	OK(cuStreamSetAttribute(stream, CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW, &value));
	OK(cuStreamCreate(&second, 0));
	OK(cuStreamCopyAttributes(second, stream));
	OK(cuStreamGetAttribute(second, CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW, &back));
	assert_int_equal(back.accessPolicyWindow.num_bytes, 4096);
	FAILS(cuStreamCreate(&second, 8), CUDA_ERROR_INVALID_VALUE);
	OK(cuStreamDestroy(stream));
	FAILS(cuStreamQuery(stream), CUDA_ERROR_INVALID_HANDLE);
}

static void stream_of_context_that_ended_is_gone(void **state)
{
	CUstream stream;
	CUcontext again;

	OK(cuStreamCreate(&stream, 0));
	OK(cuDevicePrimaryCtxRelease(0));
	OK(cuDevicePrimaryCtxRetain(&again, 0));
	OK(cuCtxSetCurrent(again));
	FAILS(cuStreamQuery(stream), CUDA_ERROR_INVALID_HANDLE);
	OK(cuMemHostAlloc((void **)&gate, 4096, 0)); /* for the teardown: the old one went with the context */
}

static void CUDA_CB note_status(CUstream stream, CUresult status, void *user)
{
	*(int *)user = 1000 + (int)status;
}

static void CUDA_CB count_up(void *user)
{
	++*(int *)user;
}

static void host_functions_run_in_order(void **state)
{
	int count = 0, status = 0;
	CUstream stream;

	OK(cuStreamCreate(&stream, 0));
	close_gate(stream);
	OK(cuLaunchHostFunc(stream, count_up, &count));
	OK(cuStreamAddCallback(stream, note_status, &status, 0));
	assert_int_equal(count, 0);
	open_gate();
	OK(cuStreamSynchronize(stream));
	assert_int_equal(count, 1);
	assert_int_equal(status, 1000);
	FAILS(cuStreamAddCallback(stream, note_status, &status, 1), CUDA_ERROR_INVALID_VALUE);
}

static void memory_operations_order_two_streams(void **state)
{
	CUstream waiter, writer;
	CUdeviceptr p;
	volatile uint32_t *word = pinned_word(&p);
	CUstreamBatchMemOpParams list[2] = {
		{.writeValue = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64, .address = p + 64, .value64 = 1ull << 40}},
		{.writeValue = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32, .address = p, .value = 7}}};

	OK(cuStreamCreate(&waiter, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&writer, CU_STREAM_NON_BLOCKING));
	OK(cuStreamWaitValue32(waiter, p, 5, CU_STREAM_WAIT_VALUE_GEQ));
	OK(launch_fill(p + 128, 1, 9, waiter));
	usleep(20000);
	FAILS(cuStreamQuery(waiter), CUDA_ERROR_NOT_READY);
	OK(cuStreamBatchMemOp(writer, 2, list, 0));
	OK(cuStreamSynchronize(waiter));
	assert_int_equal(word[32], 9);
	assert_true(*(volatile uint64_t *)&word[16] == 1ull << 40);
	OK(cuStreamWaitValue64(waiter, p + 64, 1ull << 40, CU_STREAM_WAIT_VALUE_EQ));
	OK(cuStreamSynchronize(waiter));
	FAILS(cuStreamWriteValue32(writer, p + 1, 0, 0), CUDA_ERROR_INVALID_VALUE);
	OK(cuStreamWriteValue32(writer, p, 0, 0));
	OK(cuStreamWaitValue32(waiter, p, 0xffffffff, CU_STREAM_WAIT_VALUE_NOR | CU_STREAM_WAIT_VALUE_FLUSH));
	/* never satisfied: the reset at the end must not hang on it */
}

/* ---- events ---- */

static void event_follows_its_stream(void **state)
{
	CUstream stream, second;
	CUevent event, untimed;
	CUdeviceptr p;
	volatile uint32_t *word = pinned_word(&p);
	float ms;

	OK(cuEventCreate(&event, 0));
	OK(cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
	OK(cuEventQuery(event)); /* never recorded: done */
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
	close_gate(stream);
	OK(cuEventRecord(event, stream));
	OK(cuEventRecord(untimed, stream));
	FAILS(cuEventQuery(event), CUDA_ERROR_NOT_READY);
	FAILS(cuEventElapsedTime(&ms, event, event), CUDA_ERROR_NOT_READY);
	OK(cuStreamWaitEvent(second, untimed, 0));
	OK(launch_fill(p, 1, 4, second));
	usleep(10000);
	assert_int_equal(*word, 0);
	open_gate();
	OK(cuStreamSynchronize(second));
	assert_int_equal(*word, 4);
	OK(cuEventSynchronize(event));
	FAILS(cuEventElapsedTime(&ms, event, untimed), CUDA_ERROR_INVALID_HANDLE);
	OK(cuEventDestroy(event));
	FAILS(cuEventQuery(event), CUDA_ERROR_INVALID_HANDLE);
	FAILS(cuEventCreate(&event, CU_EVENT_INTERPROCESS), CUDA_ERROR_INVALID_VALUE);
}

static void event_elapsed_time_is_that_of_the_work(void **state)
{
	uint32_t ms_busy = 30;
	void *params[] = {&ms_busy};
	CUevent start, end;
	CUstream stream;
	float ms;

	OK(cuStreamCreate(&stream, 0));
	OK(cuEventCreate(&start, 0));
	OK(cuEventCreate(&end, 0));
	FAILS(cuEventElapsedTime(&ms, start, end), CUDA_ERROR_INVALID_HANDLE);
	OK(cuEventRecord(start, stream));
	OK(cuLaunchKernel(busy, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
	OK(cuEventRecord(end, stream));
	OK(cuEventSynchronize(end));
	OK(cuEventElapsedTime(&ms, start, end));
	assert_true(ms >= 30);
}

static void event_of_context_covers_all_streams(void **state)
{
	CUstream streams[100];
	CUevent event;

	OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	/* more than a fixed list would hold */
	for (int i = 0; i < 100; i++) {
		OK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
		close_gate(streams[i]);
	}
	OK(cuCtxRecordEvent(context, event));
	FAILS(cuEventQuery(event), CUDA_ERROR_NOT_READY);
	open_gate();
	OK(cuEventSynchronize(event));
	for (int i = 0; i < 100; i++)
		OK(cuStreamQuery(streams[i]));
}

/* ---- copies ---- */

static void copy_of_rectangle_moves_rows(void **state)
{
	unsigned char from[8][16], back[8][16];
	CUdeviceptr p;
	CUDA_MEMCPY2D in = {.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = from, .srcPitch = 16, .srcXInBytes = 4, .srcY = 2,
		.dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstPitch = 512, .WidthInBytes = 8, .Height = 3};
	CUDA_MEMCPY3D out = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcPitch = 512, .srcHeight = 3,
		.dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = back, .dstPitch = 16, .dstHeight = 8, .dstXInBytes = 1,
		.WidthInBytes = 8, .Height = 3, .Depth = 1};

	for (int i = 0; i < 128; i++)
		from[i / 16][i % 16] = (unsigned char)i;
	memset(back, 255, sizeof(back));
	OK(cuMemAlloc(&p, 4096));
	in.dstDevice = out.srcDevice = p;
	OK(cuMemcpy2D(&in));
	OK(cuMemcpy3D(&out));
	assert_memory_equal(&back[0][1], &from[2][4], 8);
	assert_memory_equal(&back[2][1], &from[4][4], 8);
	assert_int_equal(back[0][0], 255);
	assert_int_equal(back[0][9], 255);
	OK(cuMemsetD2D16(p, 512, 0x1234, 3, 2));
	OK(cuMemcpyDtoH(back, p, 16));
	assert_int_equal(((uint16_t *)back)[2], 0x1234);
	assert_int_equal(back[0][6], from[2][10]);
	in.dstPitch = 4;
	FAILS(cuMemcpy2D(&in), CUDA_ERROR_INVALID_VALUE);
}

static void copy_of_small_pageable_source_lets_it_be_reused(void **state)
{
	CUstream stream;
	CUdeviceptr p;
	uint32_t value = 1;

	OK(cuMemAlloc(&p, 4096));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	close_gate(stream);
	OK(cuMemcpyHtoDAsync(p, &value, sizeof(value), stream)); /* returns although the stream is busy */
	value = 2;
	open_gate();
	OK(cuStreamSynchronize(stream));
	assert_int_equal(word_at(p), 1);
}

/* ---- faults ---- */

static void kernel_on_unmapped_memory_loses_the_context(void **state)
{
	CUdeviceptr reserved, p;
	CUstream stream;
	CUevent event;
	size_t free_bytes, total;

	OK(cuMemAlloc(&p, 4096));
	OK(cuStreamCreate(&stream, 0));
	OK(cuEventCreate(&event, 0));
	OK(cuMemAddressReserve(&reserved, 2 << 20, 0, 0, 0));
	/* a copy is refused and harms nothing */
	FAILS(cuMemsetD8(reserved, 0, 16), CUDA_ERROR_INVALID_VALUE);
	OK(cuStreamSynchronize(stream));
	OK(launch_fill(reserved, 1, 1, stream));
	FAILS(cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
	FAILS(launch_fill(p, 1, 1, stream), CUDA_ERROR_ILLEGAL_ADDRESS);
	FAILS(cuMemcpyDtoH(&free_bytes, p, 8), CUDA_ERROR_ILLEGAL_ADDRESS);
	FAILS(cuEventRecord(event, stream), CUDA_ERROR_ILLEGAL_ADDRESS);
	FAILS(cuEventQuery(event), CUDA_ERROR_ILLEGAL_ADDRESS);
	FAILS(cuMemGetInfo(&free_bytes, &total), CUDA_ERROR_ILLEGAL_ADDRESS);
	FAILS(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void copy_whose_memory_left_in_flight_loses_the_context(void **state)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location.type = CU_MEM_LOCATION_TYPE_DEVICE};
	CUmemAccessDesc access = {.location.type = CU_MEM_LOCATION_TYPE_DEVICE, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemGenericAllocationHandle handle;
	CUdeviceptr p, other;
	CUstream stream;

	OK(cuMemAlloc(&other, 2 << 20));
	OK(cuMemCreate(&handle, 2 << 20, &prop, 0));
	OK(cuMemAddressReserve(&p, 2 << 20, 0, 0, 0));
	OK(cuMemMap(p, 2 << 20, 0, handle, 0));
	OK(cuMemSetAccess(p, 2 << 20, &access, 1));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	close_gate(stream);
	OK(cuMemcpyDtoDAsync(other, p, 2 << 20, stream));
	OK(cuMemUnmap(p, 2 << 20));
	open_gate();
	FAILS(cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
	FAILS(cuStreamQuery(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(module_of_program_has_its_kernels),
		CASE(module_unloaded_refuses_its_functions),
		CASE(module_of_context_that_ended_is_gone),
		CASE(module_global_is_seen_by_kernel_and_copies),
		CASE(library_kernel_launches_as_function),
		CASE(function_attributes_are_kept_and_bounded),
		CASE(launch_takes_packed_parameters),
		CASE(launch_with_bad_shape_is_refused),
		CASE(launch_of_other_context_is_refused),
		CASE(launch_old_form_runs),
		CASE(legacy_stream_waits_for_blocking_streams),
		CASE(per_thread_stream_is_one_per_thread),
		CASE(per_thread_launch_does_not_wait_for_another_stream),
		CASE(stream_facts_are_answered),
		CASE(stream_of_context_that_ended_is_gone),
		CASE(host_functions_run_in_order),
		CASE(memory_operations_order_two_streams),
		CASE(event_follows_its_stream),
		CASE(event_elapsed_time_is_that_of_the_work),
		CASE(event_of_context_covers_all_streams),
		CASE(copy_of_rectangle_moves_rows),
		CASE(copy_of_small_pageable_source_lets_it_be_reused),
		CASE(kernel_on_unmapped_memory_loses_the_context),
		CASE(copy_whose_memory_left_in_flight_loses_the_context),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
