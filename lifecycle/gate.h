/* lifecycle/gate.h
 * Stand-in with the names of the gate, until it is there: it shuts and opens, nothing waits and nothing is drained. */
#ifndef SUBLET_LIFECYCLE_GATE_H
#define SUBLET_LIFECYCLE_GATE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/errors.h"

struct lifecycle;

struct gate {
	bool shut; /* atomic */
	uint64_t holds;
	void (*wanted)(void *arg);
	void *wanted_arg;
};

struct gate_timing {
	uint64_t deadline_ns, timeout_ns;
};

enum sublet_err gate_hold(struct lifecycle *lc, const struct gate_timing *timing, struct errinfo *reterr);
void gate_open(struct lifecycle *lc);
void gate_on_wait(struct gate *gate, uint64_t after_ns, void (*wanted)(void *arg), void *arg);
bool gate_is_shut(const struct gate *gate);

#endif
