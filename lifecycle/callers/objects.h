/* lifecycle/callers/objects.h
 * The loaded objects (program, libraries) that code addresses belong to. A record stands for one load of one object and is kept
 * for ever: what is known by it (rules, symbols, texts) is never freed, and never believed once another object lies at the address.
 * Found by the loader's own lock-free table (_dl_find_object, glibc 2.35). Where that is missing dl_iterate_phdr is asked, which
 * takes the lock of the loader's list: it is held over changes of the list, never over a constructor. */
#ifndef SUBLET_LIFECYCLE_CALLERS_OBJECTS_H
#define SUBLET_LIFECYCLE_CALLERS_OBJECTS_H

#include <stdbool.h>
#include <stdint.h>

struct symbols;

enum { OBJECT_ID_BYTES = 32, OBJECT_NAME_BYTES = 160 };

/* What the loader says of an address. */
struct object_place {
	uint64_t start, end; /* end: the first byte behind */
	uint64_t link;	     /* struct link_map; its name where only dl_iterate_phdr was there to ask */
	uint64_t eh_frame_hdr;
};

/* What lies in memory for as long as this load lasts, read again to learn whether it does. */
struct object_sign {
	uint64_t link_fields[3]; /* l_addr, l_name, l_ld; 0 when there is no struct link_map to read */
	uint8_t id[OBJECT_ID_BYTES];
	char name_end[OBJECT_NAME_BYTES]; /* end of the name, with its NUL */
};

struct object {
	struct object_place place;
	struct object_sign sign;
	uint64_t id_at, name_at; /* where the sign's parts lie */
	uint32_t id_bytes, name_bytes;
	uint64_t load_base, dynamic; /* dynamic: 0 when there is none */
	const char *path;	     /* interned, of the file; as the loader names it where it is no file */
	const char *name;	     /* its last part, interned */
	struct symbols *symbols;     /* of symbols.c; atomic, NULL until asked for */
	bool gone;		     /* atomic; another one was found in its place */
	struct object *next;	     /* in its bucket */
};

/* The objects that the addresses of one stack belong to, checked together. */
enum { OBJECT_SET_MAX = 32 };
struct object_set {
	unsigned count;
	struct object *list[OBJECT_SET_MAX];
};

/* Unit tests set it, to be served as where the loader has no such table. */
extern bool objects_by_iteration;

/* Finds the loader's table. May wait for the loader. Safe to call again. */
void objects_prepare(void);

/* The object that @address belongs to, put into @set (which starts as {0}). NULL: none, or no room or memory for another.
 * No lock but the one named above. May allocate and read a link when it meets an object for the first time. Changes errno. */
struct object *objects_find(struct object_set *set, uint64_t address);

/* Whether every object of @set is still the one it was when its record was made; those that are not are marked gone, and
 * objects_find makes new ones: what was found by @set is to be thrown away and done again. One call of the kernel for eight. */
bool objects_unchanged(const struct object_set *set);

#endif
