/* lifecycle/callers/ahead.h
 * Going along a chain of structures in foreign memory, each of which names the next: one by one that is a call of the
 * kernel for each. Where the chain was gone along before, its members mostly stand where they stood, and those places
 * are read together, many in one call. What was remembered only saves calls: every member is asked for by the address
 * that the one before it names. */
#ifndef SUBLET_LIFECYCLE_CALLERS_AHEAD_H
#define SUBLET_LIFECYCLE_CALLERS_AHEAD_H

#include <stddef.h>
#include <stdint.h>

enum { AHEAD_BYTES = 6144, AHEAD_MEMBER_BYTES_MAX = 256 };

/* On the stack of who reads. */
struct ahead {
	const uint64_t *remembered; /* borrowed; may be NULL */
	size_t count;
	uint32_t low, bytes;	      /* of each member: where what is read begins, and how much that is */
	size_t first, have, expected; /* of the remembered ones: those in @read, and which should be next */
	char read[AHEAD_BYTES], single[AHEAD_MEMBER_BYTES_MAX];
};

/* @bytes is at most AHEAD_MEMBER_BYTES_MAX. */
void ahead_begin(struct ahead *ahead, const uint64_t *remembered, size_t count, uint32_t low, uint32_t bytes);

/* The bytes of the member at @address, good until the next call; NULL when they are not there. */
const char *ahead_get(struct ahead *ahead, uint64_t address);

#endif
