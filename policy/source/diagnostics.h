/* policy/source/diagnostics.h
 * Everything that is said about a policy file: collected while it is read and checked, sorted by place, printed once
 * with the line it is about and carets below. The kinds are rows of policy/source/messages.def. */
#ifndef SUBLET_POLICY_SOURCE_DIAGNOSTICS_H
#define SUBLET_POLICY_SOURCE_DIAGNOSTICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/attributes.h"
#include "policy/source/arena.h"
#include "policy/source/output.h"

/* A place in the file. Columns count characters. Line 0: the file as a whole. */
struct where {
	uint32_t line, column; /* from 1 */
	uint32_t length;       /* characters to underline, at least 1 */
};

#define ERROR(name, word, sentence) MESSAGE_##name,
#define WARNING(name, word, sentence) MESSAGE_##name,
enum message {
#include "policy/source/messages.def"
	MESSAGE_COUNT
};

struct diagnostic_note {
	struct where where; /* line 0: about the diagnostic's own place */
	const char *text;
	struct diagnostic_note *next;
};

struct diagnostic {
	enum message message;
	struct where where;
	const char *text;
	struct diagnostic_note *notes;
	size_t order; /* in which it was found: keeps the sort stable */
};

/* Zero-initialised, with @arena set, is empty. Borrows the arena. */
struct diagnostics {
	struct arena *arena;
	struct diagnostic *list;
	size_t count, errors, warnings;
};

/* Text: lower case, no full stop, what is wrong, then `; ` and the fix where there is one. */
void complain(struct diagnostics *diagnostics, enum message message, struct where where, const char *format, ...)
	SUBLET_PRINTF(4, 5);
/* A note to the last complaint. */
void remark(struct diagnostics *diagnostics, struct where where, const char *format, ...) SUBLET_PRINTF(3, 4);
/* `did you mean '...'?` with the nearest of the NULL-ended @words, or, when none is near and there are few, all of
 * them. */
void suggest(struct diagnostics *diagnostics, const char *given, const char *const *words);

#define NOWHERE ((struct where){0})

void diagnostics_sort(struct diagnostics *diagnostics);

/* Add all as text for people. @source is the file's text, NULL when it could not be read. */
void diagnostics_print(const struct diagnostics *diagnostics, const char *file, const char *source, size_t source_bytes,
	struct output *to);

bool message_is_error(enum message message);
/* The word that stands for the kind in JSON and names its test. */
const char *message_word(enum message message);

#endif
