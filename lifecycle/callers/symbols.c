/* lifecycle/callers/symbols.c
 * Tables are made under the lock and published when complete, so a forked child finds all of one or nothing. Only regular files are
 * opened, without waiting, for as long as they are read: a descriptor that is kept could be closed by the program, and a mapping
 * of a file that somebody cuts short ends the process. Not by libelf: three headers are all there is to read, while its errors
 * use thread-local memory that the loader has to make first. */
#include "lifecycle/callers/symbols.h"

#include <elf.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/lock.h"
#include "lifecycle/callers/foreign.h"
#include "lifecycle/callers/peek.h"
#include "lifecycle/callers/room.h"

enum { SYMBOLS_MAX = 2 * 1024 * 1024, CHUNK = 1024, HEAD_BYTES = 4096, SECTIONS_MAX = 4096, LOOK_BACK = 16 };
#define WAIT_NS 1000000000ull

struct symbol {
	uint32_t start, bytes; /* start: from the load base */
	uint32_t name;	       /* in its table of names */
};

struct table {
	struct symbol *list;
	uint32_t count;
	uint64_t names, names_bytes; /* address, or place in the file */
};

struct symbols {
	struct table exported;
	struct table all;   /* of the file; made when the exported ones do not cover an address */
	struct stat file;   /* what the table was read from, to know it again */
	bool all_made;	    /* atomic; or tried in vain */
};

static struct ranked_lock lock; /* RANK_SYMBOLS: making of tables */
static size_t symbols_count;	/* of all tables; under lock */

void symbols_prepare(void)
{
	ranked_lock_init(&lock, RANK_SYMBOLS);
}

/* ---- a table ---- */

/* At one place the one that covers most stands last, where the search begins; of equal ones the first of the object's. */
static int by_start(const struct symbol *a, const struct symbol *b)
{
	if (a->start != b->start)
		return a->start < b->start ? -1 : 1;
	if (a->bytes != b->bytes)
		return a->bytes < b->bytes ? -1 : 1;
	return a->name < b->name ? 1 : -(a->name > b->name);
}

/* Keep of @count the functions that are defined, in front of @ret. */
static void add_functions(struct table *table, const Elf64_Sym *from, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		unsigned type = ELF64_ST_TYPE(from[i].st_info);

		if ((type == STT_FUNC || type == STT_GNU_IFUNC) && from[i].st_shndx != SHN_UNDEF && from[i].st_name &&
			from[i].st_value && from[i].st_value <= UINT32_MAX && from[i].st_size <= UINT32_MAX)
			table->list[table->count++] =
				(struct symbol){(uint32_t)from[i].st_value, (uint32_t)from[i].st_size, from[i].st_name};
	}
}

typedef bool (*read_symbols)(void *source, uint64_t at, void *to, size_t bytes);

/* By merging. Not by qsort: glibc's asks malloc for room until 2.37. False, and @list is as before, where there is no room. */
static bool sort(struct symbol *list, uint32_t count)
{
	const size_t bytes = count * sizeof(*list);
	struct symbol *borrowed = room_borrow(bytes), *from = list, *to = borrowed;

	if (!borrowed)
		return false;
	for (uint32_t run = 1; run < count; run *= 2) {
		struct symbol *swapped = from;

		for (uint32_t start = 0; start < count; start += 2 * run) {
			uint32_t left = start, middle = count - start > run ? start + run : count;
			uint32_t right = middle, end = count - middle > run ? middle + run : count;

			for (uint32_t at = start; at < end; at++) {
				bool of_left = left < middle && (right == end || by_start(&from[left], &from[right]) <= 0);

				to[at] = from[of_left ? left++ : right++];
			}
		}
		from = to;
		to = swapped;
	}
	if (from != list)
		memcpy(list, from, bytes);
	room_return(borrowed, bytes);
	return true;
}

static void make_table(struct table *ret, read_symbols read, void *source, uint64_t at, uint64_t count)
{
	const size_t chunk_bytes = CHUNK * sizeof(Elf64_Sym);
	Elf64_Sym *chunk = room_borrow(chunk_bytes);
	size_t bytes = 0;

	ret->count = 0;
	if (count > 0 && count <= SYMBOLS_MAX - symbols_count) {
		bytes = (size_t)count * sizeof(*ret->list);
		ret->list = room_borrow(bytes);
	}
	for (uint64_t done = 0; chunk && ret->list && done < count;) {
		size_t now = count - done < CHUNK ? (size_t)(count - done) : CHUNK;

		if (!read(source, at + done * sizeof(*chunk), chunk, now * sizeof(*chunk)))
			break;
		add_functions(ret, chunk, now);
		done += now;
	}
	room_return(chunk, chunk_bytes);
	if (!ret->list)
		return;
	if (ret->count == 0 || !sort(ret->list, ret->count)) {
		room_return(ret->list, bytes);
		*ret = (struct table){0};
		return;
	}
	room_shorten(ret->list, bytes, ret->count * sizeof(*ret->list));
	symbols_count += ret->count;
}

/* Functions of assembly may have no size: they cover what lies up to the next, if nothing else covers it. */
static const struct symbol *covering(const struct table *table, uint64_t offset, bool sized)
{
	uint32_t low = 0, high = table->count;

	while (low < high) { /* the first behind @offset */
		uint32_t middle = low + (high - low) / 2;

		if (table->list[middle].start <= offset)
			low = middle + 1;
		else
			high = middle;
	}
	for (uint32_t i = 0; i < LOOK_BACK && i < low; i++) {
		const struct symbol *symbol = &table->list[low - 1 - i];

		if (sized ? offset - symbol->start < symbol->bytes : symbol->bytes == 0)
			return symbol;
		if (!sized)
			return NULL;
	}
	return NULL;
}

/* ---- exported symbols, in memory ---- */

static bool read_memory(void *source, uint64_t at, void *to, size_t bytes)
{
	return foreign_read(to, at, bytes);
}

struct dynamic {
	uint64_t symbols, names, names_bytes, hash, gnu_hash;
};

/* The loader has made addresses of these, but for the kernel's own object, which lies in memory that nobody writes. */
static uint64_t address_in(const struct object *object, uint64_t value)
{
	return value >= object->place.start && value < object->place.end ? value : object->load_base + value;
}

static bool read_dynamic(const struct object *object, struct dynamic *ret)
{
	struct peek_window window = {.length = 0};

	*ret = (struct dynamic){0};
	if (!object->dynamic)
		return false;
	for (unsigned i = 0; i < 256; i++) {
		Elf64_Dyn entry;

		if (!peek_through(&window, object->dynamic + i * sizeof(entry), &entry, sizeof(entry)) || entry.d_tag == DT_NULL)
			break;
		switch (entry.d_tag) {
		case DT_SYMTAB: ret->symbols = address_in(object, entry.d_un.d_ptr); break;
		case DT_STRTAB: ret->names = address_in(object, entry.d_un.d_ptr); break;
		case DT_STRSZ: ret->names_bytes = entry.d_un.d_val; break;
		case DT_HASH: ret->hash = address_in(object, entry.d_un.d_ptr); break;
		case DT_GNU_HASH: ret->gnu_hash = address_in(object, entry.d_un.d_ptr); break;
		default: break;
		}
	}
	return ret->symbols && ret->names && ret->names_bytes;
}

/* Nothing says how many there are, but the tables that they are looked up by: the last chain ends with the last symbol. */
static uint64_t count_exported(const struct dynamic *dynamic)
{
	struct peek_window window = {.length = 0};
	uint32_t head[4], last = 0, bucket, link; /* buckets, first symbol, words of the filter, shift */
	uint64_t buckets;

	if (dynamic->hash && foreign_read(head, dynamic->hash, 2 * sizeof(*head)))
		return head[1];
	if (!dynamic->gnu_hash || !foreign_read(head, dynamic->gnu_hash, sizeof(head)) || head[0] > SYMBOLS_MAX)
		return 0;
	buckets = dynamic->gnu_hash + sizeof(head) + head[2] * sizeof(uint64_t);
	for (uint32_t i = 0; i < head[0]; i++) {
		if (!peek_through(&window, buckets + i * sizeof(bucket), &bucket, sizeof(bucket)))
			return 0;
		if (bucket > last)
			last = bucket;
	}
	if (last < head[1])
		return 0;
	do {
		if (!peek_through(&window, buckets + ((uint64_t)head[0] + last - head[1]) * sizeof(link), &link, sizeof(link)))
			return 0;
		last++;
	} while (!(link & 1) && last < SYMBOLS_MAX);
	return last;
}

static struct symbols *new_symbols(const struct object *object)
{
	struct symbols *symbols = room_keep(sizeof(*symbols));
	struct dynamic dynamic;

	if (symbols && read_dynamic(object, &dynamic)) {
		symbols->exported.names = dynamic.names;
		symbols->exported.names_bytes = dynamic.names_bytes;
		make_table(&symbols->exported, read_memory, NULL, dynamic.symbols, count_exported(&dynamic));
	}
	return symbols;
}

/* ---- all symbols, of the file ---- */

static bool read_file(void *source, uint64_t at, void *to, size_t bytes)
{
	char *into = to;

	while (bytes > 0) {
		ssize_t got = at > INT64_MAX ? 0 : pread(*(int *)source, into, bytes, (off_t)at);

		if (got <= 0)
			return false;
		into += got;
		at += (uint64_t)got;
		bytes -= (size_t)got;
	}
	return true;
}

static int open_file(const struct object *object, struct stat *ret)
{
	int fd = *object->path == '/' ? open(object->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY) : -1;

	if (fd < 0)
		return -1;
	if (fstat(fd, ret) == 0 && S_ISREG(ret->st_mode))
		return fd;
	close(fd);
	return -1;
}

/* Whether the file is the one that was loaded: it may have been replaced since. Headers and build id lie in the first page. */
static bool same_head(int fd, const struct object *object)
{
	uint8_t *loaded = room_borrow(2 * HEAD_BYTES);
	bool same = loaded && foreign_read(loaded, object->place.start, HEAD_BYTES) && read_file(&fd, 0, loaded + HEAD_BYTES, HEAD_BYTES) &&
		    memcmp(loaded, loaded + HEAD_BYTES, HEAD_BYTES) == 0;

	room_return(loaded, 2 * HEAD_BYTES);
	return same;
}

static void read_sections(int fd, struct table *ret)
{
	Elf64_Ehdr elf;
	Elf64_Shdr *sections = NULL;
	size_t bytes = 0;

	if (!read_file(&fd, 0, &elf, sizeof(elf)) || elf.e_shentsize != sizeof(*sections) || elf.e_shnum > SECTIONS_MAX)
		return;
	bytes = elf.e_shnum * sizeof(*sections);
	sections = bytes ? room_borrow(bytes) : NULL;
	if (sections && read_file(&fd, elf.e_shoff, sections, bytes)) {
		for (unsigned i = 0; i < elf.e_shnum; i++) {
			const Elf64_Shdr *at = &sections[i];

			if (at->sh_type != SHT_SYMTAB || at->sh_entsize != sizeof(Elf64_Sym) || at->sh_link >= elf.e_shnum)
				continue;
			ret->names = sections[at->sh_link].sh_offset;
			ret->names_bytes = sections[at->sh_link].sh_size;
			make_table(ret, read_file, &fd, at->sh_offset, at->sh_size / sizeof(Elf64_Sym));
			break;
		}
	}
	room_return(sections, bytes);
}

static void make_all(const struct object *object, struct symbols *symbols)
{
	int fd = open_file(object, &symbols->file);

	if (fd < 0)
		return;
	if (same_head(fd, object))
		read_sections(fd, &symbols->all);
	close(fd);
}

/* ---- names ---- */

static bool ends(char *text, size_t bytes)
{
	return memchr(text, '\0', bytes) != NULL;
}

/* As much of the name as there is room for. */
static size_t name_bytes(const struct table *table, const struct symbol *symbol, size_t room)
{
	uint64_t left = symbol->name < table->names_bytes ? table->names_bytes - symbol->name : 0;

	return left < room ? (size_t)left : room;
}

static bool exported_name(const struct table *table, const struct symbol *symbol, char *ret, size_t room)
{
	size_t bytes = name_bytes(table, symbol, room - 1);

	if (bytes == 0 || !foreign_read(ret, table->names + symbol->name, bytes))
		return false;
	ret[bytes] = '\0';
	return ends(ret, bytes + 1) && *ret;
}

static bool file_name(const struct object *object, const struct symbols *symbols, const struct symbol *symbol, char *ret, size_t room)
{
	size_t bytes = name_bytes(&symbols->all, symbol, room - 1);
	struct stat now;
	int fd = bytes ? open_file(object, &now) : -1;
	bool read;

	if (fd < 0)
		return false;
	read = now.st_dev == symbols->file.st_dev && now.st_ino == symbols->file.st_ino && now.st_size == symbols->file.st_size &&
	       now.st_mtim.tv_sec == symbols->file.st_mtim.tv_sec && now.st_mtim.tv_nsec == symbols->file.st_mtim.tv_nsec &&
	       read_file(&fd, symbols->all.names + symbol->name, ret, bytes);
	close(fd);
	ret[read ? bytes : 0] = '\0';
	return *ret != '\0';
}

/* ---- */

/* The tables of @object, those of its file too if @all. NULL: not now, *@ret_later, or no memory. */
static struct symbols *tables_of(struct object *object, bool all, bool *may_wait, bool *ret_later)
{
	struct symbols *symbols = __atomic_load_n(&object->symbols, __ATOMIC_ACQUIRE);

	if (symbols && (!all || __atomic_load_n(&symbols->all_made, __ATOMIC_ACQUIRE)))
		return symbols;
	if (!ranked_lock_within(&lock, *may_wait ? WAIT_NS : 0)) {
		*may_wait = false;
		*ret_later = true;
		return NULL;
	}
	symbols = object->symbols;
	if (!symbols) {
		symbols = new_symbols(object);
		__atomic_store_n(&object->symbols, symbols, __ATOMIC_RELEASE);
	}
	if (symbols && all && !symbols->all_made) {
		make_all(object, symbols);
		__atomic_store_n(&symbols->all_made, true, __ATOMIC_RELEASE);
	}
	ranked_unlock(&lock);
	return symbols;
}

enum symbols_answer symbols_name(struct object *object, uint64_t address, char *ret, size_t room, bool *may_wait)
{
	uint64_t offset = address - object->load_base;
	bool later = false;
	struct symbols *symbols = tables_of(object, false, may_wait, &later);
	const struct symbol *symbol = symbols ? covering(&symbols->exported, offset, true) : NULL;

	if (symbol && exported_name(&symbols->exported, symbol, ret, room))
		return SYMBOLS_FOUND;
	if (symbols)
		symbols = tables_of(object, true, may_wait, &later);
	if (!symbols)
		return later ? SYMBOLS_LATER : SYMBOLS_NONE;
	symbol = covering(&symbols->all, offset, true);
	if (!symbol)
		symbol = covering(&symbols->all, offset, false);
	if (symbol && file_name(object, symbols, symbol, ret, room))
		return SYMBOLS_FOUND;
	symbol = covering(&symbols->exported, offset, false);
	return symbol && exported_name(&symbols->exported, symbol, ret, room) ? SYMBOLS_FOUND : SYMBOLS_NONE;
}
