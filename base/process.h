/* base/process.h
 * Who a process is: pids are reused, a pid with its start time is not. */
#ifndef SUBLET_BASE_PROCESS_H
#define SUBLET_BASE_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

/* Start time of process @pid in clock ticks since boot, 0 when there is none such. *@ret_zombie (may be NULL): it has ended
 * and was not waited for. Source: proc(5), fields 3 and 22 of /proc/<pid>/stat. */
uint64_t process_start_ticks(int pid, bool *ret_zombie);

#endif
