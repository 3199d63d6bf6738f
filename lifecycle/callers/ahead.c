/* lifecycle/callers/ahead.c
 * The room holds a window of the remembered members, read again from the one that is asked for on. */
#include "lifecycle/callers/ahead.h"

#include "lifecycle/callers/foreign.h"

enum { WINDOW_MAX = 48 };

void ahead_begin(struct ahead *ahead, const uint64_t *remembered, size_t count, uint32_t low, uint32_t bytes)
{
	ahead->remembered = remembered;
	ahead->count = remembered ? count : 0;
	ahead->low = low;
	ahead->bytes = bytes;
	ahead->first = ahead->have = ahead->expected = 0;
}

/* Which of the remembered ones @address is, or their count. */
static size_t place_of(const struct ahead *ahead, uint64_t address)
{
	if (ahead->expected < ahead->count && ahead->remembered[ahead->expected] == address)
		return ahead->expected;
	for (size_t i = 0; i < ahead->count; i++) {
		if (ahead->remembered[i] == address)
			return i;
	}
	return ahead->count;
}

static void read_window(struct ahead *ahead, size_t from)
{
	const size_t room = AHEAD_BYTES / ahead->bytes < WINDOW_MAX ? AHEAD_BYTES / ahead->bytes : WINDOW_MAX;
	struct iovec pieces[WINDOW_MAX];
	size_t count = 0;

	for (; count < room && from + count < ahead->count; count++)
		pieces[count] = foreign_piece(ahead->remembered[from + count] + ahead->low, ahead->bytes);
	ahead->first = from;
	ahead->have = foreign_gather(ahead->read, pieces, count) / ahead->bytes;
}

const char *ahead_get(struct ahead *ahead, uint64_t address)
{
	const size_t place = place_of(ahead, address);

	if (place < ahead->count) {
		if (place < ahead->first || place >= ahead->first + ahead->have)
			read_window(ahead, place);
		ahead->expected = place + 1;
		if (place < ahead->first + ahead->have)
			return ahead->read + (place - ahead->first) * ahead->bytes;
	}
	return foreign_read(ahead->single, address + ahead->low, ahead->bytes) ? ahead->single : NULL;
}
