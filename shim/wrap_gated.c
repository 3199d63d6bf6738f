/* shim/wrap_gated.c
 * The bodies of all GATED rows, made from the rows. The one cost that every launch of a process pays: nothing but the gate
 * belongs here. */
#include "shim/gated.h"

#define KERNEL_LAUNCH (f)
/* Its memory is the program's to be wrong about: it is looked into only where names of kernels matter. */
#define KERNEL_LAUNCH_LIST                                                                                             \
	(gate_kernels_matter(&shim_hot.lifecycle.gate) && launchParamsList && numDevices ? launchParamsList->function : NULL)
#define KERNEL_LAUNCHES NULL
#define KERNEL_COPY NULL
#define KERNEL_SET NULL
#define KERNEL_STREAM_MEMORY NULL
#define KERNEL_PREFETCH NULL

#define WRAP(symbol, base, since, stream, need, group, params, args)
#define PASS(symbol, base, since, stream, need, reason, params, args)
#define GATED(symbol, base, since, stream, need, group, params, args) GATED_ENTRY(symbol, params, args, KERNEL_##group)
#include "shim/entries.def"
