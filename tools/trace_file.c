/* tools/trace_file.c
 * Every number of the file is held against its size before it is used. */
#include "tools/trace_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/list.h"
#include "base/text.h"

enum { PATH_SHOWN = 120, TAIL_ROWS = 4096 };

static const struct {
	const char *name;
} events[TRACE_EVENT_COUNT] = {
#define EVENT(NAME, text, writer, object, allocation, extra) {text},
#include "lifecycle/trace.def"
};

const char *trace_event_name(unsigned event)
{
	return event < TRACE_EVENT_COUNT ? events[event].name : "?";
}

static bool is_name(const char *given, const char *name)
{
	for (; *given && *name; given++, name++)
		if (*given != *name && !(*name == ' ' && (*given == '-' || *given == '_')))
			return false;
	return !*given && !*name;
}

enum trace_event trace_event_by_name(const char *name)
{
	unsigned event = 0;

	while (event < TRACE_EVENT_COUNT && !is_name(name, events[event].name))
		event++;
	return (enum trace_event)event;
}

/* Up to @bytes, fewer at the end of the file. */
static size_t read_at(int fd, void *to, size_t bytes, uint64_t offset)
{
	size_t used = 0;
	ssize_t got = 0;

	if (offset > INT64_MAX - bytes)
		return 0;
	while (used < bytes && (got = pread(fd, (char *)to + used, bytes - used, (off_t)(offset + used))) > 0)
		used += (size_t)got;
	return used;
}

static bool is_sound(const struct trace_header *header)
{
	const uint64_t far = 1ull << 46; /* keeps sums and products from going round */

	return header->row_bytes == sizeof(struct trace_row) && header->rows_count >= TRACE_ROWS_LEAST &&
	       header->rows_count <= far / sizeof(struct trace_row) && !(header->rows_count & (header->rows_count - 1)) &&
	       header->rows_offset <= far && header->texts_offset <= far && header->texts_bytes <= UINT32_MAX &&
	       header->texts_offset >= sizeof(*header) && header->rows_offset >= header->texts_offset + header->texts_bytes &&
	       (header->writer == TRACE_WRITER_PROCESS || header->writer == TRACE_WRITER_COORDINATOR);
}

static void make_texts_printable(struct trace_header *header)
{
	header->role[sizeof(header->role) - 1] = header->command[sizeof(header->command) - 1] =
		header->sublet_version[sizeof(header->sublet_version) - 1] = '\0';
	text_make_printable(header->role);
	text_make_printable(header->command);
	text_make_printable(header->sublet_version);
}

static enum sublet_err read_header(int fd, const char *path, struct trace_header *ret, struct errinfo *reterr)
{
	struct trace_header header = {0};
	const size_t got = read_at(fd, &header, sizeof(header), 0);

	if (got < offsetof(struct trace_header, row_bytes) || header.magic != TRACE_MAGIC)
		return errinfo_set(reterr, SUBLET_ERR_INVALID, 0, "'%.*s' is no trace file of Sublet%s", PATH_SHOWN, path,
			got >= sizeof(header) && !header.magic ? ", or its process was killed as it made it" : "");
	if (header.version != TRACE_VERSION)
		return errinfo_set(reterr, SUBLET_ERR_UNSUPPORTED, 0,
			"'%.*s' is of trace version %u and this sublet reads %u: use the sublet that wrote it", PATH_SHOWN, path,
			header.version, TRACE_VERSION);
	if (got < sizeof(header) || !is_sound(&header))
		return errinfo_set(reterr, SUBLET_ERR_INVALID, 0, "the header of '%.*s' is damaged%s", PATH_SHOWN, path,
			got < sizeof(header) ? ": the file is cut short" : "");
	make_texts_printable(&header);
	*ret = header;
	return SUBLET_OK;
}

/* ---- texts ---- */

static char *copy_text(const char *bytes, uint32_t count, uint32_t kind)
{
	char *text = malloc((size_t)count + 1);

	if (!text)
		return NULL;
	for (uint32_t i = 0; i < count; i++)
		text[i] = kind == TRACE_TEXT_SITE && bytes[i] == '\n' ? '\n' : bytes[i] && bytes[i] != '\n' ? bytes[i] : '?';
	text[count] = '\0';
	if (kind != TRACE_TEXT_SITE)
		return text_make_printable(text);
	for (char *line = text, *end; *line; line = *end ? end + 1 : end) {
		char kept;

		end = line + strcspn(line, "\n");
		kept = *end;
		*end = '\0';
		text_make_printable(line);
		*end = kept;
	}
	return text;
}

static bool add_text(struct trace_file *file, const char *bytes, uint32_t count, uint32_t kind)
{
	char *text = copy_text(bytes, count, kind);

	if (!text || !list_room(&file->texts, file->texts_count, &file->texts_room, sizeof(*file->texts))) {
		free(text);
		return false;
	}
	file->texts[file->texts_count++] = (struct trace_file_text){text, kind};
	return true;
}

static void read_texts(struct trace_file *file)
{
	const struct trace_header *header = &file->header;
	uint64_t used = header->texts_used, wanted, at = 0;
	char *bytes;

	if (file->texts_damaged)
		return;
	if (used > header->texts_bytes) {
		file->texts_damaged = true;
		used = header->texts_bytes;
	}
	if (used <= file->texts_read)
		return;
	wanted = used - file->texts_read;
	bytes = malloc(wanted);
	if (!bytes)
		return;
	if (read_at(file->fd, bytes, wanted, header->texts_offset + file->texts_read) != wanted)
		file->texts_damaged = true;
	while (!file->texts_damaged && at < wanted) {
		struct trace_text head;
		uint64_t room;

		if (wanted - at < sizeof(head)) {
			file->texts_damaged = true;
			break;
		}
		memcpy(&head, bytes + at, sizeof(head));
		room = (sizeof(head) + (uint64_t)head.bytes + 7) & ~7ull;
		if (room > wanted - at || !add_text(file, bytes + at + sizeof(head), head.bytes, head.kind)) {
			file->texts_damaged = true;
			break;
		}
		at += room;
	}
	file->texts_read += at;
	free(bytes);
}

const char *trace_file_text(const struct trace_file *file, enum trace_text_kind kind, uint32_t number)
{
	return number < file->texts_count && file->texts[number].kind == (uint32_t)kind ? file->texts[number].text : NULL;
}

/* ---- rows ---- */

/* Is it a row, whichever: in its place, whole, of a known event? */
static bool is_whole(const struct trace_row *row)
{
	return row->sequence && row->event < TRACE_EVENT_COUNT && 
	       trace_check(row, row->sequence, row->time_ns, row->event, row->phase, row->thread) == row->check;
}

static uint64_t oldest_row(const struct trace_header *header)
{
	return header->claimed > header->rows_count ? header->claimed - header->rows_count : 0;
}

/* @count rows from slot @slot on, not across the end of the ring. Rows that are read. */
static size_t read_slots(const struct trace_file *file, uint64_t slot, struct trace_row *rows, size_t count)
{
	return read_at(file->fd, rows, count * sizeof(*rows), file->header.rows_offset + slot * sizeof(*rows)) / sizeof(*rows);
}

/* Is the newest of the rows where the header says? Else the header's count was damaged: the largest number in the ring is it. */
static void check_claimed(struct trace_file *file)
{
	const uint64_t rows_count = file->header.rows_count;
	struct trace_row *rows = malloc(TAIL_ROWS * sizeof(*rows));
	uint64_t largest = 0;

	if (!rows)
		return;
	for (uint64_t slot = 0; slot < rows_count;) {
		const uint64_t left = rows_count - slot;
		const size_t got = read_slots(file, slot, rows, left < TAIL_ROWS ? left : TAIL_ROWS);

		for (size_t i = 0; i < got; i++)
			if (is_whole(&rows[i]) && ((rows[i].sequence - 1) & (rows_count - 1)) == slot + i && rows[i].sequence > largest)
				largest = rows[i].sequence;
		if (!got)
			break;
		slot += got;
	}
	free(rows);
	/* as many as there are threads may be under way, and none in a whole round */
	if (largest && (file->header.claimed < largest || file->header.claimed - largest >= rows_count)) {
		file->repaired = true;
		file->header.claimed = largest;
	}
}

static bool newest_is_there(const struct trace_file *file)
{
	const struct trace_header *header = &file->header;

	for (uint64_t back = 1; back <= TRACE_ROWS_LEAST && back <= header->claimed; back++) {
		struct trace_row row;
		const uint64_t number = header->claimed - back;

		if (read_slots(file, number & (header->rows_count - 1), &row, 1) == 1 && is_whole(&row) && row.sequence == number + 1)
			return true;
	}
	return false;
}

size_t trace_file_read(struct trace_file *file, struct trace_row *rows, size_t room)
{
	const struct trace_header *header = &file->header;
	size_t kept = 0;

	while (kept == 0 && file->next < header->claimed) {
		const uint64_t slot = file->next & (header->rows_count - 1);
		uint64_t left = header->claimed - file->next;
		size_t got;

		if (left > header->rows_count - slot)
			left = header->rows_count - slot;
		got = read_slots(file, slot, rows, left < room ? left : room);
		if (!got) {
			/* the file ends here, whatever the header says: so it does for all up to the end of the ring */
			file->missing_rows += left;
			file->next += left;
			continue;
		}
		for (size_t i = 0; i < got; i++) {
			const uint64_t sequence = rows[i].sequence;

			/* its thread is about to fill it */
			if (file->follows && !header->ended && sequence <= file->next + i && header->claimed - (file->next + i) <= TRACE_ROWS_LEAST) {
				file->next += i;
				return kept;
			}
			/* whose place a later one has */
			if (sequence > file->next + i + 1 && is_whole(&rows[i]))
				file->lost_rows++;
			else if (sequence != file->next + i + 1 || !is_whole(&rows[i]))
				file->torn_rows++;
			else
				rows[kept++] = rows[i];
		}
		file->next += got;
	}
	return kept;
}

/* ---- the file ---- */

static void find_beginning(struct trace_file *file)
{
	if (!newest_is_there(file))
		check_claimed(file);
	if (file->next < oldest_row(&file->header)) {
		file->lost_rows += oldest_row(&file->header) - file->next;
		file->next = oldest_row(&file->header);
	}
}

enum sublet_err trace_file_open(struct trace_file *file, const char *path, struct errinfo *reterr)
{
	/* a FIFO of that name would keep us waiting */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat status;
	enum sublet_err err;

	memset(file, 0, sizeof(*file));
	file->fd = -1;
	if (fd < 0)
		return errinfo_set(reterr, SUBLET_ERR_SYSTEM, 0, "'%.*s': %s", PATH_SHOWN, path, text_of_errno(errno));
	if (fstat(fd, &status) || !S_ISREG(status.st_mode))
		err = errinfo_set(reterr, SUBLET_ERR_INVALID, 0, "'%.*s' is no file", PATH_SHOWN, path);
	else
		err = read_header(fd, path, &file->header, reterr);
	if (!err && !(file->path = strdup(path)))
		err = errinfo_set(reterr, SUBLET_ERR_SYSTEM, 0, "no memory");
	if (err) {
		close(fd);
		return err;
	}
	file->fd = fd;
	read_texts(file);
	find_beginning(file);
	return SUBLET_OK;
}

bool trace_file_refresh(struct trace_file *file)
{
	struct trace_header header;

	if (read_header(file->fd, file->path, &header, NULL) || header.begun_ns != file->header.begun_ns ||
		header.pid != file->header.pid || header.rows_count != file->header.rows_count ||
		header.rows_offset != file->header.rows_offset || header.texts_offset != file->header.texts_offset ||
		header.claimed < file->header.claimed)
		return false;
	file->header = header;
	read_texts(file);
	find_beginning(file);
	return true;
}

void trace_file_close(struct trace_file *file)
{
	for (uint32_t i = 0; i < file->texts_count; i++)
		free(file->texts[i].text);
	free(file->texts);
	free(file->path);
	if (file->fd >= 0)
		close(file->fd);
	memset(file, 0, sizeof(*file));
	file->fd = -1;
}
