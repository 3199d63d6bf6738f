/* tools/sim/sim_launch.c
 * Modules, kernels and launches. A kernel runs under a guard: touching memory that is not mapped loses the context, as on
 * hardware, and not the process. */
#include "tools/sim/sim_priv.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static __thread sigjmp_buf *guard;
static struct sigaction previous_segv, previous_bus;

static void on_fault(int number, siginfo_t *info, void *ucontext)
{
	struct sigaction *previous = number == SIGBUS ? &previous_bus : &previous_segv;

	if (guard)
		siglongjmp(*guard, 1);
	/* Not a kernel's: what would have happened without this handler. */
	if (previous->sa_flags & SA_SIGINFO) {
		previous->sa_sigaction(number, info, ucontext);
	} else if (previous->sa_handler != SIG_IGN && previous->sa_handler != SIG_DFL) {
		previous->sa_handler(number);
	} else {
		signal(number, SIG_DFL);
		raise(number);
	}
}

static void install_guard(void)
{
	struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER};

	sigaction(SIGSEGV, &action, &previous_segv);
	sigaction(SIGBUS, &action, &previous_bus);
}

/* ---- built-in kernels ---- */

static void sim_noop(const struct sim_launch *launch, void **params)
{
}

static void sim_fill32(const struct sim_launch *launch, void **params)
{
	uint32_t *p = *(uint32_t **)params[0], value = *(uint32_t *)params[2];
	size_t words = *(size_t *)params[1];

	for (size_t i = 0; i < words; i++)
		p[i] = value;
}

static void sim_add32(const struct sim_launch *launch, void **params)
{
	uint32_t *p = *(uint32_t **)params[0], addend = *(uint32_t *)params[2];
	size_t words = *(size_t *)params[1];

	for (size_t i = 0; i < words; i++)
		p[i] += addend;
}

static void sim_busy(const struct sim_launch *launch, void **params)
{
	usleep(*(uint32_t *)params[0] * 1000);
}

static void sim_busy_write(const struct sim_launch *launch, void **params)
{
	usleep(*(uint32_t *)params[3] * 1000);
	sim_fill32(launch, params);
}

static void sim_spin(const struct sim_launch *launch, void **params)
{
	uint32_t *flag = *(uint32_t **)params[0];

	while (!__atomic_load_n(flag, __ATOMIC_ACQUIRE))
		usleep(100);
}

static const struct sim_kernel_info builtin[] = {
	{"sim_noop", sim_noop, 0, {0}, true},
	{"sim_fill32", sim_fill32, 3, {8, 8, 4}, false},
	{"sim_add32", sim_add32, 3, {8, 8, 4}, false},
	{"sim_busy", sim_busy, 1, {4}, false},
	{"sim_busy_write", sim_busy_write, 4, {8, 8, 4, 4}, false},
	{"sim_spin", sim_spin, 1, {8}, false},
};

/* ---- modules: a handle is a dlopen handle, or this for the built-in ones ---- */

static char builtin_module;

static CUresult load(CUmodule *module, const char *path)
{
	void *handle = strcmp(path, "builtin") == 0 ? &builtin_module : dlopen(strcmp(path, "self") == 0 ? NULL : path, RTLD_NOW);

	pthread_mutex_lock(&sim_lock);
	if (!previous_segv.sa_flags && !previous_segv.sa_handler && !previous_bus.sa_handler)
		install_guard();
	pthread_mutex_unlock(&sim_lock);
	*module = (CUmodule)handle;
	return handle ? CUDA_SUCCESS : CUDA_ERROR_FILE_NOT_FOUND;
}

static CUresult load_data(CUmodule *module, const void *image)
{
	static const char mark[] = "sublet-sim:";

	if (!image || strncmp(image, mark, sizeof(mark) - 1) != 0)
		return CUDA_ERROR_INVALID_IMAGE;
	return load(module, (const char *)image + sizeof(mark) - 1);
}

CUresult CUDAAPI cuModuleLoad(CUmodule *module, const char *path)
{
	ENTER_CONTEXT(cuModuleLoad, ctx);
	return load(module, path);
}

CUresult CUDAAPI cuModuleLoadData(CUmodule *module, const void *image)
{
	ENTER_CONTEXT(cuModuleLoadData, ctx);
	return load_data(module, image);
}

CUresult CUDAAPI cuModuleUnload(CUmodule module)
{
	ENTER(cuModuleUnload);
	return CUDA_SUCCESS; /* the object stays loaded: a launch may still be queued */
}

CUresult CUDAAPI cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
	char symbol[256];

	ENTER_CONTEXT(cuModuleGetFunction, ctx);
	*function = NULL;
	if ((void *)module == &builtin_module) {
		for (size_t i = 0; i < sizeof(builtin) / sizeof(builtin[0]); i++) {
			if (strcmp(builtin[i].name, name) == 0)
				*function = (CUfunction)(uintptr_t)&builtin[i];
		}
	} else if (strlen(name) + 10 < sizeof(symbol)) {
		strcpy(symbol, name);
		strcat(symbol, "_sim_info");
		*function = (CUfunction)dlsym((void *)module, symbol);
	}
	return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult CUDAAPI cuFuncGetParamInfo(CUfunction function, size_t index, size_t *offset, size_t *size)
{
	const struct sim_kernel_info *info = (const struct sim_kernel_info *)function;
	size_t at = 0;

	ENTER(cuFuncGetParamInfo);
	if (!info || index >= info->param_count)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < index; i++)
		at += (info->param_bytes[i] + 7) & ~(size_t)7;
	*offset = at;
	*size = info->param_bytes[index];
	return CUDA_SUCCESS;
}

/* ---- launches ---- */

struct pending_launch {
	const struct sim_kernel_info *info;
	struct sim_context *context;
	struct sim_launch launch;
	uint64_t values[SIM_PARAMS_MAX]; /* parameters of up to 8 bytes, copied at the launch */
};

static void run_launch(void *arg)
{
	struct pending_launch *pending = arg;
	void *params[SIM_PARAMS_MAX];
	sigjmp_buf here;

	for (unsigned i = 0; i < pending->info->param_count; i++)
		params[i] = &pending->values[i];
	guard = &here;
	if (sigsetjmp(here, 1) == 0)
		pending->info->run(&pending->launch, params);
	else
		__atomic_store_n(&pending->context->sticky, CUDA_ERROR_ILLEGAL_ADDRESS, __ATOMIC_RELEASE);
	guard = NULL;
}

static CUresult launch(struct sim_context *ctx, CUfunction function, const struct sim_launch *shape, CUstream stream,
	bool per_thread, void **params, void **extra)
{
	const struct sim_kernel_info *info = (const struct sim_kernel_info *)function;
	struct pending_launch *pending;
	const char *packed = NULL;
	size_t at = 0;

	if (!info || !shape->grid[0] || !shape->block[0])
		return info ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
	for (; extra && *extra != CU_LAUNCH_PARAM_END; extra += 2) {
		if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER)
			packed = extra[1];
	}
	if (info->param_count && !params && !packed)
		return CUDA_ERROR_INVALID_VALUE;
	pending = calloc(1, sizeof(*pending));
	if (!pending)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pending->info = info;
	pending->context = ctx;
	pending->launch = *shape;
	for (unsigned i = 0; i < info->param_count; i++) {
		memcpy(&pending->values[i], packed ? packed + at : params[i], info->param_bytes[i]);
		at += (info->param_bytes[i] + 7) & ~(size_t)7;
	}
	return sim_submit_typed(ctx, stream, per_thread, run_launch, pending, info->brief, CU_GRAPH_NODE_TYPE_KERNEL,
		sizeof(*pending));
}

#define LAUNCH(symbol, twin)                                                                                           \
	CUresult CUDAAPI symbol(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,         \
		unsigned bz, unsigned shared, CUstream stream, void **params, void **extra)                            \
	{                                                                                                              \
		struct sim_launch shape = {{gx, gy, gz}, {bx, by, bz}, shared};                                        \
		ENTER_CONTEXT(symbol, ctx);                                                                            \
		return launch(ctx, f, &shape, stream, twin, params, extra);                                            \
	}
LAUNCH(cuLaunchKernel, false)
LAUNCH(cuLaunchKernel_ptsz, true)

#define LAUNCH_EX(symbol, twin)                                                                                        \
	CUresult CUDAAPI symbol(const CUlaunchConfig *c, CUfunction f, void **params, void **extra)                    \
	{                                                                                                              \
		ENTER_CONTEXT(symbol, ctx);                                                                            \
		struct sim_launch shape = {{c->gridDimX, c->gridDimY, c->gridDimZ},                                    \
			{c->blockDimX, c->blockDimY, c->blockDimZ}, c->sharedMemBytes};                                \
		return launch(ctx, f, &shape, c->hStream, twin, params, extra);                                        \
	}
LAUNCH_EX(cuLaunchKernelEx, false)
LAUNCH_EX(cuLaunchKernelEx_ptsz, true)

/* ---- copies and sets ---- */

struct transfer {
	uint64_t to, from, bytes;
	uint32_t value;
	unsigned width; /* of a set; 0: a copy */
};

static void run_transfer(void *arg)
{
	struct transfer *t = arg;

	if (t->width == 0)
		memmove((void *)t->to, (const void *)t->from, t->bytes);
	else if (t->width == 1)
		memset((void *)t->to, (int)t->value, t->bytes);
	else if (t->width == 2)
		for (uint64_t i = 0; i < t->bytes / 2; i++)
			((uint16_t *)t->to)[i] = (uint16_t)t->value;
	else
		for (uint64_t i = 0; i < t->bytes / 4; i++)
			((uint32_t *)t->to)[i] = t->value;
}

static CUresult transfer(struct sim_context *ctx, struct transfer what, CUstream stream, bool per_thread, bool wait)
{
	struct transfer *arg;
	CUresult result = CUDA_SUCCESS;

	if (what.bytes == 0)
		return CUDA_SUCCESS;
	/* Checked, not tried: on hardware the call is refused and the context stays usable. */
	if (!sim_range_ok(what.to, what.bytes) || (!what.width && !sim_range_ok(what.from, what.bytes)))
		return CUDA_ERROR_INVALID_VALUE;
	if (wait)
		result = sim_capture_check(false);
	arg = result == CUDA_SUCCESS ? malloc(sizeof(*arg)) : NULL;
	if (!arg)
		return result ? result : CUDA_ERROR_OUT_OF_MEMORY;
	*arg = what;
	result = sim_submit_typed(ctx, stream, per_thread, run_transfer, arg, true,
		what.width ? CU_GRAPH_NODE_TYPE_MEMSET : CU_GRAPH_NODE_TYPE_MEMCPY, sizeof(*arg));
	return result == CUDA_SUCCESS && wait ? sim_wait_stream(ctx, stream, per_thread) : result;
}

#define U64(x) ((uint64_t)(uintptr_t)(x))
#define COPY(symbol, to_type, from_type)                                                                               \
	CUresult CUDAAPI symbol(to_type to, from_type from, size_t n)                                                  \
	{                                                                                                              \
		ENTER_CONTEXT(symbol, ctx);                                                                            \
		return transfer(ctx, (struct transfer){U64(to), U64(from), n, 0, 0}, NULL, false, true);               \
	}                                                                                                              \
	CUresult CUDAAPI symbol##_ptds(to_type to, from_type from, size_t n)                                           \
	{                                                                                                              \
		ENTER_CONTEXT(symbol##_ptds, ctx);                                                                     \
		return transfer(ctx, (struct transfer){U64(to), U64(from), n, 0, 0}, NULL, true, true);                \
	}
#define COPY_ASYNC(symbol, to_type, from_type)                                                                         \
	CUresult CUDAAPI symbol(to_type to, from_type from, size_t n, CUstream s)                                      \
	{                                                                                                              \
		ENTER_CONTEXT(symbol, ctx);                                                                            \
		return transfer(ctx, (struct transfer){U64(to), U64(from), n, 0, 0}, s, false, false);                 \
	}                                                                                                              \
	CUresult CUDAAPI symbol##_ptsz(to_type to, from_type from, size_t n, CUstream s)                               \
	{                                                                                                              \
		ENTER_CONTEXT(symbol##_ptsz, ctx);                                                                     \
		return transfer(ctx, (struct transfer){U64(to), U64(from), n, 0, 0}, s, true, false);                  \
	}
COPY(cuMemcpy, CUdeviceptr, CUdeviceptr)
COPY(cuMemcpyHtoD_v2, CUdeviceptr, const void *)
COPY(cuMemcpyDtoH_v2, void *, CUdeviceptr)
COPY(cuMemcpyDtoD_v2, CUdeviceptr, CUdeviceptr)
COPY_ASYNC(cuMemcpyAsync, CUdeviceptr, CUdeviceptr)
COPY_ASYNC(cuMemcpyHtoDAsync_v2, CUdeviceptr, const void *)
COPY_ASYNC(cuMemcpyDtoHAsync_v2, void *, CUdeviceptr)
COPY_ASYNC(cuMemcpyDtoDAsync_v2, CUdeviceptr, CUdeviceptr)

#define SET(symbol, async_symbol, type, width)                                                                         \
	CUresult CUDAAPI symbol(CUdeviceptr to, type value, size_t n)                                                  \
	{                                                                                                              \
		ENTER_CONTEXT(symbol, ctx);                                                                            \
		return transfer(ctx, (struct transfer){to, 0, n * width, value, width}, NULL, false, true);            \
	}                                                                                                              \
	CUresult CUDAAPI async_symbol(CUdeviceptr to, type value, size_t n, CUstream s)                                \
	{                                                                                                              \
		ENTER_CONTEXT(async_symbol, ctx);                                                                      \
		return transfer(ctx, (struct transfer){to, 0, n * width, value, width}, s, false, false);              \
	}                                                                                                              \
	CUresult CUDAAPI async_symbol##_ptsz(CUdeviceptr to, type value, size_t n, CUstream s)                         \
	{                                                                                                              \
		ENTER_CONTEXT(async_symbol##_ptsz, ctx);                                                               \
		return transfer(ctx, (struct transfer){to, 0, n * width, value, width}, s, true, false);               \
	}
SET(cuMemsetD8_v2, cuMemsetD8Async, unsigned char, 1)
SET(cuMemsetD16_v2, cuMemsetD16Async, unsigned short, 2)
SET(cuMemsetD32_v2, cuMemsetD32Async, unsigned int, 4)

void sim_modules_drop_all(void)
{
}
