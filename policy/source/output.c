/* policy/source/output.c
 * Failure is remembered instead of returned: output is long, and the one who prints it asks once. */
#include "policy/source/output.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool output_grow(struct output *output, size_t more)
{
	size_t room = output->room ? output->room : 256;
	char *bytes;

	if (output->failed)
		return false;
	if (output->length + more + 1 <= output->room)
		return true;
	while (room < output->length + more + 1)
		room *= 2;
	bytes = realloc(output->bytes, room);
	if (!bytes) {
		output->failed = true;
		return false;
	}
	output->bytes = bytes;
	output->room = room;
	return true;
}

void output_add_bytes(struct output *output, const char *bytes, size_t length)
{
	if (!output_grow(output, length))
		return;
	if (length)
		memcpy(output->bytes + output->length, bytes, length);
	output->length += length;
	output->bytes[output->length] = '\0';
}

void output_add(struct output *output, const char *format, ...)
{
	va_list args, again;
	int length;

	va_start(args, format);
	va_copy(again, args);
	length = vsnprintf(NULL, 0, format, args);
	if (length >= 0 && output_grow(output, (size_t)length)) {
		vsnprintf(output->bytes + output->length, (size_t)length + 1, format, again);
		output->length += (size_t)length;
	}
	va_end(again);
	va_end(args);
}

size_t utf8_length(const char *bytes, size_t left)
{
	unsigned char c = (unsigned char)bytes[0];
	size_t length = c < 0x80		? 1
			: c >= 0xc2 && c < 0xe0 ? 2
			: c >= 0xe0 && c < 0xf0 ? 3
			: c >= 0xf0 && c < 0xf5 ? 4
						: 0;

	if (!length || length > left)
		return 0;
	for (size_t i = 1; i < length; i++)
		if (((unsigned char)bytes[i] & 0xc0) != 0x80)
			return 0;
	return length;
}

bool utf8_is_control(const char *bytes)
{
	const unsigned char *c = (const unsigned char *)bytes;
	unsigned int code;

	if (c[0] < 0x20 || c[0] == 0x7f || (c[0] == 0xc2 && c[1] < 0xa0))
		return true;
	if ((c[0] & 0xf0) != 0xe0)
		return c[0] == 0xc2 && c[1] == 0xad; /* soft hyphen */
	code = (c[0] & 0xfu) << 12 | (c[1] & 0x3fu) << 6 | (c[2] & 0x3fu);
	return (code >= 0x200b && code <= 0x200f) || (code >= 0x2028 && code <= 0x202e) ||
	       (code >= 0x2060 && code <= 0x206f) || code == 0xfeff;
}

size_t utf8_break(const char *bytes, size_t left)
{
	if (!left)
		return 0;
	if (bytes[0] == '\r')
		return left > 1 && bytes[1] == '\n' ? 2 : 1;
	if (bytes[0] == '\n')
		return 1;
	if (left > 1 && memcmp(bytes, "\xc2\x85", 2) == 0)
		return 2;
	return left > 2 && (memcmp(bytes, "\xe2\x80\xa8", 3) == 0 || memcmp(bytes, "\xe2\x80\xa9", 3) == 0) ? 3 : 0;
}

size_t line_length(const char *bytes, size_t left, size_t *ret_next)
{
	size_t at = 0, end;

	while (at < left && !(end = utf8_break(bytes + at, left - at)))
		at++;
	*ret_next = at < left ? at + end : at;
	return at;
}

void output_add_printable(struct output *output, const char *string)
{
	for (size_t left = strlen(string), length; left; string += length, left -= length) {
		length = utf8_length(string, left);
		if (length && !utf8_is_control(string)) {
			output_add_bytes(output, string, length);
			continue;
		}
		output_add_bytes(output, "?", 1);
		if (!length)
			length = 1;
	}
}

const char *output_get(const struct output *output)
{
	return output->bytes ? output->bytes : "";
}

void output_release(struct output *output)
{
	free(output->bytes);
	*output = (struct output){0};
}
