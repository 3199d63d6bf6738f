/* lifecycle/ledger.h
 * Device bytes of this process: what an allocation may take of the session's capacity, and what its role's budget leaves.
 *
 *   used     managed bytes that lie on a device, with what is freed or kept here and not yet the driver's, and what has been taken
 *            and is not counted elsewhere yet: what the session's capacity is about
 *   credit   of that, what the session has granted; taken in slabs, so that an allocation costs no question
 *   own      managed bytes wherever they are, and native ones: what a budget is about
 *
 * Credit binds allocations alone. A move is counted when it is over and never refused: a barrier plans its room itself, and what must
 * come back must not wait for what waits for it. Where nobody can be asked nothing is refused.
 * Neighbours: lifecycle/client_ledger.c asks, lifecycle/coordinator_ledger.c adds up, lifecycle/memory.c takes. */
#ifndef SUBLET_LIFECYCLE_LEDGER_H
#define SUBLET_LIFECYCLE_LEDGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/errors.h"
#include "base/lock.h"
#include "lifecycle/stats.h"
#include "policy/block.h"

struct lifecycle;
struct allocation;

#define LEDGER_SLAB_BYTES (1ull << 30)

/* What a policy says for this process; an amount that is not given is all zero. */
struct ledger_terms {
	struct policy_amount capacity, reserve, budget;
	const char *role; /* whose budget it is, for people */
};

struct ledger_hooks {
	/* May this process use @bytes more of @device? They are among `asking` meanwhile. A yes has called ledger_granted; false with
	 * *reterr set: who holds what. Waits within bounds; no lock held. */
	bool (*ask)(void *arg, int device, uint64_t bytes, struct errinfo *reterr);
	/* The credit for @device is not what is used of it. @moved: by a move, so that it may be less. Waits for nobody. */
	void (*tell)(void *arg, int device, bool moved);
	void *arg;
};

struct ledger_device {
	uint64_t taken_bytes;  /* by allocations that are being made; written under the lock, atomic for readers */
	uint64_t asking_bytes; /* the session is being asked for; under the lock */
	uint64_t credit_bytes; /* under the lock */
};

struct ledger {
	struct ranked_lock lock; /* RANK_LEDGER: held over no call */
	const struct ledger_terms *terms; /* atomic; NULL: none. Never freed once published, any thread may be reading it */
	struct ledger_hooks hooks;	  /* set before the first allocation that may ask */
	struct ledger_device devices[STATS_DEVICES];
};

void ledger_init(struct ledger *ledger);
void ledger_release(struct ledger *ledger);
void ledger_set_hooks(struct lifecycle *lc, const struct ledger_hooks *hooks);
/* @terms is borrowed for the life of the ledger. */
void ledger_set_terms(struct lifecycle *lc, const struct ledger_terms *terms);
/* In a forked child: nothing is taken. */
void ledger_forget(struct ledger *ledger);

/* Before @bytes of @device are made for an allocation. Then ledger_made counts them as the allocation's, or ledger_done as nobody's. NOMEM: the budget
 * or the capacity ends here, and *reterr says which and who has it; nothing is taken. May wait for the session's answer; no lock held,
 * no driver call. */
enum sublet_err ledger_take(struct lifecycle *lc, int device, uint64_t bytes, struct errinfo *reterr);
void ledger_made(struct lifecycle *lc, const struct allocation *allocation);
void ledger_done(struct lifecycle *lc, int device, uint64_t bytes);
/* @allocation is freed: its pages, and no more, wait to become the driver's. */
void ledger_freed(struct lifecycle *lc, const struct allocation *allocation);

/* After something was freed: much credit that is idle goes back. @moved: after a move, or when a session is joined; then all that is
 * idle does, and what is used beyond the credit is counted. */
void ledger_settle(struct lifecycle *lc, bool moved);

/* ---- for who carries it to the session ---- */

/* What was being asked for is taken. */
void ledger_granted(struct lifecycle *lc, int device, uint64_t bytes);
/* Would @bytes more fit into the credit? */
bool ledger_fits(struct lifecycle *lc, int device, uint64_t bytes);
void ledger_set_credit(struct lifecycle *lc, int device, uint64_t bytes);
uint64_t ledger_credit(struct lifecycle *lc, int device);
/* The credit becomes what is used: where that is more, only with @may_rise. Returns it. What is taken from then on is not in it. */
uint64_t ledger_trim(struct lifecycle *lc, int device, bool may_rise);

/* ---- sums ---- */

/* Does the policy have a capacity? */
bool ledger_has_capacity(const struct lifecycle *lc);
uint64_t ledger_used_bytes(const struct lifecycle *lc, int device);
/* Of @device, without host memory that is pinned. */
uint64_t ledger_native_bytes(const struct lifecycle *lc, int device);

/* The budget of this process's role on a device of @total_bytes, no more than that. False: it has none. */
bool ledger_budget(const struct lifecycle *lc, uint64_t total_bytes, uint64_t *ret_bytes);
/* What memory info has to say under a budget: total and free. False: there is none, and the driver's answer stands. Depends on
 * nothing but what this process has allocated and freed. */
bool ledger_memory_info(const struct lifecycle *lc, int device, uint64_t total_bytes, size_t *ret_free, size_t *ret_total);

#endif
