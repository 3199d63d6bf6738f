/* policy/block.h
 * The compiled policy: one block of bytes that a process maps read-only and uses as it is. Position independent (only
 * offsets inside), native byte order (it never leaves the machine), versioned, and bounds-checked once by policy_open;
 * after that no access needs a check, nothing is parsed and nothing is allocated.
 * Whoever maps a block that others can write must seal it first: what policy_open has checked must not change.
 * Neighbours: policy/source/compile.h makes blocks, policy/match.h and policy/decide.h read them. */
#ifndef SUBLET_POLICY_BLOCK_H
#define SUBLET_POLICY_BLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/errors.h"

#define POLICY_BLOCK_MAGIC "SUBLETPB"
#define POLICY_BLOCK_VERSION 2u
#define POLICY_BLOCK_BYTES_MAX (64u << 20)
#define POLICY_NONE UINT32_MAX /* no role, no phase, no group */

/* Sets of roles, phases and devices are one word each. The last bit of the first two means "none of the policy's". */
enum {
	POLICY_ROLES_MAX = 63,
	POLICY_PHASES_MAX = 63,
	POLICY_DEVICES_MAX = 64,
	POLICY_RULES_MAX = 4096,
	POLICY_NONE_BIT = 63,
	POLICY_API_UNKNOWN_BIT = 31,
};
#define POLICY_ANY UINT64_MAX
#define POLICY_ANY_API UINT32_MAX

#define CLASS(name, word, sentence) POLICY_CLASS_##name,
enum policy_class {
#include "policy/words.def"
	POLICY_CLASS_COUNT
};
#define OTHERWISE(name, word, sentence) POLICY_OTHERWISE_##name,
enum policy_otherwise {
#include "policy/words.def"
	POLICY_OTHERWISE_COUNT
};
#define API(name, word) POLICY_API_##name,
enum policy_api {
#include "policy/words.def"
	POLICY_API_COUNT /* also: any other call */
};
#define ACCESS(name, word, sentence) POLICY_ACCESS_##name,
enum policy_access {
#include "policy/words.def"
	POLICY_ACCESS_COUNT
};
#define QUORUM(name, word, sentence) POLICY_QUORUM_##name,
enum policy_quorum {
#include "policy/words.def"
	POLICY_QUORUM_NUMBER, /* of clients, beside it */
	POLICY_QUORUM_COUNT
};
#define FREE(name, word, sentence) POLICY_FREE_##name,
enum policy_free {
#include "policy/words.def"
	POLICY_FREE_COUNT
};

/* What the policy wants for the bytes of a rule in a phase. */
enum policy_want {
	POLICY_WANT_KEEP, /* where they are */
	POLICY_WANT_DEVICE,
	POLICY_WANT_DEMAND, /* parked, through the window on touch */
	POLICY_WANT_PARKED,
	POLICY_WANT_HOST,
	POLICY_WANT_EMPTY,
	POLICY_WANT_COUNT
};

/* Why it wants that: the part of the policy that said so. */
enum policy_why {
	POLICY_WHY_RESIDENT,	  /* `resident` says so */
	POLICY_WHY_OTHERWISE,	  /* `otherwise` says so */
	POLICY_WHY_UNSAID,	  /* `otherwise` is not given: park */
	POLICY_WHY_NOT_EXCLUSIVE, /* `otherwise: discard` without `exclusive: true` */
	POLICY_WHY_BOUNDARY,	  /* between `producer` and the end of `consumer` */
	POLICY_WHY_PINNED,	  /* in `pinned` */
	POLICY_WHY_DEFAULT,	  /* neither objects nor `defaults` say anything */
	POLICY_WHY_COUNT
};

enum policy_rule_kind {
	POLICY_RULE_PINNED,
	POLICY_RULE_OBJECT,
	POLICY_RULE_DEFAULT, /* the last rule, and no other */
	POLICY_RULE_KIND_COUNT
};

enum policy_rule_flags {
	POLICY_RULE_EXCLUSIVE = 1u << 0,
	POLICY_RULE_PREFETCH = 1u << 1,
	POLICY_RULE_FLAGS_ALL = (1u << 2) - 1,
};

enum policy_trigger_source {
	POLICY_TRIGGER_NVTX_PUSH,
	POLICY_TRIGGER_NVTX_POP,
	POLICY_TRIGGER_KERNEL,
	POLICY_TRIGGER_ENVIRONMENT,
	POLICY_TRIGGER_COMMAND, /* `sublet phase` and sublet_phase() */
	POLICY_TRIGGER_SOURCE_COUNT
};

/* A part of a section: elements first .. first + count - 1. */
struct policy_span {
	uint32_t first, count;
};

/* Bytes, or a share of something that only the running system knows. Both 0: not given. */
struct policy_amount {
	uint64_t bytes;
	uint32_t percent_hundredths; /* 1 .. 10000 */
	uint32_t reserved;	     /* 0 */
};

static inline bool policy_amount_given(const struct policy_amount *amount)
{
	return amount->bytes || amount->percent_hundredths;
}

/* Of @whole_bytes where it is a share. Hundredths of a percent of 2^50 bytes would not fit otherwise. */
static inline uint64_t policy_amount_bytes(const struct policy_amount *amount, uint64_t whole_bytes)
{
	const uint64_t share = amount->percent_hundredths;

	return share ? whole_bytes / 10000 * share + whole_bytes % 10000 * share / 10000 : amount->bytes;
}

struct policy_range {
	uint64_t low, high; /* both included */
};

struct policy_variable {
	uint32_t name; /* text */
	struct policy_span patterns;
};

struct policy_role {
	uint32_t name;				/* text */
	struct policy_span command, executable; /* patterns; count 0: not asked */
	struct policy_span environment;		/* variables */
	struct policy_amount budget;
};

struct policy_phase {
	uint32_t name; /* text */
	uint32_t line;
	uint64_t roles; /* those that run; the "none" bit is always set */
	uint64_t idle;
};

struct policy_trigger {
	uint32_t phase;
	uint32_t source; /* enum policy_trigger_source */
	uint64_t roles;
	struct policy_span patterns;	/* NVTX, kernel */
	struct policy_span environment; /* variables */
	uint32_t line;
	uint32_t reserved; /* 0 */
};

struct policy_rule {
	uint32_t name;			 /* text */
	uint32_t line;			 /* 0: the built-in default */
	uint32_t kind;			 /* enum policy_rule_kind */
	uint32_t class;			 /* enum policy_class */
	uint32_t flags;			 /* enum policy_rule_flags */
	uint32_t group;			 /* share group, or POLICY_NONE */
	uint64_t roles, phases, devices; /* sets */
	uint32_t apis;			 /* set of enum policy_api */
	uint32_t wants; /* first of as many wants as there are phases, and one more for "no phase" at the end */
	uint32_t found_by; /* enum policy_match_key of the texts whose grams lead here, POLICY_NONE: none do */
	uint32_t reserved; /* 0 */
	struct policy_span sizes, orders;			/* ranges; count 0: not asked */
	struct policy_span library, stack, python, thread, tag; /* patterns; count 0: not asked */
	struct policy_span scannable;				/* patterns of kernel names */
	uint64_t window_bytes;					/* 0: none */
	uint64_t expect_bytes;					/* 0: not said */
};

struct policy_wanted {
	uint8_t want; /* enum policy_want */
	uint8_t why;  /* enum policy_why */
};

struct policy_group {
	uint32_t name;		    /* text */
	uint32_t owner;		    /* role */
	uint64_t writers;	    /* phases */
	uint32_t access;	    /* enum policy_access */
	uint32_t trust;		    /* 0 or 1 */
	struct policy_span members; /* members: rule numbers */
};

/* One bit per value of a hash's upper bits: is such a gram there at all? 4 KiB, small enough to stay near; a constant, as
 * shifts by a variable are what made the look-up slow. */
enum { POLICY_GRAM_BITS_LOG2 = 15, POLICY_GRAM_BITS_SHIFT = 32 - POLICY_GRAM_BITS_LOG2 };

struct policy_gram {
	uint32_t hash; /* policy_gram_hash */
	uint32_t rule;
};

/* SECTION(NAME, field, element): what a block holds behind its header, in this order, each part aligned to 8. */
#define POLICY_SECTIONS(SECTION)                                                                                       \
	SECTION(TEXT, text, char)                                                                                      \
	SECTION(ROLES, roles, struct policy_role)                                                                      \
	SECTION(PHASES, phases, struct policy_phase)                                                                   \
	SECTION(TRIGGERS, triggers, struct policy_trigger)                                                             \
	SECTION(RULES, rules, struct policy_rule)                                                                      \
	SECTION(WANTS, wants, struct policy_wanted)                                                                    \
	SECTION(RANGES, ranges, struct policy_range)                                                                   \
	SECTION(PATTERNS, patterns, uint32_t)                                                                          \
	SECTION(VARIABLES, variables, struct policy_variable)                                                          \
	SECTION(GROUPS, groups, struct policy_group)                                                                   \
	SECTION(MEMBERS, members, uint32_t)                                                                            \
	SECTION(SIZE_BOUNDS, size_bounds, uint64_t)                                                                    \
	SECTION(ORDER_BOUNDS, order_bounds, uint64_t)                                                                  \
	SECTION(INDEX, index, uint64_t)                                                                                \
	SECTION(GRAM_HEADS, gram_heads, uint32_t)                                                                      \
	SECTION(GRAM_BITS, gram_bits, uint64_t)                                                                        \
	SECTION(GRAMS, grams, struct policy_gram)

enum policy_section {
#define SECTION(name, field, element) POLICY_SECTION_##name,
	POLICY_SECTIONS(SECTION)
#undef SECTION
		POLICY_SECTION_COUNT
};

struct policy_section_place {
	uint32_t offset; /* from the start of the block */
	uint32_t count;	 /* elements */
};

struct policy_header {
	char magic[8];
	uint32_t version;
	uint32_t header_bytes;
	uint64_t total_bytes;
	uint64_t checksum; /* of everything but this field: tells a block that was only half written */
	uint32_t session;  /* text; empty when not given */
	uint32_t devices;  /* 0: not given */
	struct policy_amount capacity, reserve, host_pool;
	uint64_t min_size_bytes;
	uint64_t timeout_ns;
	uint32_t quorum; /* enum policy_quorum */
	uint32_t quorum_clients;
	uint32_t free;	       /* enum policy_free */
	uint32_t manage_async; /* 0 or 1 */
	uint32_t gram_keys;	  /* set of enum policy_match_key: keys whose texts the gram table knows */
	uint32_t gram_all_places; /* of these: keys of whose texts every place is looked at, not every second */
	struct policy_section_place sections[POLICY_SECTION_COUNT];
};

/* A block in use: pointers into it. Borrows the bytes; needs no release. */
struct policy {
	const struct policy_header *header;
#define SECTION(name, field, element)                                                                                  \
	const element *field;                                                                                          \
	uint32_t field##_count;
	POLICY_SECTIONS(SECTION)
#undef SECTION
	uint32_t index_words; /* of one row of the index */
	uint32_t gram_shift;  /* from a gram's hash to its bucket */
};

/* Check the @size_bytes at @bytes (aligned to 8, as mapped pages are) and point *ret_policy into them. Fails with
 * INVALID (no policy block, another version, damaged); @reterr says which, and where. Allocates nothing, takes no lock.
 */
enum sublet_err policy_open(const void *bytes, size_t size_bytes, struct policy *ret_policy, struct errinfo *reterr);

/* Checksum as the header holds it. */
uint64_t policy_checksum(const void *bytes, size_t size_bytes);

/* The NUL-ended text at @offset of an opened policy. */
static inline const char *policy_text(const struct policy *policy, uint32_t offset)
{
	return policy->text + offset;
}

/* Number of the role or phase called @name, POLICY_NONE when there is none. @name may be NULL. */
uint32_t policy_role_find(const struct policy *policy, const char *name);
uint32_t policy_phase_find(const struct policy *policy, const char *name);

/* Does @role run in @phase? What is no role of the policy always runs, and in "no phase" everybody does. */
bool policy_role_runs(const struct policy *policy, uint32_t role, uint32_t phase);

/* What rule @rule wants in @phase (POLICY_NONE: no phase). */
static inline struct policy_wanted policy_wanted(const struct policy *policy, uint32_t rule, uint32_t phase)
{
	uint32_t column = phase < policy->phases_count ? phase : policy->phases_count;

	return policy->wants[policy->rules[rule].wants + column];
}

#endif
