/* tools/sim/sim_skeleton.c
 * Every exported name that nothing else here defines answers NOT_SUPPORTED. Definitions elsewhere are strong and win. */
#include "tools/sim/sim_priv.h"

#define WRAP(symbol, base, since, stream, need, group, params, args)                                                   \
	__attribute__((weak)) CUresult CUDAAPI symbol params                                                           \
	{                                                                                                              \
		CUresult result_ = sim_enter(SIM_##symbol, false);                                                     \
		return result_ == CUDA_SUCCESS ? CUDA_ERROR_NOT_SUPPORTED : result_;                                   \
	}
#define PASS(symbol, base, since, stream, need, reason, params, args)                                                  \
	WRAP(symbol, base, since, stream, need, reason, params, args)
/* entries.def undefines both at its end, and PASS expands to WRAP until then. */
#include "shim/entries.def"
