/* lifecycle/inventory.h
 * What one process tells of each of its allocations, and of all it has allocated so far, to who asks for that (`sublet ctl
 * objects`): one block in a sealed file that is passed along. Written in lifecycle/client_inventory.c; whoever reads it believes
 * nothing before inventory_open has looked at it.
 *
 *   header | allocations | groups | sites | frames (offsets of texts) | texts, each ending in NUL
 *
 * Times are clock_now_ns() of the process's machine. No CUDA here: tools/ includes this header. */
#ifndef SUBLET_LIFECYCLE_INVENTORY_H
#define SUBLET_LIFECYCLE_INVENTORY_H

#include <stddef.h>
#include <stdint.h>

#include "base/errors.h"

#define INVENTORY_MAGIC 0x59524e54564e4953ull /* "SINVTNRY" */
#define INVENTORY_VERSION 1u
#define INVENTORY_NONE UINT32_MAX /* as a site or text: not known; as a rule: no policy says which */
#define INVENTORY_BYTES_MAX (256ull << 20)

struct inventory_header {
	uint64_t magic;
	uint32_t version;
	uint32_t header_bytes;
	uint64_t total_bytes;
	uint64_t now_ns;
	uint64_t left_out; /* allocations that are in no group: there were too many */
	uint32_t caller_wants; /* enum caller_wants: what is looked for at allocations */
	uint32_t allocations_count, groups_count, sites_count, frames_count, texts_bytes;
};

/* A live allocation. */
struct inventory_allocation {
	uint64_t address;
	uint64_t size_bytes; /* as requested */
	uint64_t span_bytes; /* whole pages */
	uint64_t serial;     /* the policy's `order` */
	uint64_t since_ns;
	uint32_t device;
	uint32_t rule;	    /* of the policy, or INVENTORY_NONE */
	uint32_t residency; /* enum policy_residency */
	uint32_t site;	    /* index, or INVENTORY_NONE */
};

/* Allocations of one site, size and device, those that were freed included. */
struct inventory_group {
	uint64_t size_bytes;
	uint64_t count, live, peak_live;
	uint64_t first_serial, last_serial;
	uint64_t first_ns, last_ns;
	uint64_t freed, freed_lived_ns; /* how many, and the sum of their lives */
	uint32_t device;
	uint32_t site;
};

/* Texts are offsets, or INVENTORY_NONE. Frames: native ones from `first_frame` on, then Python's; innermost first. */
struct inventory_site {
	uint32_t library[2], thread, tag;
	uint32_t first_frame, stack_count, python_count;
	uint32_t spare; /* 0 */
};

/* A block in use: pointers into it. */
struct inventory {
	const struct inventory_header *header;
	const struct inventory_allocation *allocations;
	const struct inventory_group *groups;
	const struct inventory_site *sites;
	const uint32_t *frames;
	const char *texts;
};

/* Bytes of a block with the counts of @header; 0: more than INVENTORY_BYTES_MAX. */
uint64_t inventory_bytes(const struct inventory_header *header);
/* Where the parts of the block at @bytes lie, by the counts of its header, which are right. */
void inventory_place(const void *bytes, struct inventory *ret);

/* Check the @size_bytes at @bytes (aligned to 8) and point *ret into them. INVALID with one line: no inventory, another version,
 * damaged. Allocates nothing. */
enum sublet_err inventory_open(const void *bytes, size_t size_bytes, struct inventory *ret, struct errinfo *reterr);

/* The text at @offset; NULL for INVENTORY_NONE. */
static inline const char *inventory_text(const struct inventory *inventory, uint32_t offset)
{
	return offset == INVENTORY_NONE ? NULL : inventory->texts + offset;
}

#endif
