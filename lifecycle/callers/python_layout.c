/* lifecycle/callers/python_layout.c
 * The rows of python_known.def as layouts, and the offsets that CPython publishes from 3.13 on (`_Py_DebugOffsets`, at
 * the start of
 * `_PyRuntime`; Include/internal/pycore_debug_offsets.h). Published offsets are still only believed within bounds: what
 * carries the cookie may be damaged, or the work of a fork of CPython. */
#include "lifecycle/callers/python_layout.h"

#include <string.h>

/* No structure is larger; an interpreter's has about 400 KiB. */
#define OFFSET_MAX (4u << 20)

/* The head of an ASCII str has 40 bytes, 56 without GIL. */
#define STR_HEAD_MAX 128

struct bits {
	uint32_t minor, free_threaded, kind, compact, ascii, wide_more, bound, entry;
};

static const struct bits bits[] = {
#define BITS(...) {__VA_ARGS__},
#include "lifecycle/callers/python_known.def"
};

/* In the order of the columns. */
struct known {
	uint32_t minor, free_threaded, interpreters_head, finalizing, tss_key, interpreter_next, threads_head,
		thread_prev, thread_next, thread_interpreter, thread_id, native_id, status, frame, cframe, cframe_frame,
		frame_back, frame_code, frame_owner, code_file, code_name, object_type, type_name, str_length,
		str_state, str_ascii_bytes;
};

/* Other processors and C libraries have other mutexes inside of _PyRuntime. */
static const struct known known[] = {
#if defined(__x86_64__) && defined(__GLIBC__)
#define KNOWN(...) {__VA_ARGS__},
#include "lifecycle/callers/python_known.def"
#endif
	{0},
};

struct published {
	uint32_t minor, free_threaded, interpreters_head, finalizing, interpreter_next, threads_head, thread_prev,
		thread_next, thread_interpreter, thread_id, native_id, status, frame, frame_back, frame_code,
		frame_owner, code_file, code_name, object_type, type_name, str_length, str_state, str_ascii_bytes;
};

static const struct published published[] = {
#define PUBLISHED(...) {__VA_ARGS__},
#include "lifecycle/callers/python_known.def"
};

static bool set_bits(struct python_layout *layout)
{
	for (size_t i = 0; i < sizeof(bits) / sizeof(bits[0]); i++) {
		if (bits[i].minor != layout->minor || bits[i].free_threaded != layout->free_threaded)
			continue;
		layout->kind_bit = bits[i].kind;
		layout->compact_bit = bits[i].compact;
		layout->ascii_bit = bits[i].ascii;
		layout->wide_more_bytes = bits[i].wide_more;
		layout->bound_bit = bits[i].bound;
		layout->entry_owner = bits[i].entry;
		return true;
	}
	return false;
}

bool python_layout_has_frame_in_cframe(const struct python_layout *layout)
{
	return layout->cframe && layout->frame == layout->cframe;
}

/* From the lowest to the end of the highest of @fields, 8 bytes each; 0 is a field that the version lacks, or the
 * first. */
static uint32_t span(const uint32_t *fields, size_t count, uint32_t lowest, uint32_t *ret_bytes)
{
	uint32_t low = lowest, high = lowest;

	for (size_t i = 0; i < count; i++) {
		low = fields[i] && fields[i] < low ? fields[i] : low;
		high = fields[i] > high ? fields[i] : high;
	}
	*ret_bytes = high + 8 - low;
	return low;
}

uint32_t python_layout_state(const struct python_layout *layout, uint32_t *ret_bytes)
{
	const uint32_t fields[] = {layout->thread_next, layout->thread_interpreter, layout->thread_id,
		layout->native_id, layout->status, layout->frame, layout->cframe};

	return span(fields, sizeof(fields) / sizeof(fields[0]), layout->thread_prev, ret_bytes);
}

uint32_t python_layout_frame(const struct python_layout *layout, uint32_t *ret_bytes)
{
	/* the owner is one byte, but it never ends a frame: variables follow */
	const uint32_t fields[] = {layout->frame_back, layout->frame_owner};

	return span(fields, sizeof(fields) / sizeof(fields[0]), layout->frame_code, ret_bytes);
}

uint32_t python_layout_code(const struct python_layout *layout, uint32_t *ret_bytes)
{
	const uint32_t fields[] = {layout->code_file, layout->code_name};

	return span(fields, sizeof(fields) / sizeof(fields[0]), layout->object_type, ret_bytes);
}

bool python_layout_known(uint32_t version, struct python_layout *ret_layout)
{
	struct python_layout layout;

	for (const struct known *row = known; row->minor; row++) {
		if (version >> 24 != 3 || (version >> 16 & 0xff) != row->minor)
			continue;
		layout = (struct python_layout){
			.minor = row->minor,
			.interpreters_head = row->interpreters_head,
			.finalizing = row->finalizing,
			.tss_key = row->tss_key,
			.interpreter_next = row->interpreter_next,
			.threads_head = row->threads_head,
			.thread_prev = row->thread_prev,
			.thread_next = row->thread_next,
			.thread_interpreter = row->thread_interpreter,
			.thread_id = row->thread_id,
			.native_id = row->native_id,
			.status = row->status,
			.frame = row->frame,
			.cframe = row->cframe,
			.cframe_frame = row->cframe_frame,
			.frame_back = row->frame_back,
			.frame_code = row->frame_code,
			.frame_owner = row->frame_owner,
			.code_file = row->code_file,
			.code_name = row->code_name,
			.object_type = row->object_type,
			.type_name = row->type_name,
			.str_length = row->str_length,
			.str_state = row->str_state,
			.str_ascii_bytes = row->str_ascii_bytes,
		};
		if (!set_bits(&layout))
			return false;
		*ret_layout = layout;
		return true;
	}
	return false;
}

/* The offset at place @at of what was published; *ret_good goes to false for one that cannot be. */
static uint32_t offset_at(const uint64_t *words, uint32_t at, uint32_t aligned, bool *ret_good)
{
	if (words[at] < OFFSET_MAX && words[at] % aligned == 0)
		return (uint32_t)words[at];
	*ret_good = false;
	return 0;
}

/* What is read in one piece lies within bounds, so that who reads need not ask. */
static bool is_bounded(const struct python_layout *layout)
{
	uint32_t state, frame, code;

	/* a field at 0 is taken for one that is not there unless it is the first */
	if (!layout->thread_next || !layout->thread_interpreter || !layout->thread_id || !layout->native_id ||
		!layout->status || !layout->frame || !layout->frame_back || !layout->frame_owner ||
		!layout->code_file || !layout->code_name)
		return false;
	python_layout_state(layout, &state);
	python_layout_frame(layout, &frame);
	python_layout_code(layout, &code);
	return state <= PYTHON_STATE_BYTES_MAX && frame <= PYTHON_FRAME_BYTES_MAX && code <= PYTHON_CODE_BYTES_MAX &&
	       layout->str_ascii_bytes <= STR_HEAD_MAX && layout->object_type + 8 <= layout->str_ascii_bytes &&
	       layout->str_length + 8 <= layout->str_ascii_bytes && layout->str_state + 4 <= layout->str_ascii_bytes;
}

bool python_layout_published(const uint64_t *words, struct python_layout *ret_layout, uint32_t *ret_version)
{
	static const char cookie[] = "xdebugpy";
	const uint32_t pointer = sizeof(void *);
	struct python_layout layout;
	bool good = true;
	uint32_t version;

	if (ret_version)
		*ret_version = 0;
	if (memcmp(words, cookie, PYTHON_COOKIE_BYTES) != 0)
		return false;
	version = (uint32_t)words[1];
	if (ret_version)
		*ret_version = version;
	for (size_t i = 0; i < sizeof(published) / sizeof(published[0]); i++) {
		const struct published *row = &published[i];

		if (words[1] >> 24 != 3 || (version >> 16 & 0xff) != row->minor || words[2] != row->free_threaded)
			continue;
		layout = (struct python_layout){
			.minor = row->minor,
			.free_threaded = row->free_threaded != 0,
			.interpreters_head = offset_at(words, row->interpreters_head, pointer, &good),
			.finalizing = offset_at(words, row->finalizing, pointer, &good),
			.interpreter_next = offset_at(words, row->interpreter_next, pointer, &good),
			.threads_head = offset_at(words, row->threads_head, pointer, &good),
			.thread_prev = offset_at(words, row->thread_prev, pointer, &good),
			.thread_next = offset_at(words, row->thread_next, pointer, &good),
			.thread_interpreter = offset_at(words, row->thread_interpreter, pointer, &good),
			.thread_id = offset_at(words, row->thread_id, pointer, &good),
			.native_id = offset_at(words, row->native_id, pointer, &good),
			.status = offset_at(words, row->status, 4, &good),
			.frame = offset_at(words, row->frame, pointer, &good),
			.frame_back = offset_at(words, row->frame_back, pointer, &good),
			.frame_code = offset_at(words, row->frame_code, pointer, &good),
			.frame_owner = offset_at(words, row->frame_owner, 1, &good),
			.code_file = offset_at(words, row->code_file, pointer, &good),
			.code_name = offset_at(words, row->code_name, pointer, &good),
			.object_type = offset_at(words, row->object_type, pointer, &good),
			.type_name = offset_at(words, row->type_name, pointer, &good),
			.str_length = offset_at(words, row->str_length, pointer, &good),
			.str_state = offset_at(words, row->str_state, 4, &good),
			.str_ascii_bytes = offset_at(words, row->str_ascii_bytes, 4, &good),
		};
		if (!good || !is_bounded(&layout) || !set_bits(&layout))
			return false;
		*ret_layout = layout;
		return true;
	}
	return false;
}
