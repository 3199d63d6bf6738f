/* lifecycle/callers/frame_rule.h
 * How one leaves the frame of a function that stands at a given instruction: from the registers there to those of its caller.
 * Read from the call frame information that compilers leave in every object (.eh_frame), as exceptions and debuggers do.
 * Source: DWARF 5, 6.4; LSB Core 5.0, 10.6; the processors' ABI supplements for register numbers.
 *
 * Not by libunwind: 1.6.2 (Debian 12) keeps a pipe by its descriptors' numbers and writes to whatever file a program opens under
 * these after it has closed all; it waits for the lock of the loader's list whenever it meets a new address, with all signals
 * blocked; it keeps rules by address alone, so that it follows those of a library that is gone; and its locks stay taken in a
 * forked child. */
#ifndef SUBLET_LIFECYCLE_CALLERS_FRAME_RULE_H
#define SUBLET_LIFECYCLE_CALLERS_FRAME_RULE_H

#include <stdbool.h>
#include <stdint.h>

/* Only registers that a call preserves are followed, in DWARF's numbering. */
#if defined(__x86_64__)
enum { REGISTER_SP = 7, REGISTER_RETURN = 16, REGISTER_COUNT = 17 };
#define REGISTERS_FOLLOWED (1ull << 3 | 1ull << 6 | 1ull << 7 | 0xfull << 12 | 1ull << 16) /* rbx rbp rsp r12-r15 rip */
#elif defined(__aarch64__)
enum { REGISTER_SP = 31, REGISTER_RETURN = 30, REGISTER_COUNT = 32 };
#define REGISTERS_FOLLOWED (0x1fffull << 19) /* x19-x30, sp */
#endif

struct registers {
	uint64_t value[REGISTER_COUNT];
	uint64_t known; /* bit per register */
	uint64_t pc;
};

/* Where a register of the caller is. Not listed: unchanged; the stack pointer: the frame's own address (CFA). */
enum place_kind {
	PLACE_SAME,
	PLACE_AT_OFFSET,     /* in memory, at CFA + value */
	PLACE_OFFSET,	     /* CFA + value */
	PLACE_REGISTER,	     /* in register number value */
	PLACE_AT_EXPRESSION, /* in memory, where the expression at address value says */
	PLACE_EXPRESSION,    /* what that says */
	PLACE_UNKNOWN,
};

struct place {
	uint8_t reg, kind;
	uint16_t bytes; /* of the expression */
	int64_t value;
};

enum { FRAME_PLACES_MAX = 16 };

struct frame_rule {
	bool known;    /* false: no rule for this instruction, the stack ends here for all that can be told */
	bool signal;   /* the caller was interrupted: its pc is of the next instruction to run, not behind a call */
	uint8_t count; /* of places */
	struct place cfa; /* PLACE_REGISTER: register .reg + value; PLACE_EXPRESSION */
	struct place places[FRAME_PLACES_MAX];
};

struct peek_window;

/* The rule for the instruction at @pc, by the sorted table at @eh_frame_hdr (0: none). Reads by @window. Never faults, takes no
 * lock, allocates nothing; what it does not understand is a rule that is not known. */
void frame_rule_read(struct peek_window *window, uint64_t eh_frame_hdr, uint64_t pc, struct frame_rule *ret);

/* From the registers in a frame to those of its caller. False: the stack ends, or memory is not there. */
bool frame_rule_apply(struct peek_window *window, const struct frame_rule *rule, struct registers *registers);

#endif
