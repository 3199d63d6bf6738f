/* policy/source/source.c
 * One straight line; what a step could not do is in the diagnostics, and memory is asked about once at the end. */
#include "policy/source/source.h"

#include "policy/source/check.h"
#include "policy/source/document.h"
#include "policy/source/read.h"

enum sublet_err policy_source_load(struct policy_source *source, const char *text, size_t bytes, struct errinfo *reterr)
{
	enum sublet_err err = SUBLET_OK;
	struct node *root;

	*source = (struct policy_source){0};
	source->diagnostics.arena = &source->arena;
	root = document_read(text, bytes, &source->diagnostics);
	if (root && !source->arena.failed)
		tree_read(&source->tree, root, &source->diagnostics);
	if (root && source->tree.arena && !source->arena.failed)
		tree_check(&source->tree, &source->diagnostics);
	if (root && !source->diagnostics.errors && !source->arena.failed)
		err = tree_compile(&source->tree, &source->block, reterr);
	if (source->arena.failed)
		return errinfo_set(reterr, SUBLET_ERR_NOMEM, 0, "out of memory");
	diagnostics_sort(&source->diagnostics);
	return err;
}

void policy_source_release(struct policy_source *source)
{
	arena_release(&source->arena);
	*source = (struct policy_source){0};
}
