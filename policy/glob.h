/* policy/glob.h
 * Patterns as the policy language has them: `*` any run of bytes, `?` one byte, `[abc]`, `[a-z]`, `[!a-z]` one byte of
 * a set (or not), `\` takes the next byte as it is. A `[` without its `]` stands for itself. The whole text must match.
 * Own code, because fnmatch(3) follows the locale and may allocate, and this runs inside other people's processes. */
#ifndef SUBLET_POLICY_GLOB_H
#define SUBLET_POLICY_GLOB_H

#include <stdbool.h>
#include <stddef.h>

/* Time is at most the product of the lengths; no recursion, no heap. */
bool glob_matches(const char *pattern, const char *text);

/* Does @pattern match one of the @count @texts (NULL matches nothing)? */
bool glob_matches_any(const char *pattern, const char *const *texts, size_t count);

/* The next run of bytes in a pattern that stand for themselves, from *@at on, which is moved behind it. Its length is 0
 * when there is none. A text that matches holds every run. */
const char *glob_next_literal(const char **at, size_t *ret_length);

/* Does everything that @narrow matches match @wide too? True is certain, false is not (sets are not looked into). */
bool glob_covers(const char *wide, const char *narrow);

/* Has @pattern a character that does not stand for itself? */
bool glob_is_pattern(const char *pattern);

#endif
