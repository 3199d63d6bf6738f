/* tools/preload.c
 * Finds what is to be preloaded and puts it among what already is. Looks at files, opens them, changes nothing. */
#include "tools/preload.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/command.h"

static const char library_name[] = "libsublet.so";
static const char driver_name[] = "libcuda.so.1";

/* Runtimes that must come first; gcc's names, then clang's. */
static const char *const sanitizers[] = {"libasan", "libtsan", "liblsan", "libhwasan", "libubsan", "libclang_rt."};

/* The loader skips what it cannot use with a line of its own and runs the program without it, so look before. */
static bool is_shared_object(const char *path, int *ret_errno)
{
	unsigned char ident[EI_NIDENT];
	ssize_t got;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0) {
		*ret_errno = errno;
		return false;
	}
	got = read(fd, ident, sizeof(ident));
	*ret_errno = got < 0 ? errno : ENOEXEC;
	close(fd);
	return got == (ssize_t)sizeof(ident) && memcmp(ident, ELFMAG, SELFMAG) == 0;
}

/* Folder of this program, without the slash at its end; empty when /proc is not there. */
static void own_folder(char *folder, size_t room)
{
	ssize_t length = readlink("/proc/self/exe", folder, room - 1);
	char *slash;

	folder[length < 0 ? 0 : length] = '\0';
	slash = strrchr(folder, '/');
	if (slash)
		*slash = '\0';
}

/* First of the usual places that has @file: the build folder's @build_place (relative to tools/), then @installed below
 * the library folder, found from this program's own place (a moved prefix) or as configured. Resolved, NULL when none.
 */
static char *find_file(const char *build_place, const char *installed)
{
	char folder[4096];
	int ignored;

	own_folder(folder, sizeof(folder));
	for (int place = 0; place < 4; place++) {
		char *path = NULL, *found = NULL;
		int length = -1;

		if (place == 0)
			length = asprintf(&path, "%s/%s", folder, build_place);
		else if (place == 1)
			length = asprintf(&path, "%s/../%s/%s", folder, SUBLET_LIBDIR_BELOW_PREFIX, installed);
		else if (place == 2)
			length = asprintf(&path, "%s/../lib/%s", folder, installed);
		else if (place == 3)
			length = asprintf(&path, "%s/%s", SUBLET_LIBDIR, installed);
		if (length < 0)
			return NULL;
		if (is_shared_object(path, &ignored))
			found = realpath(path, NULL);
		free(path);
		if (found)
			return found;
	}
	return NULL;
}

char *preload_find_library(void)
{
	const char *given = getenv("SUBLET_LIB");
	char *path;
	int error;

	if (given && *given) {
		path = realpath(given, NULL);
		if (!path || !is_shared_object(path, &error)) {
			fail(STATUS_BAD, "SUBLET_LIB names '%s': %s; unset it, or name a built '%s'", given,
				strerror(path ? error : errno), library_name);
			free(path);
			return NULL;
		}
	} else {
		path = find_file("../shim/libsublet.so", library_name);
		if (!path) {
			fail(STATUS_BAD,
				"cannot find '%s' beside this program or in '%s'; build it with 'tools/bootstrap build'",
				library_name, SUBLET_LIBDIR);
			return NULL;
		}
	}
	if (strpbrk(path, " \t:")) {
		fail(STATUS_BAD, "'%s' has a blank or a colon in its path, which LD_PRELOAD cannot hold; move it",
			path);
		free(path);
		return NULL;
	}
	return path;
}

char *preload_find_sim_folder(void)
{
	char *path = find_file("sim/libcuda.so.1", "sublet/sim/libcuda.so.1");

	if (!path) {
		fail(STATUS_BAD,
			"cannot find the simulated driver '%s' beside this program or in '%s/sublet/sim'; build it with 'tools/bootstrap build'",
			driver_name, SUBLET_LIBDIR);
		return NULL;
	}
	*strrchr(path, '/') = '\0';
	if (strpbrk(path, ":;")) {
		fail(STATUS_BAD,
			"'%s' has a colon or a semicolon in its path, which LD_LIBRARY_PATH cannot hold; move it",
			path);
		free(path);
		return NULL;
	}
	return path;
}

static bool is_named(const char *token, size_t length, const char *prefix, bool whole)
{
	const char *name = token;

	for (size_t i = 0; i < length; i++)
		if (token[i] == '/')
			name = token + i + 1;
	length -= (size_t)(name - token);
	if (whole && length != strlen(prefix))
		return false;
	return length >= strlen(prefix) && strncmp(name, prefix, strlen(prefix)) == 0;
}

static bool is_sanitizer(const char *token, size_t length)
{
	for (size_t i = 0; i < sizeof(sanitizers) / sizeof(sanitizers[0]); i++)
		if (is_named(token, length, sanitizers[i], false))
			return true;
	return false;
}

/* Appends the tokens of @old to @out, without earlier copies of the library; which ones is the caller's choice: those
 * up to the last sanitizer, or those behind it. */
static void append_tokens(char *out, const char *old, const char *end)
{
	while (old < end) {
		size_t length;

		old += strspn(old, " :");
		length = strcspn(old, " :");
		if (old >= end || !length)
			return;
		if (!is_named(old, length, library_name, true)) {
			if (*out)
				strcat(out, ":");
			strncat(out, old, length);
		}
		old += length;
	}
}

char *preload_compose(const char *old, const char *library)
{
	const char *behind_sanitizers, *p;
	char *out;

	if (!old)
		old = "";
	behind_sanitizers = old;
	for (p = old + strspn(old, " :"); *p; p += strspn(p, " :")) {
		size_t length = strcspn(p, " :");

		if (is_sanitizer(p, length))
			behind_sanitizers = p + length;
		p += length;
	}
	out = calloc(1, strlen(old) + strlen(library) + 3);
	if (!out)
		return NULL;
	append_tokens(out, old, behind_sanitizers);
	if (*out)
		strcat(out, ":");
	strcat(out, library);
	append_tokens(out, behind_sanitizers, old + strlen(old));
	return out;
}

bool preload_is_library(const char *path)
{
	return is_named(path, strlen(path), library_name, true);
}

char *preload_library_path(const char *old, const char *folder)
{
	size_t length = strlen(folder);
	char *out;

	if (!old || !*old)
		return strdup(folder);
	if (strncmp(old, folder, length) == 0 && (old[length] == ':' || old[length] == '\0'))
		return strdup(old);
	if (asprintf(&out, "%s:%s", folder, old) < 0)
		return NULL;
	return out;
}
