/* tools/sim/sim_module.c
 * Modules of a context, libraries of a process, and the functions made from their images. Objects stay loaded until reset,
 * since a launch may still be queued. */
#include "tools/sim/sim_image.h"

#include <stdlib.h>

#define MAGIC_MODULE 0x53694d6f
#define MAGIC_LIBRARY 0x53694c69
#define MAGIC_FUNCTION 0x53694675

struct sim_module {
	uint32_t magic;
	bool alive;
	struct sim_image image;
	struct sim_context *context;
	struct sim_library *library; /* it was made of; NULL: loaded as a module */
	struct sim_module *next;
};

struct sim_library {
	uint32_t magic;
	bool alive;
	struct sim_image image;
	struct sim_library *next;
};

static struct sim_module *modules;
static struct sim_library *libraries;
static struct sim_function *functions;

/* ---- functions ---- */

/* Parameters lie at their natural alignment, taken to be the largest power of two up to 8 that divides the size. */
static bool lay_out(struct sim_function *function)
{
	size_t at = 0;

	for (unsigned i = 0; i < function->info->param_count; i++) {
		size_t bytes = function->info->param_bytes[i], align = bytes & -bytes;

		align = align > 8 ? 8 : align ? align : 1;
		at = (at + align - 1) & ~(align - 1);
		function->offset[i] = at;
		at += bytes;
	}
	function->param_bytes = at;
	return at <= SIM_PARAM_BYTES_MAX;
}

/* sim_lock held. The function for @info of @module or @library, made at first use. */
static struct sim_function *function_for(const struct sim_kernel_info *info, struct sim_module *module,
	struct sim_library *library, struct sim_function *kernel)
{
	struct sim_function *function;

	for (function = functions; function; function = function->next) {
		if (function->info == info && function->module == module && function->library == library && function->alive)
			return function;
	}
	function = calloc(1, sizeof(*function));
	if (!function)
		return NULL;
	*function = (struct sim_function){.magic = MAGIC_FUNCTION, .alive = true, .info = info, .module = module,
		.library = library, .kernel = kernel, .dynamic_shared_bytes = 48 << 10, .carveout = -1};
	if (!lay_out(function)) {
		free(function);
		return NULL;
	}
	function->next = functions;
	functions = function;
	return function;
}

struct sim_function *sim_function_of(const void *handle)
{
	struct sim_function *function = (struct sim_function *)(uintptr_t)handle;

	return function && function->magic == MAGIC_FUNCTION && function->alive ? function : NULL;
}

CUcontext sim_function_context(const struct sim_function *function)
{
	return function->module ? (CUcontext)function->module->context : NULL;
}

/* ---- modules ---- */

static struct sim_module *module_of(CUmodule handle)
{
	struct sim_module *module = (struct sim_module *)handle;

	return module && module->magic == MAGIC_MODULE && module->alive && module->context->alive ? module : NULL;
}

static struct sim_module *module_new(struct sim_context *ctx, const struct sim_image *image, struct sim_library *library)
{
	struct sim_module *module = calloc(1, sizeof(*module));

	if (!module)
		return NULL;
	*module = (struct sim_module){.magic = MAGIC_MODULE, .alive = true, .image = *image, .context = ctx, .library = library};
	module->next = modules;
	modules = module;
	return module;
}

static CUresult load(struct sim_context *ctx, CUmodule *ret_module, const char *path, const void *data)
{
	struct sim_module *module;
	struct sim_image image;
	CUresult result;

	if (!ret_module || (!path && !data))
		return CUDA_ERROR_INVALID_VALUE;
	result = path ? sim_image_open(&image, path) : sim_image_open_data(&image, data);
	if (result != CUDA_SUCCESS)
		return result;
	pthread_mutex_lock(&sim_lock);
	module = module_new(ctx, &image, NULL);
	pthread_mutex_unlock(&sim_lock);
	*ret_module = (CUmodule)module;
	return module ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult CUDAAPI cuModuleLoad(CUmodule *module, const char *path)
{
	ENTER_CONTEXT(cuModuleLoad, ctx);
	return load(ctx, module, path, NULL);
}

CUresult CUDAAPI cuModuleLoadData(CUmodule *module, const void *image)
{
	ENTER_CONTEXT(cuModuleLoadData, ctx);
	return load(ctx, module, NULL, image);
}

CUresult CUDAAPI cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int count, CUjit_option *options, void **values)
{
	ENTER_CONTEXT(cuModuleLoadDataEx, ctx);
	return load(ctx, module, NULL, image);
}

CUresult CUDAAPI cuModuleLoadFatBinary(CUmodule *module, const void *image)
{
	ENTER_CONTEXT(cuModuleLoadFatBinary, ctx);
	return load(ctx, module, NULL, image);
}

/* sim_lock held. */
static void unload(struct sim_module *module)
{
	module->alive = false;
	for (struct sim_function *function = functions; function; function = function->next) {
		if (function->module == module)
			function->alive = false;
	}
}

CUresult CUDAAPI cuModuleUnload(CUmodule handle)
{
	struct sim_module *module;

	ENTER_CONTEXT(cuModuleUnload, ctx);
	pthread_mutex_lock(&sim_lock);
	module = module_of(handle);
	if (module && !module->library)
		unload(module);
	pthread_mutex_unlock(&sim_lock);
	/* Documented: the module of a library ends with the library only. */
	return !module ? CUDA_ERROR_INVALID_HANDLE : module->library ? CUDA_ERROR_NOT_PERMITTED : CUDA_SUCCESS;
}

CUresult CUDAAPI cuModuleGetFunction(CUfunction *ret_function, CUmodule handle, const char *name)
{
	const struct sim_kernel_info *info;
	struct sim_module *module;
	CUresult result = CUDA_SUCCESS;

	ENTER_CONTEXT(cuModuleGetFunction, ctx);
	if (!ret_function || !name)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim_lock);
	module = module_of(handle);
	info = module ? sim_image_kernel(&module->image, name) : NULL;
	if (!info) {
		result = module ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_INVALID_HANDLE;
	} else {
		*ret_function = (CUfunction)function_for(info, module, NULL, NULL);
		result = *ret_function ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	}
	pthread_mutex_unlock(&sim_lock);
	return result;
}

CUresult CUDAAPI cuModuleGetFunctionCount(unsigned int *count, CUmodule handle)
{
	struct sim_module *module;

	ENTER_CONTEXT(cuModuleGetFunctionCount, ctx);
	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim_lock);
	module = module_of(handle);
	if (module)
		*count = (unsigned)module->image.count;
	pthread_mutex_unlock(&sim_lock);
	return module ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult CUDAAPI cuModuleEnumerateFunctions(CUfunction *ret, unsigned int room, CUmodule handle)
{
	struct sim_module *module;
	CUresult result;

	ENTER_CONTEXT(cuModuleEnumerateFunctions, ctx);
	if (!ret)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim_lock);
	module = module_of(handle);
	result = module ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
	for (size_t i = 0; module && i < room && i < module->image.count; i++) {
		ret[i] = (CUfunction)function_for(module->image.kernels[i], module, NULL, NULL);
		if (!ret[i])
			result = CUDA_ERROR_OUT_OF_MEMORY;
	}
	pthread_mutex_unlock(&sim_lock);
	return result;
}

static CUresult module_global(CUmodule handle, const char *name, CUdeviceptr *ret_address, size_t *ret_bytes)
{
	struct sim_module *module;

	pthread_mutex_lock(&sim_lock);
	module = module_of(handle);
	pthread_mutex_unlock(&sim_lock);
	return module ? sim_image_global(&module->image, name, ret_address, ret_bytes) : CUDA_ERROR_INVALID_HANDLE;
}

CUresult CUDAAPI cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *bytes, CUmodule module, const char *name)
{
	ENTER_CONTEXT(cuModuleGetGlobal_v2, ctx);
	return module_global(module, name, address, bytes);
}

CUresult CUDAAPI cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
	ENTER(cuModuleGetLoadingMode);
	if (!mode)
		return CUDA_ERROR_INVALID_VALUE;
	*mode = CU_MODULE_LAZY_LOADING;
	return CUDA_SUCCESS;
}

/* ---- libraries: of the process, not of a context ---- */

static struct sim_library *library_of(CUlibrary handle)
{
	struct sim_library *library = (struct sim_library *)handle;

	return library && library->magic == MAGIC_LIBRARY && library->alive ? library : NULL;
}

static CUresult load_library(CUlibrary *ret_library, const char *path, const void *data)
{
	struct sim_library *library;
	struct sim_image image;
	CUresult result;

	if (!ret_library || (!path && !data))
		return CUDA_ERROR_INVALID_VALUE;
	result = path ? sim_image_open(&image, path) : sim_image_open_data(&image, data);
	if (result != CUDA_SUCCESS)
		return result;
	library = calloc(1, sizeof(*library));
	if (!library) {
		sim_image_close(&image);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*library = (struct sim_library){.magic = MAGIC_LIBRARY, .alive = true, .image = image};
	pthread_mutex_lock(&sim_lock);
	library->next = libraries;
	libraries = library;
	pthread_mutex_unlock(&sim_lock);
	*ret_library = (CUlibrary)library;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jit, void **jit_values,
	unsigned int jit_count, CUlibraryOption *options, void **values, unsigned int count)
{
	ENTER(cuLibraryLoadData);
	return load_library(library, NULL, code);
}

CUresult CUDAAPI cuLibraryLoadFromFile(CUlibrary *library, const char *path, CUjit_option *jit, void **jit_values,
	unsigned int jit_count, CUlibraryOption *options, void **values, unsigned int count)
{
	ENTER(cuLibraryLoadFromFile);
	return load_library(library, path, NULL);
}

CUresult CUDAAPI cuLibraryUnload(CUlibrary handle)
{
	struct sim_library *library;

	ENTER(cuLibraryUnload);
	pthread_mutex_lock(&sim_lock);
	library = library_of(handle);
	if (library) {
		library->alive = false;
		for (struct sim_module *module = modules; module; module = module->next) {
			if (module->library == library)
				unload(module);
		}
		for (struct sim_function *function = functions; function; function = function->next) {
			if (function->library == library)
				function->alive = false;
		}
	}
	pthread_mutex_unlock(&sim_lock);
	return library ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult CUDAAPI cuLibraryGetKernel(CUkernel *ret_kernel, CUlibrary handle, const char *name)
{
	const struct sim_kernel_info *info;
	struct sim_library *library;
	CUresult result;

	ENTER(cuLibraryGetKernel);
	if (!ret_kernel || !name)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim_lock);
	library = library_of(handle);
	info = library ? sim_image_kernel(&library->image, name) : NULL;
	if (!info) {
		result = library ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_INVALID_HANDLE;
	} else {
		*ret_kernel = (CUkernel)function_for(info, NULL, library, NULL);
		result = *ret_kernel ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	}
	pthread_mutex_unlock(&sim_lock);
	return result;
}

CUresult CUDAAPI cuLibraryGetKernelCount(unsigned int *count, CUlibrary handle)
{
	struct sim_library *library;

	ENTER(cuLibraryGetKernelCount);
	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim_lock);
	library = library_of(handle);
	if (library)
		*count = (unsigned)library->image.count;
	pthread_mutex_unlock(&sim_lock);
	return library ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult CUDAAPI cuLibraryEnumerateKernels(CUkernel *ret, unsigned int room, CUlibrary handle)
{
	struct sim_library *library;
	CUresult result;

	ENTER(cuLibraryEnumerateKernels);
	if (!ret)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim_lock);
	library = library_of(handle);
	result = library ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
	for (size_t i = 0; library && i < room && i < library->image.count; i++) {
		ret[i] = (CUkernel)function_for(library->image.kernels[i], NULL, library, NULL);
		if (!ret[i])
			result = CUDA_ERROR_OUT_OF_MEMORY;
	}
	pthread_mutex_unlock(&sim_lock);
	return result;
}

/* sim_lock held. The module of @library in @ctx, made at first use. */
static struct sim_module *module_in(struct sim_library *library, struct sim_context *ctx)
{
	for (struct sim_module *module = modules; module; module = module->next) {
		if (module->library == library && module->context == ctx && module->alive)
			return module;
	}
	return module_new(ctx, &library->image, library);
}

struct sim_function *sim_function_in(struct sim_function *kernel, struct sim_context *ctx)
{
	struct sim_module *module = module_in(kernel->library, ctx);

	return module ? function_for(kernel->info, module, NULL, kernel) : NULL;
}

CUresult CUDAAPI cuLibraryGetModule(CUmodule *ret_module, CUlibrary handle)
{
	struct sim_library *library;
	CUresult result = CUDA_ERROR_INVALID_HANDLE;

	ENTER_CONTEXT(cuLibraryGetModule, ctx);
	if (!ret_module)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim_lock);
	library = library_of(handle);
	if (library) {
		*ret_module = (CUmodule)module_in(library, ctx);
		result = *ret_module ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	}
	pthread_mutex_unlock(&sim_lock);
	return result;
}

static CUresult library_global(CUlibrary handle, const char *name, CUdeviceptr *ret_address, size_t *ret_bytes)
{
	struct sim_library *library;

	pthread_mutex_lock(&sim_lock);
	library = library_of(handle);
	pthread_mutex_unlock(&sim_lock);
	return library ? sim_image_global(&library->image, name, ret_address, ret_bytes) : CUDA_ERROR_INVALID_HANDLE;
}

CUresult CUDAAPI cuLibraryGetGlobal(CUdeviceptr *address, size_t *bytes, CUlibrary library, const char *name)
{
	ENTER_CONTEXT(cuLibraryGetGlobal, ctx);
	return library_global(library, name, address, bytes);
}

/* Managed and device globals are the same bytes here. */
CUresult CUDAAPI cuLibraryGetManaged(CUdeviceptr *address, size_t *bytes, CUlibrary library, const char *name)
{
	ENTER(cuLibraryGetManaged);
	return library_global(library, name, address, bytes);
}

CUresult CUDAAPI cuKernelGetLibrary(CUlibrary *ret_library, CUkernel handle)
{
	struct sim_function *kernel = sim_function_of(handle);

	ENTER(cuKernelGetLibrary);
	if (!ret_library || !kernel || !kernel->library)
		return ret_library ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE;
	*ret_library = (CUlibrary)kernel->library;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuFuncGetModule(CUmodule *ret_module, CUfunction handle)
{
	struct sim_function *function = sim_function_of(handle);

	ENTER(cuFuncGetModule);
	if (!ret_module || !function || !function->module)
		return ret_module ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE;
	*ret_module = (CUmodule)function->module;
	return CUDA_SUCCESS;
}

/* ---- control ---- */

void sim_modules_end(struct sim_context *ctx)
{
	for (struct sim_module *module = modules; module; module = module->next) {
		if (module->context == ctx)
			unload(module);
	}
}

void sim_modules_drop_all(void)
{
	while (functions) {
		struct sim_function *function = functions;

		functions = function->next;
		function->magic = 0;
		free(function->old);
		free(function);
	}
	while (modules) {
		struct sim_module *module = modules;

		modules = module->next;
		module->magic = 0;
		if (!module->library)
			sim_image_close(&module->image);
		free(module);
	}
	while (libraries) {
		struct sim_library *library = libraries;

		libraries = library->next;
		library->magic = 0;
		sim_image_close(&library->image);
		free(library);
	}
}
