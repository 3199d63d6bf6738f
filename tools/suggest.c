/* tools/suggest.c
 * From what was allocated to rules that tell it apart: groups of one maker become one object. A maker is, in this order, a tag, a
 * function of a Python stack, a thread other than the main one, a native function, a library, or else a size.
 * Rules are tried in file order and a pattern looks at all frames of a stack: whose pattern fits another's stacks comes later. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/list.h"
#include "base/map.h"
#include "base/size.h"
#include "lifecycle/callers/wants.h"
#include "policy/glob.h"
#include "tools/command.h"
#include "tools/inventories.h"
#include "tools/suggest_words.h"

enum { OBJECTS_SUGGESTED = 40, OBJECTS_ORDERED = 128, SIZES_SHOWN = 4, NAME_BYTES = 65, PATTERN_BYTES = 512 };

#define MIB ((uint64_t)1 << 20)

enum maker { MAKER_TAG, MAKER_PYTHON, MAKER_THREAD, MAKER_STACK, MAKER_LIBRARY, MAKER_SIZE };

/* As they are written in a policy. */
static const char *const keys[] = {"tag", "python", "thread", "stack", "library", "size"};

/* One group of one process. */
struct member {
	const struct client_inventory *client;
	const struct inventory_group *group;
};

struct object {
	enum maker maker;
	char word[PATTERN_BYTES];    /* what its members have in common */
	char pattern[PATTERN_BYTES]; /* how a rule asks for it */
	char name[NAME_BYTES];
	struct member *members;
	size_t count, capacity;
	uint64_t live_bytes, peak_bytes;
	size_t reached; /* others, not placed yet, of which its rule would take something */
	bool placed;
};

struct suggestion {
	const char *role; /* empty: none */
	struct map callers; /* hash of a frame -> that of the one who calls it, or SEVERAL */
	struct map by_word; /* hash of an object's word -> its place, plus 1 */
	struct object *objects;
	size_t count, capacity;
	const struct suggestion *earlier; /* of the role before */
};

/* ---- what tells groups apart ---- */

#define SEVERAL ((void *)1)

static uint64_t hash_of(const char *text)
{
	return XXH3_64bits(text, strlen(text)) | 2; /* neither NULL nor SEVERAL */
}

/* A function that is called by different ones makes memory for others, and says nothing of what for. */
static bool is_helper(const void *arg, const char *frame)
{
	const struct suggestion *in = arg;

	return map_get(&in->callers, hash_of(frame)) == SEVERAL;
}

static bool note_callers(struct suggestion *to, const struct inventory *inventory, uint32_t first, uint32_t count)
{
	for (uint32_t i = 0; i + 1 < count; i++) {
		const uint64_t frame = hash_of(inventory_text(inventory, inventory->frames[first + i]));
		void *caller = (void *)(uintptr_t)hash_of(inventory_text(inventory, inventory->frames[first + i + 1]));
		const void *before = map_get(&to->callers, frame);

		if (before == caller || before == SEVERAL || caller == (void *)(uintptr_t)frame)
			continue;
		if (!map_put(&to->callers, frame, before ? SEVERAL : caller))
			return false;
	}
	return true;
}

static bool note_all_callers(struct suggestion *to, const struct inventory *inventory)
{
	for (uint32_t i = 0; i < inventory->header->sites_count; i++) {
		const struct inventory_site *site = &inventory->sites[i];

		if (!note_callers(to, inventory, site->first_frame, site->stack_count) ||
			!note_callers(to, inventory, site->first_frame + site->stack_count, site->python_count))
			return false;
	}
	return true;
}

static const struct inventory_site *site_of(const struct member *member)
{
	return member->group->site == INVENTORY_NONE ? NULL : &member->client->inventory.sites[member->group->site];
}

/* `Module.to.<locals>.convert` is `convert`. */
static const char *last_name(const char *frame)
{
	const char *function = strrchr(frame, ':'), *dot;

	function = function ? function + 1 : frame;
	dot = strrchr(function, '.');
	return dot && dot[1] ? dot + 1 : function;
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* Threads of a pool differ in their numbers. */
static void without_numbers(const char *text, char *word, size_t room)
{
	size_t used = 0;

	for (; *text && used + 1 < room; text++) {
		bool digit = *text >= '0' && *text <= '9';

		if (digit && used && word[used - 1] == '*')
			continue;
		word[used++] = digit ? '*' : *text;
	}
	word[used] = '\0';
}

/* "libnccl.so.2" is "libnccl". */
static void library_word(const char *path, char *word, size_t room)
{
	snprintf(word, room, "%s", base_name(path));
	if (strstr(word, ".so"))
		*strstr(word, ".so") = '\0';
}

static const char *telling(const struct suggestion *in, const struct member *member, bool *ret_is_python)
{
	return inventory_telling_frame(&member->client->inventory, member->group->site, is_helper, in, ret_is_python);
}

static enum maker maker_of(const struct suggestion *in, const struct member *member, char *word, size_t room)
{
	const struct inventory *inventory = &member->client->inventory;
	const struct inventory_site *site = site_of(member);
	const char *frame, *thread, *library;
	bool is_python;

	if (!site) {
		snprintf(word, room, "%" PRIu64, member->group->size_bytes);
		return MAKER_SIZE;
	}
	if (site->tag != INVENTORY_NONE) {
		snprintf(word, room, "%s", inventory_text(inventory, site->tag));
		return MAKER_TAG;
	}
	frame = telling(in, member, &is_python);
	if (frame && is_python) {
		snprintf(word, room, "%s", last_name(frame));
		return MAKER_PYTHON;
	}
	thread = inventory_text(inventory, site->thread);
	if (thread && strcmp(thread, member->client->who.command) != 0) {
		without_numbers(thread, word, room);
		return MAKER_THREAD;
	}
	if (frame) {
		snprintf(word, room, "%s", frame);
		return MAKER_STACK;
	}
	library = inventory_text(inventory, site->library[1] != INVENTORY_NONE ? site->library[1] : site->library[0]);
	if (library) {
		library_word(library, word, room);
		return MAKER_LIBRARY;
	}
	snprintf(word, room, "%" PRIu64, member->group->size_bytes);
	return MAKER_SIZE;
}

static struct object *object_of(struct suggestion *to, enum maker maker, const char *word)
{
	const uint64_t hash = hash_of(word) ^ (uint64_t)maker << 8;
	const size_t known = (size_t)(uintptr_t)map_get(&to->by_word, hash);
	struct object *object;

	if (known && to->objects[known - 1].maker == maker && strcmp(to->objects[known - 1].word, word) == 0)
		return &to->objects[known - 1];
	for (size_t i = 0; known && i < to->count; i++)
		if (to->objects[i].maker == maker && strcmp(to->objects[i].word, word) == 0)
			return &to->objects[i];
	if (!list_room(&to->objects, to->count, &to->capacity, sizeof(*to->objects)) ||
		(!known && !map_put(&to->by_word, hash, (void *)(uintptr_t)(to->count + 1))))
		return NULL;
	object = &to->objects[to->count++];
	*object = (struct object){.maker = maker};
	snprintf(object->word, sizeof(object->word), "%s", word);
	return object;
}

static bool add_member(struct suggestion *to, const struct member *member)
{
	char word[PATTERN_BYTES];
	enum maker maker = maker_of(to, member, word, sizeof(word));
	struct object *object = object_of(to, maker, word);

	if (!object || !list_room(&object->members, object->count, &object->capacity, sizeof(*object->members)))
		return false;
	object->members[object->count++] = *member;
	object->live_bytes += member->group->live * member->group->size_bytes;
	object->peak_bytes += member->group->peak_live * member->group->size_bytes;
	return true;
}

/* ---- patterns ---- */

/* All members' telling frames are of one file: then the file is named too, or the class where it is one. */
static const char *common_frame(const struct suggestion *in, const struct object *object)
{
	const char *first = telling(in, &object->members[0], NULL);

	for (size_t i = 1; i < object->count; i++)
		if (strcmp(base_name(first), base_name(telling(in, &object->members[i], NULL))) != 0)
			return NULL;
	return first;
}

/* What stands for its folder, which may differ: nothing where there is none, one star where only some have one. */
static const char *folder_of(const struct suggestion *in, const struct object *object)
{
	size_t with = 0;

	for (size_t i = 0; i < object->count; i++)
		with += strchr(telling(in, &object->members[i], NULL), '/') != NULL;
	return with == object->count ? "*/" : with ? "*" : "";
}

static const char *library_of(const struct member *member)
{
	const struct inventory_site *site = site_of(member);

	return inventory_text(&member->client->inventory, site->library[1] != INVENTORY_NONE ? site->library[1] : site->library[0]);
}

/* Of whole texts, since a word may be cut. */
static void make_pattern(const struct suggestion *in, struct object *object)
{
	char *pattern = object->pattern;
	const size_t room = sizeof(object->pattern);
	const struct member *member = &object->members[0];
	const char *frame;

	switch (object->maker) {
	case MAKER_PYTHON:
		frame = common_frame(in, object);
		pattern_add_stars(pattern, room, frame ? folder_of(in, object) : "*:*");
		pattern_add(pattern, room, frame ? base_name(frame) : last_name(telling(in, member, NULL)));
		break;
	case MAKER_THREAD: /* its stars are ours */
		for (const char *at = object->word; *at;) {
			char piece[PATTERN_BYTES];
			size_t length = strcspn(at, "*");

			snprintf(piece, sizeof(piece), "%.*s", (int)length, at);
			pattern_add(pattern, room, piece);
			at += length;
			if (*at++ != '*')
				break;
			pattern_add_stars(pattern, room, "*");
		}
		break;
	case MAKER_LIBRARY:
		pattern_add_stars(pattern, room, strchr(library_of(member), '/') ? "*/" : "");
		pattern_add(pattern, room, object->word);
		pattern_add_stars(pattern, room, "*");
		break;
	case MAKER_SIZE: {
		const uint64_t bytes = member->group->size_bytes;

		snprintf(pattern, room, bytes % MIB ? "%" PRIu64 "B" : "%" PRIu64 "MiB", bytes % MIB ? bytes : (uint64_t)(bytes / MIB));
		break;
	}
	case MAKER_TAG:
		pattern_add(pattern, room, inventory_text(&member->client->inventory, site_of(member)->tag));
		break;
	case MAKER_STACK:
		pattern_add(pattern, room, telling(in, member, NULL));
		break;
	}
}

static bool is_named(const struct suggestion *in, const struct object *but, const char *name)
{
	for (; in; in = in->earlier)
		for (size_t i = 0; i < in->count; i++)
			if (&in->objects[i] != but && strcmp(in->objects[i].name, name) == 0)
				return true;
	return false;
}

/* Names are unique in a policy, whatever the roles. */
static void make_name(const struct suggestion *in, struct object *object)
{
	char name[NAME_BYTES];
	const char *text = object->maker == MAKER_SIZE    ? object->pattern
			   : object->maker == MAKER_STACK ? last_name(object->word)
							  : object->word;

	name_make(text, name, sizeof(name) - 8); /* a number fits behind it */
	snprintf(object->name, sizeof(object->name), "%s", name);
	for (unsigned number = 2; is_named(in, object, object->name); number++)
		snprintf(object->name, sizeof(object->name), "%.*s_%u", (int)(sizeof(name) - 9), name, number);
}

/* ---- order ---- */

static bool takes_text(const struct object *rule, const struct member *member, uint32_t text)
{
	return text != INVENTORY_NONE && glob_matches(rule->pattern, inventory_text(&member->client->inventory, text));
}

static bool takes(const struct object *rule, const struct member *member)
{
	const struct inventory_site *site = site_of(member);
	const uint32_t *frames;
	bool python = rule->maker == MAKER_PYTHON;

	if (rule->maker == MAKER_SIZE)
		return rule->members[0].group->size_bytes == member->group->size_bytes;
	if (!site)
		return false;
	if (rule->maker == MAKER_TAG)
		return takes_text(rule, member, site->tag);
	if (rule->maker == MAKER_THREAD)
		return takes_text(rule, member, site->thread);
	if (rule->maker == MAKER_LIBRARY)
		return takes_text(rule, member, site->library[0]) || takes_text(rule, member, site->library[1]);
	frames = member->client->inventory.frames + site->first_frame + (python ? site->stack_count : 0);
	for (uint32_t i = 0; i < (python ? site->python_count : site->stack_count); i++)
		if (takes_text(rule, member, frames[i]))
			return true;
	return false;
}

/* Would the rule of @rule take what belongs to @other, were it first? */
static bool reaches(const struct object *rule, const struct object *other)
{
	for (size_t i = 0; i < other->count; i++)
		if (takes(rule, &other->members[i]))
			return true;
	return false;
}

static int by_peak(const void *a, const void *b)
{
	const struct object *left = a, *right = b;

	return left->peak_bytes > right->peak_bytes ? -1 : left->peak_bytes < right->peak_bytes;
}

/* All are compared with all: of very many only the largest. Returns how many. */
static size_t begin_order(struct suggestion *in)
{
	const size_t count = in->count < OBJECTS_ORDERED ? in->count : OBJECTS_ORDERED;

	if (count < in->count)
		qsort(in->objects, in->count, sizeof(*in->objects), by_peak);
	for (size_t i = 0; i < count; i++)
		make_pattern(in, &in->objects[i]);
	for (size_t i = 0; i < count; i++)
		for (size_t k = 0; k < count; k++)
			in->objects[i].reached += i != k && reaches(&in->objects[i], &in->objects[k]);
	return count;
}

/* The next in the file: what reaches the least of those that are left; of equal ones first tags and so on, then the larger. */
static struct object *next_object(const struct suggestion *in, size_t count)
{
	struct object *best = NULL;

	for (size_t i = 0; i < count; i++) {
		struct object *object = &in->objects[i];

		if (object->placed || (best && (object->reached > best->reached || (object->reached == best->reached &&
			    (object->maker > best->maker || (object->maker == best->maker && object->peak_bytes <= best->peak_bytes))))))
			continue;
		best = object;
	}
	if (!best)
		return NULL;
	best->placed = true;
	for (size_t i = 0; i < count; i++)
		if (!in->objects[i].placed && reaches(&in->objects[i], best))
			in->objects[i].reached--;
	return best;
}

/* ---- printed ---- */

static int by_bytes(const void *a, const void *b)
{
	const struct member *left = a, *right = b;
	uint64_t l = left->group->peak_live * left->group->size_bytes, r = right->group->peak_live * right->group->size_bytes;

	return l > r ? -1 : l < r;
}

static const char *time_text(uint64_t ns, char *text, size_t room)
{
	if (ns < 1000000)
		snprintf(text, room, "%.1f us", (double)ns / 1e3);
	else if (ns < 1000000000)
		snprintf(text, room, "%.1f ms", (double)ns / 1e6);
	else
		snprintf(text, room, "%.1f s", (double)ns / 1e9);
	return text;
}

static void print_facts(const struct object *object)
{
	uint64_t count = 0, freed = 0, lived_ns = 0, first = UINT64_MAX, last = 0;
	char live[16], peak[16];

	for (size_t i = 0; i < object->count; i++) {
		const struct inventory_group *group = object->members[i].group;

		count += group->count;
		freed += group->freed;
		lived_ns += group->freed_lived_ns;
		first = group->first_serial < first ? group->first_serial : first;
		last = group->last_serial > last ? group->last_serial : last;
	}
	printf("  # %" PRIu64 " allocation%s, %s now, %s at most; order %" PRIu64 "..%" PRIu64, count, count == 1 ? "" : "s",
		size_format(object->live_bytes, live, sizeof(live)), size_format(object->peak_bytes, peak, sizeof(peak)), first, last);
	if (freed)
		printf("; %" PRIu64 " freed, after %s on average", freed, time_text(lived_ns / freed, live, sizeof(live)));
	printf("\n  # sizes:");
	for (size_t i = 0; i < object->count && i < SIZES_SHOWN; i++)
		printf("%s %s x %" PRIu64, i ? "," : "", size_format(object->members[i].group->size_bytes, live, sizeof(live)),
			object->members[i].group->peak_live);
	printf("%s\n", object->count > SIZES_SHOWN ? ", ..." : "");
}

static void print_object(const struct suggestion *in, struct object *object)
{
	qsort(object->members, object->count, sizeof(*object->members), by_bytes);
	print_facts(object);
	printf("  - name: %s\n    match: {", object->name);
	if (name_is_good(in->role))
		printf("role: %s, ", in->role);
	printf("%s: ", keys[object->maker]);
	pattern_print(object->pattern);
	printf("}\n    class: permanent\n    resident: all\n");
}

static void print_suggestion(struct suggestion *in)
{
	const size_t count = begin_order(in);
	struct object *object;
	uint64_t left_bytes = 0;
	size_t printed = 0;
	char text[16];

	if (count && in->role[0] && !name_is_good(in->role))
		printf("  # of processes whose role is no name that a policy can have: start them with another --role\n");
	while (printed < OBJECTS_SUGGESTED && (object = next_object(in, count))) {
		make_name(in, object);
		print_object(in, object);
		printed++;
	}
	for (size_t i = 0; i < in->count; i++)
		left_bytes += in->objects[i].placed ? 0 : in->objects[i].peak_bytes;
	if (printed < in->count)
		printf("  # and %zu more, %s at most in all: they fall under 'defaults'\n", in->count - printed,
			size_format(left_bytes, text, sizeof(text)));
}

static void release(struct suggestion *suggestion)
{
	for (size_t i = 0; i < suggestion->count; i++)
		free(suggestion->objects[i].members);
	free(suggestion->objects);
	map_clear(&suggestion->callers, NULL);
	map_clear(&suggestion->by_word, NULL);
}

static bool is_first_of_role(const struct inventories *all, size_t at)
{
	for (size_t i = 0; i < at; i++)
		if (strcmp(all->clients[i].who.role, all->clients[at].who.role) == 0)
			return false;
	return true;
}

static bool gather_role(const struct inventories *all, const char *role, struct suggestion *to)
{
	for (size_t i = 0; i < all->clients_count; i++)
		if (all->clients[i].bytes && strcmp(all->clients[i].who.role, role) == 0 &&
			!note_all_callers(to, &all->clients[i].inventory))
			return false;
	for (size_t i = 0; i < all->clients_count; i++) {
		const struct client_inventory *client = &all->clients[i];

		for (uint32_t g = 0; client->bytes && strcmp(client->who.role, role) == 0 && g < client->inventory.header->groups_count; g++) {
			const struct member member = {client, &client->inventory.groups[g]};

			if (!add_member(to, &member))
				return false;
		}
	}
	return true;
}

/* What a policy needs beside objects, where the session has none yet. */
static void print_head(const struct inventories *all)
{
	const char *separator = "";

	printf("version: 1\nroles: {");
	for (size_t i = 0; i < all->clients_count; i++) {
		if (!name_is_good(all->clients[i].who.role) || !is_first_of_role(all, i))
			continue;
		printf("%s%s: {}", separator, all->clients[i].who.role);
		separator = ", ";
	}
	printf("}\nphases: [run]\n");
}

static unsigned wanted_by(const struct inventories *all)
{
	unsigned wants = 0;

	for (size_t i = 0; i < all->clients_count; i++)
		if (all->clients[i].bytes)
			wants |= all->clients[i].inventory.header->caller_wants;
	return wants;
}

int inventories_suggest(const struct inventories *inventories)
{
	struct suggestion *suggestions, *latest = NULL;
	int status = STATUS_GOOD;
	bool any = false;

	for (size_t i = 0; i < inventories->clients_count; i++)
		any = any || (inventories->clients[i].bytes && inventories->clients[i].inventory.header->groups_count);
	if (!any)
		return fail(STATUS_BAD, "no process of the session has allocated anything yet; ask again when one has");
	printf("# What was allocated so far, told apart. Nothing moves yet: change 'class' and 'resident', then try it with 'sublet check'.\n");
	if (!inventories->policy)
		print_head(inventories);
	printf("objects:\n");
	suggestions = calloc(inventories->clients_count, sizeof(*suggestions));
	for (size_t i = 0; !status && i < inventories->clients_count; i++) {
		if (!suggestions) {
			status = fail(STATUS_BAD, "out of memory; try again");
			break;
		}
		if (!is_first_of_role(inventories, i))
			continue;
		suggestions[i] = (struct suggestion){.role = inventories->clients[i].who.role, .earlier = latest};
		latest = &suggestions[i];
		if (gather_role(inventories, suggestions[i].role, &suggestions[i]))
			print_suggestion(&suggestions[i]);
		else
			status = fail(STATUS_BAD, "out of memory; try again");
	}
	for (size_t i = 0; suggestions && i < inventories->clients_count; i++)
		release(&suggestions[i]);
	free(suggestions);
	if (!(wanted_by(inventories) & (CALLER_PYTHON | CALLER_STACK)))
		fprintf(stderr, "sublet: who allocated is not looked for; start the processes with 'sublet run --callers' to tell more apart\n");
	return status;
}
