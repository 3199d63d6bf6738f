/* lifecycle/native.h
 * Memory the driver gave and Sublet does not manage: counted by kind, never touched. A call that is not noted here is
 * missing from the count and nothing else; no entry point may fail because of this module. */
#ifndef SUBLET_LIFECYCLE_NATIVE_H
#define SUBLET_LIFECYCLE_NATIVE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/lock.h"
#include "base/map.h"
#include "lifecycle/driver.h"
#include "lifecycle/granules.h"
#include "lifecycle/stats.h"

struct native {
	struct ranked_lock lock; /* RANK_NATIVE */
	struct granules *granules;
	struct stats_page *stats;
	int device_count;
	struct map blocks;   /* address or array handle -> struct native_block; under lock */
	struct map handles;  /* CUmemGenericAllocationHandle the application holds -> struct native_handle; under lock */
	struct map mappings; /* start address -> struct native_mapping; under lock */
};

void native_init(struct native *native, struct granules *granules, struct stats_page *stats, int device_count);
void native_release(struct native *native);

/* The driver gave @bytes under @key (an address, or an array's handle). @device out of range counts as device 0. */
void native_note(struct native *native, uint64_t key, uint64_t bytes, int device, enum stats_native kind);

/* Around a call that gives @key back: taken before it, since the driver may hand the same address to another thread before
 * the call has returned here, and noted again when the driver refused. Unknown keys are fine. */
struct native_taken {
	uint64_t key, bytes;
	int device;
	enum stats_native kind;
	bool known;
};
struct native_taken native_take(struct native *native, uint64_t key);
void native_untake(struct native *native, const struct native_taken *taken);

/* The application's own VMM memory. Bytes count from create until neither a handle nor a mapping is left, as the driver
 * keeps them. Imported memory belongs to its creator and is not counted here. */
void native_vmm_created(struct native *native, CUmemGenericAllocationHandle handle, uint64_t bytes,
	const CUmemAllocationProp *prop);
void native_vmm_retained(struct native *native, CUmemGenericAllocationHandle handle, uint64_t address);
void native_vmm_released(struct native *native, CUmemGenericAllocationHandle handle);
void native_vmm_mapped(struct native *native, uint64_t address, uint64_t bytes, CUmemGenericAllocationHandle handle);
void native_vmm_unmapped(struct native *native, uint64_t address, uint64_t bytes);

#endif
