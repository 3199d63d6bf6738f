/* lifecycle/callers/python_find.c
 * `_PyRuntime` in the loaded objects, each asked for itself: a library loaded with RTLD_LOCAL answers no dlsym, and a
 * process may have several. Where an object does not tell the name (an interpreter linked into a program that exports
 * nothing) its file is asked for the section `.PyRuntime`; only a version that publishes its offsets (3.13 and later)
 * can be read then. What version it is, before 3.13, the names say that an interpreter has: calling Py_GetVersion would
 * run somebody's code under the loader's lock. Memory of objects is read as it is: the loader keeps them while
 * dl_iterate_phdr goes through them. */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/dynamic.h"
#include "lifecycle/callers/foreign.h"
#include "lifecycle/callers/python_priv.h"

enum {
	RUNTIMES_MAX = 2 * PYTHON_RUNTIMES_MAX,
	UNNAMED_MAX = 2048, /* objects without the symbol; further ones are not asked */
	PATHS_BYTES = 256 * 1024,
	HEADERS_MAX = 32,	     /* program headers of one object */
	SECTIONS_MAX = 4096,	     /* of one file */
	NAMES_BYTES_MAX = 64 * 1024, /* of its sections */
};

/* An object without the symbol, whose file is to be asked. */
struct unnamed {
	uint64_t base, headers; /* headers: in memory */
	size_t header_count;
	const char *path;
};

/* All of it had before the loader's lock is: a malloc of the program's may itself ask the loader. */
struct search {
	bool begun, unchanged;
	size_t count, unnamed_count, paths_used;
	struct {
		uint64_t address;
		uint32_t version; /* 0: not said by names */
	} found[RUNTIMES_MAX];
	struct unnamed unnamed[UNNAMED_MAX];
	char paths[PATHS_BYTES];
};

/* What the loader counted at the last search. */
static unsigned long long loads_before, unloads_before;

/* The version that the names of an interpreter's functions say; 0 older than 3.9. */
static uint32_t version_by_names(const struct dynamic_tables *tables, uint64_t base)
{
	const ElfW(Sym) *version = dynamic_find(tables, "Py_Version", STT_OBJECT); /* from 3.11 on */
	unsigned long read;

	if (version) {
		memcpy(&read, (const void *)(base + version->st_value), sizeof(read));
		return (uint32_t)read;
	}
	if (dynamic_find(tables, "Py_NewRef", STT_FUNC)) /* new in 3.10 */
		return 0x030a0000;
	if (dynamic_find(tables, "PyModule_AddType", STT_FUNC)) /* new in 3.9 */
		return 0x03090000;
	return 0;
}

static void note_unnamed(struct search *search, const struct dl_phdr_info *info)
{
	const char *path = info->dlpi_name && info->dlpi_name[0] ? info->dlpi_name : "/proc/self/exe";
	const size_t bytes = strlen(path) + 1;

	if (path[0] != '/') /* the vdso */
		return;
	if (search->unnamed_count == UNNAMED_MAX || bytes > PATHS_BYTES - search->paths_used)
		return;
	search->unnamed[search->unnamed_count++] = (struct unnamed){
		.base = info->dlpi_addr,
		.headers = (uintptr_t)info->dlpi_phdr,
		.header_count = info->dlpi_phnum,
		.path = memcpy(search->paths + search->paths_used, path, bytes),
	};
	search->paths_used += bytes;
}

static int look_at(struct dl_phdr_info *info, size_t size, void *arg)
{
	const ElfW(Dyn) *dynamic = dynamic_of(info);
	struct search *search = arg;
	const ElfW(Sym) * symbol;
	struct dynamic_tables tables;

	if (!search->begun && size >= offsetof(struct dl_phdr_info, dlpi_subs) + sizeof(info->dlpi_subs)) {
		if (info->dlpi_adds == loads_before && info->dlpi_subs == unloads_before) {
			search->unchanged = true;
			return 1;
		}
		/* what is loaded while we search is counted by the next one */
		loads_before = info->dlpi_adds;
		unloads_before = info->dlpi_subs;
	}
	search->begun = true;
	if (!dynamic || !dynamic_read(dynamic, info->dlpi_addr, &tables)) {
		note_unnamed(search, info);
		return 0;
	}
	symbol = dynamic_find(&tables, "_PyRuntime", STT_OBJECT);
	if (!symbol) {
		note_unnamed(search, info);
	} else if (search->count < RUNTIMES_MAX) {
		search->found[search->count].address = info->dlpi_addr + symbol->st_value;
		search->found[search->count++].version = version_by_names(&tables, info->dlpi_addr);
	}
	return 0;
}

static bool read_at(int fd, void *to, size_t size, uint64_t offset)
{
	size_t done = 0;

	while (done < size) {
		ssize_t got = pread(fd, (char *)to + done, size - done, (off_t)(offset + done));

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return false;
		done += (size_t)got;
	}
	return true;
}

/* Is the file still the one that was loaded? */
static bool is_file_of(int fd, const ElfW(Ehdr) * header, const struct unnamed *object)
{
	ElfW(Phdr) in_file[HEADERS_MAX], loaded[HEADERS_MAX];
	const size_t size = object->header_count * sizeof(in_file[0]);

	return object->header_count <= HEADERS_MAX && header->e_phnum == object->header_count &&
	       read_at(fd, in_file, size, header->e_phoff) && foreign_read(loaded, object->headers, size) &&
	       memcmp(in_file, loaded, size) == 0;
}

/* The address that the section @name of the file has in memory, above the object's base; 0 when there is none. */
static uint64_t section_of(int fd, const ElfW(Ehdr) * header, const char *name)
{
	ElfW(Shdr) *sections = NULL;
	const ElfW(Shdr) * names;
	char *texts = NULL;
	uint64_t found = 0;

	if (header->e_shentsize != sizeof(*sections) || header->e_shnum == 0 || header->e_shnum > SECTIONS_MAX ||
		header->e_shstrndx >= header->e_shnum)
		return 0;
	sections = calloc(header->e_shnum, sizeof(*sections));
	if (!sections || !read_at(fd, sections, header->e_shnum * sizeof(*sections), header->e_shoff))
		goto out;
	names = &sections[header->e_shstrndx];
	if (names->sh_size == 0 || names->sh_size > NAMES_BYTES_MAX)
		goto out;
	texts = malloc(names->sh_size);
	if (!texts || !read_at(fd, texts, names->sh_size, names->sh_offset))
		goto out;
	texts[names->sh_size - 1] = '\0';
	for (size_t i = 0; i < header->e_shnum && !found; i++) {
		if (sections[i].sh_name < names->sh_size && strcmp(texts + sections[i].sh_name, name) == 0 &&
			(sections[i].sh_flags & SHF_ALLOC))
			found = sections[i].sh_addr;
	}
out:
	free(texts);
	free(sections);
	return found;
}

static void look_into_file(const struct unnamed *object, struct search *search)
{
	ElfW(Ehdr) header;
	uint64_t section;
	int fd = open(object->path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);

	if (fd < 0)
		return;
	if (read_at(fd, &header, sizeof(header), 0) && memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 &&
		header.e_phentsize == sizeof(ElfW(Phdr)) && is_file_of(fd, &header, object)) {
		section = section_of(fd, &header, ".PyRuntime");
		if (section && search->count < RUNTIMES_MAX) {
			search->found[search->count].address = object->base + section;
			search->found[search->count++].version = 0;
		}
	}
	close(fd);
}

static void tell(uint64_t address, uint32_t version_by_name,
	void (*found)(uint64_t address, uint32_t version, const struct python_layout *layout))
{
	uint64_t words[PYTHON_PUBLISHED_WORDS];
	struct python_layout layout;
	uint32_t version;

	/* shorter in old versions, but always followed by more */
	if (!foreign_read(words, address, sizeof(words)))
		return;
	if (python_layout_published(words, &layout, &version))
		found(address, version, &layout);
	else if (!version && python_layout_known(version_by_name, &layout))
		found(address, version_by_name, &layout);
	else
		found(address, version ? version : version_by_name, NULL);
}

bool python_find(void (*found)(uint64_t address, uint32_t version, const struct python_layout *layout))
{
	struct search *search = calloc(1, sizeof(*search));
	bool changed;

	if (!search)
		return false;
	dl_iterate_phdr(look_at, search);
	changed = !search->unchanged;
	for (size_t i = 0; changed && i < search->unnamed_count; i++)
		look_into_file(&search->unnamed[i], search);
	for (size_t i = 0; changed && i < search->count; i++)
		tell(search->found[i].address, search->found[i].version, found);
	free(search);
	return changed;
}
