/* tests/unit/lifecycle_fixture.c */
#include "tests/unit/lifecycle_fixture.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/sim/sim.h"

#define CHILD_ALARM_S 10

struct lifecycle fixture_lc;
struct stats_page fixture_page;
struct lifecycle_config fixture_config;

static void *find(const char *symbol, void *arg)
{
#define DRIVER_CALL(name, field, need)                                                                                 \
	if (strcmp(symbol, #name) == 0)                                                                                \
		return (void *)name;
#include "lifecycle/driver.def"
	return NULL;
}

static void order_violation(enum lock_rank held, enum lock_rank wanted)
{
	fprintf(stderr, "lock rank %d wanted while %d or above is held\n", (int)wanted, (int)held);
	__builtin_abort();
}

bool fixture_begin(void)
{
	struct driver driver;
	struct errinfo error;
	CUcontext context;

	lock_order_violation = order_violation;
	sublet_sim_reset();
	fixture_page = (struct stats_page){0};
	if (!fixture_config.arena_bytes) {
		fixture_config = lifecycle_config_default();
		fixture_config.arena_bytes = 1ull << 40;
	}
	return cuInit(0) == CUDA_SUCCESS && cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS &&
	       cuCtxSetCurrent(context) == CUDA_SUCCESS && driver_load(&driver, find, NULL, &error) == SUBLET_OK &&
	       lifecycle_init(&fixture_lc, &driver, &fixture_config, &fixture_page, &error) == SUBLET_OK;
}

const char *fixture_end(void)
{
	static char left[256];
	struct sim_counts counts;

	sublet_sim_fail(NULL, 0, false, 0);
	lifecycle_release(&fixture_lc);
	fixture_config = (struct lifecycle_config){0};
	sublet_sim_counts(&counts);
	for (int d = 0; d < STATS_DEVICES; d++) {
		const struct stats_device *device = &fixture_page.device[d];

		if (device->managed.bytes || device->requested_bytes || device->pending_bytes || device->cached_bytes) {
			snprintf(left, sizeof(left), "device %d: counters say managed %llu requested %llu pending %llu cached %llu", d,
				(unsigned long long)device->managed.bytes, (unsigned long long)device->requested_bytes,
				(unsigned long long)device->pending_bytes, (unsigned long long)device->cached_bytes);
			return left;
		}
		for (int r = 0; r < STATS_RESIDENCIES; r++) {
			if (device->residency_bytes[r]) {
				snprintf(left, sizeof(left), "device %d: %llu bytes counted in residency %d", d,
					(unsigned long long)device->residency_bytes[r], r);
				return left;
			}
		}
		if (counts.device_bytes[d]) {
			snprintf(left, sizeof(left), "device %d: %llu bytes in use", d, (unsigned long long)counts.device_bytes[d]);
			return left;
		}
	}
	if (fixture_page.host_pool_bytes || fixture_page.host_pool_free_bytes) {
		snprintf(left, sizeof(left), "host pool: %llu bytes, %llu free", (unsigned long long)fixture_page.host_pool_bytes,
			(unsigned long long)fixture_page.host_pool_free_bytes);
		return left;
	}
	if (!counts.live_handles && !counts.live_mappings && !counts.reserved_bytes && !counts.live_blocks && !counts.live_events)
		return NULL;
	snprintf(left, sizeof(left), "%llu handles, %llu mappings, %llu reserved bytes, %llu blocks, %llu events",
		(unsigned long long)counts.live_handles, (unsigned long long)counts.live_mappings,
		(unsigned long long)counts.reserved_bytes, (unsigned long long)counts.live_blocks,
		(unsigned long long)counts.live_events);
	return left;
}

static struct ranked_lock *const locks[RANK_COUNT] = {
	[RANK_PRIMARY] = &fixture_lc.contexts.primary_lock,
	[RANK_CAPTURE] = &fixture_lc.captures.lock,
	[RANK_CONTEXTS] = &fixture_lc.contexts.lock,
	[RANK_RECORDS] = &fixture_lc.records.lock,
	[RANK_RECLAIM] = &fixture_lc.reclaim.lock,
	[RANK_ARENA] = &fixture_lc.arena_lock,
	[RANK_NATIVE] = &fixture_lc.native.lock,
	[RANK_SERVICE] = &fixture_lc.service.lock,
	[RANK_HOST_POOL] = &fixture_lc.host_pool.lock,
	[RANK_CALLBACKS] = &fixture_lc.callbacks.lock,
	[RANK_KERNELS] = &fixture_lc.gate.kernels_lock,
	[RANK_SITES] = &fixture_lc.sites.lock,
	[RANK_CLIENT] = &fixture_lc.client.lock,
	[RANK_LEDGER] = &fixture_lc.ledger.lock,
};

void fixture_lock_all(void)
{
	for (int rank = 0; rank < RANK_COUNT; rank++)
		if (locks[rank]) /* one is a file's own, callers/symbols.c, whose tests fork themselves */
			ranked_lock(locks[rank]);
}

void fixture_unlock_all(void)
{
	for (int rank = RANK_COUNT - 1; rank >= 0; rank--)
		if (locks[rank])
			ranked_unlock(locks[rank]);
}

void fixture_child_begin(void)
{
	static const int of_crashes[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGSYS};

	for (size_t i = 0; i < sizeof(of_crashes) / sizeof(of_crashes[0]); i++)
		signal(of_crashes[i], SIG_DFL);
	alarm(CHILD_ALARM_S);
	sublet_sim_on_call(NULL);
	ranked_lock_fork_child();
	lifecycle_forget(&fixture_lc);
}
