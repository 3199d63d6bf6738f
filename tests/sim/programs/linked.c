/* tests/sim/programs/linked.c
 * The loader binds the driver's names. */
#include "reach.h"

int main(void)
{
	static const struct reach cu = {
#define REACH(name, symbol, version, params) .name##_ = name,
		REACH_LIST
#undef REACH
	};

	program_begin();
	reach_live(&cu);
	return 0;
}
