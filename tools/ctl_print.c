/* tools/ctl_print.c
 * Tables and JSON of a session. What processes call themselves was made printable by the coordinator. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "tools/command.h"
#include "tools/ctl.h"
#include "tools/json.h"

bool ctl_is_meant(const struct ctl_filter *filter, const struct message_client *who)
{
	return (!filter->pid || filter->pid == who->pid) && (!filter->role || strcmp(filter->role, who->role) == 0);
}

const char *ctl_object_name(const struct policy *policy, uint32_t rule)
{
	return policy && rule < policy->rules_count ? policy_text(policy, policy->rules[rule].name) : PROTOCOL_EVERYTHING;
}

static const char *phase_name(const struct policy *policy, uint32_t phase, const char *none)
{
	return policy && phase < policy->phases_count ? policy_text(policy, policy->phases[phase].name) : none;
}

static json_t *json_phase(const struct policy *policy, uint32_t phase)
{
	return policy && phase < policy->phases_count ? json_text(phase_name(policy, phase, "")) : json_null();
}

struct sums {
	uint64_t count;
	uint64_t bytes[POLICY_RESIDENCY_COUNT];
};

static void add_row(struct sums *sums, const struct message_row *row)
{
	sums->count += row->count;
	for (int r = 0; r < POLICY_RESIDENCY_COUNT; r++)
		sums->bytes[r] += row->bytes[r];
}

static struct sums sums_of(const struct ctl_client *client)
{
	struct sums sums = {0};

	for (size_t i = 0; i < client->rows_count; i++)
		add_row(&sums, &client->rows[i]);
	return sums;
}

/* A hole is only ever found in a client that is held. */
static bool is_held(const struct sums *sums)
{
	return sums->bytes[POLICY_HOST] || sums->bytes[POLICY_EMPTY];
}

static void print_bytes(const uint64_t *bytes)
{
	for (int r = 0; r < POLICY_RESIDENCY_COUNT; r++) {
		char text[16];

		printf("  %11s", size_format(bytes[r], text, sizeof(text)));
	}
}

static void print_residencies(void)
{
	for (int r = 0; r < POLICY_RESIDENCY_COUNT; r++)
		printf("  %11s", policy_residency_text((enum policy_residency)r));
}

static json_t *json_bytes(const uint64_t *bytes)
{
	json_t *json = json_object();

	for (int r = 0; r < POLICY_RESIDENCY_COUNT; r++)
		json_object_set_new(json, policy_residency_text((enum policy_residency)r), json_integer((json_int_t)bytes[r]));
	return json;
}

static void uuid_text(const struct message_device *device, char *text, size_t room)
{
	const uint8_t *u = device->uuid;

	snprintf(text, room, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0], u[1], u[2], u[3], u[4],
		u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
}
enum { UUID_TEXT_BYTES = 41 };

/* "80.00 GiB", "60.5%", "-" where none is given */
static const char *amount_text(const struct policy_amount *amount, char *text, size_t room)
{
	if (amount->percent_hundredths)
		snprintf(text, room, "%g%%", amount->percent_hundredths / 100.0);
	else if (amount->bytes)
		size_format(amount->bytes, text, room);
	else
		snprintf(text, room, "-");
	return text;
}

/* {"bytes": N}, {"percent": P}, or null */
static json_t *json_amount(const struct policy_amount *amount)
{
	json_t *json = policy_amount_given(amount) ? json_object() : json_null();

	if (amount->percent_hundredths)
		json_object_set_new(json, "percent", json_real(amount->percent_hundredths / 100.0));
	else if (amount->bytes)
		json_object_set_new(json, "bytes", json_integer((json_int_t)amount->bytes));
	return json;
}

/* Of @role in the policy; all zero: none. */
static struct policy_amount budget_of(const struct policy *policy, const char *role)
{
	for (uint32_t i = 0; policy && i < policy->roles_count; i++)
		if (strcmp(policy_text(policy, policy->roles[i].name), role) == 0)
			return policy->roles[i].budget;
	return (struct policy_amount){0};
}

static void print_devices(const struct ctl_status *status)
{
	const struct policy_header *head = status->policy ? status->policy->header : NULL;
	char text[16], reserve[16], used[16], native[16], uuid[UUID_TEXT_BYTES];

	if (head && policy_amount_given(&head->capacity))
		printf("capacity     %s of each device, %s of it reserve\n", amount_text(&head->capacity, text, sizeof(text)),
			policy_amount_given(&head->reserve) ? amount_text(&head->reserve, reserve, sizeof(reserve)) : "none");
	for (size_t i = 0; i < status->devices_count; i++) {
		const struct message_device *device = &status->devices[i];

		uuid_text(device, uuid, sizeof(uuid));
		printf("device       %s: %s of %s in use, and %s native\n", uuid, size_format(device->used_bytes, used, sizeof(used)),
			size_format(device->capacity_bytes ? device->capacity_bytes : device->total_bytes, text, sizeof(text)),
			size_format(device->native_bytes, native, sizeof(native)));
	}
}

static void print_status_text(const struct ctl_status *status, const struct ctl_filter *filter)
{
	const struct message_session *head = &status->head;
	char used[16], cap[16], kept[16];
	size_t shown = 0;

	printf("session      %s\n", status->session);
	printf("coordinator  pid %d\n", (int)head->pid);
	printf("policy       %s\n", status->policy ? head->policy_name : "none: all allocations are '" PROTOCOL_EVERYTHING "'");
	if (status->policy)
		printf("phase        %s%s%s\n", phase_name(status->policy, head->phase, "none has begun"),
			head->to_phase == POLICY_NONE ? "" : ", and a barrier on the way to ",
			head->to_phase == POLICY_NONE ? "" : phase_name(status->policy, head->to_phase, "?"));
	printf("host pool    %s of %s in use, %s of them kept from processes that have ended\n",
		size_format(head->pool_used_bytes, used, sizeof(used)), size_format(head->pool_bytes, cap, sizeof(cap)),
		size_format(head->pool_kept_bytes, kept, sizeof(kept)));
	print_devices(status);
	for (size_t i = 0; i < status->clients_count; i++) {
		const struct ctl_client *client = &status->clients[i];
		struct sums sums = sums_of(client);
		struct policy_amount budget;
		char host[16], text[16];

		if (!ctl_is_meant(filter, &client->who))
			continue;
		if (shown++ == 0) {
			printf("\n%9s  %-15s  %-12s  %-5s", "pid", "process", "role", "held");
			print_residencies();
			printf("  %11s  %11s\n", "host pool", "budget");
		}
		printf("%9d  %-15s  %-12s  ", (int)client->who.pid, client->who.command, client->who.role[0] ? client->who.role : "-");
		if (client->who.answered) {
			printf("%-5s", is_held(&sums) ? "yes" : "no");
			print_bytes(sums.bytes);
		} else {
			printf("%-57s", "it does not say in time what it has");
		}
		budget = budget_of(status->policy, client->who.role);
		printf("  %11s  %11s\n", size_format(client->who.host_bytes, host, sizeof(host)), amount_text(&budget, text, sizeof(text)));
	}
	if (!shown)
		printf("\nno process has joined\n");
}

static json_t *json_or_null(uint64_t bytes)
{
	return bytes ? json_integer((json_int_t)bytes) : json_null();
}

/* @sums: of the session, else of one process. */
static json_t *json_devices(const struct message_device *devices, size_t count, bool sums)
{
	json_t *array = json_array();

	for (size_t i = 0; i < count; i++) {
		json_t *json = json_object();
		char uuid[UUID_TEXT_BYTES];

		uuid_text(&devices[i], uuid, sizeof(uuid));
		json_object_set_new(json, "uuid", json_text(uuid));
		if (sums) {
			json_object_set_new(json, "bytes", json_integer((json_int_t)devices[i].total_bytes));
			json_object_set_new(json, "capacity_bytes", json_or_null(devices[i].capacity_bytes));
			json_object_set_new(json, "reserve_bytes", json_integer((json_int_t)devices[i].reserve_bytes));
		} else {
			json_object_set_new(json, "budget_bytes", json_or_null(devices[i].budget_bytes));
		}
		json_object_set_new(json, "used_bytes", json_integer((json_int_t)devices[i].used_bytes));
		json_object_set_new(json, "credit_bytes", json_integer((json_int_t)devices[i].credit_bytes));
		json_object_set_new(json, "native_bytes", json_integer((json_int_t)devices[i].native_bytes));
		json_array_append_new(array, json);
	}
	return array;
}

static json_t *json_client(const struct policy *policy, const struct ctl_client *client)
{
	const struct policy_amount budget = budget_of(policy, client->who.role);
	struct sums sums = sums_of(client);
	json_t *json = json_object();

	json_object_set_new(json, "pid", json_integer(client->who.pid));
	json_object_set_new(json, "process", json_text(client->who.command));
	json_object_set_new(json, "role", client->who.role[0] ? json_text(client->who.role) : json_null());
	json_object_set_new(json, "answered", json_boolean(client->who.answered));
	json_object_set_new(json, "held", client->who.answered ? json_boolean(is_held(&sums)) : json_null());
	json_object_set_new(json, "bytes", client->who.answered ? json_bytes(sums.bytes) : json_null());
	json_object_set_new(json, "host_pool_bytes", json_integer((json_int_t)client->who.host_bytes));
	json_object_set_new(json, "budget", json_amount(&budget));
	json_object_set_new(json, "devices", json_devices(client->devices, client->devices_count, false));
	return json;
}

static json_t *json_status(const struct ctl_status *status, const struct ctl_filter *filter)
{
	const struct message_session *head = &status->head;
	json_t *json = json_object(), *pool = json_object(), *clients = json_array();

	json_object_set_new(json, "session", json_text(status->session));
	json_object_set_new(json, "coordinator", json_integer(head->pid));
	json_object_set_new(json, "policy", status->policy ? json_text(head->policy_name) : json_null());
	json_object_set_new(json, "phase", json_phase(status->policy, head->phase));
	json_object_set_new(json, "next_phase", json_phase(status->policy, head->to_phase));
	json_object_set_new(json, "phases_begun", json_integer((json_int_t)head->clock));
	json_object_set_new(pool, "bytes", json_integer((json_int_t)head->pool_bytes));
	json_object_set_new(pool, "used_bytes", json_integer((json_int_t)head->pool_used_bytes));
	json_object_set_new(pool, "kept_bytes", json_integer((json_int_t)head->pool_kept_bytes));
	json_object_set_new(json, "host_pool", pool);
	json_object_set_new(json, "capacity", status->policy ? json_amount(&status->policy->header->capacity) : json_null());
	json_object_set_new(json, "reserve", status->policy ? json_amount(&status->policy->header->reserve) : json_null());
	json_object_set_new(json, "devices", json_devices(status->devices, status->devices_count, true));
	for (size_t i = 0; i < status->clients_count; i++)
		if (ctl_is_meant(filter, &status->clients[i].who))
			json_array_append_new(clients, json_client(status->policy, &status->clients[i]));
	json_object_set_new(json, "clients", clients);
	return json;
}

int ctl_print_status(const struct ctl_status *status, const struct ctl_filter *filter, bool as_json)
{
	if (as_json)
		return json_print(json_status(status, filter));
	print_status_text(status, filter);
	return STATUS_GOOD;
}

/* ---- objects ---- */

struct shown_object {
	uint32_t rule;
	const char *role; /* NULL: nobody has any */
	struct sums sums;
};

static const char *class_of(const struct policy *policy, uint32_t rule)
{
	if (!policy || rule >= policy->rules_count)
		return policy_class_text(POLICY_CLASS_PERMANENT);
	if (policy->rules[rule].kind == POLICY_RULE_PINNED)
		return "pinned";
	return policy_class_text((enum policy_class)policy->rules[rule].class);
}

/* Sums over the processes that call themselves @role, of which @from is the first. */
static struct sums sum_role(const struct ctl_status *status, const struct ctl_filter *filter, size_t from, uint32_t rule)
{
	struct sums sums = {0};

	for (size_t i = from; i < status->clients_count; i++) {
		const struct ctl_client *client = &status->clients[i];

		if (!ctl_is_meant(filter, &client->who) || strcmp(client->who.role, status->clients[from].who.role) != 0)
			continue;
		for (size_t row = 0; row < client->rows_count; row++)
			if (client->rows[row].rule == rule)
				add_row(&sums, &client->rows[row]);
	}
	return sums;
}

static bool is_first_of_role(const struct ctl_status *status, const struct ctl_filter *filter, size_t at)
{
	if (!ctl_is_meant(filter, &status->clients[at].who))
		return false;
	for (size_t i = 0; i < at; i++)
		if (ctl_is_meant(filter, &status->clients[i].who) &&
			strcmp(status->clients[i].who.role, status->clients[at].who.role) == 0)
			return false;
	return true;
}

static void each_role(const struct ctl_status *status, const struct ctl_filter *filter, uint32_t rule, bool even_if_none,
	void (*show)(const struct ctl_status *status, const struct shown_object *object, void *arg), void *arg)
{
	bool any = false;

	for (size_t i = 0; i < status->clients_count; i++) {
		struct shown_object object = {.rule = rule, .role = status->clients[i].who.role};

		if (!is_first_of_role(status, filter, i))
			continue;
		object.sums = sum_role(status, filter, i, rule);
		if (!object.sums.count)
			continue;
		any = true;
		show(status, &object, arg);
	}
	if (!any && even_if_none)
		show(status, &(struct shown_object){.rule = rule}, arg);
}

static void each_object(const struct ctl_status *status, const struct ctl_filter *filter,
	void (*show)(const struct ctl_status *status, const struct shown_object *object, void *arg), void *arg)
{
	for (uint32_t rule = 0; status->policy && rule < status->policy->rules_count; rule++)
		each_role(status, filter, rule, true, show, arg);
	each_role(status, filter, PROTOCOL_ALL, !status->policy, show, arg);
}

static void print_object(const struct ctl_status *status, const struct shown_object *object, void *arg)
{
	printf("%-20s  %-11s  %-12s  %11" PRIu64, ctl_object_name(status->policy, object->rule), class_of(status->policy, object->rule),
		object->role && object->role[0] ? object->role : "-", object->sums.count);
	print_bytes(object->sums.bytes);
	putchar('\n');
}

static void append_object(const struct ctl_status *status, const struct shown_object *object, void *arg)
{
	json_t *json = json_object();

	json_object_set_new(json, "object", json_text(ctl_object_name(status->policy, object->rule)));
	json_object_set_new(json, "class", json_text(class_of(status->policy, object->rule)));
	json_object_set_new(json, "role", object->role && object->role[0] ? json_text(object->role) : json_null());
	json_object_set_new(json, "allocations", json_integer((json_int_t)object->sums.count));
	json_object_set_new(json, "bytes", json_bytes(object->sums.bytes));
	json_array_append_new(arg, json);
}

int ctl_print_objects(const struct ctl_status *status, const struct ctl_filter *filter, bool as_json)
{
	if (as_json) {
		json_t *json = json_array();

		each_object(status, filter, append_object, json);
		return json_print(json);
	}
	printf("%-20s  %-11s  %-12s  %11s", "object", "class", "role", "allocations");
	print_residencies();
	putchar('\n');
	each_object(status, filter, print_object, NULL);
	return STATUS_GOOD;
}
