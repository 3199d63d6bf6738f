/* tools/trace_summary.c
 * `sublet trace summary`: what a trace adds up to, as text or JSON. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "tools/json.h"
#include "tools/trace_cmd.h"
#include "tools/trace_sums.h"

static const char help[] =
	"usage: sublet trace summary [OPTION...] [DIR]\n"
	"\n"
	"Adds up a trace: bytes by phase and object, what moved and how fast, what waited, barriers, and the peak of each device.\n"
	"\n"
	"options:\n"
	"      --json      the same as a JSON document, in bytes and nanoseconds\n"
	"  -h, --help      this text\n"
	"\n"
	"Bytes of several processes of one role are added. A peak of a device is what Sublet manages on it and what it counts as native.\n"
	"\n"
	"environment:\n"
	"  SUBLET_TRACE  the folder, where none is given\n"
	"\n"
	"example:\n"
	"  sublet trace summary run1.trace\n";

enum { HOLDERS_SHOWN = 8, NOTE_ROOM = 16 };

/* ---- text ---- */

static const char *size(uint64_t bytes, char text[NOTE_ROOM])
{
	return bytes ? size_format(bytes, text, NOTE_ROOM) : "-";
}

static const char *role_name(const struct trace_model *model, uint32_t role)
{
	return *model->roles.names[role] ? model->roles.names[role] : "-";
}

static uint64_t mean(const struct trace_sum *sum, int residency)
{
	return sum->time_ns ? (uint64_t)(sum->byte_ns[residency] / (double)sum->time_ns + 0.5) : sum->peak_bytes[residency];
}

static void print_moved(const struct trace_sum *sum)
{
	for (int from = 0; from < POLICY_RESIDENCY_COUNT; from++) {
		for (int to = 0; to < POLICY_RESIDENCY_COUNT; to++) {
			const struct trace_moved *moved = &sum->moved[from][to];
			char bytes[NOTE_ROOM], took[24];

			if (!moved->count)
				continue;
			printf("      %s -> %s: %s in %" PRIu64 " move%s", policy_residency_text((enum policy_residency)from),
				policy_residency_text((enum policy_residency)to), size(moved->bytes, bytes), moved->count, moved->count == 1 ? "" : "s");
			if (moved->busy_ns)
				printf(", %s, %.1f GB/s", trace_seconds(moved->busy_ns, took, sizeof(took)),
					(double)moved->bytes / (double)moved->busy_ns);
			putchar('\n');
		}
	}
	if (sum->failed)
		printf("      %" PRIu64 " move%s failed\n", sum->failed, sum->failed == 1 ? "" : "s");
}

static void print_waits(const struct trace_model *model, const struct trace_sums *sums, uint32_t phase)
{
	for (size_t i = 0; i < sums->waits_count; i++) {
		const struct trace_waits *waits = &sums->waits[i];
		char held[24], shut[24], waited[24];

		if (waits->phase != phase)
			continue;
		printf("  %s: %" PRIu64 " hold%s, %s to shut the gate, %s shut", role_name(model, waits->role), waits->holds,
			waits->holds == 1 ? "" : "s", trace_seconds(waits->held_ns, held, sizeof(held)),
			trace_seconds(waits->shut_ns, shut, sizeof(shut)));
		if (waits->failed_holds)
			printf(", %" PRIu64 " given up", waits->failed_holds);
		if (waits->waited_ns)
			printf(", %s waiting for a phase", trace_seconds(waits->waited_ns, waited, sizeof(waited)));
		if (waits->soft_services)
			printf(", %" PRIu64 " served softly", waits->soft_services);
		putchar('\n');
	}
}

static void print_phases(const struct trace_model *model, const struct trace_sums *sums)
{
	uint32_t phase = TRACE_NOTHING;

	for (size_t i = 0; i < sums->sums_count; i++) {
		const struct trace_sum *sum = &sums->sums[i];
		char device[NOTE_ROOM], peak[NOTE_ROOM], parked[NOTE_ROOM], host[NOTE_ROOM], empty[NOTE_ROOM], took[24];

		if (sum->phase != phase) {
			phase = sum->phase;
			printf("\nphase %s\n", phase ? model->phases.names[phase] : "none yet");
			print_waits(model, sums, phase);
			printf("  %-12s %-20s %10s %11s %11s %11s %11s %11s\n", "role", "object", "time", "device", "its peak", "parked", "host",
				"empty");
		}
		printf("  %-12s %-20s %10s %11s %11s %11s %11s %11s\n", role_name(model, sum->role), model->objects.names[sum->object],
			trace_seconds(sum->time_ns, took, sizeof(took)), size(mean(sum, POLICY_DEVICE), device),
			size(sum->peak_bytes[POLICY_DEVICE], peak), size(mean(sum, POLICY_PARKED), parked), size(mean(sum, POLICY_HOST), host),
			size(mean(sum, POLICY_EMPTY), empty));
		print_moved(sum);
	}
}

static void print_barriers(const struct trace_model *model, const struct trace_sums *sums)
{
	if (sums->barriers_count)
		puts("\nbarriers");
	for (size_t i = 0; i < sums->barriers_count; i++) {
		const struct trace_barriers *barriers = &sums->barriers[i];
		char mean_text[24], most[24], bytes[NOTE_ROOM], took[24];

		if (!barriers->count)
			continue;
		printf("  %-12s %" PRIu64 ", %s each, %s at most, %s moved", model->phases.names[barriers->phase], barriers->count,
			trace_seconds(barriers->sum_ns / barriers->count, mean_text, sizeof(mean_text)),
			trace_seconds(barriers->most_ns, most, sizeof(most)), size(barriers->bytes, bytes));
		if (barriers->failed)
			printf(", %" PRIu64 " failed", barriers->failed);
		putchar('\n');
		for (uint32_t step = 0; step < TRACE_STEPS; step++)
			if (barriers->steps[step])
				printf("      %-9s %s each\n", trace_step_name(step),
					trace_seconds(barriers->step_ns[step] / barriers->steps[step], took, sizeof(took)));
	}
	if (sums->refused)
		printf("  host memory was refused %" PRIu64 " time%s\n", sums->refused, sums->refused == 1 ? "" : "s");
	if (sums->deaths)
		printf("  %" PRIu64 " process%s ended\n", sums->deaths, sums->deaths == 1 ? "" : "es");
}

static void print_devices(const struct trace_model *model)
{
	for (size_t d = 0; d < model->devices_count; d++) {
		const struct trace_device *device = &model->devices[d];
		char peak[NOTE_ROOM], at[24], bytes[NOTE_ROOM], who[64], total[NOTE_ROOM];

		printf("\ndevice %" PRIu32 " (%s): peak %s at %s\n", device->number, device->name, size(device->peak_bytes, peak), trace_seconds(device->peak_ns, at, sizeof(at)));
		for (size_t i = 0; i < device->holders_count && i < HOLDERS_SHOWN; i++) {
			const struct trace_holder *holder = &device->holders[i];

			printf("  %11s  %s %s\n", size(holder->bytes, bytes), trace_process_name(holder->process, who, sizeof(who)),
				holder->series ? model->objects.names[holder->series->object] : "native");
		}
		if (device->holders_count > HOLDERS_SHOWN)
			printf("  and %zu more\n", device->holders_count - HOLDERS_SHOWN);
		if (device->free_known)
			printf("  at barriers the driver had %s of %s free at least\n", size(device->least_free_bytes, bytes),
				size(device->total_bytes, total));
	}
}

static void print_unmoved(const struct trace_model *model, const struct trace_sums *sums)
{
	bool said = false;

	for (size_t i = 0; i < sums->objects_count; i++) {
		const struct trace_object_sum *object = &sums->objects[i];
		char bytes[NOTE_ROOM];

		if (object->moves || !object->peak_bytes)
			continue;
		if (!said)
			puts("\nnever moved");
		said = true;
		printf("  %11s  %s %s\n", size(object->peak_bytes, bytes), role_name(model, object->role), model->objects.names[object->object]);
	}
}

static void print_text(const struct trace_model *model, const struct trace_sums *sums)
{
	char took[24];

	printf("%" PRIu64 " events of %zu process%s in %s\n", model->events, model->processes_count, model->processes_count == 1 ? "" : "es",
		trace_seconds(model->now_ns, took, sizeof(took)));
	print_phases(model, sums);
	print_barriers(model, sums);
	print_devices(model);
	print_unmoved(model, sums);
	if (model->recovered || model->unknown_frees)
		printf("\n%" PRIu64 " allocations were met only later and are counted from there\n", model->recovered + model->unknown_frees);
}

/* ---- JSON ---- */

#define SET(json, key, value) json_object_set_new(json, key, value)
#define NUMBER(value) json_integer((json_int_t)(value))

static json_t *places_json(const struct trace_sum *sum, bool peaks)
{
	json_t *json = json_object();

	for (int r = 0; r < POLICY_RESIDENCY_COUNT; r++)
		SET(json, policy_residency_text((enum policy_residency)r), NUMBER(peaks ? sum->peak_bytes[r] : mean(sum, r)));
	return json;
}

static json_t *moved_json(const struct trace_sum *sum)
{
	json_t *array = json_array();

	for (int from = 0; from < POLICY_RESIDENCY_COUNT; from++) {
		for (int to = 0; to < POLICY_RESIDENCY_COUNT; to++) {
			const struct trace_moved *moved = &sum->moved[from][to];
			json_t *json;

			if (!moved->count)
				continue;
			json = json_object();
			SET(json, "from", json_string(policy_residency_text((enum policy_residency)from)));
			SET(json, "to", json_string(policy_residency_text((enum policy_residency)to)));
			SET(json, "count", NUMBER(moved->count));
			SET(json, "bytes", NUMBER(moved->bytes));
			SET(json, "busy_ns", NUMBER(moved->busy_ns));
			json_array_append_new(array, json);
		}
	}
	return array;
}

static json_t *name_json(const struct trace_names *names, uint32_t number)
{
	return number ? json_text(names->names[number]) : json_null();
}

static json_t *sums_json(const struct trace_model *model, const struct trace_sums *sums)
{
	json_t *array = json_array();

	for (size_t i = 0; i < sums->sums_count; i++) {
		const struct trace_sum *sum = &sums->sums[i];
		json_t *json = json_object();

		SET(json, "phase", name_json(&model->phases, sum->phase));
		SET(json, "role", json_text(model->roles.names[sum->role]));
		SET(json, "object", name_json(&model->objects, sum->object));
		SET(json, "time_ns", NUMBER(sum->time_ns));
		SET(json, "mean_bytes", places_json(sum, false));
		SET(json, "peak_bytes", places_json(sum, true));
		SET(json, "allocated", NUMBER(sum->allocated));
		SET(json, "allocated_bytes", NUMBER(sum->allocated_bytes));
		SET(json, "freed", NUMBER(sum->freed));
		SET(json, "moved", moved_json(sum));
		SET(json, "failed_moves", NUMBER(sum->failed));
		json_array_append_new(array, json);
	}
	return array;
}

static json_t *waits_json(const struct trace_model *model, const struct trace_sums *sums)
{
	json_t *array = json_array();

	for (size_t i = 0; i < sums->waits_count; i++) {
		const struct trace_waits *waits = &sums->waits[i];
		json_t *json = json_object();

		SET(json, "phase", name_json(&model->phases, waits->phase));
		SET(json, "role", json_text(model->roles.names[waits->role]));
		SET(json, "holds", NUMBER(waits->holds));
		SET(json, "failed_holds", NUMBER(waits->failed_holds));
		SET(json, "held_ns", NUMBER(waits->held_ns));
		SET(json, "shut_ns", NUMBER(waits->shut_ns));
		SET(json, "waited_ns", NUMBER(waits->waited_ns));
		SET(json, "soft_services", NUMBER(waits->soft_services));
		json_array_append_new(array, json);
	}
	return array;
}

static json_t *barriers_json(const struct trace_model *model, const struct trace_sums *sums)
{
	json_t *array = json_array();

	for (size_t i = 0; i < sums->barriers_count; i++) {
		const struct trace_barriers *barriers = &sums->barriers[i];
		json_t *json = json_object(), *steps = json_object();

		SET(json, "phase", name_json(&model->phases, barriers->phase));
		SET(json, "count", NUMBER(barriers->count));
		SET(json, "failed", NUMBER(barriers->failed));
		SET(json, "moved_bytes", NUMBER(barriers->bytes));
		SET(json, "sum_ns", NUMBER(barriers->sum_ns));
		SET(json, "most_ns", NUMBER(barriers->most_ns));
		for (uint32_t step = 0; step < TRACE_STEPS; step++)
			if (barriers->steps[step])
				SET(steps, trace_step_name(step), NUMBER(barriers->step_ns[step]));
		SET(json, "steps_ns", steps);
		json_array_append_new(array, json);
	}
	return array;
}

static json_t *device_json(const struct trace_model *model, const struct trace_device *device)
{
	json_t *json = json_object(), *holders = json_array();

	SET(json, "device", json_text(device->name));
	SET(json, "number", NUMBER(device->number));
	SET(json, "peak_bytes", NUMBER(device->peak_bytes));
	SET(json, "peak_at_ns", NUMBER(device->peak_ns));
	for (size_t i = 0; i < device->holders_count; i++) {
		const struct trace_holder *holder = &device->holders[i];
		json_t *one = json_object();

		SET(one, "pid", NUMBER(holder->process->source->file.header.pid));
		SET(one, "role", json_text(holder->process->role));
		SET(one, "object", holder->series ? name_json(&model->objects, holder->series->object) : json_string("native"));
		SET(one, "bytes", NUMBER(holder->bytes));
		json_array_append_new(holders, one);
	}
	SET(json, "holders", holders);
	SET(json, "least_free_bytes", device->free_known ? NUMBER(device->least_free_bytes) : json_null());
	SET(json, "total_bytes", device->free_known ? NUMBER(device->total_bytes) : json_null());
	return json;
}

static json_t *unmoved_json(const struct trace_model *model, const struct trace_sums *sums)
{
	json_t *array = json_array();

	for (size_t i = 0; i < sums->objects_count; i++) {
		json_t *json;

		if (sums->objects[i].moves || !sums->objects[i].peak_bytes)
			continue;
		json = json_object();
		SET(json, "role", json_text(model->roles.names[sums->objects[i].role]));
		SET(json, "object", name_json(&model->objects, sums->objects[i].object));
		SET(json, "peak_bytes", NUMBER(sums->objects[i].peak_bytes));
		json_array_append_new(array, json);
	}
	return array;
}

static json_t *processes_json(const struct trace_model *model)
{
	json_t *array = json_array();

	for (size_t i = 0; i < model->processes_count; i++) {
		const struct trace_process *process = model->processes[i];
		const struct trace_header *header = &process->source->file.header;
		json_t *json = json_object();

		SET(json, "pid", NUMBER(header->pid));
		SET(json, "coordinator", json_boolean(process->is_coordinator));
		SET(json, "role", json_text(process->role));
		SET(json, "command", json_text(header->command));
		SET(json, "driver_version", process->driver_version ? NUMBER(process->driver_version) : json_null());
		SET(json, "ended", json_boolean(process->ended || header->ended));
		SET(json, "lost_events", NUMBER(process->source->file.lost_rows));
		SET(json, "damaged_events", NUMBER(process->source->file.torn_rows + process->source->file.missing_rows));
		json_array_append_new(array, json);
	}
	return array;
}

static int print_json(const struct trace_model *model, const struct trace_sums *sums)
{
	json_t *json = json_object(), *devices = json_array(), *events = json_object();

	for (size_t d = 0; d < model->devices_count; d++)
		json_array_append_new(devices, device_json(model, &model->devices[d]));
	for (unsigned e = 0; e < TRACE_EVENT_COUNT; e++)
		if (sums->events[e])
			SET(events, trace_event_name(e), NUMBER(sums->events[e]));
	SET(json, "duration_ns", NUMBER(model->now_ns));
	SET(json, "events", events);
	SET(json, "processes", processes_json(model));
	SET(json, "objects", sums_json(model, sums));
	SET(json, "waits", waits_json(model, sums));
	SET(json, "barriers", barriers_json(model, sums));
	SET(json, "devices", devices);
	SET(json, "never_moved", unmoved_json(model, sums));
	SET(json, "refused", NUMBER(sums->refused));
	SET(json, "deaths", NUMBER(sums->deaths));
	SET(json, "met_late", NUMBER(model->recovered + model->unknown_frees));
	return json_print(json);
}

int trace_summary(int argc, char **argv)
{
	static const struct option known[] = {{"json", no_argument, NULL, 'j'}, {"help", no_argument, NULL, 'h'}, {0}};
	struct trace_model model;
	struct trace_sums sums;
	const char *path;
	bool as_json = false;
	int got, status;

	optind = 0;
	opterr = 0;
	while ((got = getopt_long(argc, argv, ":h", known, NULL)) != -1) {
		if (got == 'h') {
			fputs(help, stdout);
			return STATUS_GOOD;
		}
		if (got != 'j')
			return fail_option("trace summary", got, argv, known);
		as_json = true;
	}
	path = trace_given("summary", argc, argv);
	if (!path)
		return STATUS_USAGE;
	status = trace_open_said(&model, path);
	if (status)
		return status;
	if (!trace_sums_take(&sums, &model))
		model.out_of_memory = true;
	else if (as_json)
		status = print_json(&model, &sums);
	else
		print_text(&model, &sums);
	trace_sums_release(&sums);
	return trace_close_said(&model, status);
}
