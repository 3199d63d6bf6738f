/* tools/session_link.h
 * A command's connection to the coordinator of a session, and the policy that it handed out. */
#ifndef SUBLET_TOOLS_SESSION_LINK_H
#define SUBLET_TOOLS_SESSION_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include "lifecycle/protocol.h"
#include "policy/block.h"

enum link_state {
	LINK_OPEN,
	LINK_NOBODY, /* nobody serves the session; nothing was said */
	LINK_FAILED, /* after one line on stderr */
};

struct session_link {
	int fd;
	int32_t pid; /* of the coordinator */
	char policy_name[PROTOCOL_TEXT_BYTES];
	const void *bytes; /* NULL: the session has no policy */
	size_t size_bytes;
	struct policy policy;
	uint64_t serial;
};

/* Connect to the coordinator of folder @session. Close the link when it is OPEN. */
enum link_state session_link_open(struct session_link *link, const char *session);
void session_link_close(struct session_link *link);

/* Ask: @message, begun and filled, is given a serial and sent. False after one line. */
bool session_link_ask(struct session_link *link, struct protocol_message *message);
/* The next message of the answer. Waits @wait_ns at most. False after one line. */
bool session_link_next(struct session_link *link, uint64_t wait_ns, struct protocol_message *ret_message);
/* The same with the descriptor that came along, the caller's to close, or -1. */
bool session_link_next_with(struct session_link *link, uint64_t wait_ns, struct protocol_message *ret_message, int *ret_fd);

/* Wait until the other side has closed the connection. False: not within @wait_ns. */
bool session_link_end(struct session_link *link, uint64_t wait_ns);

/* Have the coordinator stay as long as this process does, whatever it becomes. False after one line. */
bool session_link_keep(struct session_link *link);

#endif
