/* tests/fuzz/replay.c
 * Feeds files to a fuzz target: each as it is, cut off at some places and with some bytes changed. What a fuzzer has
 * found once stays found, also where there is no clang. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"

enum { CHANGES = 40, BYTES_MAX = 1 << 20 };

static void feed(const unsigned char *data, size_t bytes)
{
	unsigned char *copy = malloc(bytes ? bytes : 1);
	unsigned int seed = 1;

	LLVMFuzzerTestOneInput(data, bytes);
	for (int i = 0; copy && bytes && i < CHANGES; i++) {
		size_t place;

		seed = seed * 1664525u + 1013904223u;
		place = (seed >> 4) % bytes;
		memcpy(copy, data, bytes);
		if (i % 4 == 0) {
			LLVMFuzzerTestOneInput(copy, place);
			continue;
		}
		copy[place] = i % 4 == 1 ? (unsigned char)(seed >> 24) : "\n\t '\"[]{}:,-*&!0"[seed % 16];
		LLVMFuzzerTestOneInput(copy, bytes);
	}
	free(copy);
}

int main(int argc, char **argv)
{
	unsigned char *data = malloc(BYTES_MAX);

	for (int i = 1; data && i < argc; i++) {
		FILE *file = fopen(argv[i], "rb");
		size_t bytes;

		if (!file) {
			perror(argv[i]);
			return 1;
		}
		bytes = fread(data, 1, BYTES_MAX, file);
		fclose(file);
		feed(data, bytes);
	}
	free(data);
	printf("%d files\n", argc - 1);
	return argc > 1 ? 0 : 1;
}
