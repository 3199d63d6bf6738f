/* tools/sim/sim_image.h
 * What modules and libraries are loaded from. Takes no lock; an image does not change after it was opened. */
#ifndef SUBLET_TOOLS_SIM_SIM_IMAGE_H
#define SUBLET_TOOLS_SIM_SIM_IMAGE_H

#include "tools/sim/sim_exec.h"

struct sim_image {
	void *object; /* of dlopen; NULL: the built-in kernels */
	const struct sim_kernel_info **kernels;
	size_t count, capacity;
};

/* @name: "builtin", "self" or the path of a shared object. Fails with FILE_NOT_FOUND, INVALID_IMAGE, OUT_OF_MEMORY. */
CUresult sim_image_open(struct sim_image *ret, const char *name);
/* @data as of cuModuleLoadData: "sublet-sim:NAME"; code for a GPU is NO_BINARY_FOR_GPU. */
CUresult sim_image_open_data(struct sim_image *ret, const void *data);
void sim_image_close(struct sim_image *image);
const struct sim_kernel_info *sim_image_kernel(const struct sim_image *image, const char *name); /* NULL: none */
/* A global is an exported variable of the object; its address is the one that the kernels use. */
CUresult sim_image_global(const struct sim_image *image, const char *name, CUdeviceptr *ret_address, size_t *ret_bytes);

#endif
