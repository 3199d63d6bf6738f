/* lifecycle/callers/python_thread.c
 * From a runtime to the state of the calling thread. Who asks stands still, so its own state and frames do; the lists
 * of interpreters and threads do not, and are walked without a lock: each step is checked against the one before it and
 * the walk begun anew where one was changed underway.
 *
 * A thread may have several states, one for each interpreter it has been in, and before 3.13 may run one that another
 * thread made. From 3.13 on one of its states is marked as the one last active (`bound_gilstate`). Before, the thread's
 * own pthread key tells while there is one interpreter; with several the C stack does (3.10 to 3.12: an evaluation's
 * `cframe` lies there). */
#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lifecycle/callers/ahead.h"
#include "lifecycle/callers/foreign.h"
#include "lifecycle/callers/python_priv.h"

enum {
	INTERPRETERS_MAX = 256,
	STATES_MAX = 4096,  /* read in one search, all its walks together; at about a microsecond each */
	CANDIDATES_MAX = 8, /* states that one thread is in at once */
	STATE_BYTES_MAX = 4096,
	WALKS_MAX = 16,
};

/* Fields of a thread state, read in one piece; 0 where the version has none. */
struct state {
	uint64_t prev, next, interpreter, thread_id, native_id, frame, cframe;
	uint32_t status;
};

struct candidate {
	uint64_t address;
	struct state state;
};

/* Of the runtime, as read. */
struct head {
	uint64_t interpreters, finalizing;
	struct {
		int32_t made;
		uint32_t key;
	} tss; /* Py_tss_t */
};

struct self {
	uint64_t thread_id, native_id;
	uint64_t stack_low, stack_high; /* of the C stack, the part in use */
	const struct python_layout *layout;
	struct ahead *ahead; /* of states */
	uint64_t bound;	     /* the state in the thread's key; 0 where the version has none */
	uint64_t bound_interpreter;
};

static void bounds_of_stack(uint64_t *ret_low, uint64_t *ret_high)
{
	const uint64_t self = (uint64_t)pthread_self();

	*ret_low = (uintptr_t)__builtin_frame_address(0);
	/* The first thread's stack is the highest mapping; the others have their descriptor at the top of it. A thread
	 * that is on a stack of its own making may have none that we know. */
	*ret_high = syscall(SYS_gettid) == getpid() ? UINT64_MAX : self;
}

bool python_on_own_stack(uint64_t address)
{
	uint64_t low, high;

	bounds_of_stack(&low, &high);
	return address > low && address < high;
}

static void begin_states(struct ahead *ahead, const struct python_layout *layout, const struct python_hint *hint)
{
	uint32_t bytes, low = python_layout_state(layout, &bytes);

	ahead_begin(ahead, hint ? hint->states : NULL, hint ? hint->state_count : 0, low, bytes);
}

static uint64_t word(const char *state, uint32_t offset)
{
	uint64_t read;

	memcpy(&read, state + offset, sizeof(read));
	return read;
}

static bool read_state(struct ahead *ahead, const struct python_layout *layout, uint64_t address, struct state *ret)
{
	const char *read = ahead_get(ahead, address);

	if (!read)
		return false;
	read -= ahead->low;
	*ret = (struct state){
		.prev = word(read, layout->thread_prev),
		.next = word(read, layout->thread_next),
		.interpreter = word(read, layout->thread_interpreter),
		.thread_id = word(read, layout->thread_id),
		.native_id = layout->native_id ? word(read, layout->native_id) : 0,
		.frame = word(read, layout->frame),
		.cframe = layout->cframe ? word(read, layout->cframe) : 0,
		.status = layout->status ? (uint32_t)word(read, layout->status) : 0,
	};
	return true;
}

/* Is it of the calling thread? The pthread's handle comes again after a thread's end, the kernel's number tells those
 * apart. */
static bool is_own(const struct self *self, const struct state *state)
{
	return state->thread_id == self->thread_id && (!self->layout->native_id || state->native_id == self->native_id);
}

static bool is_bound(const struct self *self, const struct state *state)
{
	return state->status >> self->layout->bound_bit & 1;
}

static bool read_interpreter(
	const struct python_layout *layout, uint64_t address, uint64_t *ret_next, uint64_t *ret_threads)
{
	const struct iovec pieces[] = {
		foreign_piece(address + layout->interpreter_next, 8),
		foreign_piece(address + layout->threads_head, 8),
	};
	uint64_t read[2];

	if (foreign_gather(read, pieces, 2) != sizeof(read))
		return false;
	*ret_next = read[0];
	*ret_threads = read[1];
	return true;
}

/* Does an evaluation of this state stand on the calling thread's stack? A state that runs nothing has its cframe
 * inside. */
static bool runs_here(const struct self *self, uint64_t address, const struct state *state)
{
	return state->cframe > self->stack_low && state->cframe < self->stack_high &&
	       (state->cframe < address || state->cframe - address > STATE_BYTES_MAX);
}

/* May it be the one that is looked for? Before 3.13 one thread may run the state that another has made. */
static bool is_candidate(const struct self *self, uint64_t address, const struct state *state)
{
	if (self->layout->cframe)
		return runs_here(self, address, state);
	if (self->layout->status)
		return is_own(self, state) && is_bound(self, state);
	return state->frame && (address == self->bound || state->interpreter != self->bound_interpreter);
}

/* One way through all interpreters and their threads. */
struct walk {
	struct candidate found[CANDIDATES_MAX];
	size_t count;
	uint64_t seen[PYTHON_STATES_REMEMBERED];
	size_t seen_count;
};

/* False when the list was changed meanwhile, or @left, the states that may still be read, is used up. */
static bool walk_states(const struct self *self, uint64_t interpreter, uint64_t first, struct walk *walk, size_t *left)
{
	uint64_t last = 0;
	struct state state;

	for (uint64_t at = first; at; at = state.next) {
		if (*left == 0)
			return false;
		(*left)--;
		/* in front of the first one another may have come by now */
		if (!read_state(self->ahead, self->layout, at, &state) || state.interpreter != interpreter ||
			(last && state.prev != last))
			return false;
		if (is_candidate(self, at, &state) && walk->count < CANDIDATES_MAX)
			walk->found[walk->count++] = (struct candidate){at, state};
		if (walk->seen_count < PYTHON_STATES_REMEMBERED)
			walk->seen[walk->seen_count++] = at;
		last = at;
	}
	return true;
}

static bool walk_interpreters(const struct self *self, uint64_t head, struct walk *walk, size_t *left)
{
	size_t interpreters = 0;
	uint64_t next, threads;

	walk->count = walk->seen_count = 0;
	for (uint64_t at = head; at; at = next) {
		if (++interpreters > INTERPRETERS_MAX || !read_interpreter(self->layout, at, &next, &threads) ||
			!walk_states(self, at, threads, walk, left))
			return false;
	}
	return true;
}

static bool is_listed(const struct python_layout *layout, uint64_t head, uint64_t interpreter)
{
	uint64_t next, threads;

	for (size_t i = 0; head && i < INTERPRETERS_MAX; i++) {
		if (head == interpreter)
			return true;
		if (!read_interpreter(layout, head, &next, &threads))
			return false;
		head = next;
	}
	return false;
}

/* Which of the candidates runs. */
static const struct candidate *choose(const struct self *self, const struct candidate *found, size_t count)
{
	const struct candidate *best = count ? &found[0] : NULL;

	if (count < 2 || (!self->layout->cframe && self->layout->status))
		return best;
	/* 3.9: nothing tells which one, nor whether it is this thread that runs the one of another interpreter */
	if (!self->layout->cframe)
		return NULL;
	for (size_t i = 1; i < count; i++) {
		if (found[i].state.cframe < best->state.cframe)
			best = &found[i];
	}
	return best;
}

static bool search(const struct self *self, const struct head *head, struct python_hint *hint, struct candidate *ret)
{
	const struct candidate *best;
	size_t left = STATES_MAX;
	struct walk walk;

	for (int tries = 0;; tries++) {
		if (tries == WALKS_MAX || !left)
			return false;
		begin_states(self->ahead, self->layout, hint);
		if (walk_interpreters(self, head->interpreters, &walk, &left))
			break;
	}
	if (hint) {
		hint->state_count = (uint32_t)walk.seen_count;
		memcpy(hint->states, walk.seen, walk.seen_count * sizeof(walk.seen[0]));
	}
	best = choose(self, walk.found, walk.count);
	if (best)
		*ret = *best;
	return best != NULL;
}

/* What @guess, the state of the last time or of the thread's key, says by itself; false when that is not enough. */
static bool confirm(const struct self *self, const struct head *head, uint64_t guess, struct candidate *ret)
{
	uint64_t next, threads;

	if (!guess || !read_state(self->ahead, self->layout, guess, &ret->state) || !is_own(self, &ret->state))
		return false;
	ret->address = guess;
	if (self->layout->status && !self->layout->cframe)
		return is_bound(self, &ret->state) &&
		       is_listed(self->layout, head->interpreters, ret->state.interpreter);
	/* the only interpreter there is */
	return ret->state.interpreter == head->interpreters &&
	       read_interpreter(self->layout, head->interpreters, &next, &threads) && !next;
}

bool python_thread_find(
	const struct python_runtime *runtime, struct python_hint *hint, struct python_thread *ret_thread)
{
	const struct python_layout *layout = &runtime->layout;
	struct ahead ahead;
	struct self self = {.thread_id = (uint64_t)pthread_self(),
		.native_id = (uint64_t)syscall(SYS_gettid),
		.layout = layout,
		.ahead = &ahead};
	const struct iovec pieces[] = {
		foreign_piece(runtime->address + layout->interpreters_head, 8),
		foreign_piece(runtime->address + layout->finalizing, 8),
		foreign_piece(runtime->address + layout->tss_key, 8),
	};
	struct candidate own;
	struct head head;
	uint64_t guess = 0, frame;

	if (foreign_gather(&head, pieces, 3) != sizeof(head) || !head.interpreters)
		return false;
	if (layout->tss_key) {
		/* every thread that has run Python has its state there, so who has none is known at once */
		guess = head.tss.made ? (uintptr_t)pthread_getspecific((pthread_key_t)head.tss.key) : 0;
		if (!guess || !foreign_read(&self.bound_interpreter, guess + layout->thread_interpreter, 8))
			return false;
		self.bound = guess;
	} else if (hint && hint->runtime == runtime) {
		guess = hint->state;
	}
	begin_states(&ahead, layout, NULL); /* one alone */
	if (!confirm(&self, &head, guess, &own)) {
		bounds_of_stack(&self.stack_low, &self.stack_high);
		if (!search(&self, &head, hint, &own))
			return false;
	}
	/* While one thread ends the interpreter the others' frames are given back under them. */
	if (head.finalizing && head.finalizing != own.address)
		return false;
	frame = own.state.frame;
	if (python_layout_has_frame_in_cframe(layout) &&
		(!frame || !foreign_read(&frame, frame + layout->cframe_frame, 8)))
		return false;
	if (hint) {
		hint->runtime = runtime;
		hint->state = own.address;
	}
	*ret_thread = (struct python_thread){own.address, frame, layout->cframe ? own.state.cframe : 0};
	return frame != 0;
}
