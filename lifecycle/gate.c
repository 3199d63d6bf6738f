/* lifecycle/gate.c
 * Stand-in, see gate.h. */
#include "lifecycle/gate.h"

#include "lifecycle/lifecycle.h"

enum sublet_err gate_hold(struct lifecycle *lc, const struct gate_timing *timing, struct errinfo *reterr)
{
	CUresult own = CUDA_SUCCESS;

	__atomic_store_n(&lc->gate.shut, true, __ATOMIC_RELEASE);
	lc->gate.holds++;
	(void)contexts_synchronize(&lc->contexts, 0, &own);
	return SUBLET_OK;
}

void gate_open(struct lifecycle *lc)
{
	__atomic_store_n(&lc->gate.shut, false, __ATOMIC_RELEASE);
}

void gate_on_wait(struct gate *gate, uint64_t after_ns, void (*wanted)(void *arg), void *arg)
{
	gate->wanted = wanted;
	gate->wanted_arg = arg;
}

bool gate_is_shut(const struct gate *gate)
{
	return __atomic_load_n(&gate->shut, __ATOMIC_ACQUIRE);
}
