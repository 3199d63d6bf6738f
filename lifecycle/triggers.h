/* lifecycle/triggers.h
 * Events of the program that may begin a phase (DESIGN.md 6), asked of the policy: here NVTX ranges, as they are opened and
 * end. What begins a phase is told at once to who has asked for it (triggers_on_arrival), on the thread of the program; nothing
 * here waits, and that function must not either.
 *
 * Pushed ranges nest per thread and domain, as NVTX has it; started ones end by their number, on any thread. Names are kept only
 * while the end of a range may matter: a trigger asks for it, or the policy is not known yet. The nesting hangs on a key of
 * pthreads, as the static thread-local bytes of the preloaded library are few. Bounded: of ranges that are never popped the
 * outermost are forgotten, of those never ended the newest.
 *
 * A process without a GPU joins its session at its first range (shim/controller.c), and joins again when it has one after all.
 *
 * No lock. A zero struct is one in which nobody asks.
 * Neighbours: policy/roles.h answers, shim/nvtx_ranges.c sees the ranges. */
#ifndef SUBLET_LIFECYCLE_TRIGGERS_H
#define SUBLET_LIFECYCLE_TRIGGERS_H

#include <stdbool.h>
#include <stdint.h>

#include "policy/block.h"

enum {
	TRIGGERS_NESTING_MAX = 64, /* pushed ranges per thread */
	TRIGGERS_STARTED_MAX = 256, /* started ranges per process */
};

enum triggers_asks {
	TRIGGERS_OPENED = 1 << 0, /* for ranges that are opened */
	TRIGGERS_ENDED = 1 << 1,  /* for ranges that end */
	TRIGGERS_UNKNOWN = 1 << 2, /* the policy is to come: names are kept, so that the ends of what is open by then are seen */
};

/* A policy in use, and what it asks of a process of this role. Neither changes, nor goes, once it is used. */
struct triggers_policy {
	const struct policy *policy;
	uint32_t role;
	unsigned asks; /* enum triggers_asks */
};

struct triggers_started {
	uint64_t number; /* 0: free; atomic */
	char *name;	 /* of who has seized the entry */
};

struct triggers {
	unsigned asks; /* enum triggers_asks; atomic; all that a range costs while nobody asks */
	bool settled;  /* atomic; it is known whether there is a policy */
	const struct triggers_policy *current;	    /* atomic */
	void (*arrived)(void *arg, uint32_t phase); /* atomic; written after the one below */
	void *arrived_arg; /* atomic */
	unsigned key;	    /* of pthreads, plus one; 0: none yet; atomic */
	unsigned nesting;   /* counts the times that names began to be kept anew: older nestings are stale; atomic */
	uint64_t numbers;   /* given to ranges so far; atomic */
	struct triggers_started started[TRIGGERS_STARTED_MAX];
};

/* Does anything of a range matter? One load. */
static inline bool triggers_ask(const struct triggers *triggers)
{
	return __atomic_load_n(&triggers->asks, __ATOMIC_RELAXED) != 0;
}

/* What @policy asks of a process of @role. Both are borrowed. */
void triggers_policy_init(struct triggers_policy *new, const struct policy *policy, uint32_t role);

/* From now on @policy decides; NULL: nobody asks. Borrowed for good: other threads may be reading the one before. */
void triggers_use(struct triggers *triggers, const struct triggers_policy *policy);

/* A policy may come: keep names until triggers_use, or triggers_settle, which says that nothing has come and that a policy will do
 * without the names from before. Both do nothing once it was known. */
void triggers_expect(struct triggers *triggers);
void triggers_settle(struct triggers *triggers);

/* Call @arrived with the phase, a number of the policy in use, each time an event begins one, whether or not it is in force already.
 * Before the first policy; again with another @arg when the process joins anew. It runs inside the program's NVTX call, with cancellation off: it records, and returns. */
void triggers_on_arrival(struct triggers *triggers, void (*arrived)(void *arg, uint32_t phase), void *arg);

/* The calling thread opens a range in @domain (any pointer; NULL is NVTX's default one). @name is copied where it is kept; NULL: it
 * has none, and counts as nesting all the same. */
void triggers_nvtx_push(struct triggers *triggers, const void *domain, const char *name);
/* The innermost range of @domain ends on the calling thread. One too many is nothing. */
void triggers_nvtx_pop(struct triggers *triggers, const void *domain);

/* A range was started; @number is what the program knows it by, 0: nobody has given it one. Returns the number that the program is to
 * get: @number, else one of ours where the end matters, else 0. */
uint64_t triggers_range_start(struct triggers *triggers, uint64_t number, const char *name);
/* The range of that number ends. An unknown one is nothing. */
void triggers_range_end(struct triggers *triggers, uint64_t number);

/* In a forked child, behind triggers_forget, which may join by itself: as triggers_expect, where names were ever asked for. */
void triggers_expect_again(struct triggers *triggers);

/* In a forked child: nobody asks any more, and no name is known. */
void triggers_forget(struct triggers *triggers);

/* Unit tests: let go of everything but what other threads have nested. */
void triggers_release(struct triggers *triggers);

#endif
