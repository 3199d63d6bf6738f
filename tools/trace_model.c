/* tools/trace_model.c
 * Each event changes the bytes of one series at most. Nothing of a row is used as an index before it is looked at. */
#include "tools/trace_model.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "lifecycle/protocol.h"

const char *trace_step_name(uint32_t step)
{
	static const char *const names[] = {[PROTOCOL_STEP_PLAN] = "plan", [PROTOCOL_STEP_HOLD] = "hold", [PROTOCOL_STEP_REOPEN] = "reopen",
		[PROTOCOL_STEP_RELEASE] = "release", [PROTOCOL_STEP_ACQUIRE] = "acquire", [PROTOCOL_STEP_ROOM] = "room",
		[PROTOCOL_STEP_REVERSE] = "reverse", [PROTOCOL_STEP_OPEN] = "open", [PROTOCOL_STEP_EXCHANGE] = "exchange",
		/* the coordinator's (enum barrier_step) */
		[PROTOCOL_STEP_COUNT] = "move", [PROTOCOL_STEP_COUNT + 1] = "pause"};

	return step < sizeof(names) / sizeof(names[0]) ? names[step] : "?";
}

/* ---- names ---- */

/* The number of @name; 0 when memory ran out. */
static uint32_t intern(struct trace_names *names, const char *name)
{
	char *copy;

	for (size_t i = 0; i < names->count; i++)
		if (strcmp(names->names[i], name) == 0)
			return (uint32_t)i;
	copy = strdup(name);
	if (!copy || !list_room(&names->names, names->count, &names->room, sizeof(*names->names))) {
		free(copy);
		return 0;
	}
	names->names[names->count] = copy;
	return (uint32_t)names->count++;
}

static void release_names(struct trace_names *names)
{
	for (size_t i = 0; i < names->count; i++)
		free(names->names[i]);
	free(names->names);
}

/* What text @number of the process stands for in @names; 0 for none. */
static uint32_t name_of(struct trace_process *process, struct trace_names *names, enum trace_text_kind kind, uint32_t number)
{
	const struct trace_file *file = &process->source->file;
	const char *text;

	if (number >= file->texts_count)
		return 0;
	if (number >= process->texts_count) {
		uint32_t *texts = realloc(process->texts, file->texts_count * sizeof(*texts));

		if (!texts)
			return 0;
		memset(texts + process->texts_count, 0, (file->texts_count - process->texts_count) * sizeof(*texts));
		process->texts = texts;
		process->texts_count = file->texts_count;
	}
	text = trace_file_text(file, kind, number);
	if (!text)
		return 0;
	if (!process->texts[number])
		process->texts[number] = intern(names, text) + 1;
	return process->texts[number] - 1;
}

const char *trace_model_site(const struct trace_process *process, uint32_t number)
{
	const char *text = trace_file_text(&process->source->file, TRACE_TEXT_SITE, number);

	return text ? text : "";
}

/* ---- devices ---- */

static uint32_t device_by_name(struct trace_model *model, const char *name, uint32_t number)
{
	for (size_t i = 0; i < model->devices_count; i++)
		if (strcmp(model->devices[i].name, name) == 0)
			return (uint32_t)i;
	if (!list_room(&model->devices, model->devices_count, &model->devices_room, sizeof(*model->devices)))
		return TRACE_NOTHING;
	model->devices[model->devices_count] = (struct trace_device){.name = strdup(name), .number = number};
	if (!model->devices[model->devices_count].name)
		return TRACE_NOTHING;
	return (uint32_t)model->devices_count++;
}

/* The identity that the process gives its device @number; its number where it gives none. */
static uint32_t device_of(struct trace_model *model, struct trace_process *process, uint32_t number)
{
	const struct trace_file *file = &process->source->file;
	char name[64];
	uint32_t found;

	if (number >= TRACE_MODEL_DEVICES)
		return TRACE_NOTHING;
	if (process->device[number])
		return process->device[number] - 1;
	snprintf(name, sizeof(name), "%" PRIu32, number);
	for (size_t i = 0; i < file->texts_count; i++) {
		const char *text = trace_file_text(file, TRACE_TEXT_DEVICE, (uint32_t)i);
		char *end;

		if (text && strtoul(text, &end, 10) == number && *end == ' ' && end > text)
			snprintf(name, sizeof(name), "%.40s", end + 1);
	}
	found = device_by_name(model, name, number);
	if (found != TRACE_NOTHING)
		process->device[number] = found + 1;
	return found;
}

static int by_bytes(const void *a, const void *b)
{
	const uint64_t left = ((const struct trace_holder *)a)->bytes, right = ((const struct trace_holder *)b)->bytes;

	return left < right ? 1 : left > right ? -1 : 0;
}

static void add_holder(struct trace_device *device, const struct trace_series *series, const struct trace_process *process, uint64_t bytes)
{
	if (bytes && list_room(&device->holders, device->holders_count, &device->holders_room, sizeof(*device->holders)))
		device->holders[device->holders_count++] = (struct trace_holder){series, process, bytes};
}

struct look {
	struct trace_device *device;
	uint32_t number;
};

static void look_at(struct trace_series *series, void *arg)
{
	const struct look *look = arg;

	if (series->device == look->number)
		add_holder(look->device, series, series->process, series->bytes[POLICY_DEVICE]);
}

/* Who holds what, while the device is at its peak: asked for only when it is about to have less. */
static void settle_peak(struct trace_model *model, uint32_t number)
{
	struct trace_device *device = &model->devices[number];
	struct look look = {device, number};

	if (!device->holders_due)
		return;
	device->holders_due = false;
	device->holders_count = 0;
	trace_model_each_series(model, look_at, &look);
	for (size_t p = 0; p < model->processes_count; p++)
		for (uint32_t d = 0; d < TRACE_MODEL_DEVICES; d++)
			if (model->processes[p]->device[d] == number + 1)
				add_holder(device, NULL, model->processes[p], model->processes[p]->native_bytes[d]);
	qsort(device->holders, device->holders_count, sizeof(*device->holders), by_bytes);
}

void trace_model_settle_peaks(struct trace_model *model)
{
	for (size_t d = 0; d < model->devices_count; d++)
		settle_peak(model, (uint32_t)d);
}

/* Before the state that makes up @device's bytes is changed: is it less, then the peak is over. */
static void device_will_have(struct trace_model *model, uint32_t number, uint64_t bytes)
{
	if (bytes < model->devices[number].bytes)
		settle_peak(model, number);
}

static void device_has(struct trace_model *model, uint32_t number, uint64_t bytes)
{
	struct trace_device *device = &model->devices[number];

	device->bytes = bytes;
	if (bytes <= device->peak_bytes)
		return;
	device->peak_bytes = bytes;
	device->peak_ns = model->now_ns;
	device->holders_due = true;
}

/* ---- series and allocations ---- */

static struct trace_series *series_of(struct trace_model *model, struct trace_process *process, uint32_t object, uint32_t device)
{
	const uint64_t key = (uint64_t)object << 32 | device;
	struct trace_series *series = map_get(&process->series, key);

	if (series)
		return series;
	series = calloc(1, sizeof(*series));
	if (series)
		*series = (struct trace_series){.process = process, .object = object, .device = device, .begun_ns = model->now_ns};
	if (series && map_put(&process->series, key, series))
		return series;
	free(series);
	model->out_of_memory = true;
	return NULL;
}

/* @bytes of @series go from one residency to another; -1: none. */
static void change(struct trace_model *model, struct trace_series *series, uint64_t bytes, int from, int to)
{
	const uint32_t number = series->device;
	uint64_t now = model->devices[number].bytes;

	now -= from == POLICY_DEVICE ? bytes : 0;
	now += to == POLICY_DEVICE ? bytes : 0;
	device_will_have(model, number, now);
	if (from >= 0)
		series->bytes[from] -= bytes;
	if (to >= 0)
		series->bytes[to] += bytes;
	device_has(model, number, now);
}

static void tell_change(struct trace_event_view *ret, const struct trace_live *live, int from, int to)
{
	ret->series = live->series;
	ret->bytes = live->bytes;
	ret->from = from;
	ret->to = to;
	ret->live = live;
}

static struct trace_live *begin_live(struct trace_model *model, struct trace_event_view *event, unsigned residency)
{
	const struct trace_row *row = event->row;
	struct trace_process *process = event->process;
	const uint32_t device = device_of(model, process, row->device);
	struct trace_series *series;
	struct trace_live *live;

	if (device == TRACE_NOTHING || residency >= POLICY_RESIDENCY_COUNT)
		return NULL;
	series = series_of(model, process, name_of(process, &model->objects, TRACE_TEXT_OBJECT, row->object), device);
	live = series ? malloc(sizeof(*live)) : NULL;
	if (live)
		*live = (struct trace_live){.series = series, .bytes = row->bytes, .requested_bytes = row->bytes, .since_ns = event->time_ns,
			.site = TRACE_NO_TEXT, .phase = event->phase, .residency = (uint8_t)residency};
	if (!live || !map_put(&process->live, row->allocation, live)) {
		free(live);
		model->out_of_memory = true;
		return NULL;
	}
	series->allocations++;
	change(model, series, live->bytes, -1, (int)residency);
	return live;
}

static void end_live(struct trace_model *model, struct trace_event_view *event)
{
	struct trace_live *live = map_get(&event->process->live, event->row->allocation);

	if (!live) {
		model->unknown_frees++;
		return;
	}
	tell_change(event, live, live->residency, -1);
	change(model, live->series, live->bytes, live->residency, -1);
	live->series->allocations--;
	/* the entry goes now, the allocation when the reader has seen the event */
	model->freed = map_take(&event->process->live, event->row->allocation);
}

static void allocated(struct trace_model *model, struct trace_event_view *event)
{
	const struct trace_row *row = event->row;
	struct trace_live *live = map_get(&event->process->live, row->allocation);

	if (live)
		return; /* a free that was refused, and not written as one */
	live = begin_live(model, event, row->to);
	if (!live)
		return;
	live->requested_bytes = row->extra < row->bytes ? row->bytes - row->extra : row->bytes;
	tell_change(event, live, -1, row->to);
}

/* It falls under another rule from now on. */
static void named(struct trace_model *model, struct trace_event_view *event)
{
	const struct trace_row *row = event->row;
	struct trace_live *live = map_get(&event->process->live, row->allocation);
	struct trace_series *series;

	if (!live) {
		model->recovered++;
		allocated(model, event);
		return;
	}
	series = series_of(model, event->process, name_of(event->process, &model->objects, TRACE_TEXT_OBJECT, row->object), live->series->device);
	if (!series)
		return;
	live->series->bytes[live->residency] -= live->bytes;
	live->series->allocations--;
	series->bytes[live->residency] += live->bytes;
	series->allocations++;
	live->series = series;
	tell_change(event, live, live->residency, live->residency);
}

static void moved(struct trace_model *model, struct trace_event_view *event)
{
	const struct trace_row *row = event->row;
	struct trace_live *live = map_get(&event->process->live, row->allocation);

	if (row->to >= POLICY_RESIDENCY_COUNT)
		return;
	if (!live) {
		/* what it was before is what the row says, and was so for longer */
		model->recovered++;
		live = begin_live(model, event, row->from);
		if (!live)
			return;
	}
	tell_change(event, live, live->residency, row->to);
	change(model, live->series, live->bytes, live->residency, row->to);
	live->residency = row->to;
}

static void native_is(struct trace_model *model, struct trace_process *process, uint32_t number, uint64_t bytes)
{
	const uint32_t found = device_of(model, process, number);
	uint64_t now;

	if (found == TRACE_NOTHING)
		return;
	now = model->devices[found].bytes - process->native_bytes[number] + bytes;
	device_will_have(model, found, now);
	model->devices[found].native_bytes += bytes - process->native_bytes[number];
	process->native_bytes[number] = bytes;
	device_has(model, found, now);
}

/* ---- processes ---- */

static void visit_series(uint64_t key, void *value, void *arg)
{
	struct trace_model *model = arg;
	struct trace_series *series = value;

	change(model, series, series->bytes[POLICY_DEVICE], POLICY_DEVICE, -1);
	memset(series->bytes, 0, sizeof(series->bytes));
	series->allocations = 0;
}

/* The driver takes everything back. */
static void process_ends(struct trace_model *model, struct trace_process *process)
{
	if (process->ended)
		return;
	process->ended = true;
	process->ended_ns = model->now_ns;
	map_each(&process->series, visit_series, model);
	for (uint32_t d = 0; d < TRACE_MODEL_DEVICES; d++)
		if (process->device[d])
			native_is(model, process, d, 0);
	process->host_pool_bytes = 0;
	map_clear(&process->live, free);
}

/* The coordinator knows of a death by the pid; what a later process of that pid did is another file. */
static void pid_ends(struct trace_model *model, uint64_t pid)
{
	for (size_t i = 0; i < model->processes_count; i++) {
		struct trace_process *process = model->processes[i];

		if (!process->is_coordinator && (uint64_t)process->source->file.header.pid == pid && process->source->last_ns &&
			process->source->at == process->source->count)
			process_ends(model, process);
	}
}

static struct trace_process *process_of(struct trace_model *model, struct trace_source *source)
{
	struct trace_process *process = source->user;
	const struct trace_file *file = &source->file;
	const char *role = file->header.role;

	if (process)
		return process;
	process = calloc(1, sizeof(*process));
	if (!process || !list_room(&model->processes, model->processes_count, &model->processes_room, sizeof(struct trace_process *))) {
		free(process);
		return NULL;
	}
	/* the one that the policy found stands for the time before too */
	for (size_t i = 0; i < file->texts_count; i++)
		if (file->header.writer == TRACE_WRITER_PROCESS && trace_file_text(file, TRACE_TEXT_ROLE, (uint32_t)i))
			role = trace_file_text(file, TRACE_TEXT_ROLE, (uint32_t)i);
	process->source = source;
	process->is_coordinator = file->header.writer == TRACE_WRITER_COORDINATOR;
	process->role_number = intern(&model->roles, role);
	process->role = model->roles.names[process->role_number];
	source->user = process;
	model->processes[model->processes_count++] = process;
	return process;
}

static void free_process(struct trace_process *process)
{
	map_clear(&process->live, free);
	free(process->texts);
	free(process->user);
	free(process);
}

static void free_series(void *value)
{
	free(((struct trace_series *)value)->user);
	free(value);
}

/* ---- the whole ---- */

enum sublet_err trace_model_open(struct trace_model *model, const char *path, bool follows, struct errinfo *reterr)
{
	enum sublet_err err;

	memset(model, 0, sizeof(*model));
	err = trace_merge_open(&model->merge, path, follows, reterr);
	if (err)
		return err;
	intern(&model->objects, "-");
	intern(&model->phases, "-");
	intern(&model->roles, "");
	if (!model->objects.count || !model->phases.count || !model->roles.count) {
		trace_model_close(model);
		return errinfo_set(reterr, SUBLET_ERR_SYSTEM, 0, "no memory");
	}
	return SUBLET_OK;
}

void trace_model_close(struct trace_model *model)
{
	for (size_t i = 0; i < model->processes_count; i++) {
		map_clear(&model->processes[i]->series, free_series);
		free_process(model->processes[i]);
	}
	for (size_t i = 0; i < model->devices_count; i++) {
		free(model->devices[i].name);
		free(model->devices[i].holders);
	}
	free(model->processes);
	free(model->devices);
	free(model->freed);
	release_names(&model->objects);
	release_names(&model->phases);
	release_names(&model->roles);
	trace_merge_close(&model->merge);
	memset(model, 0, sizeof(*model));
}

struct visitor {
	void (*visit)(struct trace_series *series, void *arg);
	void *arg;
};

static void visit_one(uint64_t key, void *value, void *arg)
{
	const struct visitor *visitor = arg;

	visitor->visit(value, visitor->arg);
}

void trace_model_each_series(const struct trace_model *model, void (*visit)(struct trace_series *series, void *arg), void *arg)
{
	struct visitor visitor = {visit, arg};

	for (size_t i = 0; i < model->processes_count; i++)
		map_each(&model->processes[i]->series, visit_one, &visitor);
}

static void device_free_is(struct trace_model *model, const struct trace_event_view *event)
{
	const uint32_t found = device_of(model, event->process, event->row->device);
	struct trace_device *device;

	if (found == TRACE_NOTHING)
		return;
	device = &model->devices[found];
	device->free_bytes = event->row->bytes;
	if (!device->free_known || device->free_bytes < device->least_free_bytes)
		device->least_free_bytes = device->free_bytes;
	device->free_known = true;
	device->total_bytes = (uint64_t)event->row->extra << 20;
}

static void apply(struct trace_model *model, struct trace_event_view *event)
{
	struct trace_process *process = event->process;
	const struct trace_row *row = event->row;
	struct trace_live *live;

	/* destructors free what was the driver's to take back already */
	if (process->ended && !process->is_coordinator)
		return;
	switch (event->event) {
	case TRACE_BEGIN:
		process->driver_version = row->extra;
		break;
	case TRACE_END:
		process_ends(model, process);
		break;
	case TRACE_ALLOCATE:
		allocated(model, event);
		break;
	case TRACE_OBJECT:
		named(model, event);
		break;
	case TRACE_SITE:
		live = map_get(&process->live, row->allocation);
		if (live)
			live->site = row->object;
		event->live = live;
		break;
	case TRACE_FREE:
		end_live(model, event);
		break;
	case TRACE_MOVE:
		moved(model, event);
		break;
	case TRACE_NATIVE:
		native_is(model, process, row->device, row->bytes);
		break;
	case TRACE_HOST_POOL:
		process->host_pool_bytes = row->bytes;
		break;
	case TRACE_DEVICE_FREE:
		device_free_is(model, event);
		break;
	case TRACE_PHASE:
		process->phase = event->phase;
		break;
	case TRACE_DEATH:
		pid_ends(model, row->allocation);
		break;
	case TRACE_JOIN: case TRACE_ROLE: case TRACE_GIVEN: case TRACE_MOVE_FAILED: case TRACE_HELD: case TRACE_OPENED:
	case TRACE_SOFT_SERVICE: case TRACE_STEP: case TRACE_WAITED: case TRACE_SERVING: case TRACE_JOINED: case TRACE_ARRIVED:
	case TRACE_BARRIER_STEP: case TRACE_BARRIER: case TRACE_REFUSED: case TRACE_LEFT: case TRACE_STOPPED: case TRACE_EVENT_COUNT:
		break;
	}
}

bool trace_model_next(struct trace_model *model, struct trace_event_view *ret)
{
	struct trace_source *source = trace_merge_next(&model->merge, &model->row);
	struct trace_process *process;

	free(model->freed);
	model->freed = NULL;
	if (!source)
		return false;
	process = process_of(model, source);
	if (!process) {
		model->out_of_memory = true;
		return false;
	}
	if (model->row.time_ns > model->now_ns)
		model->now_ns = model->row.time_ns;
	model->events++;
	*ret = (struct trace_event_view){
		.time_ns = model->now_ns,
		.event = (enum trace_event)model->row.event,
		.process = process,
		.row = &model->row,
		.from = -1,
		.to = -1,
		.phase = name_of(process, &model->phases, TRACE_TEXT_PHASE, model->row.phase),
	};
	apply(model, ret);
	return true;
}
