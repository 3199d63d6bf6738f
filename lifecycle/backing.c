/* lifecycle/backing.c
 * Order on the way in: create, map, ..., one set-access over all (one call per range: it costs per call). On the way out
 * the reverse. A handle that was never created is never mapped (SCENARIOS 3). */
#include "lifecycle/backing.h"

#include <stdlib.h>
#include <string.h>

static bool device_has(const struct driver *driver, int device, CUdevice_attribute attribute)
{
	int value = 0;

	/* A query that fails answers no; its error is not kept (SCENARIOS 18). */
	return driver->DeviceGetAttribute(&value, attribute, device) == CUDA_SUCCESS && value != 0;
}

static CUresult try_kind(struct backing_kind *kind, const struct driver *driver)
{
	CUmemGenericAllocationHandle handle;
	size_t granularity = 0;
	CUresult result;

	result = driver->MemGetAllocationGranularity(&granularity, &kind->prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
	if (result != CUDA_SUCCESS)
		return result;
	if (granularity == 0 || (granularity & (granularity - 1)))
		return CUDA_ERROR_NOT_SUPPORTED;
	kind->granularity_bytes = granularity;
	result = driver->MemCreate(&handle, granularity, &kind->prop, 0);
	if (result == CUDA_SUCCESS && driver->MemRelease(handle) != CUDA_SUCCESS)
		kind->unreleased = (struct extent){.handle = handle, .bytes = granularity, .held = true};
	/* A full device says nothing about the kind. */
	return result == CUDA_ERROR_OUT_OF_MEMORY ? CUDA_SUCCESS : result;
}

enum sublet_err backing_probe(struct backing_kind *kind, const struct driver *driver, int device, struct errinfo *reterr)
{
	bool export_fd, rdma;
	CUresult result = CUDA_ERROR_NOT_SUPPORTED;

	memset(kind, 0, sizeof(*kind));
	if (!device_has(driver, device, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED))
		return errinfo_set(reterr, SUBLET_ERR_UNSUPPORTED, (int)result, "device %d has no virtual memory management",
			device);
	kind->prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
	kind->prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	kind->prop.location.id = device;
	export_fd = device_has(driver, device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
	rdma = device_has(driver, device, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
	/* Best first: both, no RDMA, neither. */
	for (int step = 0; step < 3; step++) {
		kind->exportable = export_fd && step < 2;
		kind->prop.requestedHandleTypes =
			kind->exportable ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE;
		kind->prop.allocFlags.gpuDirectRDMACapable = rdma && step < 1;
		result = try_kind(kind, driver);
		if (result == CUDA_SUCCESS)
			return SUBLET_OK;
	}
	return errinfo_set(reterr, SUBLET_ERR_UNSUPPORTED, (int)result, "device %d refused a 2 MiB extent (driver error %d)", device,
		(int)result);
}

static void clear(struct backing *backing)
{
	if (backing->extents != &backing->single)
		free(backing->extents);
	memset(backing, 0, sizeof(*backing));
}

CUresult backing_give_back(struct backing *backing, const struct driver *driver, uint64_t address,
	const struct extent_sink *sink)
{
	CUresult first = CUDA_SUCCESS;

	/* All mappings first: a handle is let go of only when nothing of ours reaches its pages any more. */
	for (uint32_t i = 0; i < backing->count; i++) {
		struct extent *extent = &backing->extents[i];
		CUresult result = extent->mapped ? driver->MemUnmap(address, extent->bytes) : CUDA_SUCCESS;

		extent->mapped = extent->mapped && result != CUDA_SUCCESS;
		if (result != CUDA_SUCCESS && first == CUDA_SUCCESS)
			first = result;
		address += extent->bytes;
	}
	for (uint32_t i = 0; i < backing->count; i++) {
		struct extent *extent = &backing->extents[i];
		CUresult result;

		if (!extent->held || extent->mapped)
			continue;
		result = sink && sink->put(sink->arg, extent) ? CUDA_SUCCESS : driver->MemRelease(extent->handle);
		extent->held = result != CUDA_SUCCESS;
		if (result != CUDA_SUCCESS && first == CUDA_SUCCESS)
			first = result;
	}
	if (first == CUDA_SUCCESS)
		clear(backing);
	return first;
}

static CUresult create_extent(const struct driver *driver, const struct backing_kind *kind, const struct extent_source *source,
	struct extent *extent)
{
	if (source && source->take(source->arg, extent->bytes, &extent->handle))
		return CUDA_SUCCESS;
	return driver->MemCreate(&extent->handle, extent->bytes, &kind->prop, 0);
}

bool backing_room(struct backing *backing, uint32_t count)
{
	memset(backing, 0, sizeof(*backing));
	backing->extents = count == 1 ? &backing->single : calloc(count, sizeof(*backing->extents));
	backing->count = backing->extents ? count : 0;
	return backing->extents != NULL;
}

CUresult backing_add(struct backing *backing, uint32_t index, const struct driver *driver, const struct backing_kind *kind,
	uint64_t bytes, uint64_t at, const char **ret_step)
{
	struct extent *extent = &backing->extents[index];
	CUresult result;

	extent->bytes = bytes;
	*ret_step = "cuMemCreate";
	result = create_extent(driver, kind, NULL, extent);
	if (result != CUDA_SUCCESS)
		return result;
	extent->held = true;
	*ret_step = "cuMemMap";
	result = driver->MemMap(at, bytes, 0, extent->handle, 0);
	extent->mapped = result == CUDA_SUCCESS;
	if (!extent->mapped)
		extent->held = driver->MemRelease(extent->handle) != CUDA_SUCCESS;
	return result;
}

CUresult backing_unmap(struct backing *backing, const struct driver *driver, uint64_t address)
{
	CUresult result = driver->MemUnmap(address, backing_span_bytes(backing));

	for (uint32_t i = 0; result == CUDA_SUCCESS && i < backing->count; i++)
		backing->extents[i].mapped = false;
	return result;
}

static void unmap_mapped(struct backing *backing, const struct driver *driver, uint64_t address)
{
	for (uint32_t i = 0; i < backing->count; i++) {
		struct extent *extent = &backing->extents[i];

		if (extent->mapped)
			extent->mapped = driver->MemUnmap(address, extent->bytes) != CUDA_SUCCESS;
		address += extent->bytes;
	}
}

CUresult backing_map(struct backing *backing, const struct driver *driver, uint64_t address, const CUmemAccessDesc *access,
	size_t access_count, const char **ret_step)
{
	CUresult result = CUDA_SUCCESS;
	uint64_t at = address;

	*ret_step = "cuMemMap";
	for (uint32_t i = 0; i < backing->count; i++) {
		struct extent *extent = &backing->extents[i];

		result = driver->MemMap(at, extent->bytes, 0, extent->handle, 0);
		if (result != CUDA_SUCCESS)
			break;
		extent->mapped = true;
		at += extent->bytes;
	}
	if (result == CUDA_SUCCESS) {
		*ret_step = "cuMemSetAccess";
		result = driver->MemSetAccess(address, at - address, access, access_count);
	}
	if (result != CUDA_SUCCESS)
		unmap_mapped(backing, driver, address);
	return result;
}

uint64_t backing_held_bytes(const struct backing *backing)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < backing->count; i++)
		bytes += backing->extents[i].held ? backing->extents[i].bytes : 0;
	return bytes;
}

uint64_t backing_span_bytes(const struct backing *backing)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < backing->count; i++)
		bytes += backing->extents[i].bytes;
	return bytes;
}

void backing_take_over(struct backing *to, struct backing *from)
{
	*to = *from;
	if (from->extents == &from->single)
		to->extents = &to->single;
	memset(from, 0, sizeof(*from));
}

enum sublet_err backing_create(struct backing *backing, const struct driver *driver, const struct backing_kind *kind,
	const struct extent_source *source, uint64_t address, uint64_t span_bytes, uint64_t cut, const CUmemAccessDesc *access,
	size_t access_count, struct errinfo *reterr)
{
	uint32_t count = (uint32_t)((span_bytes + cut - 1) / cut);
	uint64_t offset = 0;
	const char *step = "cuMemCreate";
	CUresult result = CUDA_SUCCESS;

	if (!backing_room(backing, count))
		return errinfo_set(reterr, SUBLET_ERR_SYSTEM, 0, "no host memory for %u extents", count);
	for (uint32_t i = 0; i < count; i++) {
		struct extent *extent = &backing->extents[i];

		extent->bytes = span_bytes - offset < cut ? span_bytes - offset : cut;
		result = create_extent(driver, kind, source, extent);
		if (result != CUDA_SUCCESS)
			goto undo;
		extent->held = true;
		result = driver->MemMap(address + offset, extent->bytes, 0, extent->handle, 0);
		if (result != CUDA_SUCCESS) {
			step = "cuMemMap";
			goto undo;
		}
		extent->mapped = true;
		offset += extent->bytes;
	}
	result = driver->MemSetAccess(address, span_bytes, access, access_count);
	if (result != CUDA_SUCCESS) {
		step = "cuMemSetAccess";
		goto undo;
	}
	return SUBLET_OK;

undo:
	backing_give_back(backing, driver, address, NULL);
	return errinfo_set(reterr, result == CUDA_ERROR_OUT_OF_MEMORY ? SUBLET_ERR_NOMEM : SUBLET_ERR_DRIVER, (int)result,
		"%s refused %llu MiB (driver error %d)", step, (unsigned long long)(span_bytes >> 20), (int)result);
}
