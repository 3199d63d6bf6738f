/* tools/sublet.c
 * The `sublet` command: finds the named command in commands.def and hands it its words. */
#include "tools/command.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct command {
	const char *name;
	int (*function)(int argc, char **argv);
	const char *sentence;
};

static const struct command commands[] = {
#define COMMAND(name, function, sentence) {#name, function, sentence},
#include "tools/commands.def"
};

enum { COMMANDS = sizeof(commands) / sizeof(commands[0]) };

static const char help_head[] =
	"usage: sublet COMMAND [OPTION...] [ARGUMENT...]\n"
	"\n"
	"Keeps the device addresses of unmodified GPU programs while the pages behind them come and go.\n"
	"\n"
	"commands:\n";

static const char help_tail[] = "\n"
				"options:\n"
				"  -h, --help     this text; 'sublet COMMAND -h' explains a command\n"
				"      --version  the version\n"
				"\n"
				"example:\n"
				"  sublet run -- python train.py\n";

static const char help_help[] = "usage: sublet help [COMMAND]\n"
				"\n"
				"Lists the commands, or explains COMMAND as 'sublet COMMAND -h' does.\n"
				"\n"
				"options:\n"
				"  -h, --help  this text\n"
				"\n"
				"environment: none\n"
				"\n"
				"example:\n"
				"  sublet help run\n";

static const struct command *command_find(const char *name)
{
	for (size_t i = 0; i < COMMANDS; i++)
		if (strcmp(commands[i].name, name) == 0)
			return &commands[i];
	return NULL;
}

static int fail_command(const char *name)
{
	const char *names[COMMANDS + 1];
	const char *near;

	for (size_t i = 0; i < COMMANDS; i++)
		names[i] = commands[i].name;
	names[COMMANDS] = NULL;
	near = nearest_word(name, names);
	if (near)
		return fail(STATUS_USAGE, "unknown command '%s'; did you mean 'sublet %s'?", name, near);
	return fail(STATUS_USAGE, "unknown command '%s'; see 'sublet help', or start a program with 'sublet run -- %s'",
		name, name);
}

static void print_help(FILE *to)
{
	fputs(help_head, to);
	for (size_t i = 0; i < COMMANDS; i++)
		fprintf(to, "  %-9s  %s\n", commands[i].name, commands[i].sentence);
	fputs(help_tail, to);
}

int cmd_help(int argc, char **argv)
{
	static const struct option options[] = {{"help", no_argument, NULL, 'h'}, {0}};
	const struct command *command;
	char help[] = "--help";
	char *words[] = {NULL, help, NULL};
	int got;

	opterr = 0;
	while ((got = getopt_long(argc, argv, "+:h", options, NULL)) != -1) {
		if (got != 'h')
			return fail_option("help", got, argv, options);
		fputs(help_help, stdout);
		return STATUS_GOOD;
	}
	if (argc - optind > 1)
		return fail(STATUS_USAGE, "'sublet help' explains one command, not %d; see 'sublet help -h'",
			argc - optind);
	if (optind == argc) {
		print_help(stdout);
		return STATUS_GOOD;
	}
	command = command_find(argv[optind]);
	if (!command)
		return fail_command(argv[optind]);
	words[0] = argv[optind];
	optind = 0; /* makes getopt start over */
	return command->function(2, words);
}

/* With one of the standard streams closed the next file opened would be it, and a complaint be written there. A program that is run
 * finds them closed as they were. */
static void fill_standard_streams(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd >= 0)
		close(fd);
}

int main(int argc, char **argv)
{
	const struct command *command;
	int status;

	fill_standard_streams();
	if (argc < 2) {
		/* the list is what a person who typed only the name needs, yet nothing was asked that could be answered
		 */
		print_help(stderr);
		return STATUS_USAGE;
	}
	if (strcmp(argv[1], "--version") == 0) {
		printf("sublet %s\n", SUBLET_VERSION);
		status = STATUS_GOOD;
	} else if (strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "--help") == 0) {
		print_help(stdout);
		status = STATUS_GOOD;
	} else if (argv[1][0] == '-') {
		return fail(STATUS_USAGE, "unknown option '%s'; the command comes first, see 'sublet help'", argv[1]);
	} else {
		command = command_find(argv[1]);
		if (!command)
			return fail_command(argv[1]);
		status = command->function(argc - 1, argv + 1);
	}
	if ((fflush(stdout) || ferror(stdout)) && status == STATUS_GOOD)
		return fail(STATUS_BAD, "cannot write the result: %s", strerror(errno));
	return status;
}
