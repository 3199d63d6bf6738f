/* tests/unit/test_protocol.c
 * lifecycle/protocol.c and endpoint.c: what passes, and the line for each thing that does not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "lifecycle/endpoint.h"
#include "tests/unit/scratch.h"

#define WAY(way) PROTOCOL_##way
#define FDS_NONE 0
#define FDS_ONE 1
#define FDS_MAYBE 0

struct row {
	enum protocol_type type;
	enum protocol_way way;
	unsigned int fds;
};

static const struct row rows[] = {
#define MESSAGE(name, body, way, fds) {PROTOCOL_##name, WAY(way), FDS_##fds},
#include "lifecycle/protocol.def"
};
enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

/* The least that is within bounds. */
static void given_message(struct protocol_message *message, enum protocol_type type)
{
	protocol_begin(message, type, 7);
	if (type == PROTOCOL_HELLO)
		message->hello.peer = PEER_CLIENT;
	if (type == PROTOCOL_CREDIT || type == PROTOCOL_GIVE || type == PROTOCOL_TAKE || type == PROTOCOL_MADE ||
		type == PROTOCOL_LEAVE)
		message->amount.bytes = 1;
	if (type == PROTOCOL_RECALL)
		message->recall.bytes = 1;
	if (type == PROTOCOL_TAKE || type == PROTOCOL_MADE || type == PROTOCOL_LEAVE)
		message->amount.extent = 1;
	if (type == PROTOCOL_LISTED || type == PROTOCOL_OBJECTS)
		message->listed.count = 3;
	if (type == PROTOCOL_ASK_SERVE)
		message->ask_serve.count = 2;
	if (type == PROTOCOL_DEVICE_CREDIT || type == PROTOCOL_DEVICE_HAVE)
		message->device_use.total_bytes = 1;
	if (type == PROTOCOL_DEVICE_CREDIT)
		message->device_use.credit_bytes = message->device_use.wanted_bytes = 1;
	protocol_length(message);
}

static void assert_refused(const void *bytes, size_t size, unsigned int fds, enum protocol_way way, const char *part)
{
	struct protocol_message message;
	struct errinfo error = {0};

	assert_int_equal(protocol_decode(bytes, size, fds, way, &message, &error), SUBLET_ERR_INVALID);
	if (!strstr(error.text, part))
		fail_msg("'%s' has no '%s'", error.text, part);
	assert_null(strchr(error.text, '\n'));
	assert_true(strlen(error.text) < sizeof(error.text) - 1);
}

static void every_message_comes_out_as_it_went_in(void **state)
{
	for (int i = 0; i < ROWS; i++) {
		struct protocol_message in, out;
		struct errinfo error = {0};

		given_message(&in, rows[i].type);
		memset(&out, 0xaa, sizeof(out));
		if (protocol_decode(&in, in.header.length, rows[i].fds, rows[i].way, &out, &error))
			fail_msg("%s: %s", protocol_name(rows[i].type), error.text);
		assert_memory_equal(&in, &out, sizeof(in)); /* what was not sent is zero */
	}
}

static void every_message_is_refused_at_every_other_length(void **state)
{
	for (int i = 0; i < ROWS; i++) {
		struct protocol_message message;
		char *copy;

		given_message(&message, rows[i].type);
		for (uint32_t size = 0; size < message.header.length; size++) {
			/* exactly as long, so that a sanitizer sees the first byte behind it */
			copy = malloc(size ? size : 1);
			memcpy(copy, &message, size);
			assert_refused(copy, size, rows[i].fds, rows[i].way, "cut off");
			/* and where the header agrees */
			if (size >= sizeof(message.header)) {
				((struct message_header *)copy)->length = size;
				assert_refused(copy, size, rows[i].fds, rows[i].way, "wrong size");
			}
			free(copy);
		}
		copy = calloc(1, message.header.length + 8);
		memcpy(copy, &message, message.header.length);
		((struct message_header *)copy)->length += 8;
		assert_refused(copy, message.header.length + 8, rows[i].fds, rows[i].way,
			message.header.length + 8 > sizeof(message) ? "at most" : "wrong size");
		free(copy);
	}
}

static void headers_that_are_wrong_say_which_way(void **state)
{
	struct protocol_message message, other;

	given_message(&message, PROTOCOL_HELLO);
	other = message;
	other.header.magic ^= 1;
	assert_refused(&other, other.header.length, 0, PROTOCOL_UP, "no message of Sublet's");
	other = message;
	other.header.version++;
	assert_refused(&other, other.header.length, 0, PROTOCOL_UP, "stop the coordinator with 'sublet ctl stop'");
	/* another version may have another size for everything behind its header */
	assert_refused(&other, sizeof(other.header), 0, PROTOCOL_UP, "use one version of Sublet");
	other = message;
	other.header.type = PROTOCOL_NONE;
	assert_refused(&other, other.header.length, 0, PROTOCOL_UP, "unknown message 0");
	other.header.type = PROTOCOL_TYPE_COUNT;
	assert_refused(&other, other.header.length, 0, PROTOCOL_UP, "unknown message");
	other.header.type = UINT16_MAX;
	assert_refused(&other, other.header.length, 0, PROTOCOL_UP, "unknown message 65535");
	assert_refused(&message, message.header.length, 0, PROTOCOL_DOWN, "goes the other way");
}

static void descriptors_are_taken_where_they_belong_only(void **state)
{
	struct protocol_message message;

	given_message(&message, PROTOCOL_HELLO);
	assert_refused(&message, message.header.length, 1, PROTOCOL_UP, "1 descriptors, none belong there");
	given_message(&message, PROTOCOL_MADE);
	assert_refused(&message, message.header.length, 0, PROTOCOL_UP, "0 descriptors, one belong there");
	assert_refused(&message, message.header.length, 2, PROTOCOL_UP, "2 descriptors");
	given_message(&message, PROTOCOL_WELCOME);
	assert_refused(&message, message.header.length, 2, PROTOCOL_DOWN, "2 descriptors");
}

/* Every field that has bounds, one value beyond them. */
static void values_out_of_range_are_refused(void **state)
{
	struct protocol_message m;

#define REFUSED(type, way, change)                                                                                     \
	do {                                                                                                           \
		given_message(&m, PROTOCOL_##type);                                                                    \
		change;                                                                                                \
		assert_refused(&m, m.header.length, PROTOCOL_##type == PROTOCOL_MADE, PROTOCOL_##way, "out of range");  \
	} while (0)
	REFUSED(HELLO, UP, m.hello.peer = 0);
	REFUSED(HELLO, UP, m.hello.peer = 3);
	REFUSED(ARRIVE, UP, m.arrive.devices.count = PROTOCOL_DEVICES + 1);
	REFUSED(STUCK, UP, m.stuck.stuck = 2);
	REFUSED(STEPPED, UP, m.stepped.needs.devices.count = PROTOCOL_DEVICES + 1);
	REFUSED(STEPPED, UP, m.stepped.needs.host_takes_bytes = PROTOCOL_AMOUNT_MAX + 1);
	REFUSED(RECALL, DOWN, m.recall.bytes = 0);
	REFUSED(RECALL, DOWN, m.recall.size_bytes = PROTOCOL_AMOUNT_MAX + 1);
	REFUSED(LEAVE, UP, m.amount.extent = 0);
	REFUSED(HELLO, UP, m.hello.without_gpu = 2);
	REFUSED(HELLO, UP, m.hello.host_bytes = PROTOCOL_AMOUNT_MAX + 1);
	REFUSED(HELLO, UP, memset(m.hello.role, 'r', sizeof(m.hello.role)));
	REFUSED(HELLO, UP, memset(m.hello.command, 'c', sizeof(m.hello.command)));
	REFUSED(WELCOME, DOWN, m.welcome.policy_bytes = POLICY_BLOCK_BYTES_MAX + 1);
	REFUSED(WELCOME, DOWN, memset(m.welcome.policy_name, 'p', sizeof(m.welcome.policy_name)));
	REFUSED(REFUSED, DOWN, memset(m.refused.text, 't', sizeof(m.refused.text)));
	REFUSED(JOINED, UP, memset(m.joined.role, 'r', sizeof(m.joined.role)));
	REFUSED(CREDIT, UP, m.amount.bytes = 0);
	REFUSED(MADE, UP, m.amount.bytes = PROTOCOL_AMOUNT_MAX + 1);
	REFUSED(CREDIT, UP, m.amount.extent = 2);
	REFUSED(MADE, UP, m.amount.extent = 0);
	REFUSED(TAKE, UP, m.amount.extent = 0);
	REFUSED(TAKEN, DOWN, m.verdict.granted = 2);
	REFUSED(LISTED, UP, m.listed.more = 2);
	REFUSED(LISTED, UP, (m.listed.count = 1, m.listed.rows[0].bytes[POLICY_HOST] = PROTOCOL_AMOUNT_MAX + 1, protocol_length(&m)));
	REFUSED(SERVE, DOWN, m.serve.verb = VERB_COUNT);
	REFUSED(SERVED, UP, m.served.error = SUBLET_ERR_COUNT);
	REFUSED(SERVED, UP, m.served.moved_bytes = PROTOCOL_AMOUNT_MAX + 1);
	REFUSED(SERVED, UP, m.served.already_bytes = PROTOCOL_AMOUNT_MAX + 1);
	REFUSED(SERVED, UP, m.served.skipped_bytes = PROTOCOL_AMOUNT_MAX + 1);
	REFUSED(SERVED, UP, m.served.total_ns = UINT64_MAX);
	REFUSED(SERVED, UP, memset(m.served.text, 't', sizeof(m.served.text)));
	REFUSED(CLIENT, DOWN, m.client.answered = 2);
	REFUSED(ASK_SERVE, UP, m.ask_serve.verb = VERB_COUNT);
	REFUSED(ASK_SERVE, UP, m.ask_serve.pid = -1);
	REFUSED(OUTCOME, DOWN, m.outcome.served.error = SUBLET_ERR_COUNT);
	REFUSED(END, DOWN, m.end.error = SUBLET_ERR_COUNT);
	REFUSED(DEVICE_HAVE, UP, m.device_use.total_bytes = 0);
	REFUSED(DEVICE_HAVE, UP, m.device_use.credit_bytes = PROTOCOL_AMOUNT_MAX + 1);
	REFUSED(DEVICE_HAVE, UP, m.device_use.used_bytes = PROTOCOL_AMOUNT_MAX + 1);
	REFUSED(DEVICE_HAVE, UP, m.device_use.keeps = 2);
	REFUSED(DEVICE_CREDIT, UP, m.device_use.credit_bytes = 0);
	REFUSED(DEVICE_CREDIT, UP, m.device_use.credit_bytes = 2); /* more than it wants */
	REFUSED(DEVICE_CREDIT, UP, m.device_use.keeps = 1);
	REFUSED(DEVICE_CREDIT, UP, m.device_use.answers = 1);
	REFUSED(DEVICE_CREDITED, DOWN, m.device_verdict.granted = 2);
	REFUSED(DEVICE_CREDITED, DOWN, m.device_verdict.credit_bytes = PROTOCOL_AMOUNT_MAX + 1);
	REFUSED(DEVICE_CREDITED, DOWN, memset(m.device_verdict.text, 't', sizeof(m.device_verdict.text)));
	REFUSED(DEVICE_SAY, DOWN, m.device_say.keeps = 2);
#undef REFUSED
	/* a count beyond the array, with all lengths agreeing as far as they can */
	given_message(&m, PROTOCOL_LISTED);
	m.listed.count = UINT32_MAX;
	assert_refused(&m, m.header.length, 0, PROTOCOL_UP, "wrong size");
	given_message(&m, PROTOCOL_ASK_SERVE);
	m.ask_serve.count = PROTOCOL_RULES_MAX + 1;
	assert_refused(&m, m.header.length, 0, PROTOCOL_UP, "wrong size");
}

static void text_is_cut_and_filled_with_zeros(void **state)
{
	char field[8];

	memset(field, 'x', sizeof(field));
	protocol_text(field, sizeof(field), "12345678901");
	assert_string_equal(field, "1234567");
	protocol_text(field, sizeof(field), NULL);
	for (size_t i = 0; i < sizeof(field); i++)
		assert_int_equal(field[i], 0);
}

/* ---- carried ---- */

static int ends[2];

static int given_pair(void **state)
{
	return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends);
}

static int close_pair(void **state)
{
	close(ends[0]);
	close(ends[1]);
	return 0;
}

static int open_fds(void)
{
	int count = 0;

	for (int fd = 0; fd < 256; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

static void send_raw(const void *bytes, size_t size, int fds)
{
	char control[CMSG_SPACE(16 * sizeof(int))] = {0};
	struct iovec part = {(void *)bytes, size};
	struct msghdr envelope = {.msg_iov = &part, .msg_iovlen = 1};

	if (fds) {
		struct cmsghdr *rights = (struct cmsghdr *)control;

		envelope.msg_control = control;
		envelope.msg_controllen = CMSG_SPACE((size_t)fds * sizeof(int));
		rights->cmsg_level = SOL_SOCKET;
		rights->cmsg_type = SCM_RIGHTS;
		rights->cmsg_len = CMSG_LEN((size_t)fds * sizeof(int));
		for (int i = 0; i < fds; i++)
			memcpy(CMSG_DATA(rights) + (size_t)i * sizeof(int), &(int){STDIN_FILENO}, sizeof(int));
	}
	assert_int_equal(sendmsg(ends[0], &envelope, 0), size);
}

static void assert_wrong(const char *part)
{
	struct protocol_message message;
	struct errinfo error = {0};
	int before = open_fds(), fd = -2;

	assert_int_equal(endpoint_receive(ends[1], PROTOCOL_UP, &message, &fd, &error), CARRIED_WRONG);
	if (!strstr(error.text, part))
		fail_msg("'%s' has no '%s'", error.text, part);
	assert_int_equal(fd, -2);
	assert_int_equal(open_fds(), before);
}

static void messages_and_their_descriptors_arrive(void **state)
{
	struct protocol_message message, got;
	struct errinfo error;
	struct stat sent, received;
	int fd;

	assert_int_equal(endpoint_receive(ends[1], PROTOCOL_UP, &got, &fd, &error), CARRIED_NOT_YET);
	assert_false(endpoint_wait(ends[1], false, clock_now_ns() + 5 * CLOCK_NS_PER_MS));
	given_message(&message, PROTOCOL_MADE);
	assert_int_equal(endpoint_send(ends[0], &message, ends[0], &error), CARRIED);
	assert_true(endpoint_wait(ends[1], false, clock_now_ns() + 1000 * CLOCK_NS_PER_MS));
	assert_int_equal(endpoint_receive(ends[1], PROTOCOL_UP, &got, &fd, &error), CARRIED);
	assert_memory_equal(&message, &got, sizeof(got));
	assert_int_equal(fstat(ends[0], &sent) | fstat(fd, &received), 0);
	assert_int_equal(sent.st_ino, received.st_ino);
	assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	close(fd);
}

static void descriptors_of_a_refused_message_are_closed(void **state)
{
	struct protocol_message message;
	static char large[2 * sizeof(message)];

	given_message(&message, PROTOCOL_HELLO);
	send_raw(&message, message.header.length, 3);
	assert_wrong("3 descriptors");
	send_raw(&message, message.header.length, 16); /* more than there is room for */
	assert_wrong("descriptors were lost");
	send_raw("nonsense", 8, 1);
	assert_wrong("header alone");
	memcpy(large, &message, sizeof(message));
	send_raw(large, sizeof(large), 1);
	assert_wrong("a message of more than");
}

static void an_end_and_an_empty_message_are_ends(void **state)
{
	struct protocol_message message;
	struct errinfo error;
	int fd;

	send_raw("", 0, 0);
	assert_int_equal(endpoint_receive(ends[1], PROTOCOL_UP, &message, &fd, &error), CARRIED_END);
	shutdown(ends[0], SHUT_RDWR);
	assert_int_equal(endpoint_receive(ends[1], PROTOCOL_UP, &message, &fd, &error), CARRIED_END);
	given_message(&message, PROTOCOL_HELLO);
	assert_int_equal(endpoint_send(ends[1], &message, -1, &error), CARRIED_END);
}

static void a_full_connection_is_not_waited_for(void **state)
{
	struct protocol_message message;
	struct errinfo error;
	int sent = 0;

	given_message(&message, PROTOCOL_HELLO);
	while (endpoint_send(ends[0], &message, -1, &error) == CARRIED && sent < 100000)
		sent++;
	assert_in_range(sent, 1, 99999);
	assert_int_equal(endpoint_send(ends[0], &message, -1, &error), CARRIED_NOT_YET);
}

/* A name in a socket's address has 108 bytes. */
static void a_session_with_a_long_path_is_reached(void **state)
{
	char top[] = "/tmp/sublet-unit-XXXXXX", session[512];
	struct errinfo error = {0};
	int folder, listener, fd;
	pid_t pid;

	assert_non_null(mkdtemp(top));
	snprintf(session, sizeof(session), "%s/%0200d", top, 0);
	assert_int_equal(mkdir(session, 0700), 0);
	folder = endpoint_folder(session, &error);
	assert_true(folder >= 0);
	assert_int_equal(endpoint_connect(folder, &fd, &pid, &error), ENDPOINT_NOBODY);
	assert_int_equal(endpoint_listen(folder, &listener, &error), SUBLET_OK);
	assert_int_equal(endpoint_connect(folder, &fd, &pid, &error), ENDPOINT_CONNECTED);
	assert_int_equal(pid, getpid());
	close(fd);
	close(listener);
	assert_int_equal(endpoint_connect(folder, &fd, &pid, &error), ENDPOINT_STALE);
	assert_int_equal(endpoint_listen(folder, &listener, &error), SUBLET_OK); /* in the place of the stale one */
	assert_int_equal(endpoint_connect(folder, &fd, &pid, &error), ENDPOINT_CONNECTED);
	close(fd);
	close(listener);
	endpoint_remove(folder);
	assert_int_equal(endpoint_connect(folder, &fd, &pid, &error), ENDPOINT_NOBODY);
	close(folder);
	chmod(session, 0750);
	assert_int_equal(endpoint_folder(session, &error), -1);
	assert_non_null(strstr(error.text, "not of this user alone"));
	scratch_remove(top);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_message_comes_out_as_it_went_in),
		cmocka_unit_test(every_message_is_refused_at_every_other_length),
		cmocka_unit_test(headers_that_are_wrong_say_which_way),
		cmocka_unit_test(descriptors_are_taken_where_they_belong_only),
		cmocka_unit_test(values_out_of_range_are_refused),
		cmocka_unit_test(text_is_cut_and_filled_with_zeros),
		cmocka_unit_test_setup_teardown(messages_and_their_descriptors_arrive, given_pair, close_pair),
		cmocka_unit_test_setup_teardown(descriptors_of_a_refused_message_are_closed, given_pair, close_pair),
		cmocka_unit_test_setup_teardown(an_end_and_an_empty_message_are_ends, given_pair, close_pair),
		cmocka_unit_test_setup_teardown(a_full_connection_is_not_waited_for, given_pair, close_pair),
		cmocka_unit_test(a_session_with_a_long_path_is_reached),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
