/* lifecycle/backing.h
 * What is mapped at the address of one allocation: extents (one handle each), side by side. On the device they are its own;
 * where it is parked they are host extents that belong to the pool (`held` is false); with no bytes there it is empty.
 * The cost of VMM calls is per handle, not per byte (FACTS.md), so extents are as large as they may be: 1 GiB. Where
 * bytes are to be copied they are cut smaller (lifecycle_extent_bytes). */
#ifndef SUBLET_LIFECYCLE_BACKING_H
#define SUBLET_LIFECYCLE_BACKING_H

#include <stdbool.h>
#include <stdint.h>

#include "lifecycle/driver.h"

#define EXTENT_MAX_BYTES (1ull << 30)
#define EXTENT_POLICY_BYTES (256ull << 20) /* under a policy: a hand-over goes extent by extent */
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

/* Create and map extents of @span_bytes (a multiple of the granularity), none larger than @cut, at @address, which is reserved
 * and unmapped, and give @access to all of it. Two-step: on failure everything is undone, the driver's code is in reterr, and @backing is
 * empty; it is not when the driver refused to take something back, which is then the caller's to try again.
 * NOMEM: the device is full; SYSTEM: the heap is. Calls the driver, holds no lock. */
enum sublet_err backing_create(struct backing *backing, const struct driver *driver, const struct backing_kind *kind,
	const struct extent_source *source, uint64_t address, uint64_t span_bytes, uint64_t cut, const CUmemAccessDesc *access,
	size_t access_count, struct errinfo *reterr);

/* The same in steps, for who does something else in between. An empty @backing with room for @count extents; false: no host
 * memory. Each starts with `bytes` 0. */
bool backing_room(struct backing *backing, uint32_t count);
/* Create extent @index of @bytes and map it at @at; access to it is the caller's to give. On failure that extent is as before, but
 * for what the driver would not take back (it stays `held`, for backing_give_back). *ret_step names the call that refused. */
CUresult backing_add(struct backing *backing, uint32_t index, const struct driver *driver, const struct backing_kind *kind,
	uint64_t bytes, uint64_t at, const char **ret_step);

/* Take all of @backing, which is mapped, away from @address and keep the handles. One call: on failure nothing has changed. */
CUresult backing_unmap(struct backing *backing, const struct driver *driver, uint64_t address);
/* Map all of @backing, of which nothing is mapped, at @address, with @access. On failure nothing is mapped, or as little as
 * the driver would take back; *ret_step names the call that refused. */
CUresult backing_map(struct backing *backing, const struct driver *driver, uint64_t address, const CUmemAccessDesc *access,
	size_t access_count, const char **ret_step);

/* Bytes of device memory that @backing holds. */
uint64_t backing_held_bytes(const struct backing *backing);
/* Bytes from the first extent to the end of the last. */
uint64_t backing_span_bytes(const struct backing *backing);
/* @to, which is empty, becomes @from; @from becomes empty. */
void backing_take_over(struct backing *to, struct backing *from);

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
