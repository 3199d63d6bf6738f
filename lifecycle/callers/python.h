/* lifecycle/callers/python.h
 * The Python frames of the calling thread, read from outside of the interpreter: no GIL, no call of Python's, no
 * reference count. CPython 3.9 to 3.15, with and without GIL, any number of interpreters in a process. PyTorch
 * allocates with the GIL released and its own mutex held, while who has the GIL may wait for that mutex: whoever waited
 * here would never come back. */
#ifndef SUBLET_LIFECYCLE_CALLERS_PYTHON_H
#define SUBLET_LIFECYCLE_CALLERS_PYTHON_H

#include <stddef.h>

/* Innermost ones that are told; the others are not. */
enum { PYTHON_FRAMES_MAX = 96 };

/* Finds the interpreters that are loaded. May wait (the loader's lock, files): from Sublet's own thread, never in an
 * allocation. To be called again whenever an interpreter may have come or gone: costs microseconds when no library
 * has. */
void python_prepare(void);

/* Frames of the calling thread, innermost first, as `file:function` texts for ever (texts.h): co_filename in full,
 * co_qualname (before 3.11 co_name, as there is no other), UTF-8; what no UTF-8 can say is U+FFFD. Returns the count, 0
 * for "no frame": no interpreter (that python_prepare saw), a thread without Python, another thread ending the
 * interpreter, anything that does not look right. Before 3.10 also a thread that is in two interpreters at once, as
 * nothing tells which one runs. May be called anywhere, also in a signal handler. Takes no lock; about 24 KiB of stack;
 * errno as before. */
size_t python_frames(const char **ret_frames, size_t room);

/* What was found, for a person: `3.11`, `3.9, 3.13t`, `no interpreter`, `unknown version 3.16`, `memory cannot be
 * read`. */
void python_describe(char *ret_text, size_t room);

#endif
