/* lifecycle/records.h
 * One record per managed allocation: where it lies, what the application asked for, what backs it.
 * Records are recycled but never returned to the heap, so that a look-up through the granule table can read one that is
 * being freed by another thread without faulting; what it then reads is checked again under the lock. */
#ifndef SUBLET_LIFECYCLE_RECORDS_H
#define SUBLET_LIFECYCLE_RECORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/lock.h"
#include "lifecycle/backing.h"
#include "lifecycle/contexts.h"
#include "lifecycle/granules.h"
#include "lifecycle/history.h"
#include "lifecycle/residency.h"

#define MARKS_MAX 16 /* contexts a free can wait for by event; with more it synchronises */

enum allocation_state {
	ALLOCATION_UNUSED,   /* in the stock of records */
	ALLOCATION_LIVE,     /* the application's; in the granule table */
	ALLOCATION_DETACHED, /* freed: out of the table, pages wait for the work that may use them */
};

struct allocation {
	uint64_t address;       /* lock-free readers */
	uint64_t size_bytes;    /* as requested; lock-free readers */
	uint64_t span_bytes;    /* mapped: size rounded up to whole pages */
	uint64_t serial;        /* rises with every allocation of the process */
	int device;
	CUcontext context;      /* current at the allocation */
	uint64_t context_id;    /* handles are used again, ids are not */
	enum allocation_state state; /* RANK_RECORDS */
	struct backing backing; /* what is mapped; RANK_RECORDS while live, the mover's while `moving`, the reclaimer's while detached */
	struct host_extent *host; /* parked, host: the extents of the pool that hold its bytes, in order. As `backing` */
	enum residency residency; /* RANK_RECORDS, changed by the mover only */
	enum residency before;  /* RANK_RECORDS: at the hold of the barrier under way, when `noted` */
	bool noted;             /* the same */
	bool moving;            /* RANK_RECORDS: backing, host and residency are the mover's alone, until it says so */
	bool dead;              /* RANK_RECORDS: freed while moving; the mover hands it to the reclaimer */
	bool hashed;            /* the mover's: the hashes of `host` are those of its bytes */
	uint32_t rule;          /* number in the policy, RULE_NONE before one is known; written before it is published */
	const struct site *site; /* who made it, NULL: not looked for; the same */
	struct history_group *group; /* others like it, NULL: too many; the same */
	uint64_t since_ns;      /* the same */
	uint64_t buffer_id;     /* RANK_RECORDS: answered while it is not on the device, new with each departure */
	struct context_mark marks[MARKS_MAX]; /* the reclaimer's */
	uint32_t mark_count;
	bool marked;            /* marks cover everything that may use it */
	bool exposed;           /* RANK_RECORDS while live: its pages can be reached by a handle that is not ours */
	struct allocation *next, *previous; /* in the list of its state */
};

#define RULE_NONE UINT32_MAX

struct records {
	struct ranked_lock lock; /* RANK_RECORDS */
	struct granules *granules;
	struct allocation *live;  /* under lock */
	struct allocation *stock; /* unused records, by next; under lock */
	size_t live_count;
	uint64_t next_serial;
	uint64_t next_buffer_id; /* under lock */
	struct history history;  /* under lock */
	struct records_chunk *chunks;
};

void records_init(struct records *records, struct granules *granules);
void records_release(struct records *records);

/* An unused record, or NULL when memory ran out. Takes the lock. */
struct allocation *records_new(struct records *records);
/* Back to the stock; the record must not be in the table. */
void records_recycle(struct records *records, struct allocation *allocation);

/* Make a filled record findable (state LIVE). False when the table could not grow. Caller holds the lock. */
bool records_publish_locked(struct records *records, struct allocation *allocation);

/* What a question about an address needs, copied. */
struct allocation_view {
	uint64_t address, size_bytes, span_bytes, serial;
	uint32_t rule;
	int device;
	CUcontext context;
	enum residency residency;
	bool moving;
	uint64_t buffer_id;
};

/* A live allocation that was taken out of the table (state DETACHED). From then on it is the caller's alone, or, when it is
 * being moved, the mover's, which gives it to the reclaimer: then `allocation` is NULL and only the view is left. */
struct detached {
	struct allocation *allocation;
	struct allocation_view view;
};

/* Take out the allocation that starts at @address. False when none starts there. Takes the lock. */
bool records_detach(struct records *records, uint64_t address, struct detached *ret);
/* Undo a detach whose pages could not be given back. */
bool records_reattach(struct records *records, struct allocation *allocation);
/* Detach it once more, if it is still the live allocation of that serial. */
bool records_detach_same(struct records *records, struct allocation *allocation, uint64_t serial, struct detached *ret);
/* The next live allocation of a context that ends (any when NULL); false when there is none. */
bool records_detach_of_context(struct records *records, const struct context_end *end, struct detached *ret);

/* Pages of [@address, @address + @bytes) can be reached by a handle that the application holds (retained, exported): they
 * may outlive the allocation, so nobody else is given them. Foreign addresses are ignored. */
void records_expose(struct records *records, uint64_t address, uint64_t bytes);

/* Whose bytes are at @address? False when it is not inside what an application asked for (the rest of the last page
 * belongs to nobody). Cheap for foreign addresses: no lock. */
bool records_view(struct records *records, uint64_t address, struct allocation_view *ret_view);
/* Is @address the start of a live allocation? */
bool records_starts_at(struct records *records, uint64_t address);

#endif
