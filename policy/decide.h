/* policy/decide.h
 * From facts about an allocation and a phase to where its bytes shall be, what to do for that, and why. Pure: no clock,
 * no heap, no driver; the same facts give the same answer in the library, in `sublet check --explain` and in `sublet
 * plan`.
 *
 * Invariants: the bytes of a permanent object are never released without a copy, whatever the block says; a hole (host,
 * empty) is never asked for in a client whose gate is open unless the rule names the kernels that may come near; what
 * is in doubt stays where it is. */
#ifndef SUBLET_POLICY_DECIDE_H
#define SUBLET_POLICY_DECIDE_H

#include "policy/block.h"

/* Where an allocation's bytes are (DESIGN.md 5). */
enum policy_residency { POLICY_DEVICE, POLICY_PARKED, POLICY_HOST, POLICY_EMPTY, POLICY_RESIDENCY_COUNT };

/* Steps from one residency to another, to be done in this order. */
enum policy_actions {
	POLICY_ACT_TAKE_DEVICE = 1u << 0, /* acquire device extents */
	POLICY_ACT_TAKE_HOST = 1u << 1,	  /* acquire host extents */
	POLICY_ACT_COPY_IN = 1u << 2,	  /* host to device */
	POLICY_ACT_COPY_OUT = 1u << 3,	  /* device to host */
	POLICY_ACT_UNMAP = 1u << 4,	  /* what is mapped at the address */
	POLICY_ACT_MAP_DEVICE = 1u << 5,  /* device extents at the address */
	POLICY_ACT_MAP_HOST = 1u << 6,	  /* host extents at the address */
	POLICY_ACT_GIVE_DEVICE = 1u << 7, /* release device extents */
	POLICY_ACT_GIVE_HOST = 1u << 8,	  /* release host extents */
	POLICY_ACT_ON_TOUCH = 1u << 9,	  /* then: watch launches, bring pieces through the window */
	POLICY_ACT_PREFETCH = 1u << 10,	  /* and the next piece early */
	POLICY_ACT_ALL = (1u << 11) - 1,
};

enum policy_reason {
	POLICY_BECAUSE_RESIDENT, /* as in enum policy_why, up to DEFAULT */
	POLICY_BECAUSE_OTHERWISE,
	POLICY_BECAUSE_UNSAID,
	POLICY_BECAUSE_NOT_EXCLUSIVE,
	POLICY_BECAUSE_BOUNDARY,
	POLICY_BECAUSE_PINNED_RULE,
	POLICY_BECAUSE_DEFAULT,
	POLICY_BECAUSE_PINNED,	      /* physical identity left Sublet's hands */
	POLICY_BECAUSE_PERMANENT,     /* permanent bytes are not discarded */
	POLICY_BECAUSE_NOT_ARRIVED,   /* neither arrived nor idle: offloaded where discard was asked for */
	POLICY_BECAUSE_GATE_OPEN,     /* role runs: parked where a hole was asked for */
	POLICY_BECAUSE_NO_PARKING,    /* host memory cannot be mapped here: stays on the device */
	POLICY_BECAUSE_NOTHING_THERE, /* no bytes to keep: stays empty */
	POLICY_BECAUSE_COUNT
};

enum policy_state_flags {
	POLICY_STATE_PINNED = 1u << 0,	   /* exported, registered, retained: must not move */
	POLICY_STATE_ARRIVED = 1u << 1,	   /* the client's own role has arrived at the barrier */
	POLICY_STATE_NO_PARKING = 1u << 2, /* this driver or device cannot map host extents */
	POLICY_STATE_NO_SCAN = 1u << 3,	   /* nobody looks at launches: a rule's `scannable` keeps no kernel away */
};

/* An allocation as it stands when @phase begins. */
struct policy_state {
	uint32_t rule;	/* from policy_match, below rules_count */
	uint32_t role;	/* of the client */
	uint32_t phase; /* that begins, or POLICY_NONE */
	enum policy_residency now;
	uint32_t flags; /* enum policy_state_flags */
};

struct policy_decision {
	enum policy_residency target;
	uint32_t actions; /* enum policy_actions; 0: nothing to do */
	enum policy_reason reason;
	enum policy_want want; /* what the policy asked for, before safety had its say */
};

/* Decide. Cannot fail. Source: DESIGN.md 5 and 6. */
void policy_decide(const struct policy *policy, const struct policy_state *state, struct policy_decision *ret_decision);

/* May the bytes of @rule ever go without a copy? False with the part of the policy that forbids it in *ret_reason. */
bool policy_may_discard(const struct policy *policy, uint32_t rule, enum policy_reason *ret_reason);

/* Steps that lead from @now to @target. */
uint32_t policy_steps(enum policy_residency now, enum policy_residency target);

/* Words for people; "?" for a number that is none. */
const char *policy_residency_text(enum policy_residency residency);
const char *policy_reason_text(enum policy_reason reason);
const char *policy_class_text(enum policy_class class);

#endif
