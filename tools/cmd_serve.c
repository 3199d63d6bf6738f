/* tools/cmd_serve.c
 * `sublet serve`: the coordinator of a session, in the foreground or detached. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "tools/command.h"
#include "tools/policy_file.h"
#include "tools/serve.h"
#include "tools/session_dir.h"
#include "tools/trace_dir.h"

static const char help[] =
	"usage: sublet serve [OPTION...]\n"
	"\n"
	"Coordinates a session: hands its policy to the processes, keeps the ledger of host memory, passes on 'sublet ctl'.\n"
	"\n"
	"options:\n"
	"      --session NAME  the session to serve: a name, or a folder (with a slash in it); default: 'default'\n"
	"      --policy FILE   its policy; without one all allocations are one object, 'everything'\n"
	"      --trace DIR     write down phases and barriers into folder DIR; 'sublet run --trace DIR' adds what processes do\n"
	"      --background    detach, and log to coordinator.log in the session folder\n"
	"      --linger SECS   end so long after the last process has left; default: 30 with --background, else never\n"
	"  -h, --help          this text\n"
	"\n"
	"'sublet run --policy FILE' does it by itself. Without --background it serves until Ctrl-C or 'sublet ctl stop'.\n"
	"Exit status: 0 when it was told to stop (or, with --background, serves), 1 when it cannot serve, 2 wrong usage.\n"
	"\n"
	"environment:\n"
	"  SUBLET_SESSION, SUBLET_TRACE  used where the option is not given\n"
	"  SUBLET_TRACE_SIZE  bytes of the coordinator's trace, the newest of which are kept; default 8MiB\n"
	"  SUBLET_HOST_POOL  cap of the host pool, as 64GiB or 50%; else the policy's host_pool, else half of the memory\n"
	"  SUBLET_LOG        what it logs; default session:info\n"
	"\n"
	"example:\n"
	"  sublet serve --policy grpo.yaml\n";

struct options {
	const char *session, *policy, *trace;
	bool background;
	double linger_s; /* 0: not given */
};

/* Returns -1 to go on, else the exit status. */
static int parse(int argc, char **argv, struct options *options)
{
	static const struct option known[] = {
		{"session", required_argument, NULL, 's'},
		{"policy", required_argument, NULL, 'p'},
		{"trace", required_argument, NULL, 't'},
		{"background", no_argument, NULL, 'b'},
		{"linger", required_argument, NULL, 'l'},
		{"help", no_argument, NULL, 'h'},
		{0},
	};
	int got;

	opterr = 0;
	while ((got = getopt_long(argc, argv, "+:h", known, NULL)) != -1) {
		switch (got) {
		case 's':
			options->session = optarg;
			break;
		case 'p':
			options->policy = optarg;
			break;
		case 'l':
			if (!command_number(optarg, 0.001, 1e6, &options->linger_s))
				return fail(STATUS_USAGE, "'%s' is no time in seconds; see 'sublet serve -h'", optarg);
			break;
		case 't':
			options->trace = optarg;
			break;
		case 'b':
			options->background = true;
			break;
		case 'h':
			fputs(help, stdout);
			return STATUS_GOOD;
		default:
			return fail_option("serve", got, argv, known);
		}
	}
	if (optind < argc)
		return fail(STATUS_USAGE, "'sublet serve' takes no '%s'; a policy is given by --policy FILE, a program by 'sublet run'",
			argv[optind]);
	return -1;
}

int cmd_serve(int argc, char **argv)
{
	struct options given = {0};
	struct serve_options options = {0};
	struct policy_source source = {0};
	int status = parse(argc, argv, &given);
	char *session;

	if (status >= 0)
		return status;
	session = session_dir_open(given.session, &status);
	if (!session)
		return status;
	status = STATUS_BAD;
	if (given.policy && !policy_file_compile(given.policy, &source))
		goto free;
	if (!trace_dir_use(given.trace) || !trace_dir_ring_bytes(&options.trace_bytes) ||
		!trace_dir_describe(session, given.policy, &source.block))
		goto release;
	options.session = session;
	options.policy_name = given.policy;
	options.policy = source.block;
	options.linger_ns = (uint64_t)((given.linger_s > 0 ? given.linger_s : given.background ? 30 : 0) * 1e9);
	if (serve_pool_bytes(&source.block, &options.pool_bytes))
		status = given.background ? serve_beside(&options) : serve_here(&options);
release:
	if (given.policy)
		policy_source_release(&source);
free:
	free(session);
	return status;
}
