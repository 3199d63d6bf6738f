/* tools/inventories.h
 * What the processes of a session have allocated, as the command has gathered it. */
#ifndef SUBLET_TOOLS_INVENTORIES_H
#define SUBLET_TOOLS_INVENTORIES_H

#include "lifecycle/inventory.h"
#include "tools/ctl.h"

struct client_inventory {
	struct message_client who; /* not `answered`: it did not say in time, or had no memory for it */
	void *bytes;		   /* owned; NULL where it did not answer */
	struct inventory inventory;
};

struct inventories {
	const struct policy *policy; /* of the session; NULL: none */
	struct client_inventory *clients;
	size_t clients_count;
};

/* Ask for those of the clients that @filter means. An exit status; release in any case. */
int inventories_gather(struct session_link *link, const struct ctl_filter *filter, struct inventories *ret);
void inventories_release(struct inventories *inventories);

/* Each live allocation with the object it belongs to and who made it; as text or JSON, on stdout. Returns an exit status. */
int inventories_print(const struct inventories *inventories, bool as_json);

/* On stdout: a start for a policy, whose objects tell apart what the processes have allocated so far. Returns an exit status. */
int inventories_suggest(const struct inventories *inventories);

/* Which frame of @site says best what an allocation is for: the innermost that is not the machinery of a framework's calls, nor what
 * @skips names (may be NULL); Python's before native ones. NULL: there is none. *ret_is_python (may be NULL) says which kind. */
const char *inventory_telling_frame(const struct inventory *inventory, uint32_t site, bool (*skips)(const void *arg, const char *frame),
	const void *arg, bool *ret_is_python);

#endif
