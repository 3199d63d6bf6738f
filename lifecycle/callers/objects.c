/* lifecycle/callers/objects.c
 * Buckets of records that only grow at the front. Who is told of a place asks for its record; the place alone does not tell an
 * object from the next one that is loaded there (the loader's structures are reused just like the addresses), so a record also
 * knows a few bytes of the object, its build id where it has one, and its name: its sign. Everything of the loader's and of the
 * object's is read by foreign.h: an address that was no return address at all may belong to an object that is being unloaded. */
#include "lifecycle/callers/objects.h"

#include <dlfcn.h>
#include <elf.h>
#include <limits.h>
#include <link.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lifecycle/callers/foreign.h"
#include "lifecycle/callers/peek.h"
#include "lifecycle/callers/room.h"
#include "lifecycle/callers/texts.h"

enum { BUCKETS = 256, OBJECTS_MAX = 4096, NOTES_BYTES_MAX = 1024, HEADERS_MAX = 32, AT_ONCE = 8 };

static struct object *buckets[BUCKETS]; /* atomic */
static unsigned objects_count;		/* atomic */

/* As glibc 2.35 and later have it in <dlfcn.h>; written out for older headers and musl's, the function is asked for by name. */
struct loader_found {
	unsigned long long flags;
	void *map_start, *map_end;
	struct link_map *link_map;
	void *eh_frame;
	unsigned long long reserved[8];
};
static int (*find_object)(void *address, struct loader_found *ret); /* atomic; NULL: not there */

bool objects_by_iteration;

static int (*table_of_loader(void))(void *, struct loader_found *)
{
	return objects_by_iteration ? NULL : __atomic_load_n(&find_object, __ATOMIC_ACQUIRE);
}

void objects_prepare(void)
{
	__atomic_store_n(&find_object, (int (*)(void *, struct loader_found *))dlsym(RTLD_DEFAULT, "_dl_find_object"),
		__ATOMIC_RELEASE);
}

/* ---- without the loader's table ---- */

struct iteration {
	uint64_t address;
	struct object_place *ret;
};

static int match_object(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct iteration *iteration = arg;
	struct object_place place = {.start = UINT64_MAX, .link = (uintptr_t)info->dlpi_name};
	bool covered = false;

	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *header = &info->dlpi_phdr[i];
		uint64_t start = info->dlpi_addr + header->p_vaddr, end = start + header->p_memsz;

		if (header->p_type == PT_GNU_EH_FRAME)
			place.eh_frame_hdr = start;
		if (header->p_type != PT_LOAD)
			continue;
		covered |= iteration->address >= start && iteration->address < end;
		if (start < place.start)
			place.start = start;
		if (end > place.end)
			place.end = end;
	}
	if (!covered)
		return 0;
	place.start &= ~(uint64_t)4095; /* where its ELF header is, as the loader's table has it */
	*iteration->ret = place;
	return 1;
}

static bool find_place(uint64_t address, struct object_place *ret)
{
	int (*find)(void *, struct loader_found *) = table_of_loader();
	struct iteration iteration = {address, ret};
	struct loader_found found;

	if (!find)
		return dl_iterate_phdr(match_object, &iteration) == 1;
	if (find((void *)(uintptr_t)address, &found) != 0)
		return false;
	*ret = (struct object_place){(uintptr_t)found.map_start, (uintptr_t)found.map_end, (uintptr_t)found.link_map,
		(uintptr_t)found.eh_frame};
	return true;
}

/* ---- a new record ---- */

static void find_build_id(struct object *object, uint64_t notes, uint64_t bytes)
{
	uint8_t read[NOTES_BYTES_MAX];

	if (bytes > sizeof(read))
		bytes = sizeof(read);
	if (!foreign_read(read, notes, bytes))
		return;
	for (uint64_t at = 0; at + sizeof(Elf64_Nhdr) <= bytes;) {
		Elf64_Nhdr note;
		uint64_t name, content;

		memcpy(&note, read + at, sizeof(note));
		name = at + sizeof(note);
		content = name + ((note.n_namesz + 3ull) & ~3ull);
		if (content + note.n_descsz > bytes)
			return;
		if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && memcmp(read + name, "GNU", 4) == 0) {
			object->id_at = notes + content;
			object->id_bytes = note.n_descsz < OBJECT_ID_BYTES ? note.n_descsz : OBJECT_ID_BYTES;
			return;
		}
		at = content + ((note.n_descsz + 3ull) & ~3ull);
	}
}

/* What the ELF header at its start leads to. An object without one there has no symbols, and its frames' table as its sign. */
static void read_headers(struct object *object)
{
	Elf64_Phdr headers[HEADERS_MAX];
	Elf64_Ehdr elf;
	uint64_t at = object->place.start;

	object->id_at = object->place.eh_frame_hdr;
	object->id_bytes = object->id_at ? OBJECT_ID_BYTES : 0;
	if (!foreign_read(&elf, at, sizeof(elf)) || memcmp(elf.e_ident, ELFMAG, SELFMAG) != 0 ||
		elf.e_ident[EI_CLASS] != ELFCLASS64 || elf.e_phentsize != sizeof(*headers) || elf.e_phnum > HEADERS_MAX ||
		!foreign_read(headers, at + elf.e_phoff, elf.e_phnum * sizeof(*headers)))
		return;
	/* the first is loaded at the start */
	for (int i = 0; i < elf.e_phnum; i++) {
		if (headers[i].p_type == PT_LOAD) {
			object->load_base = at - (headers[i].p_vaddr & ~(uint64_t)4095);
			break;
		}
	}
	for (int i = 0; i < elf.e_phnum; i++) {
		if (headers[i].p_type == PT_DYNAMIC)
			object->dynamic = object->load_base + headers[i].p_vaddr;
		if (headers[i].p_type == PT_NOTE)
			find_build_id(object, object->load_base + headers[i].p_vaddr, headers[i].p_memsz);
	}
}

/* Bytes of the text at @address, without the NUL; false when it does not end within @room. */
static bool peek_text(uint64_t address, char *ret, size_t room, size_t *ret_length)
{
	struct peek_window window = {.length = 0};

	for (size_t i = 0; i < room; i++) {
		if (!peek_through(&window, address + i, &ret[i], 1))
			return false;
		if (!ret[i]) {
			*ret_length = i;
			return true;
		}
	}
	return false;
}

/* The program has no name with the loader, and its file may have been removed. */
static size_t program_path(char *ret, size_t room)
{
	static const char gone[] = " (deleted)";
	ssize_t length = readlink("/proc/self/exe", ret, room - 1);

	if (length <= 0)
		return 0;
	ret[length] = '\0';
	if ((size_t)length > sizeof(gone) && strcmp(ret + length - (sizeof(gone) - 1), gone) == 0)
		length -= (ssize_t)sizeof(gone) - 1;
	return (size_t)length;
}

struct names {
	char loader[PATH_MAX], full[PATH_MAX];
};

static bool read_name(struct object *object, struct names *names)
{
	const char *path = names->loader, *last;
	size_t length;

	if (!peek_text(object->name_at, names->loader, sizeof(names->loader), &length))
		return false;
	object->name_bytes = length + 1 < OBJECT_NAME_BYTES ? (uint32_t)length + 1 : OBJECT_NAME_BYTES;
	object->name_at += length + 1 - object->name_bytes;
	memcpy(object->sign.name_end, names->loader + length + 1 - object->name_bytes, object->name_bytes);
	if (length == 0) {
		length = program_path(names->full, sizeof(names->full));
		path = names->full;
	} else if (*path != '/' && strchr(path, '/') && realpath(path, names->full)) {
		path = names->full;
		length = strlen(path);
	}
	if (length == 0) {
		path = "[program]";
		length = strlen(path);
	}
	object->path = texts_intern(path, length);
	last = object->path ? strrchr(object->path, '/') : NULL;
	object->name = last ? texts_intern(last + 1, strlen(last + 1)) : object->path;
	return object->path && object->name;
}

/* The parts of @object's sign, to be copied into @to. */
static size_t sign_parts(const struct object *object, struct object_sign *to, struct peek_part parts[3])
{
	size_t count = 0;

	if (object->id_bytes)
		parts[count++] = (struct peek_part){object->id_at, to->id, object->id_bytes};
	if (object->sign.link_fields[1])
		parts[count++] = (struct peek_part){object->place.link, to->link_fields, sizeof(to->link_fields)};
	parts[count++] = (struct peek_part){object->name_at, to->name_end, object->name_bytes};
	return count;
}

static struct object *new_object(const struct object_place *place)
{
	struct object *object = room_keep(sizeof(*object));
	struct names *names = room_borrow(sizeof(*names)); /* 8 KiB are too many for somebody else's stack */
	bool whole = object && names;

	if (whole) {
		object->place = *place;
		object->name_at = place->link;
		if (table_of_loader()) {
			/* the first fields of the structure are public, see <link.h> */
			whole = foreign_read(object->sign.link_fields, place->link, sizeof(object->sign.link_fields));
			object->name_at = object->sign.link_fields[1];
		}
		read_headers(object);
		whole = whole && read_name(object, names) && (!object->id_bytes || foreign_read(object->sign.id, object->id_at, object->id_bytes));
	}
	room_return(names, sizeof(*names));
	return whole ? object : NULL; /* one that is not whole is lost, as is any that another thread has made before */
}

/* ---- finding ---- */

static bool same_place(const struct object_place *a, const struct object_place *b)
{
	return a->start == b->start && a->end == b->end && a->link == b->link && a->eh_frame_hdr == b->eh_frame_hdr;
}

static struct object *known_at(struct object *from, const struct object *end, const struct object_place *place)
{
	for (; from != end; from = from->next) {
		if (same_place(&from->place, place) && !__atomic_load_n(&from->gone, __ATOMIC_ACQUIRE))
			return from;
	}
	return NULL;
}

static struct object *known_or_new(const struct object_place *place)
{
	struct object **bucket = &buckets[(place->start >> 12) % BUCKETS];
	struct object *head = __atomic_load_n(bucket, __ATOMIC_ACQUIRE), *found = known_at(head, NULL, place), *fresh;

	if (found)
		return found;
	if (__atomic_load_n(&objects_count, __ATOMIC_RELAXED) >= OBJECTS_MAX)
		return NULL;
	fresh = new_object(place);
	if (!fresh)
		return NULL;
	fresh->next = head;
	while (!__atomic_compare_exchange_n(bucket, &fresh->next, fresh, false, __ATOMIC_RELEASE, __ATOMIC_ACQUIRE)) {
		found = known_at(fresh->next, head, place);
		if (found)
			return found;
		head = fresh->next;
	}
	__atomic_fetch_add(&objects_count, 1, __ATOMIC_RELAXED);
	return fresh;
}

struct object *objects_find(struct object_set *set, uint64_t address)
{
	struct object_place place;
	struct object *object;

	for (unsigned i = 0; i < set->count; i++) {
		if (address >= set->list[i]->place.start && address < set->list[i]->place.end)
			return set->list[i];
	}
	if (set->count == OBJECT_SET_MAX || !find_place(address, &place))
		return NULL;
	object = known_or_new(&place);
	if (object)
		set->list[set->count++] = object;
	return object;
}

/* ---- whether it is still there ---- */

_Static_assert(3 * AT_ONCE <= PEEK_PARTS_MAX && AT_ONCE * sizeof(struct object_sign) <= PEEK_PARTS_BYTES_MAX, "one call of peek_parts");

static bool same_sign(const struct object *object, const struct object_sign *now)
{
	return memcmp(now->id, object->sign.id, object->id_bytes) == 0 &&
	       memcmp(now->link_fields, object->sign.link_fields, sizeof(now->link_fields)) == 0 &&
	       memcmp(now->name_end, object->sign.name_end, object->name_bytes) == 0;
}

static bool unchanged(struct object *const *list, unsigned count)
{
	struct object_sign now[AT_ONCE];
	struct peek_part parts[3 * AT_ONCE];
	size_t asked = 0;
	bool whole, all = true;

	for (unsigned i = 0; i < count; i++) {
		memset(&now[i].link_fields, 0, sizeof(now[i].link_fields));
		asked += sign_parts(list[i], &now[i], parts + asked);
	}
	whole = peek_parts(parts, asked) == asked;
	/* what lies behind the first that is not there was not read */
	for (unsigned i = 0; !whole && count > 1 && i < count; i++)
		all &= unchanged(&list[i], 1);
	for (unsigned i = 0; (whole || count == 1) && i < count; i++) {
		if (whole && same_sign(list[i], &now[i]))
			continue;
		__atomic_store_n(&list[i]->gone, true, __ATOMIC_RELEASE);
		all = false;
	}
	return all;
}

bool objects_unchanged(const struct object_set *set)
{
	bool all = true;

	for (unsigned i = 0; i < set->count; i += AT_ONCE)
		all &= unchanged(set->list + i, set->count - i < AT_ONCE ? set->count - i : AT_ONCE);
	return all;
}
