/* lifecycle/coordinator_peers.c
 * Connections: who may have one, what waits to be read by the other side, and how one ends. */
#include "lifecycle/coordinator_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Linux 6.5: the process that connected, whoever has its pid by now */
#endif

const char *peer_name(const struct peer *peer, char *text, size_t room)
{
	snprintf(text, room, "pid %d%s%s%s", (int)peer->pid, peer->role[0] ? " (" : "", peer->role, peer->role[0] ? ")" : "");
	return text;
}

static void watch(struct coordinator *c, int fd, struct watch *what, uint32_t events, int how)
{
	struct epoll_event event = {.events = events, .data.ptr = what};

	epoll_ctl(c->epoll, how, fd, &event);
}

static int process_fd(int socket_fd, pid_t pid)
{
	int fd = -1;
	socklen_t bytes = sizeof(fd);

	if (getsockopt(socket_fd, SOL_SOCKET, SO_PEERPIDFD, &fd, &bytes) == 0 && fd >= 0) {
		fcntl(fd, F_SETFD, FD_CLOEXEC);
		return fd;
	}
	return pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
}

static void close_socket(struct coordinator *c, struct peer *peer)
{
	if (peer->fd < 0)
		return;
	epoll_ctl(c->epoll, EPOLL_CTL_DEL, peer->fd, NULL);
	close(peer->fd);
	peer->fd = -1;
	while (peer->first_out) {
		struct outgoing *out = peer->first_out;

		peer->first_out = out->next;
		if (out->fd >= 0)
			close(out->fd);
		free(out);
	}
	peer->last_out = NULL;
	peer->out_bytes = 0;
}

static void drop(struct coordinator *c, struct peer *peer, bool process_ended)
{
	if (peer->dropped)
		return;
	close_socket(c, peer);
	if (peer->pidfd >= 0) {
		epoll_ctl(c->epoll, EPOLL_CTL_DEL, peer->pidfd, NULL);
		close(peer->pidfd);
	}
	peer->pidfd = -1;
	peer->dropped = true;
	if (peer->kind == PEER_CLIENT)
		coordinator_trace_peer(c, process_ended ? TRACE_DEATH : TRACE_LEFT, peer, POLICY_NONE, peer->host_bytes);
	requests_peer_gone(c, peer);
	barrier_peer_gone(c, peer);
	pool_connection_gone(c, peer);
	if (peer->kind == PEER_CLIENT) {
		credits_client_gone(c, peer);
		pool_client_gone(c, peer, process_ended);
	}
}

static bool has_ended(const struct peer *peer)
{
	struct pollfd process = {.fd = peer->pidfd, .events = POLLIN};

	return peer->pidfd >= 0 && poll(&process, 1, 0) > 0;
}

/* The connection is over, its process may not be: a child has the socket, the program closed it, this side did. A process that ends
 * closes its descriptors some time before it has ended, too. */
static void disconnect(struct coordinator *c, struct peer *peer)
{
	const bool process_ended = has_ended(peer);

	if (process_ended || peer->pidfd < 0 || peer->kind != PEER_CLIENT ||
		(!peer->host_bytes && !credits_has(c, peer))) {
		drop(c, peer, process_ended);
		return;
	}
	close_socket(c, peer);
	requests_peer_gone(c, peer);
	barrier_peer_gone(c, peer);
	pool_connection_gone(c, peer);
	peer->away_since_ns = clock_now_ns();
}

void peer_came_back(struct coordinator *c, struct peer *peer)
{
	for (struct peer *before = c->peers; before; before = before->next)
		if (before->away_since_ns && before->pid == peer->pid && peer->pid > 0 && !before->dropped)
			drop(c, before, has_ended(before));
}

bool peers_away_hold(const struct coordinator *c, const struct peer *but)
{
	for (const struct peer *peer = c->peers; peer; peer = peer->next)
		if (peer != but && peer->away_since_ns && !peer->dropped && peer->host_bytes)
			return true;
	return false;
}

uint64_t peers_expire(struct coordinator *c, uint64_t now_ns)
{
	uint64_t next = UINT64_MAX;
	char who[128];

	for (struct peer *peer = c->peers; peer; peer = peer->next) {
		const uint64_t until = peer->away_since_ns + AWAY_WAIT_MS * CLOCK_NS_PER_MS;

		if (peer->dropped || !peer->away_since_ns)
			continue;
		if (until <= now_ns) {
			log_say(LOG_SESSION, LOG_INFO, WHOSE_NONE, "%s does not come back; its memory is not counted any more",
				peer_name(peer, who, sizeof(who)));
			drop(c, peer, has_ended(peer));
		} else if (until < next) {
			next = until;
		}
	}
	return next;
}

void peer_refuse(struct coordinator *c, struct peer *peer, const char *text)
{
	struct protocol_message message;
	char who[128];

	if (peer->dropped)
		return;
	log_limited(LOG_SESSION, LOG_WARN, WHOSE_NONE, "connection of %s closed: %s", peer_name(peer, who, sizeof(who)), text);
	protocol_begin(&message, PROTOCOL_REFUSED, 0);
	protocol_text(message.refused.text, sizeof(message.refused.text), text);
	protocol_length(&message);
	if (peer->fd >= 0)
		endpoint_send(peer->fd, &message, -1, NULL);
	disconnect(c, peer);
}

void peer_left(struct coordinator *c, struct peer *peer, bool process_ended)
{
	char who[128];

	if (peer->dropped)
		return;
	/* it becomes the program it was asked to run, which joins, or not, in its own time */
	if (!process_ended && peer->keeps && peer->pidfd >= 0) {
		close_socket(c, peer);
		requests_peer_gone(c, peer);
		barrier_peer_gone(c, peer);
		pool_connection_gone(c, peer);
		return;
	}
	if (peer->kind == PEER_CLIENT || peer->keeps)
		log_say(LOG_SESSION, LOG_INFO, WHOSE_NONE, "%s %s", peer_name(peer, who, sizeof(who)),
			process_ended ? "has ended" : "has left");
	if (process_ended)
		drop(c, peer, true);
	else
		disconnect(c, peer);
}

void peers_drop_all(struct coordinator *c)
{
	for (struct peer *peer = c->peers; peer; peer = peer->next)
		drop(c, peer, false);
}

void peers_bury(struct coordinator *c)
{
	struct peer **at = &c->peers;

	while (*at) {
		struct peer *peer = *at;

		if (!peer->dropped) {
			at = &peer->next;
			continue;
		}
		*at = peer->next;
		c->peers_count--;
		free(peer);
	}
}

/* Not of this session: told why, if it listens. */
static void turn_away(int fd, const char *text)
{
	struct protocol_message message;

	protocol_begin(&message, PROTOCOL_REFUSED, 0);
	protocol_text(message.refused.text, sizeof(message.refused.text), text);
	protocol_length(&message);
	endpoint_send(fd, &message, -1, NULL);
	close(fd);
}

static void meet(struct coordinator *c, int fd)
{
	struct peer *peer, **end = &c->peers;
	uid_t uid;
	pid_t pid;

	if (!endpoint_peer(fd, &uid, &pid) || uid != geteuid()) {
		log_limited(LOG_SESSION, LOG_WARN, WHOSE_NONE, "a process of another user tried to join");
		turn_away(fd, "this session is of another user; use one of your own, with --session NAME");
		return;
	}
	if (c->peers_count >= c->peers_max) {
		log_limited(LOG_SESSION, LOG_WARN, WHOSE_NONE, "no more than %u connections; raise the limit of open files (ulimit -n)",
			c->peers_max);
		turn_away(fd, "the coordinator has no more connections; raise its limit of open files (ulimit -n)");
		return;
	}
	peer = calloc(1, sizeof(*peer));
	if (!peer) {
		turn_away(fd, "the coordinator is out of memory");
		return;
	}
	peer->fd = fd;
	peer->pid = pid;
	peer->pidfd = process_fd(fd, pid);
	peer->since_ns = clock_now_ns();
	peer->socket_watch = (struct watch){WATCH_SOCKET, peer};
	peer->process_watch = (struct watch){WATCH_PROCESS, peer};
	while (*end)
		end = &(*end)->next;
	*end = peer; /* in the order they came: so people read them */
	c->peers_count++;
	watch(c, fd, &peer->socket_watch, EPOLLIN, EPOLL_CTL_ADD);
	if (peer->pidfd >= 0)
		watch(c, peer->pidfd, &peer->process_watch, EPOLLIN, EPOLL_CTL_ADD);
}

/* No descriptor is left for who waits, and it would be announced for ever: the one kept for this is lent to it. */
static bool turn_away_without_fd(struct coordinator *c)
{
	int fd;

	if (c->spare_fd < 0)
		return false;
	close(c->spare_fd);
	fd = accept4(c->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd >= 0)
		turn_away(fd, "the coordinator has no descriptors left; raise its limit of open files (ulimit -n)");
	c->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	return fd >= 0;
}

void peers_accept(struct coordinator *c)
{
	/* bounded, so that who connects in a loop does not keep the others waiting */
	for (int i = 0; i < 64; i++) {
		int fd = accept4(c->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd >= 0)
			meet(c, fd);
		else if (errno != EMFILE && errno != ENFILE)
			return;
		else if (!turn_away_without_fd(c))
			return;
	}
}

static bool enqueue(struct peer *peer, const struct protocol_message *message, int own_fd, int borrowed_fd)
{
	struct outgoing *out = malloc(offsetof(struct outgoing, message) + message->header.length);

	if (!out)
		return false;
	out->next = NULL;
	out->fd = own_fd;
	out->borrowed_fd = borrowed_fd;
	memcpy(&out->message, message, message->header.length);
	if (peer->last_out)
		peer->last_out->next = out;
	else
		peer->first_out = out;
	peer->last_out = out;
	peer->out_bytes += message->header.length;
	return true;
}

void peer_send(struct coordinator *c, struct peer *peer, struct protocol_message *message, int own_fd, int borrowed_fd)
{
	const size_t queue_bytes = peer->kind == PEER_CONTROL ? CONTROL_QUEUE_BYTES : CLIENT_QUEUE_BYTES;

	protocol_length(message);
	if (peer->dropped || peer->fd < 0)
		goto close;
	if (peer->out_bytes + message->header.length > queue_bytes || !enqueue(peer, message, own_fd, borrowed_fd)) {
		peer_refuse(c, peer, "it does not read its answers");
		goto close;
	}
	peer_flush(c, peer);
	return;
close:
	if (own_fd >= 0)
		close(own_fd);
}

void peer_flush(struct coordinator *c, struct peer *peer)
{
	bool wants_write;

	while (!peer->dropped && peer->first_out) {
		struct outgoing *out = peer->first_out;
		enum endpoint_carried carried =
			endpoint_send(peer->fd, &out->message, out->fd >= 0 ? out->fd : out->borrowed_fd, NULL);

		if (carried == CARRIED_NOT_YET)
			break;
		if (carried != CARRIED) {
			peer_left(c, peer, false);
			return;
		}
		peer->first_out = out->next;
		if (!peer->first_out)
			peer->last_out = NULL;
		peer->out_bytes -= out->message.header.length;
		if (out->fd >= 0)
			close(out->fd);
		free(out);
	}
	wants_write = peer->first_out != NULL;
	if (!peer->dropped && peer->fd >= 0 && wants_write != peer->wants_write) {
		peer->wants_write = wants_write;
		watch(c, peer->fd, &peer->socket_watch, EPOLLIN | (wants_write ? EPOLLOUT : 0), EPOLL_CTL_MOD);
	}
}
