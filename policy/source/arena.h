/* policy/source/arena.h
 * Memory that is given back all at once: the nodes, texts and rows of one policy file. Zeroed. A failed allocation is
 * remembered, so that callers may go on with NULL checks at few places and the front asks once. */
#ifndef SUBLET_POLICY_SOURCE_ARENA_H
#define SUBLET_POLICY_SOURCE_ARENA_H

#include <stdbool.h>
#include <stddef.h>

struct arena_chunk;

/* Zero-initialised is an empty arena. */
struct arena {
	struct arena_chunk *chunks;
	bool failed; /* an allocation was refused */
};

/* @count elements of @element_bytes, aligned for anything. NULL when memory ran out. */
void *arena_new(struct arena *arena, size_t count, size_t element_bytes);
/* A NUL-ended copy of @length bytes. */
char *arena_copy(struct arena *arena, const char *text, size_t length);
/* Room for one more element in the array *@list (of any element type; passed as its address). False when memory ran
 * out. */
bool arena_room(struct arena *arena, void *list, size_t count, size_t element_bytes);
void arena_release(struct arena *arena);

#endif
