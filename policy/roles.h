/* policy/roles.h
 * What a process is in a policy, and which phase an event begins. Pure. */
#ifndef SUBLET_POLICY_ROLES_H
#define SUBLET_POLICY_ROLES_H

#include "policy/block.h"

/* What is known of a process. Texts are borrowed; NULL is unknown and matches nothing. */
struct policy_process {
	const char *role;	/* given: `sublet run --role`, SUBLET_ROLE; wins over everything below */
	const char *command;	/* command line, words joined by one space */
	const char *executable; /* path */
	const char *(*variable)(const char *name, void *arg); /* an environment variable, NULL when not set */
	void *arg;
};

/* The role of @process: the one that was given, else the first whose keys all match; a role without keys is only ever
 * given. POLICY_NONE when there is none, also when the one that was given is not in the policy. */
uint32_t policy_role_of(const struct policy *policy, const struct policy_process *process);

/* Set of the sources, 1 << enum policy_trigger_source, that some trigger for a process of @role asks for. */
unsigned policy_trigger_sources(const struct policy *policy, uint32_t role);

/* The phase that begins when an event of @source (not ENVIRONMENT, not COMMAND) called @name happens in a process of
 * @role; POLICY_NONE when none does. First trigger in file order. */
uint32_t policy_trigger_of(
	const struct policy *policy, enum policy_trigger_source source, uint32_t role, const char *name);
/* The same for an event that has two names; @other may be NULL. */
uint32_t policy_trigger_of_either(const struct policy *policy, enum policy_trigger_source source, uint32_t role, const char *name,
	const char *other);

/* May a program of @role begin @phase by its name (`command: true`)? With @any_role, somebody who is no program of the session. */
bool policy_may_command(const struct policy *policy, uint32_t role, bool any_role, uint32_t phase);

/* The same for triggers on environment variables: the phase of the first whose variables all have a value that matches
 * now. The caller remembers what it was before: an event is a change of this answer. */
uint32_t policy_trigger_of_variables(
	const struct policy *policy, uint32_t role, const char *(*variable)(const char *name, void *arg), void *arg);

#endif
