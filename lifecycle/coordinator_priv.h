/* lifecycle/coordinator_priv.h
 * What the files of the coordinator share. One thread, so nothing is locked.
 * A peer that is dropped stays in the list, marked, until the events of this round are done: later ones may name it. */
#ifndef SUBLET_LIFECYCLE_COORDINATOR_PRIV_H
#define SUBLET_LIFECYCLE_COORDINATOR_PRIV_H

#include <stdbool.h>

#include "lifecycle/coordinator.h"
#include "lifecycle/endpoint.h"
#include "lifecycle/trace.h"
#include "policy/block.h"

enum {
	HELLO_WAIT_MS = 5000,	/* a connection that does not say who it is */
	RECALL_WAIT_MS = 1500,	/* until what others keep has come; who asked waits for 2 s */
	LIST_WAIT_MS = 2000,	/* a client's answer to "what do you have" */
	SAY_WAIT_MS = 500,	/* what a client can do without of its credit; another's allocation waits for it */
	SERVING_WAIT_MS = 5000, /* its word that a request was read */
	AWAY_WAIT_MS = 10000,	/* a process that lives on without its connection: it tries every 2 s */
};
#define SERVED_SLACK_NS (300ull * 1000000000ull) /* beyond the gate's own timeout: copies, and pinning memory for the first time */
#define ASKED_MAX 65536				 /* questions that wait for answers, in all */
#define CLIENT_QUEUE_BYTES (1u << 20)	/* answers that a client has not read */
#define CONTROL_QUEUE_BYTES (64u << 20) /* the same for a command, which is told of all clients */

enum watch_kind { WATCH_LISTENER, WATCH_SIGNALS, WATCH_SOCKET, WATCH_PROCESS };

/* What epoll names. */
struct watch {
	enum watch_kind kind;
	struct peer *peer;
};

struct outgoing {
	struct outgoing *next;
	int fd; /* to be passed along and then closed, or -1 */
	int borrowed_fd; /* to be passed along, the coordinator's own, or -1 */
	struct protocol_message message; /* only its length of it is there */
};

struct peer {
	struct peer *next;
	uint32_t kind; /* enum protocol_peer, 0 before its hello */
	int fd;	       /* -1: closed; a process that is only waited for */
	uint64_t away_since_ns; /* of a client whose process lives on without its connection; 0: it has one */
	int pidfd;     /* -1: cannot be watched, its socket's end is its end */
	pid_t pid;     /* 0: outside this namespace */
	bool without_gpu; /* begins phases as a command does, and has nothing to move */
	bool joined;   /* has read the policy */
	bool triggers; /* has arrived at some phase: it counts for a quorum */
	bool recalled; /* asked for what it keeps, and has not said that this was all */
	bool gave;     /* some of it, since then */
	bool in_barrier, asked_step, asked_release; /* the barrier's */
	bool candidate;	  /* for taking part in it */
	bool would_move;  /* said so when it was asked for its plan */
	bool has_arrived; /* its role has, at the phase that begins */
	bool stuck;	  /* in an exchange, for want of room */
	struct message_needs needs; /* as it said last; the devices also with an arrival */
	bool keeps;    /* a `sublet run`: reason enough to stay */
	bool dropped;
	bool wants_write; /* as epoll knows it */
	uint64_t since_ns;
	uint64_t host_bytes; /* ledger: what it has credit for */
	char role[PROTOCOL_ROLE_BYTES], command[PROTOCOL_COMMAND_BYTES];
	struct outgoing *first_out, *last_out;
	size_t out_bytes;
	struct watch socket_watch, process_watch;
};

enum request_kind { REQUEST_STATUS, REQUEST_SERVE, REQUEST_INVENTORY };

/* Asked by a command. */
struct request {
	struct request *next;
	struct peer *control; /* NULL: gone meanwhile */
	uint64_t serial;
	enum request_kind kind;
	bool is_cut; /* not all clients could be asked */
	uint32_t waiting; /* asked entries without an answer */
	uint32_t count;	  /* of rows sent */
};

/* One question to one client. */
struct asked {
	struct asked *next;
	struct request *request;
	struct peer *client; /* NULL: gone; kept for the rows of a status */
	uint64_t serial;
	uint64_t deadline_ns, served_deadline_ns;
	uint32_t rule;
	bool done, answered;
	struct message_client who; /* for the row of a status, and when the client is gone */
	struct message_row *rows;
	uint32_t rows_count;
};

/* An extent whose bytes a descriptor keeps. */
struct extent_fd {
	struct extent_fd *next;
	uint64_t bytes;
	uint64_t number; /* the owner's for it */
	int fd;
	struct peer *owner; /* NULL: nobody uses it; its process has ended, or has left it to the session */
};

/* A client that needs host bytes, while others are asked for what they keep. */
struct pool_wait {
	struct pool_wait *next;
	struct peer *client;
	uint64_t bytes, number; /* number: its own for the extent, 0: it asks for credit alone */
	uint64_t serial, deadline_ns;
};

struct pool {
	uint64_t cap_bytes;
	uint64_t orphan_bytes; /* of extents without an owner */
	struct extent_fd *extents;
	uint32_t count, count_max;
	struct pool_wait *waits; /* in the order they came */
	uint64_t next_recall;
};

/* What one process has of one device. */
struct device_share {
	struct device_share *next;
	struct peer *peer; /* NULL: gone, swept at the next tick */
	uint64_t credit_bytes, used_bytes, native_bytes, budget_bytes; /* as it said last */
	uint64_t said; /* serial of the last DEVICE_SAY to it, */
	uint64_t told; /* and of the last that it has answered */
};

struct device_row {
	struct device_row *next;
	uint8_t uuid[PROTOCOL_UUID_BYTES];
	uint64_t total_bytes;
	struct device_share *shares;
};

/* A process waits for credit while others say what they can do without. */
struct device_wait {
	struct device_wait *next;
	struct peer *peer; /* NULL: gone */
	struct device_row *row;
	uint64_t serial, credit_bytes, wanted_bytes;
	uint64_t said_from; /* serials from here on were said for it */
	uint64_t deadline_ns;
	bool done;
};

struct device_ledger {
	struct device_row *rows; /* never removed: there are as many as devices */
	uint32_t rows_count;
	struct device_wait *waits; /* in the order they came */
};

enum barrier_step {
	STEP_PLAN = PROTOCOL_STEP_PLAN,
	STEP_HOLD = PROTOCOL_STEP_HOLD,
	STEP_REOPEN = PROTOCOL_STEP_REOPEN,
	STEP_REVERSE = PROTOCOL_STEP_REVERSE,
	STEP_OPEN = PROTOCOL_STEP_OPEN,
	STEP_EXCHANGE = PROTOCOL_STEP_EXCHANGE,
	STEP_MOVE = PROTOCOL_STEP_COUNT, /* RELEASE and ACQUIRE */
	STEP_PAUSE, /* between a hold that failed and the next: nobody is asked anything */
};

/* Somebody wants @phase to begin. */
struct arrival {
	struct arrival *next;
	struct peer *peer; /* NULL: gone */
	uint64_t serial;   /* of what it waits for */
	uint32_t phase;
	uint32_t rows; /* told a command so far */
	uint64_t timeout_ns, since_ns;
	bool due;
};

enum { DEVICES_MAX = 64 };

/* Devices change phase with the processes on them: those elsewhere are not waited for. */
struct device_phase {
	unsigned char uuid[PROTOCOL_UUID_BYTES];
	uint32_t phase; /* in force there, or POLICY_NONE */
	bool in_barrier;
};

struct barrier {
	uint64_t clock; /* phases that have begun; 0: none yet */
	uint32_t phase; /* that began last, or POLICY_NONE */
	struct device_phase devices[DEVICES_MAX];
	uint32_t devices_count;
	bool all;    /* this one is for all devices */
	bool final;  /* not tried again */
	uint32_t tries; /* of the hold */
	uint64_t stuck_since_ns; /* all who still exchange are; 0: not all */
	bool told_room;
	uint64_t gone_ns; /* when a participant was last found gone, 0: never in this barrier; its device memory takes its time to be free */
	bool active;
	uint64_t id;
	uint32_t to;
	enum barrier_step step;
	uint64_t step_since_ns; /* the trace's */
	uint64_t since_ns, deadline_ns, step_deadline_ns, try_ns, pause_until_ns;
	bool failed, good, releasing;
	uint64_t moved_bytes;
	char text[PROTOCOL_TEXT_BYTES]; /* why it failed */
	struct arrival *arrivals, *answering; /* in the order they came */
};

struct coordinator {
	const char *session;
	int folder_fd, lock_fd, listener, epoll, signals, spare_fd;
	int policy_fd; /* sealed; -1: none */
	const void *policy_bytes; /* mapped from policy_fd */
	struct policy policy;
	uint64_t policy_size;
	const char *policy_name;
	uint64_t linger_ns, alone_since_ns; /* 0: not alone */
	bool stopping;
	uint64_t next_serial;
	struct trace trace;
	struct peer *peers;
	uint32_t peers_count, peers_max;
	struct request *requests;
	struct asked *asked;
	uint32_t asked_count;
	struct pool pool;
	struct device_ledger devices;
	struct barrier barrier;
	struct watch listener_watch, signals_watch;
};

/* ---- coordinator_peers.c ---- */

/* Take in who waits at the listener. */
void peers_accept(struct coordinator *c);
/* Send @message; what does not go at once is queued. @own_fd is closed when it has gone (or cannot), @borrowed_fd is not; -1: none.
 * A peer that reads nothing is dropped. */
void peer_send(struct coordinator *c, struct peer *peer, struct protocol_message *message, int own_fd, int borrowed_fd);
void peer_flush(struct coordinator *c, struct peer *peer);
/* Close the connection, with @text as a refusal where there is one, and one line in the log. */
void peer_refuse(struct coordinator *c, struct peer *peer, const char *text);
/* The same when the other side has closed it, or its process has ended. A client whose process lives on still uses its extents: until
 * that ends, comes back or has been away for long, they and its share of the ledger stay its own. */
void peer_left(struct coordinator *c, struct peer *peer, bool process_ended);
/* @peer says hello: what its process had before is what it says now. */
void peer_came_back(struct coordinator *c, struct peer *peer);
/* Is host memory counted for a process other than @but (may be NULL) that is away? It may be about to end, and then that is free. */
bool peers_away_hold(const struct coordinator *c, const struct peer *but);
/* Those that are away for too long are given up. Returns when to call again, UINT64_MAX: nobody is away. */
uint64_t peers_expire(struct coordinator *c, uint64_t now_ns);
/* The coordinator ends; they go on. */
void peers_drop_all(struct coordinator *c);
/* Free those that were dropped. */
void peers_bury(struct coordinator *c);
/* "pid 4242 (train)" */
const char *peer_name(const struct peer *peer, char *text, size_t room);

/* ---- coordinator_requests.c ---- */

void request_status(struct coordinator *c, struct peer *control, uint64_t serial);
void request_serve(struct coordinator *c, struct peer *control, const struct protocol_message *message);
void request_inventory(struct coordinator *c, struct peer *control, uint64_t serial);
/* Answers of clients. False: nobody asked that. */
bool request_listed(struct coordinator *c, struct peer *client, const struct protocol_message *message);
/* *@fd is taken over, and set to -1, where it is passed on. */
bool request_told(struct coordinator *c, struct peer *client, const struct protocol_message *message, int *fd);
bool request_serving(struct coordinator *c, struct peer *client, uint64_t serial);
bool request_served(struct coordinator *c, struct peer *client, const struct protocol_message *message);
/* @peer is gone: its questions lapse, and what it was asked is answered for it. */
void requests_peer_gone(struct coordinator *c, struct peer *peer);
/* Answer for those who are late. Returns when to call again, UINT64_MAX: nobody is waited for. */
uint64_t requests_expire(struct coordinator *c, uint64_t now_ns);
void requests_release(struct coordinator *c);
/* The last message of an answer. */
void control_end(struct coordinator *c, struct peer *control, uint64_t serial, uint32_t count, enum sublet_err error,
	const char *text);

/* ---- coordinator_barrier.c ---- */

/* @peer wants @phase to begin. Answered with PHASE (and END for a command) when it has, or will not. */
void barrier_arrive(struct coordinator *c, struct peer *peer, uint64_t serial, uint32_t phase, uint64_t timeout_ns);
/* An answer of a client. False: nobody asked that. */
bool barrier_stepped(struct coordinator *c, struct peer *peer, const struct protocol_message *message);
void barrier_peer_gone(struct coordinator *c, struct peer *peer);
/* Tell @peer which phase is in force. */
void barrier_tell(struct coordinator *c, struct peer *peer);
/* What is due. Returns when to call again, UINT64_MAX: after the next message. */
uint64_t barrier_tick(struct coordinator *c, uint64_t now_ns);
void barrier_release(struct coordinator *c);
const char *barrier_phase_name(const struct coordinator *c, uint32_t phase);
/* Message STUCK. */
void barrier_stuck(struct coordinator *c, struct peer *peer, const struct protocol_message *message);

/* ---- coordinator_judge.c ---- */

bool devices_have(const struct message_devices *devices, const unsigned char *uuid);
bool devices_meet(const struct message_devices *one, const struct message_devices *other);
/* Its row, a new one when it was never seen; NULL: there are too many. */
struct device_phase *device_phase_of(struct coordinator *c, const unsigned char *uuid);
/* In force on the device; where no barrier was about it yet, what its processes were told when they joined. */
uint32_t phase_on(const struct coordinator *c, const unsigned char *uuid);
/* In force for @peer. */
uint32_t phase_of(const struct coordinator *c, const struct peer *peer);
/* The barrier is about the devices of @peer. */
void judge_add_devices(struct coordinator *c, const struct peer *peer);
/* Of those that said what they would move, leave only who shares a device with what the barrier is about. */
void judge_participants(struct coordinator *c);
enum verdict { VERDICT_MOVE, VERDICT_EXCHANGE, VERDICT_NO_DEVICE, VERDICT_NO_HOST };
/* Does what they would move fit? When not, @text names what is missing and who needs it. */
enum verdict judge(struct coordinator *c, char *text, size_t room);

/* ---- coordinator_ledger.c ---- */

/* What the policy's capacity leaves of a device for managed memory of the processes in the barrier, by what the others said last; UINT64_MAX:
 * it has none. */
uint64_t credits_room(const struct coordinator *c, const unsigned char *uuid);
/* Messages DEVICE_CREDIT and DEVICE_HAVE of a client. False with *reterr set: no client of ours sends that. */
bool credits_message(struct coordinator *c, struct peer *client, const struct protocol_message *message, struct errinfo *reterr);
bool credits_has(const struct coordinator *c, const struct peer *client);
/* Its share is the others'. */
void credits_client_gone(struct coordinator *c, struct peer *client);
/* Have @client say what it uses, before its next answer. */
void credits_ask(struct coordinator *c, struct peer *client);
/* Tell a command: the sums of the session for each device (@client NULL), or what @client has. */
void credits_show(struct coordinator *c, struct peer *control, uint64_t serial, const struct peer *client);
/* Answer who waits for credit, where that is decided. Returns when to call again, UINT64_MAX: nobody waits. */
uint64_t credits_tick(struct coordinator *c, uint64_t now_ns);
void credits_release(struct coordinator *c);

/* ---- coordinator_pool.c ---- */

void pool_init(struct pool *pool, uint64_t cap_bytes, uint32_t count_max);
void pool_release(struct pool *pool);
uint64_t pool_used_bytes(const struct coordinator *c);
/* Messages CREDIT, GIVE, TAKE, MADE, LEAVE and RECALLED of a client; *@fd is taken over (and set to -1) where it is kept. False with *reterr
 * set: no client of ours sends that. */
bool pool_message(struct coordinator *c, struct peer *client, const struct protocol_message *message, int *fd, struct errinfo *reterr);
/* Nobody is left who waits for the answers to @client's questions, or brings one. */
void pool_connection_gone(struct coordinator *c, struct peer *client);
/* What @client had is nobody's now. When its process has ended its extents with a descriptor are kept, up to the cap; else they are
 * closed here, as its own handles may be in use: another that took one would write into its bytes. */
void pool_client_gone(struct coordinator *c, struct peer *client, bool process_ended);
/* Answer those for whom nothing was let go of in time. Returns when to call again, UINT64_MAX: nobody waits. */
uint64_t pool_expire(struct coordinator *c, uint64_t now_ns);
/* Close kept extents until @bytes more would fit under the cap. */
bool pool_make_room(struct coordinator *c, uint64_t bytes, uint64_t but_bytes);
/* While the session had no coordinator each process kept to the cap for itself, and all together may be above it now: then what they
 * only keep is recalled. */
void pool_trim(struct coordinator *c);

/* Rows of the coordinator's own trace (coordinator_trace.c); without one each costs a load. */
void coordinator_trace_begin(struct coordinator *c, const char *folder, uint64_t ring_bytes);
void coordinator_trace_end(struct coordinator *c);
/* @phase: a number of the policy, or POLICY_NONE. */
void coordinator_trace_peer(struct coordinator *c, enum trace_event event, const struct peer *peer, uint32_t phase, uint64_t bytes);
/* The barrier's step is over; then the barrier is. */
void coordinator_trace_step(struct coordinator *c);
void coordinator_trace_barrier(struct coordinator *c);

#endif
