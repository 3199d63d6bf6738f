/* lifecycle/callers/sites.h
 * Each distinct caller once. An allocation names its site by a pointer that is good for the life of the process, so that a policy
 * that comes later, and people who look for rules, can ask what was known when it was made.
 * Bounded: a program with more distinct stacks than SITES_MAX gets no sites for further ones, only decisions. */
#ifndef SUBLET_LIFECYCLE_CALLERS_SITES_H
#define SUBLET_LIFECYCLE_CALLERS_SITES_H

#include "base/lock.h"
#include "base/map.h"
#include "lifecycle/callers/caller.h"

#define SITES_MAX 32768

/* Read-only once made, but for `traced`. */
struct site {
	struct site *next; /* of the same hash */
	uint32_t number;   /* from 0, in the order in which they were met */
	uint32_t traced;   /* RANK_RECORDS: number of its text in the trace and 1 more, 0: not written */
	uint16_t stack_count, python_count;
	const char *library[2];
	const char *thread, *tag;
	const char *frames[]; /* native ones, then Python's */
};

struct sites {
	struct ranked_lock lock; /* RANK_SITES: all below */
	struct map by_hash;
	uint32_t count;
};

void sites_init(struct sites *sites);
/* Unit tests: nobody holds a site any more. */
void sites_release(struct sites *sites);

/* The site of @caller. NULL: nothing is known of it, there are too many, or memory ran out. Takes the lock. */
const struct site *sites_find(struct sites *sites, const struct caller *caller);

#endif
