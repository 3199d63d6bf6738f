/* tools/entry_list.h
 * The driver's entry points as the commands see them: expanded from the lists the library is built from, without
 * cuda.h, since the parameters are left out. */
#ifndef SUBLET_TOOLS_ENTRY_LIST_H
#define SUBLET_TOOLS_ENTRY_LIST_H

#include <stdbool.h>
#include <stddef.h>

enum entry_kind {
	ENTRY_WRAP,
	ENTRY_GATED,
	ENTRY_PASS,
};

struct entry_row {
	const char *symbol;
	const char *base;
	int since;
	const char *stream;
	const char *need;
	enum entry_kind kind;
	const char *why; /* group or reason */
};

extern const struct entry_row entry_rows[];
extern const size_t entry_row_count;

/* The row of the exported name @symbol, NULL when the list has none. */
const struct entry_row *entry_row_find(const char *symbol);

/* Sublet turns itself off in a process whose driver lacks it. */
bool entry_row_required(const struct entry_row *row);

/* Why @row is wrapped, gated or passed, "" when its reason is in no list. */
const char *entry_row_sentence(const struct entry_row *row);

#endif
