/* tests/sim/interpose/auditor.c
 * An LD_AUDIT library that puts its own function where the program binds cuMemFree_v2, and tells on stderr how often that was
 * called (HPCToolkit#465: pointers that a program had before the audit are never seen). */
#include <link.h>
#include <string.h>
#include <unistd.h>

#include "work.h"

static __typeof__(&cuMemFree_v2) original;
static unsigned calls;

static CUresult hook(CUdeviceptr address)
{
	calls++;
	return original(address);
}

#pragma GCC visibility push(default)
unsigned la_version(unsigned version)
{
	return version;
}

unsigned la_objopen(struct link_map *map, Lmid_t space, uintptr_t *cookie)
{
	(void)space;
	*cookie = *map->l_name == '\0'; /* the program */
	return LA_FLG_BINDTO | LA_FLG_BINDFROM;
}

uintptr_t la_symbind64(Elf64_Sym *symbol, unsigned index, uintptr_t *from, uintptr_t *to, unsigned *flags, const char *name)
{
	if (!*from || strcmp(name, "cuMemFree_v2") != 0)
		return symbol->st_value;
	original = (__typeof__(original))symbol->st_value;
	return (uintptr_t)hook;
}
#pragma GCC visibility pop

__attribute__((destructor)) static void tell(void)
{
	char line[64];
	int length = snprintf(line, sizeof(line), "interposer: cuMemFree_v2 %u\n", calls);

	if (write(STDERR_FILENO, line, (size_t)length) < 0)
		_exit(1);
}
