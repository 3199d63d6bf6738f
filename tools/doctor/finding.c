/* tools/doctor/finding.c
 * Filling in an answer. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "tools/doctor/doctor.h"
#include "tools/json.h"

/* A name or a driver's text may hold line ends, which are blanks here, and what commands a terminal. */
static void set_line(char *text, size_t room, const char *format, va_list args)
{
	vsnprintf(text, room, format, args);
	for (char *c = text; *c; c++)
		if (*c == '\n' || *c == '\r')
			*c = ' ';
	text_make_printable(text);
}

void finding_say(struct finding *finding, enum finding_state state, const char *format, ...)
{
	va_list args;

	finding->state = state;
	va_start(args, format);
	set_line(finding->found, sizeof(finding->found), format, args);
	va_end(args);
}

void finding_follows(struct finding *finding, const char *cause, const char *format, ...)
{
	size_t used = (size_t)snprintf(finding->found, sizeof(finding->found), "not examined: ");
	va_list args;

	finding->state = FINDING_MISSING;
	finding->follows = true;
	va_start(args, format);
	set_line(finding->found + used, sizeof(finding->found) - used, format, args);
	va_end(args);
	finding_fix(finding, "mend '%s' first", cause);
}

void finding_fix(struct finding *finding, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	set_line(finding->fix, sizeof(finding->fix), format, args);
	va_end(args);
}

void finding_text(struct finding *finding, const char *name, const char *value)
{
	json_object_set_new(finding->values, name, json_text(value));
}

void finding_number(struct finding *finding, const char *name, unsigned long long value)
{
	json_object_set_new(finding->values, name, json_integer((json_int_t)value));
}

void finding_flag(struct finding *finding, const char *name, bool value)
{
	json_object_set_new(finding->values, name, json_boolean(value));
}

const char *outcome_text(const struct child_outcome *outcome, unsigned int timeout_ms, char *text, size_t room)
{
	switch (outcome->end) {
	case CHILD_RETURNED:
		snprintf(text, room, "returned");
		break;
	case CHILD_CRASHED:
		snprintf(text, room, "crashed (%s)", strsignal(outcome->number));
		break;
	case CHILD_LEFT:
		snprintf(text, room, "ended the process with status %d", outcome->number);
		break;
	case CHILD_HUNG:
		snprintf(text, room, "did not return within %u s", timeout_ms / 1000);
		break;
	case CHILD_NOT_STARTED:
		snprintf(text, room, "could not be tried (%s)", strerror(outcome->number));
		break;
	}
	return text;
}

char *read_line_of(const char *path, char *text, size_t room)
{
	FILE *file = fopen(path, "re");

	if (!file || !fgets(text, (int)room, file))
		text[0] = '\0';
	text[strcspn(text, "\n")] = '\0';
	if (file)
		fclose(file);
	return text;
}
