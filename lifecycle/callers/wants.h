/* lifecycle/callers/wants.h
 * What may be looked for in who makes an allocation. Apart from caller.h, since the command knows these words too. */
#ifndef SUBLET_LIFECYCLE_CALLERS_WANTS_H
#define SUBLET_LIFECYCLE_CALLERS_WANTS_H

#include <stdbool.h>

/* What nobody asks for is not looked for, since each costs (docs/measurements.md). */
enum caller_wants {
	CALLER_LIBRARY = 1 << 0,
	CALLER_THREAD = 1 << 1,
	CALLER_TAG = 1 << 2,
	CALLER_STACK = 1 << 3,
	CALLER_PYTHON = 1 << 4,
	CALLER_EVERYTHING = (1 << 5) - 1,
};

/* The set that @text names: words of `library`, `thread`, `tag`, `stack`, `python` with commas between, or `all`. False: it has
 * others, and *ret_wants is as before. */
bool caller_wants_parse(const char *text, unsigned *ret_wants);

#endif
