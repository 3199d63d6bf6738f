/* tools/cmd_trace.c
 * `sublet trace`: what is in the folder that `sublet run --trace` has written. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/trace_cmd.h"

static const char help[] =
	"usage: sublet trace WORD [OPTION...] [DIR]\n"
	"\n"
	"Reads the trace in folder DIR, or one file of it; 'sublet run --trace DIR' writes one. It may still be growing.\n"
	"\n"
	"words:\n"
	"  summary  who had how much where, what moved, what waited, what was the peak\n"
	"  cat      every event, as a line or as JSON\n"
	"  objects  what was allocated, by size and caller; and a start for a policy from it\n"
	"  export   for the viewer at ui.perfetto.dev\n"
	"\n"
	"options:\n"
	"  -h, --help  this text; 'sublet trace WORD -h' for those of a word\n"
	"\n"
	"environment:\n"
	"  SUBLET_TRACE  the folder, where none is given\n"
	"\n"
	"example:\n"
	"  sublet trace summary run1.trace\n";

static const struct {
	const char *word;
	int (*function)(int argc, char **argv);
} words[] = {{"summary", trace_summary}, {"cat", trace_cat}, {"objects", trace_objects}, {"export", trace_export}};

enum { WORDS = sizeof(words) / sizeof(words[0]) };

const char *trace_given(const char *word, int argc, char **argv)
{
	const char *given = optind < argc ? argv[optind] : getenv("SUBLET_TRACE");

	if (optind + 1 < argc) {
		fail(STATUS_USAGE, "'sublet trace %s' reads one trace; '%s' is one too many", word, argv[optind + 1]);
		return NULL;
	}
	if (given && *given)
		return given;
	fail(STATUS_USAGE, "which trace? write 'sublet trace %s DIR', with the folder of 'sublet run --trace DIR'", word);
	return NULL;
}

int trace_open_said(struct trace_model *model, const char *path)
{
	struct errinfo error;

	if (trace_model_open(model, path, false, &error))
		return fail(STATUS_BAD, "%s", error.text);
	for (size_t i = 0; i < model->merge.warnings_count; i++)
		fprintf(stderr, "sublet: warning: %s\n", model->merge.warnings[i]);
	return STATUS_GOOD;
}

int trace_close_said(struct trace_model *model, int status)
{
	const uint64_t lost = trace_merge_lost(&model->merge), torn = trace_merge_torn(&model->merge);

	if (lost)
		fprintf(stderr, "sublet: warning: the first %llu events are overwritten; make SUBLET_TRACE_SIZE larger to keep them\n",
			(unsigned long long)lost);
	if (torn)
		fprintf(stderr, "sublet: warning: %llu events are damaged or were never finished, and are left out\n", (unsigned long long)torn);
	if (model->out_of_memory)
		status = fail(STATUS_BAD, "out of memory: what is said is not complete");
	trace_model_close(model);
	return status;
}

const char *trace_seconds(uint64_t ns, char *text, size_t room)
{
	const double s = (double)ns / 1e9;

	snprintf(text, room, s >= 100 ? "%.1f s" : s >= 0.1 ? "%.3f s" : "%.6f s", s);
	return text;
}

const char *trace_process_name(const struct trace_process *process, char *text, size_t room)
{
	snprintf(text, room, "%s%s%d", process->is_coordinator ? "coordinator" : process->role,
		process->is_coordinator || *process->role ? " " : "pid ", (int)process->source->file.header.pid);
	return text;
}

int cmd_trace(int argc, char **argv)
{
	static const struct option options[] = {{"help", no_argument, NULL, 'h'}, {0}};
	const char *known[WORDS + 1] = {NULL}, *near;
	int got;

	opterr = 0;
	got = getopt_long(argc, argv, "+:h", options, NULL);
	if (got == 'h') {
		fputs(help, stdout);
		return STATUS_GOOD;
	}
	if (got != -1)
		return fail_option("trace", got, argv, options);
	argc -= optind - 1; /* the word is what the rest calls its name */
	argv += optind - 1;
	if (argc < 2)
		return fail(STATUS_USAGE, "trace what? see 'sublet trace -h'");
	for (size_t i = 0; i < WORDS; i++) {
		if (strcmp(argv[1], words[i].word) == 0)
			return words[i].function(argc - 1, argv + 1);
		known[i] = words[i].word;
	}
	near = nearest_word(argv[1], known);
	return near ? fail(STATUS_USAGE, "unknown word '%s'; did you mean '%s'?", argv[1], near)
		    : fail(STATUS_USAGE, "unknown word '%s'; see 'sublet trace -h'", argv[1]);
}
