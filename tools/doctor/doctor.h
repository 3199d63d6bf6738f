/* tools/doctor/doctor.h
 * What a check of `sublet doctor` is given and what it answers. A check looks at one thing, changes nothing that stays
 * (but for the session folder, made as `sublet run` would), never fails as a whole and takes a bounded time. */
#ifndef SUBLET_TOOLS_DOCTOR_DOCTOR_H
#define SUBLET_TOOLS_DOCTOR_DOCTOR_H

#include <jansson.h>
#include <stdbool.h>

#include "base/attributes.h"
#include "tools/probe.h"

enum finding_state {
	FINDING_OK,
	FINDING_LIMITED, /* there, and not all of it */
	FINDING_MISSING,
};

struct finding {
	enum finding_state state;
	char found[2048]; /* what there is, in words; one line */
	char fix[1024];	  /* what to do; empty only when there is nothing to mend */
	bool follows;	  /* not examined, because a needed check above found nothing: no cause of its own */
	json_t *values;	  /* an object with the same for programs; docs/doctor.md names them. NULL: memory ran out */
};

struct doctor {
	bool sim;
	const char *session;	      /* as given with --session, NULL: the default */
	unsigned int timeout_ms;      /* for each thing that may hang */
	char *library;		      /* what to load as the driver: a name or a path */
	const struct probe *probe;    /* NULL: memory ran out */
	struct child_outcome outcome; /* of the probe */
};

#define CHECK(name, need, function, lost) void function(const struct doctor *doctor, struct finding *finding);
#include "tools/doctor/doctor.def"

/* Set state and words of the answer. */
void finding_say(struct finding *finding, enum finding_state state, const char *format, ...) SUBLET_PRINTF(3, 4);

/* Set `missing` for what could not be looked at for the reason given; check @cause is the one to mend. */
void finding_follows(struct finding *finding, const char *cause, const char *format, ...) SUBLET_PRINTF(3, 4);

/* Set what to do. */
void finding_fix(struct finding *finding, const char *format, ...) SUBLET_PRINTF(2, 3);

/* Set a value for programs. */
void finding_text(struct finding *finding, const char *name, const char *value);
void finding_number(struct finding *finding, const char *name, unsigned long long value);
void finding_flag(struct finding *finding, const char *name, bool value);

/* How a child that did not return ended, in words ("crashed (Segmentation fault)"); at least 96 bytes of room. */
const char *outcome_text(const struct child_outcome *outcome, unsigned int timeout_ms, char *text, size_t room);

/* First line of a small file without its newline, "" when it cannot be read. Returns @text. */
char *read_line_of(const char *path, char *text, size_t room);

#endif
