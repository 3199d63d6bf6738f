/* base/list.h
 * The growing of arrays: one rule for all lists that are a pointer, a count and a capacity. */
#ifndef SUBLET_BASE_LIST_H
#define SUBLET_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

/* Make room for one more element of @element_bytes behind @count of them in the array *@list (of any element type; passed
 * as its address). May move it. False when memory ran out; then nothing has changed. The owner frees *@list. */
bool list_room(void *list, size_t count, size_t *capacity, size_t element_bytes);

#endif
