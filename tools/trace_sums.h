/* tools/trace_sums.h
 * Adds up a trace: per phase, role and object the bytes over time, what moved and what it took; per phase and role what waited;
 * what barriers took. */
#ifndef SUBLET_TOOLS_TRACE_SUMS_H
#define SUBLET_TOOLS_TRACE_SUMS_H

#include "lifecycle/protocol.h"
#include "tools/trace_model.h"

enum { TRACE_STEPS = PROTOCOL_STEP_COUNT + 2 }; /* and the coordinator's two (trace_step_name) */

struct trace_moved {
	uint64_t count, bytes;
	uint64_t busy_ns; /* in which at least one of them was under way */
};

/* One object of one role in one phase. Where a role has several processes theirs are added, and the time is the longest of theirs. */
struct trace_sum {
	uint32_t phase, role, object;
	uint64_t time_ns;
	double byte_ns[POLICY_RESIDENCY_COUNT];
	uint64_t peak_bytes[POLICY_RESIDENCY_COUNT];
	uint64_t allocated, allocated_bytes, freed;
	struct trace_moved moved[POLICY_RESIDENCY_COUNT][POLICY_RESIDENCY_COUNT]; /* from, to */
	uint64_t failed;
};

struct trace_waits {
	uint32_t phase, role;
	uint64_t held_ns;   /* gates that were being shut, drains included */
	uint64_t shut_ns;   /* gates that were shut */
	uint64_t waited_ns; /* threads that asked for a phase */
	uint64_t holds, failed_holds, soft_services;
};

struct trace_barriers {
	uint32_t phase; /* that was to begin */
	uint64_t count, failed, bytes;
	uint64_t sum_ns, least_ns, most_ns;
	uint64_t step_ns[TRACE_STEPS], steps[TRACE_STEPS];
};

/* An object of a role over the whole trace. */
struct trace_object_sum {
	uint32_t role, object;
	uint64_t peak_bytes; /* wherever */
	uint64_t moves;
};

struct trace_sums {
	struct trace_sum *sums;
	size_t sums_count, sums_room;
	struct trace_waits *waits;
	size_t waits_count, waits_room;
	struct trace_barriers *barriers;
	size_t barriers_count, barriers_room;
	struct trace_object_sum *objects;
	size_t objects_count, objects_room;
	uint64_t events[TRACE_EVENT_COUNT];
	uint64_t refused, deaths;
	struct map by_key; /* phase, role, object -> place in sums, and 1 more */
};

/* Read all of @model. False: memory ran out. Release in any case. */
bool trace_sums_take(struct trace_sums *sums, struct trace_model *model);
void trace_sums_release(struct trace_sums *sums);

#endif
