/* lifecycle/callers/room.h
 * Memory for what is learnt of callers, straight from the kernel: a stack may be read by somebody whose allocator is what calls, or who
 * has been interrupted in it. No lock, any thread, signal handlers and forked children too. Changes errno. */
#ifndef SUBLET_LIFECYCLE_CALLERS_ROOM_H
#define SUBLET_LIFECYCLE_CALLERS_ROOM_H

#include <stddef.h>

#define ROOM_KEPT_BYTES_MAX (32ul << 20) /* of all that is kept; pages come with their first use */

/* @bytes for the life of the process, zeroed. NULL: there is no more. */
void *room_keep(size_t bytes);

/* Whole pages for @bytes, zeroed; NULL when there are none. Given back with the same number, or made shorter in place. */
void *room_borrow(size_t bytes);
void room_shorten(void *room, size_t bytes, size_t to_bytes);
void room_return(void *room, size_t bytes); /* @room may be NULL */

#endif
