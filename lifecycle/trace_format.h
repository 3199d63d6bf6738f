/* lifecycle/trace_format.h
 * What stands in a trace file. One process writes it while others may read; it stays as it is after kill -9.
 *
 *   struct trace_header   in the first TRACE_HEADER_BYTES
 *   texts                 struct trace_text, one behind the other, each rounded up to 8 bytes; never overwritten
 *   rows                  a ring of a power of two of struct trace_row
 *
 * A row's place is its number modulo the ring's size, and `sequence` says which row it is (number + 1, stored last; 0 while it
 * is being written), so that one that was never finished is told from one that was. Who writes for longer than the ring takes to
 * go round may leave a mixture behind; `check` finds that. Numbers that are claimed beyond the ring's size are lost rows.
 *
 * No CUDA here: tools/ includes this header. Little-endian machines only, as is the driver. Raise TRACE_VERSION with every
 * change of layout or meaning; readers refuse other versions. */
#ifndef SUBLET_LIFECYCLE_TRACE_FORMAT_H
#define SUBLET_LIFECYCLE_TRACE_FORMAT_H

#include <stddef.h>
#include <stdint.h>

#define TRACE_MAGIC 0x45434152544c4253ull /* "SBLTRACE" */
#define TRACE_VERSION 1u
#define TRACE_HEADER_BYTES 4096u
#define TRACE_TEXTS_BYTES (1u << 20)
#define TRACE_ROWS_LEAST 64u
#define TRACE_NO_TEXT UINT32_MAX /* object, phase: none, or not known */
#define TRACE_NO_DEVICE UINT16_MAX
#define TRACE_NO_PLACE UINT8_MAX /* from, to: nothing */

enum trace_event {
#define EVENT(NAME, name, writer, object, allocation, extra) TRACE_##NAME,
#include "lifecycle/trace.def"
	TRACE_EVENT_COUNT
};

enum trace_writer { TRACE_WRITER_PROCESS = 1, TRACE_WRITER_COORDINATOR };

struct trace_row {
	uint64_t sequence;
	uint64_t time_ns;     /* CLOCK_MONOTONIC, at the end of what has a duration */
	uint64_t bytes;
	uint64_t allocation;  /* serial in its process, or what trace.def says */
	uint64_t duration_ns;
	uint32_t object;      /* number of a text: the rule that it falls under, or what trace.def says */
	uint32_t phase;	      /* number of a text: in force in this process */
	uint32_t thread;
	uint32_t extra;
	uint16_t device;
	uint8_t event;	      /* enum trace_event */
	uint8_t from, to;     /* enum policy_residency */
	uint8_t spare;
	uint16_t check;	      /* trace_check of all the rest */
};

_Static_assert(sizeof(struct trace_row) == 64, "a row is a cache line");

struct trace_header {
	uint64_t magic;	      /* written last */
	uint32_t version;
	uint32_t row_bytes;
	uint32_t writer;      /* enum trace_writer */
	int32_t pid;
	uint64_t start_ticks; /* field 22 of /proc/<pid>/stat */
	uint64_t rows_offset, rows_count;
	uint64_t texts_offset, texts_bytes;
	int64_t realtime_ns;  /* CLOCK_REALTIME minus CLOCK_MONOTONIC when the file was made */
	uint64_t begun_ns;    /* CLOCK_MONOTONIC at that moment */
	uint64_t host_id;     /* of this boot: monotonic clocks of others are not comparable */
	char sublet_version[32], role[32];
	char command[256];    /* NUL for NUL as in /proc/self/cmdline, spaces instead; all end in NUL */
	/* --- below: changes while the process runs --- */
	uint64_t claimed __attribute__((aligned(64))); /* rows that were begun, ever */
	uint64_t texts_used;  /* bytes of whole texts, stored behind them */
	uint64_t texts_lost;  /* did not fit */
	uint32_t texts_count;
	uint32_t ended;	      /* 1: in order */
};

_Static_assert(sizeof(struct trace_header) <= TRACE_HEADER_BYTES, "the header fits its room");

/* What a number in a row stands for. */
enum trace_text_kind {
	TRACE_TEXT_OBJECT = 1,
	TRACE_TEXT_PHASE,
	TRACE_TEXT_ROLE,
	TRACE_TEXT_DEVICE, /* "NUMBER UUID", as this process numbers it, and in hexadecimal digits */
	TRACE_TEXT_SITE, /* who allocates: lines "library: ", "thread: ", "tag: ", "stack: ", "python: ", innermost frame first */
};

/* Texts are numbered by their place, from 0. */
struct trace_text {
	uint32_t bytes; /* of the text, without NUL */
	uint32_t kind;	/* enum trace_text_kind */
	/* the text, filled up to a multiple of 8 */
};

/* Over all of a row but `check` and `spare`: what @row says, and what it does not say yet while it is being written. A sum of products,
 * none of which waits for another. */
static inline uint16_t trace_check(const struct trace_row *row, uint64_t sequence, uint64_t time_ns, uint32_t event, uint32_t phase,
	uint32_t thread)
{
	const uint64_t small = (uint64_t)row->device << 32 | (uint64_t)event << 16 | (uint64_t)row->from << 8 | (uint64_t)row->to;
	const uint64_t sum = sequence * 0x9e3779b97f4a7c15ull + time_ns * 0xbf58476d1ce4e5b9ull + row->bytes * 0x94d049bb133111ebull +
			     row->allocation * 0xd6e8feb86659fd93ull + row->duration_ns * 0xc2b2ae3d27d4eb4full +
			     ((uint64_t)row->object << 32 | phase) * 0x165667b19e3779f9ull +
			     ((uint64_t)thread << 32 | row->extra) * 0xff51afd7ed558ccdull + small * 0xc4ceb9fe1a85ec53ull;

	return (uint16_t)(sum >> 48);
}

#endif
