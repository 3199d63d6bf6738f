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
	struct errinfo error = {.text = "Sublet does not serve this process (no session)"};
	struct lifecycle *lc;

	if (!name)
		return 1;
	/* not by way of shim_active: a process that has no driver yet is not to be started, and found without one */
	lc = shim_controller();
	if (!lc && __atomic_load_n(&shim_hot.state, __ATOMIC_ACQUIRE) != SHIM_NEW && shim_active())
		lc = &shim_hot.lifecycle;
	if (lc && client_arrive_at(lc, name, &error) == SUBLET_OK)
		return 0;
	log_say(LOG_SESSION, LOG_WARN, WHOSE_FRAMEWORK, "phase '%.64s' does not begin: %s", name, error.text);
	return 1;
}
