/* tools/demo/reference.c
 * The frozen reference model of the paper's iteration (Table 1): its weights are read for the prefix beside rollout's
 * decoding, and for the response after it, and never change. */
#include "tools/demo/program.h"

int main(int argc, char **argv)
{
	struct object *weights;
	struct order order;
	uint64_t prefix = 0;

	program_open(argc, argv);
	weights = program_object("weights");
	object_take(weights, 100);
	object_fill(weights, 6);
	program_done();
	while (program_next(&order)) {
		if (order.phase[0] == 'd')
			prefix = mixed(object_compare(weights), order.iteration);
		else if (order.phase[0] == 's')
			program_result(mixed(prefix, mixed(object_compare(weights), order.number)));
		program_done();
	}
	return 0;
}
