/* tools/members.c
 * Reads the pages of other processes while these write them: every counter is loaded on its own, and a page stays
 * mapped after its file is gone. */
#include "tools/members.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/size.h"
#include "base/process.h"
#include "lifecycle/stats.h"
#include "tools/stats_files.h"

struct member {
	int pid;
	uint64_t start_ticks;
	const struct stats_page *page; /* NULL: a process of another run */
	bool said_first;
	bool ended;
};

/* Sums over all devices. */
struct usage {
	uint64_t managed_bytes, managed_peak_bytes;
	uint64_t native_bytes, native_peak_bytes; /* device memory only */
	uint64_t pinned_peak_bytes;
	bool took_device_memory;
	bool native_kind[STATS_NATIVE_COUNT];
};

static uint64_t load(const uint64_t *counter)
{
	return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

static void read_usage(const struct stats_page *page, struct usage *usage)
{
	memset(usage, 0, sizeof(*usage));
	for (int d = 0; d < STATS_DEVICES; d++) {
		const struct stats_device *device = &page->device[d];

		usage->managed_bytes += load(&device->managed.bytes);
		usage->managed_peak_bytes += load(&device->managed.peak_bytes);
		usage->took_device_memory |= load(&device->managed.total_count) > 0;
		for (int kind = 0; kind < STATS_NATIVE_COUNT; kind++) {
			const struct stats_bytes *native = &device->native[kind];

			if (kind == STATS_NATIVE_PINNED) {
				usage->pinned_peak_bytes += load(&native->peak_bytes);
				continue;
			}
			usage->native_bytes += load(&native->bytes);
			usage->native_peak_bytes += load(&native->peak_bytes);
			usage->native_kind[kind] |= load(&native->total_count) > 0;
			usage->took_device_memory |= usage->native_kind[kind];
		}
	}
}

/* Does the environment @pid was started with hold @mark? A process may have written over it (setproctitle). */
static bool has_mark(int pid, const char *mark)
{
	char path[64], *line = NULL;
	size_t room = 0;
	bool found = false;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/environ", pid);
	file = fopen(path, "re");
	if (!file)
		return false;
	while (!found && getdelim(&line, &room, '\0', file) > 0)
		found = strcmp(line, mark) == 0;
	free(line);
	fclose(file);
	return found;
}

/* Parent of @pid, 0 when there is no such process. The name in field 2 may hold blanks and brackets. */
static int parent_of(int pid)
{
	char path[64], text[512], *behind_name;
	size_t got;
	int parent = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	file = fopen(path, "re");
	if (!file)
		return 0;
	got = fread(text, 1, sizeof(text) - 1, file);
	fclose(file);
	text[got] = '\0';
	behind_name = strrchr(text, ')');
	if (!behind_name || sscanf(behind_name + 1, " %*c %d", &parent) != 1)
		return 0;
	return parent;
}

static bool descends_from(int pid, int ancestor)
{
	/* bounded: processes come and go while we walk */
	for (int steps = 0; pid > 1 && steps < 256; steps++) {
		if (pid == ancestor)
			return true;
		pid = parent_of(pid);
	}
	return false;
}

static bool is_of_this_run(const struct members *members, int pid, uint64_t start_ticks)
{
	if (pid == members->command_pid || has_mark(pid, members->run_mark))
		return true;
	if (descends_from(pid, members->command_pid))
		return true;
	/* Ended before it could be asked (looked at last: it may end while it is asked). Its file stayed, so somebody
	 * follows it; most likely this is who. */
	return process_start_ticks(pid, NULL) != start_ticks;
}

static struct member *find(struct members *members, int pid)
{
	for (size_t i = 0; i < members->count; i++)
		if (members->list[i].pid == pid && !members->list[i].ended)
			return &members->list[i];
	return NULL;
}

static void meet(int pid, void *arg)
{
	struct members *members = arg;
	struct member *list, *known = find(members, pid);
	const struct stats_page *page;

	if (known)
		return;
	page = stats_open(members->session, pid);
	/* not filled yet: the next scan sees it */
	if (!page)
		return;
	for (size_t i = 0; i < members->count; i++) {
		if (members->list[i].pid == pid && members->list[i].start_ticks == page->start_ticks) {
			stats_unmap(page);
			return;
		}
	}
	list = realloc(members->list, (members->count + 1) * sizeof(*list));
	if (!list) {
		stats_unmap(page);
		return;
	}
	members->list = list;
	list[members->count] = (struct member){.pid = pid, .start_ticks = page->start_ticks, .page = page};
	if (!is_of_this_run(members, pid, page->start_ticks)) {
		list[members->count].page = NULL;
		stats_unmap(page);
	}
	members->count++;
}

/* "pid 4242 (python3, train)" */
static const char *describe(const struct member *member, char *text, size_t room)
{
	const struct stats_page *page = member->page;

	snprintf(text, room, "pid %d (%.15s%s%.31s)", member->pid, page->comm, page->role[0] ? ", " : "", page->role);
	return text;
}

static void look_at(struct member *member)
{
	char who[96], managed[16], native[16];
	bool over = process_start_ticks(member->pid, NULL) != member->start_ticks;
	struct usage usage;

	if (!member->page) {
		member->ended = over;
		return;
	}
	over = over || __atomic_load_n(&member->page->state, __ATOMIC_RELAXED) == STATS_ENDED;
	read_usage(member->page, &usage);
	if (usage.took_device_memory && !member->said_first) {
		member->said_first = true;
		fprintf(stderr, "sublet: %s takes device memory: %s managed, %s native\n",
			describe(member, who, sizeof(who)),
			size_format(usage.managed_peak_bytes, managed, sizeof(managed)),
			size_format(usage.native_peak_bytes, native, sizeof(native)));
	}
	if (over) {
		member->ended = true;
		if (member->said_first)
			fprintf(stderr, "sublet: %s ended: peak %s managed, %s native\n",
				describe(member, who, sizeof(who)),
				size_format(usage.managed_peak_bytes, managed, sizeof(managed)),
				size_format(usage.native_peak_bytes, native, sizeof(native)));
	}
}

void members_init(struct members *members, const char *session, const char *run_mark, int command_pid)
{
	*members = (struct members){.session = session, .run_mark = run_mark, .command_pid = command_pid};
}

void members_release(struct members *members)
{
	for (size_t i = 0; i < members->count; i++)
		if (members->list[i].page)
			stats_unmap(members->list[i].page);
	free(members->list);
	members->list = NULL;
	members->count = 0;
}

void members_scan(struct members *members)
{
	stats_files_each(members->session, meet, members);
	for (size_t i = 0; i < members->count; i++)
		if (!members->list[i].ended)
			look_at(&members->list[i]);
}

static void print_row(const struct member *member)
{
	const struct stats_page *page = member->page;
	char managed[16], native[16], pinned[16];
	const char *before = "";
	struct usage usage;

	read_usage(page, &usage);
	fprintf(stderr, "%9d  %-15.15s  %-10.31s  %12s  %12s  %12s  %-7s  ", member->pid, page->comm,
		page->role[0] ? page->role : "-", size_format(usage.managed_peak_bytes, managed, sizeof(managed)),
		size_format(usage.native_peak_bytes, native, sizeof(native)),
		size_format(usage.pinned_peak_bytes, pinned, sizeof(pinned)), member->ended ? "ended" : "running");
	for (int kind = 0; kind < STATS_NATIVE_COUNT; kind++) {
		if (!usage.native_kind[kind])
			continue;
		fprintf(stderr, "%s%s", before, stats_native_name((enum stats_native)kind));
		before = ", ";
	}
	fprintf(stderr, "%s\n", *before ? "" : "-");
}

void members_report(struct members *members)
{
	size_t users = 0, shown = 0;

	for (size_t i = 0; i < members->count; i++) {
		users += members->list[i].page != NULL;
		shown += members->list[i].said_first;
	}
	if (!shown) {
		fprintf(stderr, users ? "sublet: no process of this run took device memory\n"
				      : "sublet: no process of this run started the driver\n");
	} else {
		fprintf(stderr, "%9s  %-15s  %-10s  %12s  %12s  %12s  %-7s  %s\n", "pid", "process", "role",
			"managed peak", "native peak", "pinned peak", "state", "native is");
		for (size_t i = 0; i < members->count; i++)
			if (members->list[i].said_first)
				print_row(&members->list[i]);
	}
	/* kept for us by SUBLET_FOLLOW; what still runs is swept by a later run */
	for (size_t i = 0; i < members->count; i++) {
		const struct member *member = &members->list[i];

		if (member->page && member->ended)
			stats_files_remove(members->session, member->pid, member->start_ticks);
	}
}
