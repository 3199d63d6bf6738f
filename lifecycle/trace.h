/* lifecycle/trace.h
 * Writes the residency trace of one process (DESIGN.md 9) into a file of its own in the trace folder.
 *
 * Writing an event takes no lock, no heap and no system call, and never waits: it costs a look at the clock and one cache line
 * (tests/bench/trace_rows.c). Where there is no trace it costs a load. Nothing here is on the path of a launch.
 * All of the file is allocated and mapped before the first row, so that neither a full file system nor a first touch is met by an event. Mode
 * 0400, as with the counters (lifecycle/stats.h): who cuts the file short under a running process ends that with SIGBUS.
 *
 * Neighbours: trace_format.h is what stands in the file, trace_note.h what lifecycle/ says; tools/trace_file.h reads it. */
#ifndef SUBLET_LIFECYCLE_TRACE_H
#define SUBLET_LIFECYCLE_TRACE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/errors.h"
#include "base/lock.h"
#include "lifecycle/trace_format.h"

#define TRACE_RING_BYTES (8ull << 20) /* unless SUBLET_TRACE_SIZE says otherwise */

struct trace {
	struct trace_header *header; /* NULL: nothing is traced; atomic, set last */
	struct trace_row *rows;
	uint64_t mask;
	char *texts;
	uint64_t mapped_bytes;
	struct ranked_lock lock; /* RANK_TRACE: texts, and the two below while they are changed */
	uint32_t object_base, phase_base; /* text of rule 0 and phase 0 of the policy in force; atomic */
	uint32_t phase;	/* text of the phase in force; atomic */
};

struct trace_config {
	const char *folder; /* NULL or empty: nothing is traced */
	enum trace_writer writer;
	const char *role;   /* or NULL */
	uint64_t ring_bytes; /* 0: TRACE_RING_BYTES; rounded down to a power of two, but never below TRACE_ROWS_LEAST rows */
};

/* Make the file <folder>/proc-<pid>-<time>.trace (or coordinator-...). On failure @trace is off and good for every call
 * below, and *reterr says why and what to do. @trace begins as zero, and is never moved. */
enum sublet_err trace_open(struct trace *trace, const struct trace_config *config, struct errinfo *reterr);

/* Mark the file as ended in order. Rows of threads that are still about go in all the same. */
void trace_end(struct trace *trace);
/* Unit tests and the coordinator: nobody writes any more. */
void trace_close(struct trace *trace);
/* In a forked child: the file is the parent's. What a wrapper on this very stack still writes goes nowhere. */
void trace_forget(struct trace *trace);

static inline bool trace_is_on(const struct trace *trace)
{
	return __atomic_load_n(&trace->header, __ATOMIC_ACQUIRE) != NULL;
}

/* Write @row (borrowed): its bytes, allocation, duration_ns, object, extra, device, from and to are the caller's, and `phase` where it is not
 * TRACE_NO_TEXT; the rest is filled in. Any thread, under any lock. */
void trace_put(struct trace *trace, enum trace_event event, const struct trace_row *row);

/* A row that is about nothing yet. */
static inline struct trace_row trace_row_none(void)
{
	return (struct trace_row){.object = TRACE_NO_TEXT, .phase = TRACE_NO_TEXT, .device = TRACE_NO_DEVICE, .from = TRACE_NO_PLACE,
		.to = TRACE_NO_PLACE};
}

/* One that is about nothing but itself. */
static inline void trace_put_plain(struct trace *trace, enum trace_event event)
{
	const struct trace_row row = trace_row_none();

	trace_put(trace, event, &row);
}

/* Append a text of @bytes. Its number, or TRACE_NO_TEXT where there is no room (counted) or no trace. Takes RANK_TRACE. */
uint32_t trace_text(struct trace *trace, enum trace_text_kind kind, const char *text, uint32_t bytes);

/* The objects and phases of the policy that is in force from now on, as texts of consecutive numbers. @name gives the name of the
 * one of that number. Takes RANK_TRACE. */
void trace_policy(struct trace *trace, uint32_t objects, uint32_t phases,
	const char *(*name)(const void *arg, enum trace_text_kind kind, uint32_t number), const void *arg);

/* Numbers of a policy's rule or phase as they stand in rows; UINT32_MAX gives TRACE_NO_TEXT. */
uint32_t trace_object(const struct trace *trace, uint32_t rule);
uint32_t trace_phase(const struct trace *trace, uint32_t phase);

/* From now on rows are of @phase (a number of the policy). */
void trace_set_phase(struct trace *trace, uint32_t phase);

#endif
