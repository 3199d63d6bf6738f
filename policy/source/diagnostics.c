/* policy/source/diagnostics.c
 * Texts are made safe when they are added: whatever a file holds, one line stays one line and a terminal is not written
 * to by it. */
#include "policy/source/diagnostics.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/words.h"

enum {
	LINE_MAX_SHOWN = 160, /* characters of a source line; the part around the place when it is longer */
	WORDS_LISTED = 20,
};

static const struct {
	const char *word;
	bool is_error;
} kinds[MESSAGE_COUNT] = {
#define ERROR(name, word, sentence) {word, true},
#define WARNING(name, word, sentence) {word, false},
#include "policy/source/messages.def"
};

bool message_is_error(enum message message)
{
	return kinds[message].is_error;
}

const char *message_word(enum message message)
{
	return kinds[message].word;
}

static const char *safe_text(struct arena *arena, const char *format, va_list args)
{
	char line[640];
	size_t left, out = 0;
	int length = vsnprintf(line, sizeof(line), format, args);

	if (length < 0)
		return "";
	left = strlen(line);
	for (size_t i = 0; left;) {
		size_t bytes = utf8_length(line + i, left);

		if (!bytes || utf8_is_control(line + i)) { /* no UTF-8, or cut by the buffer */
			if (!bytes)
				bytes = 1;
			line[out++] = '?';
		} else {
			memmove(line + out, line + i, bytes);
			out += bytes;
		}
		i += bytes;
		left -= bytes;
	}
	return arena_copy(arena, line, out);
}

void complain(struct diagnostics *diagnostics, enum message message, struct where where, const char *format, ...)
{
	struct diagnostic *new;
	va_list args;

	if (message_is_error(message))
		diagnostics->errors++;
	else
		diagnostics->warnings++;
	if (!arena_room(diagnostics->arena, &diagnostics->list, diagnostics->count, sizeof(*diagnostics->list)))
		return;
	new = &diagnostics->list[diagnostics->count];
	*new = (struct diagnostic){.message = message, .where = where, .order = diagnostics->count};
	va_start(args, format);
	new->text = safe_text(diagnostics->arena, format, args);
	va_end(args);
	if (new->text)
		diagnostics->count++;
}

void remark(struct diagnostics *diagnostics, struct where where, const char *format, ...)
{
	struct diagnostic *last;
	struct diagnostic_note *note, **end;
	va_list args;

	if (!diagnostics->count || !(note = arena_new(diagnostics->arena, 1, sizeof(*note))))
		return;
	va_start(args, format);
	note->text = safe_text(diagnostics->arena, format, args);
	va_end(args);
	note->where = where;
	last = &diagnostics->list[diagnostics->count - 1];
	for (end = &last->notes; *end; end = &(*end)->next)
		;
	if (note->text)
		*end = note;
}

/* A copied word may hold characters that nobody sees. */
static const char *without_unseen(struct arena *arena, const char *text)
{
	size_t left = strlen(text), kept = 0, length;
	char *copy = arena_copy(arena, text, left);

	for (; copy && left; text += length, left -= length) {
		length = utf8_length(text, left);
		if (!length || utf8_is_control(text)) {
			length = length ? length : 1;
			continue;
		}
		memcpy(copy + kept, text, length);
		kept += length;
	}
	if (copy)
		copy[kept] = '\0';
	return copy ? copy : text;
}

void suggest(struct diagnostics *diagnostics, const char *given, const char *const *words)
{
	const char *near = nearest_word(without_unseen(diagnostics->arena, given), words);
	const char *listed[WORDS_LISTED];
	char list[512];
	size_t used = 0, count = 0, more_words;

	if (near) {
		remark(diagnostics, NOWHERE, "did you mean '%s'?", near);
		return;
	}
	for (; *words; words++) {
		if (!**words)
			continue; /* keeps a number in its list, and has no name */
		if (count < WORDS_LISTED)
			listed[count] = *words;
		count++;
	}
	more_words = count > WORDS_LISTED ? count - WORDS_LISTED : 0;
	count -= more_words;
	if (!count)
		return;
	for (size_t i = 0; i < count; i++) {
		int more = snprintf(list + used, sizeof(list) - used, "%s'%s'",
			i == 0				? ""
			: i + 1 == count && !more_words ? " and "
							: ", ",
			listed[i]);

		if (more < 0 || (size_t)more >= sizeof(list) - used) { /* long names: those that fit */
			list[used] = '\0';
			more_words += count - i;
			break;
		}
		used += (size_t)more;
	}
	if (more_words)
		remark(diagnostics, NOWHERE, "there are %s and %zu more", list, more_words);
	else
		remark(diagnostics, NOWHERE, count == 1 ? "there is %s" : "there are %s", list);
}

static int by_place(const void *a, const void *b)
{
	const struct diagnostic *x = a, *y = b;

	if (x->where.line != y->where.line)
		return x->where.line < y->where.line ? -1 : 1;
	if (x->where.column != y->where.column)
		return x->where.column < y->where.column ? -1 : 1;
	return x->order < y->order ? -1 : x->order > y->order;
}

void diagnostics_sort(struct diagnostics *diagnostics)
{
	if (diagnostics->count > 1)
		qsort(diagnostics->list, diagnostics->count, sizeof(*diagnostics->list), by_place);
}

/* --- for people --------------------------------------------------------------------------------------------------- */

struct line {
	const char *bytes;
	size_t length;
};

/* The @number-th line (from 1) of @source, searched from @cursor on when that is not behind it. */
struct line_cursor {
	const char *source;
	size_t bytes, at;
	uint32_t line; /* that starts at @at */
};

static struct line find_line(struct line_cursor *cursor, uint32_t number)
{
	size_t length, after;

	if (number < cursor->line) {
		cursor->at = 0;
		cursor->line = 1;
	}
	while (cursor->line < number && cursor->at < cursor->bytes) {
		line_length(cursor->source + cursor->at, cursor->bytes - cursor->at, &after);
		cursor->at += after;
		cursor->line++;
	}
	length = line_length(cursor->source + cursor->at, cursor->bytes - cursor->at, &after);
	return (struct line){cursor->source + cursor->at, length};
}

/* The source line and the carets below. Characters that a terminal would obey are shown as '?'. */
static void print_line(struct line line, struct where where, struct output *to)
{
	struct output carets = {0};
	uint32_t column = 1, from = 1;

	if (where.column > LINE_MAX_SHOWN - 40)
		from = where.column - 40;
	output_add(to, "  ");
	output_add(&carets, "  ");
	for (size_t i = 0; i < line.length; column++) {
		size_t bytes = utf8_length(line.bytes + i, line.length - i);
		unsigned char c = (unsigned char)line.bytes[i];

		if (column >= from && column < from + LINE_MAX_SHOWN && c != '\r') {
			bool is_tab = c == '\t';

			if (!bytes || (utf8_is_control(line.bytes + i) && !is_tab))
				output_add_bytes(to, "?", 1);
			else
				output_add_bytes(to, line.bytes + i, bytes);
			if (column < where.column)
				output_add_bytes(&carets, is_tab ? "\t" : " ", 1);
			else if (column < where.column + where.length)
				output_add_bytes(&carets, "^", 1);
		}
		i += bytes ? bytes : 1;
	}
	if (column <= where.column) { /* behind the line's end: something is missing there */
		for (; column < where.column && column < from + LINE_MAX_SHOWN; column++)
			output_add_bytes(&carets, " ", 1);
		output_add_bytes(&carets, "^", 1);
	}
	output_add(to, "\n%s\n", output_get(&carets));
	output_release(&carets);
}

static void print_place(const char *file, struct where where, struct output *to)
{
	if (where.line)
		output_add(to, "%s:%u:%u: ", file, where.line, where.column);
	else
		output_add(to, "%s: ", file);
}

void diagnostics_print(const struct diagnostics *diagnostics, const char *file, const char *source, size_t source_bytes,
	struct output *to)
{
	struct line_cursor cursor = {source, source_bytes, 0, 1}, elsewhere = cursor;

	for (size_t i = 0; i < diagnostics->count; i++) {
		const struct diagnostic *d = &diagnostics->list[i];

		print_place(file, d->where, to);
		output_add(to, "%s: %s\n", message_is_error(d->message) ? "error" : "warning", d->text);
		if (d->where.line && source)
			print_line(find_line(&cursor, d->where.line), d->where, to);
		for (const struct diagnostic_note *note = d->notes; note; note = note->next) {
			if (note->where.line)
				print_place(file, note->where, to);
			output_add(to, "note: %s\n", note->text);
			if (note->where.line && source)
				print_line(find_line(&elsewhere, note->where.line), note->where, to);
		}
	}
}
