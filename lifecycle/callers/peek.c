/* lifecycle/callers/peek.c
 * All is copied by foreign.h, in as few calls as can be. */
#include "lifecycle/callers/peek.h"

#include <string.h>

#include "lifecycle/callers/foreign.h"

/* The least page there is: what lies within one is there in full or not at all. */
enum { PEEK_PAGE = 4096 };

size_t peek_parts(const struct peek_part *parts, size_t count)
{
	struct iovec pieces[PEEK_PARTS_MAX];
	char read[PEEK_PARTS_BYTES_MAX];
	size_t total = 0, done = 0, copied, at = 0;

	if (count == 0 || count > PEEK_PARTS_MAX)
		return 0;
	for (size_t i = 0; i < count; i++) {
		pieces[i] = foreign_piece(parts[i].address, parts[i].bytes);
		if (parts[i].bytes > sizeof(read) - total)
			return 0;
		total += parts[i].bytes;
	}
	copied = foreign_gather(read, pieces, count);
	for (; done < count && parts[done].bytes <= copied - at; done++) {
		memcpy(parts[done].to, read + at, parts[done].bytes);
		at += parts[done].bytes;
	}
	return done;
}

/* From @address on as much as there is, in whole pages: the last ones may be missing. */
static void fill(struct peek_window *window, uint64_t address)
{
	uint64_t to_page_end = PEEK_PAGE - address % PEEK_PAGE;
	size_t first = to_page_end < sizeof(window->bytes) ? (size_t)to_page_end : sizeof(window->bytes);
	const struct iovec pieces[] = {foreign_piece(address, first), foreign_piece(address + first, sizeof(window->bytes) - first)};
	size_t copied = foreign_gather(window->bytes, pieces, pieces[1].iov_len ? 2 : 1);

	/* a pipe gives nothing of a page that it cannot fill as it was told to */
	if (copied < first && pieces[1].iov_len)
		copied = foreign_gather(window->bytes, pieces, 1);
	window->start = address;
	window->length = copied;
}

bool peek_through(struct peek_window *window, uint64_t address, void *to, size_t bytes)
{
	uint64_t offset = address - window->start;

	if (address < window->start || offset > window->length || bytes > window->length - offset) {
		fill(window, address);
		offset = 0;
		if (bytes > window->length)
			return false;
	}
	memcpy(to, window->bytes + offset, bytes);
	return true;
}
