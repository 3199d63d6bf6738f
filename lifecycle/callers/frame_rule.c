/* lifecycle/callers/frame_rule.c
 * Reads .eh_frame: the table for the entry (FDE), the entry for its common part (CIE), then runs the instructions of both up to the
 * address asked for. Everything comes through foreign.h, lengths are those of the entries, and every loop eats bytes of one. */
#include "lifecycle/callers/frame_rule.h"

#include <stddef.h>
#include <string.h>

#include "lifecycle/callers/foreign.h"
#include "lifecycle/callers/peek.h"

enum { ENTRY_BYTES_MAX = 1 << 20, REMEMBERED_MAX = 4, TABLE_NEAR = 256, TABLE_ENTRY_BYTES = 8 };

/* ---- bytes ---- */

struct reader {
	struct peek_window *window;
	uint64_t at, end;
	bool bad; /* read past the end, or memory that is not there, or something unknown; stays */
};

static void take(struct reader *reader, void *to, size_t bytes)
{
	if (reader->bad || reader->at > reader->end || bytes > reader->end - reader->at ||
		!peek_through(reader->window, reader->at, to, bytes)) {
		reader->bad = true;
		memset(to, 0, bytes);
		return;
	}
	reader->at += bytes;
}

#define TAKE(type, name)                                                                                               \
	static type name(struct reader *reader)                                                                        \
	{                                                                                                              \
		type value;                                                                                            \
                                                                                                                       \
		take(reader, &value, sizeof(value));                                                                   \
		return value;                                                                                          \
	}
TAKE(uint8_t, take_u8)
TAKE(uint16_t, take_u16)
TAKE(uint32_t, take_u32)
TAKE(uint64_t, take_u64)
#undef TAKE

static uint64_t take_uleb(struct reader *reader)
{
	uint64_t value = 0;

	for (unsigned shift = 0;; shift += 7) {
		uint8_t byte = take_u8(reader);

		if (shift < 64)
			value |= (uint64_t)(byte & 0x7f) << shift;
		if (!(byte & 0x80))
			return value;
	}
}

static int64_t take_sleb(struct reader *reader)
{
	uint64_t value = 0;
	unsigned shift = 0;
	uint8_t byte;

	do {
		byte = take_u8(reader);
		if (shift < 64)
			value |= (uint64_t)(byte & 0x7f) << shift;
		shift += 7;
	} while (byte & 0x80);
	if (shift < 64 && (byte & 0x40))
		value |= ~0ull << shift;
	return (int64_t)value;
}

/* LSB Core, 10.5.1: low half the format, high half what it is relative to. */
enum { ENCODED_OMITTED = 0xff, ENCODED_PCREL = 0x10, ENCODED_DATAREL = 0x30, ENCODED_TABLE = 0x3b /* datarel, sdata4 */ };

static uint64_t take_encoded(struct reader *reader, uint8_t encoding, uint64_t data_base)
{
	uint64_t from = reader->at, value = 0;

	if (encoding == ENCODED_OMITTED)
		return 0;
	switch (encoding & 0x0f) {
	case 0x00: /* an address */
	case 0x04: /* udata8 */
	case 0x0c: value = take_u64(reader); break;
	case 0x01: value = take_uleb(reader); break;
	case 0x02: value = take_u16(reader); break;
	case 0x03: value = take_u32(reader); break;
	case 0x09: value = (uint64_t)take_sleb(reader); break;
	case 0x0a: value = (uint64_t)(int16_t)take_u16(reader); break;
	case 0x0b: value = (uint64_t)(int32_t)take_u32(reader); break;
	default: reader->bad = true;
	}
	switch (encoding & 0xf0) {
	case 0: return value;
	case ENCODED_PCREL: return value + from;
	case ENCODED_DATAREL: return value + data_base;
	default: reader->bad = true; return 0; /* relative to text or function, or indirect: not in these tables */
	}
}

/* ---- the entry of an address ---- */

/* The last entry of the sorted table that begins at or before @pc; 0 when there is none. */
static uint64_t find_entry(struct peek_window *window, uint64_t hdr, uint64_t pc)
{
	struct reader reader = {window, hdr, hdr + 64, false};
	uint8_t head[4];
	uint64_t count, low = 0, high;
	int32_t entry[2]; /* start of the code, its entry, both from the table's head */

	take(&reader, head, sizeof(head));
	take_encoded(&reader, head[1], hdr);
	count = take_encoded(&reader, head[2], hdr);
	if (reader.bad || head[0] != 1 || head[3] != ENCODED_TABLE || count == 0 || count > UINT32_MAX)
		return 0;
	for (high = count; high - low > 1;) {
		uint64_t middle = low + (high - low) / 2, at = reader.at + middle * TABLE_ENTRY_BYTES;
		bool there = high - low <= TABLE_NEAR ? peek_through(window, reader.at + low * TABLE_ENTRY_BYTES, entry, sizeof(entry)) &&
				     peek_through(window, at, entry, sizeof(entry))
						      : foreign_read(entry, at, sizeof(entry));

		if (!there)
			return 0;
		if (hdr + (uint64_t)(int64_t)entry[0] <= pc)
			low = middle;
		else
			high = middle;
	}
	if (!peek_through(window, reader.at + low * TABLE_ENTRY_BYTES, entry, sizeof(entry)) ||
		hdr + (uint64_t)(int64_t)entry[0] > pc)
		return 0;
	return hdr + (uint64_t)(int64_t)entry[1];
}

struct common {
	uint64_t code_align;
	int64_t data_align;
	uint8_t pointers; /* encoding of addresses in its entries */
	bool augmented, signal;
	struct reader instructions;
};

/* Sets the reader on what follows the length. */
static void open_entry(struct reader *reader, struct peek_window *window, uint64_t at)
{
	uint32_t length;

	*reader = (struct reader){window, at, at + sizeof(length), false};
	length = take_u32(reader);
	reader->bad |= length == 0 || length > ENTRY_BYTES_MAX; /* larger ones (64-bit form) nobody writes here */
	reader->end = reader->at + length;
}

static bool read_common(struct peek_window *window, uint64_t at, struct common *ret)
{
	struct reader reader;
	uint8_t version;
	char letters[8] = {0};
	uint64_t return_register;

	*ret = (struct common){0};
	open_entry(&reader, window, at);
	reader.bad |= take_u32(&reader) != 0;
	version = take_u8(&reader);
	for (unsigned i = 0;; i++) {
		if (i == sizeof(letters))
			return false;
		letters[i] = (char)take_u8(&reader);
		if (!letters[i])
			break;
	}
	ret->code_align = take_uleb(&reader);
	ret->data_align = take_sleb(&reader);
	return_register = version == 1 ? take_u8(&reader) : take_uleb(&reader);
	if (reader.bad || (version != 1 && version != 3) || return_register != REGISTER_RETURN)
		return false;
	ret->instructions = reader;
	if (!letters[0])
		return true;
	if (letters[0] != 'z')
		return false;
	ret->augmented = true;
	ret->instructions.at = take_uleb(&reader);
	ret->instructions.at += reader.at;
	for (const char *letter = letters + 1; *letter; letter++) {
		switch (*letter) {
		case 'R': ret->pointers = take_u8(&reader); break;
		case 'L': take_u8(&reader); break;
		case 'P': {
			uint8_t encoding = take_u8(&reader);

			/* only its length matters; it may be indirect */
			take_encoded(&reader, encoding == ENCODED_OMITTED ? encoding : encoding & 0x0f, 0);
			break;
		}
		case 'S': ret->signal = true; break;
		case 'B': break; /* aarch64: return addresses are signed with the second key */
		default: return false;
		}
	}
	return !reader.bad;
}

/* ---- instructions ---- */

struct row {
	struct place cfa;
	struct place places[REGISTER_COUNT];
};

struct run {
	const struct common *common;
	uint64_t pc, location;
	struct row row, initial;
	struct row remembered[REMEMBERED_MAX];
	unsigned depth;
};

static void set(struct run *run, uint64_t reg, enum place_kind kind, int64_t value, uint64_t bytes)
{
	if (reg < REGISTER_COUNT && (REGISTERS_FOLLOWED >> reg & 1))
		run->row.places[reg] = (struct place){(uint8_t)reg, (uint8_t)kind, (uint16_t)bytes, value};
}

static void restore(struct run *run, uint64_t reg)
{
	if (reg < REGISTER_COUNT)
		run->row.places[reg] = run->initial.places[reg];
}

/* Steps over an expression and says where it lies. */
static struct place take_expression(struct reader *reader)
{
	uint64_t bytes = take_uleb(reader);
	struct place place = {0, PLACE_EXPRESSION, (uint16_t)bytes, (int64_t)reader->at};

	reader->bad |= bytes > UINT16_MAX;
	reader->at += bytes;
	return place;
}

static void set_expression(struct run *run, struct reader *reader, enum place_kind kind)
{
	uint64_t reg = take_uleb(reader);
	struct place place = take_expression(reader);

	set(run, reg, kind, place.value, place.bytes);
}

static void set_cfa(struct run *run, struct reader *reader, uint64_t reg, int64_t offset)
{
	reader->bad |= reg >= REGISTER_COUNT;
	run->row.cfa = (struct place){(uint8_t)reg, PLACE_REGISTER, 0, offset};
}

static void one_instruction(struct run *run, struct reader *reader, uint8_t code)
{
	const int64_t align = run->common->data_align;
	uint64_t reg;

	switch (code) {
	case 0x00: break; /* nop */
	case 0x01: run->location = take_encoded(reader, run->common->pointers, 0); break;
	case 0x02: run->location += take_u8(reader) * run->common->code_align; break;
	case 0x03: run->location += take_u16(reader) * run->common->code_align; break;
	case 0x04: run->location += take_u32(reader) * run->common->code_align; break;
	case 0x05: reg = take_uleb(reader); set(run, reg, PLACE_AT_OFFSET, (int64_t)take_uleb(reader) * align, 0); break;
	case 0x06: restore(run, take_uleb(reader)); break;
	case 0x07: set(run, take_uleb(reader), PLACE_UNKNOWN, 0, 0); break;
	case 0x08: set(run, take_uleb(reader), PLACE_SAME, 0, 0); break;
	case 0x09: reg = take_uleb(reader); set(run, reg, PLACE_REGISTER, (int64_t)take_uleb(reader), 0); break;
	case 0x0a: /* remember the row */
		if (run->depth == REMEMBERED_MAX)
			reader->bad = true;
		else
			run->remembered[run->depth++] = run->row;
		break;
	case 0x0b: /* go back to it */
		if (run->depth == 0)
			reader->bad = true;
		else
			run->row = run->remembered[--run->depth];
		break;
	case 0x0c: reg = take_uleb(reader); set_cfa(run, reader, reg, (int64_t)take_uleb(reader)); break;
	case 0x0d: set_cfa(run, reader, take_uleb(reader), run->row.cfa.value); break;
	case 0x0e: set_cfa(run, reader, run->row.cfa.reg, (int64_t)take_uleb(reader)); break;
	case 0x0f: run->row.cfa = take_expression(reader); break;
	case 0x10: set_expression(run, reader, PLACE_AT_EXPRESSION); break;
	case 0x11: reg = take_uleb(reader); set(run, reg, PLACE_AT_OFFSET, take_sleb(reader) * align, 0); break;
	case 0x12: reg = take_uleb(reader); set_cfa(run, reader, reg, take_sleb(reader) * align); break;
	case 0x13: set_cfa(run, reader, run->row.cfa.reg, take_sleb(reader) * align); break;
	case 0x14: reg = take_uleb(reader); set(run, reg, PLACE_OFFSET, (int64_t)take_uleb(reader) * align, 0); break;
	case 0x15: reg = take_uleb(reader); set(run, reg, PLACE_OFFSET, take_sleb(reader) * align, 0); break;
	case 0x16: set_expression(run, reader, PLACE_EXPRESSION); break;
	case 0x2d: break; /* aarch64: the return address is signed from here on, or no more; the mark is taken off either way */
	case 0x2e: take_uleb(reader); break; /* bytes of arguments, of no use here */
	case 0x2f: reg = take_uleb(reader); set(run, reg, PLACE_AT_OFFSET, -(int64_t)take_uleb(reader) * align, 0); break;
	default: reader->bad = true;
	}
}

/* Up to the row of the address asked for. False on anything unknown. */
static bool run_instructions(struct run *run, struct reader reader)
{
	while (reader.at < reader.end && !reader.bad) {
		uint8_t code = take_u8(&reader), low = code & 0x3f;

		switch (code & 0xc0) {
		case 0x40: run->location += low * run->common->code_align; break;
		case 0x80: set(run, low, PLACE_AT_OFFSET, (int64_t)take_uleb(&reader) * run->common->data_align, 0); break;
		case 0xc0: restore(run, low); break;
		default: one_instruction(run, &reader, code);
		}
		if (run->location > run->pc)
			break;
	}
	return !reader.bad;
}

static bool write_rule(const struct run *run, struct frame_rule *ret)
{
	ret->cfa = run->row.cfa;
	if (run->row.cfa.kind != PLACE_REGISTER && run->row.cfa.kind != PLACE_EXPRESSION)
		return false;
	for (unsigned reg = 0; reg < REGISTER_COUNT; reg++) {
		if (run->row.places[reg].kind == PLACE_SAME)
			continue;
		if (ret->count == FRAME_PLACES_MAX)
			return false;
		ret->places[ret->count++] = run->row.places[reg];
	}
	ret->signal = run->common->signal;
	return true;
}

void frame_rule_read(struct peek_window *window, uint64_t eh_frame_hdr, uint64_t pc, struct frame_rule *ret)
{
	uint64_t entry = eh_frame_hdr ? find_entry(window, eh_frame_hdr, pc) : 0, begin, bytes, field;
	struct common common;
	struct reader reader;
	struct run run;

	*ret = (struct frame_rule){0};
	if (!entry)
		return;
	open_entry(&reader, window, entry);
	field = reader.at;
	field -= take_u32(&reader); /* how far in front of itself the common part lies */
	if (reader.bad || !read_common(window, field, &common))
		return;
	begin = take_encoded(&reader, common.pointers, 0);
	bytes = take_encoded(&reader, common.pointers & 0x0f, 0);
	if (common.augmented) {
		uint64_t skip = take_uleb(&reader);

		reader.at += skip;
		reader.bad |= skip > ENTRY_BYTES_MAX;
	}
	if (reader.bad || pc < begin || pc - begin >= bytes)
		return;
	memset(&run, 0, sizeof(run));
	run.common = &common;
	run.pc = UINT64_MAX; /* those of the common part all count */
	if (!run_instructions(&run, common.instructions))
		return;
	run.initial = run.row;
	run.pc = pc;
	run.location = begin;
	ret->known = run_instructions(&run, reader) && write_rule(&run, ret);
}
