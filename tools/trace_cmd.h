/* tools/trace_cmd.h
 * What the words behind `sublet trace` share. */
#ifndef SUBLET_TOOLS_TRACE_CMD_H
#define SUBLET_TOOLS_TRACE_CMD_H

#include <stdbool.h>

#include "tools/command.h"
#include "tools/trace_model.h"

/* Each takes its own words, argv[0] being its name, and returns an exit status. */
int trace_cat(int argc, char **argv);
int trace_summary(int argc, char **argv);
int trace_objects(int argc, char **argv);
int trace_export(int argc, char **argv);

/* The folder or file that the words from optind on name, else SUBLET_TRACE's. NULL after one line for @word. */
const char *trace_given(const char *word, int argc, char **argv);

/* Open, and say on stderr what of it cannot be read. Returns an exit status; trace_model_close is due for STATUS_GOOD. */
int trace_open_said(struct trace_model *model, const char *path);

/* When all is read: how much of it is missing, on stderr. Returns @status, or STATUS_BAD after a line where memory ran out. */
int trace_close_said(struct trace_model *model, int status);

/* Seconds with as many digits as are of use, in @text. Returns it. */
const char *trace_seconds(uint64_t ns, char *text, size_t room);

/* The process's name for people, "rollout 1234", in @text. Returns it. */
const char *trace_process_name(const struct trace_process *process, char *text, size_t room);

#endif
