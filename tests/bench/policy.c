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

/* What 1,000 rules may differ in; each is asked for facts that many of them nearly match. */
static const struct shape {
	const char *name;
	const char *match; /* of rule number %1$d, which is %2$d among its fifty */
} shapes[] = {
	{"role, size and a Python frame", NULL},
	{"a Python frame", "python: '*module_%1$d:*'"},
	{"a Python frame, of four bytes", "python: '*%1$04d*'"},
	{"a Python frame with a set", "python: '*[/]module_%1$d:[a-z]*'"},
	{"a native frame beside a common Python frame", "python: '*_call_impl*', stack: '*kernel_%1$d(*'"},
	{"one of 20 Python and one of 50 native frames", "python: '*layer_%3$d:*', stack: '*kernel_%2$d(*'"},
	{"the library", "library: '*/lib%1$d.so*'"},
	{"the tag", "tag: 'layer.%1$d.*'"},
	{"the size", "size: '%1$dMiB'"},
	{"the order", "order: %1$d"},
	{"the device, in every rule several times", "device: '%2$d', thread: '*pt_main_thread*'"},
};
enum { SHAPES = sizeof(shapes) / sizeof(shapes[0]) };

static void write_policy(struct output *text, const struct shape *shape)
{
	static const char *const roles[] = {"train", "rollout", "reference", "critic"};

	output_add(text,
		"version: 1\nroles: [train, rollout, reference, critic]\n"
		"phases: [decode, suffix, update]\n"
		"triggers: [{enter: decode, command: true}, {enter: suffix, command: true}, {enter: update, command: true}]\nobjects:\n");
	for (int i = 0; i < OBJECTS; i++) {
		char match[160];

		if (shape->match)
			snprintf(match, sizeof(match), shape->match, i + 1, i % 50, i / 50);
		else
			snprintf(match, sizeof(match), "python: '*module_%d:*', role: %s, size: '%dMiB..%dMiB'", i + 1,
				roles[i % 4], i, i + 40);
		output_add(text,
			"  - name: object_%d\n    match: {%s}\n    class: permanent\n    resident: [decode, update]\n    otherwise: park\n",
			i, match);
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
static const char *const natives[] = {
	"libtorch_cuda.so:_ZN2at6native10kernel_500(", "libtorch_python.so:THPVariable_empty", "libc10_cuda.so:raw_alloc"};

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
			.order = i * 16,
			.device = i % 8,
			.library = {"/usr/lib/python3/site-packages/torch/lib/lib500.so.12"},
			.thread = "pt_main_thread",
			.tag = "layer.500.weight",
			.stack = natives,
			.stack_count = sizeof(natives) / sizeof(natives[0]),
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

/* Returns whether the bars are kept. */
static bool measure(const struct shape *shape)
{
	struct output text = {0};
	struct policy_source source;
	struct policy policy;
	double load, open, start, match, known;

	write_policy(&text, shape);
	load = load_ns(&source, &text);
	start = used_ns();
	open_block(&source, &policy);
	open = used_ns() - start;
	match = decide_ns(&policy, true, LOOPS);
	known = decide_ns(&policy, false, LOOPS);
	printf("%-46s %8.2f %8.1f %8zu %9.3f %9.3f\n", shape->name, load / 1e6, open / 1e3, source.block.size_bytes >> 10,
		match / 1e3, known / 1e3);
	policy_source_release(&source);
	output_release(&text);
	return load < 100e6 && match < 1e3;
}

int main(int argc, char **argv)
{
	bool good = true;

	printf("%d objects that differ in                     check ms  open us    KiB  rule+dec. us  known us   (bars: 100 ms, 1 us)\n",
		OBJECTS);
	for (int i = 0; i < SHAPES; i++) /* a number as argument: that one alone */
		if (argc < 2 || atoi(argv[1]) == i)
			good &= measure(&shapes[i]);
	return good ? 0 : 1;
}
