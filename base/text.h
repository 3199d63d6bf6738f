/* base/text.h
 * Text of others (names, paths, variables, errors) on its way to a terminal or a log. */
#ifndef SUBLET_BASE_TEXT_H
#define SUBLET_BASE_TEXT_H

/* Turn control characters into '?': a newline would forge a line, an escape sequence would command the terminal. Bytes
 * of UTF-8 stay. Returns @text. */
char *text_make_printable(char *text);

/* What @error, an errno, means, without locale or buffer. Never NULL. */
const char *text_of_errno(int error);

#endif
