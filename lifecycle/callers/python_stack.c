/* lifecycle/callers/python_stack.c
 * The chain of frames, each of which names the next one outwards. */
#include <string.h>

#include "lifecycle/callers/ahead.h"
#include "lifecycle/callers/python_priv.h"

/* Fields of a frame, of which the layout says that they lie close together: they are read in one piece. */
struct frame {
	uint64_t back, code;
	uint8_t owner;
};

struct walker {
	const struct python_layout *layout;
	struct ahead ahead;
};

static void begin(struct walker *walker, const struct python_layout *layout, const struct python_hint *hint)
{
	uint32_t bytes, low = python_layout_frame(layout, &bytes);

	walker->layout = layout;
	ahead_begin(&walker->ahead, hint ? hint->frames : NULL, hint ? hint->frame_count : 0, low, bytes);
}

static bool read_frame(struct walker *walker, uint64_t frame, struct frame *ret)
{
	const char *read = ahead_get(&walker->ahead, frame);
	const struct python_layout *layout = walker->layout;

	if (!read)
		return false;
	read -= walker->ahead.low;
	memcpy(&ret->back, read + layout->frame_back, 8);
	memcpy(&ret->code, read + layout->frame_code, 8);
	ret->owner = layout->frame_owner ? (uint8_t)read[layout->frame_owner] : 0;
	return true;
}

/* From 3.14 on a reference has tags in its lowest bits; no object starts off a multiple of 8. */
static uint64_t untagged(uint64_t reference)
{
	return reference & ~(uint64_t)7;
}

/* An entry from C, of which the interpreter's loop has one for each of its calls; no function of Python's. */
static bool is_entry(const struct python_layout *layout, const struct frame *frame)
{
	return layout->entry_owner && frame->owner >= layout->entry_owner;
}

bool python_codes(const struct python_runtime *runtime, uint64_t frame, struct python_hint *hint, uint64_t *ret_codes,
	size_t room, size_t *ret_count)
{
	struct walker walker;
	uint64_t seen[PYTHON_REMEMBERED];
	size_t visited = 0, count = 0;
	struct frame read;

	begin(&walker, &runtime->layout, hint);
	for (; frame && count < room; frame = read.back) {
		/* a chain that is longer than this between two functions, or runs in a circle, is none */
		if (visited == PYTHON_VISITED_MAX || frame % 8 || !read_frame(&walker, frame, &read))
			return false;
		if (visited < PYTHON_REMEMBERED)
			seen[visited] = frame;
		visited++;
		if (!is_entry(&runtime->layout, &read))
			ret_codes[count++] = runtime->layout.minor >= 14 ? untagged(read.code) : read.code;
	}
	if (hint) {
		hint->frame_count = (uint32_t)(visited < PYTHON_REMEMBERED ? visited : PYTHON_REMEMBERED);
		memcpy(hint->frames, seen, hint->frame_count * sizeof(seen[0]));
	}
	*ret_count = count;
	return true;
}

uint64_t python_anchor(const struct python_runtime *runtime, const struct python_thread *thread)
{
	struct walker walker;
	uint64_t at = thread->frame;
	struct frame read;

	if (runtime->layout.cframe)
		return python_on_own_stack(thread->cframe) ? thread->cframe : 0;
	if (!runtime->layout.entry_owner)
		return 0;
	begin(&walker, &runtime->layout, NULL);
	for (int i = 0; at && i < PYTHON_VISITED_MAX && read_frame(&walker, at, &read); i++) {
		/* the entry is a local variable of the interpreter's loop; but for the outermost one of 3.15, which is
		 * in the state */
		if (is_entry(&runtime->layout, &read))
			return python_on_own_stack(at) ? at : 0;
		at = read.back;
	}
	return 0;
}
