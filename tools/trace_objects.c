/* tools/trace_objects.c
 * `sublet trace objects`: what was allocated, by size and caller, and what a policy could call it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "tools/json.h"
#include "tools/trace_cmd.h"
#include "tools/trace_groups.h"

static const char help[] =
	"usage: sublet trace objects [OPTION...] [DIR]\n"
	"\n"
	"Lists what the processes of a trace have allocated: those of one size and caller together, the largest first.\n"
	"\n"
	"options:\n"
	"      --suggest   a policy's 'objects:' that tells them apart, as 'sublet ctl objects --suggest' does while they run\n"
	"      --json      as JSON, with the callers' whole stacks where they were kept ('sublet run --callers')\n"
	"  -h, --help      this text\n"
	"\n"
	"environment:\n"
	"  SUBLET_TRACE  the folder, where none is given\n"
	"\n"
	"example:\n"
	"  sublet trace objects --suggest run1.trace > policy.yaml\n";

static int by_bytes(const void *a, const void *b)
{
	const struct trace_group *left = a, *right = b;
	const uint64_t l = left->counts.size_bytes * left->counts.peak_live, r = right->counts.size_bytes * right->counts.peak_live;

	if (l != r)
		return l < r ? 1 : -1;
	return left->counts.first_serial < right->counts.first_serial ? -1 : left->counts.first_serial > right->counts.first_serial;
}

/* The names of the phases that @set has bits of. */
static const char *phases_text(const struct trace_model *model, uint64_t set, char *text, size_t room)
{
	text[0] = '\0';
	for (uint32_t phase = 0; phase < 64 && phase < model->phases.count; phase++) {
		const size_t used = strlen(text);

		if (set >> phase & 1)
			snprintf(text + used, room - used, "%s%s", used ? "," : "", model->phases.names[phase]);
	}
	return text;
}

/* Of a site what says most in one word: its tag, else its innermost Python frame, else native, else library. */
static const char *telling_line(const char *site, char *text, size_t room)
{
	static const char *const words[] = {"tag: ", "python: ", "stack: ", "library: ", "thread: "};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		const char *at = site;

		while (*at) {
			const size_t length = strcspn(at, "\n");

			if (strncmp(at, words[i], strlen(words[i])) == 0) {
				snprintf(text, room, "%.*s", (int)(length - strlen(words[i])), at + strlen(words[i]));
				return text;
			}
			at += length + (at[length] == '\n');
		}
	}
	return "";
}

static void print_text(const struct trace_model *model, const struct trace_groups *groups)
{
	printf("%11s %8s %8s %8s  %-20s %-20s %-16s %s\n", "size", "made", "at most", "at end", "process", "object", "phase", "caller");
	for (size_t i = 0; i < groups->count; i++) {
		const struct trace_group *group = &groups->groups[i];
		char bytes[16], who[64], phases[128], caller[64];

		printf("%11s %8" PRIu64 " %8" PRIu64 " %8" PRIu64 "  %-20s %-20s %-16s %s\n",
			size_format(group->counts.size_bytes, bytes, sizeof(bytes)), group->counts.count, group->counts.peak_live, group->counts.live,
			trace_process_name(group->process, who, sizeof(who)), model->objects.names[group->object],
			phases_text(model, group->phases, phases, sizeof(phases)),
			telling_line(trace_model_site(group->process, group->site), caller, sizeof(caller)));
	}
}

static json_t *site_json(const char *site)
{
	json_t *lines = json_array();

	while (*site) {
		const size_t length = strcspn(site, "\n");
		char *line = strndup(site, length);

		json_array_append_new(lines, line ? json_text(line) : NULL);
		free(line);
		site += length + (site[length] == '\n');
	}
	return lines;
}

static int print_json(const struct trace_model *model, const struct trace_groups *groups)
{
	json_t *array = json_array();

	for (size_t i = 0; i < groups->count; i++) {
		const struct trace_group *group = &groups->groups[i];
		json_t *json = json_object(), *phases = json_array();

#define SET(key, value) json_object_set_new(json, key, value)
		SET("pid", json_integer(group->process->source->file.header.pid));
		SET("role", json_text(group->process->role));
		SET("object", group->object ? json_text(model->objects.names[group->object]) : json_null());
		SET("size_bytes", json_integer((json_int_t)group->counts.size_bytes));
		SET("device", json_integer(group->counts.device));
		SET("made", json_integer((json_int_t)group->counts.count));
		SET("freed", json_integer((json_int_t)group->counts.freed));
		SET("freed_lived_ns", json_integer((json_int_t)group->counts.freed_lived_ns));
		SET("peak_live", json_integer((json_int_t)group->counts.peak_live));
		SET("live_at_end", json_integer((json_int_t)group->counts.live));
		for (uint32_t phase = 1; phase < 64 && phase < model->phases.count; phase++)
			if (group->phases >> phase & 1)
				json_array_append_new(phases, json_text(model->phases.names[phase]));
		SET("phases", phases);
		SET("caller", group->site == TRACE_NO_TEXT ? json_null() : site_json(trace_model_site(group->process, group->site)));
#undef SET
		json_array_append_new(array, json);
	}
	return json_print(array);
}

static int suggest(const struct trace_model *model, const struct trace_groups *groups)
{
	struct inventories inventories;
	int status;

	if (!groups->count)
		return fail(STATUS_BAD, "nothing was allocated in this trace, so there is nothing to suggest");
	if (trace_groups_as_inventories(groups, model, &inventories))
		status = inventories_suggest(&inventories);
	else
		status = fail(STATUS_BAD, "out of memory; try again");
	inventories_release(&inventories);
	return status;
}

int trace_objects(int argc, char **argv)
{
	static const struct option known[] = {{"suggest", no_argument, NULL, 's'}, {"json", no_argument, NULL, 'j'},
		{"help", no_argument, NULL, 'h'}, {0}};
	struct trace_groups groups;
	struct trace_model model;
	const char *path;
	bool as_json = false, suggests = false;
	int got, status;

	optind = 0;
	opterr = 0;
	while ((got = getopt_long(argc, argv, ":h", known, NULL)) != -1) {
		if (got == 'h') {
			fputs(help, stdout);
			return STATUS_GOOD;
		}
		if (got != 'j' && got != 's')
			return fail_option("trace objects", got, argv, known);
		as_json = as_json || got == 'j';
		suggests = suggests || got == 's';
	}
	if (as_json && suggests)
		return fail(STATUS_USAGE, "a suggestion is YAML; give one of '--suggest' and '--json'");
	path = trace_given("objects", argc, argv);
	if (!path)
		return STATUS_USAGE;
	status = trace_open_said(&model, path);
	if (status)
		return status;
	if (!trace_groups_take(&groups, &model)) {
		model.out_of_memory = true;
	} else {
		if (groups.count)
			qsort(groups.groups, groups.count, sizeof(*groups.groups), by_bytes);
		status = suggests ? suggest(&model, &groups) : as_json ? print_json(&model, &groups) : STATUS_GOOD;
		if (!as_json && !suggests)
			print_text(&model, &groups);
	}
	trace_groups_release(&groups);
	return trace_close_said(&model, status);
}
