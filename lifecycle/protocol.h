/* lifecycle/protocol.h
 * Messages over SOCK_SEQPACKET: a header that never changes its shape, then one body. Structs as they lie in memory, since a
 * message never leaves its machine; every field has a fixed width, every text ends in NUL within its array, and what is not
 * used is zero. Nothing is believed before protocol_decode has looked at it, on either side.
 *
 * No CUDA here: tools/ includes this header. Neighbours: lifecycle/endpoint.h carries messages, docs/protocol.md tells the
 * exchange. */
#ifndef SUBLET_LIFECYCLE_PROTOCOL_H
#define SUBLET_LIFECYCLE_PROTOCOL_H

#include <stddef.h>
#include <stdint.h>

#include "base/errors.h"
#include "policy/decide.h"

#define PROTOCOL_MAGIC 0x544c4253u /* "SBLT" */
#define PROTOCOL_VERSION 4u

enum {
	PROTOCOL_ROLE_BYTES = 68,     /* a policy's name has 64 letters at most */
	PROTOCOL_COMMAND_BYTES = 64,  /* enough to know a process by */
	PROTOCOL_TEXT_BYTES = 256,    /* one line */
	PROTOCOL_ROWS_MAX = 64,	      /* objects in one message; more come in several */
	PROTOCOL_RULES_MAX = 256,     /* objects named in one request */
	PROTOCOL_UUID_BYTES = 16,     /* of a device: processes number them each in their own way */
	PROTOCOL_DEVICES = 16,	      /* of one process; more than a node has */
};
#define PROTOCOL_AMOUNT_MAX (1ull << 50) /* more host bytes than there are; sums of them stay far from the end of 64 bits */
#define PROTOCOL_ALL UINT32_MAX	 /* as an object's number: all of them; in a row: no policy says which it is */
#define PROTOCOL_EVERYTHING "everything" /* what people call that */

enum protocol_type {
	PROTOCOL_NONE,
#define MESSAGE(name, body, way, fds) PROTOCOL_##name,
#include "lifecycle/protocol.def"
	PROTOCOL_TYPE_COUNT
};

enum protocol_way { PROTOCOL_UP, PROTOCOL_DOWN };
enum protocol_peer { PEER_CLIENT = 1, PEER_CONTROL = 2 };
enum protocol_verb { VERB_OFFLOAD, VERB_PARK, VERB_RESTORE, VERB_DISCARD, VERB_COUNT };

/* The first three fields keep their places in every version, so that versions can tell each other apart. */
struct message_header {
	uint32_t magic;
	uint16_t version;
	uint16_t type;	 /* enum protocol_type */
	uint32_t length; /* of the whole message */
	uint32_t spare;	 /* 0 */
	uint64_t serial; /* chosen by who asks; an answer carries its question's */
};

struct message_empty {
	uint64_t spare; /* 0; C has no empty structs */
};

struct message_hello {
	uint32_t peer;	       /* enum protocol_peer */
	int32_t pid;	       /* as the process itself sees it; the credentials of the socket count */
	uint64_t host_bytes;   /* host extents it has from before: a coordinator was there, and is no more */
	char role[PROTOCOL_ROLE_BYTES]; /* given by SUBLET_ROLE, or empty */
	char command[PROTOCOL_COMMAND_BYTES];
	uint32_t without_gpu; /* 1: it only begins phases, and takes part in no barrier */
};

struct message_welcome {
	int32_t pid;	       /* of the coordinator */
	uint32_t spare;	       /* 0 */
	uint64_t policy_bytes; /* 0: the session has no policy, and no descriptor comes along */
	uint64_t pool_bytes;   /* cap of the host pool */
	char policy_name[PROTOCOL_TEXT_BYTES];
};

struct message_refused {
	char text[PROTOCOL_TEXT_BYTES]; /* what is wrong, and the fix */
};

struct message_joined {
	char role[PROTOCOL_ROLE_BYTES]; /* what it is in the policy, once it has read that */
};

struct message_amount {
	uint64_t bytes;	 /* above 0 */
	uint64_t extent; /* MADE, TAKE, LEAVE: the client's number for it, above 0; GIVE: whose descriptor is closed, 0: there is none; else 0 */
};

struct message_recall {
	uint64_t bytes;	     /* so many are needed, above 0 */
	uint64_t size_bytes; /* in extents of this size, if there are any */
};

struct message_verdict {
	uint32_t granted; /* 0 or 1 */
	uint32_t spare;	  /* 0 */
	char text[PROTOCOL_TEXT_BYTES];
};

struct message_row {
	uint32_t rule; /* of the policy, or PROTOCOL_ALL */
	uint32_t count;
	uint64_t bytes[POLICY_RESIDENCY_COUNT];
};

/* Sent only as long as its rows are. */
struct message_listed {
	uint32_t count; /* of rows, at most PROTOCOL_ROWS_MAX */
	uint32_t more;	/* 1: another message with more of them follows */
	struct message_row rows[PROTOCOL_ROWS_MAX];
};

struct message_serve {
	uint32_t verb; /* enum protocol_verb */
	uint32_t rule; /* or PROTOCOL_ALL */
	uint64_t timeout_ns;
};

struct message_served {
	uint32_t error; /* enum sublet_err */
	uint32_t moved, already, skipped, failed; /* allocations */
	uint32_t spare;				  /* 0 */
	uint64_t moved_bytes, already_bytes, skipped_bytes, holes;
	uint64_t total_ns, copy_ns; /* struct move_report */
	char text[PROTOCOL_TEXT_BYTES]; /* of the error, or what else there is to say */
};

struct message_session {
	int32_t pid;
	uint32_t clients;
	uint64_t pool_bytes;	  /* cap */
	uint64_t pool_used_bytes; /* what all processes hold, and what is kept */
	uint64_t pool_kept_bytes; /* of processes that have ended */
	uint64_t clock;	   /* phases that have begun */
	uint32_t phase;	   /* that is in force, or POLICY_NONE */
	uint32_t to_phase; /* of the barrier under way, or POLICY_NONE */
	char policy_name[PROTOCOL_TEXT_BYTES]; /* empty: none */
};

struct message_client {
	int32_t pid;
	uint32_t answered; /* 0: it did not say in time what it has; no objects follow */
	uint64_t host_bytes;
	char role[PROTOCOL_ROLE_BYTES];
	char command[PROTOCOL_COMMAND_BYTES];
};

/* Sent only as long as its rules are. */
struct message_ask_serve {
	uint32_t verb;	 /* enum protocol_verb */
	int32_t pid;	 /* 0: any */
	uint64_t timeout_ns;
	char role[PROTOCOL_ROLE_BYTES]; /* empty: any */
	uint32_t count; /* 0: all of them */
	uint32_t rules[PROTOCOL_RULES_MAX];
};

struct message_outcome {
	int32_t pid;
	uint32_t rule;
	char role[PROTOCOL_ROLE_BYTES];
	char command[PROTOCOL_COMMAND_BYTES];
	uint32_t spare; /* 0 */
	struct message_served served;
};

enum protocol_step {
	PROTOCOL_STEP_PLAN,    /* how much would you move? */
	PROTOCOL_STEP_HOLD,    /* shut the gate and drain, within timeout_ns */
	PROTOCOL_STEP_REOPEN,  /* not all were held */
	PROTOCOL_STEP_RELEASE, /* move what leaves the device */
	PROTOCOL_STEP_ACQUIRE, /* and what comes to it: asked along with RELEASE, done behind it */
	PROTOCOL_STEP_ROOM,    /* all processes have released: no more room will come. No answer */
	PROTOCOL_STEP_REVERSE, /* back to where it was at the hold */
	PROTOCOL_STEP_OPEN,    /* open the gate, unless there are holes */
	PROTOCOL_STEP_EXCHANGE, /* before RELEASE, where host memory has no room for all: extent by extent, in both directions */
	PROTOCOL_STEP_COUNT
};

/* On which devices a process is. */
struct message_devices {
	uint32_t count;
	uint32_t spare; /* 0 */
	unsigned char uuid[PROTOCOL_DEVICES][PROTOCOL_UUID_BYTES];
};

struct message_arrive {
	uint32_t phase; /* number in the policy */
	uint32_t spare; /* 0 */
	uint64_t timeout_ns; /* for the barrier; 0: the policy's */
	struct message_devices devices; /* of the process; of a command none: it means all */
};

/* What a barrier would do to one device, from one process. */
struct message_need {
	uint64_t free_bytes;   /* of the device, as this process sees it; 0: not asked */
	uint64_t leaves_bytes; /* of the process's memory there */
	uint64_t discards_bytes; /* of these, without a copy */
	uint64_t comes_bytes;
	uint64_t used_bytes;   /* of the policy's capacity, by this process, when it was asked for what is free */
};

struct message_needs {
	struct message_devices devices;
	struct message_need need[PROTOCOL_DEVICES]; /* of each of them */
	uint64_t host_takes_bytes; /* extents that are needed */
	uint64_t host_gives_bytes; /* extents that are needed no more when it is through */
	uint64_t host_kept_bytes;  /* and such as are not needed now */
	uint64_t largest_bytes;	   /* extent of what is copied */
};

struct message_phase {
	uint64_t clock; /* phases that have begun; 0: none yet, and phase is POLICY_NONE */
	uint32_t phase;
	uint32_t error; /* enum sublet_err: the phase that was asked for did not begin */
	char text[PROTOCOL_TEXT_BYTES];
};

struct message_step {
	uint32_t step; /* enum protocol_step */
	uint32_t phase;
	uint32_t arrived; /* 1: the process's role has arrived there */
	uint32_t spare;	  /* 0 */
	uint64_t timeout_ns; /* HOLD: for this try */
	uint64_t patience_ns; /* until the barrier is given up */
};

struct message_stepped {
	uint32_t step;
	uint32_t spare; /* 0 */
	struct message_served served;
	struct message_needs needs; /* PLAN and HOLD */
};

/* In an exchange: neither direction finds room (1), or one does again (0). */
struct message_stuck {
	uint32_t stuck;
	uint32_t spare; /* 0 */
};

struct message_told {
	uint64_t bytes; /* of the file that comes along; 0: none does, there was no memory for it */
};

struct message_inventory {
	struct message_client client;
	uint64_t bytes; /* the same */
};

/* What a process has of a device. */
struct message_device_use {
	uint8_t uuid[PROTOCOL_UUID_BYTES];
	uint64_t total_bytes;  /* of the device, above 0 */
	uint64_t credit_bytes; /* CREDIT: what it needs, with all it has; HAVE: what it keeps */
	uint64_t wanted_bytes; /* CREDIT: what it would like, no less than that; HAVE: 0 */
	uint64_t used_bytes, native_bytes;
	uint64_t budget_bytes; /* of its role; 0: none */
	uint64_t answers;      /* HAVE: serial of the DEVICE_SAY that it answers, or 0 */
	uint32_t keeps;	       /* 1, HAVE: its credit is what it was, and no answer is needed */
	uint32_t spare;	       /* 0 */
};

struct message_device_verdict {
	uint32_t granted; /* 0 or 1 */
	uint32_t spare;	  /* 0 */
	uint64_t credit_bytes; /* what it has from now on */
	char text[PROTOCOL_TEXT_BYTES];
};

struct message_device_say {
	uint8_t uuid[PROTOCOL_UUID_BYTES]; /* all zero: of each */
	uint32_t keeps; /* 0: and give back what you do not use; 1: only say it */
	uint32_t spare; /* 0 */
};

/* Behind SESSION: sums of all processes; behind CLIENT: what that one has. */
struct message_device {
	uint8_t uuid[PROTOCOL_UUID_BYTES];
	uint64_t total_bytes, capacity_bytes; /* the latter 0: none; with `reserve` in it */
	uint64_t reserve_bytes;
	uint64_t credit_bytes, used_bytes, native_bytes;
	uint64_t budget_bytes; /* of a process; 0: none */
	uint32_t phase;	       /* in force there, or POLICY_NONE */
	uint32_t spare;	       /* 0 */
};

struct message_end {
	uint32_t count; /* of what came before */
	uint32_t error; /* enum sublet_err: the question could not be asked */
	char text[PROTOCOL_TEXT_BYTES];
};

struct protocol_message {
	struct message_header header;
	union {
		struct message_empty empty;
		struct message_hello hello;
		struct message_welcome welcome;
		struct message_refused refused;
		struct message_joined joined;
		struct message_amount amount;
		struct message_recall recall;
		struct message_verdict verdict;
		struct message_listed listed;
		struct message_serve serve;
		struct message_served served;
		struct message_session session;
		struct message_client client;
		struct message_ask_serve ask_serve;
		struct message_outcome outcome;
		struct message_end end;
		struct message_told told;
		struct message_arrive arrive;
		struct message_phase phase;
		struct message_step step;
		struct message_stepped stepped;
		struct message_stuck stuck;
		struct message_inventory inventory;
		struct message_device_use device_use;
		struct message_device_verdict device_verdict;
		struct message_device_say device_say;
		struct message_device device;
	};
};

/* Zero @message and fill its header. Then fill the body, then ask for its length. */
void protocol_begin(struct protocol_message *message, enum protocol_type type, uint64_t serial);
/* Bytes of a message whose body is filled, and note them in its header. */
size_t protocol_length(struct protocol_message *message);

/* Is what came in (@bytes, with @fds descriptors) a message that may go @way? Then *ret_message is it. INVALID with one line
 * that names the fix: too short, no message of ours, another version, an unknown type, of the wrong side, cut off, oversized, a
 * value out of range, a text without an end, descriptors where none belong. Allocates nothing, touches no descriptor. */
enum sublet_err protocol_decode(const void *bytes, size_t size_bytes, unsigned int fds, enum protocol_way way,
	struct protocol_message *ret_message, struct errinfo *reterr);

/* Copy @text into a field of @room bytes, cut off where it does not fit, zeros behind it. NULL is empty. */
void protocol_text(char *field, size_t room, const char *text);

/* "HELLO", ...; "?" for a number that is none. */
const char *protocol_name(uint32_t type);
/* "offload", ...; "?" for a number that is none. */
const char *protocol_verb_name(uint32_t verb);

#endif
