/* tools/sim/sim_ipc.c
 * Memory of other processes by name: legacy handles of plain memory, and pointers of shared pools. A handle names the memfd
 * in its owner, which is opened through /proc; the machine's table says whether the name still means the same memory. */
#include "tools/sim/sim_memory.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/process.h"

#define HANDLE_MAGIC 0x4d454d53u
#define FROM_POOL 1u /* flag of a block: freed like memory of a pool, not closed */

struct memory_name {
	uint32_t magic;
	int32_t pid, fd, device;
	uint64_t start, physical, chunk_bytes, offset, bytes;
	uint64_t from_pool;
};
_Static_assert(sizeof(struct memory_name) == 64, "fills a handle");

static uint64_t start_of(int pid)
{
	bool zombie;

	return process_start_ticks(pid, &zombie);
}

static struct memory_name name_of(const struct sim_block *block, bool from_pool)
{
	return (struct memory_name){HANDLE_MAGIC, (int32_t)getpid(), block->chunk->fd, block->device, start_of(getpid()),
		block->physical, block->chunk->bytes, block->address - block->chunk->address, block->bytes, from_pool};
}

/* The memory of @name as a block of @context: the one it has already, or a new mapping. sim_lock held. */
static CUresult open_name(const struct memory_name *name, struct sim_context *context, uint64_t *ret_address)
{
	char path[64], target[160], wanted[128];
	struct sim_block *block;
	struct sim_chunk *chunk;
	size_t position = 0;
	uint64_t bytes;
	ssize_t length;
	int location;

	while ((block = sim_block_each(&position))) {
		if (block->kind == SIM_IPC && block->context == context && block->physical == name->physical &&
			block->address - block->chunk->address == name->offset) {
			block->opened++;
			*ret_address = block->address;
			return CUDA_SUCCESS;
		}
	}
	/* A descriptor's number may mean another file by now, and a process's number another process. */
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", name->pid, name->fd);
	snprintf(wanted, sizeof(wanted), "/memfd:sublet-sim-%s-%llu ", sim_machine_token(), (unsigned long long)name->physical);
	length = start_of(name->pid) == name->start ? readlink(path, target, sizeof(target) - 1) : -1;
	if (length <= 0)
		return CUDA_ERROR_MAP_FAILED;
	target[length] = '\0';
	if (strncmp(target, wanted, strlen(wanted)) != 0 || !sim_machine_ref(name->physical, &bytes, &location))
		return CUDA_ERROR_MAP_FAILED;
	chunk = calloc(1, sizeof(*chunk));
	if (!chunk) {
		sim_machine_unref(name->physical);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*chunk = (struct sim_chunk){.bytes = bytes, .physical = name->physical, .location = location};
	chunk->fd = open(path, O_RDWR | O_CLOEXEC);
	if (chunk->fd >= 0)
		chunk->address = (uint64_t)(uintptr_t)sim_map_aligned(bytes, chunk->fd);
	block = chunk->address && name->offset + name->bytes <= bytes
			? sim_block_new(chunk->address + name->offset, name->bytes, SIM_IPC, context, chunk)
			: NULL;
	if (!block) {
		sim_chunk_free(chunk);
		return CUDA_ERROR_MAP_FAILED;
	}
	block->device = name->device;
	block->opened = 1;
	block->flags = name->from_pool ? FROM_POOL : 0;
	*ret_address = block->address;
	return CUDA_SUCCESS;
}

void sim_ipc_release_block(struct sim_block *block)
{
	sim_chunk_free(block->chunk);
}

bool sim_ipc_from_pool(const struct sim_block *block)
{
	return block->kind == SIM_IPC && (block->flags & FROM_POOL);
}

/* ---- legacy handles ---- */

CUresult CUDAAPI cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr ptr)
{
	struct memory_name name;
	struct sim_block *block;
	bool plain;

	ENTER_CONTEXT(cuIpcGetMemHandle, context);
	if (!handle)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim_lock);
	/* An address inside names the whole allocation. VMM memory, pools, managed and host memory are refused. */
	block = sim_block_at(ptr);
	plain = block && block->kind == SIM_PLAIN;
	if (plain)
		name = name_of(block, false);
	pthread_mutex_unlock(&sim_lock);
	if (plain)
		memcpy(handle, &name, sizeof(name));
	return plain ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult open_handle(struct sim_context *context, CUdeviceptr *ptr, const CUipcMemHandle *handle, unsigned flags)
{
	struct memory_name name;
	uint64_t address;
	CUresult result;

	memcpy(&name, handle, sizeof(name));
	if (!ptr || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
		return CUDA_ERROR_INVALID_VALUE;
	if (name.magic != HANDLE_MAGIC || name.from_pool)
		return CUDA_ERROR_INVALID_VALUE;
	/* A process cannot open what it exported itself. */
	if (name.pid == getpid())
		return CUDA_ERROR_INVALID_CONTEXT;
	pthread_mutex_lock(&sim_lock);
	result = open_name(&name, context, &address);
	pthread_mutex_unlock(&sim_lock);
	if (result == CUDA_SUCCESS)
		*ptr = address;
	return result;
}

CUresult CUDAAPI cuIpcOpenMemHandle(CUdeviceptr *ptr, CUipcMemHandle handle, unsigned int flags)
{
	ENTER_CONTEXT(cuIpcOpenMemHandle, context);
	return open_handle(context, ptr, &handle, flags);
}

CUresult CUDAAPI cuIpcOpenMemHandle_v2(CUdeviceptr *ptr, CUipcMemHandle handle, unsigned int flags)
{
	ENTER_CONTEXT(cuIpcOpenMemHandle_v2, context);
	return open_handle(context, ptr, &handle, flags);
}

CUresult CUDAAPI cuIpcCloseMemHandle(CUdeviceptr ptr)
{
	struct sim_block *block;
	bool last = false;

	ENTER_CONTEXT(cuIpcCloseMemHandle, context);
	sim_wait_device(context->device);
	pthread_mutex_lock(&sim_lock);
	block = sim_block_at(ptr);
	if (!block || block->address != ptr || block->kind != SIM_IPC || (block->flags & FROM_POOL))
		block = NULL;
	if (block)
		last = --block->opened == 0;
	pthread_mutex_unlock(&sim_lock);
	if (last)
		sim_block_give_back(ptr, SIM_BIT(SIM_IPC));
	return block ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- shared pools: a descriptor for the pool, a name for each pointer ---- */

CUresult CUDAAPI cuMemPoolExportToShareableHandle(void *handle, CUmemoryPool pool, CUmemAllocationHandleType type,
	unsigned long long flags)
{
	CUmemPoolProps props;
	char name[96];
	int fd;

	ENTER(cuMemPoolExportToShareableHandle);
	if (!handle || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || !sim_pool_props(pool, &props) ||
		!(props.handleTypes & type))
		return CUDA_ERROR_INVALID_VALUE;
	snprintf(name, sizeof(name), "sublet-sim-pool-%s", sim_machine_token());
	fd = memfd_create(name, MFD_CLOEXEC);
	if (fd < 0 || write(fd, &props, sizeof(props)) != sizeof(props)) {
		if (fd >= 0)
			close(fd);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*(int *)handle = fd;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemPoolImportFromShareableHandle(CUmemoryPool *pool, void *handle, CUmemAllocationHandleType type,
	unsigned long long flags)
{
	char path[64], target[160], wanted[128];
	int fd = (int)(intptr_t)handle;
	CUmemPoolProps props;
	ssize_t length;

	ENTER(cuMemPoolImportFromShareableHandle);
	if (!pool || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_INVALID_VALUE;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	snprintf(wanted, sizeof(wanted), "/memfd:sublet-sim-pool-%s ", sim_machine_token());
	length = readlink(path, target, sizeof(target) - 1);
	if (length <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	target[length] = '\0';
	if (strncmp(target, wanted, strlen(wanted)) != 0 || pread(fd, &props, sizeof(props), 0) != sizeof(props))
		return CUDA_ERROR_INVALID_VALUE;
	*pool = sim_pool_import(&props);
	return *pool ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult CUDAAPI cuMemPoolExportPointer(CUmemPoolPtrExportData *data, CUdeviceptr ptr)
{
	struct memory_name name;
	struct sim_block *block;
	CUmemoryPool pool = NULL;
	CUmemPoolProps props;

	ENTER(cuMemPoolExportPointer);
	if (!data)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim_lock);
	block = sim_block_at(ptr);
	if (block && block->chunk && block->chunk->pool) {
		pool = sim_pool_handle(block);
		name = name_of(block, true);
	}
	pthread_mutex_unlock(&sim_lock);
	if (!pool || !sim_pool_props(pool, &props) || !props.handleTypes)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(data, &name, sizeof(name));
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemPoolImportPointer(CUdeviceptr *ptr, CUmemoryPool pool, CUmemPoolPtrExportData *data)
{
	struct memory_name name;
	uint64_t address;
	CUresult result;

	ENTER_CONTEXT(cuMemPoolImportPointer, context);
	if (!ptr || !data || !sim_pool_imported(pool))
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(&name, data, sizeof(name));
	if (name.magic != HANDLE_MAGIC || !name.from_pool)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim_lock);
	result = open_name(&name, context, &address);
	pthread_mutex_unlock(&sim_lock);
	if (result == CUDA_SUCCESS)
		*ptr = address;
	return result;
}
