/* lifecycle/kernels.c
 * Names of kernels, once per handle. In front of every launch where a policy asks: one hash, one load, one comparison. */
#include "lifecycle/kernels.h"

#include <errno.h>

#include "base/clock.h"
#include "base/log.h"
#include "lifecycle/callers/cxx_name.h"
#include "lifecycle/client_priv.h"
#include "lifecycle/lifecycle.h"
#include "policy/roles.h"

enum { TRIES = 8, NAME_BYTES = 1024 };

#define BEGINS_NOTHING 0xffffull
#define VERDICT(word) ((word) & 0xffff)

const char *kernel_name(struct lifecycle *lc, const void *kernel)
{
	const struct driver *driver = &lc->driver;
	const char *name = NULL;

	/* The runtime passes a CUkernel as a CUfunction, for which the first call gives an error (H200, driver 580). */
	if ((!driver->FuncGetName || driver->FuncGetName(&name, (CUfunction)kernel) != CUDA_SUCCESS) &&
		(!driver->KernelGetName || driver->KernelGetName(&name, (CUkernel)kernel) != CUDA_SUCCESS))
		return NULL;
	return name;
}

/* ---- what is known ---- */

/* Handles are addresses: the low bits say little. */
static size_t place(const void *kernel)
{
	return (size_t)((uint64_t)(uintptr_t)kernel * 0x9e3779b97f4a7c15ull >> 52);
}

_Static_assert(KERNELS_SEEN == 1 << 12, "place() gives twelve bits");

/* False: not known. */
static bool find(const struct kernels *kernels, const void *kernel, uint64_t *ret_verdict)
{
	const size_t first = place(kernel);

	for (size_t i = 0; i < TRIES; i++) {
		const uint64_t word = __atomic_load_n(&kernels->seen[(first + i) % KERNELS_SEEN], __ATOMIC_RELAXED);

		if (!word)
			return false;
		if (word >> 16 == (uint64_t)(uintptr_t)kernel) {
			*ret_verdict = VERDICT(word);
			return true;
		}
	}
	return false;
}

/* Caller holds RANK_KERNELS. */
static void put(struct kernels *kernels, const void *kernel, uint64_t verdict)
{
	const uint64_t handle = (uint64_t)(uintptr_t)kernel;
	size_t at = place(kernel);

	if (handle >> 48) /* no such addresses so far; asked each time */
		return;
	for (size_t i = 0; i < TRIES; i++) {
		if (kernels->seen[(at + i) % KERNELS_SEEN])
			continue;
		at = (at + i) % KERNELS_SEEN;
		break;
	}
	__atomic_store_n(&kernels->seen[at], handle << 16 | verdict, __ATOMIC_RELAXED);
}

/* Caller holds RANK_KERNELS. */
static void forget(struct kernels *kernels)
{
	for (size_t i = 0; i < KERNELS_SEEN; i++)
		__atomic_store_n(&kernels->seen[i], 0, __ATOMIC_RELAXED);
}

void kernels_gone(struct lifecycle *lc)
{
	if (gate_kernels_matter(&lc->gate)) {
		ranked_lock(&lc->gate.kernels_lock);
		forget(&lc->kernels);
		ranked_unlock(&lc->gate.kernels_lock);
	}
	gate_kernels_gone(&lc->gate);
}

/* ---- what they begin ---- */

static uint64_t ask(struct lifecycle *lc, const void *kernel)
{
	char demangled[NAME_BYTES];
	const struct client_policy *current;
	uint64_t verdict = BEGINS_NOTHING;
	const char *name;

	ranked_lock(&lc->gate.kernels_lock);
	current = client_policy(&lc->client);
	name = current && current->bytes ? kernel_name(lc, kernel) : NULL;
	if (name) {
		const bool has_other = cxx_name(name, demangled, sizeof(demangled));
		const uint32_t phase =
			policy_trigger_of_either(&current->policy, POLICY_TRIGGER_KERNEL, current->role, name, has_other ? demangled : NULL);

		if (phase != POLICY_NONE)
			verdict = phase;
		put(&lc->kernels, kernel, verdict);
		if (phase != POLICY_NONE)
			log_say(LOG_SESSION, LOG_DEBUG, WHOSE_NONE, "kernel '%.200s' begins phase '%s'", name,
				policy_text(&current->policy, current->policy.phases[phase].name));
	}
	ranked_unlock(&lc->gate.kernels_lock);
	return verdict;
}

/* Has a kernel that begins @phase not been launched yet? */
static bool is_first(struct kernels *kernels, uint64_t phase)
{
	const uint64_t bit = 1ull << phase;
	uint64_t again_ns;

	if (__atomic_load_n(&kernels->fired, __ATOMIC_ACQUIRE) & bit) {
		again_ns = __atomic_load_n(&kernels->again_ns, __ATOMIC_RELAXED);
		if (!again_ns || clock_now_ns() < again_ns)
			return false;
		__atomic_store_n(&kernels->again_ns, 0, __ATOMIC_RELAXED);
		__atomic_store_n(&kernels->fired, 0, __ATOMIC_RELEASE);
	}
	return true;
}

static void begin(struct lifecycle *lc, uint64_t phase)
{
	const uint64_t bit = 1ull << phase;

	/* It is put into a graph, and runs later. */
	if (captures_under_way(&lc->captures, NULL))
		return;
	if (!(__atomic_fetch_or(&lc->kernels.fired, bit, __ATOMIC_ACQ_REL) & bit))
		client_note_event(lc, (uint32_t)phase);
}

void kernels_launched(struct lifecycle *lc, const void *kernel)
{
	const int error_before = errno;
	uint64_t verdict;

	if (!find(&lc->kernels, kernel, &verdict))
		verdict = ask(lc, kernel);
	if (verdict != BEGINS_NOTHING && is_first(&lc->kernels, verdict))
		begin(lc, verdict);
	errno = error_before;
}

/* ---- what changes ---- */

void kernels_policy_came(struct lifecycle *lc)
{
	const struct client_policy *current = client_policy(&lc->client);
	const bool asked = current->bytes && !lc->client.without_gpu && policy_trigger_sources(&current->policy, current->role) & 1u << POLICY_TRIGGER_KERNEL;
	const bool named = lc->driver.FuncGetName || lc->driver.KernelGetName;

	ranked_lock(&lc->gate.kernels_lock);
	if (asked || gate_kernels_matter(&lc->gate))
		forget(&lc->kernels);
	ranked_unlock(&lc->gate.kernels_lock);
	kernels_phase_changed(lc);
	gate_look_at_kernels(&lc->gate, asked && named);
	if (asked && !named && !__atomic_exchange_n(&lc->kernels.said, true, __ATOMIC_RELAXED))
		log_say(LOG_SESSION, LOG_WARN, WHOSE_DRIVER,
			"the policy waits for launches of kernels by name, and this driver tells no names: none begins a phase");
}

void kernels_phase_changed(struct lifecycle *lc)
{
	__atomic_store_n(&lc->kernels.again_ns, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&lc->kernels.fired, 0, __ATOMIC_RELEASE);
}

void kernels_phase_refused(struct lifecycle *lc, uint64_t pause_ns)
{
	__atomic_store_n(&lc->kernels.again_ns, clock_now_ns() + pause_ns, __ATOMIC_RELAXED);
}
