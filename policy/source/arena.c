/* policy/source/arena.c
 * Chunks that double; arrays grow to powers of two and leave their old place behind. */
#include "policy/source/arena.h"

#include <stdalign.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct arena_chunk {
	struct arena_chunk *next;
	size_t used, room;
	alignas(max_align_t) char bytes[];
};

enum { FIRST_CHUNK = 16 << 10, LARGEST_CHUNK = 1 << 20 };

static struct arena_chunk *arena_grow(struct arena *arena, size_t least)
{
	size_t room = arena->chunks ? arena->chunks->room * 2 : FIRST_CHUNK;
	struct arena_chunk *chunk;

	if (room > LARGEST_CHUNK)
		room = LARGEST_CHUNK;
	if (room < least)
		room = least;
	chunk = calloc(1, sizeof(*chunk) + room);
	if (!chunk)
		return NULL;
	chunk->room = room;
	chunk->next = arena->chunks;
	arena->chunks = chunk;
	return chunk;
}

void *arena_new(struct arena *arena, size_t count, size_t element_bytes)
{
	const size_t align = alignof(max_align_t);
	struct arena_chunk *chunk = arena->chunks;
	size_t bytes;
	void *place;

	if (__builtin_mul_overflow(count, element_bytes, &bytes) || bytes > SIZE_MAX / 4) {
		arena->failed = true;
		return NULL;
	}
	bytes = (bytes + align - 1) / align * align;
	if (!bytes)
		bytes = align;
	if (!chunk || chunk->room - chunk->used < bytes)
		chunk = arena_grow(arena, bytes);
	if (!chunk) {
		arena->failed = true;
		return NULL;
	}
	place = chunk->bytes + chunk->used;
	chunk->used += bytes;
	return place;
}

char *arena_copy(struct arena *arena, const char *text, size_t length)
{
	char *copy = arena_new(arena, length + 1, 1);

	if (copy && length)
		memcpy(copy, text, length);
	return copy;
}

bool arena_room(struct arena *arena, void *list, size_t count, size_t element_bytes)
{
	void *old, *more;

	/* full exactly when @count is 0 or a power of two from 4 up */
	if (count && (count < 4 || (count & (count - 1))))
		return true;
	more = arena_new(arena, count ? count * 2 : 4, element_bytes);
	if (!more)
		return false;
	memcpy(&old, list, sizeof(old));
	if (count)
		memcpy(more, old, count * element_bytes);
	memcpy(list, &more, sizeof(more));
	return true;
}

void arena_release(struct arena *arena)
{
	while (arena->chunks) {
		struct arena_chunk *chunk = arena->chunks;

		arena->chunks = chunk->next;
		free(chunk);
	}
	arena->failed = false;
}
