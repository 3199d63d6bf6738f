/* lifecycle/lifecycle.c
 * Puts the parts together; decides nothing about single allocations. */
#include "lifecycle/lifecycle.h"

#include <sched.h>
#include <string.h>

#include "base/log.h"
#include "lifecycle/lanes.h"

struct lifecycle_config lifecycle_config_default(void)
{
	return (struct lifecycle_config){
		.min_size_bytes = 1ull << 20,
		.arena_bytes = 16ull << 40,
		.cache_bytes = 64ull << 20,
		.free_wait_ns = 10ull * 1000000000ull,
	};
}

static void init_parts(struct lifecycle *lc)
{
	gate_init(&lc->gate, lc->config.gate_fences);
	callbacks_init(&lc->callbacks);
	captures_init(&lc->captures, &lc->driver);
	contexts_init(&lc->contexts, &lc->driver);
	sites_init(&lc->sites);
	records_init(&lc->records, &lc->granules);
	reclaim_init(&lc->reclaim);
	host_pool_init(&lc->host_pool);
	service_init(lc);
	client_init(&lc->client);
	ledger_init(&lc->ledger);
	ranked_lock_init(&lc->arena_lock, RANK_ARENA);
	native_init(&lc->native, &lc->granules, lc->stats, lc->device_count);
}

void lifecycle_init_without_driver(struct lifecycle *lc, const struct lifecycle_config *config, struct stats_page *stats)
{
	memset(lc, 0, sizeof(*lc));
	lc->config = *config;
	lc->stats = stats;
	init_parts(lc);
	lc->client.without_gpu = true;
}

enum sublet_err lifecycle_init(struct lifecycle *lc, const struct driver *driver, const struct lifecycle_config *config,
	struct stats_page *stats, struct errinfo *reterr)
{
	int count = 0;
	CUresult result = driver->DeviceGetCount(&count);

	if (result != CUDA_SUCCESS)
		return errinfo_set(reterr, SUBLET_ERR_DRIVER, (int)result, "cuDeviceGetCount failed (driver error %d)", (int)result);
	memset(lc, 0, sizeof(*lc));
	lc->driver = *driver;
	lc->config = *config;
	lc->stats = stats;
	lc->device_count = count < STATS_DEVICES ? count : STATS_DEVICES;
	stats->device_count = (uint32_t)lc->device_count;
	init_parts(lc);
	return SUBLET_OK;
}

void lifecycle_release(struct lifecycle *lc)
{
	struct reclaim_room room;
	struct detached detached;

	client_release(lc);
	service_release(lc); /* it holds, and a hold may be what the drainer works for */
	drainer_join(lc);
	reclaim_wait(lc, UINT64_MAX / 4);
	reclaim_join(&lc->reclaim); /* what it was offering again is stranded again, and offered below */
	while (records_detach_of_context(&lc->records, NULL, &detached)) {
		if (detached.allocation)
			reclaim_free_idle(lc, detached.allocation);
	}
	lc->config.cache_bytes = 0;
	reclaim_room_begin(lc, &room);
	reclaim_make_room(lc, -1, UINT64_MAX, &room);
	lanes_release(lc);
	host_pool_release(lc);
	reclaim_release(&lc->reclaim);
	for (int d = 0; d < lc->device_count; d++)
		arena_release(&lc->devices[d].arena, &lc->driver);
	native_release(&lc->native);
	ledger_release(&lc->ledger);
	ranked_lock_release(&lc->arena_lock);
	records_release(&lc->records);
	sites_release(&lc->sites);
	contexts_release(&lc->contexts, true);
	captures_release(&lc->captures);
	callbacks_release(&lc->callbacks);
	gate_release(&lc->gate);
	granules_release(&lc->granules);
}

void lifecycle_stop(struct lifecycle *lc)
{
	client_stop(lc, 200ull * 1000000ull);
	service_stop(lc, 200ull * 1000000ull);
	drainer_stop(&lc->drainer, 200ull * 1000000ull);
	reclaim_stop(&lc->reclaim, 200ull * 1000000ull);
}

void lifecycle_forget(struct lifecycle *lc)
{
	gate_forget(&lc->gate);
	drainer_forget(&lc->drainer);
	captures_forget(&lc->captures);
	contexts_forget(&lc->contexts);
	reclaim_forget(&lc->reclaim);
	service_forget(&lc->service);
	client_forget(&lc->client);
	ledger_forget(&lc->ledger);
	mover_forget(&lc->mover);
	host_pool_forget(&lc->host_pool);
	for (int d = 0; d < lc->device_count; d++) {
		int preparing = DEVICE_PREPARING;

		/* By a thread that is not here, and that this one may be waiting for; or by this one, which will say how it ends. */
		__atomic_compare_exchange_n(&lc->devices[d].readiness, &preparing, DEVICE_UNUSABLE, false, __ATOMIC_ACQ_REL,
			__ATOMIC_ACQUIRE);
	}
}

uint64_t lifecycle_extent_bytes(const struct lifecycle *lc, int device, bool copied)
{
	const uint64_t granularity = lc->devices[device].kind.granularity_bytes;
	uint64_t bytes = copied ? __atomic_load_n(&lc->copied_extent_bytes, __ATOMIC_RELAXED) : 0;

	if (bytes == 0)
		bytes = lc->config.extent_bytes;
	if (bytes == 0 || bytes > EXTENT_MAX_BYTES)
		return EXTENT_MAX_BYTES;
	bytes -= bytes % (granularity > GRANULE_BYTES ? granularity : GRANULE_BYTES);
	return bytes ? bytes : GRANULE_BYTES;
}

static bool prepare_device(struct lifecycle *lc, int device)
{
	struct device_state *state = &lc->devices[device];
	struct driver_scope scope;
	struct errinfo error;
	enum sublet_err err = SUBLET_OK;
	size_t total = 0;
	uint64_t least;

	driver_enter(&lc->driver, &scope);
	if (lc->driver.DeviceTotalMem(&total, device) != CUDA_SUCCESS || total == 0)
		err = errinfo_set(&error, SUBLET_ERR_DRIVER, 0, "device %d does not tell its memory size", device);
	if (!err)
		err = backing_probe(&state->kind, &lc->driver, device, &error);
	/* Four times the device: enough addresses for everything it can hold while freed ranges wait to be merged. */
	least = (4 * (uint64_t)total + GRANULE_BYTES - 1) & ~(GRANULE_BYTES - 1);
	if (!err)
		err = arena_init(&state->arena, &lc->driver, &lc->arena_lock, lc->config.arena_bytes,
			least < lc->config.arena_bytes ? least : lc->config.arena_bytes, &error);
	if (state->kind.unreleased.held)
		reclaim_strand_extent(lc, device, &state->kind.unreleased);
	driver_leave(&lc->driver, &scope);
	if (err) {
		log_say(LOG_MEMORY, LOG_WARN, WHOSE_DRIVER, "%s; memory of device %d stays native", error.text, device);
		return false;
	}
	state->total_bytes = total;
	log_say(LOG_MEMORY, LOG_DEBUG, WHOSE_NONE, "device %d: %llu GiB of addresses from 0x%llx, granularity %llu KiB%s%s", device,
		(unsigned long long)(state->arena.size_bytes >> 30), (unsigned long long)state->arena.base,
		(unsigned long long)(state->kind.granularity_bytes >> 10), state->kind.exportable ? ", exportable" : "",
		state->kind.prop.allocFlags.gpuDirectRDMACapable ? ", rdma" : "");
	return true;
}

bool lifecycle_device(struct lifecycle *lc, int device)
{
	struct device_state *state;
	int readiness;

	if (device < 0 || device >= lc->device_count)
		return false;
	state = &lc->devices[device];
	readiness = __atomic_load_n(&state->readiness, __ATOMIC_ACQUIRE);
	if (readiness == DEVICE_READY)
		return true;
	if (readiness == DEVICE_UNTRIED &&
		__atomic_compare_exchange_n(&state->readiness, &readiness, DEVICE_PREPARING, false, __ATOMIC_ACQ_REL,
			__ATOMIC_ACQUIRE)) {
		readiness = prepare_device(lc, device) ? DEVICE_READY : DEVICE_UNUSABLE;
		__atomic_store_n(&state->readiness, readiness, __ATOMIC_RELEASE);
		return readiness == DEVICE_READY;
	}
	/* The preparing thread makes a handful of calls that return at once and takes no lock of ours. */
	while ((readiness = __atomic_load_n(&state->readiness, __ATOMIC_ACQUIRE)) == DEVICE_PREPARING)
		sched_yield();
	return readiness == DEVICE_READY;
}

bool lifecycle_owns(const struct lifecycle *lc, CUdeviceptr address, uint64_t bytes)
{
	for (int d = 0; d < lc->device_count; d++) {
		const struct device_state *state = &lc->devices[d];
		uint64_t end = state->arena.base + state->arena.size_bytes;

		if (__atomic_load_n(&state->readiness, __ATOMIC_ACQUIRE) != DEVICE_READY)
			continue;
		if (address >= state->arena.base ? address < end : bytes > state->arena.base - address)
			return true;
	}
	return false;
}

void lifecycle_context_seen(struct lifecycle *lc, CUcontext context, int device)
{
	/* also those beyond STATS_DEVICES: their work may use the memory of others */
	if (context && device >= 0)
		contexts_note(&lc->contexts, context, device);
}

void lifecycle_context_end_begin(struct lifecycle *lc, CUcontext context, struct context_end *end)
{
	kernels_gone(lc); /* its modules end with it */
	contexts_end_begin(&lc->contexts, context, end);
	end->capture_moment = captures_moment(&lc->captures);
}

void lifecycle_context_left(struct lifecycle *lc, const struct context_end *end, bool gone)
{
	if (!gone) {
		contexts_end_undo(&lc->contexts, end);
		return;
	}
	contexts_drop(&lc->contexts, end);
	if (captures_context_gone(&lc->captures, end->capture_moment, end->handle))
		reclaim_kick(lc);
}

void lifecycle_context_end(struct lifecycle *lc, const struct context_end *end, bool gone)
{
	struct detached detached;
	struct driver_scope scope;

	lifecycle_context_left(lc, end, gone);
	if (!gone)
		return;
	driver_enter(&lc->driver, &scope);
	while (records_detach_of_context(&lc->records, end, &detached)) {
		stats_freed(&lc->stats->device[detached.view.device], detached.view.span_bytes, detached.view.size_bytes,
			detached.view.residency);
		if (detached.allocation)
			reclaim_free_idle(lc, detached.allocation);
	}
	driver_leave(&lc->driver, &scope);
}
