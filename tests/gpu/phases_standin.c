/* tests/gpu/phases_standin.c
 * What phases.py runs on the simulated driver in place of torch_phases.py: `phases_standin train|rollout FOLDER
 * OBJECT=BYTES...`, the same lines in and out and the same NVTX range, and results that every byte has a part in. Its
 * objects: `weights` and `moments`, which live on, and `gradients` or `kv_cache`, which each iteration writes anew
 * before it reads them. */
#include "tools/demo/program.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <nvtx3/nvToolsExt.h>

enum { ITERATIONS_MAX = 1024 };

static const char *role;
static struct object *weights, *moments, *scratch;
static uint64_t results[ITERATIONS_MAX];
static unsigned count;

static void generate(unsigned iteration)
{
	object_fill(scratch, iteration);
	object_compute(scratch, object_compare(weights));
	results[count++] = object_compare(scratch);
}

/* The range is opened with the weights still away. */
static void train(unsigned iteration)
{
	nvtxRangePushA("dtensor_policy_worker_v2/train");
	object_fill(scratch, iteration);
	object_compute(scratch, object_compare(weights));
	if (!moments->address) {
		object_take(moments, 100);
		object_fill(moments, 0);
	}
	object_compute(moments, mixed(object_compare(moments), object_compare(scratch)));
	object_compute(weights, moments->sum);
	nvtxRangePop();
	results[count++] = weights->sum;
}

static void print_results(void)
{
	size_t peak = weights->bytes + scratch->bytes + (moments ? moments->bytes : 0);
	uint64_t sum = object_compare(weights); /* says a line of its own */

	printf("{\"exact\": {\"results\": [");
	for (unsigned i = 0; i < count; i++)
		printf("%s\"%016" PRIx64 "\"", i ? ", " : "", results[i]);
	printf("], \"weights\": \"%016" PRIx64
	       "\"}, \"loose\": {}, \"info\": {\"peak bytes\": %zu, \"rewritten\": [1, %zu]}}\n",
		sum, peak, scratch->bytes);
}

int main(int argc, char **argv)
{
	struct order order;

	if (argc < 3)
		return 2;
	role = argv[1];
	program_open(argc - 1, argv + 1);
	weights = program_object("weights");
	moments = strcmp(role, "train") == 0 ? program_object("moments") : NULL;
	scratch = program_object(moments ? "gradients" : "kv_cache");
	object_take(weights, 100);
	object_fill(weights, 1);
	object_take(scratch, 100);
	program_done();
	while (program_next(&order) && count < ITERATIONS_MAX) {
		if (strcmp(order.phase, "train") == 0 && moments)
			train(order.iteration);
		else if (strcmp(order.phase, "generate") == 0 && !moments)
			generate(order.iteration);
		else if (strcmp(order.phase, "end") == 0)
			print_results();
		else
			break;
		program_done();
	}
	return 0;
}
