/* tools/command.h
 * What the commands share: their prototypes, exit statuses, and the one way they say that something is wrong.
 * Results go to stdout, talk to stderr. */
#ifndef SUBLET_TOOLS_COMMAND_H
#define SUBLET_TOOLS_COMMAND_H

#include <getopt.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/attributes.h"
#include "base/words.h"

enum exit_status {
	STATUS_GOOD = 0,
	STATUS_BAD = 1,		     /* the thing asked for cannot be had */
	STATUS_USAGE = 2,	     /* wrong words on the command line */
	STATUS_NOT_EXECUTABLE = 126, /* as a shell gives it */
	STATUS_NOT_FOUND = 127,
	STATUS_SIGNAL = 128, /* plus the signal's number */
};

/* Each takes its own words, argv[0] being the command's name, and returns an exit status. */
#define COMMAND(name, function, sentence) int function(int argc, char **argv);
#include "tools/commands.def"

/* One line on stderr: `sublet: error: TEXT`. Say what is wrong, then `; ` and what to do. Lower case, no full stop.
 * Returns @status, so that a failure is one line at its place. */
int fail(enum exit_status status, const char *format, ...) SUBLET_PRINTF(2, 3);

/* From now on fail() writes its text into @text (of @room bytes, without `sublet: error: `) and says nothing; NULL: it
 * speaks again. For a command that reports what other parts complain of. */
void fail_into(char *text, size_t room);

/* The same for an option that getopt_long refused with '?' or ':' (call it with opterr = 0 and an option string that
 * starts with "+:" or ":"): names it, suggests the nearest of @options, points at the help. Returns STATUS_USAGE. */
int fail_option(const char *command, int getopt_answer, char **argv, const struct option *options);

/* The number that @text is, from @least to @most; false where it is none, and then *ret_number is untouched. */
bool command_number(const char *text, double least, double most, double *ret_number);

#endif
