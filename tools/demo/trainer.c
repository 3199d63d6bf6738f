/* tools/demo/trainer.c
 * The trainer of the paper's iteration (Table 1): its prefix runs beside rollout's decoding and leaves activations and
 * KV for the backward pass over the response, whose gradients the optimizer then applies; the new weights go to rollout
 * in a file. Moments are made with the first update, as optimizers do. */
#include "tools/demo/program.h"

#include <stdlib.h>

static struct object *weights, *gradients, *master, *moments, *activations, *prefix_kv;

/* @number: percents of the longest prompt. */
static void decode(const struct order *order)
{
	uint64_t seed = mixed(object_compare(weights), order->iteration);

	object_fill(activations, seed);
	object_take(prefix_kv, (unsigned)order->number);
	object_fill(prefix_kv, seed + 1);
}

/* @number: what the response and its score came to. */
static void suffix(const struct order *order)
{
	uint64_t saved = mixed(object_compare(activations), object_compare(prefix_kv));

	object_compare(weights);
	object_compare(gradients);
	object_compute(gradients, mixed(saved, order->number));
	object_give(prefix_kv);
	program_result(gradients->sum);
}

static void publish(void)
{
	char path[4096];
	void *bytes = object_read(weights);
	FILE *file;

	snprintf(path, sizeof(path), "%s/weights", program_folder());
	file = fopen(path, "wb");
	if (!file || fwrite(bytes, 1, weights->used_bytes, file) != weights->used_bytes || fclose(file) != 0) {
		fprintf(stderr, "demo: %s: cannot write the weights\n", path);
		exit(1);
	}
	free(bytes);
}

static void update(const struct order *order)
{
	if (order->iteration == 1) {
		object_take(moments, 100);
		object_fill(moments, 0);
	}
	object_compare(moments);
	object_compute(moments, object_compare(gradients));
	object_compare(master);
	object_compute(master, moments->sum);
	object_fill(weights, master->sum);
	publish();
	program_result(weights->sum);
}

int main(int argc, char **argv)
{
	struct order order;

	program_open(argc, argv);
	weights = program_object("weights");
	gradients = program_object("gradients");
	master = program_object("master");
	moments = program_object("moments");
	activations = program_object("activations");
	prefix_kv = program_object("prefix_kv");
	object_take(weights, 100);
	object_take(gradients, 100);
	object_take(master, 100);
	object_take(activations, 100);
	object_fill(weights, 1);
	object_fill(gradients, 2);
	object_fill(master, 3);
	object_fill(activations, 4);
	publish();
	program_done();
	while (program_next(&order)) {
		switch (order.phase[0]) {
		case 'd':
			decode(&order);
			break;
		case 's':
			suffix(&order);
			break;
		case 'u':
			update(&order);
			break;
		default: /* everything that lives on, wherever it is */
			object_compare(weights);
			object_compare(gradients);
			object_compare(master);
			if (moments->address)
				object_compare(moments);
			break;
		}
		program_done();
	}
	return 0;
}
