/* lifecycle/callers/texts.c
 * An open hash table whose slots go from empty to a text once, and an arena that is only added to. Two threads with one new text
 * both write it; one of them wins the slot, the other's copy is lost. */
#include "lifecycle/callers/texts.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define SLOTS (2u * TEXTS_MAX) /* a power of two, and never more than half full */

/* In front of each text. */
struct head {
	uint32_t hash, length;
};

struct texts_table {
	const char *slots[SLOTS]; /* atomic */
	uint32_t count;		  /* atomic */
	size_t used;		  /* atomic; of the arena */
	char arena[TEXTS_BYTES_MAX] __attribute__((aligned(8)));
};

static struct texts common;

/* Pages come with their first use. */
static struct texts_table *make_table(struct texts *texts)
{
	struct texts_table *new = mmap(NULL, sizeof(*new), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0),
			   *expected = NULL;

	if (new == MAP_FAILED)
		return NULL;
	if (__atomic_compare_exchange_n(&texts->table, &expected, new, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		return new;
	munmap(new, sizeof(*new));
	return expected;
}

static const struct head *head_of(const char *text)
{
	return (const struct head *)(const void *)(text - sizeof(struct head));
}

static const char *copy(struct texts_table *in, uint32_t hash, const char *text, size_t length)
{
	const size_t bytes = (sizeof(struct head) + length + 1 + 7) & ~(size_t)7;
	struct head *head;
	char *to;
	size_t at;

	if (__atomic_load_n(&in->used, __ATOMIC_RELAXED) > TEXTS_BYTES_MAX - bytes ||
		__atomic_fetch_add(&in->count, 1, __ATOMIC_RELAXED) >= TEXTS_MAX)
		return NULL;
	at = __atomic_fetch_add(&in->used, bytes, __ATOMIC_RELAXED);
	if (at > TEXTS_BYTES_MAX - bytes)
		return NULL;
	head = (struct head *)(void *)(in->arena + at);
	*head = (struct head){hash, (uint32_t)length};
	to = (char *)(head + 1);
	memcpy(to, text, length);
	to[length] = '\0';
	return to;
}

static const char *find(struct texts_table *in, const char *text, size_t length)
{
	const uint32_t hash = (uint32_t)XXH3_64bits(text, length);
	const char *own = NULL;

	for (uint32_t at = hash;; at++) {
		const char **slot = &in->slots[at % SLOTS], *there = __atomic_load_n(slot, __ATOMIC_ACQUIRE);

		if (!there) {
			if (!own)
				own = copy(in, hash, text, length);
			if (!own)
				return NULL;
			if (__atomic_compare_exchange_n(slot, &there, own, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
				return own;
		}
		if (head_of(there)->hash == hash && head_of(there)->length == length && memcmp(there, text, length) == 0)
			return there;
	}
}

const char *texts_intern_in(struct texts *texts, const char *text, size_t length)
{
	const int error_before = errno;
	struct texts_table *in = __atomic_load_n(&texts->table, __ATOMIC_ACQUIRE);
	const char *found = NULL;

	if (!in)
		in = make_table(texts);
	if (in && length < TEXTS_BYTES_MAX / 2)
		found = find(in, text, length);
	errno = error_before;
	return found;
}

const char *texts_intern(const char *text, size_t length)
{
	return texts_intern_in(&common, text, length);
}

bool texts_hold(const struct texts *texts, const void *pointer)
{
	const struct texts_table *in = __atomic_load_n(&texts->table, __ATOMIC_ACQUIRE);
	const uintptr_t at = (uintptr_t)pointer;

	/* the last byte is the NUL of a text, or behind one, or was never written */
	return in && at >= (uintptr_t)in->arena && at < (uintptr_t)in->arena + sizeof(in->arena);
}
