/* tools/suggest_words.h
 * Patterns and names for a policy, from texts that may hold anything: whatever comes out here `sublet check` takes. Texts and room end
 * with NUL. */
#ifndef SUBLET_TOOLS_SUGGEST_WORDS_H
#define SUBLET_TOOLS_SUGGEST_WORDS_H

#include <stdbool.h>
#include <stddef.h>

/* Adds to @pattern, of which @room bytes are there, what matches @text: a `?` for each byte that YAML refuses, and a star for what
 * there is no room for. */
void pattern_add(char *pattern, size_t room, const char *text);
/* Adds @stars as it is; nothing when there is no room. */
void pattern_add_stars(char *pattern, size_t room, const char *stars);
/* @pattern in double quotes, on stdout. */
void pattern_print(const char *pattern);

/* May a policy name an object or a role so? */
bool name_is_good(const char *name);
/* A name that looks like @text, in @room bytes (at least 8, at most 65). */
void name_make(const char *text, char *ret_name, size_t room);

#endif
