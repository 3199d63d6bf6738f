/* tools/suggest_words.c
 * What YAML lets through, what stands for itself in a pattern, what a name is. */
#include "tools/suggest_words.h"

#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { NAME_LETTERS_MAX = 64 };

/* Bytes of the character at @text, 0 when it is none that may stand in a policy file (YAML 1.2, 5.1; and not U+0085, which ends a line). */
static size_t character_bytes(const char *text)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	const unsigned char *p = (const unsigned char *)text;
	size_t count = *p < 0x80 ? 1 : *p >= 0xf0 ? 4 : *p >= 0xe0 ? 3 : 2;
	uint32_t point = count == 1 ? *p : *p & (0x7fu >> count);

	if (count == 1)
		return *p >= ' ' && *p < 0x7f;
	if (*p < 0xc0 || *p >= 0xf8)
		return 0;
	for (size_t i = 1; i < count; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return 0;
		point = point << 6 | (p[i] & 0x3f);
	}
	/* too long a form, a control character, a byte order mark or the end of a line, half a pair, no character at all */
	if (point < least[count] || point < 0xa0 || point == 0xfeff || point == 0x2028 || point == 0x2029 ||
		(point >= 0xd800 && point < 0xe000) || point == 0xfffe || point == 0xffff || point > 0x10ffff)
		return 0;
	return count;
}

void pattern_add(char *pattern, size_t room, const char *text)
{
	size_t used = strlen(pattern);

	while (*text) {
		size_t count = character_bytes(text);

		if (used + 6 > room) { /* a star and the end fit behind the longest character */
			if (used + 1 < room)
				pattern[used++] = '*';
			break;
		}
		if (strchr("*[\\", *text))
			pattern[used++] = '\\';
		if (count)
			memcpy(pattern + used, text, count);
		else
			pattern[used] = '?';
		used += count ? count : 1;
		text += count ? count : 1;
	}
	pattern[used] = '\0';
}

void pattern_add_stars(char *pattern, size_t room, const char *stars)
{
	size_t used = strlen(pattern);

	if (used + strlen(stars) < room)
		strcpy(pattern + used, stars);
}

void pattern_print(const char *pattern)
{
	putchar('"');
	for (; *pattern; pattern++) {
		if (*pattern == '"' || *pattern == '\\')
			putchar('\\');
		putchar(*pattern);
	}
	putchar('"');
}

static bool is_letter(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* With a meaning of their own in a policy, or in YAML. */
static bool is_reserved(const char *name)
{
	static const char *const words[] = {"all", "none", "demand", "default", "defaults"};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (strcmp(name, words[i]) == 0)
			return true;
	return strcasecmp(name, "null") == 0;
}

bool name_is_good(const char *name)
{
	size_t length = 0;

	for (; is_letter(name[length]) || (length && (is_digit(name[length]) || name[length] == '-' || name[length] == '.')); length++)
		;
	return length && length <= NAME_LETTERS_MAX && !name[length] && !is_reserved(name);
}

void name_make(const char *text, char *ret_name, size_t room)
{
	const char *before = is_digit(*text) || is_reserved(text) ? "of_" : "";
	size_t used = (size_t)snprintf(ret_name, room, "%s%s", before, text);

	if (used >= room)
		used = room - 1;
	for (size_t i = 0; i < used; i++)
		if (!is_letter(ret_name[i]) && (!i || !(is_digit(ret_name[i]) || ret_name[i] == '-' || ret_name[i] == '.')))
			ret_name[i] = '_';
	while (used > 1 && ret_name[used - 1] == '_')
		ret_name[--used] = '\0';
	if (!used || is_reserved(ret_name)) /* by what was cut off */
		strcpy(ret_name, used ? "object" : "_");
}
