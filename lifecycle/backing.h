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
};

struct backing {
	struct extent *extents; /* owned; NULL when empty. One extent needs no heap: it lives in `single` */
	uint32_t count;
	struct extent single;
};

/* How extents of one device are made. Filled by backing_probe, read-only afterwards. */
struct backing_kind {
	CUmemAllocationProp prop;
	uint64_t granularity_bytes;
	bool exportable;
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
 * give @access to all of it. Two-step: on failure nothing is mapped or held and the driver's code is in reterr.
 * NOMEM: the device (or the heap) is full. Calls the driver, holds no lock. */
enum sublet_err backing_create(struct backing *backing, const struct driver *driver, const struct backing_kind *kind,
	const struct extent_source *source, uint64_t address, uint64_t span_bytes, const CUmemAccessDesc *access,
	size_t access_count, struct errinfo *reterr);

/* Unmap everything at @address. The extents stay. First driver error wins; the rest is unmapped all the same. */
CUresult backing_unmap(struct backing *backing, const struct driver *driver, uint64_t address);

/* Forget the extents after their handles went elsewhere (or nowhere). */
void backing_clear(struct backing *backing);

#endif
