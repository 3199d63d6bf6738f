/* shim/next.c
 * Reads the dynamic sections of the loaded objects. Source: ELF gABI, chapter 5; DT_GNU_HASH as glibc and lld write it. */
#include "shim/next.h"

#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Weak, so that the loader is no needed library of ours; libc brings it into every process. */
extern struct r_debug _r_debug __attribute__((weak));

struct symbols {
	const ElfW(Sym) *table;
	const char *strings;
	const uint32_t *gnu_hash;
	const uint32_t *sysv_hash;
};

/* glibc relocates these pointers in place, other loaders (and the vdso) leave them relative. */
static const void *absolute(const struct link_map *map, ElfW(Addr) pointer)
{
	return (const void *)(pointer < map->l_addr ? pointer + map->l_addr : pointer);
}

static bool read_dynamic(const struct link_map *map, struct symbols *ret_symbols)
{
	const ElfW(Dyn) *dynamic = map->l_ld;

	*ret_symbols = (struct symbols){0};
	for (; dynamic && dynamic->d_tag != DT_NULL; dynamic++) {
		const void *pointer = absolute(map, dynamic->d_un.d_ptr);

		if (dynamic->d_tag == DT_SYMTAB)
			ret_symbols->table = pointer;
		else if (dynamic->d_tag == DT_STRTAB)
			ret_symbols->strings = pointer;
		else if (dynamic->d_tag == DT_GNU_HASH)
			ret_symbols->gnu_hash = pointer;
		else if (dynamic->d_tag == DT_HASH)
			ret_symbols->sysv_hash = pointer;
	}
	return ret_symbols->table && ret_symbols->strings;
}

/* Not strcmp: a sanitizer's runtime in front defines that too, and asks dlsym for its originals before its own are ready. */
static bool same(const char *a, const char *b)
{
	for (; *a && *a == *b; a++)
		b++;
	return *a == *b;
}

static const ElfW(Sym) *match(const struct symbols *symbols, uint32_t index, const char *name)
{
	const ElfW(Sym) *symbol = &symbols->table[index];

	/* An indirect function would have to be called to be resolved; neither dlsym nor dlvsym is one. */
	if (symbol->st_shndx == SHN_UNDEF || ELF64_ST_TYPE(symbol->st_info) != STT_FUNC ||
		!same(symbols->strings + symbol->st_name, name))
		return NULL;
	return symbol;
}

static const ElfW(Sym) *find_gnu(const struct symbols *symbols, const char *name)
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

static const ElfW(Sym) *find_sysv(const struct symbols *symbols, const char *name)
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
	struct symbols symbols;

	if (!read_dynamic(map, &symbols))
		return NULL;
	if (symbols.gnu_hash)
		symbol = find_gnu(&symbols, name);
	else if (symbols.sysv_hash)
		symbol = find_sysv(&symbols, name);
	return symbol ? (void *)(map->l_addr + symbol->st_value) : NULL;
}

/* Walks the loader's own list, not dl_iterate_phdr: the thread sanitizer wraps that, and is not ready when it asks. */
void *next_definition(const char *name)
{
	bool passed_self = false;

	for (const struct link_map *map = &_r_debug ? _r_debug.r_map : NULL; map; map = map->l_next) {
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
	for (const struct link_map *at = &_r_debug ? _r_debug.r_map : NULL; at && at->l_ld != _DYNAMIC; at = at->l_next) {
		if (at == map)
			return true;
	}
	return false;
}
