/* tests/sim/interpose/patcher.c
 * A preload that patches, as UCX does to learn of memory (HAMi#1219). PATCHER=slots writes its own functions into the
 * linkage tables of all objects; PATCHER=bytes writes a jump to them over the first bytes of what dlsym gives it,
 * PATCHER=driver over those of the driver itself, and takes it away for as long as it calls on. Begins in a constructor,
 * when the libraries of a linked program are all there; one thread. Tells on stderr how often it was called. */
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "work.h"

#ifdef __aarch64__
#define JUMP_SLOT R_AARCH64_JUMP_SLOT
#define GLOBAL_SLOT R_AARCH64_GLOB_DAT
#else
#define JUMP_SLOT R_X86_64_JUMP_SLOT
#define GLOBAL_SLOT R_X86_64_GLOB_DAT
#endif
#define JUMP_BYTES 16

static const char symbol[] = "cuMemAlloc_v2";
static __typeof__(&cuMemAlloc_v2) original;
static unsigned calls;
static bool by_bytes;
static unsigned char saved[JUMP_BYTES], jump[JUMP_BYTES];

static void write_code(const unsigned char *bytes)
{
	uintptr_t page = (uintptr_t)original & ~(uintptr_t)(getpagesize() - 1);

	/* two pages: the bytes may reach over an end */
	mprotect((void *)page, 2 * (size_t)getpagesize(), PROT_READ | PROT_WRITE | PROT_EXEC);
	memcpy((void *)original, bytes, JUMP_BYTES);
	mprotect((void *)page, 2 * (size_t)getpagesize(), PROT_READ | PROT_EXEC);
	__builtin___clear_cache((char *)original, (char *)original + JUMP_BYTES);
}

static CUresult hook(CUdeviceptr *address, size_t bytes)
{
	CUresult result;

	calls++;
	if (by_bytes)
		write_code(saved);
	result = original(address, bytes);
	if (by_bytes)
		write_code(jump);
	return result;
}

static void make_jump(void)
{
	void *target = (void *)hook;

	memcpy(saved, (void *)original, JUMP_BYTES);
	memset(jump, 0, JUMP_BYTES);
#ifdef __aarch64__
	memcpy(jump, (uint32_t[]){0x58000050 /* ldr x16, #8 */, 0xd61f0200 /* br x16 */}, 8);
	memcpy(jump + 8, &target, sizeof(target));
#else
	memcpy(jump, "\xff\x25\0\0\0\0", 6); /* jmp *0(%rip) */
	memcpy(jump + 6, &target, sizeof(target));
#endif
	write_code(jump);
}

static int patch_slots(struct dl_phdr_info *info, size_t size, void *arg)
{
	const ElfW(Sym) *table = NULL;
	const ElfW(Rela) *relocs[2] = {NULL, NULL};
	size_t bytes[2] = {0, 0};
	const char *strings = NULL;
	const ElfW(Dyn) *dynamic = NULL;

	(void)size;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
			dynamic = (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
	}
	for (; dynamic && dynamic->d_tag != DT_NULL; dynamic++) {
		ElfW(Addr) at = dynamic->d_un.d_ptr < info->dlpi_addr ? dynamic->d_un.d_ptr + info->dlpi_addr : dynamic->d_un.d_ptr;

		if (dynamic->d_tag == DT_SYMTAB)
			table = (const ElfW(Sym) *)at;
		else if (dynamic->d_tag == DT_STRTAB)
			strings = (const char *)at;
		else if (dynamic->d_tag == DT_JMPREL)
			relocs[0] = (const ElfW(Rela) *)at;
		else if (dynamic->d_tag == DT_PLTRELSZ)
			bytes[0] = dynamic->d_un.d_val;
		else if (dynamic->d_tag == DT_RELA)
			relocs[1] = (const ElfW(Rela) *)at;
		else if (dynamic->d_tag == DT_RELASZ)
			bytes[1] = dynamic->d_un.d_val;
	}
	for (int kind = 0; kind < 2 && table && strings; kind++) {
		for (size_t i = 0; relocs[kind] && i < bytes[kind] / sizeof(ElfW(Rela)); i++) {
			const ElfW(Rela) *reloc = &relocs[kind][i];
			void **slot = (void **)(info->dlpi_addr + reloc->r_offset);
			uintptr_t page = (uintptr_t)slot & ~(uintptr_t)(getpagesize() - 1);

			if ((ELF64_R_TYPE(reloc->r_info) != JUMP_SLOT && ELF64_R_TYPE(reloc->r_info) != GLOBAL_SLOT) ||
				strcmp(strings + table[ELF64_R_SYM(reloc->r_info)].st_name, symbol) != 0)
				continue;
			mprotect((void *)page, (size_t)getpagesize(), PROT_READ | PROT_WRITE);
			*slot = (void *)hook;
			++*(int *)arg;
		}
	}
	return 0;
}

__attribute__((constructor)) static void begin(void)
{
	const char *how = getenv("PATCHER");
	int slots = 0;

	if (!how)
		return;
	original = (__typeof__(original))dlsym(RTLD_DEFAULT, symbol);
	if (strcmp(how, "driver") == 0) {
		/* past every preload: the loader's own look-up, asked of the library that had it before glibc 2.34 */
		void *(*look_up)(void *, const char *) =
			(void *(*)(void *, const char *))dlsym(dlopen("libdl.so.2", RTLD_NOW), "dlsym");

		original = (__typeof__(original))look_up(dlopen("libcuda.so.1", RTLD_NOW), symbol);
	}
	by_bytes = strcmp(how, "slots") != 0;
	if (!original)
		return;
	if (by_bytes)
		make_jump();
	else
		dl_iterate_phdr(patch_slots, &slots);
}

__attribute__((destructor)) static void tell(void)
{
	char line[64];
	int length = snprintf(line, sizeof(line), "interposer: %s %u\n", symbol, calls);

	if (getenv("PATCHER") && write(STDERR_FILENO, line, (size_t)length) < 0)
		_exit(1);
}
