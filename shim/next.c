/* shim/next.c
 * Goes through the loader's list of objects. */
#include "shim/next.h"

#include <sys/auxv.h>

#include "base/dynamic.h"

/* Weak, so that the loader is no needed library of ours; libc brings it into every process. */
extern struct r_debug _r_debug __attribute__((weak));

void *definition_in(const struct link_map *map, const char *name)
{
	struct dynamic_tables tables;
	const ElfW(Sym) * symbol;

	if (!dynamic_read(map->l_ld, map->l_addr, &tables))
		return NULL;
	/* An indirect function would have to be called to be resolved; neither dlsym nor dlvsym is one. */
	symbol = dynamic_find(&tables, name, STT_FUNC);
	return symbol ? (void *)(map->l_addr + symbol->st_value) : NULL;
}

/* Another C library than glibc has no _r_debug, but tells debuggers by DT_DEBUG in the program where its list is. */
static struct link_map *list_of_program(void)
{
	const ElfW(Phdr) *headers = (const ElfW(Phdr) *)getauxval(AT_PHDR);
	const ElfW(Dyn) *dynamic = NULL;
	ElfW(Addr) base = 0;

	for (unsigned long i = 0; headers && i < getauxval(AT_PHNUM); i++) {
		if (headers[i].p_type == PT_PHDR)
			base = (ElfW(Addr))headers - headers[i].p_vaddr;
		else if (headers[i].p_type == PT_DYNAMIC)
			dynamic = (const ElfW(Dyn) *)(base + headers[i].p_vaddr);
	}
	for (; dynamic && dynamic->d_tag != DT_NULL; dynamic++) {
		if (dynamic->d_tag == DT_DEBUG && dynamic->d_un.d_ptr)
			return ((const struct r_debug *)dynamic->d_un.d_ptr)->r_map;
	}
	return NULL;
}

static const struct link_map *first_object(void)
{
	return &_r_debug ? _r_debug.r_map : list_of_program();
}

/* Walks the loader's own list, not dl_iterate_phdr: the thread sanitizer wraps that, and is not ready when it asks. */
void *next_definition(const char *name)
{
	bool passed_self = false;

	for (const struct link_map *map = first_object(); map; map = map->l_next) {
		void *definition = passed_self ? definition_in(map, name) : NULL;

		if (definition)
			return definition;
		if (map->l_ld == _DYNAMIC)
			passed_self = true;
	}
	return NULL;
}

bool next_comes_before_us(const struct link_map *map)
{
	for (const struct link_map *at = first_object(); at && at->l_ld != _DYNAMIC; at = at->l_next) {
		if (at == map)
			return true;
	}
	return false;
}

bool next_comes_after(const struct link_map *map, const struct link_map *other)
{
	const struct link_map *at = map && other ? other->l_next : NULL;

	while (at && at != map)
		at = at->l_next;
	return at != NULL;
}
