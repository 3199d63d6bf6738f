/* tools/inventories.c
 * The list of allocations of each process: asked for, read, shown. */
#include "tools/inventories.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/size.h"
#include "base/text.h"
#include "lifecycle/callers/wants.h"
#include "policy/glob.h"
#include "tools/command.h"
#include "tools/json.h"

#define GATHER_WAIT_NS (30000 * CLOCK_NS_PER_MS) /* the coordinator waits 2 s for each; there may be many */

/* Read, not mapped: whoever wrote it could cut it short under a mapping. */
static void *read_block(int fd, uint64_t bytes)
{
	char *block = malloc(bytes);
	uint64_t used = 0;

	while (block && used < bytes) {
		ssize_t got = pread(fd, block + used, bytes - used, (off_t)used);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			break;
		used += (uint64_t)got;
	}
	if (used < bytes) {
		free(block);
		return NULL;
	}
	return block;
}

/* Texts of other processes on their way to a terminal. */
static void make_printable(struct client_inventory *client)
{
	char *text = (char *)client->inventory.texts, *end = text + client->inventory.header->texts_bytes;

	for (; text < end; text += strlen(text) + 1)
		text_make_printable(text);
}

static int add(struct inventories *to, const struct message_inventory *message, int fd)
{
	struct client_inventory *clients = realloc(to->clients, (to->clients_count + 1) * sizeof(*clients)), *client;
	struct errinfo error = {.text = "it cannot be read; ask again"};

	if (!clients)
		return fail(STATUS_BAD, "out of memory; try again");
	to->clients = clients;
	client = &clients[to->clients_count++];
	*client = (struct client_inventory){.who = message->client};
	if (fd < 0)
		return STATUS_GOOD;
	client->bytes = read_block(fd, message->bytes);
	if (!client->bytes || inventory_open(client->bytes, message->bytes, &client->inventory, &error) != SUBLET_OK)
		return fail(STATUS_BAD, "the list of pid %d: %s", (int)client->who.pid, error.text);
	make_printable(client);
	return STATUS_GOOD;
}

int inventories_gather(struct session_link *link, const struct ctl_filter *filter, struct inventories *ret)
{
	struct protocol_message message;
	int status = STATUS_GOOD, fd;

	*ret = (struct inventories){.policy = link->bytes ? &link->policy : NULL};
	protocol_begin(&message, PROTOCOL_ASK_INVENTORY, 0);
	if (!session_link_ask(link, &message))
		return STATUS_BAD;
	while (!status) {
		if (!session_link_next_with(link, GATHER_WAIT_NS, &message, &fd))
			return STATUS_BAD;
		if (message.header.type == PROTOCOL_INVENTORY && ctl_is_meant(filter, &message.inventory.client))
			status = add(ret, &message.inventory, fd);
		if (fd >= 0)
			close(fd);
		if (message.header.type == PROTOCOL_END)
			return message.end.error ? fail(STATUS_BAD, "%s", message.end.text) : STATUS_GOOD;
	}
	return status;
}

void inventories_release(struct inventories *inventories)
{
	for (size_t i = 0; i < inventories->clients_count; i++)
		free(inventories->clients[i].bytes);
	free(inventories->clients);
}

/* ---- frames ---- */

/* What stands between an operation and whoever wanted its result, in every stack alike: it tells nothing. */
static const char *const machinery[] = {
	"*/torch/nn/modules/module.py:Module._call_impl", "*/torch/nn/modules/module.py:Module._wrapped_call_impl",
	"*/torch/nn/modules/module.py:_call_impl", "*/torch/nn/modules/module.py:_wrapped_call_impl",
	"*/torch/nn/modules/module.py:*Module._apply", "*/torch/utils/_contextlib.py:*", "*/torch/_tensor.py:*",
	"*/torch/nn/functional.py:*", "*/torch/_ops.py:*", "*/torch/autograd/*", "*/torch/_dynamo/*", "*/torch/_inductor/*",
	"*/functools.py:*", "*/contextlib.py:*", "*/threading.py:*", "<frozen *", "*<lambda>", "*<listcomp>", "*<dictcomp>", "*<setcomp>",
	"*<genexpr>", "libcuda.so*", "libcudart*", "libc10*", "libtorch*", "libc.so*", "libstdc++*", "libpython*", "python*",
	"*:`?`"};

static bool is_machinery(const char *frame)
{
	for (size_t i = 0; i < sizeof(machinery) / sizeof(machinery[0]); i++)
		if (glob_matches(machinery[i], frame))
			return true;
	return false;
}

static const char *telling_of(const struct inventory *inventory, uint32_t first, uint32_t count,
	bool (*skips)(const void *arg, const char *frame), const void *arg)
{
	for (uint32_t i = 0; i < count; i++) {
		const char *frame = inventory_text(inventory, inventory->frames[first + i]);

		if (!is_machinery(frame) && !(skips && skips(arg, frame)))
			return frame;
	}
	return count ? inventory_text(inventory, inventory->frames[first]) : NULL;
}

const char *inventory_telling_frame(const struct inventory *inventory, uint32_t site, bool (*skips)(const void *arg, const char *frame),
	const void *arg, bool *ret_is_python)
{
	const struct inventory_site *row = site == INVENTORY_NONE ? NULL : &inventory->sites[site];
	bool is_python = row && row->python_count;

	if (ret_is_python)
		*ret_is_python = is_python;
	if (!row)
		return NULL;
	return is_python ? telling_of(inventory, row->first_frame + row->stack_count, row->python_count, skips, arg)
			 : telling_of(inventory, row->first_frame, row->stack_count, skips, arg);
}

/* ---- shown ---- */

static int by_order(const void *a, const void *b)
{
	const struct inventory_allocation *left = a, *right = b;

	return left->serial < right->serial ? -1 : left->serial > right->serial;
}

/* One line's worth of who made it. */
static const char *maker_of(const struct inventory *inventory, uint32_t site)
{
	const struct inventory_site *row = site == INVENTORY_NONE ? NULL : &inventory->sites[site];
	const char *text = inventory_telling_frame(inventory, site, NULL, NULL, NULL);

	if (!text && row)
		text = inventory_text(inventory, row->library[1] != INVENTORY_NONE ? row->library[1] : row->library[0]);
	if (!text && row)
		text = inventory_text(inventory, row->thread);
	return text ? text : "-";
}

static void print_client(const struct inventories *all, const struct client_inventory *client)
{
	const struct inventory *inventory = &client->inventory;

	printf("pid %d (%s%s%s)\n", (int)client->who.pid, client->who.command, client->who.role[0] ? ", " : "", client->who.role);
	if (!client->bytes) {
		printf("  it does not say in time what it has\n");
		return;
	}
	printf("%8s  %-14s  %11s  %-9s  %-20s  %s\n", "order", "address", "bytes", "residency", "object", "from");
	for (uint32_t i = 0; i < inventory->header->allocations_count; i++) {
		const struct inventory_allocation *row = &inventory->allocations[i];
		char bytes[16];

		printf("%8" PRIu64 "  0x%-12" PRIx64 "  %11s  %-9s  %-20s  %s\n", row->serial, row->address,
			size_format(row->size_bytes, bytes, sizeof(bytes)),
			policy_residency_text((enum policy_residency)row->residency), ctl_object_name(all->policy, row->rule),
			maker_of(inventory, row->site));
	}
}

static json_t *json_or_null(const char *text)
{
	return text ? json_text(text) : json_null();
}

static json_t *json_frames(const struct inventory *inventory, uint32_t first, uint32_t count)
{
	json_t *json = json_array();

	for (uint32_t i = 0; i < count; i++)
		json_array_append_new(json, json_text(inventory_text(inventory, inventory->frames[first + i])));
	return json;
}

static void set_site(json_t *json, const struct inventory *inventory, uint32_t site)
{
	const struct inventory_site none = {{INVENTORY_NONE, INVENTORY_NONE}, INVENTORY_NONE, INVENTORY_NONE, 0, 0, 0, 0},
				    *row = site == INVENTORY_NONE ? &none : &inventory->sites[site];
	json_t *libraries = json_array();

	for (int i = 0; i < 2; i++)
		if (row->library[i] != INVENTORY_NONE)
			json_array_append_new(libraries, json_text(inventory_text(inventory, row->library[i])));
	json_object_set_new(json, "library", libraries);
	json_object_set_new(json, "thread", json_or_null(inventory_text(inventory, row->thread)));
	json_object_set_new(json, "tag", json_or_null(inventory_text(inventory, row->tag)));
	json_object_set_new(json, "stack", json_frames(inventory, row->first_frame, row->stack_count));
	json_object_set_new(json, "python", json_frames(inventory, row->first_frame + row->stack_count, row->python_count));
}

static json_t *json_allocation(const struct inventories *all, const struct inventory *inventory,
	const struct inventory_allocation *row)
{
	json_t *json = json_object();
	char address[24];

	snprintf(address, sizeof(address), "0x%" PRIx64, row->address);
	json_object_set_new(json, "address", json_string(address));
	json_object_set_new(json, "bytes", json_integer((json_int_t)row->size_bytes));
	json_object_set_new(json, "mapped_bytes", json_integer((json_int_t)row->span_bytes));
	json_object_set_new(json, "object",
		all->policy && row->rule != INVENTORY_NONE ? json_text(ctl_object_name(all->policy, row->rule)) : json_null());
	json_object_set_new(json, "residency", json_string(policy_residency_text((enum policy_residency)row->residency)));
	json_object_set_new(json, "device", json_integer(row->device));
	json_object_set_new(json, "order", json_integer((json_int_t)row->serial));
	json_object_set_new(json, "age_seconds",
		json_real(row->since_ns < inventory->header->now_ns ? (double)(inventory->header->now_ns - row->since_ns) / 1e9 : 0));
	set_site(json, inventory, row->site);
	return json;
}

static json_t *json_client(const struct inventories *all, const struct client_inventory *client)
{
	json_t *json = json_object(), *rows = json_array();

	json_object_set_new(json, "pid", json_integer(client->who.pid));
	json_object_set_new(json, "process", json_text(client->who.command));
	json_object_set_new(json, "role", client->who.role[0] ? json_text(client->who.role) : json_null());
	json_object_set_new(json, "answered", json_boolean(client->bytes != NULL));
	for (uint32_t i = 0; client->bytes && i < client->inventory.header->allocations_count; i++)
		json_array_append_new(rows, json_allocation(all, &client->inventory, &client->inventory.allocations[i]));
	json_object_set_new(json, "allocations", rows);
	return json;
}

int inventories_print(const struct inventories *inventories, bool as_json)
{
	json_t *json = as_json ? json_array() : NULL;

	for (size_t i = 0; i < inventories->clients_count; i++) {
		const struct client_inventory *client = &inventories->clients[i];

		if (client->bytes)
			qsort((void *)client->inventory.allocations, client->inventory.header->allocations_count,
				sizeof(struct inventory_allocation), by_order);
		if (as_json)
			json_array_append_new(json, json_client(inventories, client));
		else
			print_client(inventories, client);
	}
	if (as_json)
		return json_print(json);
	if (!inventories->clients_count)
		printf("no process has joined\n");
	return STATUS_GOOD;
}
