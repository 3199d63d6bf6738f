/* shim/own.c
 * The entry points of Sublet's own. */
#include "shim/sublet.h"
#include "shim/shim.h"

#include "base/log.h"
#include "lifecycle/callers/caller.h"
#include "lifecycle/client.h"

int sublet_tag(const char *tag)
{
	return !caller_set_tag(tag);
}

int sublet_phase(const char *name)
{
	struct errinfo error = {.text = "Sublet does not serve this process (no session, or no cuInit yet)"};

	if (!name)
		return 1;
	if (shim_active() && client_arrive_at(&shim_hot.lifecycle, name, &error) == SUBLET_OK)
		return 0;
	log_say(LOG_SESSION, LOG_WARN, WHOSE_FRAMEWORK, "phase '%.64s' does not begin: %s", name, error.text);
	return 1;
}
