/* shim/nvtx_names.h
 * Names of ranges, whatever form they come in, and the strings and domains that a program registers. No lock; usable before
 * anything has started. */
#ifndef SUBLET_SHIM_NVTX_NAMES_H
#define SUBLET_SHIM_NVTX_NAMES_H

#include "shim/nvtx_abi.h"

enum { NVTX_WIDE_BYTES = 1024 }; /* of a name given in wide characters, in UTF-8; the rest is cut */

/* @wide in UTF-8; NULL for NULL. What is no character becomes '?'. */
const char *nvtx_narrow(const wchar_t *wide, char buffer[NVTX_WIDE_BYTES]);

/* The name that @attributes give their range; NULL: none, or a form that is not known (a later version). @buffer is for those that
 * must be converted. */
const char *nvtx_name_of(const struct nvtx_attributes *attributes, char buffer[NVTX_WIDE_BYTES]);

/* A handle for @name, the same for the same name, to be given to the program; NULL for NULL, and when there are too many. */
const void *nvtx_handle(const char *name);

/* Somebody else has given the program @handle for @name. */
void nvtx_note_handle(const void *handle, const char *name);

#endif
