/* tests/fuzz/fuzz_block.c
 * Any bytes as a compiled policy: refused, or safe to use. The header is mended, else the checksum would keep
 * everything out. */
#include <stdlib.h>
#include <string.h>

#include "policy/decide.h"
#include "policy/roles.h"
#include "policy/source/explain.h"
#include "tests/fuzz/fuzz.h"

static const char *variable(const char *name, void *arg)
{
	return name;
}

static void match_and_explain(const struct policy *policy)
{
	const char *frames[] = {"libtorch.so:resize", "llm.py:allocate_kv_cache"};
	struct typed_facts facts = {
		.facts = {.tag = "tag", .thread = "t", .library = {"l"}, .stack_count = 2, .python_count = 2}};
	struct output text = {0};

	facts.facts.stack = facts.facts.python = frames;
	for (uint32_t i = 0; i < 8; i++) {
		facts.facts.role = i;
		facts.facts.phase = i / 2;
		facts.facts.api = i * 3;
		facts.facts.device = i * 16;
		facts.facts.order = i;
		facts.facts.size_bytes = policy->size_bounds_count ? policy->size_bounds[i % policy->size_bounds_count] + i % 2 : i;
		policy_match(policy, &facts.facts);
	}
	facts.facts.role = facts.facts.phase = POLICY_NONE;
	facts.given[POLICY_KEY_TAG] = facts.given[POLICY_KEY_STACK] = facts.given[POLICY_KEY_SIZE] = true;
	explain(policy, "fuzz", &facts, &text);
	output_release(&text);
}

static void use(const struct policy *policy)
{
	struct policy_process process = {
		.command = "python train.py", .executable = "/usr/bin/python3", .variable = variable};

	for (uint32_t rule = 0; rule < policy->rules_count; rule++) {
		for (uint32_t i = 0; i < 16; i++) {
			struct policy_state now = {
				rule, i % 4, i / 4, (enum policy_residency)(i % POLICY_RESIDENCY_COUNT), i % 8};
			struct policy_decision decision;

			policy_decide(policy, &now, &decision);
			if (policy->rules[rule].class == POLICY_CLASS_PERMANENT && now.now != POLICY_EMPTY &&
				decision.target == POLICY_EMPTY)
				abort();
		}
	}
	policy_role_of(policy, &process);
	policy_role_find(policy, "train");
	policy_phase_find(policy, "decode");
	for (int source = 0; source < POLICY_TRIGGER_SOURCE_COUNT; source++)
		policy_trigger_of(policy, (enum policy_trigger_source)source, 0, "kernel");
	policy_trigger_of_variables(policy, 1, variable, NULL);
	match_and_explain(policy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	void *copy = malloc(
		bytes ? bytes : 1); /* exactly as large as the block, so that a sanitizer sees the first byte behind */
	struct policy_header *header = copy;
	struct policy policy;

	if (!copy)
		return 0;
	memcpy(copy, data, bytes);
	if (policy_open(copy, bytes, &policy, NULL) == SUBLET_OK)
		use(&policy);
	if (bytes >= sizeof(*header)) {
		memcpy(header->magic, POLICY_BLOCK_MAGIC, sizeof(header->magic));
		header->version = POLICY_BLOCK_VERSION;
		header->header_bytes = sizeof(*header);
		header->total_bytes = bytes / 8 * 8;
		header->checksum = policy_checksum(copy, header->total_bytes);
		if (policy_open(copy, bytes, &policy, NULL) == SUBLET_OK)
			use(&policy);
	}
	free(copy);
	return 0;
}
