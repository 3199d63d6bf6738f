/* tools/trace_sums.c
 * A series is settled when it changes, or its phase does: until then it was as it was at the settling before. */
#include "tools/trace_sums.h"

#include <stdlib.h>
#include <string.h>

#include "base/list.h"

/* What a series adds up to in one phase. */
struct part {
	uint32_t phase;
	struct part *next;
	uint64_t time_ns;
	double byte_ns[POLICY_RESIDENCY_COUNT];
	uint64_t peak_bytes[POLICY_RESIDENCY_COUNT];
	uint64_t allocated, allocated_bytes, freed, failed;
	struct trace_moved moved[POLICY_RESIDENCY_COUNT][POLICY_RESIDENCY_COUNT];
};

/* A series' user. `parts` are of the reader's, freed when they are added up. */
struct account {
	uint64_t since_ns;
	uint64_t bytes[POLICY_RESIDENCY_COUNT]; /* since then */
	uint32_t phase;				/* since then */
	bool is_over; /* it was settled after its process's end */
	uint64_t peak_bytes, moves;
	uint64_t busy_until_ns[POLICY_RESIDENCY_COUNT][POLICY_RESIDENCY_COUNT];
	struct part *parts, *part; /* `part`: of `phase` */
};

struct reading {
	struct trace_sums *sums;
	struct trace_model *model;
	bool failed;
};

static struct part *part_of(struct account *account, uint32_t phase)
{
	struct part *part = account->part;

	if (part && part->phase == phase)
		return part;
	for (part = account->parts; part && part->phase != phase;)
		part = part->next;
	if (!part) {
		part = calloc(1, sizeof(*part));
		if (!part)
			return NULL;
		part->phase = phase;
		part->next = account->parts;
		account->parts = part;
	}
	return account->part = part;
}

static void note_peaks(struct part *part, const uint64_t *bytes)
{
	for (int r = 0; r < POLICY_RESIDENCY_COUNT; r++)
		if (bytes[r] > part->peak_bytes[r])
			part->peak_bytes[r] = bytes[r];
}

static struct account *account_of(struct reading *reading, struct trace_series *series)
{
	struct account *account = series->user;

	if (account)
		return account;
	series->user = account = calloc(1, sizeof(*account));
	if (!account) {
		reading->failed = true;
		return NULL;
	}
	account->since_ns = reading->model->now_ns;
	account->phase = series->process->phase;
	return account;
}

/* Up to now it was as it was; from now on it is as it is. */
static void settle(struct trace_series *series, void *arg)
{
	struct reading *reading = arg;
	struct account *account = account_of(reading, series);
	const uint64_t now = reading->model->now_ns;
	struct part *part;
	uint64_t sum = 0;

	if (!account)
		return;
	part = part_of(account, account->phase);
	if (!part) {
		reading->failed = true;
		return;
	}
	/* the time of a process that has ended is over */
	if (!account->is_over) {
		part->time_ns += now - account->since_ns;
		for (int r = 0; r < POLICY_RESIDENCY_COUNT; r++)
			part->byte_ns[r] += (double)account->bytes[r] * (double)(now - account->since_ns);
	}
	account->is_over = series->process->ended;
	account->since_ns = now;
	memcpy(account->bytes, series->bytes, sizeof(account->bytes));
	account->phase = series->process->phase;
	part = part_of(account, account->phase);
	if (!part) {
		reading->failed = true;
		return;
	}
	note_peaks(part, account->bytes);
	for (int r = 0; r < POLICY_RESIDENCY_COUNT; r++)
		sum += account->bytes[r];
	if (sum > account->peak_bytes)
		account->peak_bytes = sum;
}

static void settle_in_process(uint64_t key, void *value, void *arg)
{
	settle(value, arg);
}

/* ---- events ---- */

/* By the end of each, those that began earlier end earlier: one thread moves, in order. */
static void add_busy(struct trace_moved *moved, uint64_t *until_ns, uint64_t end_ns, uint64_t duration_ns)
{
	uint64_t begin_ns = duration_ns < end_ns ? end_ns - duration_ns : 0;

	if (begin_ns < *until_ns)
		begin_ns = *until_ns;
	if (end_ns > begin_ns)
		moved->busy_ns += end_ns - begin_ns;
	*until_ns = end_ns;
}

static void count(struct reading *reading, const struct trace_event_view *event)
{
	struct account *account = account_of(reading, event->series);
	struct part *part = account ? account->part : NULL;

	if (!part)
		return;
	if (event->event == TRACE_ALLOCATE) {
		part->allocated++;
		part->allocated_bytes += event->bytes;
	} else if (event->event == TRACE_FREE) {
		part->freed++;
	} else if (event->event == TRACE_MOVE && event->from != event->to) {
		struct trace_moved *moved = &part->moved[event->from][event->to];

		account->moves++;
		moved->count++;
		moved->bytes += event->bytes;
		add_busy(moved, &account->busy_until_ns[event->from][event->to], event->time_ns, event->row->duration_ns);
	}
}

static struct trace_waits *waits_of(struct reading *reading, const struct trace_process *process)
{
	struct trace_sums *sums = reading->sums;

	for (size_t i = 0; i < sums->waits_count; i++)
		if (sums->waits[i].phase == process->phase && sums->waits[i].role == process->role_number)
			return &sums->waits[i];
	if (!list_room(&sums->waits, sums->waits_count, &sums->waits_room, sizeof(*sums->waits))) {
		reading->failed = true;
		return NULL;
	}
	sums->waits[sums->waits_count] = (struct trace_waits){.phase = process->phase, .role = process->role_number};
	return &sums->waits[sums->waits_count++];
}

static void add_wait(struct reading *reading, const struct trace_event_view *event)
{
	struct trace_waits *waits = waits_of(reading, event->process);

	if (!waits)
		return;
	if (event->event == TRACE_HELD) {
		waits->held_ns += event->row->duration_ns;
		waits->holds++;
		waits->failed_holds += event->row->extra != 0;
	} else if (event->event == TRACE_OPENED) {
		waits->shut_ns += event->row->duration_ns;
	} else if (event->event == TRACE_WAITED) {
		waits->waited_ns += event->row->duration_ns;
	} else {
		waits->soft_services++;
	}
}

static struct trace_barriers *barriers_of(struct reading *reading, uint32_t phase)
{
	struct trace_sums *sums = reading->sums;

	for (size_t i = 0; i < sums->barriers_count; i++)
		if (sums->barriers[i].phase == phase)
			return &sums->barriers[i];
	if (!list_room(&sums->barriers, sums->barriers_count, &sums->barriers_room, sizeof(*sums->barriers))) {
		reading->failed = true;
		return NULL;
	}
	sums->barriers[sums->barriers_count] = (struct trace_barriers){.phase = phase, .least_ns = UINT64_MAX};
	return &sums->barriers[sums->barriers_count++];
}

static void add_barrier(struct reading *reading, const struct trace_event_view *event)
{
	const struct trace_row *row = event->row;
	struct trace_barriers *barriers = barriers_of(reading, event->phase);

	if (!barriers)
		return;
	if (event->event == TRACE_BARRIER_STEP) {
		if (row->object < TRACE_STEPS) {
			barriers->step_ns[row->object] += row->duration_ns;
			barriers->steps[row->object]++;
		}
		return;
	}
	barriers->count++;
	barriers->failed += row->extra != 0;
	barriers->bytes += row->bytes;
	barriers->sum_ns += row->duration_ns;
	if (row->duration_ns < barriers->least_ns)
		barriers->least_ns = row->duration_ns;
	if (row->duration_ns > barriers->most_ns)
		barriers->most_ns = row->duration_ns;
}

static void add_failed(struct reading *reading, const struct trace_event_view *event)
{
	struct trace_live *live = map_get(&event->process->live, event->row->allocation);
	struct account *account = live ? account_of(reading, live->series) : NULL;

	if (account && account->part)
		account->part->failed++;
}

static void take_event(struct reading *reading, const struct trace_event_view *event)
{
	reading->sums->events[event->event]++;
	if (event->event == TRACE_PHASE || event->event == TRACE_OBJECT || event->event == TRACE_END)
		map_each(&event->process->series, settle_in_process, reading);
	else if (event->event == TRACE_DEATH)
		trace_model_each_series(reading->model, settle, reading);
	else if (event->series)
		settle(event->series, reading);
	if (event->series)
		count(reading, event);
	if (event->event == TRACE_HELD || event->event == TRACE_OPENED || event->event == TRACE_WAITED || event->event == TRACE_SOFT_SERVICE)
		add_wait(reading, event);
	else if (event->event == TRACE_BARRIER || event->event == TRACE_BARRIER_STEP)
		add_barrier(reading, event);
	else if (event->event == TRACE_MOVE_FAILED)
		add_failed(reading, event);
	reading->sums->refused += event->event == TRACE_REFUSED;
	reading->sums->deaths += event->event == TRACE_DEATH;
}

/* ---- putting series together ---- */

static struct trace_sum *sum_of(struct reading *reading, uint32_t phase, uint32_t role, uint32_t object)
{
	struct trace_sums *sums = reading->sums;
	const uint64_t key = (uint64_t)object << 32 | (uint64_t)(role & 0xffff) << 16 | (phase & 0xffff);
	const size_t known = (size_t)(uintptr_t)map_get(&sums->by_key, key);

	if (known)
		return &sums->sums[known - 1];
	if (!list_room(&sums->sums, sums->sums_count, &sums->sums_room, sizeof(*sums->sums)) ||
		!map_put(&sums->by_key, key, (void *)(uintptr_t)(sums->sums_count + 1))) {
		reading->failed = true;
		return NULL;
	}
	sums->sums[sums->sums_count] = (struct trace_sum){.phase = phase, .role = role, .object = object};
	return &sums->sums[sums->sums_count++];
}

static void add_part(struct trace_sum *sum, const struct part *part)
{
	if (part->time_ns > sum->time_ns)
		sum->time_ns = part->time_ns;
	sum->allocated += part->allocated;
	sum->allocated_bytes += part->allocated_bytes;
	sum->freed += part->freed;
	sum->failed += part->failed;
	for (int from = 0; from < POLICY_RESIDENCY_COUNT; from++) {
		sum->byte_ns[from] += part->byte_ns[from];
		sum->peak_bytes[from] += part->peak_bytes[from];
		for (int to = 0; to < POLICY_RESIDENCY_COUNT; to++) {
			sum->moved[from][to].count += part->moved[from][to].count;
			sum->moved[from][to].bytes += part->moved[from][to].bytes;
			sum->moved[from][to].busy_ns += part->moved[from][to].busy_ns;
		}
	}
}

static void add_object(struct reading *reading, const struct trace_series *series, const struct account *account)
{
	struct trace_sums *sums = reading->sums;
	const uint32_t role = series->process->role_number;
	size_t at = 0;

	while (at < sums->objects_count && (sums->objects[at].role != role || sums->objects[at].object != series->object))
		at++;
	if (at == sums->objects_count) {
		if (!list_room(&sums->objects, sums->objects_count, &sums->objects_room, sizeof(*sums->objects))) {
			reading->failed = true;
			return;
		}
		sums->objects[sums->objects_count++] = (struct trace_object_sum){.role = role, .object = series->object};
	}
	sums->objects[at].peak_bytes += account->peak_bytes;
	sums->objects[at].moves += account->moves;
}

static void add_series(struct trace_series *series, void *arg)
{
	struct reading *reading = arg;
	struct account *account = series->user;

	if (!account)
		return;
	settle(series, reading);
	add_object(reading, series, account);
	while (account->parts) {
		struct part *part = account->parts;
		struct trace_sum *sum = sum_of(reading, part->phase, series->process->role_number, series->object);

		if (sum)
			add_part(sum, part);
		account->parts = part->next;
		free(part);
	}
	account->part = NULL;
}

static int by_key(const void *a, const void *b)
{
	const struct trace_sum *left = a, *right = b;

	if (left->phase != right->phase)
		return left->phase < right->phase ? -1 : 1;
	if (left->role != right->role)
		return left->role < right->role ? -1 : 1;
	return left->object < right->object ? -1 : left->object > right->object;
}

bool trace_sums_take(struct trace_sums *sums, struct trace_model *model)
{
	struct reading reading = {.sums = sums, .model = model};
	struct trace_event_view event;

	memset(sums, 0, sizeof(*sums));
	while (!reading.failed && trace_model_next(model, &event))
		take_event(&reading, &event);
	trace_model_settle_peaks(model);
	trace_model_each_series(model, add_series, &reading);
	if (sums->sums_count)
		qsort(sums->sums, sums->sums_count, sizeof(*sums->sums), by_key);
	return !reading.failed && !model->out_of_memory;
}

void trace_sums_release(struct trace_sums *sums)
{
	free(sums->sums);
	free(sums->waits);
	free(sums->barriers);
	free(sums->objects);
	map_clear(&sums->by_key, NULL);
	memset(sums, 0, sizeof(*sums));
}
