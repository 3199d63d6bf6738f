/* lifecycle/endpoint.h
 * Where a session's processes meet: the socket SESSION/socket, and the carrying of messages over it. The folder is reached by
 * a descriptor of it, so that paths longer than a socket's name may be work, and what is checked is what is used.
 * Used by the coordinator, the preloaded library and the command; allocates nothing, logs nothing. Descriptors are
 * close-on-exec and never wait: deadlines are the caller's.
 * Source: unix(7), SO_PEERCRED and SCM_RIGHTS. */
#ifndef SUBLET_LIFECYCLE_ENDPOINT_H
#define SUBLET_LIFECYCLE_ENDPOINT_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/errors.h"
#include "lifecycle/protocol.h"

#define ENDPOINT_SOCKET "socket"
#define ENDPOINT_LOCK "coordinator.lock"
#define ENDPOINT_LOG "coordinator.log"

enum endpoint_state {
	ENDPOINT_CONNECTED,
	ENDPOINT_NOBODY, /* no socket: nobody has ever served this session */
	ENDPOINT_STALE,	 /* a socket that nobody listens at */
	ENDPOINT_BUSY,	 /* too many wait for it; try again */
	ENDPOINT_FAILED, /* and *reterr says why */
};

/* The folder @session for the calls below: its owner is this user and nobody else may enter it. -1 with *reterr set. */
int endpoint_folder(const char *session, struct errinfo *reterr);

/* Connect to the coordinator of folder @folder_fd, and see that it is of this user. *ret_fd is set when CONNECTED, and is the
 * caller's to close. *ret_pid (may be NULL): its process id, 0 where that is outside this namespace. */
enum endpoint_state endpoint_connect(int folder_fd, int *ret_fd, pid_t *ret_pid, struct errinfo *reterr);

/* Listen at a new socket in @folder_fd, taking the place of one that nobody listens at. The caller holds the session's lock.
 * SYSTEM with *reterr set. */
enum sublet_err endpoint_listen(int folder_fd, int *ret_fd, struct errinfo *reterr);
/* Remove the socket of @folder_fd. */
void endpoint_remove(int folder_fd);

/* Who is at the other end of @fd? False when it cannot be asked. */
bool endpoint_peer(int fd, uid_t *ret_uid, pid_t *ret_pid);

enum endpoint_carried {
	CARRIED,
	CARRIED_NOT_YET, /* nothing there, or no room: wait for the descriptor */
	CARRIED_END,	 /* the other side is gone */
	CARRIED_WRONG,	 /* *reterr says what is wrong with it, or with the descriptor */
};

/* Send @message (with its length noted), and with it descriptor @pass_fd unless that is -1. Never waits, raises no signal. */
enum endpoint_carried endpoint_send(int fd, const struct protocol_message *message, int pass_fd, struct errinfo *reterr);
/* Receive one message that may go @way. *ret_fd is the descriptor that came along, the caller's to close, or -1; whatever else
 * came is closed. Never waits. */
enum endpoint_carried endpoint_receive(int fd, enum protocol_way way, struct protocol_message *ret_message, int *ret_fd,
	struct errinfo *reterr);

/* Wait until @fd can be read (or written) or @deadline_ns (clock_now_ns) has come. False: it has. */
bool endpoint_wait(int fd, bool to_write, uint64_t deadline_ns);

#endif
