/* base/lock.h
 * Mutexes with a rank. A thread takes them in rising rank only; that order is the whole argument against deadlock, so it
 * is checked at each lock in every build (one word of thread-local state).
 * Locks register at init, so that a forked child can make them new. */
#ifndef SUBLET_BASE_LOCK_H
#define SUBLET_BASE_LOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* Rising order. What each protects stands beside the lock itself. */
enum lock_rank {
	RANK_PRIMARY,  /* lifecycle: retain, release and reset of primary contexts, one at a time */
	RANK_CAPTURE,  /* lifecycle: set of streams being captured */
	RANK_CONTEXTS, /* lifecycle: known contexts, peers, their event pools */
	RANK_SERVICE,  /* lifecycle: requests for the service thread */
	RANK_RECORDS,  /* lifecycle: allocation records */
	RANK_RECLAIM,  /* lifecycle: pending frees and the extent cache */
	RANK_HOST_POOL, /* lifecycle: free host extents and their ledger */
	RANK_ARENA,    /* lifecycle: free address ranges */
	RANK_NATIVE,   /* lifecycle: native allocations being counted */
	RANK_CALLBACKS, /* lifecycle: host functions that graphs keep */
	RANK_KERNELS,  /* lifecycle: kernels that slots of the gate name; held over the driver's look-up of a name */
	RANK_SITES,    /* lifecycle: distinct callers of allocations */
	RANK_CLIENT,   /* lifecycle: the connection to the coordinator, what is asked and what was answered */
	RANK_LEDGER,   /* lifecycle: device bytes that are taken, and the credit for them */
	RANK_SYMBOLS, /* lifecycle: tables of symbols being made; nothing is taken below it */
	RANK_COUNT
};

struct ranked_lock {
	pthread_mutex_t mutex;
	enum lock_rank rank;
};

/* Make @lock usable and known to ranked_lock_fork_child. At most one lock of a rank is registered; a second init of the same
 * rank replaces the first (unit tests build a fresh lifecycle each). */
void ranked_lock_init(struct ranked_lock *lock, enum lock_rank rank);
void ranked_lock_release(struct ranked_lock *lock);

/* Takes @lock. A thread that already holds this rank or a higher one is a bug of ours: reported through
 * lock_order_violation, then the lock is taken all the same. */
void ranked_lock(struct ranked_lock *lock);
void ranked_unlock(struct ranked_lock *lock);
/* The same for who may give up: the end of the process, which may come in a signal handler that has interrupted the very
 * thread that holds the lock, or a later one; frees that can be served later. Waits @wait_ns at most, says whether it was
 * taken. Whoever may give up cannot deadlock, so no order is asked for. */
bool ranked_lock_within(struct ranked_lock *lock, uint64_t wait_ns);

/* In a forked child: every registered lock is free again, whoever held it in the parent. */
void ranked_lock_fork_child(void);

/* Called on a violation; the default logs "sublet bug". Unit tests point it at abort. */
extern void (*lock_order_violation)(enum lock_rank held_or_above, enum lock_rank wanted);

#endif
