/* tests/unit/lifecycle_fixture.h
 * A fresh lifecycle over a fresh simulated driver, and the check that it left nothing behind. */
#ifndef SUBLET_TESTS_UNIT_LIFECYCLE_FIXTURE_H
#define SUBLET_TESTS_UNIT_LIFECYCLE_FIXTURE_H

#include <stdbool.h>

#include "lifecycle/lifecycle.h"

#define MIB (1ull << 20)
#define GIB (1ull << 30)

extern struct lifecycle fixture_lc;
extern struct stats_page fixture_page;
/* Changes that a test makes to the configuration before fixture_begin; fixture_end puts the default back. */
extern struct lifecycle_config fixture_config;

/* Reset the simulated machine, make device 0's primary context current, start a lifecycle. False: could not. */
bool fixture_begin(void);
/* Stop it with no failure injected any more. NULL when no handle, mapping, reservation, event or byte is left anywhere and
 * all counters are at zero, else what is left. */
const char *fixture_end(void);

/* Take each lock of the lifecycle, in rank order; give them back. */
void fixture_lock_all(void);
void fixture_unlock_all(void);

/* In a child just forked: forget, as the handler of the preloaded library does it. From then on a hang ends the child by SIGALRM
 * and a crash by its own signal (cmocka's handlers would go on with the parent's tests). It has to end by _exit. */
void fixture_child_begin(void);

#endif
