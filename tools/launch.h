/* tools/launch.h
 * Becoming, or starting, the program that `sublet run` was given. */
#ifndef SUBLET_TOOLS_LAUNCH_H
#define SUBLET_TOOLS_LAUNCH_H

/* Become @argv (argv[0] is looked up in PATH). Returns only when that failed, after one line: 127 or 126, as a shell.
 */
int launch_exec(char **argv);

/* That one line for @error, the errno of execvp; returns the exit status. For a parent whose child could not exec. */
int launch_failed(const char *command, int error);

/* Start @argv as a child, stay beside it, and report on stderr about the processes of this run that take device memory
 * (found by their pages in folder @session). Signals sent to this process go to the child. Returns the exit status a
 * shell would give: the child's own, or 128 + signal. The child lives on when this process is killed. */
int launch_follow(const char *session, char **argv);

#endif
