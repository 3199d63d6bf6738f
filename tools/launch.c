/* tools/launch.c
 * exec, and what its refusals mean to a person. */
#include "tools/launch.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/size.h"
#include "tools/command.h"

int launch_exec(char **argv)
{
	execvp(argv[0], argv);
	return launch_failed(argv[0], errno);
}

/* Is there a file that execvp would have tried? */
static bool command_exists(const char *command)
{
	const char *p = getenv("PATH");
	bool found = false;

	if (strchr(command, '/'))
		return access(command, F_OK) == 0;
	for (; p && *p && !found; p += p[0] == ':') {
		size_t length = strcspn(p, ":");
		char *path;

		if (asprintf(&path, "%.*s/%s", (int)length, length ? p : ".", command) < 0)
			return false;
		found = access(path, X_OK) == 0;
		free(path);
		p += length;
	}
	return found;
}

int launch_failed(const char *command, int error)
{
	uint64_t ignored;

	if (error == ENOENT || error == ENOTDIR) {
		/* a script of a moved virtual environment is there, the python its first line names is not */
		if (command_exists(command))
			return fail(STATUS_NOT_EXECUTABLE,
				"cannot run '%s': the interpreter it names is missing; check its first line", command);
		if (size_parse(command, &ignored))
			return fail(STATUS_NOT_FOUND, "cannot find command '%s'; for a capacity write '--sim=%s'",
				command, command);
		return fail(STATUS_NOT_FOUND, "cannot find command '%s'; check its name and PATH", command);
	}
	if (error == EACCES)
		return fail(STATUS_NOT_EXECUTABLE, "cannot run '%s': %s; check that it is a program, with 'ls -ld'",
			command, strerror(error));
	return fail(STATUS_NOT_EXECUTABLE, "cannot run '%s': %s; check that it runs without sublet", command,
		strerror(error));
}
