/* tools/child.h
 * A function that may hang, crash or end its process, run where it can: in a child that is given a bounded time. */
#ifndef SUBLET_TOOLS_CHILD_H
#define SUBLET_TOOLS_CHILD_H

#include <stddef.h>

enum child_end {
	CHILD_RETURNED,
	CHILD_CRASHED, /* a signal ended it */
	CHILD_LEFT,    /* something in it ended the process: exit() */
	CHILD_HUNG,    /* killed when its time was over */
	CHILD_NOT_STARTED,
};

struct child_outcome {
	enum child_end end;
	int number; /* RETURNED: what the function returned; CRASHED: the signal; LEFT: exit status; NOT_STARTED: errno
		     */
};

/* Run @function(@arg) in a forked child, wait at most @timeout_ms for it. What it is to tell beyond a number goes into
 * memory of child_memory(). What it prints goes to stderr; it leaves no core file. A child that cannot be killed (stuck
 * in a driver) is left behind. The caller has one thread and does not ignore SIGCHLD. */
struct child_outcome child_run(int (*function)(void *arg), void *arg, unsigned int timeout_ms);

/* Zeroed memory that children write and their parent reads, NULL when there is none. Freed with the process. */
void *child_memory(size_t bytes);

#endif
