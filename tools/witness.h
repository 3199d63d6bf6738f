/* tools/witness.h
 * Tells a signal that was sent to this process alone from one that its whole process group was sent: `kill -TERM
 * -GROUP`, timeout(1), a job manager, a key on the terminal. Nothing in a siginfo says which. So a child that does
 * nothing else sits in the group as well, and what it was sent, everybody was. */
#ifndef SUBLET_TOOLS_WITNESS_H
#define SUBLET_TOOLS_WITNESS_H

#include <stdbool.h>
#include <sys/signalfd.h>
#include <sys/types.h>

struct witness {
	pid_t pid;
	int fd; /* -1: there is none (no processes left, or it was killed) */
};

/* Start the witness. Call it with all signals blocked; @signal_fd is a non-blocking descriptor for all of them, @words
 * what the command line of this process ends in, the program's own. It ends with this process, however that ends. */
void witness_start(struct witness *witness, int signal_fd, char **words);

/* End it. Safe where there is none. */
void witness_stop(struct witness *witness);

/* Was the group sent the signal that this process has just read as @info? Takes note of it: asked again, it was not.
 * Waits some milliseconds before it says no. Without a witness, what comes from the kernel is taken for the terminal's,
 * which sends to the group. */
bool witness_saw(struct witness *witness, const struct signalfd_siginfo *info);

#endif
