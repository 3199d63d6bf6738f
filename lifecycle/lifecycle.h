/* lifecycle/lifecycle.h
 * Everything Sublet knows in one process: the door to the driver, the devices with their addresses, the records, the
 * native memory it only counts. One instance in the preloaded library, as many as they like in unit tests.
 *
 * Flow of a call: shim/ entry point -> memory.h or answers.h (decision, record) -> backing.h, reclaim.h -> driver.h. */
#ifndef SUBLET_LIFECYCLE_LIFECYCLE_H
#define SUBLET_LIFECYCLE_LIFECYCLE_H

#include <stdbool.h>
#include <stdint.h>

#include "lifecycle/arena.h"
#include "lifecycle/backing.h"
#include "lifecycle/callbacks.h"
#include "lifecycle/callers/sites.h"
#include "lifecycle/captures.h"
#include "lifecycle/client.h"
#include "lifecycle/contexts.h"
#include "lifecycle/drain.h"
#include "lifecycle/driver.h"
#include "lifecycle/gate.h"
#include "lifecycle/granules.h"
#include "lifecycle/host_pool.h"
#include "lifecycle/kernels.h"
#include "lifecycle/ledger.h"
#include "lifecycle/mover.h"
#include "lifecycle/native.h"
#include "lifecycle/reclaim.h"
#include "lifecycle/records.h"
#include "lifecycle/service.h"
#include "lifecycle/stats.h"
#include "lifecycle/triggers.h"

struct lifecycle_config {
	uint64_t min_size_bytes;  /* smaller requests stay native */
	uint64_t arena_bytes;     /* addresses to reserve per device; halved until the driver has room */
	uint64_t cache_bytes;     /* freed extents kept per device; 0: none */
	uint64_t free_wait_ns;    /* how long pending frees are waited for before out-of-memory is answered */
	void (*thread_begins)(void); /* first thing on every thread of Sublet's own; may be NULL */
	bool gate_fences;         /* do without membarrier, see gate_init */
	uint64_t extent_bytes;    /* larger allocations are cut into extents of this size; 0: 1 GiB */
	uint64_t host_pool_bytes; /* cap of the host extents of this process; 0: none */
	bool verify;              /* compare what comes back from host memory with what was left there; costs a pass of the CPU */
	bool poisons;             /* fill pages that come without contents... */
	unsigned char poison;     /* ...with this byte */
	unsigned caller_wants;    /* enum caller_wants: what is kept of each allocation's caller, whatever the policy asks */
	struct triggers *triggers; /* borrowed; told the policy each time there is a new one; may be NULL */
	bool free_sync;           /* free as the driver does: wait for the work, then give the pages back */
};

/* min_size 1 MiB (DESIGN.md 5), arena 16 TiB (eight of them fit into 47 bits of address), cache 64 MiB, wait 10 s. */
struct lifecycle_config lifecycle_config_default(void);

enum device_readiness {
	DEVICE_UNTRIED,
	DEVICE_PREPARING, /* one thread probes it, others wait for the outcome */
	DEVICE_READY,
	DEVICE_UNUSABLE, /* its allocations stay native; said once */
};

struct device_state {
	int readiness; /* enum device_readiness, atomic */
	struct backing_kind kind;
	struct arena arena;
	uint64_t total_bytes;
};

struct lifecycle {
	struct gate gate; /* first: shim/shim.h puts its word beside what else a gated call reads */
	struct driver driver;
	struct lifecycle_config config;
	uint64_t copied_extent_bytes; /* extents whose bytes may have to be copied are of this size; 0: as the others. Atomic */
	unsigned caller_wants; /* enum caller_wants, made ready; atomic */
	struct sites sites;
	struct stats_page *stats;
	int device_count;
	struct device_state devices[STATS_DEVICES];
	struct ranked_lock arena_lock;
	struct granules granules;
	struct drainer drainer;
	struct kernels kernels;
	struct callbacks callbacks;
	struct captures captures;
	struct contexts contexts;
	struct records records;
	struct reclaim reclaim;
	struct host_pool host_pool;
	struct ledger ledger;
	struct mover mover;
	struct service service;
	struct client client;
	struct native native;
};

/* @driver is copied, @stats borrowed. UNSUPPORTED: nothing here can work, with the reason. Calls the driver (device count,
 * nothing that makes a context). */
enum sublet_err lifecycle_init(struct lifecycle *lc, const struct driver *driver, const struct lifecycle_config *config,
	struct stats_page *stats, struct errinfo *reterr);

/* The same for a process that has no GPU: nothing but client.h may be asked of it, and its client joins as one. */
void lifecycle_init_without_driver(struct lifecycle *lc, const struct lifecycle_config *config, struct stats_page *stats);

/* Unit tests: give everything back. Live allocations are unmapped and released. Not for a process that ends (its driver
 * may be gone): see lifecycle_stop. */
void lifecycle_release(struct lifecycle *lc);

/* At process end: the helper threads make no further driver call once this returns, or 200 ms have passed for each;
 * a hold is over unless bytes are away, which come back for the first call that waits (service_stop). */
void lifecycle_stop(struct lifecycle *lc);

/* In a forked child: CUDA does not survive a fork, so everything is forgotten, without a driver call. */
void lifecycle_forget(struct lifecycle *lc);

/* Make @device ready on first use. False: its allocations stay native. Calls the driver, holds no lock. */
bool lifecycle_device(struct lifecycle *lc, int device);

/* The largest extent that an allocation of @device is made of now; @copied: one whose bytes may have to be copied. */
uint64_t lifecycle_extent_bytes(const struct lifecycle *lc, int device, bool copied);

/* Does any part of the range lie among the addresses Sublet hands out, used or not? No lock, no driver call. */
bool lifecycle_owns(const struct lifecycle *lc, CUdeviceptr address, uint64_t bytes);

/* A context was made or taken: note it. */
void lifecycle_context_seen(struct lifecycle *lc, CUcontext context, int device);
/* Around the driver's destroy or reset of @context: begin, the driver's call, end. On success its allocations end with
 * it, as the driver's own would. @gone: the context does not exist (or is empty) any more. */
void lifecycle_context_end_begin(struct lifecycle *lc, CUcontext context, struct context_end *end);
void lifecycle_context_end(struct lifecycle *lc, const struct context_end *end, bool gone);
/* The same for a context that owns no memory (a green one): allocations made under it stay. */
void lifecycle_context_left(struct lifecycle *lc, const struct context_end *end, bool gone);

#endif
