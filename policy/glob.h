/* policy/glob.h
 * Patterns as the policy language has them: `*` any run of bytes, `?` one byte, `[abc]`, `[a-z]`, `[!a-z]` one byte of
 * a set (or not), `\` takes the next byte as it is. A `[` without its `]` stands for itself. The whole text must match.
 * Own code, because fnmatch(3) follows the locale and may allocate, and this runs inside other people's processes. */
#ifndef SUBLET_POLICY_GLOB_H
#define SUBLET_POLICY_GLOB_H

#include <stdbool.h>

/* Time is at most the product of the lengths; no recursion, no heap. */
bool glob_matches(const char *pattern, const char *text);

/* Does everything that @narrow matches match @wide too? True is certain, false is not (sets are not looked into). */
bool glob_covers(const char *wide, const char *narrow);

/* Has @pattern a character that does not stand for itself? */
bool glob_is_pattern(const char *pattern);

#endif
