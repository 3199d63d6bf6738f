/* policy/source/source.h
 * The front: a policy file from its text to complaints and, when there are no errors, a compiled block. */
#ifndef SUBLET_POLICY_SOURCE_SOURCE_H
#define SUBLET_POLICY_SOURCE_SOURCE_H

#include "policy/source/compile.h"
#include "policy/source/diagnostics.h"

struct policy_source {
	struct arena arena;		/* owns everything below */
	struct diagnostics diagnostics; /* sorted by place */
	struct policy_tree tree;
	struct policy_block block; /* bytes NULL when there were errors */
};

/* Read, check and compile @bytes of @text. OK also when the policy has errors: they are in the diagnostics. Fails with
 * NOMEM, or INVALID when the compiled policy would be too large. Release in every case. @text is not kept. */
enum sublet_err policy_source_load(
	struct policy_source *source, const char *text, size_t bytes, struct errinfo *reterr);
void policy_source_release(struct policy_source *source);

#endif
