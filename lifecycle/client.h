/* lifecycle/client.h
 * This process as one of a session: joined to its coordinator, told the policy, asked to move what it has.
 *
 * A thread of Sublet's own keeps the connection: it joins when there is a coordinator, answers questions, and joins again,
 * with pauses that grow, when one is lost and comes back. A second one, started by the first request, waits in service_do.
 * Without a coordinator everything else works; addresses are stable and nothing moves.
 *
 * The descriptor lives in somebody else's process: a program that closes all of them and opens others is not written to. What
 * stands at its number is looked at before each use.
 * Neighbours: lifecycle/coordinator.h is the other side, lifecycle/service.h does what is asked. */
#ifndef SUBLET_LIFECYCLE_CLIENT_H
#define SUBLET_LIFECYCLE_CLIENT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/lock.h"
#include "lifecycle/protocol.h"

struct lifecycle;
struct client_policy;

enum { CLIENT_SESSION_BYTES = 512, CLIENT_REQUESTS = PROTOCOL_RULES_MAX /* as many as one command may ask for */, CLIENT_LATE = 8 };

/* Asked of the coordinator by a thread that waits. */
struct client_question {
	uint64_t serial; /* 0: none */
	bool answered;
	int fd; /* came along, or -1 */
	struct message_verdict verdict;
};

/* Given up on; when the answer comes after all, what it grants goes back. */
struct client_late {
	uint64_t serial, bytes, extent;
};

struct client_request {
	uint64_t serial;
	uint32_t connection; /* the one it came by; its answer goes there or nowhere */
	struct message_serve serve;
};

/* A descriptor in somebody else's process, and what it names as long as it is ours. */
struct client_socket {
	int fd; /* -1: none */
	dev_t device;
	ino_t inode;
};

enum client_thread { CLIENT_NO_THREAD, CLIENT_RUNNING, CLIENT_STOPPED };

struct client {
	struct ranked_lock lock; /* RANK_CLIENT: everything below but where it says otherwise */
	pthread_cond_t changed;	 /* a question was answered, a request came, the connection went, all ends */
	char session[CLIENT_SESSION_BYTES]; /* written before the threads start; empty: never joins */
	char given_role[PROTOCOL_ROLE_BYTES]; /* the same */
	struct client_socket socket; /* its fd is -1: not joined */
	uint32_t connection; /* counts joins */
	uint64_t serial;
	uint64_t pool_cap_bytes, host_bytes; /* ledger, as the coordinator has it */
	bool stop, said_alone;
	struct client_question question;
	struct client_late late[CLIENT_LATE];
	uint32_t late_next;
	struct client_request requests[CLIENT_REQUESTS]; /* a ring */
	uint32_t first_request, requests_count;
	enum client_thread reader, worker;
	const struct client_policy *policy; /* atomic; never freed once published, any thread may be reading it */
};

void client_init(struct client *client);
/* Join the session in folder @session, as @role (NULL or empty: what the policy makes of this process). Waits 1 s at most for a
 * coordinator that is there; then the thread goes on alone. No lock held; may allocate, calls no driver. */
void client_start(struct lifecycle *lc, const char *session, const char *role);
/* At process end: leave. What still runs makes no further call once this returns, or @wait_ns have passed. Before
 * service_stop. */
void client_stop(struct lifecycle *lc, uint64_t wait_ns);
/* Unit tests: stop, and wait for the threads. */
void client_release(struct lifecycle *lc);
/* In a forked child: the connection is the parent's. */
void client_forget(struct client *client);

struct allocation;
/* Which rule of the policy takes @allocation, which is being made; RULE_NONE while there is no policy. Caller holds
 * RANK_RECORDS, so that a policy that comes in this moment takes it too. No lock, no heap. */
uint32_t client_rule(const struct client *client, const struct allocation *allocation);

#endif
