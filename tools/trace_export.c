/* tools/trace_export.c
 * `sublet trace export`: as Chrome's trace events in JSON, which ui.perfetto.dev opens. Written as it is read, so that its size does not
 * matter. Slices of one track must not overlap without nesting: of two that do, the later begins where the earlier ends.
 * Source: "Trace Event Format", the document of Chrome's tracing. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/json.h"
#include "tools/trace_cmd.h"

static const char help[] =
	"usage: sublet trace export --perfetto [OPTION...] [DIR]\n"
	"\n"
	"Writes a trace in the form that ui.perfetto.dev and chrome://tracing open: phases and barriers, bytes over time, moves.\n"
	"\n"
	"options:\n"
	"      --perfetto     as trace events in JSON\n"
	"  -o, --output FILE  into FILE and not on stdout\n"
	"  -h, --help         this text\n"
	"\n"
	"environment:\n"
	"  SUBLET_TRACE  the folder, where none is given\n"
	"\n"
	"example:\n"
	"  sublet trace export --perfetto -o run1.json run1.trace\n";

/* Tracks of a process; threads of its own have larger numbers. */
enum track { TRACK_PHASE = 1, TRACK_GATE, TRACK_STEP, TRACK_WAIT, TRACK_PLACE, TRACK_COUNT = TRACK_PLACE + POLICY_RESIDENCY_COUNT };

/* A process's user. */
struct lanes {
	uint64_t until_ns[TRACK_COUNT];
	bool named[TRACK_COUNT];
	uint32_t phase; /* of the slice that is open; 0: none is */
	uint64_t total[POLICY_RESIDENCY_COUNT];
};

struct export {
	FILE *to;
	struct trace_model *model;
	uint64_t flows;
	bool any, failed;
};

/* ---- writing ---- */

/* @text as it stands in JSON, with quotes; whoever asks frees it. */
static char *quoted(struct export *out, const char *text)
{
	json_t *json = json_text(text);
	char *dumped = json ? json_dumps(json, JSON_ENCODE_ANY) : NULL;

	json_decref(json);
	if (!dumped)
		out->failed = true;
	return dumped;
}

static int pid_of(const struct trace_process *process)
{
	return process->source->file.header.pid;
}

/* Begin an event; what is in front of its end is the caller's. */
static void begin(struct export *out, const struct trace_process *process, char kind, uint64_t ns, int track, const char *name)
{
	char *text = quoted(out, name);

	fprintf(out->to, "%s{\"ph\":\"%c\",\"pid\":%d,\"tid\":%d,\"ts\":%" PRIu64 ".%03u,\"name\":%s", out->any ? ",\n" : "", kind,
		pid_of(process), track, ns / 1000, (unsigned)(ns % 1000), text ? text : "\"?\"");
	out->any = true;
	free(text);
}

static void end(struct export *out)
{
	fputc('}', out->to);
}

static void name_it(struct export *out, const struct trace_process *process, const char *what, int track, const char *name)
{
	char *text;

	begin(out, process, 'M', 0, track, what);
	text = quoted(out, name);
	fprintf(out->to, ",\"args\":{\"name\":%s}", text ? text : "\"?\"");
	free(text);
	end(out);
}

static struct lanes *lanes_of(struct export *out, struct trace_process *process)
{
	char name[64];

	if (process->user)
		return process->user;
	process->user = calloc(1, sizeof(struct lanes));
	if (!process->user) {
		out->failed = true;
		return NULL;
	}
	name_it(out, process, "process_name", 0, trace_process_name(process, name, sizeof(name)));
	return process->user;
}

static const char *track_name(int track)
{
	switch (track) {
	case TRACK_PHASE:
		return "phase";
	case TRACK_GATE:
		return "gate";
	case TRACK_STEP:
		return "barrier";
	case TRACK_WAIT:
		return "waits";
	}
	return policy_residency_text((enum policy_residency)(track - TRACK_PLACE));
}

/* The part of [begin, end] that is free on @track. */
static uint64_t place(struct export *out, const struct trace_process *process, struct lanes *lanes, int track, uint64_t begin_ns,
	uint64_t end_ns)
{
	if (!lanes->named[track])
		name_it(out, process, "thread_name", track, track_name(track));
	lanes->named[track] = true;
	if (begin_ns < lanes->until_ns[track])
		begin_ns = lanes->until_ns[track];
	if (begin_ns > end_ns)
		begin_ns = end_ns;
	lanes->until_ns[track] = end_ns;
	return begin_ns;
}

static uint64_t begin_of(const struct trace_event_view *event)
{
	return event->row->duration_ns < event->time_ns ? event->time_ns - event->row->duration_ns : 0;
}

/* A slice with its duration; returns where it begins. */
static uint64_t slice(struct export *out, const struct trace_event_view *event, int track, const char *name)
{
	struct lanes *lanes = event->process->user;
	const uint64_t begin_ns = place(out, event->process, lanes, track, begin_of(event), event->time_ns);
	const uint64_t took_ns = event->time_ns - begin_ns;

	begin(out, event->process, 'X', begin_ns, track, name);
	fprintf(out->to, ",\"dur\":%" PRIu64 ".%03u,\"args\":{\"bytes\":%" PRIu64 "}", took_ns / 1000, (unsigned)(took_ns % 1000),
		event->row->bytes);
	end(out);
	return begin_ns;
}

static void counter(struct export *out, const struct trace_process *process, const char *name, uint64_t bytes)
{
	begin(out, process, 'C', out->model->now_ns, 0, name);
	fprintf(out->to, ",\"args\":{\"bytes\":%" PRIu64 "}", bytes);
	end(out);
}

static void instant(struct export *out, const struct trace_event_view *event, const char *name)
{
	begin(out, event->process, 'i', event->time_ns, TRACK_STEP, name);
	fputs(",\"s\":\"p\"", out->to);
	end(out);
}

/* ---- events ---- */

static void phase_is(struct export *out, struct trace_process *process, uint32_t phase)
{
	struct lanes *lanes = process->user;

	if (lanes->phase == phase)
		return;
	if (lanes->phase) {
		begin(out, process, 'E', out->model->now_ns, TRACK_PHASE, out->model->phases.names[lanes->phase]);
		end(out);
	}
	lanes->phase = phase;
	if (!phase)
		return;
	place(out, process, lanes, TRACK_PHASE, out->model->now_ns, out->model->now_ns);
	begin(out, process, 'B', out->model->now_ns, TRACK_PHASE, out->model->phases.names[phase]);
	end(out);
}

static void count_series(struct export *out, struct trace_series *series, int residency)
{
	struct lanes *lanes = series->process->user;
	uint64_t *counted = series->user;
	char name[96];

	if (!counted)
		series->user = counted = calloc(POLICY_RESIDENCY_COUNT, sizeof(*counted));
	if (!counted) {
		out->failed = true;
		return;
	}
	if (residency < 0 || counted[residency] == series->bytes[residency])
		return;
	lanes->total[residency] += series->bytes[residency] - counted[residency];
	counted[residency] = series->bytes[residency];
	snprintf(name, sizeof(name), "%s: %.60s", policy_residency_text((enum policy_residency)residency),
		out->model->objects.names[series->object]);
	counter(out, series->process, name, series->bytes[residency]);
	snprintf(name, sizeof(name), "%s: all", policy_residency_text((enum policy_residency)residency));
	counter(out, series->process, name, lanes->total[residency]);
}

/* What changed may be more than the event's own series: an end, or another rule. */
static void count_all(uint64_t key, void *value, void *arg)
{
	for (int r = 0; r < POLICY_RESIDENCY_COUNT; r++)
		count_series(arg, value, r);
}

/* An arrow from a slice where the bytes were to one where they are. */
static void move(struct export *out, const struct trace_event_view *event)
{
	const char *object = out->model->objects.names[event->series->object];
	uint64_t begin_ns;

	if (event->from < 0 || event->to < 0 || event->from == event->to)
		return;
	begin_ns = slice(out, event, TRACK_PLACE + event->from, object);
	begin(out, event->process, 's', begin_ns, TRACK_PLACE + event->from, "move");
	fprintf(out->to, ",\"cat\":\"move\",\"id\":%" PRIu64, ++out->flows);
	end(out);
	slice(out, event, TRACK_PLACE + event->to, object);
	begin(out, event->process, 'f', event->time_ns, TRACK_PLACE + event->to, "move");
	fprintf(out->to, ",\"cat\":\"move\",\"bp\":\"e\",\"id\":%" PRIu64, out->flows);
	end(out);
}

static void step(struct export *out, const struct trace_event_view *event)
{
	char name[128];

	snprintf(name, sizeof(name), "%s for %.80s%s", trace_step_name(event->row->object), out->model->phases.names[event->phase],
		event->row->extra ? " (failed)" : "");
	slice(out, event, TRACK_STEP, name);
}

static void take_event(struct export *out, const struct trace_event_view *event)
{
	struct trace_process *process = event->process;

	if (!lanes_of(out, process))
		return;
	switch (event->event) {
	case TRACE_PHASE:
		phase_is(out, process, event->phase);
		break;
	case TRACE_BARRIER:
		if (!event->row->extra)
			phase_is(out, process, event->phase);
		break;
	case TRACE_STEP:
	case TRACE_BARRIER_STEP:
		step(out, event);
		break;
	case TRACE_HELD:
		slice(out, event, TRACK_GATE, event->row->extra ? "not held" : "shutting");
		break;
	case TRACE_OPENED:
		slice(out, event, TRACK_GATE, "shut");
		break;
	case TRACE_SOFT_SERVICE:
		slice(out, event, TRACK_STEP, "soft service");
		break;
	case TRACE_WAITED:
		slice(out, event, TRACK_WAIT, "waits for a phase");
		break;
	case TRACE_MOVE:
		if (event->series)
			move(out, event);
		break;
	case TRACE_MOVE_FAILED: case TRACE_REFUSED: case TRACE_DEATH:
		instant(out, event, trace_event_name(event->event));
		break;
	case TRACE_NATIVE:
		counter(out, process, "native", event->row->bytes);
		break;
	case TRACE_HOST_POOL:
		counter(out, process, "host pool", event->row->bytes);
		break;
	case TRACE_DEVICE_FREE:
		counter(out, process, "free on the device", event->row->bytes);
		break;
	case TRACE_OBJECT: case TRACE_END:
		map_each(&process->series, count_all, out);
		break;
	case TRACE_BEGIN: case TRACE_JOIN: case TRACE_ROLE: case TRACE_ALLOCATE: case TRACE_SITE: case TRACE_FREE: case TRACE_GIVEN:
	case TRACE_SERVING: case TRACE_JOINED: case TRACE_ARRIVED: case TRACE_LEFT: case TRACE_STOPPED: case TRACE_EVENT_COUNT:
		break;
	}
	if (event->series && event->event != TRACE_OBJECT) {
		count_series(out, event->series, event->from);
		count_series(out, event->series, event->to);
	}
}

static int write_all(struct export *out)
{
	struct trace_event_view event;

	fputs("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n", out->to);
	while (!out->failed && !ferror(out->to) && trace_model_next(out->model, &event))
		take_event(out, &event);
	for (size_t i = 0; i < out->model->processes_count; i++)
		if (out->model->processes[i]->user)
			phase_is(out, out->model->processes[i], 0);
	fputs("\n]}\n", out->to);
	if (out->failed)
		return fail(STATUS_BAD, "out of memory; try again");
	return ferror(out->to) || fflush(out->to) ? fail(STATUS_BAD, "cannot write: %s", strerror(errno)) : STATUS_GOOD;
}

int trace_export(int argc, char **argv)
{
	static const struct option known[] = {{"perfetto", no_argument, NULL, 'p'}, {"output", required_argument, NULL, 'o'},
		{"help", no_argument, NULL, 'h'}, {0}};
	struct trace_model model;
	struct export out = {.to = stdout, .model = &model};
	const char *path, *output = NULL;
	bool perfetto = false;
	int got, status;

	optind = 0;
	opterr = 0;
	while ((got = getopt_long(argc, argv, ":ho:", known, NULL)) != -1) {
		switch (got) {
		case 'p':
			perfetto = true;
			break;
		case 'o':
			output = optarg;
			break;
		case 'h':
			fputs(help, stdout);
			return STATUS_GOOD;
		default:
			return fail_option("trace export", got, argv, known);
		}
	}
	if (!perfetto)
		return fail(STATUS_USAGE, "as what? write 'sublet trace export --perfetto'");
	path = trace_given("export", argc, argv);
	if (!path)
		return STATUS_USAGE;
	status = trace_open_said(&model, path);
	if (status)
		return status;
	if (output && !(out.to = fopen(output, "we")))
		return trace_close_said(&model, fail(STATUS_BAD, "cannot write '%s': %s", output, strerror(errno)));
	status = write_all(&out);
	if (output && fclose(out.to) && !status)
		status = fail(STATUS_BAD, "cannot write '%s': %s", output, strerror(errno));
	return trace_close_said(&model, status);
}
