/* lifecycle/callers/foreign.h
 * Copies of memory that belongs to somebody else in this process and may be gone at any moment, another thread's doing:
 * never a fault. May be called anywhere; takes no lock, allocates nothing. Changes errno. */
#ifndef SUBLET_LIFECYCLE_CALLERS_FOREIGN_H
#define SUBLET_LIFECYCLE_CALLERS_FOREIGN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

/* At most this many pieces and bytes in one call. */
enum { FOREIGN_PIECES_MAX = 256, FOREIGN_BYTES_MAX = 32768 };

static inline struct iovec foreign_piece(uint64_t address, size_t size)
{
	return (struct iovec){.iov_base = (void *)(uintptr_t)address, .iov_len = size};
}

/* Copies the @count pieces, one behind the other, to @to. Returns the bytes copied: fewer where a piece is not there
 * (nothing behind it is copied then), 0 where the system forbids such copies. */
size_t foreign_gather(void *to, const struct iovec *pieces, size_t count);

/* One piece, whole or not at all. */
bool foreign_read(void *to, uint64_t address, size_t size);

/* Does the system let this process copy so? */
bool foreign_works(void);

#endif
