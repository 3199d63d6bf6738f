/* tools/sim/sim_image.c
 * Images: a shared object, the program itself, or the built-in kernels (sim.h), and the kernels and globals in them. */
#include "tools/sim/sim_image.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/list.h"

static bool add_kernel(struct sim_image *image, const struct sim_kernel_info *info)
{
	if (!list_room(&image->kernels, image->count, &image->capacity, sizeof(*image->kernels)))
		return false;
	image->kernels[image->count++] = info;
	return true;
}

/* Symbols in the GNU hash table of an object: one more than the highest index in its chains. */
static size_t gnu_hash_symbols(const uint32_t *table)
{
	const uint32_t *buckets = table + 4 + table[2] * (sizeof(ElfW(Addr)) / 4), *chains = buckets + table[0];
	uint32_t last = 0;

	for (uint32_t i = 0; i < table[0]; i++)
		last = buckets[i] > last ? buckets[i] : last;
	if (last < table[1])
		return table[1];
	while (!(chains[last - table[1]] & 1))
		last++;
	return last + 1;
}

/* The kernels an object describes (SIM_KERNEL): exported names that end in _sim_info. */
static bool list_kernels(struct sim_image *image)
{
	static const char ending[] = "_sim_info";
	const ElfW(Sym) *symbols = NULL;
	const char *names = NULL;
	struct link_map *map;
	size_t count = 0;
	bool fine = true;

	if (dlinfo(image->object, RTLD_DI_LINKMAP, &map) != 0)
		return false;
	for (const ElfW(Dyn) *d = map->l_ld; d->d_tag != DT_NULL; d++) {
		/* glibc relocates these entries in place for every object but the vdso. */
		if (d->d_tag == DT_SYMTAB)
			symbols = (const ElfW(Sym) *)d->d_un.d_ptr;
		else if (d->d_tag == DT_STRTAB)
			names = (const char *)d->d_un.d_ptr;
		else if (d->d_tag == DT_GNU_HASH)
			count = gnu_hash_symbols((const uint32_t *)d->d_un.d_ptr);
		else if (d->d_tag == DT_HASH && !count)
			count = ((const uint32_t *)d->d_un.d_ptr)[1];
	}
	for (size_t i = 0; symbols && names && i < count && fine; i++) {
		const struct sim_kernel_info *info = (const void *)(map->l_addr + symbols[i].st_value);
		const char *name = names + symbols[i].st_name;
		size_t length = strlen(name);

		/* Sanitizers export names of the same ending for their own purposes: the descriptor must say its own. */
		if (symbols[i].st_shndx == SHN_UNDEF || length < sizeof(ending) || symbols[i].st_size != sizeof(*info) ||
			strcmp(name + length - sizeof(ending) + 1, ending) != 0 || !info->name ||
			strlen(info->name) + sizeof(ending) - 1 != length || strncmp(name, info->name, strlen(info->name)) != 0)
			continue;
		fine = add_kernel(image, info);
	}
	return fine;
}

/* @name: "builtin", "self" or the path of a shared object. */
CUresult sim_image_open(struct sim_image *ret, const char *name)
{
	char here[4096];
	struct stat status;
	bool fine = true;

	memset(ret, 0, sizeof(*ret));
	sim_guard_install();
	if (strcmp(name, "builtin") == 0) {
		for (size_t i = 0; i < sim_builtin_kernel_count && fine; i++)
			fine = add_kernel(ret, &sim_builtin_kernels[i]);
		return fine ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (strcmp(name, "self") == 0) {
		ret->object = dlopen(NULL, RTLD_NOW);
	} else {
		if (stat(name, &status) != 0)
			return CUDA_ERROR_FILE_NOT_FOUND;
		/* A path without a slash is a file here and not a name for the loader to search. */
		snprintf(here, sizeof(here), "%s%s", strchr(name, '/') ? "" : "./", name);
		ret->object = dlopen(here, RTLD_NOW | RTLD_LOCAL);
	}
	if (!ret->object)
		return CUDA_ERROR_INVALID_IMAGE;
	return list_kernels(ret) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult sim_image_open_data(struct sim_image *ret, const void *data)
{
	static const char mark[] = "sublet-sim:";
	uint32_t word;

	if (!data)
		return CUDA_ERROR_INVALID_VALUE;
	if (strncmp(data, mark, sizeof(mark) - 1) == 0)
		return sim_image_open(ret, (const char *)data + sizeof(mark) - 1);
	/* Code for a GPU (an ELF, a fat binary or the wrapper around one) is sound and has nothing for this device. */
	memcpy(&word, data, sizeof(word));
	return word == 0x464c457f || word == 0xba55ed50 || word == 0x466243b1 ? CUDA_ERROR_NO_BINARY_FOR_GPU
									       : CUDA_ERROR_INVALID_IMAGE;
}

void sim_image_close(struct sim_image *image)
{
	free(image->kernels);
	if (image->object)
		dlclose(image->object);
}

const struct sim_kernel_info *sim_image_kernel(const struct sim_image *image, const char *name)
{
	for (size_t i = 0; i < image->count; i++) {
		if (strcmp(image->kernels[i]->name, name) == 0)
			return image->kernels[i];
	}
	return NULL;
}

/* A global is an exported variable of the object; its address is the one that the kernels use. */
CUresult sim_image_global(const struct sim_image *image, const char *name, CUdeviceptr *ret_address, size_t *ret_bytes)
{
	const ElfW(Sym) *symbol = NULL;
	Dl_info info;
	void *address;

	if (!name || (!ret_address && !ret_bytes))
		return CUDA_ERROR_INVALID_VALUE;
	address = image->object ? dlsym(image->object, name) : NULL;
	if (!address || !dladdr1(address, &info, (void **)&symbol, RTLD_DL_SYMENT) || !symbol ||
		ELF64_ST_TYPE(symbol->st_info) != STT_OBJECT)
		return CUDA_ERROR_NOT_FOUND;
	if (ret_address)
		*ret_address = (CUdeviceptr)(uintptr_t)address;
	if (ret_bytes)
		*ret_bytes = symbol->st_size;
	pthread_mutex_lock(&sim_lock);
	sim_memory_global((uint64_t)(uintptr_t)address, symbol->st_size);
	pthread_mutex_unlock(&sim_lock);
	return CUDA_SUCCESS;
}
