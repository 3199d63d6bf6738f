/* lifecycle/callers/python_layout.h
 * The layout of one interpreter's structures: where each field that a stack is read from stands. */
#ifndef SUBLET_LIFECYCLE_CALLERS_PYTHON_LAYOUT_H
#define SUBLET_LIFECYCLE_CALLERS_PYTHON_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Offsets in bytes; python_known.def says of what. A field that a version lacks is 0 where that is noted. */
struct python_layout {
	uint32_t minor;
	bool free_threaded;
	uint32_t interpreters_head, finalizing, tss_key /* 0: none */;
	uint32_t interpreter_next, threads_head;
	uint32_t thread_prev, thread_next, thread_interpreter, thread_id, native_id /* 0: none */, status /* 0: none */;
	uint32_t frame, cframe /* 0: none */, cframe_frame;
	uint32_t frame_back, frame_code, frame_owner /* 0: none */;
	uint32_t code_file, code_name;
	uint32_t object_type, type_name;
	uint32_t str_length, str_state, str_ascii_bytes;
	/* bits */
	uint32_t kind_bit, compact_bit, ascii_bit, wide_more_bytes, bound_bit, entry_owner /* 0: none */;
};

enum {
	PYTHON_PUBLISHED_WORDS = 96,
	PYTHON_COOKIE_BYTES = 8,
	PYTHON_STATE_BYTES_MAX = 256,
	PYTHON_FRAME_BYTES_MAX = 96,
	PYTHON_CODE_BYTES_MAX = 192
};

/* Does the frame chain begin in a cframe (3.11, 3.12) and not in the thread state itself? */
bool python_layout_has_frame_in_cframe(const struct python_layout *layout);

/* The least piece of a thread state, a frame or a code object that has all the fields in it: where it begins, and how
 * long it is.
 */
uint32_t python_layout_state(const struct python_layout *layout, uint32_t *ret_bytes);
uint32_t python_layout_frame(const struct python_layout *layout, uint32_t *ret_bytes);
uint32_t python_layout_code(const struct python_layout *layout, uint32_t *ret_bytes);

/* What @version (PY_VERSION_HEX) without published offsets has. False: not known (3.13 and later publish theirs, older
 * than 3.9, or another processor or C library than the table is of). */
bool python_layout_known(uint32_t version, struct python_layout *ret_layout);

/* What an interpreter publishes of itself: @words is a copy of the first PYTHON_PUBLISHED_WORDS words of _PyRuntime.
 * False: no cookie, a version that is not known, or offsets that cannot be; *ret_version is 0 without a cookie, and may
 * be NULL. */
bool python_layout_published(const uint64_t *words, struct python_layout *ret_layout, uint32_t *ret_version);

#endif
