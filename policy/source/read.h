/* policy/source/read.h
 * From nodes to the typed tree: shapes, keys and values; what names stand for is check.h's. */
#ifndef SUBLET_POLICY_SOURCE_READ_H
#define SUBLET_POLICY_SOURCE_READ_H

#include "policy/source/document.h"
#include "policy/source/tree.h"

/* Fill @tree from @root. All complaints are made; what could not be read is left out. */
void tree_read(struct policy_tree *tree, const struct node *root, struct diagnostics *diagnostics);

#endif
