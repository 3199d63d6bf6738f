/* lifecycle/environment.c
 * One walk over the pointers for each name, through windows: the texts that a process was started with lie side by side. */
#include "lifecycle/environment.h"

#include <stdint.h>
#include <string.h>
#include <unistd.h>

enum { PIECE = 32 };

/* Does the text at @address begin with the @length bytes of @name? */
static bool begins(struct peek_window *window, uint64_t address, const char *name, size_t length)
{
	char piece[PIECE];

	for (size_t at = 0; at < length; at += PIECE) {
		const size_t bytes = length - at < PIECE ? length - at : PIECE;

		/* what ends before that ends the memory too, perhaps, and is another name */
		if (!peek_through(window, address + at, piece, bytes) || memcmp(piece, name + at, bytes) != 0)
			return false;
	}
	return true;
}

static bool copy(struct environment_reader *reader, uint64_t address)
{
	for (size_t at = 0; at < sizeof(reader->value); at++) {
		if (!peek_through(&reader->texts, address + at, &reader->value[at], 1))
			return false;
		if (!reader->value[at])
			return true;
	}
	return false;
}

const char *environment_now(const char *name, void *arg)
{
	struct environment_reader *reader = arg;
	const uint64_t pointers = (uint64_t)(uintptr_t)__atomic_load_n(&environ, __ATOMIC_RELAXED);
	const size_t length = strlen(name);
	uint64_t text;
	char equals;

	reader->pointers.length = reader->texts.length = 0; /* of the last time */
	for (uint64_t i = 0; pointers && i < ENVIRONMENT_VARIABLES_MAX; i++) {
		if (!peek_through(&reader->pointers, pointers + i * sizeof(text), &text, sizeof(text)) || !text)
			return NULL;
		if (begins(&reader->texts, text, name, length) && peek_through(&reader->texts, text + length, &equals, 1) && equals == '=')
			return copy(reader, text + length + 1) ? reader->value : NULL;
	}
	return NULL;
}
