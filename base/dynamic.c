/* base/dynamic.c
 * Source: ELF gABI, chapter 5; DT_GNU_HASH as glibc and lld write it. Calls nothing: the preloaded library asks before
 * libc is ready. */
#include "base/dynamic.h"

/* glibc relocates these pointers in place, other loaders (and the vdso) leave them relative. */
static const void *absolute(ElfW(Addr) base, ElfW(Addr) pointer)
{
	return (const void *)(pointer < base ? pointer + base : pointer);
}

const ElfW(Dyn) * dynamic_of(const struct dl_phdr_info *info)
{
	for (int i = 0; i < info->dlpi_phnum; i++) {
		if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
			return (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
	}
	return NULL;
}

bool dynamic_read(const ElfW(Dyn) * dynamic, ElfW(Addr) base, struct dynamic_tables *ret_tables)
{
	struct dynamic_tables tables = {0};
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

/* Not strcmp: a sanitizer's runtime in front defines that too, and asks dlsym for its originals before its own are
 * ready. */
static bool same(const char *a, const char *b)
{
	for (; *a && *a == *b; a++)
		b++;
	return *a == *b;
}

static const ElfW(Sym) * match(const struct dynamic_tables *symbols, uint32_t index, const char *name, unsigned type)
{
	const ElfW(Sym) *symbol = &symbols->table[index];

	if (symbol->st_shndx == SHN_UNDEF || ELF64_ST_TYPE(symbol->st_info) != type ||
		!same(symbols->strings + symbol->st_name, name))
		return NULL;
	return symbol;
}

static const ElfW(Sym) * find_gnu(const struct dynamic_tables *symbols, const char *name, unsigned type)
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
			const ElfW(Sym) *symbol = match(symbols, i, name, type);

			if (symbol)
				return symbol;
		}
		if (value & 1)
			break;
	}
	return NULL;
}

static const ElfW(Sym) * find_sysv(const struct dynamic_tables *symbols, const char *name, unsigned type)
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
		const ElfW(Sym) *symbol = match(symbols, i, name, type);

		if (symbol)
			return symbol;
	}
	return NULL;
}

const ElfW(Sym) * dynamic_find(const struct dynamic_tables *tables, const char *name, unsigned type)
{
	if (tables->gnu_hash)
		return find_gnu(tables, name, type);
	return tables->sysv_hash ? find_sysv(tables, name, type) : NULL;
}
