/* tests/bench/policy.c
 * How long a large policy takes: checking and compiling 1,000 objects, finding the rule of an allocation among 1,000,
 * deciding for one whose rule is known. Prints the median of several runs of each in processor time, and fails above
 * the bars (100 ms, 1 us). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "policy/decide.h"
#include "policy/match.h"
#include "policy/source/source.h"

enum { OBJECTS = 1000, RUNS = 15, LOOPS = 20000, FACTS = 64 };

static double used_ns(void)
{
	struct timespec t;

	/* of this process, so that a loaded machine gives the same answer */
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

static double median(double *values, int count)
{
	qsort(values, (size_t)count, sizeof(*values), by_value);
	return values[count / 2];
}

enum shape {
	MIXED,	     /* role, size and a Python pattern each, as real policies have */
	PYTHON_ONLY, /* nothing the index knows: every pattern is tried on every frame */
};

static void write_policy(struct output *text, enum shape shape)
{
	output_add(text,
		"version: 1\nroles: [train, rollout, reference, critic]\n"
		"phases: [decode, suffix, update]\n"
		"triggers: [{enter: decode, command: true}, {enter: suffix, command: true}, {enter: update, command: true}]\nobjects:\n");
	for (int i = 0; i < OBJECTS; i++) {
		static const char *const roles[] = {"train", "rollout", "reference", "critic"};

		output_add(text, "  - name: object_%d\n    match: {python: '*module_%d:*'", i, i);
		if (shape == MIXED)
			output_add(text, ", role: %s, size: '%dMiB..%dMiB'", roles[i % 4], i, i + 40);
		output_add(text, "}\n    class: permanent\n    resident: [decode, update]\n    otherwise: park\n");
	}
}

static void fail(const char *what)
{
	fprintf(stderr, "policy bench: %s\n", what);
	exit(1);
}

static double load_ns(struct policy_source *source, const struct output *text)
{
	double times[RUNS];
	struct errinfo error;

	for (int i = 0; i < RUNS; i++) {
		double start = used_ns();

		if (policy_source_load(source, output_get(text), text->length, &error) || !source->block.bytes)
			fail("the policy is not accepted");
		times[i] = used_ns() - start;
		if (i + 1 < RUNS)
			policy_source_release(source);
	}
	return median(times, RUNS);
}

static const char *const frames[] = {
	"/usr/lib/python3/threading.py:_bootstrap",
	"/usr/lib/python3/threading.py:run",
	"/opt/trl/trainer.py:train",
	"/opt/trl/trainer.py:inner_training_loop",
	"/opt/torch/nn/modules/module.py:_call_impl",
	"/opt/torch/nn/modules/module.py:_wrapped_call_impl",
	"/opt/model/module_500:forward",
	"/opt/torch/functional.py:empty",
};

static volatile uint64_t sink; /* keeps the compiler from leaving the loops out */

/* One whole decision: rule of the allocation, then residency and actions. */
static double decide_ns(const struct policy *policy, bool match_too, uint32_t loops)
{
	struct policy_facts facts[FACTS];
	uint32_t rules[FACTS];
	double times[RUNS];

	for (uint32_t i = 0; i < FACTS; i++) {
		facts[i] = (struct policy_facts){.role = i % 4,
			.phase = i % 3,
			.size_bytes = (uint64_t)i * 16 << 20,
			.python = frames,
			.python_count = sizeof(frames) / sizeof(frames[0])};
		rules[i] = policy_match(policy, &facts[i]);
	}
	for (int run = 0; run < RUNS; run++) {
		double start = used_ns();

		for (uint32_t i = 0; i < loops; i++) {
			struct policy_state state = {
				.role = i % 4, .phase = i % 3, .now = (enum policy_residency)(i % 3)};
			struct policy_decision decision;

			state.rule = match_too ? policy_match(policy, &facts[i % FACTS]) : rules[i % FACTS];
			policy_decide(policy, &state, &decision);
			sink += decision.target + decision.actions;
		}
		times[run] = (used_ns() - start) / loops;
	}
	return median(times, RUNS);
}

static void open_block(const struct policy_source *source, struct policy *ret_policy)
{
	struct errinfo error;

	if (policy_open(source->block.bytes, source->block.size_bytes, ret_policy, &error))
		fail(error.text);
}

int main(void)
{
	struct output mixed = {0}, python = {0};
	struct policy_source source;
	struct policy policy;
	double load, match, known, start, open;

	write_policy(&mixed, MIXED);
	load = load_ns(&source, &mixed);
	start = used_ns();
	open_block(&source, &policy);
	open = used_ns() - start;
	match = decide_ns(&policy, true, LOOPS);
	known = decide_ns(&policy, false, LOOPS);
	printf("%d objects, %zu KiB of text, block of %zu KiB\n", OBJECTS, mixed.length >> 10,
		source.block.size_bytes >> 10);
	printf("  read, check and compile          %8.2f ms (bar 100)\n", load / 1e6);
	printf("  open the block                   %8.2f us\n", open / 1e3);
	printf("  rule and decision, 8 frames      %8.3f us (bar 1)\n", match / 1e3);
	printf("  decision for a known rule        %8.3f us\n", known / 1e3);
	policy_source_release(&source);

	write_policy(&python, PYTHON_ONLY);
	printf("%d objects that ask for nothing but a Python frame\n", OBJECTS);
	printf("  read, check and compile          %8.2f ms\n", load_ns(&source, &python) / 1e6);
	open_block(&source, &policy);
	printf("  rule and decision, 8 frames      %8.3f us (worst case, no bar)\n",
		decide_ns(&policy, true, LOOPS) / 1e3);
	policy_source_release(&source);
	output_release(&mixed);
	output_release(&python);
	return load < 100e6 && match < 1e3 ? 0 : 1;
}
