/* lifecycle/history.h
 * What the process has allocated so far, in groups: from one site, of one size, on one device. From this a person sees which
 * rules would tell its objects apart (`sublet ctl objects --suggest`), also for what was freed long ago.
 * Bounded: beyond HISTORY_MAX groups further ones are only counted. Not locked; RANK_RECORDS covers it. */
#ifndef SUBLET_LIFECYCLE_HISTORY_H
#define SUBLET_LIFECYCLE_HISTORY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/map.h"

#define HISTORY_MAX 65536

struct allocation;
struct site;

struct history_group {
	struct history_group *next; /* of the same hash */
	struct history_group *newer; /* in the order in which they were met */
	const struct site *site; /* NULL: not known */
	uint64_t size_bytes;     /* as requested */
	int device;
	uint64_t count, live;    /* allocations, ever and now */
	uint64_t peak_live;
	uint64_t first_serial, last_serial;
	uint64_t first_ns, last_ns; /* clock_now_ns of the first and last allocation */
	uint64_t freed, freed_lived_ns; /* of those that were freed: how many, and the sum of their lives */
};

struct history {
	struct map by_hash;
	struct history_group *oldest, *newest;
	uint32_t count;
	uint64_t left_out; /* allocations without a group */
};

void history_init(struct history *history);
void history_release(struct history *history);

/* @allocation is made: set its group and its time. */
void history_add(struct history *history, struct allocation *allocation);
/* One of @group (may be NULL) that lived since @since_ns is freed; and is not, after all. */
void history_freed(struct history_group *group, uint64_t since_ns);
void history_unfreed(struct history_group *group, uint64_t since_ns);

#endif
