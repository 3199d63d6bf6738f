/* lifecycle/callers/python_names.c
 * From code objects to texts. Three reads for each 24 of them: what the code objects name, and of those strings as much
 * as most have; longer ones are read on in pieces. Strings are what PEP 393 says, in their compact forms; a str of a
 * class of its own may be of another form and is `?`. */
#include <string.h>

#include "lifecycle/callers/foreign.h"
#include "lifecycle/callers/python_priv.h"
#include "lifecycle/callers/texts.h"

enum {
	BATCH = 24,
	STRING_BYTES = 200, /* of a string, read at first: head and all of what most hold */
	PAGE = 4096,	    /* the smallest there is */
	FILE_BYTES_MAX = 4096,
	FUNCTION_BYTES_MAX = 1023, /* longer ones are cut */
	STRING_LENGTH_MAX = 1 << 20,
};

/* Fields of a code object, read in one piece. */
struct code {
	uint64_t type, file, name;
};

struct string {
	uint64_t address;
	uint32_t offset, size; /* of what was read of it, in the batch's bytes */
};

struct batch {
	struct string strings[2 * BATCH];
	size_t count;
	char bytes[2 * BATCH * STRING_BYTES];
};

struct writer {
	char text[FILE_BYTES_MAX + 1 + FUNCTION_BYTES_MAX];
	size_t length, limit; /* @limit: no longer than this */
};

/* Is @type the type called @name? *@learnt is the one that was last; another may come when a library is loaded again.
 */
static bool is_type(const struct python_layout *layout, uint64_t type, const char *name, uint64_t *learnt)
{
	const size_t length = strlen(name) + 1;
	uint64_t address;
	char read[8];

	if (type == __atomic_load_n(learnt, __ATOMIC_RELAXED))
		return true;
	if (!foreign_read(&address, type + layout->type_name, 8) || !foreign_read(read, address, length) ||
		memcmp(read, name, length) != 0)
		return false;
	__atomic_store_n(learnt, type, __ATOMIC_RELAXED);
	return true;
}

static void put(struct writer *writer, const char *bytes, size_t count)
{
	if (count > writer->limit - writer->length) {
		writer->limit = writer->length; /* nothing behind what was left out */
		return;
	}
	memcpy(writer->text + writer->length, bytes, count);
	writer->length += count;
}

static void put_point(struct writer *writer, uint32_t point)
{
	char bytes[4];

	/* half a surrogate pair (a byte of a file name that is no UTF-8), beyond Unicode, or NUL */
	if ((point >= 0xd800 && point < 0xe000) || point > 0x10ffff || point == 0)
		point = 0xfffd;
	if (point < 0x80) {
		bytes[0] = (char)point;
		put(writer, bytes, 1);
	} else if (point < 0x800) {
		bytes[0] = (char)(0xc0 | point >> 6);
		bytes[1] = (char)(0x80 | (point & 0x3f));
		put(writer, bytes, 2);
	} else if (point < 0x10000) {
		bytes[0] = (char)(0xe0 | point >> 12);
		bytes[1] = (char)(0x80 | (point >> 6 & 0x3f));
		bytes[2] = (char)(0x80 | (point & 0x3f));
		put(writer, bytes, 3);
	} else {
		bytes[0] = (char)(0xf0 | point >> 18);
		bytes[1] = (char)(0x80 | (point >> 12 & 0x3f));
		bytes[2] = (char)(0x80 | (point >> 6 & 0x3f));
		bytes[3] = (char)(0x80 | (point & 0x3f));
		put(writer, bytes, 4);
	}
}

/* @size bytes of characters of @kind bytes each. */
static void put_units(struct writer *writer, const char *bytes, size_t size, uint32_t kind)
{
	if (kind == 1) {
		size_t plain = 0;

		/* char has no sign on aarch64 */
		while (plain < size && (signed char)bytes[plain] > 0)
			plain++;
		if (plain == size && size <= writer->limit - writer->length) {
			put(writer, bytes, size);
			return;
		}
	}
	for (size_t at = 0; at + kind <= size; at += kind) {
		uint32_t point = 0;
		uint16_t two;

		if (kind == 1) {
			point = (unsigned char)bytes[at];
		} else if (kind == 2) {
			memcpy(&two, bytes + at, 2);
			point = two;
		} else {
			memcpy(&point, bytes + at, 4);
		}
		put_point(writer, point);
	}
}

static bool put_string(
	struct writer *writer, struct python_runtime *runtime, const struct batch *batch, const struct string *string)
{
	const struct python_layout *layout = &runtime->layout;
	const char *head = batch->bytes + string->offset;
	uint64_t type, length, at, end;
	uint32_t state, kind, head_bytes = layout->str_ascii_bytes;
	char more[256];

	if (string->size < layout->str_ascii_bytes)
		return false;
	memcpy(&type, head + layout->object_type, 8);
	memcpy(&length, head + layout->str_length, 8);
	memcpy(&state, head + layout->str_state, 4);
	kind = state >> layout->kind_bit & 7;
	if (!is_type(layout, type, "str", &runtime->str_type) || !(state >> layout->compact_bit & 1)) {
		put(writer, "?", 1);
		return true;
	}
	if (!(state >> layout->ascii_bit & 1))
		head_bytes += layout->wide_more_bytes;
	if ((kind != 1 && kind != 2 && kind != 4) || length > STRING_LENGTH_MAX)
		return false;
	end = head_bytes + length * kind;
	at = string->size < end ? string->size : end;
	if (at > head_bytes) {
		at -= (at - head_bytes) % kind;
		put_units(writer, head + head_bytes, at - head_bytes, kind);
	} else {
		at = head_bytes;
	}
	while (at < end && writer->length < writer->limit) {
		size_t size = end - at < sizeof(more) ? end - at : sizeof(more);

		if (!foreign_read(more, string->address + at, size))
			return false;
		put_units(writer, more, size, kind);
		at += size;
	}
	return true;
}

static size_t string_of(struct batch *batch, uint64_t address)
{
	for (size_t i = 0; i < batch->count; i++) {
		if (batch->strings[i].address == address)
			return i;
	}
	batch->strings[batch->count].address = address;
	return batch->count++;
}

static bool read_strings(const struct python_layout *layout, struct batch *batch)
{
	struct iovec pieces[2 * BATCH];
	size_t total = 0;

	for (size_t i = 0; i < batch->count; i++) {
		struct string *string = &batch->strings[i];
		size_t to_page_end = PAGE - string->address % PAGE;

		/* what is behind a string that ends with its page may not be there; its head always is */
		string->size =
			(uint32_t)(to_page_end >= layout->str_ascii_bytes && to_page_end < STRING_BYTES ? to_page_end
													: STRING_BYTES);
		string->offset = (uint32_t)total;
		total += string->size;
		pieces[i] = foreign_piece(string->address, string->size);
	}
	return foreign_gather(batch->bytes, pieces, batch->count) == total;
}

static bool read_codes(const struct python_layout *layout, const uint64_t *codes, size_t count, struct code *ret)
{
	struct iovec pieces[BATCH];
	char bytes[BATCH * PYTHON_CODE_BYTES_MAX];
	uint32_t size, low = python_layout_code(layout, &size);

	for (size_t i = 0; i < count; i++)
		pieces[i] = foreign_piece(codes[i] + low, size);
	if (foreign_gather(bytes, pieces, count) != count * size)
		return false;
	for (size_t i = 0; i < count; i++) {
		const char *code = bytes + i * size;

		memcpy(&ret[i].type, code + (layout->object_type - low), 8);
		memcpy(&ret[i].file, code + (layout->code_file - low), 8);
		memcpy(&ret[i].name, code + (layout->code_name - low), 8);
	}
	return true;
}

static bool batch_texts(
	struct python_runtime *runtime, const uint64_t *codes, size_t count, const char **ret_texts, size_t *added)
{
	const struct python_layout *layout = &runtime->layout;
	struct code read[BATCH];
	struct batch batch;
	struct writer writer;

	if (!read_codes(layout, codes, count, read))
		return false;
	batch.count = 0;
	for (size_t i = 0; i < count; i++) {
		if (!is_type(layout, read[i].type, "code", &runtime->code_type))
			return false;
		string_of(&batch, read[i].file);
		string_of(&batch, read[i].name);
	}
	if (!read_strings(layout, &batch))
		return false;
	for (size_t i = 0; i < count; i++) {
		/* the interpreter's own shims (`__init__` called from a specialised call) name themselves as their file
		 */
		if (read[i].file == read[i].name)
			continue;
		writer.length = 0;
		writer.limit = FILE_BYTES_MAX;
		if (!put_string(&writer, runtime, &batch, &batch.strings[string_of(&batch, read[i].file)]))
			return false;
		writer.text[writer.length++] = ':';
		writer.limit = writer.length + FUNCTION_BYTES_MAX;
		if (!put_string(&writer, runtime, &batch, &batch.strings[string_of(&batch, read[i].name)]))
			return false;
		ret_texts[*added] = texts_intern(writer.text, writer.length);
		*added += ret_texts[*added] != NULL;
	}
	return true;
}

bool python_texts(
	struct python_runtime *runtime, const uint64_t *codes, size_t count, const char **ret_texts, size_t *ret_count)
{
	size_t added = 0;

	for (size_t first = 0; first < count; first += BATCH) {
		if (!batch_texts(
			    runtime, codes + first, count - first < BATCH ? count - first : BATCH, ret_texts, &added))
			return false;
	}
	*ret_count = added;
	return true;
}
