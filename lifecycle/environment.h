/* lifecycle/environment.h
 * The environment of this process as it is now, read beside threads that may be changing it. Not by getenv: that follows pointers which
 * another thread's setenv frees. Here all is copied by the kernel (lifecycle/callers/peek.h), so what is stale is a wrong or a missing
 * value for one moment, and no fault; who acts on a value reads it again first. Takes no lock, allocates nothing. Changes errno. */
#ifndef SUBLET_LIFECYCLE_ENVIRONMENT_H
#define SUBLET_LIFECYCLE_ENVIRONMENT_H

#include <stdbool.h>

#include "lifecycle/callers/peek.h"

enum { ENVIRONMENT_VALUE_BYTES = 1024, ENVIRONMENT_VARIABLES_MAX = 65536 };

/* Zero-initialised it is ready. */
struct environment_reader {
	struct peek_window pointers, texts;
	char value[ENVIRONMENT_VALUE_BYTES];
};

/* The value of @name, in @reader until the next call. NULL: not set, or longer than a value that is looked at. @reader is a struct
 * environment_reader: the type is that of policy_trigger_of_variables. */
const char *environment_now(const char *name, void *reader);

#endif
