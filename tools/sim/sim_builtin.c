/* tools/sim/sim_builtin.c
 * The kernels of "sublet-sim:builtin" (sim.h lists them), and what a kernel may ask of the simulated device. */
#include "tools/sim/sim_exec.h"

#include <unistd.h>

static void sim_noop(const struct sim_launch *launch, void **params)
{
}

static void sim_fill32(const struct sim_launch *launch, void **params)
{
	uint32_t *p = *(uint32_t **)params[0], value = *(uint32_t *)params[2];
	size_t words = *(size_t *)params[1];

	for (size_t i = 0; i < words; i++)
		p[i] = value;
	sublet_sim_touched(p, 0, words * sizeof(*p));
}

static void sim_add32(const struct sim_launch *launch, void **params)
{
	uint32_t *p = *(uint32_t **)params[0], addend = *(uint32_t *)params[2];
	size_t words = *(size_t *)params[1];

	for (size_t i = 0; i < words; i++)
		p[i] += addend;
	sublet_sim_touched(p, words * sizeof(*p), words * sizeof(*p));
}

static void sim_busy(const struct sim_launch *launch, void **params)
{
	usleep(*(uint32_t *)params[0] * 1000);
}

static void sim_busy_write(const struct sim_launch *launch, void **params)
{
	usleep(*(uint32_t *)params[3] * 1000);
	sim_fill32(launch, params);
}

static void sim_spin(const struct sim_launch *launch, void **params)
{
	uint32_t *flag = *(uint32_t **)params[0];

	while (!__atomic_load_n(flag, __ATOMIC_ACQUIRE) && !__atomic_load_n(&sim_stopping, __ATOMIC_ACQUIRE))
		usleep(100);
}

const struct sim_kernel_info sim_builtin_kernels[] = {
	{"sim_noop", sim_noop, 0, {0}, true},
	{"sim_fill32", sim_fill32, 3, {8, 8, 4}, false},
	{"sim_add32", sim_add32, 3, {8, 8, 4}, false},
	{"sim_busy", sim_busy, 1, {4}, false},
	{"sim_busy_write", sim_busy_write, 4, {8, 8, 4, 4}, false},
	{"sim_spin", sim_spin, 1, {8}, false},
};
const size_t sim_builtin_kernel_count = sizeof(sim_builtin_kernels) / sizeof(sim_builtin_kernels[0]);
