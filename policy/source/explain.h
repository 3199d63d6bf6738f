/* policy/source/explain.h
 * Why an allocation is treated as it is, in words: the rule that wins, what speaks against the earlier ones, which
 * later ones would have matched, and what happens in each phase. Works on a compiled block alone, and asks the same
 * functions that the library asks. */
#ifndef SUBLET_POLICY_SOURCE_EXPLAIN_H
#define SUBLET_POLICY_SOURCE_EXPLAIN_H

#include "policy/decide.h"
#include "policy/source/facts.h"
#include "policy/source/output.h"

/* @file names the policy in the output. */
void explain(const struct policy *policy, const char *file, const struct typed_facts *facts, struct output *to);

/* The parts of it, for those who put them together otherwise. `'kv_cache' (grpo.yaml:19)`: */
void explain_rule_name(const struct policy *policy, const char *file, uint32_t rule, struct output *to);
/* `size is 464.00 MiB, the rule asks for >= 1.00 GiB`, whether that holds or not: */
void explain_against(const struct policy *policy, const struct typed_facts *facts, uint32_t rule,
	enum policy_match_key key, struct output *to);
/* For an allocation that is on the device, when @phase begins: */
struct policy_decision explain_decision(
	const struct policy *policy, const struct policy_facts *facts, uint32_t rule, uint32_t phase);

#endif
