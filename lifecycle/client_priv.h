/* lifecycle/client_priv.h
 * What the files of the client share. */
#ifndef SUBLET_LIFECYCLE_CLIENT_PRIV_H
#define SUBLET_LIFECYCLE_CLIENT_PRIV_H

#include "lifecycle/client.h"
#include "lifecycle/ledger.h"
#include "lifecycle/triggers.h"
#include "policy/block.h"

#define CLIENT_JOIN_NS 1000000000ull /* for all of a join */

struct move_report;

/* A policy in use. */
struct client_policy {
	struct policy policy;
	const void *bytes; /* mapped, sealed; NULL: the session has none */
	size_t size_bytes;
	uint32_t role;	   /* of this process in it, or POLICY_NONE */
	unsigned wants;	   /* enum caller_wants that some rule for this role asks for */
	bool has_pinned;
	struct ledger_terms terms; /* of device memory */
	struct triggers_policy triggers; /* what it asks of this process's events */
	const struct client_policy *older; /* the one before: kept, some thread may be reading it */
};

/* ---- client.c ---- */

/* Send @message by the connection @connection (0: whichever there is), with descriptor @pass_fd unless it is -1. Caller holds the
 * lock. False: that connection is gone. Waits up to a second for a coordinator that is slow to read. */
bool client_send(struct client *client, uint32_t connection, struct protocol_message *message, int pass_fd);
/* End the connection; the reading thread sees it and joins again. Caller holds the lock. */
void client_drop(struct client *client);
/* Wait for `changed`, until @deadline_ns at most. Caller holds the lock. */
void client_wait(struct client *client, uint64_t deadline_ns);

/* ---- client_policy.c ---- */

/* Map and check the policy of @bytes in @fd (0 bytes: none), find out this process's role in it, and give it to allocations, old
 * and new. @ret_role: the role's name. False with *reterr set; then the one before stays. Takes RANK_RECORDS. */
bool client_adopt_policy(struct lifecycle *lc, int fd, uint64_t bytes, char *ret_role, size_t room, struct errinfo *reterr);
const struct client_policy *client_policy(const struct client *client);
/* Unit tests: let go of all of them; no thread is left to read one. */
void client_release_policies(struct client *client);

/* ---- client_pool.c ---- */

void client_set_hooks(struct lifecycle *lc);
/* An answer to a question of this side; @fd is taken over. Caller holds the lock. */
void client_answered(struct client *client, const struct protocol_message *message, int fd);
/* Message RECALL. No lock held. */
void client_recall(struct lifecycle *lc, const struct protocol_message *message);

/* ---- client_ledger.c ---- */

void client_set_ledger(struct lifecycle *lc);
/* A connection begins: what was granted over the one before counts no more. Caller holds the lock. */
void client_forget_credit(struct lifecycle *lc);
/* And what this process uses is told. No lock held. */
void client_tell_devices(struct lifecycle *lc);
/* Messages DEVICE_CREDITED and DEVICE_SAY. No lock held. */
void client_device_credited(struct lifecycle *lc, const struct protocol_message *message);
void client_device_say(struct lifecycle *lc, const struct protocol_message *message);

/* ---- client_serve.c ---- */

void client_set_service(struct lifecycle *lc);
/* Messages LIST and SERVE. No lock held. */
void client_list(struct lifecycle *lc, uint32_t connection, uint64_t serial);
void client_serve(struct lifecycle *lc, uint32_t connection, const struct protocol_message *message);

void client_add_report(struct message_served *served, const struct move_report *report);
/* Have a worker. Caller holds the lock. 0, or the error of pthread_create. */
int client_ensure_worker(struct lifecycle *lc);
/* Have the worker do a step of a barrier. No lock held. */
void client_queue_step(struct lifecycle *lc, uint32_t connection, const struct protocol_message *message);

/* ---- client_phase.c ---- */

void client_set_phases(struct lifecycle *lc);
uint32_t client_current_phase(const struct client *client);
/* Message PHASE. No lock held. */
void client_told_phase(struct lifecycle *lc, const struct protocol_message *message);
/* Do a step and answer. No lock held. */
void client_do_step(struct lifecycle *lc, uint32_t connection, uint64_t barrier, const struct message_step *step);
/* The connection that a barrier's steps came by is gone. No lock held. */
void client_leave_barrier(struct lifecycle *lc);

/* ---- client_events.c ---- */

/* Tell the next one that is not told. False: there is none. Caller, the worker, holds the lock. */
bool client_tell_event(struct lifecycle *lc);
/* Until when the worker may sleep; and what is due then. Caller holds the lock; the second lets go of it for a line in the log. */
uint64_t client_events_deadline(const struct lifecycle *lc);
void client_events_late(struct lifecycle *lc);
/* The same for a look at the environment, where the policy has triggers for it. The first look is for who joins, so that what it begins
 * is waited for by the first gated call; the others are the worker's. No lock held. */
void client_look_at_environment(struct lifecycle *lc);
/* Message PHASE answers @serial; 0: it answers nobody. Caller holds the lock, which is let go of for a line in the log. */
void client_event_answered(struct lifecycle *lc, uint64_t serial, const struct message_phase *told);
/* The connection they were told by is gone, and the next may have another policy. Caller holds the lock. */
void client_events_drop(struct lifecycle *lc);
/* A hold of @barrier has failed and the gate opens: at the second time who waits for a phase goes on as well. No lock held. */
void client_reopened(struct lifecycle *lc, uint64_t barrier);

/* ---- client_inventory.c ---- */

/* Message TELL. No lock held. */
void client_tell(struct lifecycle *lc, uint32_t connection, uint64_t serial);

#endif
