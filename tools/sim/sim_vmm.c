/* tools/sim/sim_vmm.c
 * Virtual memory management: reservations are PROT_NONE mappings, physical memory is memfds, mapping is mmap over the
 * reservation, rights are mprotect. Refusals as measured on hardware: no offset, no part of a handle, no part of a mapping. */
#include "tools/sim/sim_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/list.h"

struct reservation {
	uint64_t address, bytes;
};

static struct reservation *reservations;
static size_t reservation_count, reservation_capacity;
/* Sorted by address. */
static struct sim_mapping **mappings;
static size_t mapping_count, mapping_capacity;
static struct sim_handle **handles;
static size_t handle_count, handle_capacity;
static uint64_t next_buffer_id = 1;

uint64_t sim_next_buffer_id(void)
{
	return next_buffer_id++;
}

static struct reservation *reservation_of(uint64_t address)
{
	for (size_t i = 0; i < reservation_count; i++) {
		if (address - reservations[i].address < reservations[i].bytes)
			return &reservations[i];
	}
	return NULL;
}

bool sim_reserved(uint64_t address)
{
	return reservation_of(address) != NULL;
}

bool sim_reservation_at(uint64_t address, uint64_t *ret_address, uint64_t *ret_bytes)
{
	struct reservation *reservation = reservation_of(address);

	if (reservation) {
		*ret_address = reservation->address;
		*ret_bytes = reservation->bytes;
	}
	return reservation != NULL;
}

bool sim_reservation_between(uint64_t address, uint64_t end)
{
	for (size_t i = 0; i < reservation_count; i++) {
		if (reservations[i].address < end && address < reservations[i].address + reservations[i].bytes)
			return true;
	}
	return false;
}

/* Index of the first mapping that ends after @address. */
static size_t first_after(uint64_t address)
{
	size_t low = 0, high = mapping_count;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (mappings[middle]->address + mappings[middle]->bytes <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

struct sim_mapping *sim_mapping_at(uint64_t address)
{
	size_t i = first_after(address);

	return i < mapping_count && mappings[i]->address <= address ? mappings[i] : NULL;
}

static size_t handle_index(CUmemGenericAllocationHandle value)
{
	size_t i;

	for (i = handle_count; i-- > 0;) {
		if ((uint64_t)(uintptr_t)handles[i] == value && handles[i]->refs)
			return i;
	}
	return handle_count;
}

static struct sim_handle *handle_of(CUmemGenericAllocationHandle value)
{
	size_t i = handle_index(value);

	return i < handle_count ? handles[i] : NULL;
}

static void settle(struct sim_handle *handle)
{
	if (handle->refs || handle->maps)
		return;
	for (size_t i = handle_count; i-- > 0;) {
		if (handles[i] == handle) {
			handles[i] = handles[--handle_count];
			break;
		}
	}
	close(handle->fd);
	sim_machine_unref(handle->physical);
	free(handle);
}

static bool device_ok(int id)
{
	return id >= 0 && id < sim_config.devices;
}

static CUresult location_of(const CUmemAllocationProp *prop, int *ret_location)
{
	switch ((int)prop->location.type) {
	case CU_MEM_LOCATION_TYPE_DEVICE:
		*ret_location = prop->location.id;
		return device_ok(prop->location.id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
	case CU_MEM_LOCATION_TYPE_HOST: /* documented: cannot be shared, the id does not matter */
		if (prop->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE)
			return CUDA_ERROR_INVALID_VALUE;
		break;
	case CU_MEM_LOCATION_TYPE_HOST_NUMA:
		if (prop->location.id != 0) /* one node here */
			return CUDA_ERROR_INVALID_VALUE;
		break;
	default: /* HOST_NUMA_CURRENT too, as documented */
		return CUDA_ERROR_INVALID_VALUE;
	}
	*ret_location = SIM_HOST;
	return sim_config.without_host_numa ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop,
	CUmemAllocationGranularity_flags option)
{
	CUresult result;
	int location;

	ENTER(cuMemGetAllocationGranularity);
	if (!granularity || !prop)
		return CUDA_ERROR_INVALID_VALUE;
	if (sim_config.without_vmm)
		return CUDA_ERROR_NOT_SUPPORTED;
	result = location_of(prop, &location);
	if (result == CUDA_SUCCESS)
		*granularity = SIM_PAGE;
	return result;
}

CUresult CUDAAPI cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr hint, unsigned long long flags)
{
	uint64_t extra, base;
	void *area;
	bool noted;

	ENTER(cuMemAddressReserve);
	if (!ptr || !size || size % SIM_PAGE || (alignment & (alignment - 1)))
		return CUDA_ERROR_INVALID_VALUE;
	if (sim_config.without_vmm)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (alignment < SIM_PAGE)
		alignment = SIM_PAGE;
	extra = alignment;
	area = mmap((void *)hint, size + extra, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (area == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	base = ((uint64_t)area + alignment - 1) & ~(uint64_t)(alignment - 1);
	if (base > (uint64_t)area)
		munmap(area, base - (uint64_t)area);
	if ((uint64_t)area + size + extra > base + size)
		munmap((void *)(base + size), (uint64_t)area + extra - base);
	pthread_mutex_lock(&sim_lock);
	noted = list_room(&reservations, reservation_count, &reservation_capacity, sizeof(*reservations));
	if (noted)
		reservations[reservation_count++] = (struct reservation){base, size};
	pthread_mutex_unlock(&sim_lock);
	if (!noted) {
		munmap((void *)base, size);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*ptr = base;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemAddressFree(CUdeviceptr ptr, size_t size)
{
	struct reservation *reservation;
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	size_t i;

	ENTER(cuMemAddressFree);
	pthread_mutex_lock(&sim_lock);
	reservation = reservation_of(ptr);
	i = first_after(ptr);
	if (reservation && reservation->address == ptr && reservation->bytes == size &&
		!(i < mapping_count && mappings[i]->address < ptr + size)) {
		munmap((void *)ptr, size);
		*reservation = reservations[--reservation_count];
		result = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&sim_lock);
	return result;
}

/* A handle over @fd, which it owns. sim_lock held. */
static struct sim_handle *new_handle(int fd, uint64_t physical, uint64_t bytes, int location)
{
	struct sim_handle *handle = calloc(1, sizeof(*handle));

	if (!handle || !list_room(&handles, handle_count, &handle_capacity, sizeof(*handles))) {
		free(handle);
		return NULL;
	}
	*handle = (struct sim_handle){.physical = physical, .bytes = bytes, .location = location, .fd = fd, .refs = 1};
	handles[handle_count++] = handle;
	return handle;
}

CUresult CUDAAPI cuMemCreate(CUmemGenericAllocationHandle *ret_handle, size_t size, const CUmemAllocationProp *prop,
	unsigned long long flags)
{
	struct sim_handle *handle = NULL;
	uint64_t physical;
	CUresult result;
	char name[96];
	int location, fd;

	ENTER(cuMemCreate);
	if (!ret_handle || !prop || !size || size % SIM_PAGE || flags || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED)
		return CUDA_ERROR_INVALID_VALUE;
	if (sim_config.without_vmm)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (prop->requestedHandleTypes & CU_MEM_HANDLE_TYPE_FABRIC)
		return CUDA_ERROR_NOT_PERMITTED;
	if ((prop->requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) && sim_config.without_fd)
		return CUDA_ERROR_NOT_SUPPORTED;
	result = location_of(prop, &location);
	if (result != CUDA_SUCCESS)
		return result;
	pthread_mutex_lock(&sim_lock);
	physical = sim_machine_take(location, size);
	if (physical) {
		snprintf(name, sizeof(name), "sublet-sim-%s-%llu", sim_machine_token(), (unsigned long long)physical);
		fd = memfd_create(name, MFD_CLOEXEC);
		if (fd >= 0 && ftruncate(fd, (off_t)size) == 0)
			handle = new_handle(fd, physical, size, location);
		if (!handle) {
			if (fd >= 0)
				close(fd);
			sim_machine_unref(physical);
		}
	}
	if (handle) {
		handle->prop = *prop;
		*ret_handle = (CUmemGenericAllocationHandle)(uintptr_t)handle;
	}
	pthread_mutex_unlock(&sim_lock);
	return handle ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult CUDAAPI cuMemRelease(CUmemGenericAllocationHandle value)
{
	struct sim_handle *handle;

	ENTER(cuMemRelease);
	pthread_mutex_lock(&sim_lock);
	handle = handle_of(value);
	if (handle) {
		handle->refs--;
		settle(handle);
	}
	pthread_mutex_unlock(&sim_lock);
	return handle ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle value, unsigned long long flags)
{
	struct reservation *reservation;
	struct sim_mapping *mapping = NULL;
	struct sim_handle *handle;
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	size_t i;

	ENTER(cuMemMap);
	pthread_mutex_lock(&sim_lock);
	handle = handle_of(value);
	reservation = reservation_of(ptr);
	i = first_after(ptr);
	if (!handle || !size || size % SIM_PAGE || ptr % SIM_PAGE || flags)
		goto out;
	if (offset != 0 || size != handle->bytes) {
		result = CUDA_ERROR_NOT_SUPPORTED;
		goto out;
	}
	if (!reservation || ptr + size > reservation->address + reservation->bytes ||
		(i < mapping_count && mappings[i]->address < ptr + size))
		goto out;
	result = CUDA_ERROR_OUT_OF_MEMORY;
	mapping = calloc(1, sizeof(*mapping));
	if (!mapping || !list_room(&mappings, mapping_count, &mapping_capacity, sizeof(*mappings)))
		goto out;
	if (mmap((void *)ptr, size, PROT_NONE, MAP_SHARED | MAP_FIXED, handle->fd, 0) == MAP_FAILED)
		goto out;
	*mapping = (struct sim_mapping){.address = ptr, .bytes = size, .handle = handle, .buffer_id = sim_next_buffer_id()};
	memmove(&mappings[i + 1], &mappings[i], (mapping_count - i) * sizeof(*mappings));
	mappings[i] = mapping;
	mapping_count++;
	handle->maps++;
	mapping = NULL;
	result = CUDA_SUCCESS;
out:
	pthread_mutex_unlock(&sim_lock);
	free(mapping);
	return result;
}

/* The mappings that make up [ptr, ptr + size) without hole or remainder: from *ret_first, @return of them; 0 otherwise. */
static size_t whole_mappings(uint64_t ptr, uint64_t size, size_t *ret_first)
{
	size_t i = first_after(ptr), count = 0;
	uint64_t at = ptr;

	*ret_first = i;
	for (; i < mapping_count && at < ptr + size && mappings[i]->address == at; i++) {
		at += mappings[i]->bytes;
		count++;
	}
	return at == ptr + size ? count : 0;
}

CUresult CUDAAPI cuMemUnmap(CUdeviceptr ptr, size_t size)
{
	size_t first, count;

	ENTER(cuMemUnmap);
	pthread_mutex_lock(&sim_lock);
	count = whole_mappings(ptr, size, &first);
	if (count) {
		/* Over, not away: the addresses stay reserved. */
		mmap((void *)ptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
		for (size_t i = first; i < first + count; i++) {
			mappings[i]->handle->maps--;
			settle(mappings[i]->handle);
			free(mappings[i]);
		}
		memmove(&mappings[first], &mappings[first + count], (mapping_count - first - count) * sizeof(*mappings));
		mapping_count -= count;
	}
	pthread_mutex_unlock(&sim_lock);
	return count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

#define HOST_BIT (1u << 31)

/* The bit of a location in a mapping's rights. The CPU may be given access to host memory only. */
static CUresult access_bit(const CUmemLocation *location, const struct sim_mapping *mapping, uint32_t *ret_bit)
{
	switch ((int)location->type) {
	case CU_MEM_LOCATION_TYPE_DEVICE:
		*ret_bit = device_ok(location->id) ? 1u << location->id : 0;
		return *ret_bit ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
	case CU_MEM_LOCATION_TYPE_HOST:
	case CU_MEM_LOCATION_TYPE_HOST_NUMA:
		*ret_bit = HOST_BIT;
		return mapping->handle->location == SIM_HOST ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

static void grant(struct sim_mapping *mapping, uint32_t bit, CUmemAccess_flags flags)
{
	mapping->readable &= ~bit;
	mapping->writable &= ~bit;
	if (flags & CU_MEM_ACCESS_FLAGS_PROT_READ)
		mapping->readable |= bit;
	if (flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
		mapping->writable |= bit;
}

CUresult CUDAAPI cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t desc_count)
{
	CUresult result = CUDA_SUCCESS;
	size_t first, count;
	uint32_t bit;

	ENTER(cuMemSetAccess);
	if (!desc || !desc_count)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim_lock);
	count = whole_mappings(ptr, size, &first);
	if (!count)
		result = CUDA_ERROR_INVALID_VALUE;
	/* All is checked before anything changes. */
	for (size_t i = first; i < first + count && result == CUDA_SUCCESS; i++) {
		for (size_t d = 0; d < desc_count && result == CUDA_SUCCESS; d++) {
			result = access_bit(&desc[d].location, mappings[i], &bit);
			if (desc[d].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && desc[d].flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
				desc[d].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
				result = CUDA_ERROR_INVALID_VALUE;
		}
	}
	for (size_t i = first; i < first + count && result == CUDA_SUCCESS; i++) {
		struct sim_mapping *mapping = mappings[i];

		for (size_t d = 0; d < desc_count; d++) {
			access_bit(&desc[d].location, mapping, &bit);
			grant(mapping, bit, desc[d].flags);
		}
		mprotect((void *)mapping->address, mapping->bytes,
			mapping->writable ? PROT_READ | PROT_WRITE : mapping->readable ? PROT_READ : PROT_NONE);
	}
	pthread_mutex_unlock(&sim_lock);
	return result;
}

CUresult CUDAAPI cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr ptr)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	struct sim_mapping *mapping;
	uint32_t bit;

	ENTER(cuMemGetAccess);
	if (!flags || !location)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim_lock);
	mapping = sim_mapping_at(ptr);
	if (mapping)
		result = access_bit(location, mapping, &bit);
	if (result == CUDA_SUCCESS)
		*flags = (mapping->readable & bit ? CU_MEM_ACCESS_FLAGS_PROT_READ : 0) |
			 (mapping->writable & bit ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : 0);
	pthread_mutex_unlock(&sim_lock);
	return result;
}

CUresult CUDAAPI cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *ret_handle, void *address)
{
	struct sim_mapping *mapping;

	ENTER(cuMemRetainAllocationHandle);
	pthread_mutex_lock(&sim_lock);
	mapping = sim_mapping_at((uint64_t)(uintptr_t)address);
	if (mapping) {
		mapping->handle->refs++;
		*ret_handle = (CUmemGenericAllocationHandle)(uintptr_t)mapping->handle;
	}
	pthread_mutex_unlock(&sim_lock);
	return mapping ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop, CUmemGenericAllocationHandle value)
{
	struct sim_handle *handle;

	ENTER(cuMemGetAllocationPropertiesFromHandle);
	pthread_mutex_lock(&sim_lock);
	handle = handle_of(value);
	if (handle && prop)
		*prop = handle->prop;
	pthread_mutex_unlock(&sim_lock);
	return handle && prop ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle value, CUmemAllocationHandleType type,
	unsigned long long flags)
{
	struct sim_handle *handle;
	CUresult result = CUDA_ERROR_INVALID_VALUE;

	ENTER(cuMemExportToShareableHandle);
	pthread_mutex_lock(&sim_lock);
	handle = handle_of(value);
	if (handle && shareable && type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR &&
		(handle->prop.requestedHandleTypes & type)) {
		int fd = fcntl(handle->fd, F_DUPFD_CLOEXEC, 0);

		if (fd >= 0) {
			*(int *)shareable = fd;
			sim_machine_exported(handle->physical);
			result = CUDA_SUCCESS;
		}
	}
	pthread_mutex_unlock(&sim_lock);
	return result;
}

CUresult CUDAAPI cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *ret_handle, void *os_handle,
	CUmemAllocationHandleType type)
{
	char link[64], target[160], wanted[96];
	unsigned long long physical = 0;
	struct sim_handle *handle = NULL;
	uint64_t bytes;
	int location, fd = (int)(intptr_t)os_handle;
	ssize_t length;

	ENTER(cuMemImportFromShareableHandle);
	if (!ret_handle || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_INVALID_VALUE;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	length = readlink(link, target, sizeof(target) - 1);
	snprintf(wanted, sizeof(wanted), "/memfd:sublet-sim-%s-", sim_machine_token());
	if (length <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	target[length] = '\0';
	if (strncmp(target, wanted, strlen(wanted)) != 0)
		return CUDA_ERROR_INVALID_VALUE;
	physical = strtoull(target + strlen(wanted), NULL, 10);
	pthread_mutex_lock(&sim_lock);
	if (sim_machine_ref(physical, &bytes, &location)) {
		int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);

		handle = own >= 0 ? new_handle(own, physical, bytes, location) : NULL;
		if (!handle) {
			sim_machine_unref(physical);
			if (own >= 0)
				close(own);
		} else {
			handle->prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
			handle->prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
			handle->prop.location.type =
				location == SIM_HOST ? CU_MEM_LOCATION_TYPE_HOST_NUMA : CU_MEM_LOCATION_TYPE_DEVICE;
			handle->prop.location.id = location == SIM_HOST ? 0 : location;
			*ret_handle = (CUmemGenericAllocationHandle)(uintptr_t)handle;
		}
	}
	pthread_mutex_unlock(&sim_lock);
	return handle ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

void sim_vmm_counts(struct sim_counts *counts)
{
	for (size_t i = 0; i < handle_count; i++)
		counts->live_handles += handles[i]->refs;
	counts->live_mappings = mapping_count;
	for (size_t i = 0; i < reservation_count; i++)
		counts->reserved_bytes += reservations[i].bytes;
}

void sim_vmm_drop_all(void)
{
	for (size_t i = 0; i < reservation_count; i++)
		munmap((void *)reservations[i].address, reservations[i].bytes);
	for (size_t i = 0; i < mapping_count; i++)
		free(mappings[i]);
	for (size_t i = 0; i < handle_count; i++) {
		close(handles[i]->fd);
		free(handles[i]);
	}
	reservation_count = mapping_count = handle_count = 0;
}
