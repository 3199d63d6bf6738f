/* tools/elf_exports.h
 * The names that a shared object exports, read off its file by libelf, which is opened on first use: a machine without
 * it loses this question and nothing else. */
#ifndef SUBLET_TOOLS_ELF_EXPORTS_H
#define SUBLET_TOOLS_ELF_EXPORTS_H

#include <stdbool.h>

/* Call @visit with each defined global or weak name of the dynamic symbol table of @path. NULL when done, else why not
 * ("libelf.so.1 is not here", "not a shared object", the system's words); a constant string. */
const char *elf_exports_each(const char *path, void (*visit)(const char *name, void *arg), void *arg);

#endif
