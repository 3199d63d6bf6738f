/* shim/wrap_unload.c
 * GROUP(UNLOAD): before code goes away, the gate forgets the kernels it would ask for their names (kernels_gone). */
#include "shim/shim.h"

#define UNLOAD(symbol, args)                                                                                           \
	do {                                                                                                           \
		if (shim_active())                                                                                     \
			SHIM_OWN(kernels_gone(&shim_hot.lifecycle));                                                       \
		return FORWARD(symbol, args);                                                                          \
	} while (0)

CUresult CUDAAPI cuModuleUnload(CUmodule hmod)
{
	UNLOAD(cuModuleUnload, (hmod));
}

CUresult CUDAAPI cuLibraryUnload(CUlibrary library)
{
	UNLOAD(cuLibraryUnload, (library));
}
