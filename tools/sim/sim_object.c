/* tools/sim/sim_object.c
 * The set of live handles. Every handle the driver gives out is the address of a struct that begins with a sim_object; a
 * look-up by address and type decides whether what a program passes in is one. The caller holds the lock. */
#include "tools/sim/sim_priv.h"

#define BUCKET_COUNT 4096u

static struct sim_object *buckets[BUCKET_COUNT];
static struct sim_object *first[SIM_T_COUNT];
static size_t counts[SIM_T_COUNT];

static unsigned int bucket_of(const void *address)
{
	uintptr_t bits = (uintptr_t)address >> 4;

	return (unsigned int)((bits ^ (bits >> 12) ^ (bits >> 24)) % BUCKET_COUNT);
}

void sim_object_add(struct sim_object *object, enum sim_type type)
{
	struct sim_object **bucket = &buckets[bucket_of(object)];

	object->type = type;
	object->chain = *bucket;
	*bucket = object;
	object->prev = NULL;
	object->next = first[type];
	if (first[type])
		first[type]->prev = object;
	first[type] = object;
	counts[type]++;
}

void sim_object_remove(struct sim_object *object)
{
	struct sim_object **link = &buckets[bucket_of(object)];

	while (*link && *link != object)
		link = &(*link)->chain;
	if (!*link)
		return;
	*link = object->chain;
	if (object->prev)
		object->prev->next = object->next;
	else
		first[object->type] = object->next;
	if (object->next)
		object->next->prev = object->prev;
	counts[object->type]--;
}

void *sim_object_find(const void *handle, enum sim_type type)
{
	struct sim_object *object = buckets[bucket_of(handle)];

	for (; object; object = object->chain) {
		if (object == handle)
			return object->type == type ? object : NULL;
	}
	return NULL;
}

struct sim_object *sim_object_first(enum sim_type type)
{
	return first[type];
}

size_t sim_object_count(enum sim_type type)
{
	return counts[type];
}
