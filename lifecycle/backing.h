/* lifecycle/backing.h
 * The physical side of one allocation: extents (one handle each), mapped side by side at its address.
 * The cost of VMM calls is per handle, not per byte (FACTS.md), so extents are as large as they may be: 1 GiB. */
#ifndef SUBLET_LIFECYCLE_BACKING_H
#define SUBLET_LIFECYCLE_BACKING_H

#include <stdbool.h>
#include <stdint.h>

#include "lifecycle/driver.h"

#define EXTENT_MAX_BYTES (1ull << 30)
#define ACCESS_MAX 64 /* devices in one access list */

struct extent {
	CUmemGenericAllocationHandle handle;
	uint64_t bytes;
	bool held;   /* the handle is ours to release */
	bool mapped; /* at its place in the allocation */
};

struct backing {
	struct extent *extents; /* owned; NULL when empty. One extent needs no heap: it lives in `single` */
	uint32_t count; /* 0: empty */
	struct extent single;
};

/* How extents of one device are made. Filled by backing_probe, read-only afterwards. */
struct backing_kind {
	CUmemAllocationProp prop;
	uint64_t granularity_bytes;
	bool exportable;
	struct extent unreleased; /* the probe's own, when the driver would not take it back (held) */
};

/* Where whole extents come from before the driver is asked, and go to before they are given back to it. */
struct extent_source {
	bool (*take)(void *arg, uint64_t bytes, CUmemGenericAllocationHandle *ret_handle);
	void *arg;
};

/* Find out how @device makes extents: exportable as a file descriptor and usable for RDMA where it can be, and falls back
 * where a handle type is advertised and then refused (containers without IMEX, SCENARIOS 36): one 2 MiB extent is made
 * and given back. UNSUPPORTED: the device has no VMM. Calls the driver. */
enum sublet_err backing_probe(struct backing_kind *kind, const struct driver *driver, int device, struct errinfo *reterr);

/* Create and map extents of @span_bytes (a multiple of the granularity) at @address, which is reserved and unmapped, and
 * give @access to all of it. Two-step: on failure everything is undone, the driver's code is in reterr, and @backing is
 * empty; it is not when the driver refused to take something back, which is then the caller's to try again.
 * NOMEM: the device is full; SYSTEM: the heap is. Calls the driver, holds no lock. */
enum sublet_err backing_create(struct backing *backing, const struct driver *driver, const struct backing_kind *kind,
	const struct extent_source *source, uint64_t address, uint64_t span_bytes, const CUmemAccessDesc *access,
	size_t access_count, struct errinfo *reterr);

/* Where extents may go before the driver: true when it has taken the handle over. */
struct extent_sink {
	bool (*put)(void *arg, const struct extent *extent);
	void *arg;
};

/* Unmap everything at @address and let go of the handles, to @sink (may be NULL) or the driver. What is still mapped is
 * not let go of: who gets its handle would share the pages. CUDA_SUCCESS: @backing is empty. Otherwise the first refusal;
 * the rest is done all the same, and a later call tries again what is left. */
CUresult backing_give_back(struct backing *backing, const struct driver *driver, uint64_t address,
	const struct extent_sink *sink);

#endif
