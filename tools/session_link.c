/* tools/session_link.c
 * Questions and answers, one at a time. Nothing here waits without a bound. */
#include "tools/session_link.h"

#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "lifecycle/endpoint.h"
#include "tools/command.h"

#define ANSWER_WAIT_NS (10000 * CLOCK_NS_PER_MS)

static const char no_answer[] = "the session's coordinator (pid %d) does not answer; is it stopped? 'kill %d' ends it";

static bool send_message(struct session_link *link, struct protocol_message *message)
{
	struct errinfo error = {0};
	uint64_t deadline = clock_now_ns() + ANSWER_WAIT_NS;
	enum endpoint_carried carried;

	protocol_length(message);
	while ((carried = endpoint_send(link->fd, message, -1, &error)) == CARRIED_NOT_YET)
		if (!endpoint_wait(link->fd, true, deadline))
			return fail(STATUS_BAD, no_answer, (int)link->pid, (int)link->pid) == STATUS_GOOD;
	/* who was turned away is told so by what it receives */
	return carried == CARRIED || carried == CARRIED_END || fail(STATUS_BAD, "%s", error.text) == STATUS_GOOD;
}

static bool receive(struct session_link *link, uint64_t wait_ns, struct protocol_message *ret_message, int *ret_fd)
{
	struct errinfo error = {.text = "the session's coordinator has gone; see " ENDPOINT_LOG " in the session folder"};
	uint64_t deadline = clock_now_ns() + wait_ns;
	enum endpoint_carried carried;

	while ((carried = endpoint_receive(link->fd, PROTOCOL_DOWN, ret_message, ret_fd, &error)) == CARRIED_NOT_YET)
		if (!endpoint_wait(link->fd, false, deadline))
			return fail(STATUS_BAD, no_answer, (int)link->pid, (int)link->pid) == STATUS_GOOD;
	if (carried != CARRIED)
		return fail(STATUS_BAD, "%s", error.text) == STATUS_GOOD;
	if (ret_message->header.type == PROTOCOL_REFUSED)
		return fail(STATUS_BAD, "the session's coordinator refuses: %s", ret_message->refused.text) == STATUS_GOOD;
	return true;
}

static bool map_policy(struct session_link *link, int fd, uint64_t bytes)
{
	struct errinfo error;
	struct stat status;
	void *map = MAP_FAILED;

	/* a page behind its end would raise SIGBUS */
	if (fstat(fd, &status) == 0 && (uint64_t)status.st_size >= bytes)
		map = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		return fail(STATUS_BAD, "cannot map the session's policy; try again") == STATUS_GOOD;
	link->bytes = map;
	link->size_bytes = bytes;
	return policy_open(map, bytes, &link->policy, &error) == SUBLET_OK ||
	       fail(STATUS_BAD, "the session's policy cannot be used: %s", error.text) == STATUS_GOOD;
}

static bool say_hello(struct session_link *link)
{
	struct protocol_message message;
	bool good = true;
	int fd;

	protocol_begin(&message, PROTOCOL_HELLO, ++link->serial);
	message.hello.peer = PEER_CONTROL;
	message.hello.pid = (int32_t)getpid();
	protocol_text(message.hello.command, sizeof(message.hello.command), "sublet");
	if (!send_message(link, &message) || !receive(link, ANSWER_WAIT_NS, &message, &fd))
		return false;
	if (message.header.type != PROTOCOL_WELCOME || (fd >= 0) != (message.welcome.policy_bytes > 0))
		good = fail(STATUS_BAD, "the session's coordinator gives a wrong answer; use one version of Sublet in the session") ==
		       STATUS_GOOD;
	if (good) {
		link->pid = message.welcome.pid;
		protocol_text(link->policy_name, sizeof(link->policy_name), message.welcome.policy_name);
		good = fd < 0 || map_policy(link, fd, message.welcome.policy_bytes);
	}
	if (fd >= 0)
		close(fd);
	return good;
}

enum link_state session_link_open(struct session_link *link, const char *session)
{
	enum endpoint_state state = ENDPOINT_BUSY;
	struct errinfo error;
	int folder = endpoint_folder(session, &error);
	pid_t pid = 0;

	*link = (struct session_link){.fd = -1};
	for (int tries = 0; folder >= 0 && state == ENDPOINT_BUSY && tries < 100; tries++) {
		state = endpoint_connect(folder, &link->fd, &pid, &error);
		if (state == ENDPOINT_BUSY)
			clock_sleep_ns(20 * CLOCK_NS_PER_MS);
	}
	if (folder >= 0)
		close(folder);
	if (folder >= 0 && (state == ENDPOINT_NOBODY || state == ENDPOINT_STALE))
		return LINK_NOBODY;
	if (folder < 0 || state != ENDPOINT_CONNECTED) {
		fail(STATUS_BAD, "%s", error.text);
		return LINK_FAILED;
	}
	link->pid = (int32_t)pid;
	if (say_hello(link))
		return LINK_OPEN;
	session_link_close(link);
	return LINK_FAILED;
}

void session_link_close(struct session_link *link)
{
	if (link->fd >= 0)
		close(link->fd);
	if (link->bytes)
		munmap((void *)link->bytes, link->size_bytes);
	*link = (struct session_link){.fd = -1};
}

bool session_link_ask(struct session_link *link, struct protocol_message *message)
{
	message->header.serial = ++link->serial;
	return send_message(link, message);
}

bool session_link_next(struct session_link *link, uint64_t wait_ns, struct protocol_message *ret_message)
{
	int fd;

	if (!session_link_next_with(link, wait_ns, ret_message, &fd))
		return false;
	if (fd >= 0)
		close(fd);
	return true;
}

bool session_link_next_with(struct session_link *link, uint64_t wait_ns, struct protocol_message *ret_message, int *ret_fd)
{
	if (!receive(link, wait_ns, ret_message, ret_fd))
		return false;
	if (ret_message->header.serial == link->serial)
		return true;
	if (*ret_fd >= 0)
		close(*ret_fd);
	return fail(STATUS_BAD, "the session's coordinator answers another question; use one version of Sublet in the session") ==
	       STATUS_GOOD;
}

bool session_link_end(struct session_link *link, uint64_t wait_ns)
{
	uint64_t deadline = clock_now_ns() + wait_ns;
	struct protocol_message message;
	enum endpoint_carried carried;
	int fd;

	while ((carried = endpoint_receive(link->fd, PROTOCOL_DOWN, &message, &fd, NULL)) == CARRIED ||
		carried == CARRIED_NOT_YET) {
		if (carried == CARRIED && fd >= 0)
			close(fd);
		if (!endpoint_wait(link->fd, false, deadline))
			return false;
	}
	return true;
}

bool session_link_keep(struct session_link *link)
{
	struct protocol_message message;

	protocol_begin(&message, PROTOCOL_ASK_KEEP, 0);
	return session_link_ask(link, &message) && session_link_next(link, ANSWER_WAIT_NS, &message);
}
