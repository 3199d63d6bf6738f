/* lifecycle/hold.c
 * The closer's side of the gate: shut, wait for the slots, drain, hold; and when that does not come about, say what was in
 * the way. One thread of Sublet's own at a time; holds no lock while it waits. */
#include "lifecycle/gate.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/process.h"
#include "lifecycle/drain.h"
#include "lifecycle/lifecycle.h"

#define LAST_KERNELS_SAID 2
#define KERNEL_NAME_SAID 48

/* What a try was waiting for when its time was over. */
enum obstacle_kind {
	OBSTACLE_CALL,    /* a gated call that does not come back */
	OBSTACLE_CAPTURE, /* its calls are gated, so it cannot end while the gate is shut */
	OBSTACLE_WORK,    /* a context does not pass its mark, or does not even take it */
	OBSTACLE_BARRIER, /* no membarrier any more */
	OBSTACLE_END,     /* of the process */
};

struct obstacle {
	enum obstacle_kind kind;
	int thread;
	const char *entry;
	const void *kernel;
	CUcontext context; /* NULL: not known */
	CUresult refusal;
	struct capture capture;
};

/* ---- one try ---- */

static bool drain(struct lifecycle *lc, uint64_t until_ns, struct obstacle *obstacle)
{
	CUresult result = drainer_drain(lc, until_ns, &obstacle->context);

	if (result == CUDA_ERROR_NOT_READY)
		captures_under_way(&lc->captures, &obstacle->capture);
	obstacle->kind = result == CUDA_ERROR_NOT_READY ? OBSTACLE_CAPTURE : OBSTACLE_WORK;
	obstacle->refusal = result == CUDA_ERROR_TIMEOUT ? CUDA_SUCCESS : result;
	return result == CUDA_SUCCESS;
}

static bool wait_for_slots(const struct gate *gate, uint64_t until_ns, struct obstacle *obstacle)
{
	uint64_t pause_ns = 0;
	const struct gate_slot *slot;

	while ((slot = gate_busy_slot(false))) {
		obstacle->kind = OBSTACLE_CALL;
		obstacle->thread = __atomic_load_n(&slot->thread, __ATOMIC_RELAXED);
		obstacle->entry = __atomic_load_n(&slot->entry, __ATOMIC_RELAXED);
		if (gate_is_ending(gate) || !drain_pause(&pause_ns, until_ns))
			return false;
	}
	return true;
}

/* False: the process ends, and the gate is open. */
static bool shut(struct gate *gate, unsigned bits)
{
	gate_set(gate, bits);
	if (!gate_is_ending(gate))
		return true;
	gate_set(gate, 0);
	return false;
}

static bool try_to_hold(struct lifecycle *lc, uint64_t until_ns, struct obstacle *obstacle)
{
	struct gate *gate = &lc->gate;

	obstacle->kind = OBSTACLE_BARRIER;
	for (;;) {
		unsigned through;

		if (!shut(gate, GATE_SHUT))
			return false;
		through = __atomic_load_n(&gate->through, __ATOMIC_ACQUIRE);
		if (!gate_barrier(gate) || !wait_for_slots(gate, until_ns, obstacle))
			return false;
		if (captures_under_way(&lc->captures, &obstacle->capture)) {
			obstacle->kind = OBSTACLE_CAPTURE;
			return false;
		}
		if (!drain(lc, until_ns, obstacle))
			return false;
		/* What a call-back submitted after the marks is behind none of them. From here on call-backs wait too. */
		__atomic_store_n(&gate->held_since_ns, clock_now_ns(), __ATOMIC_RELEASE);
		if (!shut(gate, GATE_SHUT | GATE_HELD))
			return false;
		if (!gate_barrier(gate)) {
			obstacle->kind = OBSTACLE_BARRIER;
			return false;
		}
		if (!gate_busy_slot(false) && through == __atomic_load_n(&gate->through, __ATOMIC_ACQUIRE))
			return true;
	}
}

/* ---- what was in the way ---- */

/* Asked only when a hold has failed: a driver that is stuck in a launch may answer late. The lock keeps the code loaded. */
static bool name_of_last(struct lifecycle *lc, const struct gate_slot *slot, char *name, size_t size)
{
	const char *known;
	const void *kernel;

	ranked_lock(&lc->gate.kernels_lock);
	kernel = __atomic_load_n(&slot->kernel, __ATOMIC_RELAXED);
	known = kernel ? kernel_name(lc, kernel) : NULL;
	if (known)
		snprintf(name, size, "%s", known);
	ranked_unlock(&lc->gate.kernels_lock);
	return known != NULL;
}

static void say_last_kernels(struct lifecycle *lc, int thread, char *text, size_t size)
{
	const struct gate_slot *slot = NULL;
	const char *before = "; last kernel";
	char kernel[KERNEL_NAME_SAID], name[THREAD_NAME_BYTES];
	unsigned said = 0;

	text[0] = '\0';
	while ((slot = gate_next_slot(slot)) && said < LAST_KERNELS_SAID) {
		int of = __atomic_load_n(&slot->thread, __ATOMIC_RELAXED);
		size_t length = strlen(text);

		if (of <= 0 || (thread && of != thread) || !name_of_last(lc, slot, kernel, sizeof(kernel)))
			continue;
		if (thread)
			snprintf(text + length, size - length, "%s '%s'", before, kernel);
		else
			snprintf(text + length, size - length, "%s '%s' of '%s' (%d)", before, kernel,
				process_thread_name(of, name), of);
		before = ",";
		said++;
	}
}

static enum sublet_err describe(struct lifecycle *lc, const struct obstacle *obstacle, uint64_t waited_ns, struct errinfo *reterr)
{
	unsigned long long ms = waited_ns / CLOCK_NS_PER_MS;
	char kernels[112], name[THREAD_NAME_BYTES];

	switch (obstacle->kind) {
	case OBSTACLE_CALL:
		say_last_kernels(lc, obstacle->thread, kernels, sizeof(kernels));
		return errinfo_set(reterr, SUBLET_ERR_TIMEOUT, 0, "no hold within %llu ms: thread '%s' (%d) stays in %s%s", ms,
			process_thread_name(obstacle->thread, name), obstacle->thread, obstacle->entry ? obstacle->entry : "a call",
			kernels);
	case OBSTACLE_CAPTURE:
		return errinfo_set(reterr, SUBLET_ERR_TIMEOUT, 0, "no hold within %llu ms: stream %p of context %p is being captured",
			ms, (void *)obstacle->capture.stream, (void *)obstacle->capture.context);
	case OBSTACLE_WORK:
		say_last_kernels(lc, 0, kernels, sizeof(kernels));
		if (obstacle->refusal)
			return errinfo_set(reterr, SUBLET_ERR_DRIVER, (int)obstacle->refusal,
				"no hold within %llu ms: the driver does not tell whether work goes on (error %d)%s", ms,
				(int)obstacle->refusal, kernels);
		if (!obstacle->context)
			return errinfo_set(reterr, SUBLET_ERR_TIMEOUT, 0,
				"no hold within %llu ms: the driver waits for work, or for room in a full queue%s", ms, kernels);
		return errinfo_set(reterr, SUBLET_ERR_TIMEOUT, 0, "no hold within %llu ms: work of device %d, context %p, goes on%s",
			ms, contexts_device_of(&lc->contexts, obstacle->context), (void *)obstacle->context, kernels);
	case OBSTACLE_END:
		return errinfo_set(reterr, SUBLET_ERR_SYSTEM, 0, "the process ends");
	case OBSTACLE_BARRIER:
		break;
	}
	return errinfo_set(reterr, SUBLET_ERR_TIMEOUT, 0, "no hold within %llu ms: the kernel refuses membarrier", ms);
}

/* ---- hold and open ---- */

struct gate_timing gate_timing_default(void)
{
	return (struct gate_timing){.deadline_ns = 250 * CLOCK_NS_PER_MS, .timeout_ns = 30000 * CLOCK_NS_PER_MS};
}

/* Open for so long that whoever waits gets through, and until no capture is under way. */
static void let_through(struct lifecycle *lc, uint64_t open_ns, uint64_t end_ns)
{
	uint64_t until_ns = clock_now_ns() + open_ns, pause_ns = 0;

	gate_set(&lc->gate, 0);
	clock_sleep_ns(CLOCK_NS_PER_MS);
	while (!gate_is_ending(&lc->gate) && gate_busy_slot(true) && drain_pause(&pause_ns, until_ns < end_ns ? until_ns : end_ns))
		;
	while (!gate_is_ending(&lc->gate) && captures_under_way(&lc->captures, NULL) && drain_pause(&pause_ns, end_ns))
		;
}

static void end_hold(struct gate *gate)
{
	gate_set(gate, 0);
	__atomic_store_n(&gate->holds, 0, __ATOMIC_RELEASE);
}

enum sublet_err gate_hold(struct lifecycle *lc, const struct gate_timing *timing, struct errinfo *reterr)
{
	struct gate *gate = &lc->gate;
	uint64_t begun_ns = clock_now_ns(), end_ns = begun_ns + timing->timeout_ns, deadline_ns = timing->deadline_ns;
	struct obstacle obstacle = {0};
	struct driver_scope scope;
	unsigned nobody = 0;
	bool held;

	if (gate_is_ending(gate) && !(__atomic_load_n(&gate->word, __ATOMIC_ACQUIRE) & GATE_HELD))
		return errinfo_set(reterr, SUBLET_ERR_SYSTEM, 0, "the process ends");
	if (!__atomic_compare_exchange_n(&gate->holds, &nobody, 1, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
		if (__atomic_load_n(&gate->word, __ATOMIC_ACQUIRE) & GATE_HELD)
			return SUBLET_OK;
		return errinfo_set(reterr, SUBLET_ERR_INVALID, 0, "another hold of this process has begun");
	}
	__atomic_store_n(&gate->asked, 0, __ATOMIC_RELEASE);
	driver_enter(&lc->driver, &scope);
	for (;; deadline_ns *= 2) {
		uint64_t now_ns = clock_now_ns(), until_ns = now_ns + deadline_ns;

		held = try_to_hold(lc, until_ns < end_ns ? until_ns : end_ns, &obstacle);
		if (!held && gate_is_ending(gate))
			obstacle.kind = OBSTACLE_END;
		if (held || obstacle.kind == OBSTACLE_END || clock_now_ns() >= end_ns)
			break;
		log_say(LOG_GATE, LOG_DEBUG, WHOSE_NONE, "hold given up after %llu ms, to be tried again",
			(unsigned long long)((clock_now_ns() - now_ns) / CLOCK_NS_PER_MS));
		let_through(lc, deadline_ns, end_ns);
	}
	if (!held)
		end_hold(gate);
	driver_leave(&lc->driver, &scope);
	if (!held)
		return describe(lc, &obstacle, clock_now_ns() - begun_ns, reterr);
	log_say(LOG_GATE, LOG_DEBUG, WHOSE_NONE, "held after %llu us", (unsigned long long)((clock_now_ns() - begun_ns) / 1000));
	return SUBLET_OK;
}

void gate_open(struct lifecycle *lc)
{
	/* not while gate_hold is at it */
	if (__atomic_load_n(&lc->gate.word, __ATOMIC_ACQUIRE) & GATE_HELD)
		end_hold(&lc->gate);
}
