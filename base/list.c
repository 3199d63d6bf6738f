/* base/list.c
 * The array pointer is read and written as bytes, since its type is the caller's. */
#include "base/list.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_CAPACITY 8

bool list_room(void *list, size_t count, size_t *capacity, size_t element_bytes)
{
	size_t wanted = *capacity ? *capacity * 2 : FIRST_CAPACITY;
	void *array;

	if (count < *capacity)
		return true;
	memcpy(&array, list, sizeof(array));
	array = realloc(array, wanted * element_bytes);
	if (!array)
		return false;
	memcpy(list, &array, sizeof(array));
	*capacity = wanted;
	return true;
}
