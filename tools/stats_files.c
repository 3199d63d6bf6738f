/* tools/stats_files.c
 * Lists and clears the pages that processes leave in a session folder. Removes a file only when it is sure that the
 * process it was for is gone. */
#include "tools/stats_files.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/process.h"
#include "lifecycle/stats.h"

void stats_files_each(const char *session, void (*visit)(int pid, void *arg), void *arg)
{
	DIR *folder = opendir(session);
	struct dirent *entry;

	if (!folder)
		return;
	while ((entry = readdir(folder))) {
		int pid, end = 0;

		if (sscanf(entry->d_name, "proc-%9d.stats%n", &pid, &end) == 1 && end && !entry->d_name[end] && pid > 0)
			visit(pid, arg);
	}
	closedir(folder);
}

enum { YOUNG_SECONDS = 2 };

static bool file_path(char *path, size_t room, const char *session, int pid)
{
	return snprintf(path, room, "%s/proc-%d.stats", session, pid) < (int)room;
}

static void remove_file(const char *session, int pid)
{
	char path[4096];

	if (file_path(path, sizeof(path), session, pid))
		unlink(path);
}

/* The follower of another run may not have opened the file of a short-lived process yet. */
static bool is_young(const char *session, int pid)
{
	char path[4096];
	struct stat st;

	return file_path(path, sizeof(path), session, pid) && stat(path, &st) == 0 &&
	       st.st_ctime + YOUNG_SECONDS > time(NULL);
}

void stats_files_remove(const char *session, int pid, uint64_t start_ticks)
{
	const struct stats_page *page = stats_open(session, pid);

	if (!page)
		return;
	if (page->start_ticks == start_ticks)
		remove_file(session, pid);
	stats_unmap(page);
}

static void sweep_one(int pid, void *arg)
{
	const char *session = arg;
	const struct stats_page *page = stats_open(session, pid);
	uint64_t start_ticks;

	/* not a page, perhaps not yet: its process is about to fill it */
	if (!page)
		return;
	start_ticks = page->start_ticks;
	stats_unmap(page);
	if (process_start_ticks(pid, NULL) != start_ticks && !is_young(session, pid))
		remove_file(session, pid);
}

void stats_files_sweep(const char *session)
{
	stats_files_each(session, sweep_one, (void *)session);
}
