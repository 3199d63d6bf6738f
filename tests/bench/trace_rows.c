/* tests/bench/trace_rows.c
 * Writes traces: what an event costs, and something to read. `bench_trace_rows FOLDER FILES ROWS` makes that many files of that many
 * rows each, of processes that allocate, free and move in changing phases, and prints the nanoseconds of an event (the median
 * of pieces of 1,000 written on end) and of a look at the clock. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "lifecycle/trace.h"
#include "policy/decide.h"

enum { PIECE = 1000, LIVE = 500, OBJECTS = 12, PHASES = 3, PIECES_KEPT = 65536 };

static double piece_ns[PIECES_KEPT];
static size_t pieces;

static const char *name_of(const void *arg, enum trace_text_kind kind, uint32_t number)
{
	static char name[32];

	snprintf(name, sizeof(name), "%s_%u", kind == TRACE_TEXT_OBJECT ? "object" : "phase", number);
	return name;
}

static void put(struct trace *trace, uint64_t number)
{
	struct trace_row row = trace_row_none();
	const uint64_t slot = number % LIVE, round = number / LIVE;

	row.object = trace_object(trace, (uint32_t)(slot % OBJECTS));
	row.device = 0;
	row.bytes = (slot % 7 + 1) << 21;
	/* each round allocates, moves out, moves in, frees; a phase begins in front of each move */
	row.allocation = round / 4 * LIVE + slot + 1;
	if (slot == 0 && round % 2) {
		trace_set_phase(trace, (uint32_t)(round / 2 % PHASES));
		trace_put_plain(trace, TRACE_PHASE);
		return;
	}
	row.duration_ns = 1000;
	switch (round % 4) {
	case 0:
		row.to = POLICY_DEVICE;
		trace_put(trace, TRACE_ALLOCATE, &row);
		break;
	case 1:
		row.from = POLICY_DEVICE;
		row.to = POLICY_HOST;
		trace_put(trace, TRACE_MOVE, &row);
		break;
	case 2:
		row.from = POLICY_HOST;
		row.to = POLICY_DEVICE;
		trace_put(trace, TRACE_MOVE, &row);
		break;
	case 3:
		row.from = POLICY_DEVICE;
		trace_put(trace, TRACE_FREE, &row);
		break;
	}
}

static int by_size(const void *a, const void *b)
{
	const double left = *(const double *)a, right = *(const double *)b;

	return left < right ? -1 : left > right;
}

/* A look at the clock, which each event needs. */
static double clock_ns(void)
{
	double best = 1e9;

	for (int try = 0; try < 20; try++) {
		const uint64_t begun = clock_now_ns();
		double took;

		for (int i = 0; i < PIECE; i++)
			clock_now_ns();
		took = (double)(clock_now_ns() - begun) / PIECE;
		best = took < best ? took : best;
	}
	return best;
}

int main(int argc, char **argv)
{
	const uint64_t files = argc > 2 ? strtoull(argv[2], NULL, 10) : 0, rows = argc > 3 ? strtoull(argv[3], NULL, 10) : 0;
	struct trace *traces = calloc(files, sizeof(*traces));

	if (!files || !rows || !traces)
		return 2;
	for (uint64_t f = 0; f < files; f++) {
		struct trace_config config = {.folder = argv[1], .writer = TRACE_WRITER_PROCESS, .role = f % 2 ? "train" : "rollout",
			.ring_bytes = sizeof(struct trace_row)};
		struct errinfo error;

		while (config.ring_bytes < rows * sizeof(struct trace_row))
			config.ring_bytes *= 2;
		if (trace_open(&traces[f], &config, &error)) {
			fprintf(stderr, "%s\n", error.text);
			return 1;
		}
		trace_policy(&traces[f], OBJECTS, PHASES, name_of, NULL);
	}
	/* by turns, so that their times lie between each other's */
	for (uint64_t number = 0; number < rows; number += PIECE) {
		for (uint64_t f = 0; f < files; f++) {
			const uint64_t begun = clock_now_ns();

			for (uint64_t i = number; i < number + PIECE && i < rows; i++)
				put(&traces[f], i);
			if (pieces < PIECES_KEPT)
				piece_ns[pieces++] = (double)(clock_now_ns() - begun) / PIECE;
		}
	}
	for (uint64_t f = 0; f < files; f++) {
		trace_end(&traces[f]);
		trace_close(&traces[f]);
	}
	qsort(piece_ns, pieces, sizeof(*piece_ns), by_size);
	printf("%.1f %.1f\n", piece_ns[pieces / 2], clock_ns());
	free(traces);
	return 0;
}
