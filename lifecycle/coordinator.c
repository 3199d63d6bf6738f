/* lifecycle/coordinator.c
 * The loop: who is ready is read one message at a time, so that a flood from one costs the others a turn and no more. Then
 * deadlines, then the dropped are buried, then it waits again. */
#include "lifecycle/coordinator.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "lifecycle/coordinator_priv.h"

enum { EVENTS = 64, FDS_SPARED = 32 /* libraries, standard streams, the coordinator's own */ };

/* A client has two descriptors here, an extent one. Returns how many there may be. */
static rlim_t raise_file_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit))
		return 1024;
	if (limit.rlim_cur < limit.rlim_max) {
		limit.rlim_cur = limit.rlim_max;
		if (setrlimit(RLIMIT_NOFILE, &limit))
			getrlimit(RLIMIT_NOFILE, &limit);
	}
	return limit.rlim_cur > 1u << 20 ? 1u << 20 : limit.rlim_cur;
}

/* Process ids mean something in one namespace only, so it is asked of the socket first. */
static pid_t other_pid(int folder_fd, int lock_fd)
{
	char text[24] = "";
	pid_t pid = 0;
	int fd;

	if (endpoint_connect(folder_fd, &fd, &pid, NULL) == ENDPOINT_CONNECTED)
		close(fd);
	if (pid <= 0 && pread(lock_fd, text, sizeof(text) - 1, 0) > 0)
		pid = (pid_t)strtol(text, NULL, 10);
	return pid > 0 ? pid : -1;
}

/* The lock is the session's, not the socket's: it is gone with its holder however that ends, so a socket found under it is
 * stale. On a file system without locks, and where somebody has removed the file, the socket itself is asked. */
static enum sublet_err take_session(struct coordinator *c, pid_t *ret_other, struct errinfo *reterr)
{
	enum endpoint_state state;
	char pid[24];
	int fd;

	c->lock_fd = openat(c->folder_fd, ENDPOINT_LOCK, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (c->lock_fd < 0)
		return errinfo_set(reterr, SUBLET_ERR_SYSTEM, 0, "cannot lock the session: %s; choose another with --session DIR",
			text_of_errno(errno));
	if (flock(c->lock_fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK) {
		*ret_other = other_pid(c->folder_fd, c->lock_fd);
		goto taken;
	}
	state = endpoint_connect(c->folder_fd, &fd, NULL, NULL);
	if (state == ENDPOINT_CONNECTED)
		close(fd);
	if (state == ENDPOINT_CONNECTED || state == ENDPOINT_BUSY) {
		*ret_other = other_pid(c->folder_fd, c->lock_fd);
		goto taken;
	}
	snprintf(pid, sizeof(pid), "%d\n", (int)getpid());
	if (ftruncate(c->lock_fd, 0) || pwrite(c->lock_fd, pid, strlen(pid), 0) < 0)
		log_say(LOG_SESSION, LOG_WARN, WHOSE_NONE, "cannot note the process id in the session folder: %s", text_of_errno(errno));
	return SUBLET_OK;
taken:
	if (*ret_other < 0)
		return errinfo_set(reterr, SUBLET_ERR_INVALID, 0, "a coordinator outside this container serves this session already");
	return errinfo_set(reterr, SUBLET_ERR_INVALID, 0, "a coordinator serves this session already (pid %d)", (int)*ret_other);
}

/* One copy for all clients, that nobody can change once it is theirs: what policy_open has checked stays checked. */
static enum sublet_err seal_policy(struct coordinator *c, const struct coordinator_config *config, struct errinfo *reterr)
{
	const char *bytes = config->policy;
	size_t done = 0;

	c->policy_fd = memfd_create("sublet-policy", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (c->policy_fd < 0)
		return errinfo_set(reterr, SUBLET_ERR_SYSTEM, 0, "memfd_create: %s", text_of_errno(errno));
	while (done < config->policy_bytes) {
		ssize_t written = write(c->policy_fd, bytes + done, config->policy_bytes - done);

		if (written <= 0)
			return errinfo_set(reterr, SUBLET_ERR_SYSTEM, 0, "no room for the policy: %s", text_of_errno(errno));
		done += (size_t)written;
	}
	if (fcntl(c->policy_fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		return errinfo_set(reterr, SUBLET_ERR_SYSTEM, 0, "the policy cannot be sealed: %s", text_of_errno(errno));
	c->policy_bytes = mmap(NULL, config->policy_bytes, PROT_READ, MAP_SHARED, c->policy_fd, 0);
	if (c->policy_bytes == MAP_FAILED) {
		c->policy_bytes = NULL;
		return errinfo_set(reterr, SUBLET_ERR_SYSTEM, 0, "the policy cannot be mapped: %s", text_of_errno(errno));
	}
	c->policy_size = config->policy_bytes;
	return policy_open(c->policy_bytes, config->policy_bytes, &c->policy, reterr);
}

static enum sublet_err take_signals(struct coordinator *c, struct errinfo *reterr)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, NULL);
	c->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	c->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (c->signals < 0 || c->epoll < 0)
		return errinfo_set(reterr, SUBLET_ERR_SYSTEM, 0, "cannot wait for events: %s", text_of_errno(errno));
	return SUBLET_OK;
}

static enum sublet_err listen_and_watch(struct coordinator *c, struct errinfo *reterr)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = &c->listener_watch};
	enum sublet_err err = endpoint_listen(c->folder_fd, &c->listener, reterr);

	if (err)
		return err;
	c->listener_watch.kind = WATCH_LISTENER;
	c->signals_watch.kind = WATCH_SIGNALS;
	if (epoll_ctl(c->epoll, EPOLL_CTL_ADD, c->listener, &event))
		goto failed;
	event.data.ptr = &c->signals_watch;
	if (epoll_ctl(c->epoll, EPOLL_CTL_ADD, c->signals, &event))
		goto failed;
	return SUBLET_OK;
failed:
	return errinfo_set(reterr, SUBLET_ERR_SYSTEM, 0, "cannot wait for events: %s", text_of_errno(errno));
}

enum sublet_err coordinator_new(struct coordinator **ret, const struct coordinator_config *config, pid_t *ret_other,
	struct errinfo *reterr)
{
	struct coordinator *c = calloc(1, sizeof(*c));
	enum sublet_err err = SUBLET_OK;
	rlim_t files;

	*ret_other = 0;
	if (!c)
		return errinfo_set(reterr, SUBLET_ERR_NOMEM, 0, "out of memory");
	c->folder_fd = c->lock_fd = c->listener = c->epoll = c->signals = c->spare_fd = c->policy_fd = -1;
	c->barrier.phase = c->barrier.to = POLICY_NONE;
	c->session = config->session;
	c->policy_name = config->policy_name;
	c->linger_ns = config->linger_ns;
	files = raise_file_limit();
	files = files > FDS_SPARED * 2 ? files - FDS_SPARED : FDS_SPARED;
	c->peers_max = (uint32_t)(files / 4); /* two descriptors each: half for them, half for extents */
	pool_init(&c->pool, config->pool_bytes, (uint32_t)(files / 2));
	c->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	c->folder_fd = endpoint_folder(config->session, reterr);
	if (c->folder_fd < 0)
		err = SUBLET_ERR_SYSTEM;
	if (!err)
		err = take_session(c, ret_other, reterr);
	if (!err && config->policy)
		err = seal_policy(c, config, reterr);
	if (!err)
		err = take_signals(c, reterr);
	if (!err)
		err = listen_and_watch(c, reterr);
	if (err) {
		coordinator_free(c);
		return err;
	}
	coordinator_trace_begin(c, config->trace_folder, config->trace_bytes);
	c->alone_since_ns = clock_now_ns();
	*ret = c;
	return SUBLET_OK;
}

static void hello(struct coordinator *c, struct peer *peer, const struct protocol_message *message)
{
	struct protocol_message welcome;
	char who[128];

	peer->kind = message->hello.peer;
	peer->without_gpu = message->hello.without_gpu;
	memcpy(peer->role, message->hello.role, sizeof(peer->role));
	memcpy(peer->command, message->hello.command, sizeof(peer->command));
	text_make_printable(peer->role);
	text_make_printable(peer->command);
	protocol_begin(&welcome, PROTOCOL_WELCOME, message->header.serial);
	welcome.welcome.pid = (int32_t)getpid();
	welcome.welcome.policy_bytes = c->policy_size;
	welcome.welcome.pool_bytes = c->pool.cap_bytes;
	protocol_text(welcome.welcome.policy_name, sizeof(welcome.welcome.policy_name), c->policy_name);
	text_make_printable(welcome.welcome.policy_name);
	if (peer->kind == PEER_CLIENT) {
		peer_came_back(c, peer);
		peer->host_bytes = message->hello.host_bytes;
		pool_make_room(c, 0, 0);
		log_say(LOG_SESSION, LOG_INFO, WHOSE_NONE, "%s joins: %s", peer_name(peer, who, sizeof(who)), peer->command);
	}
	peer_send(c, peer, &welcome, -1, c->policy_fd);
}

static void handle_client(struct coordinator *c, struct peer *peer, const struct protocol_message *message, int *fd)
{
	struct errinfo error = {.text = "an answer that nobody asked for; use one version of Sublet in the session"};
	bool good = true;

	switch (message->header.type) {
	case PROTOCOL_JOINED:
		memcpy(peer->role, message->joined.role, sizeof(peer->role));
		text_make_printable(peer->role);
		peer->joined = true;
		coordinator_trace_peer(c, TRACE_JOINED, peer, c->barrier.phase, 0);
		pool_trim(c);
		barrier_tell(c, peer);
		break;
	case PROTOCOL_CREDIT:
	case PROTOCOL_GIVE:
	case PROTOCOL_TAKE:
	case PROTOCOL_MADE:
	case PROTOCOL_LEAVE:
	case PROTOCOL_RECALLED:
		good = pool_message(c, peer, message, fd, &error);
		break;
	case PROTOCOL_DEVICE_CREDIT:
	case PROTOCOL_DEVICE_HAVE:
		good = credits_message(c, peer, message, &error);
		break;
	case PROTOCOL_LISTED:
		good = request_listed(c, peer, message);
		break;
	case PROTOCOL_ARRIVE:
		peer->needs.devices = message->arrive.devices;
		barrier_arrive(c, peer, message->header.serial, message->arrive.phase, message->arrive.timeout_ns);
		break;
	case PROTOCOL_STUCK:
		barrier_stuck(c, peer, message);
		break;
	case PROTOCOL_STEPPED:
		good = barrier_stepped(c, peer, message);
		break;
	case PROTOCOL_TOLD:
		good = request_told(c, peer, message, fd);
		break;
	case PROTOCOL_SERVING:
		good = request_serving(c, peer, message->header.serial);
		break;
	case PROTOCOL_SERVED:
		good = request_served(c, peer, message);
		break;
	default: /* what protocol_decode let through and is a command's */
		good = false;
		errinfo_set(&error, SUBLET_ERR_INVALID, 0, "message %s is a command's; use one version of Sublet in the session",
			protocol_name(message->header.type));
	}
	if (!good)
		peer_refuse(c, peer, error.text);
}

static void handle_control(struct coordinator *c, struct peer *peer, const struct protocol_message *message)
{
	const uint64_t serial = message->header.serial;
	char text[128];

	switch (message->header.type) {
	case PROTOCOL_ASK_STATUS:
		request_status(c, peer, serial);
		break;
	case PROTOCOL_ASK_SERVE:
		request_serve(c, peer, message);
		break;
	case PROTOCOL_ASK_INVENTORY:
		request_inventory(c, peer, serial);
		break;
	case PROTOCOL_ASK_PHASE:
		barrier_arrive(c, peer, serial, message->arrive.phase, message->arrive.timeout_ns);
		break;
	case PROTOCOL_ASK_STOP:
		log_say(LOG_SESSION, LOG_INFO, WHOSE_NONE, "stopped by 'sublet ctl stop'");
		c->stopping = true;
		control_end(c, peer, serial, 0, SUBLET_OK, "");
		break;
	case PROTOCOL_ASK_KEEP:
		peer->keeps = true;
		log_say(LOG_SESSION, LOG_INFO, WHOSE_NONE, "stays for pid %d", (int)peer->pid);
		control_end(c, peer, serial, 0, SUBLET_OK, "");
		break;
	default:
		snprintf(text, sizeof(text), "message %s is a client's; use one version of Sublet in the session",
			protocol_name(message->header.type));
		peer_refuse(c, peer, text);
	}
}

static void read_one(struct coordinator *c, struct peer *peer)
{
	struct protocol_message message;
	struct errinfo error;
	int fd;

	switch (endpoint_receive(peer->fd, PROTOCOL_UP, &message, &fd, &error)) {
	case CARRIED:
		break;
	case CARRIED_NOT_YET:
		return;
	case CARRIED_END:
		peer_left(c, peer, false);
		return;
	case CARRIED_WRONG:
		peer_refuse(c, peer, error.text);
		return;
	}
	if ((message.header.type == PROTOCOL_HELLO) != (peer->kind == 0))
		peer_refuse(c, peer, peer->kind ? "a second hello; connect once" : "the first message has to be a hello");
	else if (message.header.type == PROTOCOL_HELLO)
		hello(c, peer, &message);
	else if (peer->kind == PEER_CLIENT)
		handle_client(c, peer, &message, &fd);
	else
		handle_control(c, peer, &message);
	if (fd >= 0)
		close(fd);
}

static void handle_event(struct coordinator *c, const struct epoll_event *event)
{
	const struct watch *watch = event->data.ptr;
	struct signalfd_siginfo info;

	switch (watch->kind) {
	case WATCH_LISTENER:
		peers_accept(c);
		break;
	case WATCH_SIGNALS:
		if (read(c->signals, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
			log_say(LOG_SESSION, LOG_INFO, WHOSE_NONE, "ended by signal %u", info.ssi_signo);
			c->stopping = true;
		}
		break;
	case WATCH_SOCKET:
		if (event->events & EPOLLOUT && !watch->peer->dropped && watch->peer->fd >= 0)
			peer_flush(c, watch->peer);
		/* what it said before it left is read first */
		if (event->events & (EPOLLIN | EPOLLHUP | EPOLLERR) && !watch->peer->dropped && watch->peer->fd >= 0)
			read_one(c, watch->peer);
		break;
	case WATCH_PROCESS:
		peer_left(c, watch->peer, true);
		break;
	}
}

/* Deadlines of everybody. Returns when the next one is. */
static uint64_t keep_time(struct coordinator *c)
{
	/* the barrier last: sending may drop a peer, which the barrier waits for */
	uint64_t now = clock_now_ns(), next = requests_expire(c, now), away = peers_expire(c, now), credit = credits_tick(c, now),
		 waits = pool_expire(c, now), due = barrier_tick(c, now);
	bool alone = true;

	next = waits < next ? waits : next;
	next = away < next ? away : next;
	next = due < next ? due : next;
	next = credit < next ? credit : next;

	for (struct peer *peer = c->peers; peer; peer = peer->next) {
		uint64_t until = peer->since_ns + HELLO_WAIT_MS * CLOCK_NS_PER_MS;

		if (peer->dropped)
			continue;
		if (peer->kind == PEER_CLIENT || peer->keeps)
			alone = false;
		if (peer->kind)
			continue;
		if (until <= now)
			peer_refuse(c, peer, "it did not say who it is");
		else if (until < next)
			next = until;
	}
	if (!alone) {
		c->alone_since_ns = 0;
	} else if (c->linger_ns) {
		if (!c->alone_since_ns)
			c->alone_since_ns = now;
		if (now - c->alone_since_ns >= c->linger_ns) {
			log_say(LOG_SESSION, LOG_INFO, WHOSE_NONE, "ends: no process of the session is left");
			c->stopping = true;
		} else if (c->alone_since_ns + c->linger_ns < next) {
			next = c->alone_since_ns + c->linger_ns;
		}
	}
	return next;
}

static int wait_ms(uint64_t next)
{
	uint64_t now = clock_now_ns();

	if (next == UINT64_MAX)
		return -1;
	if (next <= now)
		return 0;
	return next - now > 60000 * CLOCK_NS_PER_MS ? 60000 : (int)((next - now + CLOCK_NS_PER_MS - 1) / CLOCK_NS_PER_MS);
}

enum sublet_err coordinator_run(struct coordinator *c, struct errinfo *reterr)
{
	struct epoll_event events[EVENTS];

	while (!c->stopping) {
		uint64_t next = keep_time(c);
		int count;

		peers_bury(c);
		if (c->stopping)
			break;
		count = epoll_wait(c->epoll, events, EVENTS, wait_ms(next));
		if (count < 0 && errno != EINTR)
			return errinfo_set(reterr, SUBLET_ERR_SYSTEM, 0, "epoll_wait: %s", text_of_errno(errno));
		for (int i = 0; i < count; i++)
			handle_event(c, &events[i]);
	}
	return SUBLET_OK;
}

static void close_fd(int fd)
{
	if (fd >= 0)
		close(fd);
}

void coordinator_free(struct coordinator *c)
{
	if (!c)
		return;
	/* first: who connects from here on finds nobody, and waits for the next */
	if (c->listener >= 0)
		endpoint_remove(c->folder_fd);
	close_fd(c->listener);
	close_fd(c->lock_fd); /* before the peers are let go: who waited for this end may serve the session next */
	peers_drop_all(c);
	requests_release(c);
	barrier_release(c);
	peers_bury(c);
	pool_release(&c->pool);
	credits_release(c);
	coordinator_trace_end(c);
	if (c->policy_bytes)
		munmap((void *)c->policy_bytes, c->policy_size);
	close_fd(c->policy_fd);
	close_fd(c->signals);
	close_fd(c->epoll);
	close_fd(c->spare_fd);
	close_fd(c->folder_fd);
	free(c);
}
