/* policy/source/check_priv.h
 * The parts of the checker, in the order in which they run. */
#ifndef SUBLET_POLICY_SOURCE_CHECK_PRIV_H
#define SUBLET_POLICY_SOURCE_CHECK_PRIV_H

#include "policy/source/check.h"

/* check_names.c: what names stand for, and that they are unique. */
void check_names(struct policy_tree *tree, struct diagnostics *diagnostics);
/* check_objects.c: wants per phase, classes, holes, windows. */
void check_objects(struct policy_tree *tree, struct diagnostics *diagnostics);
/* check_share.c: share groups. */
void check_share(struct policy_tree *tree, struct diagnostics *diagnostics);
/* check_reach.c: what is never reached. */
void check_reach(struct policy_tree *tree, struct diagnostics *diagnostics);
/* check_sizes.c: what does not fit. */
void check_sizes(struct policy_tree *tree, struct diagnostics *diagnostics);

static inline bool is_in(uint64_t set, uint32_t number)
{
	return set >> number & 1;
}

/* The set of all roles of the policy, and the bit for processes of none. */
uint64_t all_roles(const struct policy_tree *tree);
/* Roles that @object's match lets through and that run in @phase. */
uint64_t running_roles(const struct policy_tree *tree, const struct object_tree *object, uint32_t phase);
/* Name of the first role of @set, "(a process without a role)" for the none bit alone. */
const char *first_role(const struct policy_tree *tree, uint64_t set);

#endif
