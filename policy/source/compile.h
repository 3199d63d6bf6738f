/* policy/source/compile.h
 * From the checked tree to the block of policy/block.h. */
#ifndef SUBLET_POLICY_SOURCE_COMPILE_H
#define SUBLET_POLICY_SOURCE_COMPILE_H

#include "policy/source/tree.h"

struct policy_block {
	void *bytes; /* in the tree's arena, aligned to 8 */
	size_t size_bytes;
};

/* @tree was checked without errors. Fails with NOMEM, or INVALID when the block would be larger than a block may be. */
enum sublet_err tree_compile(const struct policy_tree *tree, struct policy_block *ret_block, struct errinfo *reterr);

#endif
