/* shim/native_note.h
 * What the wrappers of native memory share. */
#ifndef SUBLET_SHIM_NATIVE_NOTE_H
#define SUBLET_SHIM_NATIVE_NOTE_H

#include "shim/shim.h"
#include "lifecycle/trace_note.h" /* behind shim.h, which prepares cuda.h */

/* result = the driver's answer to an allocating call. When it is out of memory while freed pages are still on their way or
 * kept here, they are given back first and the driver is asked once more: a plain process would have had them back. */
#define NATIVE_ALLOCATE(result, symbol, args)                                                                          \
	do {                                                                                                           \
		struct reclaim_room room_;                                                                             \
		native_room_begin(&room_);                                                                             \
		(result) = FORWARD(symbol, args);                                                                      \
		if ((result) == CUDA_ERROR_OUT_OF_MEMORY && native_make_room(&room_))                                  \
			(result) = FORWARD(symbol, args);                                                              \
	} while (0)

/* result = the driver's answer to a call that gives @key back. */
#define NATIVE_GIVE_BACK(result, key, symbol, args)                                                                    \
	do {                                                                                                           \
		struct native_taken taken_ = native_take_note((uint64_t)(uintptr_t)(key));                             \
		(result) = FORWARD(symbol, args);                                                                      \
		if ((result) != CUDA_SUCCESS)                                                                          \
			native_put_note_back(&taken_);                                                                 \
	} while (0)

/* The application's call itself is made outside the guard, what Sublet does about it inside. */
static inline void native_room_begin(struct reclaim_room *room)
{
	shim_enter();
	reclaim_room_begin(&shim_hot.lifecycle, room);
	shim_leave();
}

static inline bool native_make_room(struct reclaim_room *room)
{
	bool made;

	shim_enter();
	made = reclaim_make_room(&shim_hot.lifecycle, -1, UINT64_MAX, room);
	shim_leave();
	return made;
}

static inline struct native_taken native_take_note(uint64_t key)
{
	struct native_taken taken;

	shim_enter();
	taken = native_take(&shim_hot.lifecycle.native, key);
	trace_note_native(&shim_hot.lifecycle, false);
	shim_leave();
	return taken;
}

static inline void native_put_note_back(const struct native_taken *taken)
{
	shim_enter();
	native_untake(&shim_hot.lifecycle.native, taken);
	shim_leave();
}

/* Device of the current context, -1 when there is none. */
static inline int native_current_device(void)
{
	CUdevice device;

	return shim_hot.lifecycle.driver.CtxGetDevice(&device) == CUDA_SUCCESS ? device : -1;
}

/* Is @stream being captured? @per_thread: the null stream means the calling thread's own. */
static inline bool native_captured(CUstream stream, bool per_thread)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

	if (!captures_any(&shim_hot.lifecycle.captures))
		return false;
	if (!stream && per_thread)
		stream = CU_STREAM_PER_THREAD;
	return shim_hot.lifecycle.driver.StreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
	       status != CU_STREAM_CAPTURE_STATUS_NONE;
}

#endif
