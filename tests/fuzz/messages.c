/* tests/fuzz/messages.c
 * messages FOLDER protocol|inventory: one file for each message of the protocol, or a list of allocations, as good ones to start
 * from. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lifecycle/inventory.h"
#include "lifecycle/protocol.h"

static int write_file(const char *folder, const char *name, const void *bytes, size_t size)
{
	char path[4096];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	file = fopen(path, "wb");
	if (file && fwrite(bytes, 1, size, file) == size && fclose(file) == 0)
		return 0;
	perror(path);
	return 1;
}

static int write_inventory(const char *folder)
{
	static const char texts[] = "/lib/a.so\0main\0a.so:f\0b.py:g";
	struct inventory_header header = {.magic = INVENTORY_MAGIC,
		.version = INVENTORY_VERSION,
		.header_bytes = sizeof(header),
		.allocations_count = 2,
		.groups_count = 1,
		.sites_count = 1,
		.frames_count = 2,
		.texts_bytes = sizeof(texts)};
	const struct inventory_site site = {{0, INVENTORY_NONE}, 10, INVENTORY_NONE, 0, 1, 1, 0};
	const uint32_t frames[] = {15, 22};
	struct inventory to;
	char *block;
	int status;

	header.total_bytes = inventory_bytes(&header);
	block = calloc(1, header.total_bytes);
	if (!block)
		return 1;
	memcpy(block, &header, sizeof(header));
	inventory_place(block, &to);
	memcpy((void *)to.sites, &site, sizeof(site));
	memcpy((void *)to.frames, frames, sizeof(frames));
	memcpy((void *)to.texts, texts, sizeof(texts));
	status = write_file(folder, "inventory", block, header.total_bytes);
	free(block);
	return status;
}

static int write_messages(const char *folder)
{
	int status = 0;

	for (int type = PROTOCOL_NONE + 1; !status && type < PROTOCOL_TYPE_COUNT; type++) {
		struct protocol_message message;

		protocol_begin(&message, (enum protocol_type)type, 1);
		if (type == PROTOCOL_HELLO)
			message.hello.peer = PEER_CONTROL;
		if (type == PROTOCOL_CREDIT || type == PROTOCOL_GIVE || type == PROTOCOL_TAKE || type == PROTOCOL_MADE)
			message.amount.bytes = 2 << 20;
		if (type == PROTOCOL_LISTED || type == PROTOCOL_OBJECTS)
			message.listed.count = 2;
		if (type == PROTOCOL_ASK_SERVE)
			message.ask_serve.count = 2;
		status = write_file(folder, protocol_name((uint32_t)type), &message, protocol_length(&message));
	}
	return status;
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	return strcmp(argv[2], "inventory") == 0 ? write_inventory(argv[1]) : write_messages(argv[1]);
}
