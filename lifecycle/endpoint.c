/* lifecycle/endpoint.c
 * System calls around one kind of socket. Lives in other people's processes too: no signal, no wait but where the name says
 * so, nothing left open. */
#include "lifecycle/endpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"

enum {
	BACKLOG = 1024, /* clients that come at once: a node's worth of ranks and their helpers */
	FDS_ROOM = 8,	/* descriptors of one message that are received, to be closed again: one is wanted */
};

int endpoint_folder(const char *session, struct errinfo *reterr)
{
	struct stat status;
	int fd = open(session, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0) {
		errinfo_set(reterr, SUBLET_ERR_SYSTEM, 0, "session folder: %s; start with 'sublet run'", text_of_errno(errno));
		return -1;
	}
	if (fstat(fd, &status) || status.st_uid != geteuid() || (status.st_mode & 077)) {
		close(fd);
		errinfo_set(reterr, SUBLET_ERR_INVALID, 0,
			"the session folder is not of this user alone (mode 0700); choose another");
		return -1;
	}
	return fd;
}

/* By way of the open folder: a name in a socket's address has 108 bytes, a session's folder may have more. */
static socklen_t address_of(int folder_fd, struct sockaddr_un *address)
{
	memset(address, 0, sizeof(*address));
	address->sun_family = AF_UNIX;
	snprintf(address->sun_path, sizeof(address->sun_path), "/proc/self/fd/%d/" ENDPOINT_SOCKET, folder_fd);
	return sizeof(*address);
}

static int make_socket(struct errinfo *reterr)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		errinfo_set(reterr, SUBLET_ERR_SYSTEM, 0, "no socket: %s", text_of_errno(errno));
	return fd;
}

bool endpoint_peer(int fd, uid_t *ret_uid, pid_t *ret_pid)
{
	struct ucred who;
	socklen_t bytes = sizeof(who);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &bytes) || bytes != sizeof(who))
		return false;
	*ret_uid = who.uid;
	*ret_pid = who.pid;
	return true;
}

enum endpoint_state endpoint_connect(int folder_fd, int *ret_fd, pid_t *ret_pid, struct errinfo *reterr)
{
	enum endpoint_state state = ENDPOINT_FAILED;
	struct sockaddr_un address;
	socklen_t bytes = address_of(folder_fd, &address);
	uid_t uid;
	pid_t pid;
	int fd = make_socket(reterr);

	if (fd < 0)
		return state;
	if (connect(fd, (struct sockaddr *)&address, bytes)) {
		state = errno == ENOENT ? ENDPOINT_NOBODY
			: errno == ECONNREFUSED ? ENDPOINT_STALE
			: errno == EAGAIN	? ENDPOINT_BUSY
						: ENDPOINT_FAILED;
		errinfo_set(reterr, SUBLET_ERR_SYSTEM, 0, "cannot connect to the session's coordinator: %s",
			text_of_errno(errno));
		goto close;
	}
	if (!endpoint_peer(fd, &uid, &pid) || uid != geteuid()) {
		errinfo_set(reterr, SUBLET_ERR_INVALID, 0,
			"the session's coordinator is of another user; use a session folder of your own");
		goto close;
	}
	*ret_fd = fd;
	if (ret_pid)
		*ret_pid = pid;
	return ENDPOINT_CONNECTED;
close:
	close(fd);
	return state;
}

enum sublet_err endpoint_listen(int folder_fd, int *ret_fd, struct errinfo *reterr)
{
	struct sockaddr_un address;
	socklen_t bytes = address_of(folder_fd, &address);
	int fd = make_socket(reterr), error;

	if (fd < 0)
		return SUBLET_ERR_SYSTEM;
	if (unlinkat(folder_fd, ENDPOINT_SOCKET, 0) && errno != ENOENT)
		goto close;
	/* the folder keeps others out; the mode is for those who look */
	if (fchmod(fd, 0600) || bind(fd, (struct sockaddr *)&address, bytes) || listen(fd, BACKLOG))
		goto close;
	*ret_fd = fd;
	return SUBLET_OK;
close:
	error = errno;
	close(fd);
	return errinfo_set(reterr, SUBLET_ERR_SYSTEM, 0, "cannot listen in the session folder: %s; choose another with --session DIR",
		text_of_errno(error));
}

void endpoint_remove(int folder_fd)
{
	unlinkat(folder_fd, ENDPOINT_SOCKET, 0);
}

enum endpoint_carried endpoint_send(int fd, const struct protocol_message *message, int pass_fd, struct errinfo *reterr)
{
	struct iovec part = {(void *)message, message->header.length};
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct msghdr envelope = {.msg_iov = &part, .msg_iovlen = 1};
	ssize_t sent;

	if (pass_fd >= 0) {
		struct cmsghdr *rights = &control.align;

		envelope.msg_control = control.bytes;
		envelope.msg_controllen = sizeof(control.bytes);
		rights->cmsg_level = SOL_SOCKET;
		rights->cmsg_type = SCM_RIGHTS;
		rights->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(rights), &pass_fd, sizeof(int));
	}
	do
		sent = sendmsg(fd, &envelope, MSG_NOSIGNAL | MSG_DONTWAIT);
	while (sent < 0 && errno == EINTR);
	if (sent == (ssize_t)message->header.length)
		return CARRIED;
	if (sent < 0 && (errno == EAGAIN || errno == ENOBUFS))
		return CARRIED_NOT_YET;
	if (sent < 0 && (errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN))
		return CARRIED_END;
	errinfo_set(reterr, SUBLET_ERR_SYSTEM, 0, "cannot send: %s", text_of_errno(errno));
	return CARRIED_WRONG;
}

/* The first descriptor of what came along, or -1, and how many there were. Those behind the first are closed. */
static unsigned int take_fds(struct msghdr *envelope, int *ret_fd)
{
	unsigned int count = 0;

	*ret_fd = -1;
	for (struct cmsghdr *part = CMSG_FIRSTHDR(envelope); part; part = CMSG_NXTHDR(envelope, part)) {
		size_t bytes = part->cmsg_len - CMSG_LEN(0);

		if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t at = 0; at + sizeof(int) <= bytes; at += sizeof(int)) {
			int fd;

			memcpy(&fd, CMSG_DATA(part) + at, sizeof(fd));
			if (count++ == 0)
				*ret_fd = fd;
			else
				close(fd);
		}
	}
	return count;
}

enum endpoint_carried endpoint_receive(int fd, enum protocol_way way, struct protocol_message *ret_message, int *ret_fd,
	struct errinfo *reterr)
{
	struct protocol_message raw;
	struct iovec part = {&raw, sizeof(raw)};
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(FDS_ROOM * sizeof(int))];
	} control;
	struct msghdr envelope = {
		.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof(control.bytes)};
	unsigned int fds;
	ssize_t got;
	int passed, reset = 0;

	/* A reset is told once, before what was sent in front of it: a refusal to somebody whose hello was not even read. */
	do
		got = recvmsg(fd, &envelope, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	while (got < 0 && (errno == EINTR || (errno == ECONNRESET && !reset++)));
	if (got < 0 && errno == EAGAIN)
		return CARRIED_NOT_YET;
	if (got < 0 && errno == ECONNRESET)
		return CARRIED_END;
	if (got < 0) {
		errinfo_set(reterr, SUBLET_ERR_SYSTEM, 0, "cannot receive: %s", text_of_errno(errno));
		return CARRIED_WRONG;
	}
	fds = take_fds(&envelope, &passed);
	/* an empty message is no end for this kind of socket, but nobody here sends one either */
	if (got == 0 && !fds)
		return CARRIED_END;
	if (envelope.msg_flags & MSG_CTRUNC)
		errinfo_set(reterr, SUBLET_ERR_SYSTEM, 0,
			"descriptors were lost on their way; raise the limit of open files (ulimit -n)");
	else if (envelope.msg_flags & MSG_TRUNC)
		errinfo_set(reterr, SUBLET_ERR_INVALID, 0,
			"a message of more than %zu bytes; only programs of Sublet may use a session's socket", sizeof(raw));
	else if (protocol_decode(&raw, (size_t)got, fds, way, ret_message, reterr) == SUBLET_OK) {
		*ret_fd = passed;
		return CARRIED;
	}
	if (passed >= 0)
		close(passed);
	return CARRIED_WRONG;
}

bool endpoint_wait(int fd, bool to_write, uint64_t deadline_ns)
{
	struct pollfd wait_for = {.fd = fd, .events = to_write ? POLLOUT : POLLIN};

	for (;;) {
		uint64_t now = clock_now_ns();
		uint64_t left_ms = deadline_ns > now ? (deadline_ns - now + CLOCK_NS_PER_MS - 1) / CLOCK_NS_PER_MS : 0;
		int got = poll(&wait_for, 1, left_ms > 60000 ? 60000 : (int)left_ms);

		if (got > 0)
			return true;
		if (clock_now_ns() >= deadline_ns || (got < 0 && errno != EINTR))
			return false;
	}
}
