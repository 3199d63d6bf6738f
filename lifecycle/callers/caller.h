/* lifecycle/callers/caller.h
 * Who makes an allocation, as far as a policy can ask: the library that called, the thread's name, the program's tag, native
 * frames, Python frames. Found in the call itself, with the application's locks held: nothing here waits for anybody
 * (python.h, native.h).
 *
 * All texts are interned (texts.h): equal texts are one pointer, valid for the life of the process. NULL and 0: not known, or
 * not wanted.
 * Neighbours: sites.h keeps what was found once per distinct caller. */
#ifndef SUBLET_LIFECYCLE_CALLERS_CALLER_H
#define SUBLET_LIFECYCLE_CALLERS_CALLER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lifecycle/callers/native.h"
#include "lifecycle/callers/python.h"
#include "lifecycle/callers/wants.h"

struct caller {
	const char *library[2]; /* paths: what called the driver, and where that is the runtime what called it */
	const char *thread, *tag;
	size_t stack_count, python_count;
	const char *stack[NATIVE_FRAMES_MAX];  /* innermost first, `library:function` */
	const char *python[PYTHON_FRAMES_MAX]; /* innermost first, `file:function` */
};

/* Make ready what @wants need: may wait (loader, files), so never in a call of the application. What cannot be had is said once
 * in the log, and taken out of the set that is returned. */
unsigned caller_prepare(unsigned wants);

/* Fill *ret with what @wants of the calling thread, which came by an entry point with @return_address. No lock, no wait,
 * errno as before. Where little of the thread's stack is left (32 KiB for Python's, 24 for the native one and libraries) these are not
 * looked for. */
void caller_find(unsigned wants, void *return_address, struct caller *ret);

/* The tag of the calling thread, which its next allocations carry; NULL: none. False: no room for a further text. */
bool caller_set_tag(const char *tag);

#endif
