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

enum { WORD_MAX = 64 };

/* Is @pattern `*word*`, the usual form? Then the word, which the library's fast search finds. */
static bool word_inside(const char *pattern, char word[WORD_MAX])
{
	size_t length;

	if (pattern[0] != '*')
		return false;
	length = strcspn(pattern + 1, "*?[\\");
	if (!length || length >= WORD_MAX || pattern[1 + length] != '*' || pattern[2 + length])
		return false;
	memcpy(word, pattern + 1, length);
	word[length] = '\0';
	return true;
}

const char *glob_next_literal(const char **at, size_t *ret_length)
{
	const char *p = *at, *end, *start;

	for (;; p = end) {
		if (*p == '*' || *p == '?')
			end = p + 1;
		else if (*p == '\\' && p[1])
			end = p + 2; /* one byte that stands for itself, not worth the copy */
		else if (*p != '[' || !(end = set_end(p)))
			break;
	}
	/* a `[` without its end stands for itself */
	for (start = p; *p && *p != '*' && *p != '?' && *p != '\\' && (*p != '[' || !set_end(p)); p++)
		;
	if (p == start && *p)
		p++; /* a `\` at the very end: itself */
	*ret_length = (size_t)(p - start);
	*at = p;
	return start;
}

static bool glob_walk(const char *pattern, const char *text)
{
	const char *star = NULL, *star_text = NULL, *next;

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

bool glob_matches_any(const char *pattern, const char *const *texts, size_t count)
{
	char word[WORD_MAX];
	bool is_word = word_inside(pattern, word);

	for (size_t i = 0; i < count; i++)
		if (texts[i] && (is_word ? strstr(texts[i], word) != NULL : glob_walk(pattern, texts[i])))
			return true;
	return false;
}

bool glob_matches(const char *pattern, const char *text)
{
	return glob_matches_any(pattern, &text, 1);
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
