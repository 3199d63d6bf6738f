/* tools/members.c
 * Copies the pages of other processes while these write them. The file of a member stays open until its process is
 * over, so that its last numbers can be read after the file is gone. */
#include "tools/members.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/size.h"
#include "base/text.h"
#include "lifecycle/stats.h"
#include "tools/stats_files.h"

struct member {
	int fd; /* -1: ended, or a process of another run */
	bool is_ours;
	bool said_first;
	bool ended;
	struct stats_page page; /* as last read */
};

/* Sums over all devices. */
struct usage {
	uint64_t managed_bytes, managed_peak_bytes;
	uint64_t native_bytes, native_peak_bytes; /* device memory only */
	uint64_t pinned_peak_bytes;
	bool took_device_memory;
	bool native_kind[STATS_NATIVE_COUNT];
};

static void read_usage(const struct stats_page *page, struct usage *usage)
{
	memset(usage, 0, sizeof(*usage));
	for (int d = 0; d < STATS_DEVICES; d++) {
		const struct stats_device *device = &page->device[d];

		usage->managed_bytes += device->managed.bytes;
		usage->managed_peak_bytes += device->managed.peak_bytes;
		usage->took_device_memory |= device->managed.total_count > 0;
		for (int kind = 0; kind < STATS_NATIVE_COUNT; kind++) {
			const struct stats_bytes *native = &device->native[kind];

			if (kind == STATS_NATIVE_PINNED) {
				usage->pinned_peak_bytes += native->peak_bytes;
				continue;
			}
			usage->native_bytes += native->bytes;
			usage->native_peak_bytes += native->peak_bytes;
			usage->native_kind[kind] |= native->total_count > 0;
			usage->took_device_memory |= usage->native_kind[kind];
		}
	}
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

/* A process that was started with a clean environment, or by a run inside this one, has another run's id or none. */
static bool is_of_this_run(const struct members *members, const struct stats_page *page)
{
	return page->run_id == members->run_id || descends_from(page->pid, members->command_pid);
}

static void meet(int pid, void *arg)
{
	struct members *members = arg;
	struct stats_page page;
	struct member *list;
	int fd = stats_open(members->session, pid, &page);

	/* not filled yet: the next scan sees it */
	if (fd < 0)
		return;
	for (size_t i = 0; i < members->count; i++)
		if (members->list[i].page.page_id == page.page_id)
			goto close;
	list = realloc(members->list, (members->count + 1) * sizeof(*list));
	if (!list)
		goto close;
	members->list = list;
	list += members->count++;
	*list = (struct member){.fd = -1, .page = page, .is_ours = is_of_this_run(members, &page)};
	text_make_printable(list->page.role);
	text_make_printable(list->page.comm);
	if (list->is_ours) {
		list->fd = fd;
		return;
	}
close:
	close(fd);
}

/* "pid 4242 (python3, train)" */
static const char *describe(const struct member *member, char *text, size_t room)
{
	const struct stats_page *page = &member->page;

	snprintf(text, room, "pid %d (%s%s%s)", page->pid, page->comm, page->role[0] ? ", " : "", page->role);
	return text;
}

/* A file cut short keeps the numbers it had. */
static void refresh(struct member *member)
{
	struct stats_page page;

	if (!stats_read(member->fd, &page) || page.page_id != member->page.page_id)
		return;
	text_make_printable(page.role);
	text_make_printable(page.comm);
	member->page = page;
}

static void look_at(struct member *member)
{
	char who[96], managed[16], native[16];
	struct usage usage;
	/* asked before the page is read for the last time */
	bool over = stats_is_over(member->fd, &member->page);

	refresh(member);
	over = over || member->page.state == STATS_ENDED;
	read_usage(&member->page, &usage);
	if (usage.took_device_memory && !member->said_first) {
		member->said_first = true;
		fprintf(stderr, "sublet: %s takes device memory: %s managed, %s native\n",
			describe(member, who, sizeof(who)),
			size_format(usage.managed_peak_bytes, managed, sizeof(managed)),
			size_format(usage.native_peak_bytes, native, sizeof(native)));
	}
	if (!over)
		return;
	member->ended = true;
	close(member->fd);
	member->fd = -1;
	if (member->said_first)
		fprintf(stderr, "sublet: %s ended: peak %s managed, %s native\n", describe(member, who, sizeof(who)),
			size_format(usage.managed_peak_bytes, managed, sizeof(managed)),
			size_format(usage.native_peak_bytes, native, sizeof(native)));
}

void members_init(struct members *members, const char *session, uint64_t run_id, int command_pid)
{
	*members = (struct members){.session = session, .run_id = run_id, .command_pid = command_pid};
}

void members_release(struct members *members)
{
	for (size_t i = 0; i < members->count; i++)
		if (members->list[i].fd >= 0)
			close(members->list[i].fd);
	free(members->list);
	members->list = NULL;
	members->count = 0;
}

void members_scan(struct members *members)
{
	stats_files_each(members->session, meet, members);
	for (size_t i = 0; i < members->count; i++)
		if (members->list[i].fd >= 0)
			look_at(&members->list[i]);
}

static void print_row(const struct member *member)
{
	const struct stats_page *page = &member->page;
	char managed[16], native[16], pinned[16];
	const char *before = "";
	struct usage usage;

	read_usage(page, &usage);
	fprintf(stderr, "%9d  %-15s  %-10s  %12s  %12s  %12s  %-7s  ", page->pid, page->comm,
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
		users += members->list[i].is_ours;
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

		if (member->ended)
			stats_files_remove(members->session, member->page.pid, member->page.page_id);
	}
}
