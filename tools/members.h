/* tools/members.h
 * The processes of one followed run that use the driver: CMD and what descends from it. Found by their pages in the
 * session folder, which other runs share; kept until the closing table is printed. All output goes to stderr. */
#ifndef SUBLET_TOOLS_MEMBERS_H
#define SUBLET_TOOLS_MEMBERS_H

#include <stddef.h>
#include <stdint.h>

struct member;

struct members {
	const char *session; /* borrowed */
	uint64_t run_id;     /* SUBLET_RUN, in the environment of every process of the run and from there in its page */
	int command_pid;
	struct member *list;
	size_t count;
};

/* Empty set for the run of @command_pid. */
void members_init(struct members *members, const char *session, uint64_t run_id, int command_pid);
void members_release(struct members *members);

/* Look for new processes and at known ones; print a line for each first device memory and each end. */
void members_scan(struct members *members);

/* Print the closing table and remove the files of members that have ended. */
void members_report(struct members *members);

#endif
