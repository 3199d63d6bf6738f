/* lifecycle/trace.c
 * A row is claimed by one addition, made invalid, filled, and made valid by its number, in that order for everybody who sees the
 * memory. A kill stops a thread between two of these steps and takes none back, so a torn row is an invalid one. */
#include "lifecycle/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file_room.h"
#include "base/process.h"
#include "base/text.h"

#define NS_PER_SECOND 1000000000ll

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

enum { PATH_BYTES = 4096, PATH_SHOWN = 120 };

/* ---- the file ---- */

static int64_t realtime_offset_ns(void)
{
	struct timespec real;
	uint64_t before = clock_now_ns(), after;

	clock_gettime(CLOCK_REALTIME, &real);
	after = clock_now_ns();
	return (int64_t)real.tv_sec * NS_PER_SECOND + real.tv_nsec - (int64_t)(before + (after - before) / 2);
}

static void read_small_file(const char *path, char *text, size_t room)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t got = fd < 0 ? 0 : read(fd, text, room - 1);

	if (fd >= 0)
		close(fd);
	if (got < 0)
		got = 0;
	while (got > 0 && (text[got - 1] == '\0' || text[got - 1] == '\n'))
		got--;
	for (ssize_t i = 0; i < got; i++)
		if (!text[i])
			text[i] = ' ';
	text[got] = '\0';
}

/* The boot that the clock counts from. */
static uint64_t host_id(void)
{
	char text[64];
	uint64_t id = 0xcbf29ce484222325ull;

	read_small_file("/proc/sys/kernel/random/boot_id", text, sizeof(text));
	for (const char *c = text; *c; c++)
		id = (id ^ (unsigned char)*c) * 0x100000001b3ull;
	return id;
}

static void fill_header(struct trace_header *header, const struct trace_config *config, uint64_t rows_count)
{
	header->version = TRACE_VERSION;
	header->row_bytes = sizeof(struct trace_row);
	header->writer = config->writer;
	header->pid = (int32_t)getpid();
	header->start_ticks = process_start_ticks(header->pid, NULL);
	header->texts_offset = TRACE_HEADER_BYTES;
	header->texts_bytes = TRACE_TEXTS_BYTES;
	header->rows_offset = TRACE_HEADER_BYTES + TRACE_TEXTS_BYTES;
	header->rows_count = rows_count;
	header->realtime_ns = realtime_offset_ns();
	header->begun_ns = clock_now_ns();
	header->host_id = host_id();
	for (size_t i = 0; config->role && config->role[i] && i < sizeof(header->role) - 1; i++)
		header->role[i] = config->role[i];
	memcpy(header->sublet_version, SUBLET_VERSION, sizeof(SUBLET_VERSION));
	read_small_file("/proc/self/cmdline", header->command, sizeof(header->command));
	text_make_printable(header->command);
	/* Last: a reader that sees the magic sees a whole header. */
	__atomic_store_n(&header->magic, TRACE_MAGIC, __ATOMIC_RELEASE);
}

static uint64_t ring_rows(uint64_t ring_bytes)
{
	const uint64_t wanted = (ring_bytes ? ring_bytes : TRACE_RING_BYTES) / sizeof(struct trace_row);
	uint64_t rows = TRACE_ROWS_LEAST;

	while (rows <= wanted / 2)
		rows *= 2;
	return rows;
}

/* A descriptor of a file of @bytes whose room is there, or -1 with errno set. */
static int make_file(const char *path, uint64_t bytes)
{
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0400), error;

	if (fd < 0)
		return -1;
	error = file_allocate(fd, bytes);
	if (!error)
		return fd;
	close(fd);
	unlink(path);
	errno = error;
	return -1;
}

static const char *remedy(int error)
{
	switch (error) {
	case ENOSPC: case EFBIG: case EDQUOT: case ENOMEM:
		return "make SUBLET_TRACE_SIZE smaller, or name a folder with more room";
	case ENOENT: case ENOTDIR:
		return "make the folder, or start with 'sublet run --trace'";
	default:
		return "name a folder that this process may write to";
	}
}

/* NULL: nothing is traced. Looked at once in each call, which then goes on with what it found: a signal handler in the middle of it may
 * fork, and the child's trace_forget leaves the memory where it is for this. */
static struct trace_header *header_of(const struct trace *trace)
{
	return __atomic_load_n(&trace->header, __ATOMIC_ACQUIRE);
}

enum sublet_err trace_open(struct trace *trace, const struct trace_config *config, struct errinfo *reterr)
{
	const uint64_t rows_count = ring_rows(config->ring_bytes);
	const uint64_t bytes = TRACE_HEADER_BYTES + TRACE_TEXTS_BYTES + rows_count * sizeof(struct trace_row);
	const uint64_t id = (clock_now_ns() + (uint64_t)realtime_offset_ns()) / 1000;
	char path[PATH_BYTES];
	void *mapped = MAP_FAILED;
	int fd = -1, error = ENAMETOOLONG;

	memset(trace, 0, sizeof(*trace));
	ranked_lock_init(&trace->lock, RANK_TRACE);
	trace->phase = trace->object_base = trace->phase_base = TRACE_NO_TEXT;
	if (!config->folder || !*config->folder)
		return SUBLET_OK;
	if ((size_t)snprintf(path, sizeof(path), "%s/%s-%d-%llu.trace", config->folder,
		    config->writer == TRACE_WRITER_COORDINATOR ? "coordinator" : "proc", (int)getpid(), (unsigned long long)id) <
		sizeof(path)) {
		fd = make_file(path, bytes);
		error = errno;
	}
	if (fd >= 0) {
		mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		error = errno;
		close(fd);
		if (mapped == MAP_FAILED)
			unlink(path);
	}
	if (mapped == MAP_FAILED)
		return errinfo_set(reterr, SUBLET_ERR_SYSTEM, 0, "%s in trace folder '%.*s'; %s", text_of_errno(error), PATH_SHOWN,
			config->folder, remedy(error));
	/* here and not in an event; MAP_POPULATE makes pages of a shared file readable only. Before Linux 5.14 each page's first event does it. */
	madvise(mapped, bytes, MADV_POPULATE_WRITE);
	fill_header(mapped, config, rows_count);
	trace->mapped_bytes = bytes;
	trace->texts = (char *)mapped + TRACE_HEADER_BYTES;
	trace->rows = (struct trace_row *)((char *)mapped + TRACE_HEADER_BYTES + TRACE_TEXTS_BYTES);
	trace->mask = rows_count - 1;
	__atomic_store_n(&trace->header, (struct trace_header *)mapped, __ATOMIC_RELEASE);
	return SUBLET_OK;
}

void trace_end(struct trace *trace)
{
	struct trace_header *header = header_of(trace);

	if (header)
		__atomic_store_n(&header->ended, 1, __ATOMIC_RELEASE);
}

void trace_close(struct trace *trace)
{
	struct trace_header *header = trace->header;

	__atomic_store_n(&trace->header, NULL, __ATOMIC_RELEASE);
	if (header)
		munmap(header, trace->mapped_bytes);
	ranked_lock_release(&trace->lock);
	memset(trace, 0, sizeof(*trace));
}

void trace_forget(struct trace *trace)
{
	struct trace_header *header = trace->header;

	__atomic_store_n(&trace->header, NULL, __ATOMIC_RELEASE);
	/* In place: a wrapper that a signal interrupted before it forked still has the pointer. Where even that is refused, the wrapper's
	 * one row of the child is in the parent's file. */
	if (header)
		mmap(header, trace->mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

/* ---- rows ---- */

/* Asked of the kernel once per thread. A forked child writes no rows, so it does not matter that it inherits this. */
static uint32_t own_thread(void)
{
	static SUBLET_TLS uint32_t thread;

	if (SUBLET_UNLIKELY(!thread))
		thread = (uint32_t)syscall(SYS_gettid);
	return thread;
}

void trace_put(struct trace *trace, enum trace_event event, const struct trace_row *row)
{
	struct trace_header *header = header_of(trace);
	struct trace_row *place;
	uint64_t number, time_ns;
	uint32_t phase, thread;

	if (!header)
		return;
	phase = row->phase == TRACE_NO_TEXT ? __atomic_load_n(&trace->phase, __ATOMIC_RELAXED) : row->phase;
	thread = own_thread();
	number = __atomic_fetch_add(&header->claimed, 1, __ATOMIC_RELAXED);
	place = &trace->rows[number & trace->mask];
	__atomic_store_n(&place->sequence, 0, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_RELEASE); /* invalid before anything else of it changes */
	time_ns = clock_now_ns();
	/* one by one: a copy of the whole would wait until the small stores that made @row can be read as large ones */
	place->time_ns = time_ns;
	place->bytes = row->bytes;
	place->allocation = row->allocation;
	place->duration_ns = row->duration_ns;
	place->object = row->object;
	place->phase = phase;
	place->thread = thread;
	place->extra = row->extra;
	place->device = row->device;
	place->event = (uint8_t)event;
	place->from = row->from;
	place->to = row->to;
	place->spare = 0;
	/* of what was meant: what is there may be a mixture already */
	place->check = trace_check(row, number + 1, time_ns, event, phase, thread);
	__atomic_store_n(&place->sequence, number + 1, __ATOMIC_RELEASE);
}

/* ---- texts ---- */

/* Caller holds the lock. */
static uint32_t append_text(struct trace *trace, struct trace_header *header, enum trace_text_kind kind, const char *text, uint32_t bytes)
{
	const struct trace_text head = {.bytes = bytes, .kind = kind};
	const uint64_t room = (sizeof(head) + (uint64_t)bytes + 7) & ~7ull;
	char *place;

	if (room > TRACE_TEXTS_BYTES - header->texts_used) {
		header->texts_lost++;
		return TRACE_NO_TEXT;
	}
	place = trace->texts + header->texts_used;
	memcpy(place, &head, sizeof(head));
	memcpy(place + sizeof(head), text, bytes);
	__atomic_store_n(&header->texts_used, header->texts_used + room, __ATOMIC_RELEASE);
	return header->texts_count++;
}

uint32_t trace_text(struct trace *trace, enum trace_text_kind kind, const char *text, uint32_t bytes)
{
	struct trace_header *header = header_of(trace);
	uint32_t number;

	if (!header)
		return TRACE_NO_TEXT;
	ranked_lock(&trace->lock);
	number = append_text(trace, header, kind, text, bytes);
	ranked_unlock(&trace->lock);
	return number;
}

/* The number of the first of @count, all in a row; TRACE_NO_TEXT when not all went in. Caller holds the lock. */
static uint32_t append_names(struct trace *trace, struct trace_header *header, enum trace_text_kind kind, uint32_t count,
	const char *(*name)(const void *arg, enum trace_text_kind kind, uint32_t number), const void *arg)
{
	uint32_t base = TRACE_NO_TEXT;

	for (uint32_t i = 0; i < count; i++) {
		const char *text = name(arg, kind, i);
		uint32_t number = append_text(trace, header, kind, text, (uint32_t)strlen(text));

		if (number == TRACE_NO_TEXT)
			return TRACE_NO_TEXT;
		if (i == 0)
			base = number;
	}
	return base;
}

void trace_policy(struct trace *trace, uint32_t objects, uint32_t phases,
	const char *(*name)(const void *arg, enum trace_text_kind kind, uint32_t number), const void *arg)
{
	struct trace_header *header = header_of(trace);
	uint32_t object_base, phase_base;

	if (!header)
		return;
	ranked_lock(&trace->lock);
	object_base = append_names(trace, header, TRACE_TEXT_OBJECT, objects, name, arg);
	phase_base = append_names(trace, header, TRACE_TEXT_PHASE, phases, name, arg);
	__atomic_store_n(&trace->object_base, object_base, __ATOMIC_RELAXED);
	__atomic_store_n(&trace->phase_base, phase_base, __ATOMIC_RELAXED);
	ranked_unlock(&trace->lock);
}

static uint32_t offset_by(const uint32_t *base, uint32_t number)
{
	const uint32_t first = __atomic_load_n(base, __ATOMIC_RELAXED);

	return number == UINT32_MAX || first == TRACE_NO_TEXT ? TRACE_NO_TEXT : first + number;
}

uint32_t trace_object(const struct trace *trace, uint32_t rule)
{
	return offset_by(&trace->object_base, rule);
}

uint32_t trace_phase(const struct trace *trace, uint32_t phase)
{
	return offset_by(&trace->phase_base, phase);
}

void trace_set_phase(struct trace *trace, uint32_t phase)
{
	__atomic_store_n(&trace->phase, trace_phase(trace, phase), __ATOMIC_RELAXED);
}
