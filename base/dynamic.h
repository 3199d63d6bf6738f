/* base/dynamic.h
 * The dynamic section of an object that the loader has loaded: its symbols and relocations, read where they lie in
 * memory. The object must stay loaded meanwhile. */
#ifndef SUBLET_BASE_DYNAMIC_H
#define SUBLET_BASE_DYNAMIC_H

#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of one loaded object: pointers into it. What it lacks is NULL or 0. */
struct dynamic_tables {
	const ElfW(Sym) * table;
	const char *strings;
	const uint32_t *gnu_hash;
	const uint32_t *sysv_hash;
	const ElfW(Rela) * relocs[2]; /* of the linkage table, and the others that have a symbol */
	size_t reloc_count[2];
};

/* False when the object with the dynamic section @dynamic, loaded at @base, has no symbols. No lock. */
bool dynamic_read(const ElfW(Dyn) * dynamic, ElfW(Addr) base, struct dynamic_tables *ret_tables);

/* The dynamic section that the loader maps for the object, NULL when it has none. */
const ElfW(Dyn) * dynamic_of(const struct dl_phdr_info *info);

/* What the object itself defines as @name, of type @type (STT_FUNC, STT_OBJECT); NULL when it does not. Its address is
 * st_value above the object's base. No lock. */
const ElfW(Sym) * dynamic_find(const struct dynamic_tables *tables, const char *name, unsigned type);

#endif
