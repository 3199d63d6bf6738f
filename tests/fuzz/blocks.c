/* tests/fuzz/blocks.c
 * Writes the compiled blocks of policy files into a folder: where the block's fuzzer starts from. blocks FOLDER FILE...
 */
#include <stdio.h>
#include <stdlib.h>

#include "policy/source/source.h"

enum { BYTES_MAX = 1 << 20 };

static int write_block(const char *folder, int number, const char *from, char *text)
{
	FILE *in = fopen(from, "rb"), *out;
	struct policy_source source;
	struct errinfo error;
	char name[4096];
	size_t bytes;
	int failed = 0;

	if (!in)
		return 1;
	bytes = fread(text, 1, BYTES_MAX, in);
	fclose(in);
	if (policy_source_load(&source, text, bytes, &error))
		return 1;
	if (source.block.bytes) { /* some files are there for their errors */
		snprintf(name, sizeof(name), "%s/%03d.block", folder, number);
		out = fopen(name, "wb");
		failed = !out || fwrite(source.block.bytes, 1, source.block.size_bytes, out) != source.block.size_bytes;
		if (out)
			failed |= fclose(out) != 0;
	}
	policy_source_release(&source);
	return failed;
}

int main(int argc, char **argv)
{
	char *text = malloc(BYTES_MAX);
	int failed = !text || argc < 3;

	for (int i = 2; !failed && i < argc; i++)
		failed = write_block(argv[1], i, argv[i], text);
	free(text);
	if (failed)
		fprintf(stderr, "blocks: cannot write all blocks\n");
	return failed;
}
