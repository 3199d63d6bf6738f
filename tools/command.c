/* tools/command.c
 * Complaints of the commands: one line each, with the next thing to type. */
#include "tools/command.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

enum {
	WORD_MAX = 32,	  /* longer words are cut before they are compared */
	OPTIONS_MAX = 32, /* options of one command */
};

static char *kept;
static size_t kept_room;

void fail_into(char *text, size_t room)
{
	kept = text;
	kept_room = room;
}

int fail(enum exit_status status, const char *format, ...)
{
	char line[4096]; /* one write, so that lines of several processes do not mix; paths fit, longer is cut */
	va_list args;
	int used;

	used = snprintf(line, sizeof(line), "sublet: error: ");
	va_start(args, format);
	vsnprintf(line + used, sizeof(line) - (size_t)used, format, args);
	va_end(args);
	/* file names and words may hold anything; the promise is one line */
	text_make_printable(line);
	if (kept) {
		snprintf(kept, kept_room, "%s", line + used);
		return status;
	}
	fflush(stdout);
	fprintf(stderr, "%s\n", line);
	return status;
}

int fail_option(const char *command, int getopt_answer, char **argv, const struct option *options)
{
	const char *words[OPTIONS_MAX + 1];
	const char *given = argv[optind - 1], *near;
	char bare[WORD_MAX + 1];
	size_t count = 0;

	if (getopt_answer == ':')
		return fail(STATUS_USAGE, "option '%s' needs a value; see 'sublet %s -h'", given, command);
	if (strncmp(given, "--", 2) != 0) {
		return fail(STATUS_USAGE, "unknown option '-%c'; see 'sublet %s -h'", optopt, command);
	}
	/* optopt is set for a known long option that was given a value it does not take */
	if (optopt)
		return fail(STATUS_USAGE, "option '%.*s' takes no value; see 'sublet %s -h'", (int)strcspn(given, "="),
			given, command);
	for (; options->name && count < OPTIONS_MAX; options++)
		words[count++] = options->name;
	words[count] = NULL;
	snprintf(bare, sizeof(bare), "%.*s", (int)strcspn(given + 2, "="), given + 2);
	near = nearest_word(bare, words);
	if (near)
		return fail(STATUS_USAGE, "unknown option '--%s'; did you mean '--%s'?", bare, near);
	return fail(STATUS_USAGE, "unknown option '%s'; see 'sublet %s -h'", given, command);
}

bool command_number(const char *text, double least, double most, double *ret_number)
{
	char *end;
	double number = strtod(text, &end);

	if (!*text || *end || !(number >= least && number <= most))
		return false;
	*ret_number = number;
	return true;
}
