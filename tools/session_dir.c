/* tools/session_dir.c
 * Makes and checks the session folder. The check is on the open folder, not on its name: in /tmp a name can change
 * hands between two looks, while what lies below a folder that is ours alone cannot. */
#include "tools/session_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lifecycle/stats.h"
#include "tools/command.h"

#define NAME_LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"

enum { NAME_MAX_BYTES = 64 };

static const char fix[] = "choose another with --session DIR";

static char *join(const char *folder, const char *name)
{
	char *path;

	if (asprintf(&path, "%s/%s", folder, name) < 0) {
		fail(STATUS_BAD, "out of memory; try again");
		return NULL;
	}
	return path;
}

static int check_open_folder(int fd, const char *path)
{
	struct stat st;

	if (fstat(fd, &st))
		return fail(STATUS_BAD, "session folder '%s': %s; %s", path, strerror(errno), fix);
	if (st.st_uid != geteuid())
		return fail(
			STATUS_BAD, "session folder '%s' belongs to user %u; %s", path, (unsigned int)st.st_uid, fix);
	if (st.st_mode & 077)
		return fail(STATUS_BAD, "session folder '%s' is open to other users (mode %03o); run 'chmod 700 %s'",
			path, (unsigned int)(st.st_mode & 0777), path);
	if ((st.st_mode & 0700) != 0700)
		return fail(STATUS_BAD, "session folder '%s' is shut to its owner (mode %03o); run 'chmod 700 %s'",
			path, (unsigned int)(st.st_mode & 0777), path);
	/* asks about a read-only file system, too */
	if (faccessat(fd, ".", W_OK, AT_EACCESS))
		return fail(STATUS_BAD, "session folder '%s': %s; %s", path, strerror(errno), fix);
	return STATUS_GOOD;
}

/* See that @path is there (@make: make it) and ours alone. Returns an exit status; says what is wrong. */
static int ensure_private(const char *path, bool make)
{
	struct stat st;
	int fd, status;

	if (!make && lstat(path, &st) && errno == ENOENT)
		return fail(STATUS_BAD, SESSION_NOBODY, path);
	if (make && mkdir(path, 0700) && errno != EEXIST)
		return fail(STATUS_BAD, "cannot make session folder '%s': %s; %s", path, strerror(errno), fix);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0) {
		int saved_errno = errno;

		if (!lstat(path, &st) && S_ISLNK(st.st_mode))
			return fail(STATUS_BAD, "session folder '%s' is a symbolic link; %s", path, fix);
		if (!lstat(path, &st) && !S_ISDIR(st.st_mode))
			return fail(STATUS_BAD, "session folder '%s' is not a folder; %s", path, fix);
		if (!lstat(path, &st) && st.st_uid == geteuid() && saved_errno == EACCES)
			return fail(STATUS_BAD,
				"session folder '%s' is shut to its owner (mode %03o); run 'chmod 700 %s'", path,
				(unsigned int)(st.st_mode & 0777), path);
		return fail(STATUS_BAD, "session folder '%s': %s; %s", path, strerror(saved_errno), fix);
	}
	status = check_open_folder(fd, path);
	close(fd);
	return status;
}

static char *path_of_name(const char *name, bool make, int *ret_status)
{
	const char *runtime = getenv("XDG_RUNTIME_DIR");
	char *parent, *path;

	if (strlen(name) > NAME_MAX_BYTES) {
		*ret_status =
			fail(STATUS_USAGE, "session name '%.*s...' is longer than %d letters; choose a shorter one",
				NAME_MAX_BYTES, name, NAME_MAX_BYTES);
		return NULL;
	}
	if (name[0] == '.') {
		*ret_status = fail(STATUS_USAGE,
			"session name '%s' starts with a dot; leave it out, or name a folder as './%s'", name, name);
		return NULL;
	}
	if (!*name || strspn(name, NAME_LETTERS) != strlen(name)) {
		*ret_status = fail(STATUS_USAGE,
			"session name '%s' is not a word of letters, digits, '.', '_' and '-'; a folder is named with a slash in it",
			name);
		return NULL;
	}
	/* the variable's own specification: a relative path is to be ignored */
	if (!runtime || runtime[0] != '/')
		runtime = "/tmp";
	if (asprintf(&parent, "%s/sublet-%u", runtime, (unsigned int)geteuid()) < 0) {
		*ret_status = fail(STATUS_BAD, "out of memory; try again");
		return NULL;
	}
	/* where it is missing so is what lies below, which is then said by its own name */
	*ret_status = !make && access(parent, F_OK) ? STATUS_GOOD : ensure_private(parent, make);
	path = *ret_status ? NULL : join(parent, name);
	if (!path && !*ret_status)
		*ret_status = STATUS_BAD;
	free(parent);
	return path;
}

static char *path_of_folder(const char *folder, int *ret_status)
{
	size_t length = strlen(folder);
	char *path;

	/* with a slash at its end, open would follow a symbolic link whatever its flags say */
	while (length > 1 && folder[length - 1] == '/')
		length--;
	path = strndup(folder, length);
	if (!path)
		*ret_status = fail(STATUS_BAD, "out of memory; try again");
	return path;
}

/* Longer ones would cost the counters, and later the socket. The path itself would push the remedy out of the line. */
static int check_length(const char *path)
{
	if (strlen(path) <= STATS_DIR_BYTES_MAX)
		return STATUS_GOOD;
	return fail(STATUS_BAD, "session folder '%.40s...' has a path of %zu bytes, at most %d can be used; %s", path,
		strlen(path), STATS_DIR_BYTES_MAX, fix);
}

static char *open_or_find(const char *name_or_dir, bool make, int *ret_status)
{
	char *path, *absolute = NULL;

	if (!name_or_dir) {
		name_or_dir = getenv("SUBLET_SESSION");
		if (!name_or_dir || !*name_or_dir)
			name_or_dir = "default";
	}
	path = strchr(name_or_dir, '/') ? path_of_folder(name_or_dir, ret_status)
					: path_of_name(name_or_dir, make, ret_status);
	if (!path)
		return NULL;
	*ret_status = check_length(path);
	if (!*ret_status)
		*ret_status = ensure_private(path, make);
	if (!*ret_status) {
		absolute = realpath(path, NULL);
		if (!absolute)
			*ret_status = fail(STATUS_BAD, "session folder '%s': %s; %s", path, strerror(errno), fix);
		else
			*ret_status = check_length(absolute);
	}
	if (*ret_status) {
		free(absolute);
		absolute = NULL;
	}
	free(path);
	return absolute;
}

char *session_dir_open(const char *name_or_dir, int *ret_status)
{
	return open_or_find(name_or_dir, true, ret_status);
}

char *session_dir_find(const char *name_or_dir, int *ret_status)
{
	return open_or_find(name_or_dir, false, ret_status);
}

char *session_dir_sub(const char *session, const char *name)
{
	char *path = join(session, name);

	if (path && ensure_private(path, true)) {
		free(path);
		path = NULL;
	}
	return path;
}
