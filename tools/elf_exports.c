/* tools/elf_exports.c
 * Walks the section of dynamic symbols. */
#include "tools/elf_exports.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <gelf.h>
#include <libelf.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"

#define LIBELF_CALLS(CALL)                                                                                             \
	CALL(elf_version)                                                                                              \
	CALL(elf_begin)                                                                                                \
	CALL(elf_end)                                                                                                  \
	CALL(elf_nextscn)                                                                                              \
	CALL(elf_getdata)                                                                                              \
	CALL(elf_strptr)                                                                                               \
	CALL(gelf_getshdr)                                                                                             \
	CALL(gelf_getsym)

static struct {
#define FIELD(name) __typeof__(&name) name;
	LIBELF_CALLS(FIELD)
#undef FIELD
} libelf;

static bool open_libelf(void)
{
	void *handle;
	bool complete = true;

	if (libelf.elf_version)
		return true;
	handle = dlopen("libelf.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!handle)
		return false;
#define FIND(name)                                                                                                     \
	libelf.name = (__typeof__(&name))dlsym(handle, #name);                                                         \
	complete = complete && libelf.name;
	LIBELF_CALLS(FIND)
#undef FIND
	if (complete && libelf.elf_version(EV_CURRENT) != EV_NONE)
		return true;
	memset(&libelf, 0, sizeof(libelf));
	return false;
}

static void each_of_section(
	Elf *elf, Elf_Scn *section, const GElf_Shdr *header, void (*visit)(const char *, void *), void *arg)
{
	Elf_Data *data = libelf.elf_getdata(section, NULL);
	size_t count = data && header->sh_entsize ? header->sh_size / header->sh_entsize : 0;

	for (size_t i = 0; i < count; i++) {
		GElf_Sym symbol;
		const char *name;

		if (!libelf.gelf_getsym(data, (int)i, &symbol) || symbol.st_shndx == SHN_UNDEF ||
			GELF_ST_BIND(symbol.st_info) == STB_LOCAL)
			continue;
		name = libelf.elf_strptr(elf, header->sh_link, symbol.st_name);
		if (name && *name)
			visit(name, arg);
	}
}

const char *elf_exports_each(const char *path, void (*visit)(const char *name, void *arg), void *arg)
{
	const char *why = "it is not a shared object";
	Elf_Scn *section = NULL;
	Elf *elf;
	int fd;

	if (!open_libelf())
		return "libelf.so.1 is not here";
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return text_of_errno(errno);
	elf = libelf.elf_begin(fd, ELF_C_READ, NULL);
	while (elf && (section = libelf.elf_nextscn(elf, section))) {
		GElf_Shdr header;

		if (!libelf.gelf_getshdr(section, &header) || header.sh_type != SHT_DYNSYM)
			continue;
		each_of_section(elf, section, &header, visit, arg);
		why = NULL;
	}
	if (elf)
		libelf.elf_end(elf);
	close(fd);
	return why;
}
