/* tests/fuzz/fuzz_protocol.c
 * Any bytes as a message, either way and with any number of descriptors: refused with a line, or within all bounds. As the
 * header keeps nearly everything out, it is mended for a second look. */
#include <stdlib.h>
#include <string.h>

#include "lifecycle/protocol.h"
#include "tests/fuzz/fuzz.h"

static void check(int holds)
{
	if (!holds)
		abort(); /* a finding, for the fuzzer to keep */
}

/* What whoever receives it relies on. */
static void use(struct protocol_message *message)
{
	const size_t length = message->header.length;
	size_t texts = 0;

	check(message->header.type > PROTOCOL_NONE && message->header.type < PROTOCOL_TYPE_COUNT);
	check(protocol_length(message) == length && length <= sizeof(*message));
	switch (message->header.type) {
	case PROTOCOL_HELLO:
		texts = strlen(message->hello.role) + strlen(message->hello.command);
		check(message->hello.host_bytes <= PROTOCOL_AMOUNT_MAX);
		break;
	case PROTOCOL_LISTED:
	case PROTOCOL_OBJECTS:
		check(message->listed.count <= PROTOCOL_ROWS_MAX);
		break;
	case PROTOCOL_ASK_SERVE:
		check(message->ask_serve.count <= PROTOCOL_RULES_MAX && message->ask_serve.verb < VERB_COUNT);
		texts = strlen(message->ask_serve.role);
		break;
	case PROTOCOL_SERVE:
		check(message->serve.verb < VERB_COUNT);
		break;
	case PROTOCOL_OUTCOME:
		texts = strlen(message->outcome.served.text) + strlen(message->outcome.role);
		break;
	case PROTOCOL_END:
		texts = strlen(message->end.text);
		check(message->end.error < SUBLET_ERR_COUNT);
		break;
	}
	check(texts <= length);
}

static void look(const void *bytes, size_t size, unsigned int fds)
{
	for (int way = PROTOCOL_UP; way <= PROTOCOL_DOWN; way++) {
		struct protocol_message message;
		struct errinfo error = {0};

		if (protocol_decode(bytes, size, fds, (enum protocol_way)way, &message, &error) == SUBLET_OK)
			use(&message);
		else
			check(error.text[0] && !strchr(error.text, '\n'));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	void *copy = malloc(bytes ? bytes : 1); /* exactly as large, so that a sanitizer sees the first byte behind */
	struct message_header *header = copy;

	if (!copy)
		return 0;
	memcpy(copy, data, bytes);
	for (unsigned int fds = 0; fds < 3; fds++)
		look(copy, bytes, fds);
	if (bytes >= sizeof(*header)) {
		header->magic = PROTOCOL_MAGIC;
		header->version = PROTOCOL_VERSION;
		header->length = (uint32_t)bytes;
		header->type = (uint16_t)(header->type % (PROTOCOL_TYPE_COUNT + 1));
		for (unsigned int fds = 0; fds < 3; fds++)
			look(copy, bytes, fds);
	}
	free(copy);
	return 0;
}
