/* tools/demo/rollout.c
 * The rollout engine of the paper's iteration (Table 1): loads the weights that the trainer left, writes its KV cache
 * while it decodes, and keeps runtime buffers that are made once. */
#include "tools/demo/program.h"

#include <stdlib.h>

static struct object *weights, *kv_cache, *buffers;

/* Half as many ranks as the trainer has, so a shard of two of the trainer's: its own, and its neighbour's, which is
 * made of it. */
static void load_weights(void)
{
	char path[4096];
	unsigned char *bytes = malloc(weights->used_bytes);
	FILE *file;
	size_t shard;

	snprintf(path, sizeof(path), "%s/weights", program_folder());
	file = fopen(path, "rb");
	if (!file || !bytes || !(shard = fread(bytes, 1, weights->used_bytes, file))) {
		fprintf(stderr, "demo: %s: cannot read the weights\n", path);
		exit(1);
	}
	fclose(file);
	object_write(weights, 0, bytes, shard);
	for (size_t i = 0; i < shard; i++)
		bytes[i] ^= 0xff;
	object_write(weights, shard, bytes, shard);
	free(bytes);
}

static void decode(const struct order *order)
{
	object_compare(buffers);
	load_weights();
	object_fill(kv_cache, mixed(weights->sum, order->iteration));
	for (unsigned token = 0; token < 3; token++)
		object_compute(kv_cache, mixed(object_compare(weights), token));
	program_result(object_compare(kv_cache));
}

int main(int argc, char **argv)
{
	struct order order;

	program_open(argc, argv);
	weights = program_object("weights");
	kv_cache = program_object("kv_cache");
	buffers = program_object("buffers");
	object_take(weights, 100);
	object_take(kv_cache, 100);
	object_take(buffers, 100);
	object_fill(buffers, 5);
	program_done();
	while (program_next(&order)) {
		if (order.phase[0] == 'd')
			decode(&order);
		program_done();
	}
	return 0;
}
