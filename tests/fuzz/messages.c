/* tests/fuzz/messages.c
 * messages FOLDER: one file for each message of the protocol, as good ones to start from. */
#include <stdio.h>

#include "lifecycle/protocol.h"

int main(int argc, char **argv)
{
	for (int type = PROTOCOL_NONE + 1; argc == 2 && type < PROTOCOL_TYPE_COUNT; type++) {
		struct protocol_message message;
		char path[4096];
		FILE *file;
		size_t bytes;

		protocol_begin(&message, (enum protocol_type)type, 1);
		if (type == PROTOCOL_HELLO)
			message.hello.peer = PEER_CONTROL;
		if (type == PROTOCOL_CREDIT || type == PROTOCOL_GIVE || type == PROTOCOL_TAKE || type == PROTOCOL_MADE)
			message.amount.bytes = 2 << 20;
		if (type == PROTOCOL_LISTED || type == PROTOCOL_OBJECTS)
			message.listed.count = 2;
		if (type == PROTOCOL_ASK_SERVE)
			message.ask_serve.count = 2;
		bytes = protocol_length(&message);
		snprintf(path, sizeof(path), "%s/%s", argv[1], protocol_name((uint32_t)type));
		file = fopen(path, "wb");
		if (!file || fwrite(&message, 1, bytes, file) != bytes || fclose(file)) {
			perror(path);
			return 1;
		}
	}
	return argc == 2 ? 0 : 2;
}
