/* lifecycle/gate.c
 * The gated call's side: slots and waiting. Runs in front of every launch of the application, on its threads and in its
 * signal handlers: no lock, no driver call, no log line. */
#include "lifecycle/gate.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread.h"

#define FIRST_SLOTS 64
#define CHUNK_BYTES 65536ul
#define CHUNK_HEAD 64 /* so that slots stay on lines of their own */

/* Never freed: the closer reads slots of threads that may end at any moment. */
struct slot_chunk {
	struct slot_chunk *next; /* atomic, set once */
	size_t count;
	struct gate_slot *slots;
};

static struct gate_slot first_slots[FIRST_SLOTS];
static struct slot_chunk first = {.count = FIRST_SLOTS, .slots = first_slots};

#define SEIZED (-1) /* instead of a thread id: being freed */

SUBLET_TLS struct gate_slot *gate_own_slot;
/* Of threads that no slot could be made for. */
static struct gate_slot shared_slot;

static pthread_key_t key;
static int key_state; /* 0: not yet made; 1: made; -1: none to be had, slots come back when their thread is seen to be gone */

static void free_slot(struct gate_slot *slot)
{
	__atomic_store_n(&slot->callbacks, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&slot->waiting, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&slot->kernel, NULL, __ATOMIC_RELAXED);
	__atomic_store_n(&slot->tag, NULL, __ATOMIC_RELAXED);
	__atomic_store_n(&slot->depth, 0, __ATOMIC_RELEASE);
	__atomic_store_n(&slot->thread, 0, __ATOMIC_RELEASE);
}

static bool replace_thread(struct gate_slot *slot, int from, int to)
{
	return __atomic_compare_exchange_n(&slot->thread, &from, to, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

static bool is_gone(int thread)
{
	return syscall(SYS_tgkill, getpid(), thread, 0) != 0 && errno == ESRCH;
}

/* Free the slot if its thread ended without saying so. Asked again once it is seized: meanwhile a new thread of the same id
 * may have taken it over, and after that none can. */
static bool free_if_gone(struct gate_slot *slot, int thread)
{
	if (!is_gone(thread) || !replace_thread(slot, thread, SEIZED))
		return false;
	if (is_gone(thread)) {
		free_slot(slot);
		return true;
	}
	replace_thread(slot, SEIZED, thread); /* not when its owner has ended since and freed it */
	return false;
}

/* At the thread's end, also when it was cancelled inside a gated call. A destructor of the application that comes later and
 * makes one gets a slot anew, and this function is called again. */
static void thread_ends(void *slot)
{
	gate_own_slot = NULL;
	free_slot(slot);
}

const struct gate_slot *gate_next_slot(const struct gate_slot *slot)
{
	struct slot_chunk *chunk = &first;

	if (!slot)
		return chunk->slots;
	while (slot < chunk->slots || slot >= chunk->slots + chunk->count)
		chunk = __atomic_load_n(&chunk->next, __ATOMIC_ACQUIRE);
	if (++slot < chunk->slots + chunk->count)
		return slot;
	chunk = __atomic_load_n(&chunk->next, __ATOMIC_ACQUIRE);
	return chunk ? chunk->slots : NULL;
}

static struct gate_slot *next_slot(struct gate_slot *slot)
{
	return (struct gate_slot *)gate_next_slot(slot);
}

static bool take(struct gate_slot *slot, int thread)
{
	return __atomic_load_n(&slot->thread, __ATOMIC_RELAXED) == 0 && replace_thread(slot, 0, thread);
}

/* The slots of a new chunk at the end of the list, the first of them taken. NULL: no memory. */
static struct gate_slot *add_chunk(int thread)
{
	struct slot_chunk *chunk = mmap(NULL, CHUNK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct slot_chunk *last = &first, *expected;

	if (chunk == MAP_FAILED)
		return NULL;
	chunk->count = (CHUNK_BYTES - CHUNK_HEAD) / sizeof(struct gate_slot);
	chunk->slots = (struct gate_slot *)((char *)chunk + CHUNK_HEAD);
	chunk->slots[0].thread = thread;
	for (;;) {
		expected = NULL;
		if (__atomic_compare_exchange_n(&last->next, &expected, chunk, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
			return chunk->slots;
		last = expected;
	}
}

static struct gate_slot *find_slot(int thread)
{
	/* One that an earlier thread of this id left behind. */
	for (struct gate_slot *slot = next_slot(NULL); slot; slot = next_slot(slot)) {
		if (replace_thread(slot, thread, SEIZED)) {
			free_slot(slot);
			if (take(slot, thread))
				return slot;
		}
	}
	for (struct gate_slot *slot = next_slot(NULL); slot; slot = next_slot(slot)) {
		if (take(slot, thread))
			return slot;
	}
	for (struct gate_slot *slot = next_slot(NULL); slot; slot = next_slot(slot)) {
		int owner = __atomic_load_n(&slot->thread, __ATOMIC_ACQUIRE);

		if (owner > 0 && free_if_gone(slot, owner) && take(slot, thread))
			return slot;
	}
	return add_chunk(thread);
}

static struct gate_slot *own_slot(void)
{
	int saved_errno = errno;

	if (!gate_own_slot) {
		gate_own_slot = find_slot((int)syscall(SYS_gettid));
		if (gate_own_slot && key_state > 0)
			pthread_setspecific(key, gate_own_slot); /* refused: freed when the thread is seen to be gone */
	}
	errno = saved_errno;
	return gate_own_slot;
}

const char *gate_tag(void)
{
	return gate_own_slot ? __atomic_load_n(&gate_own_slot->tag, __ATOMIC_RELAXED) : NULL;
}

bool gate_set_tag(const char *tag)
{
	struct gate_slot *slot = tag ? own_slot() : gate_own_slot;

	if (slot)
		__atomic_store_n(&slot->tag, tag, __ATOMIC_RELAXED);
	return slot || !tag;
}

const struct gate_slot *gate_busy_slot(bool waiting)
{
	for (struct gate_slot *slot = next_slot(NULL); slot; slot = next_slot(slot)) {
		int thread = __atomic_load_n(&slot->thread, __ATOMIC_ACQUIRE);

		if (!thread || !__atomic_load_n(waiting ? &slot->waiting : &slot->depth, __ATOMIC_ACQUIRE))
			continue;
		if (thread == SEIZED || !free_if_gone(slot, thread))
			return slot;
	}
	return __atomic_load_n(waiting ? &shared_slot.waiting : &shared_slot.depth, __ATOMIC_ACQUIRE) ? &shared_slot
														: NULL;
}

/* ---- the word ---- */

void gate_set(struct gate *gate, unsigned bits)
{
	unsigned before = __atomic_load_n(&gate->word, __ATOMIC_RELAXED);

	bits |= gate->fenced ? GATE_FENCED : 0;
	while (!__atomic_compare_exchange_n(&gate->word, &before, bits | (before & GATE_BESIDE), false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
		;
	word_wake(&gate->word);
}

static void set_beside(struct gate *gate, unsigned bit, bool on)
{
	if (on)
		__atomic_fetch_or(&gate->word, bit, __ATOMIC_SEQ_CST);
	else if (__atomic_fetch_and(&gate->word, ~bit, __ATOMIC_SEQ_CST) & bit)
		word_wake(&gate->word);
}

void gate_arrived(struct gate *gate, bool arrived)
{
	set_beside(gate, GATE_ARRIVED, arrived);
}

bool gate_has_arrived(const struct gate *gate)
{
	return (__atomic_load_n(&gate->word, __ATOMIC_ACQUIRE) & GATE_ARRIVED) != 0;
}

void gate_look_at_kernels(struct gate *gate, bool look)
{
	set_beside(gate, GATE_KERNELS, look);
}

void gate_no_more_holds(struct gate *gate)
{
	__atomic_store_n(&gate->wanted_after_ns, 0, __ATOMIC_RELEASE);
	__atomic_store_n(&gate->ending, 1, __ATOMIC_SEQ_CST);
	gate_arrived(gate, false); /* one that comes later finds the process ending */
	/* The closer sets the word and then looks whether it may, so one of the two sees the other. */
	if ((__atomic_load_n(&gate->word, __ATOMIC_SEQ_CST) & (GATE_SHUT | GATE_HELD)) == GATE_SHUT)
		gate_set(gate, 0);
}

bool gate_is_ending(const struct gate *gate)
{
	return __atomic_load_n(&gate->ending, __ATOMIC_SEQ_CST) != 0;
}

void gate_refuse(struct gate *gate)
{
	gate_set(gate, GATE_ENDED);
}

bool gate_barrier(struct gate *gate)
{
	if (gate->fenced) {
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		return true;
	}
	if (syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0)
		return true;
	/* Registered, and refused now: a filter of system calls that was put up since. This try is lost, as calls on their way
	 * may have made no fence; the next one finds them all fenced. */
	gate->fenced = true;
	return false;
}

bool gate_is_shut(const struct gate *gate)
{
	return (__atomic_load_n(&gate->word, __ATOMIC_ACQUIRE) & GATE_SHUT) != 0;
}

void gate_init(struct gate *gate, bool fences)
{
	memset(gate, 0, sizeof(*gate));
	ranked_lock_init(&gate->kernels_lock, RANK_KERNELS);
	if (!key_state)
		key_state = pthread_key_create(&key, thread_ends) == 0 ? 1 : -1;
	gate->fenced = fences || syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) != 0;
	gate_set(gate, 0);
}

void gate_release(struct gate *gate)
{
	set_beside(gate, GATE_BESIDE, false);
	gate_set(gate, 0);
	gate_kernels_gone(gate); /* slots outlive it */
	ranked_lock_release(&gate->kernels_lock);
}

void gate_forget(struct gate *gate)
{
	for (struct gate_slot *slot = next_slot(NULL); slot; slot = next_slot(slot)) {
		if (slot == gate_own_slot)
			slot->thread = (int)syscall(SYS_gettid);
		else
			free_slot(slot);
	}
	memset(&shared_slot, 0, sizeof(shared_slot));
	gate->word = gate->fenced ? GATE_FENCED : 0;
	gate->through = gate->holds = gate->asked = gate->ending = 0;
	gate->wanted = NULL;
}

void gate_on_wait(struct gate *gate, uint64_t after_ns, void (*wanted)(void *), void *arg)
{
	__atomic_store_n(&gate->wanted_after_ns, after_ns, __ATOMIC_RELEASE);
	gate->wanted_arg = arg;
	__atomic_store_n(&gate->wanted, wanted, __ATOMIC_RELEASE);
}

/* ---- waiting ---- */

static void ask_for_service(struct gate *gate)
{
	unsigned not_yet = 0;
	int cancel_state;

	if (!__atomic_compare_exchange_n(&gate->asked, &not_yet, 1, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		return;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
	gate->wanted(gate->wanted_arg);
	pthread_setcancelstate(cancel_state, NULL);
}

/* How long the call that arrived at @arrived_ns sleeps before it asks for service; 0: it is to ask now. */
static uint64_t patience(const struct gate *gate, unsigned word, uint64_t arrived_ns)
{
	uint64_t since, now, after_ns = __atomic_load_n(&gate->wanted_after_ns, __ATOMIC_ACQUIRE);

	/* What the phase that is to come needs comes with it. */
	if (!(word & GATE_HELD) || (word & GATE_ARRIVED) || !__atomic_load_n(&gate->wanted, __ATOMIC_ACQUIRE) ||
		__atomic_load_n(&gate->asked, __ATOMIC_ACQUIRE))
		return WAIT_FOR_GOOD;
	since = __atomic_load_n(&gate->held_since_ns, __ATOMIC_ACQUIRE);
	if (since < arrived_ns)
		since = arrived_ns;
	now = clock_now_ns();
	return now - since >= after_ns ? 0 : since + after_ns - now;
}

/* The table in gate.h. @depth counts the call itself, marked or about to be. */
static bool must_wait(const struct gate_slot *slot, unsigned word, unsigned depth)
{
	if (!(word & GATE_SHUT))
		return false;
	return slot == &shared_slot || (depth == 1 && (!slot->callbacks || (word & GATE_HELD)));
}

/* Wherever waiting could stop what is waited for, it does not: in a call-back, which a hold's marks stand behind, and where it is not
 * known whether this is one. */
static bool must_wait_for_phase(const struct gate *gate, const struct gate_slot *slot, unsigned word, unsigned depth)
{
	return SUBLET_UNLIKELY(word & GATE_ARRIVED) && slot != &shared_slot && depth == 1 && !slot->callbacks && !gate_is_ending(gate);
}

/* Not counted as waiting: an opening between two tries of a hold is not for these. */
static void wait_for_phase(const struct gate *gate, const struct gate_slot *slot)
{
	int saved_errno = errno;
	unsigned word;

	while (must_wait_for_phase(gate, slot, word = __atomic_load_n(&gate->word, __ATOMIC_ACQUIRE), 1))
		word_wait(&gate->word, word, WAIT_FOR_GOOD);
	errno = saved_errno;
}

/* Until the call may go on. The slot is not marked. A signal handler may run meanwhile and wait as well, if it makes a gated
 * call: passing would touch memory that is not there. */
static void wait_open(struct gate *gate, struct gate_slot *slot)
{
	uint64_t arrived_ns = clock_now_ns();
	int saved_errno = errno;
	unsigned word;

	__atomic_fetch_add(&slot->waiting, 1, __ATOMIC_ACQ_REL);
	while (must_wait(slot, word = __atomic_load_n(&gate->word, __ATOMIC_ACQUIRE), 1)) {
		uint64_t ns = patience(gate, word, arrived_ns);

		if (ns == 0)
			ask_for_service(gate);
		else
			word_wait(&gate->word, word, ns);
	}
	__atomic_fetch_sub(&slot->waiting, 1, __ATOMIC_ACQ_REL);
	errno = saved_errno;
}

/* In the shared slot threads meet, so it is counted in one step. */
static void mark(struct gate_slot *slot)
{
	if (slot == &shared_slot)
		__atomic_fetch_add(&slot->depth, 1, __ATOMIC_SEQ_CST);
	else
		__atomic_store_n(&slot->depth, slot->depth + 1, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_SEQ_CST); /* GATE_FENCED; elsewhere it costs nothing that matters here */
}

void gate_leave(struct gate_slot *slot)
{
	if (slot == &shared_slot)
		__atomic_fetch_sub(&slot->depth, 1, __ATOMIC_SEQ_CST);
	else
		gate_leave_own(slot);
}

struct gate_slot *gate_enter(struct gate *gate, const char *entry, const void *kernel)
{
	struct gate_slot *slot = own_slot();
	unsigned word;

	if (!slot)
		slot = &shared_slot;
	mark(slot);
	while (word = __atomic_load_n(&gate->word, __ATOMIC_ACQUIRE),
		must_wait_for_phase(gate, slot, word, slot->depth) || must_wait(slot, word, slot->depth)) {
		gate_leave(slot);
		wait_for_phase(gate, slot);
		wait_open(gate, slot);
		mark(slot);
	}
	if (SUBLET_UNLIKELY(word & GATE_ENDED)) {
		gate_leave(slot);
		return NULL;
	}
	/* The closer has read it before it waits for slots, this one among them: whatever comes later it sees as changed. */
	if ((word & GATE_SHUT) && slot->callbacks)
		__atomic_fetch_add(&gate->through, 1, __ATOMIC_ACQ_REL);
	__atomic_store_n(&slot->entry, entry, __ATOMIC_RELAXED);
	if (kernel)
		__atomic_store_n(&slot->kernel, kernel, __ATOMIC_RELAXED);
	return slot;
}

struct gate_slot *gate_callback_begin(void)
{
	struct gate_slot *slot = own_slot();

	if (slot)
		__atomic_store_n(&slot->callbacks, slot->callbacks + 1, __ATOMIC_RELAXED);
	return slot;
}

void gate_callback_end(struct gate_slot *slot)
{
	if (slot)
		__atomic_store_n(&slot->callbacks, slot->callbacks - 1, __ATOMIC_RELAXED);
}

void gate_kernels_gone(struct gate *gate)
{
	ranked_lock(&gate->kernels_lock);
	for (struct gate_slot *slot = next_slot(NULL); slot; slot = next_slot(slot))
		__atomic_store_n(&slot->kernel, NULL, __ATOMIC_RELAXED);
	ranked_unlock(&gate->kernels_lock);
}
