/* lifecycle/needs.h
 * What a barrier is told of this process before anything moves (struct message_needs): the devices it is on, by UUID since every process
 * numbers them in its own way, and the bytes that would leave and come to each. */
#ifndef SUBLET_LIFECYCLE_NEEDS_H
#define SUBLET_LIFECYCLE_NEEDS_H

#include <stdbool.h>

#include "lifecycle/protocol.h"
#include "lifecycle/residency.h"

struct lifecycle;

/* The devices on which the process has a context, PROTOCOL_DEVICES at most. Any thread, no lock held; calls the driver, needs no context. */
void needs_devices(struct lifecycle *lc, struct message_devices *ret);

struct needs_wish {
	/* Where an allocation shall be. Called under RANK_RECORDS: no lock, no driver call. */
	enum residency (*wanted)(void *arg, const struct allocation *allocation);
	void *arg;
};

/* The whole of it. @asks_free: also how much of each device is free, for which contexts are made current: on the moving thread alone. */
void needs_count(struct lifecycle *lc, const struct needs_wish *wish, bool asks_free, struct message_needs *ret);

#endif
