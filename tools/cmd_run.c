/* tools/cmd_run.c
 * `sublet run`: sets up the environment of the preloaded library and becomes the program (or, following, its parent).
 * Everything that can be wrong is found before the program starts; once it runs, it is the program alone. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/size.h"
#include "lifecycle/callers/wants.h"
#include "tools/command.h"
#include "tools/launch.h"
#include "tools/preload.h"
#include "tools/serve.h"
#include "tools/session_dir.h"
#include "tools/stats_files.h"
#include "tools/trace_dir.h"

#define ROLE_LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"

enum { ROLE_MAX_BYTES = 31 }; /* what struct stats_page keeps */

static const uint64_t default_capacity_bytes = (uint64_t)80 << 30;
static const uint64_t least_capacity_bytes = (uint64_t)2 << 20; /* one extent */

static const char help[] =
	"usage: sublet run [OPTION...] [--] CMD [ARGUMENT...]\n"
	"\n"
	"Starts CMD with its device memory, and that of all processes it starts, on stable addresses kept by Sublet.\n"
	"\n"
	"options:\n"
	"      --session NAME  the session to join: a name, or a folder (with a slash in it); default: 'default'\n"
	"      --policy FILE   the session's policy; starts its coordinator where it has none ('sublet serve', 'sublet ctl')\n"
	"      --role ROLE     what the processes are in the session: train, rollout, ...\n"
	"      --callers[=WHAT]  keep who makes each allocation: library, thread, tag, stack, python, or (default) all of these;\n"
	"                      'sublet ctl objects --suggest' then tells more apart\n"
	"      --trace DIR     write down what is allocated and moved, when and by whom, into folder DIR ('sublet trace')\n"
	"      --sim[=SIZE]    give CMD a simulated GPU of SIZE (default 80GiB) in place of the machine's driver\n"
	"      --follow        stay as CMD's parent; report on stderr which processes take device memory, and how much\n"
	"      --log SPEC      what the library logs: component:level,... such as 'memory:debug,*:warn'\n"
	"  -h, --help          this text\n"
	"\n"
	"Without --follow sublet becomes CMD: process id, signals and exit status are CMD's own.\n"
	"Exit status: CMD's own; 2 wrong usage, 1 CMD was not started, 126 and 127 CMD cannot be run or found, as in a shell.\n"
	"\n"
	"environment:\n"
	"  SUBLET_SESSION, SUBLET_ROLE, SUBLET_LOG, SUBLET_CALLERS, SUBLET_TRACE  used where the option is not given; set for CMD\n"
	"  SUBLET_TRACE_SIZE                        bytes of each process's trace, the newest of which are kept; default 8MiB\n"
	"  XDG_RUNTIME_DIR                          where named sessions live, else /tmp\n"
	"  LD_PRELOAD                               kept, with Sublet's library put in\n"
	"  NVTX_INJECTION64_PATH                    set to Sublet's library, which loads what was there (a profiler) behind it\n"
	"  SUBLET_HOST_POOL                         cap of the session's host pool, as 'sublet serve -h' says\n"
	"  SUBLET_LIB                               another libsublet.so, for tests\n"
	"\n"
	"example:\n"
	"  sublet run --follow --role train -- python train.py\n";

struct run_options {
	const char *session;
	const char *policy;
	const char *role;
	const char *log;
	const char *callers;
	const char *trace;
	uint64_t sim_bytes; /* 0: the machine's own driver */
	bool follow;
};

/* Returns -1 to go on, else the exit status. */
static int parse(int argc, char **argv, struct run_options *options)
{
	static const struct option known[] = {
		{"session", required_argument, NULL, 's'},
		{"policy", required_argument, NULL, 'p'},
		{"role", required_argument, NULL, 'r'},
		{"callers", optional_argument, NULL, 'c'},
		{"trace", required_argument, NULL, 't'},
		{"sim", optional_argument, NULL, 'm'},
		{"follow", no_argument, NULL, 'f'},
		{"log", required_argument, NULL, 'l'},
		{"help", no_argument, NULL, 'h'},
		{0},
	};
	unsigned wants;
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
		case 'r':
			options->role = optarg;
			break;
		case 'c':
			options->callers = optarg ? optarg : "all";
			break;
		case 't':
			options->trace = optarg;
			break;
		case 'l':
			options->log = optarg;
			break;
		case 'f':
			options->follow = true;
			break;
		case 'm':
			options->sim_bytes = default_capacity_bytes;
			if (optarg &&
				(!size_parse(optarg, &options->sim_bytes) || options->sim_bytes < least_capacity_bytes))
				return fail(STATUS_USAGE,
					"'%s' is no size of a device; write it like '--sim=80GiB', at least 2MiB",
					optarg);
			break;
		case 'h':
			fputs(help, stdout);
			return STATUS_GOOD;
		default:
			return fail_option("run", got, argv, known);
		}
	}
	if (options->role && (!*options->role || strlen(options->role) > ROLE_MAX_BYTES ||
				     strspn(options->role, ROLE_LETTERS) != strlen(options->role)))
		return fail(STATUS_USAGE,
			"role '%s' is not a word of at most %d letters, digits, '.', '_' and '-'; write it like '--role train'",
			options->role, ROLE_MAX_BYTES);
	if (options->callers && !caller_wants_parse(options->callers, &wants))
		return fail(STATUS_USAGE,
			"'%s' is no list of what to keep; write '--callers', or words of library, thread, tag, stack, python with commas between",
			options->callers);
	if (options->policy && strcmp(options->policy, "-") == 0)
		return fail(STATUS_USAGE, "a policy read from stdin would take what CMD reads; give '--policy' a file, or 'sublet serve' the stream");
	if (optind == argc)
		return fail(STATUS_USAGE, "no command to run; write 'sublet run -- CMD'");
	return -1;
}

/* Sets the variable to @value and frees that. False when memory ran out (for @value, then NULL, or here). */
static bool set_owned(const char *name, char *value)
{
	bool done = value && setenv(name, value, 1) == 0;

	free(value);
	return done;
}

static int out_of_memory(void)
{
	return fail(STATUS_BAD, "out of memory; try again");
}

static int set_up_sim(const char *session, uint64_t capacity_bytes)
{
	char *folder = preload_find_sim_folder(), *machine, bytes[24];
	bool done;

	if (!folder)
		return STATUS_BAD;
	done = set_owned("LD_LIBRARY_PATH", preload_library_path(getenv("LD_LIBRARY_PATH"), folder));
	free(folder);
	if (!done)
		return out_of_memory();
	machine = session_dir_sub(session, "sim");
	if (!machine)
		return STATUS_BAD;
	snprintf(bytes, sizeof(bytes), "%llu", (unsigned long long)capacity_bytes);
	if (!set_owned("SUBLET_SIM_MACHINE", machine) || setenv("SUBLET_SIM_CAPACITY", bytes, 1))
		return out_of_memory();
	return STATUS_GOOD;
}

/* NVTX loads one library alone; what it would have loaded is loaded by Sublet's (shim/nvtx.c). */
static bool set_up_nvtx(const char *library)
{
	const char *before = getenv("NVTX_INJECTION64_PATH");
	const bool in_another_run = before && preload_is_library(before);
	int error = 0;

	if (before && *before && !in_another_run)
		error = setenv("SUBLET_NVTX_NEXT", before, 1);
	else if (!in_another_run)
		error = unsetenv("SUBLET_NVTX_NEXT");
	return !error && setenv("NVTX_INJECTION64_PATH", library, 1) == 0;
}

static int set_up(const struct run_options *options, const char *session)
{
	char *library = preload_find_library();
	bool done;

	if (!library)
		return STATUS_BAD;
	done = set_owned("LD_PRELOAD", preload_compose(getenv("LD_PRELOAD"), library)) && set_up_nvtx(library);
	free(library);
	if (!done || setenv("SUBLET_SESSION", session, 1) ||
		(options->role && setenv("SUBLET_ROLE", options->role, 1)) ||
		(options->log && setenv("SUBLET_LOG", options->log, 1)) ||
		(options->callers && setenv("SUBLET_CALLERS", options->callers, 1)))
		return out_of_memory();
	return options->sim_bytes ? set_up_sim(session, options->sim_bytes) : STATUS_GOOD;
}

int cmd_run(int argc, char **argv)
{
	struct run_options options = {0};
	int status = parse(argc, argv, &options);
	uint64_t ring_bytes;
	char *session;

	if (status >= 0)
		return status;
	session = session_dir_open(options.session, &status);
	if (!session)
		return status;
	status = trace_dir_use(options.trace) && trace_dir_ring_bytes(&ring_bytes) ? set_up(&options, session) : STATUS_BAD;
	if (!status)
		status = serve_ensure(session, options.policy, getenv("SUBLET_ROLE"));
	/* with a policy the coordinator has written it */
	if (!status && !trace_dir_describe(session, NULL, NULL))
		status = STATUS_BAD;
	if (!status) {
		stats_files_sweep(session);
		status = options.follow ? launch_follow(session, argv + optind) : launch_exec(argv + optind);
	}
	free(session);
	return status;
}
