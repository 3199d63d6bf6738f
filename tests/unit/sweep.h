/* tests/unit/sweep.h
 * Failure sweep: run a scenario with the Nth driver call failing, for N = 1, 2, ... until the run makes no Nth call; once
 * with that call alone failing, once with every later one too. Whatever happens, the process lives, nothing is left, and
 * counters are at zero when the driver works again. Any part of lifecycle/ can be swept. */
#ifndef SUBLET_TESTS_UNIT_SWEEP_H
#define SUBLET_TESTS_UNIT_SWEEP_H

#include <stdbool.h>

struct sweep_scenario {
	const char *name;
	/* Before the first failure: contexts, streams, memory of the application. May be NULL. False: cannot run. */
	bool (*prepare)(void);
	/* Any call may fail in here. Returns NULL, or what it saw that no application may see. */
	const char *(*run)(void);
	/* The driver works again: give the application's own things back. May be NULL. */
	void (*finish)(void);
};

/* Sweep over each driver call that lifecycle/ makes, and over all of them counted together. Fails the cmocka test with
 * scenario, call, number and mode in the message. Prints how many runs it took. */
void sweep(const struct sweep_scenario *scenario);

/* Which call of which run fails, for what `finish` has to say. */
const char *sweep_where(void);

/* Not a failure but a fork at the Nth driver call: the child forgets, tries to allocate and free, and must end by itself;
 * the parent goes on and must come out with nothing left. */
void sweep_fork(const struct sweep_scenario *scenario);

/* Is this the forked child? It runs the scenario to its end too, with a driver that answers nothing any more. */
bool sweep_in_child(void);

#endif
