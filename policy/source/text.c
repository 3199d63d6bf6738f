/* policy/source/text.c
 * Failure is remembered instead of returned: output is long, and the one who prints it asks once. */
#include "policy/source/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool text_grow(struct text *text, size_t more)
{
	size_t room = text->room ? text->room : 256;
	char *bytes;

	if (text->failed)
		return false;
	if (text->length + more + 1 <= text->room)
		return true;
	while (room < text->length + more + 1)
		room *= 2;
	bytes = realloc(text->bytes, room);
	if (!bytes) {
		text->failed = true;
		return false;
	}
	text->bytes = bytes;
	text->room = room;
	return true;
}

void text_add_bytes(struct text *text, const char *bytes, size_t length)
{
	if (!text_grow(text, length))
		return;
	if (length)
		memcpy(text->bytes + text->length, bytes, length);
	text->length += length;
	text->bytes[text->length] = '\0';
}

void text_add(struct text *text, const char *format, ...)
{
	va_list args, again;
	int length;

	va_start(args, format);
	va_copy(again, args);
	length = vsnprintf(NULL, 0, format, args);
	if (length >= 0 && text_grow(text, (size_t)length)) {
		vsnprintf(text->bytes + text->length, (size_t)length + 1, format, again);
		text->length += (size_t)length;
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

void text_add_json(struct text *text, const char *string)
{
	size_t left = strlen(string);

	text_add_bytes(text, "\"", 1);
	while (left) {
		unsigned char c = (unsigned char)*string;
		size_t length = utf8_length(string, left);

		if (c == '"' || c == '\\')
			text_add(text, "\\%c", c);
		else if (c < 0x20 || c == 0x7f)
			text_add(text, "\\u%04x", c);
		else if (!length)
			text_add(text, "\\ufffd");
		else
			text_add_bytes(text, string, length);
		if (!length)
			length = 1;
		string += length;
		left -= length;
	}
	text_add_bytes(text, "\"", 1);
}

const char *text_get(const struct text *text)
{
	return text->bytes ? text->bytes : "";
}

void text_release(struct text *text)
{
	free(text->bytes);
	*text = (struct text){0};
}
