/* lifecycle/callers/native.c
 * Rules and texts are kept by address, in a table that is read without a lock. What is kept is believed only for the object it was
 * made of: all objects that a stack went through are checked after it was read, and it is read again if one was another by now.
 * A rule that was wrong in between led to wrong addresses, no further: memory is read by foreign.h. */
#include "lifecycle/callers/native.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/errors.h"
#include "lifecycle/callers/cxx_name.h"
#include "lifecycle/callers/foreign.h"
#include "lifecycle/callers/frame_rule.h"
#include "lifecycle/callers/objects.h"
#include "lifecycle/callers/peek.h"
#include "lifecycle/callers/room.h"
#include "lifecycle/callers/symbols.h"
#include "lifecycle/callers/texts.h"

/* Powers of two; at most half of the slots are ever filled. Entries that were replaced are counted, too: they are not freed. */
enum { SLOTS = 32768, ENTRIES_MAX = 65536, PROBES = 16, TRIES = 3, STEPS_MAX = 2 * NATIVE_FRAMES_MAX, TEXT_BYTES = 512 };

struct entry {
	uint64_t at; /* inside of the instruction */
	struct object *object;
	const char *text; /* atomic; NULL until asked for */
	struct frame_rule rule;
};

static struct entry **slots; /* atomic; NULL: not prepared */
static unsigned entries;     /* atomic; ever made */

const void *native_own_code = (const void *)native_frames;

bool native_prepare(struct errinfo *reterr)
{
	struct entry **made;

	if (__atomic_load_n(&slots, __ATOMIC_ACQUIRE))
		return true;
	if (!foreign_works()) {
		errinfo_set(reterr, SUBLET_ERR_UNSUPPORTED, 0,
			"no native stacks: the system call process_vm_writev is refused here; allow it in the container's seccomp profile");
		return false;
	}
	made = room_keep(SLOTS * sizeof(struct entry *));
	if (!made) {
		errinfo_set(reterr, SUBLET_ERR_NOMEM, 0, "no native stacks: no memory for their table");
		return false;
	}
	objects_prepare();
	symbols_prepare();
	__atomic_store_n(&slots, made, __ATOMIC_RELEASE);
	return true;
}

/* ---- what is known of an address ---- */

static size_t entry_bytes(const struct frame_rule *rule)
{
	return offsetof(struct entry, rule.places) + rule->count * sizeof(rule->places[0]);
}

/* The entry of @at in @object; NULL: not known yet, and *@ret_slot is where it belongs (NULL: no room). */
static struct entry *known(uint64_t at, const struct object *object, struct entry ***ret_slot)
{
	uint64_t hash = (at * 0x9e3779b97f4a7c15ull) >> 40;

	*ret_slot = NULL;
	for (unsigned i = 0; i < PROBES; i++) {
		struct entry **slot = &slots[(hash + i) % SLOTS], *entry = __atomic_load_n(slot, __ATOMIC_ACQUIRE);

		if (entry && entry->at == at && entry->object == object)
			return entry;
		if (!*ret_slot && (!entry || entry->at == at || i == PROBES - 1))
			*ret_slot = slot;
		if (!entry)
			return NULL;
	}
	return NULL;
}

/* Makes what is known of @at be found from now on; NULL when there is no room. Two threads may both do it: one entry is lost. */
static struct entry *keep(struct entry **slot, uint64_t at, struct object *object, const struct frame_rule *rule)
{
	struct entry *fresh;

	if (!slot || __atomic_fetch_add(&entries, 1, __ATOMIC_RELAXED) >= ENTRIES_MAX) {
		__atomic_fetch_sub(&entries, slot ? 1 : 0, __ATOMIC_RELAXED);
		return NULL;
	}
	fresh = room_keep(entry_bytes(rule));
	if (!fresh)
		return NULL;
	fresh->at = at;
	fresh->object = object;
	fresh->text = NULL;
	memcpy(&fresh->rule, rule, entry_bytes(rule) - offsetof(struct entry, rule));
	__atomic_store_n(slot, fresh, __ATOMIC_RELEASE);
	return fresh;
}

/* ---- walking ---- */

struct walk {
	struct peek_window stack;
	struct object_set objects;
	struct frame_rule rule; /* when there is no room to keep it */
};

static const struct frame_rule *rule_of(struct walk *walk, uint64_t at, struct object *object)
{
	struct entry **slot, *entry = known(at, object, &slot);
	struct peek_window window; /* not the stack's: that is to stay warm */

	if (entry)
		return &entry->rule;
	window.start = window.length = 0;
	frame_rule_read(&window, object->place.eh_frame_hdr, at, &walk->rule);
	entry = keep(slot, at, object, &walk->rule);
	return entry ? &entry->rule : &walk->rule;
}

static bool is_own(const struct object *object)
{
	return native_own_code && (uintptr_t)native_own_code >= object->place.start && (uintptr_t)native_own_code < object->place.end;
}

static size_t walk_stack(struct walk *walk, struct registers registers, uint64_t *ret_ips, size_t room)
{
	uint64_t at = registers.pc; /* inside of the instruction: a call may be the last one of its function */
	size_t count = 0;

	walk->stack.start = walk->stack.length = 0;
	walk->objects.count = 0;
	for (unsigned step = 0; step < STEPS_MAX && count < room; step++) {
		struct object *object = objects_find(&walk->objects, at);
		const struct frame_rule *rule;

		if (!object)
			break;
		/* the first is this module's own */
		if (step > 0 && !is_own(object))
			ret_ips[count++] = at + 1;
		rule = rule_of(walk, at, object);
		if (!frame_rule_apply(&walk->stack, rule, &registers))
			break;
		at = rule->signal ? registers.pc : registers.pc - 1;
	}
	return count;
}

/* The registers that a caller may count on, and this instruction: one statement, since the rule is that of its place. */
#if defined(__x86_64__)
#define CAPTURE(registers)                                                                                             \
	__asm__ volatile("leaq 0(%%rip), %%rax\n\t"                                                                    \
			 "movq %%rax, %[pc]\n\t"                                                                        \
			 "movq %%rbx, 24(%[to])\n\t"                                                                    \
			 "movq %%rbp, 48(%[to])\n\t"                                                                    \
			 "movq %%rsp, 56(%[to])\n\t"                                                                    \
			 "movq %%r12, 96(%[to])\n\t"                                                                    \
			 "movq %%r13, 104(%[to])\n\t"                                                                   \
			 "movq %%r14, 112(%[to])\n\t"                                                                   \
			 "movq %%r15, 120(%[to])"                                                                       \
			 : [pc] "=m"((registers)->pc)                                                                   \
			 : [to] "r"((registers)->value)                                                                 \
			 : "rax", "memory");                                                                            \
	(registers)->known = REGISTERS_FOLLOWED & ~(1ull << REGISTER_RETURN)
#elif defined(__aarch64__)
#define CAPTURE(registers)                                                                                             \
	__asm__ volatile("adr x9, .\n\t"                                                                               \
			 "str x9, %[pc]\n\t"                                                                            \
			 "stp x19, x20, [%[to], #152]\n\t"                                                              \
			 "stp x21, x22, [%[to], #168]\n\t"                                                              \
			 "stp x23, x24, [%[to], #184]\n\t"                                                              \
			 "stp x25, x26, [%[to], #200]\n\t"                                                              \
			 "stp x27, x28, [%[to], #216]\n\t"                                                              \
			 "stp x29, x30, [%[to], #232]\n\t"                                                              \
			 "mov x9, sp\n\t"                                                                               \
			 "str x9, [%[to], #248]"                                                                        \
			 : [pc] "=m"((registers)->pc)                                                                   \
			 : [to] "r"((registers)->value)                                                                 \
			 : "x9", "memory");                                                                             \
	(registers)->known = REGISTERS_FOLLOWED
#endif

/* ---- texts ---- */

static const char *make_text(struct object *object, uint64_t at, bool *may_wait, bool *ret_keep)
{
	char text[TEXT_BYTES], mangled[TEXT_BYTES];
	size_t length = strlen(object->name), room;
	enum symbols_answer answer;

	if (length > TEXT_BYTES / 2)
		length = TEXT_BYTES / 2;
	memcpy(text, object->name, length);
	text[length++] = ':';
	room = sizeof(text) - length;
	answer = symbols_name(object, at, mangled, sizeof(mangled), may_wait);
	*ret_keep = answer != SYMBOLS_LATER;
	if (answer != SYMBOLS_FOUND)
		snprintf(text + length, room, "+0x%llx", (unsigned long long)(at - object->load_base));
	else if (!cxx_name(mangled, text + length, room))
		memcpy(text + length, mangled, room);
	text[sizeof(text) - 1] = '\0'; /* as much of it as there is room for */
	return texts_intern(text, strlen(text));
}

static const char *text_of(struct object_set *objects, uint64_t at, bool *may_wait)
{
	static const char nowhere[] = "?";
	struct object *object = objects_find(objects, at);
	struct entry **slot, *entry;
	struct peek_window window;
	struct frame_rule rule;
	const char *text;
	bool kept;

	if (!object)
		return texts_intern(nowhere, sizeof(nowhere) - 1);
	entry = known(at, object, &slot);
	text = entry ? __atomic_load_n(&entry->text, __ATOMIC_ACQUIRE) : NULL;
	if (text)
		return text;
	text = make_text(object, at, may_wait, &kept);
	if (!kept)
		return text;
	if (!entry) { /* an address that was not found on a stack */
		window.start = window.length = 0;
		frame_rule_read(&window, object->place.eh_frame_hdr, at, &rule);
		entry = keep(slot, at, object, &rule);
	}
	if (entry)
		__atomic_store_n(&entry->text, text, __ATOMIC_RELEASE);
	return text;
}

const char *native_text(uint64_t ip)
{
	const int error_before = errno;
	const bool prepared = __atomic_load_n(&slots, __ATOMIC_ACQUIRE) != NULL;
	struct object_set objects;
	const char *text = NULL;
	bool unchanged = false, may_wait = true;

	for (unsigned try = 0; prepared && try < TRIES && !unchanged; try++) {
		objects.count = 0;
		text = text_of(&objects, ip - 1, &may_wait);
		unchanged = objects_unchanged(&objects);
	}
	errno = error_before;
	return unchanged ? text : NULL; /* a library that comes and goes meanwhile: nothing can be said */
}

/* ---- stacks ---- */

static size_t read_stack(const struct registers *registers, uint64_t *ret_ips, const char **ret_texts, size_t room)
{
	const int error_before = errno;
	struct walk walk;
	size_t count = 0;
	bool unchanged = false, may_wait = true;

	for (unsigned try = 0; try < TRIES && !unchanged; try++) {
		count = walk_stack(&walk, *registers, ret_ips, room < NATIVE_FRAMES_MAX ? room : NATIVE_FRAMES_MAX);
		for (size_t i = 0; ret_texts && i < count; i++)
			ret_texts[i] = text_of(&walk.objects, ret_ips[i] - 1, &may_wait);
		unchanged = objects_unchanged(&walk.objects);
	}
	errno = error_before;
	return unchanged ? count : 0;
}

__attribute__((noinline)) size_t native_frames(uint64_t *ret_ips, size_t room)
{
	struct registers registers;

	if (!__atomic_load_n(&slots, __ATOMIC_ACQUIRE))
		return 0;
	CAPTURE(&registers);
	return read_stack(&registers, ret_ips, NULL, room);
}

__attribute__((noinline)) size_t native_stack(uint64_t *ret_ips, const char **ret_texts, size_t room)
{
	uint64_t ips[NATIVE_FRAMES_MAX];
	struct registers registers;

	if (!__atomic_load_n(&slots, __ATOMIC_ACQUIRE))
		return 0;
	CAPTURE(&registers);
	return read_stack(&registers, ret_ips ? ret_ips : ips, ret_texts, room);
}

/* ---- libraries ---- */

static const struct object *object_of(uint64_t ip)
{
	struct object_set set;

	for (unsigned try = 0; try < TRIES; try++) {
		const struct object *object;

		set.count = 0;
		object = objects_find(&set, ip - 1);
		if (!object || objects_unchanged(&set))
			return object;
	}
	return NULL;
}

const char *native_library(uint64_t ip)
{
	const int error_before = errno;
	const struct object *object = __atomic_load_n(&slots, __ATOMIC_ACQUIRE) ? object_of(ip) : NULL;

	errno = error_before;
	return object ? object->path : NULL;
}

static bool is_runtime(const char *path)
{
	static const char name[] = "libcudart";
	const char *last = path ? strrchr(path, '/') : NULL;

	last = last ? last + 1 : path;
	/* a wheel that brings it marks it: `libcudart-d0da41ae.so.11.0` */
	return last && strncmp(last, name, sizeof(name) - 1) == 0 && strchr(".-", last[sizeof(name) - 1]) && strstr(last, ".so");
}

size_t native_callers(void *return_address, const char *ret_paths[2])
{
	uint64_t ips[NATIVE_FRAMES_MAX];
	size_t frames;
	bool inside = false;

	ret_paths[0] = native_library((uintptr_t)return_address);
	if (!is_runtime(ret_paths[0]))
		return ret_paths[0] != NULL;
	frames = native_frames(ips, NATIVE_FRAMES_MAX);
	for (size_t i = 0; i < frames; i++) {
		const char *path = native_library(ips[i]);

		/* between Sublet and the runtime there may be others: interposers, the simulated driver */
		inside |= path == ret_paths[0];
		if (inside && path && path != ret_paths[0]) {
			ret_paths[1] = path;
			return 2;
		}
	}
	return 1;
}
