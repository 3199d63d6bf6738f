/* lifecycle/callers/frame_step.c
 * Applies a rule: from the registers in one frame to those in the frame of its caller. */
#include <string.h>

#include "lifecycle/callers/frame_rule.h"
#include "lifecycle/callers/peek.h"

enum { OPERANDS_MAX = 8, EXPRESSION_BYTES_MAX = 64 };

static bool value_of(const struct registers *registers, uint64_t reg, uint64_t *ret)
{
#if defined(__x86_64__)
	if (reg == REGISTER_RETURN) { /* stands for the instruction pointer in expressions */
		*ret = registers->pc;
		return true;
	}
#endif
	if (reg >= REGISTER_COUNT || !(registers->known >> reg & 1))
		return false;
	*ret = registers->value[reg];
	return true;
}

static bool take_leb(const uint8_t *code, size_t bytes, size_t *at, bool sign, uint64_t *ret)
{
	unsigned shift = 0;

	for (*ret = 0; *at < bytes; shift += 7) {
		uint8_t byte = code[(*at)++];

		if (shift < 64)
			*ret |= (uint64_t)(byte & 0x7f) << shift;
		if (byte & 0x80)
			continue;
		if (sign && (byte & 0x40) && shift + 7 < 64)
			*ret |= ~0ull << (shift + 7);
		return true;
	}
	return false;
}

static bool two_operands(uint8_t code, uint64_t a, uint64_t b, uint64_t *ret)
{
	switch (code) {
	case 0x1a: *ret = a & b; return true;
	case 0x1c: *ret = a - b; return true;
	case 0x21: *ret = a | b; return true;
	case 0x22: *ret = a + b; return true;
	case 0x24: *ret = b < 64 ? a << b : 0; return true;
	case 0x25: *ret = b < 64 ? a >> b : 0; return true;
	case 0x27: *ret = a ^ b; return true;
	case 0x29: *ret = a == b; return true;
	case 0x2a: *ret = (int64_t)a >= (int64_t)b; return true;
	case 0x2b: *ret = (int64_t)a > (int64_t)b; return true;
	case 0x2c: *ret = (int64_t)a <= (int64_t)b; return true;
	case 0x2d: *ret = (int64_t)a < (int64_t)b; return true;
	case 0x2e: *ret = a != b; return true;
	default: return false;
	}
}

/* The operations that compilers and libcs use in these places (signal frames, stubs of lazy binding, realigned stacks). No
 * branches, so it ends with its bytes. @first: what stands on the stack at the start, NULL for none. */
static bool evaluate(struct peek_window *window, const struct place *place, const struct registers *registers,
	const uint64_t *first, uint64_t *ret)
{
	uint8_t code[EXPRESSION_BYTES_MAX];
	uint64_t stack[OPERANDS_MAX + 1];
	size_t depth = 0, bytes = place->bytes;

	if (bytes == 0 || bytes > sizeof(code) || !peek_through(window, (uint64_t)place->value, code, bytes))
		return false;
	if (first)
		stack[depth++] = *first;
	for (size_t at = 0; at < bytes;) {
		uint8_t op = code[at++];
		uint64_t number, reg;

		if (depth == OPERANDS_MAX)
			return false;
		if (op >= 0x30 && op < 0x50) { /* a number of its own */
			stack[depth++] = op - 0x30u;
		} else if ((op >= 0x70 && op < 0x90) || op == 0x92) { /* a register and an offset */
			reg = op - 0x70u;
			if ((op == 0x92 && !take_leb(code, bytes, &at, false, &reg)) || !take_leb(code, bytes, &at, true, &number) ||
				!value_of(registers, reg, &stack[depth]))
				return false;
			stack[depth++] += number;
		} else if (op == 0x10 || op == 0x11) { /* a constant */
			if (!take_leb(code, bytes, &at, op == 0x11, &stack[depth++]))
				return false;
		} else if (op == 0x08 && at < bytes) { /* a byte */
			stack[depth++] = code[at++];
		} else if (depth == 0) {
			return false;
		} else if (op == 0x06) { /* what lies there */
			if (!peek_through(window, stack[depth - 1], &stack[depth - 1], sizeof(*stack)))
				return false;
		} else if (op == 0x12) { /* once more */
			stack[depth] = stack[depth - 1];
			depth++;
		} else if (op == 0x23) { /* and a constant */
			if (!take_leb(code, bytes, &at, false, &number))
				return false;
			stack[depth - 1] += number;
		} else if (op != 0x96) { /* no operation */
			if (depth < 2 || !two_operands(op, stack[depth - 2], stack[depth - 1], &stack[depth - 2]))
				return false;
			depth--;
		}
	}
	if (depth == 0)
		return false;
	*ret = stack[depth - 1];
	return true;
}

/* The value of a register of the caller; false when it cannot be known. */
static bool fetch(struct peek_window *window, const struct place *place, const struct registers *in, uint64_t cfa, uint64_t *ret)
{
	uint64_t at;

	switch ((enum place_kind)place->kind) {
	case PLACE_SAME: return value_of(in, place->reg, ret);
	case PLACE_AT_OFFSET: return peek_through(window, cfa + (uint64_t)place->value, ret, sizeof(*ret));
	case PLACE_OFFSET: *ret = cfa + (uint64_t)place->value; return true;
	case PLACE_REGISTER: return value_of(in, (uint64_t)place->value, ret);
	case PLACE_AT_EXPRESSION:
		return evaluate(window, place, in, &cfa, &at) && peek_through(window, at, ret, sizeof(*ret));
	case PLACE_EXPRESSION: return evaluate(window, place, in, &cfa, ret);
	case PLACE_UNKNOWN: return false;
	}
	return false;
}

/* A return address may be signed (aarch64); the instruction that takes the mark off is a no-op where there are none. */
static uint64_t without_mark(uint64_t address)
{
#if defined(__aarch64__)
	register uint64_t x30 __asm__("x30") = address;

	__asm__("hint #7" : "+r"(x30)); /* xpaclri */
	return x30;
#else
	return address;
#endif
}

bool frame_rule_apply(struct peek_window *window, const struct frame_rule *rule, struct registers *registers)
{
	struct registers caller = *registers;
	uint64_t cfa;

	if (!rule->known)
		return false;
	if (rule->cfa.kind == PLACE_EXPRESSION) {
		if (!evaluate(window, &rule->cfa, registers, NULL, &cfa))
			return false;
	} else {
		if (!value_of(registers, rule->cfa.reg, &cfa))
			return false;
		cfa += (uint64_t)rule->cfa.value;
	}
	/* stacks grow downwards: anything else goes round in circles. A signal may have come to another stack. */
	if (!rule->signal && cfa < registers->value[REGISTER_SP])
		return false;
	caller.value[REGISTER_SP] = cfa;
#if defined(__x86_64__)
	caller.known &= ~(1ull << REGISTER_RETURN); /* no register: known only where a rule says so */
#endif
	for (unsigned i = 0; i < rule->count; i++) {
		uint8_t reg = rule->places[i].reg;

		caller.known &= ~(1ull << reg);
		if (fetch(window, &rule->places[i], registers, cfa, &caller.value[reg]))
			caller.known |= 1ull << reg;
	}
	if (!(caller.known >> REGISTER_RETURN & 1) || !(caller.known >> REGISTER_SP & 1))
		return false;
	caller.pc = without_mark(caller.value[REGISTER_RETURN]);
	if (caller.pc == 0)
		return false;
	*registers = caller;
	return true;
}
