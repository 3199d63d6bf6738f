/* lifecycle/trace_note.h
 * What lifecycle/ tells the trace, one call for each place where something happens. Without a trace each costs a load.
 * None calls the driver but trace_note_device_free; none takes a lock, those that are about a site or a policy excepted (RANK_TRACE). */
#ifndef SUBLET_LIFECYCLE_TRACE_NOTE_H
#define SUBLET_LIFECYCLE_TRACE_NOTE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/errors.h"
#include "lifecycle/records.h"
#include "lifecycle/trace.h"

struct lifecycle;
struct client_policy;
struct message_step;
struct message_stepped;

/* The beginning and the end of the file. A folder that cannot be used is said in one line. */
void trace_note_begin(struct lifecycle *lc);
void trace_note_end(struct lifecycle *lc);

/* Caller holds RANK_RECORDS in these four, so that an allocation's rows come in their order. */
void trace_note_allocated(struct lifecycle *lc, const struct allocation *allocation);
void trace_note_object(struct lifecycle *lc, const struct allocation *allocation);
void trace_note_become(struct lifecycle *lc, const struct allocation *allocation, enum residency to, uint64_t since_ns, bool way_back);
void trace_note_policy(struct lifecycle *lc, const struct client_policy *policy);

void trace_note_freed(struct lifecycle *lc, const struct allocation_view *view);
void trace_note_given_back(struct lifecycle *lc, const struct allocation *allocation, uint64_t bytes);
void trace_note_move_failed(struct lifecycle *lc, const struct residency_move *move, const struct errinfo *error);

void trace_note_held(struct lifecycle *lc, uint64_t begun_ns, enum sublet_err err);
void trace_note_opened(struct lifecycle *lc);
void trace_note_soft_service(struct lifecycle *lc, uint64_t begun_ns, uint64_t moved_bytes, enum sublet_err err);

void trace_note_joined(struct lifecycle *lc, const char *role);
void trace_note_phase(struct lifecycle *lc, uint32_t phase);
void trace_note_waited(struct lifecycle *lc, uint32_t phase, uint64_t begun_ns);
void trace_note_step(struct lifecycle *lc, uint64_t barrier, const struct message_step *step, const struct message_stepped *stepped,
	uint64_t begun_ns);

void trace_note_host_pool(struct lifecycle *lc);
/* Native bytes have changed, perhaps: written when they have, not more often than each 10 ms unless @at_once. */
void trace_note_native(struct lifecycle *lc, bool at_once);
/* What the driver says is free, of each device. On a thread of Sublet's own, within driver_enter. */
void trace_note_device_free(struct lifecycle *lc);

#endif
