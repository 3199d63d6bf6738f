/* lifecycle/callers/python_priv.h
 * What the parts of the Python stack reader share: the interpreters that are loaded, what is remembered of a thread,
 * and the three steps from a thread to its texts. Nothing here may fault, wait, or write to what is Python's. */
#ifndef SUBLET_LIFECYCLE_CALLERS_PYTHON_PRIV_H
#define SUBLET_LIFECYCLE_CALLERS_PYTHON_PRIV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lifecycle/callers/python.h"
#include "lifecycle/callers/python_layout.h"

/* One _PyRuntime: an interpreter's library, or a program that has one inside. Written once, then only the atomic fields
 * change. */
struct python_runtime {
	uint64_t address; /* of _PyRuntime */
	struct python_layout layout;
	uint64_t code_type, str_type; /* atomic; the types `code` and `str`, 0 until first seen */
	uint32_t gone;		      /* atomic; its library was unloaded */
};

enum { PYTHON_RUNTIMES_MAX = 16, PYTHON_VISITED_MAX = 512, PYTHON_REMEMBERED = 128, PYTHON_STATES_REMEMBERED = 64 };

/* What was seen of a thread the last time, so that all of it can be read again in one go. Nothing is believed because
 * it stands here. Held by one user at a time; who finds it taken does without. */
struct python_hint {
	uint32_t taken; /* atomic */
	uint32_t frame_count;
	uint64_t thread; /* pthread_self() of whom it is about */
	const struct python_runtime *runtime;
	uint64_t state;
	uint64_t frames[PYTHON_REMEMBERED];
	uint32_t state_count; /* of the last walk over all threads' */
	uint64_t states[PYTHON_STATES_REMEMBERED];
};

/* The calling thread in one runtime. */
struct python_thread {
	uint64_t state, frame;
	uint64_t cframe; /* 0 where the version has none */
};

/* The state in which the calling thread runs Python, with the GIL or without, and its innermost frame. @hint may be
 * NULL. False: it runs none, or that cannot be told. */
bool python_thread_find(
	const struct python_runtime *runtime, struct python_hint *hint, struct python_thread *ret_thread);

/* Is @address on the part of the calling thread's C stack that is in use? */
bool python_on_own_stack(uint64_t address);

/* The code objects of the frames from @frame outwards that are Python functions, at most @room; false when a frame does
 * not look right. */
bool python_codes(const struct python_runtime *runtime, uint64_t frame, struct python_hint *hint, uint64_t *ret_codes,
	size_t room, size_t *ret_count);

/* Where on the calling thread's C stack the innermost evaluation of @thread began: of two interpreters in one thread,
 * the lower is the one that runs. 0: not known. */
uint64_t python_anchor(const struct python_runtime *runtime, const struct python_thread *thread);

/* The texts of @codes (frames without one, see there, are left out); false when one does not look right. */
bool python_texts(
	struct python_runtime *runtime, const uint64_t *codes, size_t count, const char **ret_texts, size_t *ret_count);

/* Looks through the loaded objects: calls @found with each interpreter in them (@version is PY_VERSION_HEX, the lower
 * half unsaid where it is only known to be about that; @layout is NULL when it is not known). False when nothing was
 * loaded or unloaded since the last call. May wait: the loader's lock, files. */
bool python_find(void (*found)(uint64_t address, uint32_t version, const struct python_layout *layout));

#endif
