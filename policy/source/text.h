/* policy/source/text.h
 * A text that grows: what the tools print is put together here, so that it can be tested without a stream. */
#ifndef SUBLET_POLICY_SOURCE_TEXT_H
#define SUBLET_POLICY_SOURCE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/attributes.h"

/* Zero-initialised is empty. */
struct text {
	char *bytes; /* NUL-ended once something was added, NULL before */
	size_t length, room;
	bool failed; /* memory ran out; what was added since is lost */
};

void text_add(struct text *text, const char *format, ...) SUBLET_PRINTF(2, 3);
void text_add_bytes(struct text *text, const char *bytes, size_t length);
/* As a JSON string with its quotes. Bytes that are no UTF-8 become U+FFFD. */
void text_add_json(struct text *text, const char *string);
/* "" when nothing was added. */
const char *text_get(const struct text *text);
void text_release(struct text *text);

/* Bytes of the UTF-8 character at @bytes, of which @left are there; 0 when they are none. */
size_t utf8_length(const char *bytes, size_t left);

#endif
