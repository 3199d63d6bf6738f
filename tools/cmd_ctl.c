/* tools/cmd_ctl.c
 * `sublet ctl`: asks the coordinator of a session, and has it pass orders to the processes. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/size.h"
#include "tools/command.h"
#include "tools/ctl.h"
#include "tools/inventories.h"
#include "tools/json.h"
#include "tools/session_dir.h"

#define STATUS_WAIT_NS (30000 * CLOCK_NS_PER_MS) /* the coordinator gathers for 2 s; it may have many to ask */
#define SERVE_WAIT_NS (3600ull * 1000000000ull)	 /* it answers for who is late; this is for its own end */

static const char help[] =
	"usage: sublet ctl [OPTION...] VERB [OBJECT...]\n"
	"\n"
	"Says what the processes of a session have where, and tells them to move it; serving processes go on by themselves.\n"
	"\n"
	"verbs:\n"
	"  status             the processes: role, what they have in each residency, whether they are held, their budget;\n"
	"                     what the session uses of each device, and its capacity\n"
	"  objects            the objects of the policy: class, role, allocations, bytes in each residency;\n"
	"                     with --allocations each of these and who made it; with --suggest a start for a policy\n"
	"  offload OBJECT...  to the host pool, nothing stays mapped; the process is held, and wakes when it launches\n"
	"  park OBJECT...     to the host pool, mapped at the same addresses; the process goes on, slower\n"
	"  restore OBJECT...  back to the device\n"
	"  discard OBJECT...  pages go without a copy, where the policy allows it\n"
	"  stop               end the coordinator; processes go on as they are\n"
	"\n"
	"options:\n"
	"      --session NAME  the session: a name, or a folder (with a slash in it); default: 'default'\n"
	"      --all           all objects, in place of naming them\n"
	"      --allocations   objects: every allocation by itself\n"
	"      --suggest       objects: rules that tell apart what was allocated so far (better with 'sublet run --callers')\n"
	"      --role ROLE     only in processes of this role\n"
	"      --pid PID       only in this process\n"
	"      --timeout SECS  give up when a process cannot be held within it (default: the policy's barrier timeout, or 60)\n"
	"      --json          the same as JSON, for programs\n"
	"  -h, --help          this text\n"
	"\n"
	"Exit status: 0 all did it, 1 one refused or nobody was there, 2 wrong usage.\n"
	"\n"
	"environment:\n"
	"  SUBLET_SESSION  used where --session is not given\n"
	"\n"
	"example:\n"
	"  sublet ctl park kv_cache --role rollout\n";

/* The four that move come first, in the order of enum protocol_verb. */
static const char *const verbs[] = {"offload", "park", "restore", "discard", "status", "objects", "stop", NULL};
enum { VERB_STATUS = VERB_COUNT, VERB_OBJECTS, VERB_STOP, VERBS };
enum { ROLES_NAMED = 64 /* of processes, that an unknown one is compared with */ };

struct options {
	const char *session;
	struct ctl_filter filter;
	bool all, json, allocations, suggest;
	uint64_t timeout_ns; /* 0: not given */
	int verb;
	char **objects;
	int objects_count;
};

static int parse_verb(char *word, struct options *options)
{
	const char *near;

	for (options->verb = 0; verbs[options->verb]; options->verb++)
		if (strcmp(word, verbs[options->verb]) == 0)
			return STATUS_GOOD;
	near = nearest_word(word, verbs);
	if (near)
		return fail(STATUS_USAGE, "unknown verb '%s'; did you mean 'sublet ctl %s'?", word, near);
	return fail(STATUS_USAGE, "unknown verb '%s'; see 'sublet ctl -h'", word);
}

static int check_words(const struct options *options)
{
	const char *verb = verbs[options->verb];

	if (options->verb != VERB_OBJECTS && (options->allocations || options->suggest))
		return fail(STATUS_USAGE, "'%s' goes with 'sublet ctl objects', not with '%s'",
			options->allocations ? "--allocations" : "--suggest", verb);
	if (options->suggest && (options->allocations || options->json))
		return fail(STATUS_USAGE, "'--suggest' prints a policy; leave out '%s'", options->json ? "--json" : "--allocations");
	if (options->verb >= VERB_COUNT && (options->objects_count || options->all))
		return fail(STATUS_USAGE, "'sublet ctl %s' takes no objects; leave them out", verb);
	if (options->verb >= VERB_COUNT)
		return STATUS_GOOD;
	if (options->all && options->objects_count)
		return fail(STATUS_USAGE, "'--all' and objects contradict each other; leave one out");
	if (!options->all && !options->objects_count)
		return fail(STATUS_USAGE, "no object to %s; name some, as 'sublet ctl objects' lists them, or write --all", verb);
	if (options->objects_count > PROTOCOL_RULES_MAX)
		return fail(STATUS_USAGE, "more than %d objects at once; name fewer, or write --all", PROTOCOL_RULES_MAX);
	return STATUS_GOOD;
}

/* Options may stand before and behind the verb. Returns -1 to go on, else the exit status. */
static int parse(int argc, char **argv, struct options *options)
{
	static const struct option known[] = {
		{"session", required_argument, NULL, 's'},
		{"all", no_argument, NULL, 'a'},
		{"allocations", no_argument, NULL, 'A'},
		{"suggest", no_argument, NULL, 'S'},
		{"role", required_argument, NULL, 'r'},
		{"pid", required_argument, NULL, 'p'},
		{"timeout", required_argument, NULL, 't'},
		{"json", no_argument, NULL, 'j'},
		{"help", no_argument, NULL, 'h'},
		{0},
	};
	int got, status;
	double number;

	opterr = 0;
	while ((got = getopt_long(argc, argv, ":h", known, NULL)) != -1) {
		switch (got) {
		case 's':
			options->session = optarg;
			break;
		case 'a':
			options->all = true;
			break;
		case 'A':
			options->allocations = true;
			break;
		case 'S':
			options->suggest = true;
			break;
		case 'r':
			options->filter.role = optarg;
			break;
		case 'p':
			if (!command_number(optarg, 1, INT32_MAX, &number) || number != (int)number)
				return fail(STATUS_USAGE, "'%s' is no process id; see 'sublet ctl -h'", optarg);
			options->filter.pid = (int)number;
			break;
		case 't':
			if (!command_number(optarg, 0.001, 86400, &number))
				return fail(STATUS_USAGE, "'%s' is no time in seconds; see 'sublet ctl -h'", optarg);
			options->timeout_ns = (uint64_t)(number * 1e9);
			break;
		case 'j':
			options->json = true;
			break;
		case 'h':
			fputs(help, stdout);
			return STATUS_GOOD;
		default:
			return fail_option("ctl", got, argv, known);
		}
	}
	if (optind == argc)
		return fail(STATUS_USAGE, "no verb; try 'sublet ctl status', or see 'sublet ctl -h'");
	status = parse_verb(argv[optind], options);
	options->objects = argv + optind + 1;
	options->objects_count = argc - optind - 1;
	if (!status)
		status = check_words(options);
	return status ? status : -1;
}

/* ---- status ---- */

static void status_release(struct ctl_status *status)
{
	for (size_t i = 0; i < status->clients_count; i++) {
		free(status->clients[i].rows);
		free(status->clients[i].devices);
	}
	free(status->clients);
	free(status->devices);
}

static bool add_client(struct ctl_status *status, const struct message_client *who)
{
	struct ctl_client *clients = realloc(status->clients, (status->clients_count + 1) * sizeof(*clients));

	if (!clients)
		return false;
	status->clients = clients;
	clients[status->clients_count++] = (struct ctl_client){.who = *who};
	return true;
}

static bool add_rows(struct ctl_status *status, const struct message_listed *listed)
{
	struct ctl_client *client;
	struct message_row *rows;

	if (!status->clients_count || !listed->count)
		return status->clients_count > 0;
	client = &status->clients[status->clients_count - 1];
	rows = realloc(client->rows, (client->rows_count + listed->count) * sizeof(*rows));
	if (!rows)
		return false;
	memcpy(rows + client->rows_count, listed->rows, listed->count * sizeof(*rows));
	client->rows = rows;
	client->rows_count += listed->count;
	return true;
}

/* Of the client before, or before the first of the session. */
static bool add_device(struct ctl_status *status, const struct message_device *device)
{
	struct ctl_client *client = status->clients_count ? &status->clients[status->clients_count - 1] : NULL;
	struct message_device **list = client ? &client->devices : &status->devices, *longer;
	size_t *count = client ? &client->devices_count : &status->devices_count;

	longer = realloc(*list, (*count + 1) * sizeof(*longer));
	if (!longer)
		return false;
	*list = longer;
	longer[(*count)++] = *device;
	return true;
}

static int end_of(const struct message_end *end)
{
	return end->error ? fail(STATUS_BAD, "%s", end->text) : STATUS_GOOD;
}

static int gather(struct session_link *link, const char *session, struct ctl_status *status)
{
	struct protocol_message message;
	bool good = true;

	*status = (struct ctl_status){.session = session, .policy = link->bytes ? &link->policy : NULL};
	protocol_begin(&message, PROTOCOL_ASK_STATUS, 0);
	if (!session_link_ask(link, &message))
		return STATUS_BAD;
	while (good && session_link_next(link, STATUS_WAIT_NS, &message)) {
		if (message.header.type == PROTOCOL_END)
			return end_of(&message.end);
		if (message.header.type == PROTOCOL_SESSION)
			status->head = message.session;
		else if (message.header.type == PROTOCOL_CLIENT)
			good = add_client(status, &message.client);
		else if (message.header.type == PROTOCOL_DEVICE)
			good = add_device(status, &message.device);
		else if (message.header.type == PROTOCOL_OBJECTS)
			good = add_rows(status, &message.listed);
	}
	return good ? STATUS_BAD : fail(STATUS_BAD, "out of memory; try again");
}

static bool is_among(const char *const *words, const char *word)
{
	while (*words && strcmp(*words, word) != 0)
		words++;
	return *words;
}

/* Is the role one of the policy or of a process? Else the nearest. */
static int check_role(const struct ctl_status *status, const char *role)
{
	const char *words[POLICY_ROLES_MAX + ROLES_NAMED + 1] = {NULL}, *near;
	size_t count = 0;

	for (uint32_t i = 0; status->policy && i < status->policy->roles_count; i++)
		words[count++] = policy_text(status->policy, status->policy->roles[i].name);
	for (size_t i = 0; i < status->clients_count; i++) {
		const char *word = status->clients[i].who.role;

		if (strcmp(word, role) == 0)
			return STATUS_GOOD;
		if (*word && !is_among(words, word) && count < POLICY_ROLES_MAX + ROLES_NAMED)
			words[count++] = word;
	}
	if (is_among(words, role))
		return STATUS_GOOD;
	near = nearest_word(role, words);
	if (near)
		return fail(STATUS_USAGE, "unknown role '%s'; did you mean '%s'?", role, near);
	return fail(STATUS_USAGE, "unknown role '%s'; 'sublet ctl status' lists those that are there", role);
}

static int check_filter(const struct ctl_status *status, const struct ctl_filter *filter)
{
	int code = filter->role ? check_role(status, filter->role) : STATUS_GOOD;

	if (code || !filter->pid)
		return code;
	for (size_t i = 0; i < status->clients_count; i++)
		if (status->clients[i].who.pid == filter->pid)
			return STATUS_GOOD;
	return fail(STATUS_BAD, "no process %d in the session; 'sublet ctl status' lists those that are there", filter->pid);
}

/* ---- moving ---- */

static int find_object(const struct policy *policy, const char *name, uint32_t *ret_rule)
{
	const char *words[POLICY_RULES_MAX + 1], *near;
	uint32_t count = policy ? policy->rules_count : 0;

	for (uint32_t i = 0; i < count; i++) {
		words[i] = ctl_object_name(policy, i);
		if (strcmp(words[i], name) == 0) {
			*ret_rule = i;
			return STATUS_GOOD;
		}
	}
	if (!policy) {
		words[count++] = PROTOCOL_EVERYTHING;
		if (strcmp(name, PROTOCOL_EVERYTHING) == 0)
			return STATUS_GOOD;
	}
	words[count] = NULL;
	near = nearest_word(name, words);
	if (near)
		return fail(STATUS_USAGE, "unknown object '%s'; did you mean '%s'?", name, near);
	return fail(STATUS_USAGE, "unknown object '%s'; 'sublet ctl objects' lists those of the session", name);
}

static int ask_serve(struct session_link *link, const struct options *options)
{
	const struct policy *policy = link->bytes ? &link->policy : NULL;
	struct protocol_message message;

	protocol_begin(&message, PROTOCOL_ASK_SERVE, 0);
	message.ask_serve.verb = (uint32_t)options->verb;
	message.ask_serve.pid = options->filter.pid;
	message.ask_serve.timeout_ns = options->timeout_ns		     ? options->timeout_ns
				       : policy && policy->header->timeout_ns ? policy->header->timeout_ns
									     : 60000 * CLOCK_NS_PER_MS;
	protocol_text(message.ask_serve.role, sizeof(message.ask_serve.role), options->filter.role);
	for (int i = 0; i < options->objects_count; i++) {
		uint32_t rule = 0;
		int code = find_object(policy, options->objects[i], &rule);

		if (code)
			return code;
		/* without a policy the one object is all there is */
		if (policy)
			message.ask_serve.rules[message.ask_serve.count++] = rule;
	}
	return session_link_ask(link, &message) ? STATUS_GOOD : STATUS_BAD;
}

static void describe(const struct message_outcome *outcome, char *text, size_t room)
{
	snprintf(text, room, "pid %d (%s%s%s)", (int)outcome->pid, outcome->command, outcome->role[0] ? ", " : "", outcome->role);
}

static void print_outcome(const struct policy *policy, const char *verb, const struct message_outcome *outcome)
{
	const struct message_served *served = &outcome->served;
	char who[192], moved[16], already[16];

	describe(outcome, who, sizeof(who));
	printf("%s: %s %s: %s moved", who, verb, ctl_object_name(policy, outcome->rule),
		size_format(served->moved_bytes, moved, sizeof(moved)));
	printf(" in %u allocation%s, %.3f s", served->moved, served->moved == 1 ? "" : "s", (double)served->total_ns / 1e9);
	if (served->already)
		printf("; %s there already", size_format(served->already_bytes, already, sizeof(already)));
	if (served->skipped)
		printf("; %u allocation%s left where %s", served->skipped, served->skipped == 1 ? "" : "s",
			served->skipped == 1 ? "it is" : "they are");
	printf("%s%s%s\n", served->holes ? "; held until it launches" : "", served->text[0] ? "; " : "", served->text);
}

static json_t *json_outcome(const struct policy *policy, const char *verb, const struct message_outcome *outcome)
{
	const struct message_served *served = &outcome->served;
	json_t *json = json_object();

	json_object_set_new(json, "pid", json_integer(outcome->pid));
	json_object_set_new(json, "process", json_text(outcome->command));
	json_object_set_new(json, "role", outcome->role[0] ? json_text(outcome->role) : json_null());
	json_object_set_new(json, "verb", json_string(verb));
	json_object_set_new(json, "object", json_text(ctl_object_name(policy, outcome->rule)));
	json_object_set_new(json, "good", json_boolean(!served->error));
	json_object_set_new(json, "text", json_text(served->text));
	json_object_set_new(json, "moved", json_integer(served->moved));
	json_object_set_new(json, "moved_bytes", json_integer((json_int_t)served->moved_bytes));
	json_object_set_new(json, "already", json_integer(served->already));
	json_object_set_new(json, "already_bytes", json_integer((json_int_t)served->already_bytes));
	json_object_set_new(json, "skipped", json_integer(served->skipped));
	json_object_set_new(json, "failed", json_integer(served->failed));
	json_object_set_new(json, "holes", json_integer((json_int_t)served->holes));
	json_object_set_new(json, "seconds", json_real((double)served->total_ns / 1e9));
	json_object_set_new(json, "copy_seconds", json_real((double)served->copy_ns / 1e9));
	return json;
}

static int serve(struct session_link *link, const struct options *options)
{
	const struct policy *policy = link->bytes ? &link->policy : NULL;
	const char *verb = verbs[options->verb];
	int code = ask_serve(link, options), worst = STATUS_GOOD;
	json_t *json = options->json ? json_array() : NULL;
	struct protocol_message message;
	char who[192];

	while (!code && (session_link_next(link, SERVE_WAIT_NS, &message) || (code = STATUS_BAD, false))) {
		if (message.header.type == PROTOCOL_END)
			break;
		if (message.header.type != PROTOCOL_OUTCOME)
			continue;
		describe(&message.outcome, who, sizeof(who));
		if (json)
			json_array_append_new(json, json_outcome(policy, verb, &message.outcome));
		else if (!message.outcome.served.error)
			print_outcome(policy, verb, &message.outcome);
		if (message.outcome.served.error)
			worst = fail(STATUS_BAD, "%s: %s %s: %s", who, verb, ctl_object_name(policy, message.outcome.rule),
				message.outcome.served.text);
	}
	if (!code)
		code = end_of(&message.end);
	if (!code && !message.end.count)
		worst = fail(STATUS_BAD, "no process of the session to ask; see 'sublet ctl status'");
	/* what was done before something went wrong was done */
	if (json && (!code || json_array_size(json)))
		worst = json_print(json) ? STATUS_BAD : worst;
	else
		json_decref(json);
	return code ? code : worst;
}

static int stop(struct session_link *link, bool as_json)
{
	struct protocol_message message;
	json_t *json;

	protocol_begin(&message, PROTOCOL_ASK_STOP, 0);
	if (!session_link_ask(link, &message) || !session_link_next(link, STATUS_WAIT_NS, &message))
		return STATUS_BAD;
	if (!session_link_end(link, STATUS_WAIT_NS))
		return fail(STATUS_BAD, "the coordinator (pid %d) was told to stop and does not end; 'kill %d' ends it", (int)link->pid,
			(int)link->pid);
	if (!as_json) {
		fprintf(stderr, "sublet: the coordinator (pid %d) ends; processes of the session go on as they are\n", (int)link->pid);
		return STATUS_GOOD;
	}
	json = json_object();
	json_object_set_new(json, "stopped", json_integer(link->pid));
	return json_print(json);
}

static int each_allocation(struct session_link *link, const struct options *options)
{
	struct inventories inventories;
	int code = inventories_gather(link, &options->filter, &inventories);

	if (!code)
		code = options->suggest ? inventories_suggest(&inventories) : inventories_print(&inventories, options->json);
	inventories_release(&inventories);
	return code;
}

static int carry_out(struct session_link *link, const char *session, const struct options *options)
{
	const bool needs_status = options->verb >= VERB_COUNT || options->filter.role || options->filter.pid;
	struct ctl_status status;
	int code;

	if (options->verb == VERB_STOP)
		return stop(link, options->json);
	if (!needs_status)
		return serve(link, options);
	code = gather(link, session, &status);
	if (!code)
		code = check_filter(&status, &options->filter);
	if (!code && options->verb == VERB_STATUS)
		code = ctl_print_status(&status, &options->filter, options->json);
	else if (!code && (options->allocations || options->suggest))
		code = each_allocation(link, options);
	else if (!code && options->verb == VERB_OBJECTS)
		code = ctl_print_objects(&status, &options->filter, options->json);
	else if (!code)
		code = serve(link, options);
	status_release(&status);
	return code;
}

int cmd_ctl(int argc, char **argv)
{
	struct options options = {0};
	int status = parse(argc, argv, &options);
	struct session_link link;
	char *session;

	if (status >= 0)
		return status;
	session = session_dir_find(options.session, &status);
	if (!session)
		return status;
	switch (session_link_open(&link, session)) {
	case LINK_OPEN:
		status = carry_out(&link, session, &options);
		session_link_close(&link);
		break;
	case LINK_NOBODY:
		status = fail(STATUS_BAD, SESSION_NOBODY, session);
		break;
	case LINK_FAILED:
		status = STATUS_BAD;
		break;
	}
	free(session);
	return status;
}
