/* tools/serve.h
 * Starting the coordinator of a session (lifecycle/coordinator.h), here or beside us. */
#ifndef SUBLET_TOOLS_SERVE_H
#define SUBLET_TOOLS_SERVE_H

#include <stdbool.h>
#include <stdint.h>

#include "policy/source/compile.h"

struct serve_options {
	const char *session;	     /* folder, checked */
	const char *policy_name;     /* NULL: no policy */
	struct policy_block policy;  /* bytes NULL: no policy */
	uint64_t pool_bytes;
	uint64_t trace_bytes; /* of the ring, 0: as much as others; the folder is SUBLET_TRACE's */
	uint64_t linger_ns; /* ends so long after the last process of the session has left; 0: only when told to */
};

/* Cap of the host pool: SUBLET_HOST_POOL, else what @policy (NULL: none) says, else half of the memory this process may use.
 * False after one line. */
bool serve_pool_bytes(const struct policy_block *policy, uint64_t *ret_bytes);

/* Serve until told to stop. Returns an exit status. */
int serve_here(const struct serve_options *options);

/* Start a coordinator that has nothing of this process's: no descriptor, no terminal, no session of it; it writes to
 * coordinator.log in the session folder. Returns when it serves, or with one line on stderr when it does not. */
int serve_beside(const struct serve_options *options);

/* For `sublet run`: see that the session has a coordinator with the policy of file @policy, start one if there is none (by
 * running this program once more), and have it stay as long as this process does. @policy NULL: only where one serves
 * already. @role (may be NULL) has to be in the policy, where that has roles. Returns an exit status; what is wrong was said. */
int serve_ensure(const char *session, const char *policy, const char *role);

#endif
