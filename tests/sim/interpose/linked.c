/* tests/sim/interpose/linked.c
 * A program linked with the driver, without cudart: its calls go through its own procedure linkage table. */
#include "work.h"

int main(void)
{
	WORK();
	return 0;
}
