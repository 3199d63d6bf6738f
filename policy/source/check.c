/* policy/source/check.c
 * The checks in an order in which each finds what it needs. */
#include "policy/source/check.h"

#include "policy/source/check_priv.h"

void tree_check(struct policy_tree *tree, struct diagnostics *diagnostics)
{
	check_names(tree, diagnostics);
	if (tree->arena->failed)
		return;
	check_objects(tree, diagnostics);
	check_share(tree, diagnostics);
	check_sizes(tree, diagnostics);
	check_reach(tree, diagnostics);
}
