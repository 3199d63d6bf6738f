/* policy/source/output.h
 * A text that grows: what the tools print is put together here, so that it can be tested without a stream. */
#ifndef SUBLET_POLICY_SOURCE_OUTPUT_H
#define SUBLET_POLICY_SOURCE_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/attributes.h"

/* Zero-initialised is empty. */
struct output {
	char *bytes; /* NUL-ended once something was added, NULL before */
	size_t length, room;
	bool failed; /* memory ran out; what was added since is lost */
};

void output_add(struct output *output, const char *format, ...) SUBLET_PRINTF(2, 3);
void output_add_bytes(struct output *output, const char *bytes, size_t length);
/* "" when nothing was added. */
const char *output_get(const struct output *output);
void output_release(struct output *output);

/* With '?' for whatever a terminal would obey or could not show. */
void output_add_printable(struct output *output, const char *string);

/* Bytes of the UTF-8 character at @bytes, of which @left are there; 0 when they are none. */
size_t utf8_length(const char *bytes, size_t left);
/* Is the character at @bytes, whole as utf8_length says, one that is not shown or that a terminal obeys? Controls (C1
 * too), marks of width zero and of direction, line and paragraph separators. */
bool utf8_is_control(const char *bytes);
/* Bytes of the line break at @bytes as YAML 1.1 knows them (CR, LF, CR LF, NEL, LS, PS), 0 when there is none. */
size_t utf8_break(const char *bytes, size_t left);
/* Bytes of the line that starts at @bytes, without its break; *ret_next is where the next one starts. */
size_t line_length(const char *bytes, size_t left, size_t *ret_next);

#endif
