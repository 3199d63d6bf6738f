/* lifecycle/client_ledger.c
 * Credit for device memory, asked of the session. What is said is always all that this process has of a device, so an answer that comes
 * late or never leaves nothing to set right; the answer to what was said last is what counts. The ledger's sums are read under the
 * client's lock, where a grant becomes bytes taken: so nobody says less than was granted.
 * Nobody to ask, or no answer in time: then nothing is refused, and one line says so. */
#include "lifecycle/client_priv.h"

#include <sched.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/size.h"
#include "lifecycle/lifecycle.h"

#define ANSWER_WAIT_NS 2000000000ull /* the coordinator asks others for half a second at most */

enum asked { ASKED_YES, ASKED_NO, ASKED_NOBODY };

/* A device that has memory of Sublet's and can be named to others. */
static bool is_known(struct lifecycle *lc, int device)
{
	struct client_device *of = &lc->client.devices[device];
	int state = CLIENT_UUID_UNASKED;
	CUuuid uuid;

	if (__atomic_load_n(&lc->devices[device].readiness, __ATOMIC_ACQUIRE) != DEVICE_READY)
		return false;
	if (__atomic_compare_exchange_n(&of->uuid_state, &state, CLIENT_UUID_BUSY, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
		state = CLIENT_UUID_NONE;
		if (lc->driver.DeviceGetUuid && lc->driver.DeviceGetUuid(&uuid, device) == CUDA_SUCCESS) {
			memcpy(of->uuid, uuid.bytes, sizeof(of->uuid));
			state = CLIENT_UUID_KNOWN;
		} else {
			log_say(LOG_SESSION, LOG_WARN, WHOSE_DRIVER,
				"device %d has no UUID to know it by: the session's capacity is not kept there", device);
		}
		__atomic_store_n(&of->uuid_state, state, __ATOMIC_RELEASE);
	}
	/* the thread that asks makes one call that returns at once */
	while ((state = __atomic_load_n(&of->uuid_state, __ATOMIC_ACQUIRE)) == CLIENT_UUID_BUSY)
		sched_yield();
	return state == CLIENT_UUID_KNOWN;
}

static void begin(struct lifecycle *lc, int device, enum protocol_type type, struct protocol_message *message)
{
	struct message_device_use *use = &message->device_use;

	protocol_begin(message, type, ++lc->client.serial);
	memcpy(use->uuid, lc->client.devices[device].uuid, sizeof(use->uuid));
	use->total_bytes = lc->devices[device].total_bytes;
	use->used_bytes = ledger_used_bytes(lc, device);
	use->native_bytes = ledger_native_bytes(lc, device);
	if (use->native_bytes > PROTOCOL_AMOUNT_MAX) /* memory that the driver moves itself may be more than there is */
		use->native_bytes = PROTOCOL_AMOUNT_MAX;
	if (!ledger_budget(lc, use->total_bytes, &use->budget_bytes))
		use->budget_bytes = 0;
}

/* The credit becomes what is used. Caller holds the lock; the device is known. @answers: as in the message. */
static void have(struct lifecycle *lc, int device, bool may_rise, uint64_t answers)
{
	struct client_device *of = &lc->client.devices[device];
	struct protocol_message message;

	begin(lc, device, PROTOCOL_DEVICE_HAVE, &message);
	message.device_use.credit_bytes = ledger_trim(lc, device, may_rise || of->uncounted);
	message.device_use.answers = answers;
	of->last_serial = message.header.serial;
	of->uncounted = false;
	of->awaits = client_send(&lc->client, 0, &message, -1);
}

static void tell(void *arg, int device, bool moved)
{
	struct lifecycle *lc = arg;
	struct client *client = &lc->client;

	if (!is_known(lc, device))
		return;
	ranked_lock(&client->lock);
	/* Not again before the answer: who reads nothing is not written to for ever. What was moved meanwhile is said then. */
	client->devices[device].uncounted |= moved;
	if (client->socket.fd >= 0 && !client->devices[device].awaits)
		have(lc, device, moved, 0);
	ranked_unlock(&client->lock);
}

/* Caller holds the lock, and has the question for itself. NOBODY: no answer by @deadline_ns. */
static enum asked ask_once(struct lifecycle *lc, int device, uint64_t bytes, uint64_t deadline_ns, struct errinfo *reterr)
{
	struct client *client = &lc->client;
	struct client_device_question *question = &client->device_question;
	const uint32_t connection = client->connection;
	struct protocol_message message;
	char text[16];

	begin(lc, device, PROTOCOL_DEVICE_CREDIT, &message);
	message.device_use.credit_bytes = message.device_use.used_bytes + bytes;
	message.device_use.wanted_bytes = message.device_use.credit_bytes + LEDGER_SLAB_BYTES;
	*question = (struct client_device_question){.serial = message.header.serial};
	client->devices[device].last_serial = message.header.serial;
	if (!client_send(client, connection, &message, -1))
		return ASKED_NOBODY;
	while (!question->answered && client->socket.fd >= 0 && client->connection == connection && !client->stop &&
		clock_now_ns() < deadline_ns)
		client_wait(client, deadline_ns);
	if (!question->answered)
		return ASKED_NOBODY;
	if (question->verdict.granted)
		return ASKED_YES;
	errinfo_set(reterr, SUBLET_ERR_NOMEM, 0, "%s of device %d are refused: %s", size_format(bytes, text, sizeof(text)), device,
		question->verdict.text);
	return ASKED_NO;
}

/* Caller holds the lock. */
static enum asked ask_locked(struct lifecycle *lc, int device, uint64_t bytes, struct errinfo *reterr)
{
	const uint64_t deadline = clock_now_ns() + ANSWER_WAIT_NS;
	struct client *client = &lc->client;
	struct client_device_question *question = &client->device_question;

	for (;;) {
		enum asked asked;
		bool is_last;

		while (question->serial && !client->stop && clock_now_ns() < deadline)
			client_wait(client, deadline);
		if (question->serial || client->socket.fd < 0 || client->stop)
			return ASKED_NOBODY;
		/* somebody before may have been given more than it needed */
		if (ledger_fits(lc, device, bytes))
			return ASKED_YES;
		asked = ask_once(lc, device, bytes, deadline, reterr);
		is_last = client->devices[device].last_serial == question->serial;
		question->serial = 0;
		/* not in a child that was forked in the middle: nobody waits there, see lifecycle/reclaim.c */
		if (!client->stop)
			pthread_cond_broadcast(&client->changed);
		/* What was said meanwhile did not have these bytes in it, and took the credit for them back. */
		if (asked != ASKED_YES || is_last)
			return asked;
	}
}

static bool ask(void *arg, int device, uint64_t bytes, struct errinfo *reterr)
{
	struct lifecycle *lc = arg;
	struct client *client = &lc->client;
	enum asked asked = ASKED_NOBODY;
	const bool known = is_known(lc, device);
	bool says = false;

	ranked_lock(&client->lock);
	if (known)
		asked = ask_locked(lc, device, bytes, reterr);
	if (asked == ASKED_NOBODY && known) {
		client->devices[device].uncounted = true;
		says = !client->said_unasked && !client->stop;
		client->said_unasked = true;
	}
	if (asked != ASKED_NO)
		ledger_granted(lc, device, bytes);
	ranked_unlock(&client->lock);
	if (says)
		log_say(LOG_SESSION, LOG_WARN, WHOSE_NONE,
			"the session's coordinator cannot be asked for device memory: nothing is refused meanwhile, whatever the policy's capacity");
	return asked != ASKED_NO;
}

void client_set_ledger(struct lifecycle *lc)
{
	ledger_set_hooks(lc, &(struct ledger_hooks){.ask = ask, .tell = tell, .arg = lc});
}

void client_forget_credit(struct lifecycle *lc)
{
	for (int d = 0; d < lc->device_count; d++) {
		ledger_set_credit(lc, d, 0);
		lc->client.devices[d].last_serial = 0;
		lc->client.devices[d].awaits = false;
	}
	lc->client.said_unasked = false;
}

void client_tell_devices(struct lifecycle *lc)
{
	ledger_settle(lc, true);
}

void client_device_credited(struct lifecycle *lc, const struct protocol_message *message)
{
	struct client *client = &lc->client;
	struct client_device_question *question = &client->device_question;
	const uint64_t serial = message->header.serial;

	ranked_lock(&client->lock);
	for (int d = 0; d < lc->device_count; d++) {
		if (!serial || client->devices[d].last_serial != serial)
			continue;
		client->devices[d].awaits = false;
		ledger_set_credit(lc, d, message->device_verdict.credit_bytes);
		if (client->devices[d].uncounted)
			have(lc, d, true, 0);
	}
	if (question->serial && question->serial == serial) {
		question->verdict = message->device_verdict;
		question->answered = true;
		pthread_cond_broadcast(&client->changed);
	}
	ranked_unlock(&client->lock);
}

/* Kept extents are the application's no more. */
static void empty_cache(struct lifecycle *lc, int device)
{
	struct reclaim_room room;

	reclaim_room_begin(lc, &room);
	reclaim_make_room(lc, device, 0, &room);
}

void client_device_say(struct lifecycle *lc, const struct protocol_message *message)
{
	static const unsigned char each[PROTOCOL_UUID_BYTES];
	const struct message_device_say *say = &message->device_say;
	struct client *client = &lc->client;

	for (int d = 0; d < lc->device_count; d++) {
		struct protocol_message news;

		if (!is_known(lc, d) || (memcmp(say->uuid, each, sizeof(each)) != 0 &&
						memcmp(say->uuid, client->devices[d].uuid, sizeof(say->uuid)) != 0))
			continue;
		if (!say->keeps)
			empty_cache(lc, d);
		ranked_lock(&client->lock);
		if (!say->keeps) {
			have(lc, d, false, message->header.serial);
		} else {
			begin(lc, d, PROTOCOL_DEVICE_HAVE, &news);
			news.device_use.keeps = 1;
			news.device_use.answers = message->header.serial;
			client_send(client, 0, &news, -1);
		}
		ranked_unlock(&client->lock);
	}
}
