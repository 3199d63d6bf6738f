/* shim/nvtx_names.c
 * A handle of ours is its text itself, once for the life of the process. Handles of a tool are looked up in a table that is only
 * added to: a tool that gives one again for another name (after a domain was destroyed) has it replaced. */
#include "shim/nvtx_names.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/log.h"
#include "lifecycle/callers/texts.h"

enum { HANDLES = 1 << 16, HANDLES_USED_MAX = HANDLES / 2 };

struct noted {
	const void *handle; /* atomic; NULL: free */
	const char *name;   /* atomic; NULL while it is being noted */
};

struct handles {
	unsigned used; /* atomic */
	struct noted noted[HANDLES];
};

/* Not among the texts that rules match: a program may register a string per step. */
static struct texts names;
static struct handles *handles; /* atomic */

static void say_full(void)
{
	log_limited(LOG_SESSION, LOG_WARN, WHOSE_FRAMEWORK,
		"too many strings are registered with NVTX: no trigger sees ranges that are named by the others");
}

const char *nvtx_narrow(const wchar_t *wide, char buffer[NVTX_WIDE_BYTES])
{
	size_t used = 0;

	if (!wide)
		return NULL;
	for (; *wide && used + 4 < NVTX_WIDE_BYTES; wide++) {
		const uint32_t c = (uint32_t)*wide;

		if (c < 0x80) {
			buffer[used++] = (char)c;
		} else if (c < 0x800) {
			buffer[used++] = (char)(0xc0 | c >> 6);
			buffer[used++] = (char)(0x80 | (c & 0x3f));
		} else if (c < 0x10000 && (c < 0xd800 || c > 0xdfff)) {
			buffer[used++] = (char)(0xe0 | c >> 12);
			buffer[used++] = (char)(0x80 | (c >> 6 & 0x3f));
			buffer[used++] = (char)(0x80 | (c & 0x3f));
		} else if (c >= 0x10000 && c < 0x110000) {
			buffer[used++] = (char)(0xf0 | c >> 18);
			buffer[used++] = (char)(0x80 | (c >> 12 & 0x3f));
			buffer[used++] = (char)(0x80 | (c >> 6 & 0x3f));
			buffer[used++] = (char)(0x80 | (c & 0x3f));
		} else {
			buffer[used++] = '?';
		}
	}
	buffer[used] = '\0';
	return buffer;
}

/* ---- handles ---- */

static struct handles *find_handles(void)
{
	struct handles *known = __atomic_load_n(&handles, __ATOMIC_ACQUIRE), *new;

	if (known)
		return known;
	new = mmap(NULL, sizeof(*new), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (new == MAP_FAILED)
		return NULL;
	if (__atomic_compare_exchange_n(&handles, &known, new, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		return new;
	munmap(new, sizeof(*new));
	return known;
}

/* The place of @handle, or the free one where it would be. */
static struct noted *find_place(struct handles *in, const void *handle)
{
	const uint64_t hash = (uint64_t)(uintptr_t)handle * 0x9e3779b97f4a7c15ull;

	for (uint64_t at = hash >> 32;; at++) {
		struct noted *place = &in->noted[at % HANDLES];
		const void *there = __atomic_load_n(&place->handle, __ATOMIC_ACQUIRE);

		if (!there || there == handle)
			return place;
	}
}

static const char *keep(const char *name)
{
	const char *kept = texts_intern_in(&names, name, strlen(name));

	if (!kept)
		say_full();
	return kept;
}

const void *nvtx_handle(const char *name)
{
	return name ? keep(name) : NULL;
}

void nvtx_note_handle(const void *handle, const char *name)
{
	const int error_before = errno;
	struct handles *in = handle && name ? find_handles() : NULL;
	const char *kept = in ? keep(name) : NULL;
	struct noted *place;

	while (kept) {
		const void *there = NULL;

		place = find_place(in, handle);
		if (!__atomic_load_n(&place->handle, __ATOMIC_ACQUIRE)) {
			if (__atomic_fetch_add(&in->used, 1, __ATOMIC_RELAXED) >= HANDLES_USED_MAX) {
				__atomic_fetch_sub(&in->used, 1, __ATOMIC_RELAXED);
				say_full();
				break;
			}
			if (!__atomic_compare_exchange_n(&place->handle, &there, handle, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
				__atomic_fetch_sub(&in->used, 1, __ATOMIC_RELAXED); /* another thread was first */
				continue;
			}
		}
		__atomic_store_n(&place->name, kept, __ATOMIC_RELEASE);
		break;
	}
	errno = error_before;
}

static const char *name_of_handle(const void *handle)
{
	struct handles *in = __atomic_load_n(&handles, __ATOMIC_ACQUIRE);
	struct noted *place = in && handle ? find_place(in, handle) : NULL;

	if (place && __atomic_load_n(&place->handle, __ATOMIC_ACQUIRE))
		return __atomic_load_n(&place->name, __ATOMIC_ACQUIRE);
	/* not one of ours either where a program passes whatever it has */
	return texts_hold(&names, handle) ? handle : NULL;
}

const char *nvtx_name_of(const struct nvtx_attributes *attributes, char buffer[NVTX_WIDE_BYTES])
{
	if (!attributes || attributes->version < 1 || attributes->version > NVTX_NEWEST || attributes->size < sizeof(*attributes))
		return NULL;
	if (attributes->message_type == NVTX_MESSAGE_ASCII)
		return attributes->message.ascii;
	if (attributes->message_type == NVTX_MESSAGE_UNICODE)
		return nvtx_narrow(attributes->message.unicode, buffer);
	if (attributes->message_type == NVTX_MESSAGE_REGISTERED && attributes->version > 1)
		return name_of_handle(attributes->message.registered);
	return NULL;
}
