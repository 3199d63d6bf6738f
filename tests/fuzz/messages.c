/* tests/fuzz/messages.c
 * messages FOLDER protocol|inventory|trace: one file for each message of the protocol, a list of allocations, or the trace of a
 * process, as good ones to start from. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lifecycle/inventory.h"
#include "lifecycle/protocol.h"
#include "lifecycle/trace_format.h"

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

enum { TEXTS_BYTES = 128, ROWS = TRACE_ROWS_LEAST, TRACE_BYTES = sizeof(struct trace_header) + TEXTS_BYTES + ROWS * sizeof(struct trace_row) };

static void put_text(char *to, uint64_t *used, uint32_t kind, const char *text)
{
	const struct trace_text head = {(uint32_t)strlen(text), kind};

	memcpy(to + *used, &head, sizeof(head));
	memcpy(to + *used + sizeof(head), text, head.bytes);
	*used += (sizeof(head) + head.bytes + 7) & ~7ull;
}

/* One event of each kind, in a loop, about four allocations. */
static int write_trace(const char *folder)
{
	static char bytes[TRACE_BYTES];
	struct trace_header *header = (struct trace_header *)bytes;
	struct trace_row *rows = (struct trace_row *)(bytes + sizeof(*header) + TEXTS_BYTES);

	*header = (struct trace_header){.magic = TRACE_MAGIC, .version = TRACE_VERSION, .row_bytes = sizeof(*rows),
		.writer = TRACE_WRITER_PROCESS, .pid = 1, .rows_count = ROWS, .texts_offset = sizeof(*header), .texts_bytes = TEXTS_BYTES,
		.rows_offset = sizeof(*header) + TEXTS_BYTES, .begun_ns = 1000, .role = "train", .command = "python3 train.py", .claimed = ROWS};
	put_text(bytes + sizeof(*header), &header->texts_used, TRACE_TEXT_OBJECT, "weights");
	put_text(bytes + sizeof(*header), &header->texts_used, TRACE_TEXT_PHASE, "decode");
	put_text(bytes + sizeof(*header), &header->texts_used, TRACE_TEXT_DEVICE, "0 00ff");
	put_text(bytes + sizeof(*header), &header->texts_used, TRACE_TEXT_SITE, "library: a.so\nstack: b");
	for (uint64_t i = 0; i < ROWS; i++) {
		rows[i] = (struct trace_row){.sequence = i + 1, .time_ns = 1000 + 10 * i, .bytes = 2 << 20, .allocation = i / TRACE_EVENT_COUNT,
			.duration_ns = 5, .phase = 1, .event = (uint8_t)(i % TRACE_EVENT_COUNT), .to = i % 4, .from = i % 3};
		rows[i].check = trace_check(&rows[i], i + 1, rows[i].time_ns, rows[i].event, rows[i].phase, rows[i].thread);
	}
	return write_file(folder, "trace", bytes, sizeof(bytes));
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
	if (strcmp(argv[2], "trace") == 0)
		return write_trace(argv[1]);
	return strcmp(argv[2], "inventory") == 0 ? write_inventory(argv[1]) : write_messages(argv[1]);
}
