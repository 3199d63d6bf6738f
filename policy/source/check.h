/* policy/source/check.h
 * What a policy means: names get their numbers, objects a want for each phase, and what could lose bytes, let a kernel
 * step into a hole or weights change under a reader is refused. */
#ifndef SUBLET_POLICY_SOURCE_CHECK_H
#define SUBLET_POLICY_SOURCE_CHECK_H

#include "policy/source/tree.h"

/* Complete @tree and make all complaints. After it without errors the tree can be compiled. */
void tree_check(struct policy_tree *tree, struct diagnostics *diagnostics);

#endif
