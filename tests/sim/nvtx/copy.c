/* tests/sim/nvtx/copy.c
 * A shared object with a copy of NVTX of its own: each is told of the tool by itself. */
#include "copy.h"

#include <nvtx3/nvToolsExt.h>

int copy_push(const char *name)
{
	return nvtxRangePushA(name);
}

int copy_pop(void)
{
	return nvtxRangePop();
}
