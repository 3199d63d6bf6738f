/* tools/cmd_phase.c
 * `sublet phase`: has the session's next phase begin, and waits until it has. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/size.h"
#include "policy/roles.h"
#include "tools/command.h"
#include "tools/json.h"
#include "tools/session_dir.h"
#include "tools/session_link.h"

#define ANSWER_WAIT_NS (3600ull * 1000000000ull) /* the coordinator answers for who is late; this is for its own end */

static const char help[] =
	"usage: sublet phase [OPTION...] NAME\n"
	"\n"
	"Has the phase NAME of the session's policy begin, and waits until it has.\n"
	"All processes of the session stop, what the phase does not need leaves the device, what it needs comes, and they go on.\n"
	"\n"
	"options:\n"
	"      --session NAME  the session: a name, or a folder (with a slash in it); default: 'default'\n"
	"      --timeout SECS  give up when the processes cannot be held within it (default: the policy's barrier timeout)\n"
	"      --json          what moved as JSON, for programs\n"
	"  -h, --help          this text\n"
	"\n"
	"Exit status: 0 the phase has begun (or was in force), 1 it has not, and stderr says why; 2 wrong usage.\n"
	"\n"
	"environment:\n"
	"  SUBLET_SESSION  used where --session is not given\n"
	"\n"
	"example:\n"
	"  sublet phase train\n";

struct options {
	const char *session, *name;
	uint64_t timeout_ns; /* 0: the policy's */
	bool json;
};

/* Returns -1 to go on, else the exit status. */
static int parse(int argc, char **argv, struct options *options)
{
	static const struct option known[] = {
		{"session", required_argument, NULL, 's'},
		{"timeout", required_argument, NULL, 't'},
		{"json", no_argument, NULL, 'j'},
		{"help", no_argument, NULL, 'h'},
		{0},
	};
	double number;
	int got;

	opterr = 0;
	while ((got = getopt_long(argc, argv, ":h", known, NULL)) != -1) {
		switch (got) {
		case 's':
			options->session = optarg;
			break;
		case 't':
			if (!command_number(optarg, 0.001, 86400, &number))
				return fail(STATUS_USAGE, "'%s' is no time in seconds; see 'sublet phase -h'", optarg);
			options->timeout_ns = (uint64_t)(number * 1e9);
			break;
		case 'j':
			options->json = true;
			break;
		case 'h':
			fputs(help, stdout);
			return STATUS_GOOD;
		default:
			return fail_option("phase", got, argv, known);
		}
	}
	if (optind == argc)
		return fail(STATUS_USAGE, "no phase; name one of the policy's, as in 'sublet phase train'");
	if (optind + 1 < argc)
		return fail(STATUS_USAGE, "one phase at a time; '%s' is one too many", argv[optind + 1]);
	options->name = argv[optind];
	return -1;
}

static int find_phase(const struct session_link *link, const char *name, uint32_t *ret_phase)
{
	const struct policy *policy = &link->policy;
	const char *words[POLICY_PHASES_MAX + 1] = {NULL}, *near;

	if (!link->bytes)
		return fail(STATUS_BAD, "the session has no policy, so there are no phases; serve it with --policy FILE");
	*ret_phase = policy_phase_find(policy, name);
	if (*ret_phase != POLICY_NONE && policy_may_command(policy, POLICY_NONE, true, *ret_phase))
		return STATUS_GOOD;
	if (*ret_phase != POLICY_NONE)
		return fail(STATUS_BAD, "nothing in the policy lets a command begin '%s'; add '{enter: %s, command: true}' to its triggers",
			name, name);
	for (uint32_t i = 0; i < policy->phases_count && i < POLICY_PHASES_MAX; i++)
		words[i] = policy_text(policy, policy->phases[i].name);
	near = nearest_word(name, words);
	if (near)
		return fail(STATUS_USAGE, "unknown phase '%s'; did you mean '%s'?", name, near);
	return fail(STATUS_USAGE, "unknown phase '%s'; 'sublet ctl status' names the policy, which lists them", name);
}

static const char *step_text(uint32_t step)
{
	switch (step) {
	case PROTOCOL_STEP_RELEASE:
		return "left the device";
	case PROTOCOL_STEP_EXCHANGE:
		return "changed places, extent by extent";
	case PROTOCOL_STEP_ACQUIRE:
		return "came to the device";
	default:
		return "was moved back";
	}
}

static double rate_of(const struct message_served *served)
{
	return served->total_ns ? (double)served->moved_bytes / (double)served->total_ns : 0; /* bytes per ns are GB per s */
}

static void print_row(const struct message_outcome *row)
{
	char bytes[16];

	if (row->served.error)
		return;
	printf("pid %d (%s%s%s): %s in %u allocation%s %s, %.3f s, %.1f GB/s%s%s\n", (int)row->pid, row->command, row->role[0] ? ", " : "",
		row->role, size_format(row->served.moved_bytes, bytes, sizeof(bytes)), row->served.moved,
		row->served.moved == 1 ? "" : "s", step_text(row->rule), (double)row->served.total_ns / 1e9, rate_of(&row->served),
		row->served.text[0] ? "; " : "", row->served.text);
}

static json_t *json_row(const struct message_outcome *row)
{
	static const char *const words[PROTOCOL_STEP_COUNT] = {
		[PROTOCOL_STEP_EXCHANGE] = "exchange", [PROTOCOL_STEP_RELEASE] = "release", [PROTOCOL_STEP_ACQUIRE] = "acquire", [PROTOCOL_STEP_REVERSE] = "reverse"};
	json_t *json = json_object();

	json_object_set_new(json, "pid", json_integer(row->pid));
	json_object_set_new(json, "process", json_text(row->command));
	json_object_set_new(json, "role", row->role[0] ? json_text(row->role) : json_null());
	json_object_set_new(json, "step", row->rule < PROTOCOL_STEP_COUNT && words[row->rule] ? json_string(words[row->rule]) : json_null());
	json_object_set_new(json, "good", json_boolean(!row->served.error));
	json_object_set_new(json, "text", json_text(row->served.text));
	json_object_set_new(json, "moved", json_integer(row->served.moved));
	json_object_set_new(json, "moved_bytes", json_integer((json_int_t)row->served.moved_bytes));
	json_object_set_new(json, "holes", json_integer((json_int_t)row->served.holes));
	json_object_set_new(json, "seconds", json_real((double)row->served.total_ns / 1e9));
	return json;
}

static int wait_for(struct session_link *link, const struct options *options, uint32_t phase)
{
	json_t *rows = options->json ? json_array() : NULL, *json;
	const uint64_t begun_ns = clock_now_ns(), policy_ns = link->policy.header->timeout_ns;
	const uint64_t wait_ns = ANSWER_WAIT_NS + (options->timeout_ns ? options->timeout_ns : policy_ns);
	struct message_phase told = {0};
	struct protocol_message message;
	double seconds;

	protocol_begin(&message, PROTOCOL_ASK_PHASE, 0);
	message.arrive.phase = phase;
	message.arrive.timeout_ns = options->timeout_ns;
	if (!session_link_ask(link, &message))
		return STATUS_BAD;
	do {
		if (!session_link_next(link, wait_ns, &message)) {
			json_decref(rows);
			return STATUS_BAD;
		}
		if (message.header.type == PROTOCOL_OUTCOME && rows)
			json_array_append_new(rows, json_row(&message.outcome));
		else if (message.header.type == PROTOCOL_OUTCOME)
			print_row(&message.outcome);
		else if (message.header.type == PROTOCOL_PHASE)
			told = message.phase;
	} while (message.header.type != PROTOCOL_END);
	seconds = (double)(clock_now_ns() - begun_ns) / 1e9;
	if (told.error) {
		json_decref(rows);
		return fail(STATUS_BAD, "phase '%s' does not begin: %s", options->name, told.text);
	}
	if (!rows) {
		printf("phase %s: %.3f s\n", options->name, seconds);
		return STATUS_GOOD;
	}
	json = json_object();
	json_object_set_new(json, "phase", json_text(options->name));
	json_object_set_new(json, "clock", json_integer((json_int_t)told.clock));
	json_object_set_new(json, "seconds", json_real(seconds));
	json_object_set_new(json, "moves", rows);
	return json_print(json);
}

int cmd_phase(int argc, char **argv)
{
	struct options options = {0};
	int status = parse(argc, argv, &options);
	struct session_link link;
	uint32_t phase = POLICY_NONE;
	char *session;

	if (status >= 0)
		return status;
	session = session_dir_find(options.session, &status);
	if (!session)
		return status;
	switch (session_link_open(&link, session)) {
	case LINK_OPEN:
		status = find_phase(&link, options.name, &phase);
		if (!status)
			status = wait_for(&link, &options, phase);
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
