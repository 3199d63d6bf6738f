/* lifecycle/callers/peek.h
 * foreign.h for those who go through memory in small steps, or want several parts in places of their own. */
#ifndef SUBLET_LIFECYCLE_CALLERS_PEEK_H
#define SUBLET_LIFECYCLE_CALLERS_PEEK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct peek_part {
	uint64_t address;
	void *to;
	size_t bytes;
};

/* Of one call: what lies in between is on somebody else's stack. */
enum { PEEK_PARTS_MAX = 24, PEEK_PARTS_BYTES_MAX = 2048 };

/* Copy @count parts in one call of the kernel. Returns how many were copied in full, from the first on: it stops at the first that
 * is not there (where the system forbids the quick way of foreign.h, maybe a few before it). Changes errno, as the other does. */
size_t peek_parts(const struct peek_part *parts, size_t count);

/* What was last copied, for readers that go through memory in small steps. Two KiB: the stack it lies on is somebody else's. */
struct peek_window {
	uint64_t start;
	uint64_t length; /* bytes that are valid; 0 when new */
	uint8_t bytes[2048];
};

/* Copy @bytes (at most 64) from @address by way of @window. */
bool peek_through(struct peek_window *window, uint64_t address, void *to, size_t bytes);

#endif
