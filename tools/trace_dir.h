/* tools/trace_dir.h
 * The folder of a trace: manifest.json, one file for each process that has device memory, one of the coordinator. All processes of a
 * session share it; who comes first makes it and writes the manifest. */
#ifndef SUBLET_TOOLS_TRACE_DIR_H
#define SUBLET_TOOLS_TRACE_DIR_H

#include <stdbool.h>
#include <stdint.h>

#include "policy/source/compile.h"

/* Make folder @folder (0700; its parent has to be there) unless it is there, and set SUBLET_TRACE to its absolute path for what is
 * started from here. @folder NULL: what SUBLET_TRACE says, if anything. With neither nothing happens, and true is returned.
 * False after one line. */
bool trace_dir_use(const char *folder);

/* Write the manifest of the folder that SUBLET_TRACE names, if it names one, unless it is there already. @policy_name: the file
 * that @policy was compiled from; NULL: the session has none. False after one line: it cannot be written, or it is that of
 * another session. */
bool trace_dir_describe(const char *session, const char *policy_name, const struct policy_block *policy);

/* SUBLET_TRACE_SIZE, 0 where it is not set. False after one line. */
bool trace_dir_ring_bytes(uint64_t *ret_bytes);

#endif
