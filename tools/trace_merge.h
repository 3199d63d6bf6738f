/* tools/trace_merge.h
 * The files of a trace as one stream of rows in the order of time. A file that cannot be read is left out and said; what is damaged in
 * one takes nothing from the others. Memory: a few thousand rows of each file, however long they are. */
#ifndef SUBLET_TOOLS_TRACE_MERGE_H
#define SUBLET_TOOLS_TRACE_MERGE_H

#include "tools/trace_file.h"

struct trace_source {
	struct trace_file file;
	size_t number;	   /* in `sources` */
	uint64_t shift_ns; /* from its clock to that of the merge, modulo 2^64 */
	uint64_t last_ns;  /* of its rows that were given out */
	struct trace_row *rows; /* [at, count) are next, in order */
	size_t at, count;
	void *user;	   /* who reads the merge may keep something here */
};

struct trace_merge {
	char *path;
	bool is_folder, follows;
	struct trace_source **sources;
	size_t count, room;
	size_t *heap; /* sources that have rows, by the time of their next one */
	size_t heap_count, heap_room;
	uint64_t start_ns; /* the earliest begin of a file, on the clock of the merge: the first file's monotonic one */
	char **warnings;   /* one line each */
	size_t warnings_count, warnings_room;
};

/* @path: the folder of a trace, or one file of it. @follows: the processes may go on, and trace_merge_refresh will be called. Errors with
 * the reason when there is nothing that can be read. On success trace_merge_close is due. */
enum sublet_err trace_merge_open(struct trace_merge *merge, const char *path, bool follows, struct errinfo *reterr);
void trace_merge_close(struct trace_merge *merge);

/* The next row, its time in nanoseconds since start_ns, and the file it is of; NULL: no more. */
struct trace_source *trace_merge_next(struct trace_merge *merge, struct trace_row *ret);

/* Look for further rows, and files. A row of a new file may be older than one that was given out already. */
void trace_merge_refresh(struct trace_merge *merge);

/* Sums over all files. */
uint64_t trace_merge_lost(const struct trace_merge *merge);
uint64_t trace_merge_torn(const struct trace_merge *merge);

/* One line of warning more. */
void trace_merge_warn(struct trace_merge *merge, const char *format, ...) SUBLET_PRINTF(2, 3);

#endif
