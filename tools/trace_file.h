/* tools/trace_file.h
 * Reads one trace file (lifecycle/trace_format.h), finished, left by a killed process, or still being written.
 *
 * Takes copies with pread and never maps the file: one cut short under a mapping would kill the reader. Nothing in it is believed:
 * what does not fit is counted and left out. Rows come in the order of their numbers, which is that of time but for threads
 * that were interrupted between claiming a row and looking at the clock. */
#ifndef SUBLET_TOOLS_TRACE_FILE_H
#define SUBLET_TOOLS_TRACE_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/errors.h"
#include "lifecycle/trace_format.h"

struct trace_file {
	int fd;
	char *path;
	struct trace_header header; /* as of the last look; texts of it are printable and end in NUL */
	struct trace_file_text {
		char *text; /* printable, but that those of sites have lines */
		uint32_t kind;
	} *texts;
	size_t texts_count, texts_room;
	uint64_t texts_read;   /* bytes */
	uint64_t next;	       /* number of the row to be read next */
	uint64_t lost_rows;    /* overwritten before they were read */
	uint64_t torn_rows;    /* never finished, mixed, or damaged */
	uint64_t missing_rows; /* beyond the end of a file cut short */
	bool repaired;	       /* the header's count of rows was damaged: taken from the rows */
	bool texts_damaged;
	bool follows;	       /* the reader's: rows that are being written at this moment are not torn, but come next time */
};

/* Open @path. INVALID or SYSTEM with the reason in *reterr: no trace file, another version, a damaged header, or none that can be
 * read. On success trace_file_close is due. */
enum sublet_err trace_file_open(struct trace_file *file, const char *path, struct errinfo *reterr);
void trace_file_close(struct trace_file *file);

/* Look again: rows and texts that have come since. False: the file is no longer what it was (written over). */
bool trace_file_refresh(struct trace_file *file);

/* Up to @room further rows, oldest first; 0: no more as of the last look. */
size_t trace_file_read(struct trace_file *file, struct trace_row *rows, size_t room);

/* The text of that number when it is of @kind, else NULL. */
const char *trace_file_text(const struct trace_file *file, enum trace_text_kind kind, uint32_t number);

/* "allocate", ...; "?" for no event. */
const char *trace_event_name(unsigned event);
/* The event of that name, TRACE_EVENT_COUNT for none; '-' and '_' pass for a space. */
enum trace_event trace_event_by_name(const char *name);

#endif
