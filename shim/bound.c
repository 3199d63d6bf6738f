/* shim/bound.c
 * Reads relocations. Source: ELF gABI, chapter 5, and the processor supplements of x86-64 and aarch64. */
#include "shim/bound.h"

#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "base/dynamic.h"
#include "base/log.h"
#include "shim/next.h"
#include "shim/shim.h"

/* Objects said so far: enough to say each once, and more are said again at worst. */
#define SAID_MAX 16
static const void *said[SAID_MAX];
static unsigned said_count;

/* Does @reloc stand for a wrapped entry point and hold the driver's own address? Its row, or -1. */
static int bound_row(const struct dynamic_tables *tables, const ElfW(Rela) *reloc, ElfW(Addr) base)
{
	const char *name;
	void *address;
	int id;

	/* Symbol 0 is none; data and code relocations of other kinds have an addend or a size that does not fit. */
	if (ELF64_R_SYM(reloc->r_info) == 0 || reloc->r_addend != 0)
		return -1;
	name = tables->strings + tables->table[ELF64_R_SYM(reloc->r_info)].st_name;
	if (name[0] != 'c' || name[1] != 'u')
		return -1;
	id = entry_by_symbol(name);
	if (id < 0 || !entries[id].wrapper)
		return -1;
	memcpy(&address, (const void *)(base + reloc->r_offset), sizeof(address));
	return address == own_address(id) ? id : -1;
}

static bool is_said(const void *dynamic)
{
	for (unsigned i = 0; i < said_count && i < SAID_MAX; i++) {
		if (said[i] == dynamic)
			return true;
	}
	return false;
}

static int report(struct dl_phdr_info *info, size_t size, void *arg)
{
	const ElfW(Dyn) *dynamic = dynamic_of(info);
	struct dynamic_tables tables;
	unsigned found = 0;
	int first = -1;

	(void)size;
	(void)arg;
	if (!dynamic || is_said(dynamic) || is_libcuda(info->dlpi_name) || !dynamic_read(dynamic, info->dlpi_addr, &tables))
		return 0;
	for (int kind = 0; kind < 2; kind++) {
		for (size_t i = 0; i < tables.reloc_count[kind]; i++) {
			int id = bound_row(&tables, &tables.relocs[kind][i], info->dlpi_addr);

			if (id < 0)
				continue;
			first = found++ ? first : id;
		}
	}
	if (!found)
		return 0;
	if (said_count < SAID_MAX)
		said[said_count] = dynamic;
	said_count++;
	log_say(LOG_SHIM, LOG_WARN, WHOSE_FRAMEWORK,
		"'%s' is bound to the driver itself (%s, %u in all; RTLD_DEEPBIND?): its calls go past Sublet",
		*info->dlpi_name ? info->dlpi_name : "the program", entries[first].symbol, found);
	return 0;
}

unsigned bound_report(void)
{
	if (shim_driver_loaded())
		dl_iterate_phdr(report, NULL);
	return said_count;
}
