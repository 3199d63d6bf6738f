/* lifecycle/client_inventory.c
 * The inventory of this process. Rows are copied under the lock into room that was made before; texts, which live for ever,
 * are looked up after it. */
#include "lifecycle/client_priv.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fcntl.h>

#include "base/clock.h"
#include "base/list.h"
#include "lifecycle/inventory.h"
#include "lifecycle/lifecycle.h"

_Static_assert(INVENTORY_NONE == RULE_NONE, "no rule is one number");

#define SEALS (F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* An inventory in the making. Sites are pointers until numbers are given to them. */
struct draft {
	struct inventory_header header;
	struct inventory_allocation *allocations;
	struct inventory_group *groups;
	const struct site **allocation_sites, **group_sites;
	const struct site **sites;
	size_t sites_capacity;
	const char **texts;
	size_t texts_count, texts_capacity;
	struct map site_numbers, text_offsets; /* plus 1, by pointer */
	bool failed; /* no memory */
};

static void release(struct draft *draft)
{
	free(draft->allocations);
	free(draft->groups);
	free(draft->allocation_sites);
	free(draft->group_sites);
	free(draft->sites);
	free(draft->texts);
	map_clear(&draft->site_numbers, NULL);
	map_clear(&draft->text_offsets, NULL);
}

static void copy_rows(const struct records *records, struct draft *draft)
{
	uint32_t i = 0;

	for (const struct allocation *a = records->live; a; a = a->next, i++) {
		draft->allocations[i] = (struct inventory_allocation){a->address, a->size_bytes, a->span_bytes, a->serial,
			a->since_ns, (uint32_t)a->device, a->rule, a->residency, INVENTORY_NONE};
		draft->allocation_sites[i] = a->site;
	}
	draft->header.allocations_count = i;
	i = 0;
	for (const struct history_group *g = records->history.oldest; g; g = g->newer, i++) {
		draft->groups[i] = (struct inventory_group){g->size_bytes, g->count, g->live, g->peak_live, g->first_serial,
			g->last_serial, g->first_ns, g->last_ns, g->freed, g->freed_lived_ns, (uint32_t)g->device, INVENTORY_NONE};
		draft->group_sites[i] = g->site;
	}
	draft->header.groups_count = i;
	draft->header.left_out = records->history.left_out;
}

static bool take_rows(struct records *records, struct draft *draft)
{
	size_t live = 0, groups = 0;

	for (;;) {
		bool fits;

		ranked_lock(&records->lock);
		fits = draft->allocations && records->live_count <= live && records->history.count <= groups;
		if (fits)
			copy_rows(records, draft);
		else {
			live = records->live_count + 64; /* more may come before it is asked again */
			groups = records->history.count + 64;
		}
		ranked_unlock(&records->lock);
		if (fits)
			return true;
		free(draft->allocations);
		free(draft->groups);
		free(draft->allocation_sites);
		free(draft->group_sites);
		draft->allocations = calloc(live, sizeof(*draft->allocations));
		draft->groups = calloc(groups, sizeof(*draft->groups));
		draft->allocation_sites = calloc(live, sizeof(struct site *));
		draft->group_sites = calloc(groups, sizeof(struct site *));
		if (!draft->allocations || !draft->groups || !draft->allocation_sites || !draft->group_sites)
			return false;
	}
}

static uint32_t text_offset(struct draft *draft, const char *text)
{
	uint64_t offset = text ? (uintptr_t)map_get(&draft->text_offsets, (uintptr_t)text) : 0;

	if (!text || draft->failed)
		return INVENTORY_NONE;
	if (offset)
		return (uint32_t)(offset - 1);
	offset = draft->header.texts_bytes;
	if (!list_room(&draft->texts, draft->texts_count, &draft->texts_capacity, sizeof(*draft->texts)) ||
		!map_put(&draft->text_offsets, (uintptr_t)text, (void *)(uintptr_t)(offset + 1))) {
		draft->failed = true;
		return INVENTORY_NONE;
	}
	draft->texts[draft->texts_count++] = text;
	draft->header.texts_bytes += (uint32_t)strlen(text) + 1;
	return (uint32_t)offset;
}

static uint32_t site_number(struct draft *draft, const struct site *site)
{
	uint64_t number = site ? (uintptr_t)map_get(&draft->site_numbers, (uintptr_t)site) : 0;

	if (!site || draft->failed)
		return INVENTORY_NONE;
	if (number)
		return (uint32_t)(number - 1);
	number = draft->header.sites_count;
	if (!list_room(&draft->sites, number, &draft->sites_capacity, sizeof(*draft->sites)) ||
		!map_put(&draft->site_numbers, (uintptr_t)site, (void *)(uintptr_t)(number + 1))) {
		draft->failed = true;
		return INVENTORY_NONE;
	}
	draft->sites[draft->header.sites_count++] = site;
	draft->header.frames_count += (uint32_t)site->stack_count + site->python_count;
	text_offset(draft, site->library[0]);
	text_offset(draft, site->library[1]);
	text_offset(draft, site->thread);
	text_offset(draft, site->tag);
	for (uint32_t i = 0; i < (uint32_t)site->stack_count + site->python_count; i++)
		text_offset(draft, site->frames[i]);
	return (uint32_t)number;
}

static void write_sites(struct draft *draft, struct inventory *to)
{
	uint32_t frame = 0;

	for (uint32_t i = 0; i < draft->header.sites_count; i++) {
		const struct site *site = draft->sites[i];
		struct inventory_site *row = (struct inventory_site *)&to->sites[i];

		*row = (struct inventory_site){
			.library = {text_offset(draft, site->library[0]), text_offset(draft, site->library[1])},
			.thread = text_offset(draft, site->thread),
			.tag = text_offset(draft, site->tag),
			.first_frame = frame,
			.stack_count = site->stack_count,
			.python_count = site->python_count,
		};
		for (uint32_t f = 0; f < (uint32_t)site->stack_count + site->python_count; f++)
			((uint32_t *)to->frames)[frame++] = text_offset(draft, site->frames[f]);
	}
}

/* The block, on the heap. NULL: no memory, or too large. */
static void *write_block(struct draft *draft)
{
	struct inventory_header *header;
	struct inventory to;
	char *text;

	for (uint32_t i = 0; i < draft->header.allocations_count; i++)
		draft->allocations[i].site = site_number(draft, draft->allocation_sites[i]);
	for (uint32_t i = 0; i < draft->header.groups_count; i++)
		draft->groups[i].site = site_number(draft, draft->group_sites[i]);
	draft->header.total_bytes = inventory_bytes(&draft->header);
	header = draft->failed || !draft->header.total_bytes ? NULL : calloc(1, draft->header.total_bytes);
	if (!header)
		return NULL;
	*header = draft->header;
	inventory_place(header, &to);
	memcpy((void *)to.allocations, draft->allocations, header->allocations_count * sizeof(*to.allocations));
	memcpy((void *)to.groups, draft->groups, header->groups_count * sizeof(*to.groups));
	write_sites(draft, &to);
	text = (char *)to.texts;
	for (size_t i = 0; i < draft->texts_count; i++)
		text = stpcpy(text, draft->texts[i]) + 1;
	return header;
}

/* A sealed file of the @bytes at @block; -1: none can be had. */
static int file_of(const char *block, uint64_t bytes)
{
	int fd = memfd_create("sublet-inventory", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	uint64_t written = 0;

	while (fd >= 0 && written < bytes) {
		ssize_t got = write(fd, block + written, bytes - written);

		if (got <= 0)
			break;
		written += (uint64_t)got;
	}
	if (fd >= 0 && (written < bytes || syscall(SYS_fcntl, fd, F_ADD_SEALS, SEALS))) { /* syscall: as in client.c */
		close(fd);
		fd = -1;
	}
	return fd;
}

void client_tell(struct lifecycle *lc, uint32_t connection, uint64_t serial)
{
	struct draft draft = {.header = {.magic = INVENTORY_MAGIC,
				      .version = INVENTORY_VERSION,
				      .header_bytes = sizeof(draft.header),
				      .now_ns = clock_now_ns(),
				      .caller_wants = __atomic_load_n(&lc->caller_wants, __ATOMIC_ACQUIRE)}};
	struct protocol_message message;
	void *block = take_rows(&lc->records, &draft) ? write_block(&draft) : NULL;
	int fd = block ? file_of(block, draft.header.total_bytes) : -1;

	protocol_begin(&message, PROTOCOL_TOLD, serial);
	message.told.bytes = fd >= 0 ? draft.header.total_bytes : 0;
	ranked_lock(&lc->client.lock);
	client_send(&lc->client, connection, &message, fd);
	ranked_unlock(&lc->client.lock);
	if (fd >= 0)
		close(fd);
	free(block);
	release(&draft);
}
