/* base/process.h
 * Who a process is: pids are reused, a pid with its start time is not, and neither says which program it runs. */
#ifndef SUBLET_BASE_PROCESS_H
#define SUBLET_BASE_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

/* Start time of process @pid in clock ticks since boot, 0 when there is none such. *@ret_zombie (may be NULL): it has ended
 * and was not waited for. Source: proc(5), fields 3 and 22 of /proc/<pid>/stat. */
uint64_t process_start_ticks(int pid, bool *ret_zombie);

/* The name of @thread of this process, as ps shows it; "?" when there is none such. Returns @name. */
#define THREAD_NAME_BYTES 16 /* prctl(2), PR_SET_NAME */
const char *process_thread_name(int thread, char name[THREAD_NAME_BYTES]);

/* A number that no other process or program has, never 0. Random; early in boot, when there is nothing random yet, made
 * from pid and start time, which an exec keeps. */
uint64_t process_new_id(void);

#endif
