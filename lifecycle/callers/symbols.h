/* lifecycle/callers/symbols.h
 * The function that covers a place in an object: of those it exports, by its dynamic symbols in memory; of the others, by the
 * symbol table (.symtab) of its file, where it was not stripped of it. Each table is read once per load of an object, when the
 * first address asks for it, and kept sorted; names stay where they are and are read when needed. */
#ifndef SUBLET_LIFECYCLE_CALLERS_SYMBOLS_H
#define SUBLET_LIFECYCLE_CALLERS_SYMBOLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lifecycle/callers/objects.h"

void symbols_prepare(void);

enum symbols_answer {
	SYMBOLS_FOUND,
	SYMBOLS_NONE,  /* no symbol covers it, or none can be read: for good */
	SYMBOLS_LATER, /* another thread reads tables and did not end in time */
};

/* The name of the function of @object at @address, cut to @room - 1 bytes. Allocates, reads the object's file (bounded: 2 Mi
 * symbols of all objects), waits for another thread that does, a second at most, if *@may_wait, which goes to false when that was in vain:
 * who asks for a whole stack waits once. Takes RANK_SYMBOLS. Changes errno. */
enum symbols_answer symbols_name(struct object *object, uint64_t address, char *ret, size_t room, bool *may_wait);

#endif
