/* policy/glob.c
 * One star is remembered at a time: when the rest fails, the last star takes one byte more. */
#include "policy/glob.h"

#include <stddef.h>
#include <string.h>

/* If @p starts a set `[...]`, its end (behind the `]`), else NULL. */
static const char *set_end(const char *p)
{
	const char *q = p + 1;

	if (*q == '!' || *q == '^')
		q++;
	if (*q == ']') /* first in the set: itself */
		q++;
	for (; *q; q++)
		if (*q == ']')
			return q + 1;
	return NULL;
}

static bool set_has(const char *p, const char *end, unsigned char c)
{
	bool negated = p[1] == '!' || p[1] == '^', has = false;

	for (p += negated ? 2 : 1; p < end - 1; p++) {
		if (p[1] == '-' && p + 2 < end - 1) {
			has |= (unsigned char)p[0] <= c && c <= (unsigned char)p[2];
			p += 2;
		} else {
			has |= (unsigned char)*p == c;
		}
	}
	return has != negated;
}

/* Does the element of a pattern at @p (no star) match @c? *ret_next is where the next element starts. */
static bool element_matches(const char *p, unsigned char c, const char **ret_next)
{
	const char *end;

	*ret_next = p + 1;
	if (*p == '?')
		return true;
	if (*p == '[' && (end = set_end(p))) {
		*ret_next = end;
		return set_has(p, end, c);
	}
	if (*p == '\\' && p[1]) {
		*ret_next = p + 2;
		return (unsigned char)p[1] == c;
	}
	return (unsigned char)*p == c;
}

/* `*word*`, the usual form, with the library's fast search. Returns whether it applied. */
static bool word_inside(const char *pattern, const char *text, bool *ret_matches)
{
	char word[64];
	size_t length;

	if (pattern[0] != '*')
		return false;
	length = strcspn(pattern + 1, "*?[\\");
	if (!length || length >= sizeof(word) || pattern[1 + length] != '*' || pattern[2 + length])
		return false;
	memcpy(word, pattern + 1, length);
	word[length] = '\0';
	*ret_matches = strstr(text, word) != NULL;
	return true;
}

bool glob_matches(const char *pattern, const char *text)
{
	const char *star = NULL, *star_text = NULL, *next;
	bool matches;

	if (word_inside(pattern, text, &matches))
		return matches;
	while (*text) {
		if (*pattern == '*') {
			star = ++pattern;
			star_text = text;
			if (!*pattern)
				return true;
		} else if (*pattern && element_matches(pattern, (unsigned char)*text, &next)) {
			pattern = next;
			text++;
		} else if (star) {
			pattern = star;
			text = ++star_text;
		} else {
			return false;
		}
	}
	while (*pattern == '*')
		pattern++;
	return !*pattern;
}

bool glob_is_pattern(const char *pattern)
{
	return strpbrk(pattern, "*?[\\") != NULL;
}

bool glob_covers(const char *wide, const char *narrow)
{
	const char *star = NULL, *star_text = NULL;

	if (strcmp(wide, narrow) == 0)
		return true;
	if (strpbrk(wide, "[\\") || strpbrk(narrow, "[\\"))
		return false;
	/* @narrow read as a text, in which a `*` is only matched by a star and a `?` only by a star or a `?` */
	while (*narrow) {
		if (*wide == '*') {
			star = ++wide;
			star_text = narrow;
			if (!*wide)
				return true;
		} else if (*narrow != '*' && (*wide == '?' || *wide == *narrow)) {
			wide++;
			narrow++;
		} else if (star) {
			wide = star;
			narrow = ++star_text;
		} else {
			return false;
		}
	}
	while (*wide == '*')
		wide++;
	return !*wide;
}
