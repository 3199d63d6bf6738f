/* tools/trace_cat.c
 * `sublet trace cat`: each event as it stands in the files, with names for numbers. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "tools/json.h"
#include "tools/trace_cmd.h"

static const char help[] =
	"usage: sublet trace cat [OPTION...] [DIR]\n"
	"\n"
	"Writes the events of a trace in the order of time, one on a line.\n"
	"\n"
	"options:\n"
	"      --role ROLE    only those of processes of that role\n"
	"      --pid PID      only those of that process\n"
	"      --object NAME  only those of that object\n"
	"      --event NAME   only those events; --event help lists them\n"
	"      --since SECS   only from so many seconds after the begin of the trace\n"
	"      --until SECS   only up to there\n"
	"      --json         each as a JSON object on a line of its own\n"
	"  -h, --help         this text\n"
	"\n"
	"environment:\n"
	"  SUBLET_TRACE  the folder, where none is given\n"
	"\n"
	"example:\n"
	"  sublet trace cat --event move --object kv_cache run1.trace\n";

struct cat_options {
	const char *role, *object;
	double pid, since_s, until_s; /* 0: not asked */
	enum trace_event event;	      /* TRACE_EVENT_COUNT: not asked */
	bool as_json;
};

static int list_events(void)
{
#define EVENT(NAME, name, writer, object, allocation, extra) puts(name);
#include "lifecycle/trace.def"
	return STATUS_GOOD;
}

/* Returns -1 to go on, else the exit status. */
static int parse(int argc, char **argv, struct cat_options *options)
{
	static const struct option known[] = {
		{"role", required_argument, NULL, 'r'},
		{"pid", required_argument, NULL, 'p'},
		{"object", required_argument, NULL, 'o'},
		{"event", required_argument, NULL, 'e'},
		{"since", required_argument, NULL, 's'},
		{"until", required_argument, NULL, 'u'},
		{"json", no_argument, NULL, 'j'},
		{"help", no_argument, NULL, 'h'},
		{0},
	};
	int got;

	optind = 0;
	opterr = 0;
	while ((got = getopt_long(argc, argv, ":h", known, NULL)) != -1) {
		switch (got) {
		case 'r':
			options->role = optarg;
			break;
		case 'o':
			options->object = optarg;
			break;
		case 'p':
			if (!command_number(optarg, 1, 4194304, &options->pid))
				return fail(STATUS_USAGE, "'%s' is no process id", optarg);
			break;
		case 's':
		case 'u':
			if (!command_number(optarg, 0, 1e9, got == 's' ? &options->since_s : &options->until_s))
				return fail(STATUS_USAGE, "'%s' is no time in seconds; write it like '--since 12.5'", optarg);
			break;
		case 'e':
			if (strcmp(optarg, "help") == 0)
				return list_events();
			options->event = trace_event_by_name(optarg);
			if (options->event == TRACE_EVENT_COUNT)
				return fail(STATUS_USAGE, "there is no event '%s'; 'sublet trace cat --event help' lists them", optarg);
			break;
		case 'j':
			options->as_json = true;
			break;
		case 'h':
			fputs(help, stdout);
			return STATUS_GOOD;
		default:
			return fail_option("trace cat", got, argv, known);
		}
	}
	return -1;
}

static const char *object_of(const struct trace_model *model, const struct trace_event_view *event)
{
	return event->series ? model->objects.names[event->series->object] : "-";
}

static bool is_wanted(const struct trace_model *model, const struct cat_options *options, const struct trace_event_view *event)
{
	const double seconds = (double)event->time_ns / 1e9;

	return (!options->role || strcmp(options->role, event->process->role) == 0) &&
	       (!options->pid || (int)options->pid == event->process->source->file.header.pid) &&
	       (options->event == TRACE_EVENT_COUNT || options->event == event->event) && seconds >= options->since_s &&
	       (!options->until_s || seconds <= options->until_s) &&
	       (!options->object || strcmp(options->object, object_of(model, event)) == 0);
}

static const char *place(unsigned residency)
{
	return residency < POLICY_RESIDENCY_COUNT ? policy_residency_text((enum policy_residency)residency) : "-";
}

static bool has_step(enum trace_event event)
{
	return event == TRACE_STEP || event == TRACE_BARRIER_STEP;
}

static void print_line(const struct trace_model *model, const struct trace_event_view *event)
{
	const struct trace_row *row = event->row;
	char who[64], bytes[16], took[24];

	printf("%13.6f  %-20s %-14s", (double)event->time_ns / 1e9, trace_process_name(event->process, who, sizeof(who)),
		trace_event_name(event->event));
	if (event->phase)
		printf("  phase %s", model->phases.names[event->phase]);
	if (has_step(event->event))
		printf("  %s of barrier %" PRIu64, trace_step_name(row->object), row->allocation);
	else if (event->event == TRACE_BARRIER)
		printf("  %" PRIu64, row->allocation);
	else if (row->allocation)
		printf("  %s%" PRIu64, event->process->is_coordinator ? "pid " : "#", row->allocation);
	if (event->series)
		printf("  %s", object_of(model, event));
	if (row->from != TRACE_NO_PLACE || row->to != TRACE_NO_PLACE)
		printf("  %s -> %s", place(row->from), place(row->to));
	if (row->bytes)
		printf("  %s", size_format(row->bytes, bytes, sizeof(bytes)));
	if (row->duration_ns)
		printf("  in %s", trace_seconds(row->duration_ns, took, sizeof(took)));
	putchar('\n');
}

static bool print_json(const struct trace_model *model, const struct trace_event_view *event)
{
	const struct trace_row *row = event->row;
	json_t *json = json_object();
	int failed = 0;
	char *text;

#define SET(key, value) failed |= json_object_set_new(json, key, value)
	SET("time_ns", json_integer((json_int_t)event->time_ns));
	SET("pid", json_integer(event->process->source->file.header.pid));
	SET("role", json_text(event->process->role));
	SET("thread", json_integer(row->thread));
	SET("sequence", json_integer((json_int_t)row->sequence));
	SET("event", json_string(trace_event_name(event->event)));
	SET("phase", event->phase ? json_text(model->phases.names[event->phase]) : json_null());
	SET("object", event->series && event->series->object ? json_text(object_of(model, event)) : json_null());
	SET("device", row->device == TRACE_NO_DEVICE ? json_null() : json_integer(row->device));
	SET("allocation", json_integer((json_int_t)row->allocation));
	SET("bytes", json_integer((json_int_t)row->bytes));
	SET("from", row->from < POLICY_RESIDENCY_COUNT ? json_string(place(row->from)) : json_null());
	SET("to", row->to < POLICY_RESIDENCY_COUNT ? json_string(place(row->to)) : json_null());
	SET("duration_ns", json_integer((json_int_t)row->duration_ns));
	SET("step", has_step(event->event) ? json_string(trace_step_name(row->object)) : json_null());
	SET("extra", json_integer(row->extra));
#undef SET
	text = failed ? NULL : json_dumps(json, JSON_COMPACT);
	json_decref(json);
	if (text)
		puts(text);
	free(text);
	return text != NULL;
}

int trace_cat(int argc, char **argv)
{
	struct cat_options options = {.event = TRACE_EVENT_COUNT};
	int status = parse(argc, argv, &options);
	struct trace_event_view event;
	struct trace_model model;
	const char *path;
	bool good = true;

	if (status >= 0)
		return status;
	path = trace_given("cat", argc, argv);
	if (!path)
		return STATUS_USAGE;
	status = trace_open_said(&model, path);
	if (status)
		return status;
	while (good && trace_model_next(&model, &event)) {
		if (!is_wanted(&model, &options, &event))
			continue;
		if (options.as_json)
			good = print_json(&model, &event);
		else
			print_line(&model, &event);
		/* who reads has gone, or the disk is full: said at the end */
		good = good && !ferror(stdout);
	}
	if (!good)
		status = fail(STATUS_BAD, "cannot write the events");
	return trace_close_said(&model, status);
}
