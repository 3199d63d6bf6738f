/* tools/trace_merge.c
 * Rows of one file are almost in order: a thread may be interrupted between claiming a row and looking at the clock. So the last few
 * of what was read wait until what comes behind them is there, and what is later still is given the time of the row before. */
#include "tools/trace_merge.h"

#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/list.h"
#include "base/text.h"

enum { CHUNK_ROWS = 4096, WAITING_ROWS = 256 };

void trace_merge_warn(struct trace_merge *merge, const char *format, ...)
{
	va_list arguments;
	char *line;
	int length;

	va_start(arguments, format);
	length = vasprintf(&line, format, arguments);
	va_end(arguments);
	if (length < 0)
		return;
	if (list_room(&merge->warnings, merge->warnings_count, &merge->warnings_room, sizeof(*merge->warnings)))
		merge->warnings[merge->warnings_count++] = line;
	else
		free(line);
}

/* ---- rows of one file ---- */

static bool is_before(const struct trace_row *a, const struct trace_row *b)
{
	return a->time_ns != b->time_ns ? a->time_ns < b->time_ns : a->sequence < b->sequence;
}

/* By insertion: they are almost in order. */
static void sort(struct trace_row *rows, size_t count)
{
	for (size_t i = 1; i < count; i++) {
		const struct trace_row row = rows[i];
		size_t at = i;

		for (; at > 0 && is_before(&row, &rows[at - 1]); at--)
			rows[at] = rows[at - 1];
		if (at < i)
			rows[at] = row;
	}
}

/* Have a row to give out, if the file has one. */
static bool fill(struct trace_source *source)
{
	size_t got = 1;

	if (source->at < source->count && source->count - source->at > WAITING_ROWS)
		return true;
	memmove(source->rows, source->rows + source->at, (source->count - source->at) * sizeof(*source->rows));
	source->count -= source->at;
	source->at = 0;
	while (source->count <= WAITING_ROWS && got) {
		got = trace_file_read(&source->file, source->rows + source->count, CHUNK_ROWS);
		source->count += got;
	}
	sort(source->rows, source->count);
	return source->count > 0;
}

/* ---- the heap ---- */

static uint64_t next_ns(const struct trace_merge *merge, size_t number)
{
	const struct trace_source *source = merge->sources[number];

	return source->rows[source->at].time_ns + source->shift_ns - merge->start_ns;
}

static void sink(struct trace_merge *merge, size_t at)
{
	const size_t number = merge->heap[at];
	const uint64_t time_ns = next_ns(merge, number);

	for (size_t child; (child = 2 * at + 1) < merge->heap_count; at = child) {
		if (child + 1 < merge->heap_count && next_ns(merge, merge->heap[child + 1]) < next_ns(merge, merge->heap[child]))
			child++;
		if (next_ns(merge, merge->heap[child]) >= time_ns)
			break;
		merge->heap[at] = merge->heap[child];
	}
	merge->heap[at] = number;
}

/* All anew: which of the sources have rows has changed. */
static void make_heap(struct trace_merge *merge)
{
	merge->heap_count = 0;
	for (size_t i = 0; i < merge->count; i++)
		if (fill(merge->sources[i]))
			merge->heap[merge->heap_count++] = i;
	for (size_t at = merge->heap_count / 2; at-- > 0;)
		sink(merge, at);
}

struct trace_source *trace_merge_next(struct trace_merge *merge, struct trace_row *ret)
{
	struct trace_source *source;
	uint64_t time_ns;

	if (!merge->heap_count)
		return NULL;
	source = merge->sources[merge->heap[0]];
	*ret = source->rows[source->at];
	time_ns = next_ns(merge, source->number);
	/* what a damaged clock says may be anything; in front of the begin it is the begin */
	if (time_ns > INT64_MAX)
		time_ns = 0;
	if (time_ns < source->last_ns)
		time_ns = source->last_ns;
	source->last_ns = ret->time_ns = time_ns;
	source->at++;
	if (!fill(source))
		merge->heap[0] = merge->heap[--merge->heap_count];
	if (merge->heap_count)
		sink(merge, 0);
	return source;
}

/* ---- files ---- */

static void free_source(struct trace_source *source)
{
	if (!source)
		return;
	trace_file_close(&source->file);
	free(source->rows);
	free(source);
}

static enum sublet_err add_file(struct trace_merge *merge, const char *path, struct errinfo *reterr)
{
	struct trace_source *source = calloc(1, sizeof(*source));
	const struct trace_header *first, *header;
	uint64_t begun_ns;
	enum sublet_err err;

	if (!source)
		return errinfo_set(reterr, SUBLET_ERR_SYSTEM, 0, "no memory");
	err = trace_file_open(&source->file, path, reterr);
	if (err) {
		free(source);
		return err;
	}
	source->rows = malloc((CHUNK_ROWS + 2 * WAITING_ROWS) * sizeof(*source->rows));
	if (!source->rows || !list_room(&merge->sources, merge->count, &merge->room, sizeof(struct trace_source *)) ||
		!list_room(&merge->heap, merge->count, &merge->heap_room, sizeof(*merge->heap))) {
		free_source(source);
		return errinfo_set(reterr, SUBLET_ERR_SYSTEM, 0, "no memory");
	}
	source->file.follows = merge->follows;
	source->number = merge->count;
	merge->sources[merge->count++] = source;
	header = &source->file.header;
	first = &merge->sources[0]->file.header;
	/* monotonic clocks of one boot are one; others are compared by the time of day */
	source->shift_ns = header->host_id == first->host_id ? 0 : (uint64_t)header->realtime_ns - (uint64_t)first->realtime_ns;
	begun_ns = header->begun_ns + source->shift_ns;
	if (merge->count == 1 || begun_ns < merge->start_ns)
		merge->start_ns = begun_ns;
	return SUBLET_OK;
}

static bool is_open(const struct trace_merge *merge, const char *path)
{
	for (size_t i = 0; i < merge->count; i++)
		if (strcmp(merge->sources[i]->file.path, path) == 0)
			return true;
	return false;
}

static int is_trace(const struct dirent *entry)
{
	const char *dot = strrchr(entry->d_name, '.');

	return dot && entry->d_name[0] != '.' && strcmp(dot, ".trace") == 0;
}

/* In the order of their names, so that a trace is read in the same way each time. */
static enum sublet_err add_folder(struct trace_merge *merge, bool warns, struct errinfo *reterr)
{
	struct dirent **entries;
	int count = scandir(merge->path, &entries, is_trace, alphasort);

	if (count < 0)
		return errinfo_set(reterr, SUBLET_ERR_SYSTEM, 0, "'%.120s': %s", merge->path, text_of_errno(errno));
	for (int i = 0; i < count; i++) {
		struct errinfo error = {0};
		char *path;

		if (asprintf(&path, "%s/%s", merge->path, entries[i]->d_name) >= 0) {
			if (!is_open(merge, path) && add_file(merge, path, &error) && warns)
				trace_merge_warn(merge, "%s", error.text);
			free(path);
		}
		free(entries[i]);
	}
	free(entries);
	if (merge->count)
		return SUBLET_OK;
	return errinfo_set(reterr, SUBLET_ERR_INVALID, 0, "%.200s",
		merge->warnings_count ? merge->warnings[0] : "no trace is there; write one with 'sublet run --trace DIR'");
}

static void warn_of(struct trace_merge *merge, const struct trace_source *source)
{
	const char *path = source->file.path;

	if (source->file.repaired)
		trace_merge_warn(merge, "'%s': the header's count of rows is damaged, and was taken from the rows", path);
	if (source->file.texts_damaged)
		trace_merge_warn(merge, "'%s': names are damaged, some are missing", path);
	if (source->file.header.texts_lost)
		trace_merge_warn(merge, "'%s': %llu names had no room", path, (unsigned long long)source->file.header.texts_lost);
}

enum sublet_err trace_merge_open(struct trace_merge *merge, const char *path, bool follows, struct errinfo *reterr)
{
	struct stat status;
	enum sublet_err err;

	memset(merge, 0, sizeof(*merge));
	merge->follows = follows;
	merge->path = strdup(path);
	if (!merge->path)
		return errinfo_set(reterr, SUBLET_ERR_SYSTEM, 0, "no memory");
	merge->is_folder = stat(path, &status) == 0 && S_ISDIR(status.st_mode);
	err = merge->is_folder ? add_folder(merge, true, reterr) : add_file(merge, path, reterr);
	if (err) {
		trace_merge_close(merge);
		return err;
	}
	for (size_t i = 0; i < merge->count; i++)
		warn_of(merge, merge->sources[i]);
	make_heap(merge);
	return SUBLET_OK;
}

void trace_merge_refresh(struct trace_merge *merge)
{
	const uint64_t start_ns = merge->start_ns;

	for (size_t i = 0; i < merge->count; i++)
		trace_file_refresh(&merge->sources[i]->file);
	if (merge->is_folder)
		add_folder(merge, false, NULL);
	merge->start_ns = start_ns; /* times that were given out stand */
	make_heap(merge);
}

uint64_t trace_merge_lost(const struct trace_merge *merge)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < merge->count; i++)
		sum += merge->sources[i]->file.lost_rows;
	return sum;
}

uint64_t trace_merge_torn(const struct trace_merge *merge)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < merge->count; i++)
		sum += merge->sources[i]->file.torn_rows + merge->sources[i]->file.missing_rows;
	return sum;
}

void trace_merge_close(struct trace_merge *merge)
{
	for (size_t i = 0; i < merge->count; i++)
		free_source(merge->sources[i]);
	for (size_t i = 0; i < merge->warnings_count; i++)
		free(merge->warnings[i]);
	free(merge->sources);
	free(merge->heap);
	free(merge->warnings);
	free(merge->path);
	memset(merge, 0, sizeof(*merge));
}
