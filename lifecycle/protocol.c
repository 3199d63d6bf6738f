/* lifecycle/protocol.c
 * What a message must look like. Pure: no descriptor, no heap, no clock; the fuzz target feeds it any bytes. */
#include "lifecycle/protocol.h"

#include <stdbool.h>
#include <string.h>

#include "lifecycle/inventory.h"

enum fds_wanted { FDS_NONE, FDS_ONE, FDS_MAYBE };

struct kind {
	const char *name;
	uint16_t body_bytes; /* the whole of it */
	uint8_t way, fds;
};

static const struct kind kinds[PROTOCOL_TYPE_COUNT] = {
#define MESSAGE(name, body, way, fds)                                                                                  \
	[PROTOCOL_##name] = {#name, sizeof(((struct protocol_message *)0)->body), PROTOCOL_##way, FDS_##fds},
#include "lifecycle/protocol.def"
};

_Static_assert(sizeof(struct message_header) == 24, "the header has no holes");
_Static_assert(sizeof(struct message_row) == 8 + 8 * POLICY_RESIDENCY_COUNT, "rows have no holes");
_Static_assert(sizeof(struct protocol_message) <= UINT16_MAX, "sizes are kept in 16 bits");

const char *protocol_name(uint32_t type)
{
	return type < PROTOCOL_TYPE_COUNT && kinds[type].name ? kinds[type].name : "?";
}

const char *protocol_verb_name(uint32_t verb)
{
	static const char *const names[VERB_COUNT] = {"offload", "park", "restore", "discard"};

	return verb < VERB_COUNT ? names[verb] : "?";
}

void protocol_text(char *field, size_t room, const char *text)
{
	size_t length = text ? strnlen(text, room - 1) : 0;

	memcpy(field, text ? text : "", length);
	memset(field + length, 0, room - length);
}

void protocol_begin(struct protocol_message *message, enum protocol_type type, uint64_t serial)
{
	memset(message, 0, sizeof(*message));
	message->header.magic = PROTOCOL_MAGIC;
	message->header.version = PROTOCOL_VERSION;
	message->header.type = (uint16_t)type;
	message->header.serial = serial;
}

/* Of the body of a message whose counts are within bounds. */
static size_t body_bytes(const struct protocol_message *message)
{
	const uint32_t type = message->header.type;

	if (type == PROTOCOL_LISTED || type == PROTOCOL_OBJECTS)
		return offsetof(struct message_listed, rows) + message->listed.count * sizeof(message->listed.rows[0]);
	if (type == PROTOCOL_ASK_SERVE)
		return offsetof(struct message_ask_serve, rules) +
		       message->ask_serve.count * sizeof(message->ask_serve.rules[0]);
	return kinds[type].body_bytes;
}

size_t protocol_length(struct protocol_message *message)
{
	message->header.length = (uint32_t)(sizeof(message->header) + body_bytes(message));
	return message->header.length;
}

static bool ends(const char *text, size_t room)
{
	return memchr(text, '\0', room) != NULL;
}
#define ENDS(array) ends(array, sizeof(array))

static bool listed_is_good(const struct message_listed *listed)
{
	for (uint32_t i = 0; i < listed->count; i++)
		for (int r = 0; r < POLICY_RESIDENCY_COUNT; r++)
			if (listed->rows[i].bytes[r] > PROTOCOL_AMOUNT_MAX)
				return false;
	return listed->more <= 1 && (!listed->more || listed->count);
}

static bool ask_serve_is_good(const struct message_ask_serve *ask)
{
	return ask->verb < VERB_COUNT && ask->pid >= 0 && ENDS(ask->role);
}

static bool served_is_good(const struct message_served *served)
{
	return served->error < SUBLET_ERR_COUNT && served->moved_bytes <= PROTOCOL_AMOUNT_MAX &&
	       served->already_bytes <= PROTOCOL_AMOUNT_MAX && served->skipped_bytes <= PROTOCOL_AMOUNT_MAX &&
	       served->holes <= PROTOCOL_AMOUNT_MAX && served->total_ns <= INT64_MAX && ENDS(served->text);
}

static bool client_is_good(const struct message_client *client)
{
	return client->answered <= 1 && ENDS(client->role) && ENDS(client->command);
}

static bool device_use_is_good(const struct message_device_use *use, bool asks)
{
	return use->total_bytes && use->total_bytes <= PROTOCOL_AMOUNT_MAX && use->credit_bytes <= PROTOCOL_AMOUNT_MAX &&
	       use->wanted_bytes <= PROTOCOL_AMOUNT_MAX && use->used_bytes <= PROTOCOL_AMOUNT_MAX &&
	       use->native_bytes <= PROTOCOL_AMOUNT_MAX && use->budget_bytes <= PROTOCOL_AMOUNT_MAX && use->keeps <= 1 &&
	       (!asks || (use->credit_bytes && use->wanted_bytes >= use->credit_bytes && !use->answers && !use->keeps));
}

static bool needs_are_good(const struct message_needs *needs)
{
	bool good = needs->devices.count <= PROTOCOL_DEVICES && needs->host_takes_bytes <= PROTOCOL_AMOUNT_MAX &&
		    needs->host_gives_bytes <= PROTOCOL_AMOUNT_MAX && needs->host_kept_bytes <= PROTOCOL_AMOUNT_MAX &&
		    needs->largest_bytes <= PROTOCOL_AMOUNT_MAX;

	for (uint32_t i = 0; good && i < needs->devices.count; i++)
		good = needs->need[i].free_bytes <= PROTOCOL_AMOUNT_MAX && needs->need[i].leaves_bytes <= PROTOCOL_AMOUNT_MAX &&
		       needs->need[i].discards_bytes <= PROTOCOL_AMOUNT_MAX && needs->need[i].comes_bytes <= PROTOCOL_AMOUNT_MAX &&
		       needs->need[i].used_bytes <= PROTOCOL_AMOUNT_MAX;
	return good;
}

/* Are the values of the body within bounds? Its size is known to be right. */
static bool body_is_good(const struct protocol_message *m)
{
	switch ((enum protocol_type)m->header.type) {
	case PROTOCOL_HELLO:
		return (m->hello.peer == PEER_CLIENT || m->hello.peer == PEER_CONTROL) &&
		       m->hello.host_bytes <= PROTOCOL_AMOUNT_MAX && m->hello.without_gpu <= 1 && ENDS(m->hello.role) && ENDS(m->hello.command);
	case PROTOCOL_WELCOME:
		return m->welcome.policy_bytes <= POLICY_BLOCK_BYTES_MAX && ENDS(m->welcome.policy_name);
	case PROTOCOL_REFUSED:
		return ENDS(m->refused.text);
	case PROTOCOL_JOINED:
		return ENDS(m->joined.role);
	case PROTOCOL_TAKE:
	case PROTOCOL_MADE:
	case PROTOCOL_LEAVE:
		return m->amount.bytes && m->amount.bytes <= PROTOCOL_AMOUNT_MAX && m->amount.extent;
	case PROTOCOL_GIVE:
		return m->amount.bytes && m->amount.bytes <= PROTOCOL_AMOUNT_MAX;
	case PROTOCOL_CREDIT:
		return m->amount.bytes && m->amount.bytes <= PROTOCOL_AMOUNT_MAX && !m->amount.extent;
	case PROTOCOL_RECALL:
		return m->recall.bytes && m->recall.bytes <= PROTOCOL_AMOUNT_MAX && m->recall.size_bytes <= PROTOCOL_AMOUNT_MAX;
	case PROTOCOL_CREDITED:
	case PROTOCOL_TAKEN:
		return m->verdict.granted <= 1 && ENDS(m->verdict.text);
	case PROTOCOL_LISTED:
	case PROTOCOL_OBJECTS:
		return listed_is_good(&m->listed);
	case PROTOCOL_SERVE:
		return m->serve.verb < VERB_COUNT;
	case PROTOCOL_SERVED:
		return served_is_good(&m->served);
	case PROTOCOL_SESSION:
		return ENDS(m->session.policy_name);
	case PROTOCOL_CLIENT:
		return client_is_good(&m->client);
	case PROTOCOL_ASK_SERVE:
		return ask_serve_is_good(&m->ask_serve);
	case PROTOCOL_OUTCOME:
		return ENDS(m->outcome.role) && ENDS(m->outcome.command) && served_is_good(&m->outcome.served);
	case PROTOCOL_END:
		return m->end.error < SUBLET_ERR_COUNT && ENDS(m->end.text);
	case PROTOCOL_TOLD:
		return m->told.bytes <= INVENTORY_BYTES_MAX;
	case PROTOCOL_INVENTORY:
		return m->inventory.bytes <= INVENTORY_BYTES_MAX && client_is_good(&m->inventory.client);
	case PROTOCOL_ARRIVE:
	case PROTOCOL_ASK_PHASE:
		return m->arrive.timeout_ns <= INT64_MAX && m->arrive.devices.count <= PROTOCOL_DEVICES;
	case PROTOCOL_STUCK:
		return m->stuck.stuck <= 1;
	case PROTOCOL_PHASE:
		return m->phase.error < SUBLET_ERR_COUNT && ENDS(m->phase.text);
	case PROTOCOL_STEP:
		return m->step.step < PROTOCOL_STEP_COUNT && m->step.arrived <= 1 && m->step.timeout_ns <= INT64_MAX &&
		       m->step.patience_ns <= INT64_MAX;
	case PROTOCOL_STEPPED:
		return m->stepped.step < PROTOCOL_STEP_COUNT && served_is_good(&m->stepped.served) && needs_are_good(&m->stepped.needs);
	case PROTOCOL_DEVICE_CREDIT:
	case PROTOCOL_DEVICE_HAVE:
		return device_use_is_good(&m->device_use, m->header.type == PROTOCOL_DEVICE_CREDIT);
	case PROTOCOL_DEVICE_CREDITED:
		return m->device_verdict.granted <= 1 && m->device_verdict.credit_bytes <= PROTOCOL_AMOUNT_MAX &&
		       ENDS(m->device_verdict.text);
	case PROTOCOL_DEVICE_SAY:
		return m->device_say.keeps <= 1;
	case PROTOCOL_DEVICE:
		return true;
	case PROTOCOL_RECALLED:
	case PROTOCOL_TELL:
	case PROTOCOL_ASK_INVENTORY:
	case PROTOCOL_LIST:
	case PROTOCOL_SERVING:
	case PROTOCOL_ASK_STATUS:
	case PROTOCOL_ASK_STOP:
	case PROTOCOL_ASK_KEEP:
		return true;
	case PROTOCOL_NONE:
	case PROTOCOL_TYPE_COUNT:
		break;
	}
	return false;
}

/* May the body have @bytes? For the two kinds with rows the count, copied already where there is one, decides. */
static bool size_is_good(const struct protocol_message *message, size_t bytes)
{
	const uint32_t type = message->header.type;

	if (type == PROTOCOL_LISTED || type == PROTOCOL_OBJECTS)
		return bytes >= offsetof(struct message_listed, rows) && message->listed.count <= PROTOCOL_ROWS_MAX &&
		       bytes == body_bytes(message);
	if (type == PROTOCOL_ASK_SERVE)
		return bytes >= offsetof(struct message_ask_serve, rules) &&
		       message->ask_serve.count <= PROTOCOL_RULES_MAX && bytes == body_bytes(message);
	return bytes == body_bytes(message);
}

static enum sublet_err header_check(const struct message_header *header, size_t size_bytes, unsigned int fds,
	enum protocol_way way, struct errinfo *reterr)
{
	const struct kind *kind;

	if (header->magic != PROTOCOL_MAGIC)
		return errinfo_set(reterr, SUBLET_ERR_INVALID, 0,
			"no message of Sublet's; only programs of Sublet may use a session's socket");
	if (header->version != PROTOCOL_VERSION)
		return errinfo_set(reterr, SUBLET_ERR_INVALID, 0,
			"protocol %u, and this side speaks %u; stop the coordinator with 'sublet ctl stop' and use one version of Sublet in the session",
			header->version, PROTOCOL_VERSION);
	if (header->type == PROTOCOL_NONE || header->type >= PROTOCOL_TYPE_COUNT)
		return errinfo_set(reterr, SUBLET_ERR_INVALID, 0,
			"unknown message %u; use one version of Sublet in the session", header->type);
	kind = &kinds[header->type];
	if (kind->way != way)
		return errinfo_set(reterr, SUBLET_ERR_INVALID, 0,
			"message %s goes the other way; use one version of Sublet in the session", kind->name);
	if (header->length != size_bytes)
		return errinfo_set(reterr, SUBLET_ERR_INVALID, 0,
			"message %s says %u bytes and came with %zu; it was cut off on its way, so join again", kind->name,
			header->length, size_bytes);
	if (fds > 1 || (fds && kind->fds == FDS_NONE) || (!fds && kind->fds == FDS_ONE))
		return errinfo_set(reterr, SUBLET_ERR_INVALID, 0,
			"message %s came with %u descriptors, %s belong there; use one version of Sublet in the session",
			kind->name, fds, kind->fds == FDS_NONE ? "none" : kind->fds == FDS_ONE ? "one" : "none or one");
	return SUBLET_OK;
}

enum sublet_err protocol_decode(const void *bytes, size_t size_bytes, unsigned int fds, enum protocol_way way,
	struct protocol_message *ret_message, struct errinfo *reterr)
{
	struct message_header header;
	struct protocol_message message;
	enum sublet_err err;

	if (size_bytes < sizeof(header))
		return errinfo_set(reterr, SUBLET_ERR_INVALID, 0,
			"a message of %zu bytes, and its header alone has %zu; it was cut off on its way, so join again", size_bytes,
			sizeof(header));
	memcpy(&header, bytes, sizeof(header));
	err = header_check(&header, size_bytes, fds, way, reterr);
	if (err)
		return err;
	if (size_bytes > sizeof(message))
		return errinfo_set(reterr, SUBLET_ERR_INVALID, 0,
			"message %s has %zu bytes, at most %zu can be; use one version of Sublet in the session",
			kinds[header.type].name, size_bytes, sizeof(message));
	memset(&message, 0, sizeof(message));
	memcpy(&message, bytes, size_bytes);
	if (!size_is_good(&message, size_bytes - sizeof(header)))
		return errinfo_set(reterr, SUBLET_ERR_INVALID, 0,
			"message %s has the wrong size of %zu bytes; use one version of Sublet in the session",
			kinds[header.type].name, size_bytes);
	if (!body_is_good(&message))
		return errinfo_set(reterr, SUBLET_ERR_INVALID, 0,
			"message %s has a value out of range; use one version of Sublet in the session",
			kinds[header.type].name);
	*ret_message = message;
	return SUBLET_OK;
}
