/* tools/trace_groups.c
 * Who allocated is told by a row of its own right behind that of the allocation, so an allocation is counted when the next one of its
 * process comes. */
#include "tools/trace_groups.h"

#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "lifecycle/callers/wants.h"

/* A process's user: the allocation that was met last and is not counted yet. */
struct pending {
	bool is_there;
	uint64_t serial, size_bytes, time_ns;
	uint32_t site, object, phase, device;
};

struct gathering {
	struct trace_groups *groups;
	struct trace_model *model;
	bool failed;
};

/* Rows are few against events; those of one key are a chain in the map's place of its hash. */
static uint64_t key_of(const struct trace_process *process, uint64_t size_bytes, uint32_t site, uint32_t device)
{
	uint64_t key = (uint64_t)process->source->number * 0x9e3779b97f4a7c15ull + size_bytes;

	key = (key ^ key >> 29) * 0xbf58476d1ce4e5b9ull + site;
	return (key ^ key >> 32) * 0x94d049bb133111ebull + device;
}

static struct trace_group *find(struct gathering *in, const struct trace_process *process, uint64_t size_bytes, uint32_t site,
	uint32_t device, bool makes)
{
	struct trace_groups *all = in->groups;
	uint64_t key = key_of(process, size_bytes, site, device);
	size_t at;

	/* another key of that hash lies one further */
	for (; (at = (size_t)(uintptr_t)map_get(&all->by_key, key)); key++) {
		struct trace_group *group = &all->groups[at - 1];

		if (group->process == process && group->counts.size_bytes == size_bytes && group->site == site && group->counts.device == device)
			return group;
	}
	if (!makes)
		return NULL;
	if (!list_room(&all->groups, all->count, &all->room, sizeof(*all->groups)) ||
		!map_put(&all->by_key, key, (void *)(uintptr_t)(all->count + 1))) {
		in->failed = true;
		return NULL;
	}
	all->groups[all->count] = (struct trace_group){.process = process, .site = site};
	all->groups[all->count].counts = (struct inventory_group){.size_bytes = size_bytes, .device = device, .site = INVENTORY_NONE};
	return &all->groups[all->count++];
}

static void commit(struct gathering *in, struct trace_process *process)
{
	struct pending *pending = process->user;
	struct trace_group *group;
	struct inventory_group *counts;

	if (!pending || !pending->is_there)
		return;
	pending->is_there = false;
	group = find(in, process, pending->size_bytes, pending->site, pending->device, true);
	if (!group)
		return;
	counts = &group->counts;
	if (!counts->count++) {
		counts->first_serial = pending->serial;
		counts->first_ns = pending->time_ns;
	}
	counts->last_serial = pending->serial;
	counts->last_ns = pending->time_ns;
	if (++counts->live > counts->peak_live)
		counts->peak_live = counts->live;
	group->object = pending->object;
	group->phases |= pending->phase < 64 ? 1ull << pending->phase : 0;
}

static void allocated(struct gathering *in, const struct trace_event_view *event)
{
	struct trace_process *process = event->process;
	struct pending *pending = process->user;

	if (!pending)
		process->user = pending = calloc(1, sizeof(*pending));
	if (!pending) {
		in->failed = true;
		return;
	}
	commit(in, process);
	*pending = (struct pending){true, event->row->allocation, event->live->requested_bytes, event->time_ns, TRACE_NO_TEXT,
		event->series->object, event->phase, event->row->device};
}

static void freed(struct gathering *in, const struct trace_event_view *event)
{
	const struct trace_live *live = event->live;
	struct trace_group *group;

	commit(in, event->process);
	group = find(in, event->process, live->requested_bytes, live->site, event->row->device, false);
	if (!group || !group->counts.live)
		return;
	group->counts.live--;
	group->counts.freed++;
	group->counts.freed_lived_ns += event->time_ns - live->since_ns;
}

static void take_event(struct gathering *in, const struct trace_event_view *event)
{
	struct pending *pending = event->process->user;

	/* an allocation of which only a later row is left is one too */
	if (event->live && event->live->since_ns == event->time_ns && event->series && event->event != TRACE_FREE)
		allocated(in, event);
	else if (event->event == TRACE_SITE && pending && pending->is_there && pending->serial == event->row->allocation)
		pending->site = event->row->object;
	else if (event->event == TRACE_OBJECT && event->live) {
		struct trace_group *group;

		commit(in, event->process);
		group = find(in, event->process, event->live->requested_bytes, event->live->site, event->row->device, false);
		if (group)
			group->object = event->series->object;
	} else if (event->event == TRACE_FREE && event->live)
		freed(in, event);
}

bool trace_groups_take(struct trace_groups *groups, struct trace_model *model)
{
	struct gathering in = {.groups = groups, .model = model};
	struct trace_event_view event;

	memset(groups, 0, sizeof(*groups));
	while (!in.failed && trace_model_next(model, &event))
		take_event(&in, &event);
	for (size_t i = 0; i < model->processes_count; i++)
		commit(&in, model->processes[i]);
	return !in.failed && !model->out_of_memory;
}

void trace_groups_release(struct trace_groups *groups)
{
	free(groups->groups);
	map_clear(&groups->by_key, NULL);
	memset(groups, 0, sizeof(*groups));
}

/* ---- as an inventory ---- */

static const struct {
	const char *word;
	unsigned want; /* enum caller_wants */
} line_kinds[] = {{"library: ", CALLER_LIBRARY}, {"thread: ", CALLER_THREAD}, {"tag: ", CALLER_TAG}, {"stack: ", CALLER_STACK},
	{"python: ", CALLER_PYTHON}};

enum { LINE_KINDS = sizeof(line_kinds) / sizeof(line_kinds[0]) };

/* The line at @line: what it tells (0: nothing that is known here) and its value, of *ret_bytes. Returns where the next begins. */
static const char *read_line(const char *line, unsigned *ret_want, const char **ret_value, size_t *ret_bytes)
{
	const char *line_end = line + strcspn(line, "\n");

	*ret_want = 0;
	for (size_t k = 0; k < LINE_KINDS; k++) {
		const size_t length = strlen(line_kinds[k].word);

		if (strncmp(line, line_kinds[k].word, length) == 0) {
			*ret_want = line_kinds[k].want;
			*ret_value = line + length;
			*ret_bytes = (size_t)(line_end - *ret_value);
		}
	}
	return *line_end ? line_end + 1 : line_end;
}

struct filling {
	struct inventory inventory;
	struct inventory_header *header; /* of the counts that are used up so far */
	uint32_t frames, texts;
};

/* Room for everything that @text says. */
static void measure(const char *text, struct inventory_header *header)
{
	const char *value;
	size_t bytes;
	unsigned want;

	header->sites_count++;
	while (*text) {
		text = read_line(text, &want, &value, &bytes);
		if (!want)
			continue;
		header->caller_wants |= want;
		header->texts_bytes += (uint32_t)bytes + 1;
		header->frames_count += want == CALLER_STACK || want == CALLER_PYTHON;
	}
}

static void fill_site(struct filling *to, struct inventory_site *site, const char *text)
{
	const char *value;
	size_t bytes;
	unsigned want;

	*site = (struct inventory_site){{INVENTORY_NONE, INVENTORY_NONE}, INVENTORY_NONE, INVENTORY_NONE, to->frames, 0, 0, 0};
	while (*text) {
		const uint32_t offset = to->texts;

		text = read_line(text, &want, &value, &bytes);
		if (!want)
			continue;
		memcpy((char *)to->inventory.texts + offset, value, bytes);
		to->texts += (uint32_t)bytes + 1;
		if (want == CALLER_LIBRARY)
			site->library[site->library[0] != INVENTORY_NONE] = offset;
		else if (want == CALLER_THREAD)
			site->thread = offset;
		else if (want == CALLER_TAG)
			site->tag = offset;
		else {
			((uint32_t *)to->inventory.frames)[to->frames++] = offset;
			site->stack_count += want == CALLER_STACK;
			site->python_count += want == CALLER_PYTHON;
		}
	}
}

static bool fill_client(const struct trace_groups *groups, const struct trace_process *process, struct client_inventory *client)
{
	struct inventory_header header = {.magic = INVENTORY_MAGIC, .version = INVENTORY_VERSION, .header_bytes = sizeof(header)};
	struct filling to = {0};
	uint64_t bytes;
	uint32_t group_number = 0, site_number = 0;

	for (size_t i = 0; i < groups->count; i++) {
		if (groups->groups[i].process != process)
			continue;
		header.groups_count++;
		if (groups->groups[i].site != TRACE_NO_TEXT)
			measure(trace_model_site(process, groups->groups[i].site), &header);
	}
	bytes = inventory_bytes(&header);
	client->bytes = bytes ? calloc(1, bytes) : NULL;
	if (!client->bytes)
		return false;
	header.total_bytes = bytes;
	memcpy(client->bytes, &header, sizeof(header));
	inventory_place(client->bytes, &client->inventory);
	to.inventory = client->inventory;
	for (size_t i = 0; i < groups->count; i++) {
		struct inventory_group *group;

		if (groups->groups[i].process != process)
			continue;
		group = (struct inventory_group *)&to.inventory.groups[group_number++];
		*group = groups->groups[i].counts;
		if (groups->groups[i].site == TRACE_NO_TEXT)
			continue;
		group->site = site_number;
		fill_site(&to, (struct inventory_site *)&to.inventory.sites[site_number++], trace_model_site(process, groups->groups[i].site));
	}
	return true;
}

/* The process's name as a thread has it: what of the command its first word's file is called. */
static void name_command(const char *command, char *name, size_t room)
{
	const size_t length = strcspn(command, " ");
	size_t at = length;

	while (at > 0 && command[at - 1] != '/')
		at--;
	for (size_t i = 0; i < 15 && i < room - 1 && at + i < length; i++)
		name[i] = command[at + i];
}

bool trace_groups_as_inventories(const struct trace_groups *groups, const struct trace_model *model, struct inventories *ret)
{
	*ret = (struct inventories){0};
	ret->clients = calloc(model->processes_count, sizeof(*ret->clients));
	if (!ret->clients)
		return false;
	for (size_t i = 0; i < model->processes_count; i++) {
		const struct trace_process *process = model->processes[i];
		struct client_inventory *client = &ret->clients[ret->clients_count];

		if (process->is_coordinator)
			continue;
		ret->clients_count++;
		client->who.pid = process->source->file.header.pid;
		client->who.answered = 1;
		protocol_text(client->who.role, sizeof(client->who.role), process->role);
		name_command(process->source->file.header.command, client->who.command, sizeof(client->who.command));
		if (!fill_client(groups, process, client))
			return false;
	}
	return true;
}
