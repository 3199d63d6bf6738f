/* tests/unit/test_trace.c
 * The writer of traces against its reader: rings that go round, rows that were never finished, processes that are killed, files that
 * are damaged. No driver. */
#include <fcntl.h>
#include <glob.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "lifecycle/trace.h"
#include "tests/unit/scratch.h"
#include "tools/trace_file.h"

#define CASE(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)

enum { ROWS = TRACE_ROWS_LEAST };
static char folder[64];
static pid_t forked;

static int make_folder(void **state)
{
	snprintf(folder, sizeof(folder), "/tmp/sublet-trace-XXXXXX");
	return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
	scratch_remove(folder);
	return 0;
}

static void open_trace(struct trace *trace, uint64_t rows)
{
	const struct trace_config config = {.folder = folder, .writer = TRACE_WRITER_PROCESS, .role = "train",
		.ring_bytes = rows * sizeof(struct trace_row)};
	struct errinfo error = {0};

	if (trace_open(trace, &config, &error))
		fail_msg("%s", error.text);
}

static const char *only_file(void)
{
	static char path[256];
	char pattern[96];
	glob_t found;

	snprintf(pattern, sizeof(pattern), "%s/*.trace", folder);
	assert_int_equal(glob(pattern, 0, NULL, &found), 0);
	assert_int_equal(found.gl_pathc, 1);
	snprintf(path, sizeof(path), "%s", found.gl_pathv[0]);
	globfree(&found);
	return path;
}

static void open_file(struct trace_file *file)
{
	struct errinfo error = {0};

	if (trace_file_open(file, only_file(), &error))
		fail_msg("%s", error.text);
}

static void write_rows(struct trace *trace, uint64_t count)
{
	for (uint64_t i = 0; i < count; i++) {
		struct trace_row row = trace_row_none();

		row.bytes = i;
		row.allocation = i * 3;
		trace_put(trace, TRACE_NATIVE, &row);
	}
}

static size_t read_all(struct trace_file *file, struct trace_row *rows, size_t room)
{
	size_t count = 0, got;

	while (count < room && (got = trace_file_read(file, rows + count, room - count)))
		count += got;
	return count;
}

/* Overwrite @bytes of the file at @offset. */
static void spoil(uint64_t offset, const void *bytes, size_t count)
{
	int fd;

	assert_int_equal(chmod(only_file(), 0600), 0);
	fd = open(only_file(), O_WRONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, bytes, count, (off_t)offset), count);
	close(fd);
}

/* ---- */

static void rows_come_back_as_they_were_written(void **state)
{
	static const char site[] = "library: libtorch.so\nstack: a\x1b[2J\nstack: b";
	struct trace trace;
	struct trace_file file;
	struct trace_row row = {.bytes = 1ull << 40, .allocation = 7, .duration_ns = 99, .object = 1, .phase = 2, .extra = 5, .device = 3,
		.from = 1, .to = 2}, rows[4];
	uint64_t before = clock_now_ns();

	open_trace(&trace, ROWS);
	assert_int_equal(trace_text(&trace, TRACE_TEXT_ROLE, "train", 5), 0);
	assert_int_equal(trace_text(&trace, TRACE_TEXT_SITE, site, sizeof(site) - 1), 1);
	trace_put(&trace, TRACE_MOVE, &row);
	trace_put_plain(&trace, TRACE_NATIVE);
	trace_end(&trace);
	open_file(&file);
	assert_int_equal(read_all(&file, rows, 4), 2);
	assert_int_equal(rows[0].event, TRACE_MOVE);
	assert_true(rows[0].time_ns >= before && rows[0].time_ns <= rows[1].time_ns && rows[1].time_ns <= clock_now_ns());
	assert_int_equal(rows[0].thread, getpid());
	assert_true(rows[0].bytes == row.bytes && rows[0].allocation == 7 && rows[0].duration_ns == 99 && rows[0].object == 1 &&
		    rows[0].phase == 2 && rows[0].extra == 5 && rows[0].device == 3 && rows[0].from == 1 && rows[0].to == 2);
	assert_true(rows[1].object == TRACE_NO_TEXT && rows[1].phase == TRACE_NO_TEXT && rows[1].device == TRACE_NO_DEVICE);
	assert_string_equal(trace_file_text(&file, TRACE_TEXT_ROLE, 0), "train");
	assert_null(trace_file_text(&file, TRACE_TEXT_ROLE, 1));
	assert_string_equal(trace_file_text(&file, TRACE_TEXT_SITE, 1), "library: libtorch.so\nstack: a?[2J\nstack: b");
	assert_string_equal(file.header.role, "train");
	assert_int_equal(file.header.pid, getpid());
	assert_true(file.header.ended);
	assert_true(strstr(file.header.command, "test_trace"));
	assert_int_equal(file.lost_rows + file.torn_rows + file.missing_rows, 0);
	trace_file_close(&file);
	trace_close(&trace);
}

static void ring_that_goes_round_keeps_the_newest_and_counts_the_lost(void **state)
{
	struct trace trace;
	struct trace_file file;
	struct trace_row rows[2 * ROWS];

	open_trace(&trace, ROWS);
	write_rows(&trace, 3 * ROWS + 7);
	open_file(&file);
	assert_int_equal(read_all(&file, rows, 2 * ROWS), ROWS);
	assert_int_equal(file.lost_rows, 2 * ROWS + 7);
	for (uint64_t i = 0; i < ROWS; i++)
		assert_int_equal(rows[i].bytes, 2 * ROWS + 7 + i);
	/* and what comes while it is open */
	write_rows(&trace, 2);
	assert_true(trace_file_refresh(&file));
	assert_int_equal(read_all(&file, rows, 2 * ROWS), 2);
	assert_int_equal(rows[1].bytes, 1);
	write_rows(&trace, ROWS + 5);
	assert_true(trace_file_refresh(&file));
	assert_int_equal(read_all(&file, rows, 2 * ROWS), ROWS);
	assert_int_equal(file.lost_rows, 2 * ROWS + 7 + 5);
	assert_int_equal(file.torn_rows, 0);
	trace_file_close(&file);
	trace_close(&trace);
}

static void size_is_rounded_down_and_never_below_the_least(void **state)
{
	struct trace trace;

	open_trace(&trace, 100);
	assert_int_equal(trace.header->rows_count, 64);
	trace_close(&trace);
	scratch_remove(folder);
	assert_int_equal(mkdir(folder, 0700), 0);
	open_trace(&trace, 1);
	assert_int_equal(trace.header->rows_count, TRACE_ROWS_LEAST);
	trace_close(&trace);
}

static void unfinished_and_mixed_rows_are_counted_and_left_out(void **state)
{
	struct trace trace;
	struct trace_file file;
	struct trace_row rows[ROWS];

	open_trace(&trace, ROWS);
	write_rows(&trace, 10);
	trace.rows[3].sequence = 0;   /* killed in the middle */
	trace.rows[5].bytes ^= 4;     /* two writers, one a round behind */
	trace.rows[6].sequence = 6;   /* of another place */
	trace.rows[7].event = 200;
	open_file(&file);
	assert_int_equal(read_all(&file, rows, ROWS), 6);
	assert_int_equal(file.torn_rows, 4);
	assert_int_equal(rows[3].bytes, 4);
	assert_int_equal(rows[4].bytes, 8);
	trace_file_close(&file);
	trace_close(&trace);
}

static void follower_waits_for_a_row_that_is_being_written(void **state)
{
	struct trace trace;
	struct trace_file file;
	struct trace_row rows[ROWS];

	open_trace(&trace, ROWS);
	write_rows(&trace, 4);
	trace.rows[2].sequence = 0;
	open_file(&file);
	file.follows = true;
	assert_int_equal(read_all(&file, rows, ROWS), 2);
	trace.rows[2].sequence = 3;
	assert_true(trace_file_refresh(&file));
	assert_int_equal(read_all(&file, rows, ROWS), 2);
	assert_int_equal(rows[0].bytes, 2);
	assert_int_equal(file.torn_rows, 0);
	trace_file_close(&file);
	trace_close(&trace);
}

static void *write_for_long(void *arg)
{
	for (;;)
		write_rows(arg, 1000);
	return NULL;
}

/* Every row that is left is whole; hardly more are torn than there were threads. */
static void killed_writer_leaves_a_trace_that_can_be_read(void **state)
{
	for (int run = 0; run < 20; run++) {
		struct trace_file file;
		static struct trace_row rows[4 * ROWS];
		pid_t child = fork();
		size_t count;
		int status;

		if (child == 0) {
			static struct trace trace;
			pthread_t thread;

			alarm(60);
			open_trace(&trace, 4 * ROWS);
			pthread_create(&thread, NULL, write_for_long, &trace);
			write_for_long(&trace);
		}
		clock_sleep_ns(20 * 1000000ull);
		kill(child, SIGKILL);
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
		/* killed before it began, on a machine with much to do */
		char pattern[96];
		glob_t found;
		snprintf(pattern, sizeof(pattern), "%s/*.trace", folder);
		if (glob(pattern, 0, NULL, &found))
			continue;
		globfree(&found);
		struct errinfo error = {0};
		if (!trace_file_open(&file, only_file(), &error)) {
			uint64_t newest = 0;

			count = read_all(&file, rows, 4 * ROWS);
			assert_true(file.torn_rows <= 4); /* each thread in one row, and in one that another wrote a round later */
			assert_true(count + file.torn_rows + file.lost_rows == file.header.claimed);
			for (size_t i = 0; i < count; i++) {
				assert_int_equal(rows[i].event, TRACE_NATIVE);
				assert_int_equal(rows[i].allocation, rows[i].bytes * 3);
				assert_true(rows[i].sequence > newest);
				newest = rows[i].sequence;
			}
			assert_false(file.header.ended);
			trace_file_close(&file);
		}
		assert_int_equal(unlink(only_file()), 0);
	}
}

static void limit_of_file_sizes_turns_tracing_off_with_the_remedy_and_no_signal(void **state)
{
	const struct trace_config config = {.folder = folder, .writer = TRACE_WRITER_PROCESS, .ring_bytes = 1 << 20};
	struct rlimit old, small = {4096, 4096};
	struct trace trace;
	struct errinfo error = {0};

	/* stands for a full file system: room cannot be had. The signal that the kernel has for it would end this process. */
	getrlimit(RLIMIT_FSIZE, &old);
	small.rlim_max = old.rlim_max;
	setrlimit(RLIMIT_FSIZE, &small);
	assert_int_equal(trace_open(&trace, &config, &error), SUBLET_ERR_SYSTEM);
	setrlimit(RLIMIT_FSIZE, &old);
	assert_non_null(strstr(error.text, "SUBLET_TRACE_SIZE"));
	assert_false(trace_is_on(&trace));
	write_rows(&trace, 3);
	assert_int_equal(trace_text(&trace, TRACE_TEXT_ROLE, "x", 1), TRACE_NO_TEXT);
	trace_end(&trace);
	trace_close(&trace);
	assert_int_equal(rmdir(folder), 0);
}

static void missing_folder_says_what_to_do(void **state)
{
	const struct trace_config config = {.folder = "/nonexistent/trace", .writer = TRACE_WRITER_PROCESS};
	struct trace trace;
	struct errinfo error = {0};

	assert_int_equal(trace_open(&trace, &config, &error), SUBLET_ERR_SYSTEM);
	assert_non_null(strstr(error.text, "sublet run --trace"));
	trace_close(&trace);
}

/* A signal handler forks while the texts of a policy are written; its child comes back into the middle of that. */
static const char *forking_name(const void *arg, enum trace_text_kind kind, uint32_t number)
{
	struct trace *trace = *(struct trace *const *)arg;

	if (kind == TRACE_TEXT_OBJECT && number == 1) {
		forked = fork();
		if (forked == 0) {
			ranked_lock_fork_child();
			trace_forget(trace);
		}
	}
	return "name";
}

static void child_forked_in_the_middle_of_texts_goes_on_and_leaves_the_file_alone(void **state)
{
	struct trace trace, *pointer = &trace;
	struct trace_file file;
	int status;

	open_trace(&trace, ROWS);
	trace_policy(&trace, 3, 2, forking_name, &pointer);
	if (forked == 0) {
		trace_end(&trace);
		_exit(trace_text(&trace, TRACE_TEXT_ROLE, "x", 1) == TRACE_NO_TEXT ? 0 : 1);
	}
	assert_int_equal(waitpid(forked, &status, 0), forked);
	assert_int_equal(status, 0);
	open_file(&file);
	assert_int_equal(file.header.texts_count, 5);
	assert_false(file.header.ended);
	trace_file_close(&file);
	trace_close(&trace);
}

static void forked_child_writes_nothing_into_the_parents_file(void **state)
{
	struct trace trace;
	struct trace_file file;
	struct trace_row rows[ROWS];
	pid_t child;
	int status;

	open_trace(&trace, ROWS);
	write_rows(&trace, 2);
	child = fork();
	if (child == 0) {
		struct trace_header *header = trace.header;

		trace_forget(&trace);
		write_rows(&trace, 5);
		/* a wrapper of this stack that had the pointer before */
		header->claimed += 100;
		trace.rows[0].bytes = 77;
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	open_file(&file);
	assert_int_equal(read_all(&file, rows, ROWS), 2);
	assert_int_equal(rows[0].bytes, 0);
	assert_int_equal(file.header.claimed, 2);
	trace_file_close(&file);
	trace_close(&trace);
}

/* ---- damaged files ---- */

static void expect_refused(const char *part)
{
	struct trace_file file;
	struct errinfo error = {0};

	assert_int_not_equal(trace_file_open(&file, only_file(), &error), SUBLET_OK);
	if (!strstr(error.text, part))
		fail_msg("'%s' does not say '%s'", error.text, part);
	trace_file_close(&file);
}

static void foreign_newer_and_damaged_headers_are_refused_with_the_reason(void **state)
{
	const uint32_t newer = TRACE_VERSION + 1, version = TRACE_VERSION;
	const uint64_t rows = 63, good = ROWS, far = UINT64_MAX - 64;
	struct trace trace;

	open_trace(&trace, ROWS);
	write_rows(&trace, 3);
	trace_close(&trace);
	spoil(offsetof(struct trace_header, version), &newer, sizeof(newer));
	expect_refused("use the sublet that wrote it");
	spoil(offsetof(struct trace_header, version), &version, sizeof(version));
	spoil(offsetof(struct trace_header, rows_count), &rows, sizeof(rows));
	expect_refused("damaged");
	spoil(offsetof(struct trace_header, rows_count), &good, sizeof(good));
	spoil(offsetof(struct trace_header, rows_offset), &far, sizeof(far));
	expect_refused("damaged");
	assert_int_equal(truncate(only_file(), 100), 0);
	expect_refused("cut short");
	spoil(0, "#!/bin/sh", 9);
	expect_refused("no trace file");
	assert_int_equal(truncate(only_file(), 0), 0);
	expect_refused("no trace file");
}

static void file_cut_short_gives_the_rows_that_are_left(void **state)
{
	struct trace trace;
	struct trace_file file;
	struct trace_row rows[ROWS];

	open_trace(&trace, ROWS);
	write_rows(&trace, 20);
	trace_close(&trace);
	assert_int_equal(truncate(only_file(), TRACE_HEADER_BYTES + TRACE_TEXTS_BYTES + 7 * 64 + 30), 0);
	open_file(&file);
	assert_int_equal(read_all(&file, rows, ROWS), 7);
	assert_int_equal(file.missing_rows, 13);
	trace_file_close(&file);
}

static void damaged_count_of_rows_is_taken_from_the_rows(void **state)
{
	const uint64_t wrong[] = {UINT64_MAX, 1ull << 50, 5};
	struct trace trace;
	struct trace_row rows[ROWS];

	open_trace(&trace, ROWS);
	write_rows(&trace, ROWS + 20);
	trace_close(&trace);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		struct trace_file file;

		spoil(offsetof(struct trace_header, claimed), &wrong[i], sizeof(wrong[i]));
		open_file(&file);
		assert_true(file.repaired);
		assert_int_equal(read_all(&file, rows, ROWS), ROWS);
		assert_int_equal(rows[ROWS - 1].bytes, ROWS + 19);
		trace_file_close(&file);
	}
}

static void damaged_texts_keep_the_rows_and_the_texts_in_front(void **state)
{
	const struct trace_text huge = {.bytes = UINT32_MAX, .kind = TRACE_TEXT_ROLE};
	struct trace trace;
	struct trace_file file;
	struct trace_row rows[ROWS];

	open_trace(&trace, ROWS);
	trace_text(&trace, TRACE_TEXT_ROLE, "first", 5);
	trace_text(&trace, TRACE_TEXT_ROLE, "second", 6);
	write_rows(&trace, 2);
	trace_close(&trace);
	spoil(TRACE_HEADER_BYTES + 16, &huge, sizeof(huge));
	open_file(&file);
	assert_true(file.texts_damaged);
	assert_string_equal(trace_file_text(&file, TRACE_TEXT_ROLE, 0), "first");
	assert_null(trace_file_text(&file, TRACE_TEXT_ROLE, 1));
	assert_int_equal(read_all(&file, rows, ROWS), 2);
	trace_file_close(&file);
}

static const char *numbered(const void *arg, enum trace_text_kind kind, uint32_t number)
{
	static const char *const names[] = {"weights", "kv_cache"};

	return kind == TRACE_TEXT_PHASE ? arg : names[number];
}

static void rows_of_two_policies_keep_their_names_apart(void **state)
{
	struct trace trace;
	struct trace_file file;

	open_trace(&trace, ROWS);
	assert_int_equal(trace_object(&trace, 0), TRACE_NO_TEXT);
	trace_policy(&trace, 2, 1, numbered, "decode");
	assert_int_equal(trace_object(&trace, 1), 1);
	assert_int_equal(trace_object(&trace, UINT32_MAX), TRACE_NO_TEXT);
	trace_set_phase(&trace, 0);
	trace_put_plain(&trace, TRACE_PHASE);
	trace_policy(&trace, 1, 1, numbered, "train");
	assert_int_equal(trace_object(&trace, 0), 3);
	assert_int_equal(trace_phase(&trace, 0), 4);
	open_file(&file);
	assert_string_equal(trace_file_text(&file, TRACE_TEXT_OBJECT, 1), "kv_cache");
	assert_string_equal(trace_file_text(&file, TRACE_TEXT_PHASE, 2), "decode");
	assert_string_equal(trace_file_text(&file, TRACE_TEXT_OBJECT, 3), "weights");
	assert_string_equal(trace_file_text(&file, TRACE_TEXT_PHASE, 4), "train");
	struct trace_row row;
	assert_int_equal(trace_file_read(&file, &row, 1), 1);
	assert_int_equal(row.phase, 2);
	trace_file_close(&file);
	trace_close(&trace);
}

static void texts_that_do_not_fit_are_counted(void **state)
{
	static char text[100000];
	struct trace trace;
	int fitted = 0;

	memset(text, 'x', sizeof(text));
	open_trace(&trace, ROWS);
	while (trace_text(&trace, TRACE_TEXT_SITE, text, sizeof(text)) != TRACE_NO_TEXT)
		fitted++;
	assert_int_equal(fitted, TRACE_TEXTS_BYTES / (sizeof(text) + 8));
	assert_int_equal(trace.header->texts_lost, 1);
	assert_int_not_equal(trace_text(&trace, TRACE_TEXT_SITE, text, 10), TRACE_NO_TEXT);
	trace_close(&trace);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(rows_come_back_as_they_were_written),
		CASE(ring_that_goes_round_keeps_the_newest_and_counts_the_lost),
		CASE(size_is_rounded_down_and_never_below_the_least),
		CASE(unfinished_and_mixed_rows_are_counted_and_left_out),
		CASE(follower_waits_for_a_row_that_is_being_written),
		CASE(killed_writer_leaves_a_trace_that_can_be_read),
		CASE(limit_of_file_sizes_turns_tracing_off_with_the_remedy_and_no_signal),
		CASE(missing_folder_says_what_to_do),
		CASE(child_forked_in_the_middle_of_texts_goes_on_and_leaves_the_file_alone),
		CASE(forked_child_writes_nothing_into_the_parents_file),
		CASE(foreign_newer_and_damaged_headers_are_refused_with_the_reason),
		CASE(file_cut_short_gives_the_rows_that_are_left),
		CASE(damaged_count_of_rows_is_taken_from_the_rows),
		CASE(damaged_texts_keep_the_rows_and_the_texts_in_front),
		CASE(rows_of_two_policies_keep_their_names_apart),
		CASE(texts_that_do_not_fit_are_counted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
