/* tools/policy_file.h
 * A policy file on its way into a command. */
#ifndef SUBLET_TOOLS_POLICY_FILE_H
#define SUBLET_TOOLS_POLICY_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "policy/source/source.h"

/* The text of file @name ('-': the standard input) into *ret_text (heap, not NUL-ended). One byte more than a policy may have is
 * read, so that the reader itself says that it is too large. False after one line. */
bool policy_file_read(const char *name, char **ret_text, size_t *ret_bytes);

/* Read, check and compile file @name. What is wrong with it, and what may be, is said on stderr as `sublet check` says it.
 * True: source->block is there; release the source. False: it cannot be used, and nothing is to be released. */
bool policy_file_compile(const char *name, struct policy_source *source);

#endif
