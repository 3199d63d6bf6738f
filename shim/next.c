/* shim/next.c
 * Reads the dynamic sections of the loaded objects. Source: ELF gABI, chapter 5; DT_GNU_HASH as glibc and lld write it. */
#include "shim/next.h"

#include <sys/auxv.h>

/* Weak, so that the loader is no needed library of ours; libc brings it into every process. */
extern struct r_debug _r_debug __attribute__((weak));

/* glibc relocates these pointers in place, other loaders (and the vdso) leave them relative. */
static const void *absolute(ElfW(Addr) base, ElfW(Addr) pointer)
{
	return (const void *)(pointer < base ? pointer + base : pointer);
}

bool next_read_tables(const ElfW(Dyn) *dynamic, ElfW(Addr) base, struct next_tables *ret_tables)
{
	struct next_tables tables = {0};
	size_t relative_count = 0;

	for (; dynamic && dynamic->d_tag != DT_NULL; dynamic++) {
		const void *pointer = absolute(base, dynamic->d_un.d_ptr);

		if (dynamic->d_tag == DT_SYMTAB)
			tables.table = pointer;
		else if (dynamic->d_tag == DT_STRTAB)
			tables.strings = pointer;
		else if (dynamic->d_tag == DT_GNU_HASH)
			tables.gnu_hash = pointer;
		else if (dynamic->d_tag == DT_HASH)
			tables.sysv_hash = pointer;
		else if (dynamic->d_tag == DT_JMPREL)
			tables.relocs[0] = pointer;
		else if (dynamic->d_tag == DT_PLTRELSZ)
			tables.reloc_count[0] = dynamic->d_un.d_val / sizeof(ElfW(Rela));
		else if (dynamic->d_tag == DT_RELA)
			tables.relocs[1] = pointer;
		else if (dynamic->d_tag == DT_RELASZ)
			tables.reloc_count[1] = dynamic->d_un.d_val / sizeof(ElfW(Rela));
		else if (dynamic->d_tag == DT_RELACOUNT)
			relative_count = dynamic->d_un.d_val;
	}
	for (int kind = 0; kind < 2; kind++) {
		if (!tables.relocs[kind])
			tables.reloc_count[kind] = 0;
	}
	/* Those without a symbol stand first, and large libraries have millions of them. */
	if (relative_count <= tables.reloc_count[1]) {
		tables.relocs[1] += relative_count;
		tables.reloc_count[1] -= relative_count;
	}
	if (!tables.table || !tables.strings)
		return false;
	*ret_tables = tables;
	return true;
}

/* Not strcmp: a sanitizer's runtime in front defines that too, and asks dlsym for its originals before its own are ready. */
static bool same(const char *a, const char *b)
{
	for (; *a && *a == *b; a++)
		b++;
	return *a == *b;
}

static const ElfW(Sym) *match(const struct next_tables *symbols, uint32_t index, const char *name)
{
	const ElfW(Sym) *symbol = &symbols->table[index];

	/* An indirect function would have to be called to be resolved; neither dlsym nor dlvsym is one. */
	if (symbol->st_shndx == SHN_UNDEF || ELF64_ST_TYPE(symbol->st_info) != STT_FUNC ||
		!same(symbols->strings + symbol->st_name, name))
		return NULL;
	return symbol;
}

static const ElfW(Sym) *find_gnu(const struct next_tables *symbols, const char *name)
{
	const uint32_t *header = symbols->gnu_hash;
	uint32_t bucket_count = header[0], first = header[1], bloom_words = header[2];
	const uint32_t *buckets = (const uint32_t *)((const ElfW(Addr) *)(header + 4) + bloom_words);
	const uint32_t *chain = buckets + bucket_count;
	uint32_t hash = 5381;

	for (const char *p = name; *p; p++)
		hash = hash * 33 + (unsigned char)*p;
	if (bucket_count == 0)
		return NULL;
	for (uint32_t i = buckets[hash % bucket_count]; i >= first; i++) {
		uint32_t value = chain[i - first];

		if ((value | 1) == (hash | 1)) {
			const ElfW(Sym) *symbol = match(symbols, i, name);

			if (symbol)
				return symbol;
		}
		if (value & 1)
			break;
	}
	return NULL;
}

static const ElfW(Sym) *find_sysv(const struct next_tables *symbols, const char *name)
{
	uint32_t bucket_count = symbols->sysv_hash[0];
	const uint32_t *buckets = symbols->sysv_hash + 2;
	const uint32_t *chain = buckets + bucket_count;
	uint32_t hash = 0;

	for (const char *p = name; *p; p++) {
		uint32_t high;

		hash = (hash << 4) + (unsigned char)*p;
		high = hash & 0xf0000000u;
		hash ^= high >> 24;
		hash &= ~high;
	}
	for (uint32_t i = bucket_count ? buckets[hash % bucket_count] : 0; i; i = chain[i]) {
		const ElfW(Sym) *symbol = match(symbols, i, name);

		if (symbol)
			return symbol;
	}
	return NULL;
}

void *definition_in(const struct link_map *map, const char *name)
{
	const ElfW(Sym) *symbol = NULL;
	struct next_tables symbols;

	if (!next_read_tables(map->l_ld, map->l_addr, &symbols))
		return NULL;
	if (symbols.gnu_hash)
		symbol = find_gnu(&symbols, name);
	else if (symbols.sysv_hash)
		symbol = find_sysv(&symbols, name);
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
