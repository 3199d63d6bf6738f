/* lifecycle/coordinator.h
 * The coordinator of a session: one process per session and node that hands out the compiled policy, knows the processes of
 * the session, keeps the ledger of host bytes and the descriptors of host extents, and passes on what `sublet ctl` asks.
 * It never initialises CUDA and moves no byte itself; when it dies, its clients go on as they are.
 *
 * One thread, one epoll; nothing in it waits for a single peer. A peer that sends nonsense, does not read its answers or is of
 * another user loses its own connection and nobody else's.
 *
 * No CUDA here: the command links it. Neighbours: lifecycle/protocol.h, lifecycle/endpoint.h; lifecycle/client.h is the other
 * side. */
#ifndef SUBLET_LIFECYCLE_COORDINATOR_H
#define SUBLET_LIFECYCLE_COORDINATOR_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/errors.h"

struct coordinator_config {
	const char *session;	 /* path of the folder; borrowed, as all here */
	const void *policy;	 /* compiled block, copied; NULL: the session has no policy */
	size_t policy_bytes;
	const char *policy_name; /* for people; NULL with no policy */
	uint64_t pool_bytes;	 /* cap of the host pool */
	const char *trace_folder; /* NULL: nothing is traced */
	uint64_t trace_bytes;	 /* of its ring; 0: TRACE_RING_BYTES */
	uint64_t linger_ns;	 /* ends so long after the last process has left; 0: only when told to */
};

struct coordinator;

/* Become the coordinator of the session: take its lock, seal the policy, listen. The limit of open files is raised. On failure
 * *reterr says why; INVALID with *ret_other not 0: that process serves the
 * session already (-1: one outside this pid namespace). Call log_init before. */
enum sublet_err coordinator_new(struct coordinator **ret, const struct coordinator_config *config, pid_t *ret_other,
	struct errinfo *reterr);

/* Serve until `sublet ctl stop`, SIGTERM, SIGINT or SIGHUP (which are blocked from here on), or the linger has passed.
 * SYSTEM: it could not go on, and *reterr says why. */
enum sublet_err coordinator_run(struct coordinator *coordinator, struct errinfo *reterr);

/* Remove the socket and give everything back. Safe on NULL. */
void coordinator_free(struct coordinator *coordinator);

#endif
