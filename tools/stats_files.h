/* tools/stats_files.h
 * The files proc-<pid>.stats of a session folder, one per process that uses the driver (lifecycle/stats.h). */
#ifndef SUBLET_TOOLS_STATS_FILES_H
#define SUBLET_TOOLS_STATS_FILES_H

#include <stdint.h>

/* Call @visit with the pid of every such file of @session. A folder that cannot be read has none. */
void stats_files_each(const char *session, void (*visit)(int pid, void *arg), void *arg);

/* Remove the file of process @pid that holds page @page_id; that of a later process or program with the same pid stays.
 */
void stats_files_remove(const char *session, int pid, uint64_t page_id);

/* Remove the files of processes that are gone (killed, or their follower was). */
void stats_files_sweep(const char *session);

#endif
