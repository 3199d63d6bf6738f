/* tests/sim/interpose/next_step.c
 * Compiled more than once, each with its own DIGIT: functions that hand on to the next definition of their own name. One
 * name begins as the driver's names do. */
#include <dlfcn.h>

int chain_step(void);
int cu_chain_step(void);

static int onward(const char *name)
{
	int (*next)(void) = (int (*)(void))dlsym(RTLD_NEXT, name);

	return DIGIT + (next ? 10 * next() : 0);
}

int chain_step(void)
{
	return onward("chain_step");
}

int cu_chain_step(void)
{
	return onward("cu_chain_step");
}
