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
#include "lifecycle/stats.h"

struct lifecycle;
struct client_policy;

enum { CLIENT_SESSION_BYTES = 512, CLIENT_REQUESTS = PROTOCOL_RULES_MAX /* as many as one command may ask for */, CLIENT_LATE = 8,
	CLIENT_EVENTS = 16,
	CLIENT_STEPS = 4 /* the way back of one barrier, and the two that another asks for at once */ };

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

/* On the stack of a thread that waits for a phase to begin. */
struct client_arrival {
	struct client_arrival *next;
	uint64_t serial;
	bool done;
	enum sublet_err error;
	char text[PROTOCOL_TEXT_BYTES];
};

/* An event of the program has begun a phase. */
struct client_event {
	uint32_t phase;
	uint64_t serial; /* of its ARRIVE; 0: not told yet */
};

/* A step of a barrier, to be done by the worker. */
struct client_step {
	uint32_t connection;
	uint64_t barrier;
	struct message_step step;
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

/* Of a device, as the session's ledger of device memory has it. */
struct client_device {
	int uuid_state; /* enum client_uuid, atomic */
	unsigned char uuid[PROTOCOL_UUID_BYTES]; /* once it is known */
	uint64_t last_serial; /* of what was last said of it; the answer to that says what credit there is */
	bool awaits; /* that answer */
	bool uncounted; /* more may be used than was ever said or asked for */
};
enum client_uuid { CLIENT_UUID_UNASKED, CLIENT_UUID_BUSY, CLIENT_UUID_KNOWN, CLIENT_UUID_NONE };

/* Asked by a thread that waits; one at a time. */
struct client_device_question {
	uint64_t serial; /* 0: none */
	bool answered;
	struct message_device_verdict verdict;
};

enum client_thread { CLIENT_NO_THREAD, CLIENT_RUNNING, CLIENT_STOPPED };

struct client {
	struct ranked_lock lock; /* RANK_CLIENT: everything below but where it says otherwise */
	pthread_cond_t changed;	 /* a question was answered, a request came, the connection went, all ends */
	char session[CLIENT_SESSION_BYTES]; /* written before the threads start; empty: never joins */
	char given_role[PROTOCOL_ROLE_BYTES]; /* the same */
	bool without_gpu; /* it begins phases, and that is all; written before the threads start */
	struct client_socket socket; /* its fd is -1: not joined */
	uint32_t connection; /* counts joins */
	uint64_t serial;
	uint64_t pool_cap_bytes, host_bytes; /* ledger, as the coordinator has it */
	bool stop, said_alone;
	struct client_question question;
	struct client_late late[CLIENT_LATE];
	uint32_t late_next;
	struct client_device devices[STATS_DEVICES];
	struct client_device_question device_question;
	bool said_unasked; /* that nobody can be asked for device memory; since the last join */
	struct client_request requests[CLIENT_REQUESTS]; /* a ring */
	uint32_t first_request, requests_count;
	struct client_step steps[CLIENT_STEPS]; /* in their order */
	uint32_t steps_count;
	uint64_t barrier; /* whose step is being done */
	bool in_barrier; /* from a hold to the opening of the gate; the worker's */
	bool release_failed; /* in this barrier: then nothing is acquired; the worker's */
	bool lost; /* the connection went since the worker last looked */
	struct client_arrival *arrivals;
	struct client_event events[CLIENT_EVENTS]; /* that are not answered, in their order */
	uint32_t events_count;
	uint64_t look_ns; /* when the environment is looked at again; 0: no trigger asks for it */
	uint32_t environment_phase; /* that the environment asked for when last looked at, plus 1; 0: none */
	const struct client_policy *environment_policy; /* and by which policy */
	uint64_t events_until_ns; /* as long gated calls wait for the answers */
	uint64_t reopened; /* number of the barrier in which the gate was last opened again after a hold that failed */
	uint64_t clock; /* of the phase in force, as told */
	uint32_t phase; /* that is in force, plus 1; 0: none. Atomic, written under the lock */
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
/* Before client_stop, for another client of this process: what events of the program have begun and nobody has answered, in its order.
 * Returns how many; they are forgotten here. */
size_t client_take_events(struct lifecycle *lc, uint32_t phases[CLIENT_EVENTS]);
/* An event of the program begins @phase: the session is told, and gated calls wait from now on. On a thread of the program, inside its NVTX
 * call or in front of its launch; waits for nobody. No lock held. @lc: the lifecycle. */
void client_note_event(void *lc, uint32_t phase);
/* Unit tests: stop, and wait for the threads. */
void client_release(struct lifecycle *lc);
/* In a forked child: the connection is the parent's. */
void client_forget(struct client *client);

/* This process has arrived at the phase called @name, if the policy lets a program of its role begin it. Returns when that has begun
 * for the whole session, or will not: then *reterr says why. No lock held; on any thread. Waits as long as the others take. */
enum sublet_err client_arrive_at(struct lifecycle *lc, const char *name, struct errinfo *reterr);

struct allocation;
struct caller;
/* Which rule of the policy takes @allocation, which is being made; RULE_NONE while there is no policy. @caller is
 * who makes it. Caller holds RANK_RECORDS, so that a policy that comes in this moment takes it too. No lock, no heap. */
uint32_t client_rule(const struct client *client, const struct allocation *allocation, const struct caller *caller);

#endif
