/* lifecycle/callers/room.c
 * One mapping that is only ever added to, made by whoever comes first. */
#include "lifecycle/callers/room.h"

#include <stdbool.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ALIGN = 16 };

static char *kept;	 /* atomic */
static size_t kept_used; /* atomic */

static void *map(size_t bytes, int flags)
{
	void *room = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);

	return room == MAP_FAILED ? NULL : room;
}

void *room_keep(size_t bytes)
{
	char *from = __atomic_load_n(&kept, __ATOMIC_ACQUIRE);
	size_t at;

	bytes = (bytes + ALIGN - 1) & ~(size_t)(ALIGN - 1);
	if (!from) {
		char *fresh = map(ROOM_KEPT_BYTES_MAX, MAP_NORESERVE);

		if (!fresh)
			return NULL;
		if (__atomic_compare_exchange_n(&kept, &from, fresh, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
			from = fresh;
		else
			munmap(fresh, ROOM_KEPT_BYTES_MAX);
	}
	/* asked first, so that many refusals cannot carry the count around */
	if (bytes > ROOM_KEPT_BYTES_MAX || __atomic_load_n(&kept_used, __ATOMIC_RELAXED) > ROOM_KEPT_BYTES_MAX - bytes)
		return NULL;
	at = __atomic_fetch_add(&kept_used, bytes, __ATOMIC_RELAXED);
	return at > ROOM_KEPT_BYTES_MAX - bytes ? NULL : from + at;
}

void *room_borrow(size_t bytes)
{
	return map(bytes, 0);
}

void room_shorten(void *room, size_t bytes, size_t to_bytes)
{
	const size_t page = (size_t)getpagesize();
	size_t keep = (to_bytes + page - 1) & ~(page - 1), all = (bytes + page - 1) & ~(page - 1);

	if (keep < all)
		munmap((char *)room + keep, all - keep);
}

void room_return(void *room, size_t bytes)
{
	if (room)
		munmap(room, bytes);
}
