/* tests/fuzz/fuzz_source.c
 * Any bytes as a policy file: complaints can be printed, and what is accepted compiles to a block that opens and
 * decides. */
#include <stdlib.h>
#include <string.h>

#include "policy/decide.h"
#include "policy/source/explain.h"
#include "policy/source/source.h"
#include "tests/fuzz/fuzz.h"

static void check(int holds)
{
	if (!holds)
		abort(); /* a finding, for the fuzzer to keep */
}

/* What was accepted keeps the promises of policy/decide.h. */
static void use(const struct policy *policy)
{
	struct typed_facts facts = {.facts = {.role = 0, .size_bytes = 1 << 20, .tag = "tag", .library = {"libnccl.so"}}};
	struct output text = {0};

	for (uint32_t rule = 0; rule < policy->rules_count && rule < 64; rule++) {
		for (uint32_t phase = 0; phase <= policy->phases_count; phase++) {
			struct policy_state now = {
				.rule = rule, .role = rule % 2, .phase = phase, .flags = POLICY_STATE_ARRIVED};
			struct policy_decision decision;

			policy_decide(policy, &now, &decision);
			if (policy->rules[rule].class == POLICY_CLASS_PERMANENT)
				check(decision.target != POLICY_EMPTY);
		}
	}
	facts.given[POLICY_KEY_SIZE] = facts.given[POLICY_KEY_TAG] = facts.given[POLICY_KEY_LIBRARY] = true;
	explain(policy, "fuzz", &facts, &text);
	output_release(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct policy_source source;
	struct errinfo error = {0};
	struct output text = {0};
	struct policy policy;
	enum sublet_err err = policy_source_load(&source, (const char *)data, bytes, &error);

	diagnostics_print(&source.diagnostics, "fuzz", (const char *)data, bytes, &text);
	if (!err && !source.diagnostics.errors) {
		check(policy_open(source.block.bytes, source.block.size_bytes, &policy, &error) == SUBLET_OK);
		use(&policy);
	} else {
		check(!source.block.bytes);
	}
	/* every complaint has a place in the file, or is about all of it */
	for (size_t i = 0; i < source.diagnostics.count; i++)
		check(!source.diagnostics.list[i].where.line == !source.diagnostics.list[i].where.column);
	output_release(&text);
	policy_source_release(&source);
	return 0;
}
