/* shim/controller.c
 * A process without a GPU in the session: it joins at its first NVTX range or sublet_phase(), and does nothing but begin phases. Phases'
 * names live in such processes, a framework's driver for one. No libcuda is loaded or looked for; what it has of lifecycle/ has no driver
 * behind it, and the coordinator asks it for nothing that would want one.
 *
 * Most processes that open a range before their cuInit have a GPU after all: at the start (shim/start.c) this connection ends, the full
 * one begins, and what was not answered is told again. Kept for good, since a thread may be in it. A forked child begins anew. */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>

#include "base/log.h"
#include "shim/nvtx_ranges.h"
#include "shim/shim.h"

#define STOP_WAIT_NS (200 * 1000000ull)
#define START_WAIT_YIELDS 200000 /* a join takes a second at most; one that was forked in the middle never ends */

enum { NO_CONTROLLER, CONTROLLER_STARTING, CONTROLLER_JOINED, CONTROLLER_OVER };

static int state; /* atomic */
static struct lifecycle *controller; /* written while it starts */

static bool begin(void)
{
	struct lifecycle_config config = lifecycle_config_default();
	const char *session, *role = getenv("SUBLET_ROLE");
	struct stats_page *page;
	bool shared;

	log_init();
	session = shim_session();
	if (!session)
		return false;
	config.thread_begins = shim_own_thread_begins;
	config.triggers = &shim_triggers;
	controller = calloc(1, sizeof(*controller));
	if (!controller)
		return false;
	page = stats_create(NULL, role, NULL, &shared); /* of its own: it has nothing to count */
	lifecycle_init_without_driver(controller, &config, page);
	client_start(controller, session, role);
	triggers_settle(&shim_triggers);
	return true;
}

static void start(void)
{
	int expected = NO_CONTROLLER;

	/* before the state says so: a child that is forked in the middle of it has nobody who ends it */
	if (!shim_register_fork()) {
		__atomic_store_n(&state, CONTROLLER_OVER, __ATOMIC_RELEASE);
		return;
	}
	if (__atomic_compare_exchange_n(&state, &expected, CONTROLLER_STARTING, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
		const int error_before = errno;
		int begun;

		shim_enter();
		begun = begin() ? CONTROLLER_JOINED : CONTROLLER_OVER;
		/* not in a child that was forked meanwhile, by a signal handler */
		expected = CONTROLLER_STARTING;
		__atomic_compare_exchange_n(&state, &expected, begun, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
		shim_leave();
		errno = error_before;
		return;
	}
	for (int i = 0; expected == CONTROLLER_STARTING && i < START_WAIT_YIELDS; i++) {
		sched_yield();
		expected = __atomic_load_n(&state, __ATOMIC_ACQUIRE);
	}
}

struct lifecycle *shim_controller(void)
{
	/* whoever has a driver is no controller */
	if (shim_depth == 0 && __atomic_load_n(&state, __ATOMIC_ACQUIRE) < CONTROLLER_JOINED &&
		__atomic_load_n(&shim_hot.state, __ATOMIC_ACQUIRE) == SHIM_NEW && shim_in_session())
		start();
	return __atomic_load_n(&state, __ATOMIC_ACQUIRE) == CONTROLLER_JOINED ? controller : NULL;
}

size_t shim_controller_end(uint32_t phases[CLIENT_EVENTS])
{
	int expected = NO_CONTROLLER;
	size_t count;

	/* one that is starting on another thread goes on beside this one, and is not used any more */
	if (__atomic_compare_exchange_n(&state, &expected, CONTROLLER_OVER, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		return 0;
	for (int i = 0; expected == CONTROLLER_STARTING && i < START_WAIT_YIELDS; i++) {
		sched_yield();
		expected = __atomic_load_n(&state, __ATOMIC_ACQUIRE);
	}
	__atomic_store_n(&state, CONTROLLER_OVER, __ATOMIC_RELEASE);
	if (expected != CONTROLLER_JOINED)
		return 0;
	count = client_take_events(controller, phases);
	client_stop(controller, STOP_WAIT_NS);
	return count;
}

void shim_controller_fork_child(void)
{
	const int before = state;

	/* over from the beginning, as there is no session */
	if (before == NO_CONTROLLER || (before != CONTROLLER_STARTING && !controller))
		return;
	ranked_lock_fork_child();
	if (controller)
		client_forget(&controller->client);
	controller = NULL; /* left, as another thread of the parent was perhaps in the middle of it */
	/* A start on this very stack, which a signal handler has interrupted, goes on in the child: no second one beside it. */
	state = before == CONTROLLER_STARTING && shim_depth ? CONTROLLER_OVER : NO_CONTROLLER;
	triggers_forget(&shim_triggers);
	triggers_expect_again(&shim_triggers);
}
