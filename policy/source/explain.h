/* policy/source/explain.h
 * Why an allocation is treated as it is, in words: the rule that wins, what speaks against the earlier ones, which
 * later ones would have matched, and what happens in each phase. Works on a compiled block alone, and asks the same
 * functions that the library asks. */
#ifndef SUBLET_POLICY_SOURCE_EXPLAIN_H
#define SUBLET_POLICY_SOURCE_EXPLAIN_H

#include "policy/source/facts.h"
#include "policy/source/output.h"

/* @file names the policy in the output. */
void explain(const struct policy *policy, const char *file, const struct typed_facts *facts, struct output *to);
void explain_json(const struct policy *policy, const char *file, const struct typed_facts *facts, struct output *to);

#endif
