/* base/lock.c
 * The held ranks of a thread are a bit mask; `1 << rank` and everything above it must be clear before a lock. */
#include "base/lock.h"

#include <errno.h>
#include <time.h>

#include "base/attributes.h"
#include "base/log.h"

/* Weak: musl has none, and its programs are to start below the preload, where Sublet then keeps out. */
#pragma weak pthread_mutex_clocklock

static SUBLET_TLS unsigned held_mask;
static struct ranked_lock *registered[RANK_COUNT];

static void report_violation(enum lock_rank held_or_above, enum lock_rank wanted)
{
	log_say(LOG_SHIM, LOG_ERROR, WHOSE_SUBLET, "lock rank %d wanted while %d or above is held", (int)wanted,
		(int)held_or_above);
}

void (*lock_order_violation)(enum lock_rank, enum lock_rank) = report_violation;

void ranked_lock_init(struct ranked_lock *lock, enum lock_rank rank)
{
	pthread_mutex_init(&lock->mutex, NULL);
	lock->rank = rank;
	registered[rank] = lock;
}

void ranked_lock_release(struct ranked_lock *lock)
{
	if (registered[lock->rank] == lock)
		registered[lock->rank] = NULL;
	pthread_mutex_destroy(&lock->mutex);
}

void ranked_lock(struct ranked_lock *lock)
{
	unsigned above = held_mask >> lock->rank;

	if (SUBLET_UNLIKELY(above))
		lock_order_violation(lock->rank, lock->rank);
	pthread_mutex_lock(&lock->mutex);
	held_mask |= 1u << lock->rank;
}

#ifdef __SANITIZE_THREAD__
/* The thread sanitizer of gcc 12 and 13 does not know the clocklock, and took every unlock behind it for a wrong one. */
#define LOCK_CLOCK CLOCK_REALTIME
#define LOCK_UNTIL(mutex, deadline) pthread_mutex_timedlock(mutex, deadline)
#else
#define LOCK_CLOCK CLOCK_MONOTONIC
#define LOCK_UNTIL(mutex, deadline)                                                                                    \
	(pthread_mutex_clocklock ? pthread_mutex_clocklock(mutex, CLOCK_MONOTONIC, deadline) : ENOSYS)
#endif

bool ranked_lock_within(struct ranked_lock *lock, uint64_t wait_ns)
{
	struct timespec deadline;

	clock_gettime(LOCK_CLOCK, &deadline);
	wait_ns += (uint64_t)deadline.tv_nsec;
	deadline.tv_sec += (time_t)(wait_ns / 1000000000ull);
	deadline.tv_nsec = (long)(wait_ns % 1000000000ull);
	if (LOCK_UNTIL(&lock->mutex, &deadline) != 0)
		return false;
	held_mask |= 1u << lock->rank;
	return true;
}

void ranked_unlock(struct ranked_lock *lock)
{
	held_mask &= ~(1u << lock->rank);
	pthread_mutex_unlock(&lock->mutex);
}

void ranked_lock_fork_child(void)
{
	for (int rank = RANK_COUNT - 1; rank >= 0; rank--) {
		if (registered[rank])
			pthread_mutex_init(&registered[rank]->mutex, NULL);
	}
	held_mask = 0;
}
