/* shim/next.c
 * Reads the dynamic sections of the loaded objects. Source: ELF gABI, chapter 5; DT_GNU_HASH as glibc and lld write it. */
#include "shim/next.h"

#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

struct search {
	const char *name;
	bool passed_self;
	void *found;
};

struct symbols {
	const ElfW(Sym) *table;
	const char *strings;
	const uint32_t *gnu_hash;
	const uint32_t *sysv_hash;
};

/* glibc relocates these pointers in place, other loaders (and the vdso) leave them relative. */
static const void *absolute(const struct dl_phdr_info *info, ElfW(Addr) pointer)
{
	return (const void *)(pointer < info->dlpi_addr ? pointer + info->dlpi_addr : pointer);
}

static bool read_dynamic(const struct dl_phdr_info *info, struct symbols *ret_symbols)
{
	const ElfW(Dyn) *dynamic = NULL;

	memset(ret_symbols, 0, sizeof(*ret_symbols));
	for (int i = 0; i < info->dlpi_phnum; i++) {
		if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
			dynamic = (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
	}
	for (; dynamic && dynamic->d_tag != DT_NULL; dynamic++) {
		const void *pointer = absolute(info, dynamic->d_un.d_ptr);

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

static const ElfW(Sym) *match(const struct symbols *symbols, uint32_t index, const char *name)
{
	const ElfW(Sym) *symbol = &symbols->table[index];

	/* An indirect function would have to be called to be resolved; neither dlsym nor dlvsym is one. */
	if (symbol->st_shndx == SHN_UNDEF || ELF64_ST_TYPE(symbol->st_info) != STT_FUNC ||
		strcmp(symbols->strings + symbol->st_name, name) != 0)
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

static bool is_self(const struct dl_phdr_info *info)
{
	uintptr_t here = (uintptr_t)&is_self;

	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *header = &info->dlpi_phdr[i];

		if (header->p_type == PT_LOAD && here - (info->dlpi_addr + header->p_vaddr) < header->p_memsz)
			return true;
	}
	return false;
}

static int visit(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct search *search = arg;
	struct symbols symbols;
	const ElfW(Sym) *symbol = NULL;

	(void)size;
	if (!search->passed_self) {
		search->passed_self = is_self(info);
		return 0;
	}
	if (!read_dynamic(info, &symbols))
		return 0;
	if (symbols.gnu_hash)
		symbol = find_gnu(&symbols, search->name);
	else if (symbols.sysv_hash)
		symbol = find_sysv(&symbols, search->name);
	if (!symbol)
		return 0;
	search->found = (void *)(info->dlpi_addr + symbol->st_value);
	return 1;
}

void *next_definition(const char *name)
{
	struct search search = {.name = name};

	dl_iterate_phdr(visit, &search);
	return search.found;
}
