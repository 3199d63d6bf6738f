/* tests/fuzz/fuzz_trace.c
 * Any bytes as a trace file: refused with a line, or read to its end, with no state that cannot be. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/fuzz/fuzz.h"
#include "tools/trace_sums.h"

static void check_series(struct trace_series *series, void *arg)
{
	uint64_t *device = arg;

	if (series->device >= *device || strlen(series->process->role) > 4096)
		abort(); /* a finding, for the fuzzer to keep */
}

static void read_file(const char *path)
{
	struct trace_model model;
	struct trace_sums sums;
	struct errinfo error = {0};
	uint64_t devices;

	if (trace_model_open(&model, path, false, &error)) {
		if (!error.text[0] || strchr(error.text, '\n'))
			abort();
		return;
	}
	trace_sums_take(&sums, &model);
	devices = model.devices_count;
	trace_model_each_series(&model, check_series, &devices);
	for (size_t i = 0; i < sums.sums_count; i++)
		if (sums.sums[i].phase >= model.phases.count || sums.sums[i].role >= model.roles.count ||
			sums.sums[i].object >= model.objects.count)
			abort();
	trace_sums_release(&sums);
	trace_model_close(&model);
}

static void look(const void *bytes, size_t size)
{
	int fd = memfd_create("trace", MFD_CLOEXEC);
	char path[32];

	if (fd < 0)
		return;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (write(fd, bytes, size) == (ssize_t)size)
		read_file(path);
	close(fd);
}

/* A header that is taken, and rows whose numbers and checks are right where their first byte is even: else nearly everything is left out. */
static void mend(unsigned char *bytes, size_t size)
{
	struct trace_header header;
	struct trace_row row;

	memcpy(&header, bytes, sizeof(header));
	header.magic = TRACE_MAGIC;
	header.version = TRACE_VERSION;
	header.row_bytes = sizeof(struct trace_row);
	header.writer = header.writer % 2 ? TRACE_WRITER_PROCESS : TRACE_WRITER_COORDINATOR;
	header.texts_offset = sizeof(header);
	header.texts_bytes %= (size - sizeof(header)) / 2 + 1;
	header.texts_used %= header.texts_bytes + 2; /* one too many, too */
	header.rows_offset = header.texts_offset + header.texts_bytes;
	header.rows_count = TRACE_ROWS_LEAST;
	header.claimed %= 4 * TRACE_ROWS_LEAST;
	memcpy(bytes, &header, sizeof(header));
	for (uint64_t slot = 0; header.rows_offset + (slot + 1) * sizeof(row) <= size && slot < header.rows_count; slot++) {
		unsigned char *at = bytes + header.rows_offset + slot * sizeof(row);
		const uint64_t round = header.claimed > slot ? (header.claimed - 1 - slot) / header.rows_count : 0;

		memcpy(&row, at, sizeof(row));
		if (row.sequence % 2)
			continue;
		row.sequence = round * header.rows_count + slot + 1;
		row.event %= TRACE_EVENT_COUNT;
		row.allocation %= 8; /* so that they meet each other */
		row.from %= POLICY_RESIDENCY_COUNT + 1;
		row.to %= POLICY_RESIDENCY_COUNT + 1;
		row.device %= 3;
		row.check = trace_check(&row, row.sequence, row.time_ns, row.event, row.phase, row.thread);
		memcpy(at, &row, sizeof(row));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	unsigned char *copy;

	look(data, bytes);
	if (bytes < sizeof(struct trace_header) + 2 * sizeof(struct trace_row))
		return 0;
	copy = malloc(bytes);
	if (!copy)
		return 0;
	memcpy(copy, data, bytes);
	mend(copy, bytes);
	look(copy, bytes);
	free(copy);
	return 0;
}
