/* lifecycle/callers/texts.h
 * Each text once, for the life of the process: names of frames, libraries, threads and tags. Equal texts are one pointer, so who
 * compares them compares pointers, and nobody frees them. */
#ifndef SUBLET_LIFECYCLE_CALLERS_TEXTS_H
#define SUBLET_LIFECYCLE_CALLERS_TEXTS_H

#include <stdbool.h>
#include <stddef.h>

#define TEXTS_MAX 65536		       /* distinct texts */
#define TEXTS_BYTES_MAX (8ul << 20) /* of all of them */

/* The one text of the @length bytes at @text (without NUL among them; one is put behind). NULL: there are too many already, or no
 * memory. Lock-free, so it may be called anywhere: in a signal handler, in a forked child, before Sublet has started. errno as
 * before. */
const char *texts_intern(const char *text, size_t length);

/* A set of texts beside that one, for what a program could fill it with. Zero: empty. The bounds hold for each. */
struct texts {
	struct texts_table *table; /* atomic */
};

const char *texts_intern_in(struct texts *texts, const char *text, size_t length);
/* Does @pointer lie among the texts of the set, so that it can be read up to a NUL? Any pointer will do. */
bool texts_hold(const struct texts *texts, const void *pointer);

#endif
