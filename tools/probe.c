/* tools/probe.c
 * The child's side of the probe: one function per step, each leaving its answer in shared memory before the next
 * begins. Nothing is freed or closed on the way out of a failure: the child ends with it. */
#include "tools/probe.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/entry_list.h"

struct calls {
#define PROBE_STEP(token, doing)
#define PROBE_CALL(symbol, field, parameters) int(*field) parameters;
#include "tools/probe.def"
};

static const struct {
	const char *symbol;
	size_t offset;
} symbols[] = {
#define PROBE_STEP(token, doing)
#define PROBE_CALL(symbol, field, parameters) {#symbol, offsetof(struct calls, field)},
#include "tools/probe.def"
};

static const char *const doing[PROBE_STEP_COUNT] = {
#define PROBE_STEP(token, text) text,
#define PROBE_CALL(symbol, field, parameters)
#include "tools/probe.def"
};

struct child_work {
	struct probe *probe;
	const char *library;
};

const char *probe_step_text(enum probe_step step)
{
	return doing[step];
}

static struct calls calls;

/* Notes the result of @call, a missing symbol being one that the driver does not support. */
static bool note(struct probe_answer *answer, const char *call, int result)
{
	const char *name = NULL;

	answer->result = result;
	snprintf(answer->call, sizeof(answer->call), "%s", call);
	if (result && calls.GetErrorName && calls.GetErrorName(result, &name) == PROBE_SUCCESS && name)
		snprintf(answer->name, sizeof(answer->name), "%s", name);
	answer->tried = true;
	return result == PROBE_SUCCESS;
}

#define TRY(answer, field, ...) note(answer, "cu" #field, calls.field ? calls.field(__VA_ARGS__) : PROBE_NOT_SUPPORTED)

static void note_lacking(struct probe *probe, void *handle)
{
	size_t used = 0;

	for (size_t i = 0; i < entry_row_count && used < sizeof(probe->lacking); i++) {
		if (entry_row_required(&entry_rows[i]) && !dlsym(handle, entry_rows[i].symbol))
			used += (size_t)snprintf(probe->lacking + used, sizeof(probe->lacking) - used, "%s%s",
				used ? " " : "", entry_rows[i].symbol);
	}
}

static bool load(struct probe *probe, const char *library)
{
	void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
	struct link_map *map = NULL;

	if (!handle) {
		snprintf(probe->load_error, sizeof(probe->load_error), "%s", dlerror());
		return false;
	}
	for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
		void *address = dlsym(handle, symbols[i].symbol);

		memcpy((char *)&calls + symbols[i].offset, &address, sizeof(address));
	}
	note_lacking(probe, handle);
	probe->has_record = calls.CtxRecordEvent != NULL;
	if (dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map) {
		char *real = realpath(map->l_name, NULL);

		snprintf(probe->path, sizeof(probe->path), "%s", real ? real : map->l_name);
		free(real);
	}
	return true;
}

static int attribute(int device, enum probe_attribute which)
{
	int value = 0;

	/* a driver that does not know the attribute says so, and does not have the thing */
	return calls.DeviceGetAttribute && calls.DeviceGetAttribute(&value, (int)which, device) == PROBE_SUCCESS ? value
														 : 0;
}

static void look_at_device(struct probe_device *device, int ordinal)
{
	int handle = ordinal;

	if (calls.DeviceGet)
		calls.DeviceGet(&handle, ordinal);
	if (calls.DeviceGetName && calls.DeviceGetName(device->name, sizeof(device->name) - 1, handle))
		device->name[0] = '\0';
	device->has_vmm = attribute(handle, PROBE_ATTRIBUTE_VMM);
	device->has_posix_fd = attribute(handle, PROBE_ATTRIBUTE_POSIX_FD);
	device->has_rdma = attribute(handle, PROBE_ATTRIBUTE_RDMA);
	device->has_host_numa = attribute(handle, PROBE_ATTRIBUTE_HOST_NUMA);
	device->under_mps = attribute(handle, PROBE_ATTRIBUTE_MPS);
	device->host_numa_id = attribute(handle, PROBE_ATTRIBUTE_HOST_NUMA_ID);
	/* -1: this machine has no NUMA, and then one node */
	if (device->host_numa_id < 0)
		device->host_numa_id = 0;
}

/* The properties of one smallest extent there, and its size. */
static size_t extent(struct probe_allocation *properties, int location, int id)
{
	size_t bytes = 0;

	*properties = (struct probe_allocation){.type = PROBE_TYPE_PINNED, .location = {location, id}};
	if (!calls.MemGetAllocationGranularity ||
		calls.MemGetAllocationGranularity(&bytes, properties, PROBE_GRANULARITY_MINIMUM) || !bytes)
		bytes = (size_t)2 << 20;
	return bytes;
}

static void try_create(struct probe_answer *answer, int ordinal)
{
	struct probe_allocation properties;
	size_t bytes = extent(&properties, PROBE_LOCATION_DEVICE, ordinal);
	probe_u64 handle = 0;

	if (TRY(answer, MemCreate, &handle, bytes, &properties, 0))
		TRY(answer, MemRelease, handle);
}

static void try_export(struct probe_answer *answer, int location, int id)
{
	struct probe_allocation properties;
	size_t bytes = extent(&properties, location, id);
	probe_u64 handle = 0;
	int fd = -1;

	properties.handle_types = PROBE_HANDLE_POSIX_FD;
	if (!TRY(answer, MemCreate, &handle, bytes, &properties, 0))
		return;
	if (TRY(answer, MemExportToShareableHandle, &fd, handle, PROBE_HANDLE_POSIX_FD, 0))
		close(fd);
	if (calls.MemRelease)
		calls.MemRelease(handle);
}

static void try_rdma(struct probe_answer *answer, int ordinal)
{
	struct probe_allocation properties;
	size_t bytes = extent(&properties, PROBE_LOCATION_DEVICE, ordinal);
	probe_u64 handle = 0;

	properties.flags.rdma_capable = 1;
	if (TRY(answer, MemCreate, &handle, bytes, &properties, 0) && calls.MemRelease)
		calls.MemRelease(handle);
}

/* Reserve, create, map, give access, and all of it back. The context of device 0 is current. */
static void try_map(struct probe_answer *answer)
{
	struct probe_allocation properties;
	size_t bytes = extent(&properties, PROBE_LOCATION_DEVICE, 0);
	struct probe_access access = {properties.location, PROBE_ACCESS_READWRITE};
	probe_u64 handle = 0, address = 0;

	if (!TRY(answer, MemAddressReserve, &address, bytes, 0, 0, 0))
		return;
	if (!TRY(answer, MemCreate, &handle, bytes, &properties, 0))
		return;
	if (!TRY(answer, MemMap, address, bytes, 0, handle, 0))
		return;
	if (!TRY(answer, MemSetAccess, address, bytes, &access, 1))
		return;
	if (!TRY(answer, MemUnmap, address, bytes))
		return;
	if (TRY(answer, MemRelease, handle))
		TRY(answer, MemAddressFree, address, bytes);
}

static void try_record(struct probe_answer *answer, void *context)
{
	void *event = NULL;

	if (!TRY(answer, EventCreate, &event, PROBE_EVENT_DISABLE_TIMING))
		return;
	TRY(answer, CtxRecordEvent, context, event);
	if (calls.EventDestroy)
		calls.EventDestroy(event);
}

static void begin(struct probe *probe, enum probe_step step)
{
	__atomic_store_n((int *)&probe->step, (int)step, __ATOMIC_RELEASE);
}

static void try_all_devices(struct probe *probe)
{
	int count = 0;

	begin(probe, PROBE_STEP_DEVICES);
	if (calls.DeviceGetCount && calls.DeviceGetCount(&count) == PROBE_SUCCESS)
		probe->device_count = count > PROBE_DEVICES ? PROBE_DEVICES : count;
	for (int d = 0; d < probe->device_count; d++)
		look_at_device(&probe->devices[d], d);
	begin(probe, PROBE_STEP_CREATE);
	for (int d = 0; d < probe->device_count; d++)
		try_create(&probe->devices[d].create, d);
	begin(probe, PROBE_STEP_EXPORT);
	for (int d = 0; d < probe->device_count; d++)
		try_export(&probe->devices[d].export, PROBE_LOCATION_DEVICE, d);
	begin(probe, PROBE_STEP_RDMA);
	for (int d = 0; d < probe->device_count; d++)
		if (probe->devices[d].has_rdma)
			try_rdma(&probe->devices[d].rdma, d);
}

static void try_first_device(struct probe *probe)
{
	void *context = NULL;

	if (probe->devices[0].has_host_numa) {
		begin(probe, PROBE_STEP_HOST_NUMA);
		try_export(&probe->host_numa, PROBE_LOCATION_HOST_NUMA, probe->devices[0].host_numa_id);
	}
	begin(probe, PROBE_STEP_CONTEXT);
	if (!TRY(&probe->context, DevicePrimaryCtxRetain, &context, 0) || !TRY(&probe->context, CtxSetCurrent, context))
		return;
	begin(probe, PROBE_STEP_MAP);
	try_map(&probe->map);
	begin(probe, PROBE_STEP_RECORD);
	try_record(&probe->record, context);
	if (calls.DevicePrimaryCtxRelease)
		calls.DevicePrimaryCtxRelease(0);
}

static int probe_in_child(void *arg)
{
	struct child_work *work = arg;
	struct probe *probe = work->probe;

	/* with Sublet preloaded this process would become one of a session */
	unsetenv("SUBLET_SESSION");
	begin(probe, PROBE_STEP_LOAD);
	if (!load(probe, work->library))
		return 0;
	begin(probe, PROBE_STEP_VERSION);
	if (calls.DriverGetVersion && calls.DriverGetVersion(&probe->version))
		probe->version = 0;
	begin(probe, PROBE_STEP_INIT);
	if (!TRY(&probe->init, Init, 0))
		return 0;
	try_all_devices(probe);
	if (probe->device_count)
		try_first_device(probe);
	begin(probe, PROBE_STEP_END);
	return 0;
}

struct probe *probe_driver(const char *library, unsigned int timeout_ms, struct child_outcome *ret_outcome)
{
	struct child_work work = {child_memory(sizeof(struct probe)), library};

	if (work.probe)
		*ret_outcome = child_run(probe_in_child, &work, timeout_ms);
	return work.probe;
}
