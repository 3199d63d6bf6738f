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

static void remove_file(const char *session, int pid)
{
	char path[4096];

	if (stats_path(path, sizeof(path), session, pid))
		unlink(path);
}

void stats_files_remove(const char *session, int pid, uint64_t page_id)
{
	struct stats_page page;
	int fd = stats_open(session, pid, &page);

	if (fd < 0)
		return;
	if (page.page_id == page_id)
		remove_file(session, pid);
	close(fd);
}

static void sweep_one(int pid, void *arg)
{
	const char *session = arg;
	struct stats_page page;
	struct stat st;
	int fd = stats_open(session, pid, &page);

	/* not a page, perhaps not yet: its process is about to fill it */
	if (fd < 0)
		return;
	/* Without a lock only a pid is left to ask about, and it may count in another namespace: those stay. A young
	 * file may be that of a short-lived process, which the follower of another run has not opened yet. */
	if (page.locked && stats_is_over(fd, &page) && fstat(fd, &st) == 0 && st.st_ctime + YOUNG_SECONDS <= time(NULL))
		stats_files_remove(session, pid, page.page_id);
	close(fd);
}

void stats_files_sweep(const char *session)
{
	stats_files_each(session, sweep_one, (void *)session);
}
