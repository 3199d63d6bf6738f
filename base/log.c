/* base/log.c
 * The only place of the library that writes to a file descriptor it did not open. */
#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/text.h"

static const char *const component_names[LOG_COMPONENT_COUNT] = {
	[LOG_SHIM] = "shim", [LOG_MEMORY] = "memory", [LOG_CONTEXT] = "context", [LOG_NATIVE] = "native", [LOG_GATE] = "gate",
	[LOG_RESIDENCY] = "residency", [LOG_SESSION] = "session", [LOG_STATS] = "stats",
};
static const char *const level_names[LOG_LEVEL_COUNT] = {
	[LOG_OFF] = "off", [LOG_ERROR] = "error", [LOG_WARN] = "warn", [LOG_INFO] = "info", [LOG_DEBUG] = "debug",
};
static const char *const whose_names[] = {
	[WHOSE_NONE] = "", [WHOSE_DRIVER] = "driver: ", [WHOSE_FRAMEWORK] = "framework: ", [WHOSE_POLICY] = "policy: ",
	[WHOSE_SUBLET] = "sublet bug: ",
};

static unsigned char threshold[LOG_COMPONENT_COUNT] = {
	[LOG_SHIM] = LOG_WARN, [LOG_MEMORY] = LOG_WARN, [LOG_CONTEXT] = LOG_WARN, [LOG_NATIVE] = LOG_WARN, [LOG_GATE] = LOG_WARN,
	[LOG_RESIDENCY] = LOG_WARN, [LOG_SESSION] = LOG_WARN, [LOG_STATS] = LOG_WARN,
};
static char role_text[32];

static int find_name(const char *const *names, int count, const char *text, size_t length)
{
	for (int i = 0; i < count; i++) {
		if (strlen(names[i]) == length && memcmp(names[i], text, length) == 0)
			return i;
	}
	return -1;
}

/* One `component:level` or `level`; false when a word is unknown. */
static bool apply_item(const char *item, size_t length)
{
	const char *colon = memchr(item, ':', length);
	const char *level_text = colon ? colon + 1 : item;
	size_t component_length = colon ? (size_t)(colon - item) : 1;
	int level = find_name(level_names, LOG_LEVEL_COUNT, level_text, (size_t)(item + length - level_text));
	int component;

	if (level < 0)
		return false;
	if (!colon || (component_length == 1 && item[0] == '*')) {
		memset(threshold, level, sizeof(threshold));
		return true;
	}
	component = find_name(component_names, LOG_COMPONENT_COUNT, item, component_length);
	if (component < 0)
		return false;
	threshold[component] = (unsigned char)level;
	return true;
}

void log_init(void)
{
	static bool done;
	const char *spec = getenv("SUBLET_LOG");
	const char *role = getenv("SUBLET_ROLE");
	const char *bad = NULL;
	int bad_length = 0;

	if (done)
		return;
	done = true;
	if (role) {
		size_t i;

		for (i = 0; role[i] && i < sizeof(role_text) - 1; i++)
			role_text[i] = role[i];
		role_text[i] = '\0';
	}
	while (spec && *spec) {
		size_t length = strcspn(spec, ",");

		if (length && !apply_item(spec, length) && !bad) {
			bad = spec;
			bad_length = length > 40 ? 40 : (int)length;
		}
		spec += length;
		if (*spec == ',')
			spec++;
	}
	if (bad)
		log_say(LOG_SHIM, LOG_WARN, WHOSE_NONE,
			"SUBLET_LOG: unknown '%.*s'; write component:level with shim, memory, context, native, gate, residency, session, stats or * and off, error, warn, info or debug",
			bad_length, bad);
}

/* A reader that went away must not end the program whose stderr it read: the signal of our own write is taken back. */
static void write_line(const char *line, size_t length)
{
	sigset_t pipe_signal, before, pending;
	ssize_t written;

	sigemptyset(&pipe_signal);
	sigaddset(&pipe_signal, SIGPIPE);
	sigpending(&pending);
	pthread_sigmask(SIG_BLOCK, &pipe_signal, &before);
	do {
		written = write(STDERR_FILENO, line, length);
	} while (written < 0 && errno == EINTR);
	if (written < 0 && errno == EPIPE && !sigismember(&pending, SIGPIPE)) {
		struct timespec none = {0, 0};

		while (sigtimedwait(&pipe_signal, NULL, &none) < 0 && errno == EINTR)
			;
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

bool log_wants(enum log_component component, enum log_level level)
{
	return level <= (enum log_level)threshold[component];
}

void log_say(enum log_component component, enum log_level level, enum log_whose whose, const char *format, ...)
{
	char line[512];
	int saved_errno = errno;
	int length, more;
	va_list ap;

	if (!log_wants(component, level))
		return;
	length = snprintf(line, sizeof(line), "sublet[%d%s%s]: %s: %s", (int)getpid(), role_text[0] ? " " : "", role_text,
		component_names[component], whose_names[whose]);
	va_start(ap, format);
	more = vsnprintf(line + length, sizeof(line) - (size_t)length, format, ap);
	va_end(ap);
	if (more < 0)
		more = 0;
	length += more;
	if (length > (int)sizeof(line) - 1)
		length = (int)sizeof(line) - 1;
	line[length] = '\0';
	text_make_printable(line); /* the role, paths, names of symbols */
	line[length++] = '\n';
	write_line(line, (size_t)length);
	errno = saved_errno;
}
