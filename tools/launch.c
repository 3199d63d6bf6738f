/* tools/launch.c
 * exec, and what its refusals mean to a person. */
#include "tools/launch.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/size.h"
#include "tools/command.h"

int launch_exec(char **argv)
{
	execvp(argv[0], argv);
	return launch_failed(argv[0], errno);
}

static bool is_file(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

/* Is there a file that @command names, in PATH unless it has a slash? A folder of that name is none. */
static bool command_exists(const char *command)
{
	const char *p = getenv("PATH");
	bool found = false;

	if (!*command)
		return false;
	if (strchr(command, '/'))
		return is_file(command);
	for (; p && *p && !found; p += p[0] == ':') {
		size_t length = strcspn(p, ":");
		char *path;

		if (asprintf(&path, "%.*s/%s", length ? (int)length : 1, length ? p : ".", command) < 0)
			return false;
		found = is_file(path);
		free(path);
		p += length;
	}
	return found;
}

int launch_failed(const char *command, int error)
{
	uint64_t ignored;

	/* what execvp says when PATH has a folder of that name, or a folder that may not be searched, and no such file
	 */
	if (error == EACCES && !strchr(command, '/') && !command_exists(command))
		error = ENOENT;
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
