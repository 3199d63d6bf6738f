/* tools/ctl.h
 * What `sublet ctl` has gathered of a session, and how it is shown. */
#ifndef SUBLET_TOOLS_CTL_H
#define SUBLET_TOOLS_CTL_H

#include <stdbool.h>
#include <stddef.h>

#include "tools/session_link.h"

struct ctl_client {
	struct message_client who;
	struct message_row *rows;
	size_t rows_count;
	struct message_device *devices;
	size_t devices_count;
};

struct ctl_status {
	const char *session;	     /* folder */
	const struct policy *policy; /* NULL: none */
	struct message_session head;
	struct message_device *devices; /* sums of all processes */
	size_t devices_count;
	struct ctl_client *clients;
	size_t clients_count;
};

struct ctl_filter {
	const char *role; /* NULL: all */
	int pid;	  /* 0: all */
};

bool ctl_is_meant(const struct ctl_filter *filter, const struct message_client *who);

/* Name of @rule, as in the policy; PROTOCOL_EVERYTHING where there is none. */
const char *ctl_object_name(const struct policy *policy, uint32_t rule);

/* The session, its host pool and its processes; as text or JSON, on stdout. Return an exit status. */
int ctl_print_status(const struct ctl_status *status, const struct ctl_filter *filter, bool as_json);
/* Every object of the policy, one line for each role that has some of it. */
int ctl_print_objects(const struct ctl_status *status, const struct ctl_filter *filter, bool as_json);

#endif
