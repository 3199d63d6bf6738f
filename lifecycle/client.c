/* lifecycle/client.c
 * The connection of this process: join, read, lose, join again. One thread reads; all send, under the lock. */
#include "lifecycle/client.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "lifecycle/client_priv.h"
#include "lifecycle/endpoint.h"
#include "lifecycle/lifecycle.h"

#define PAUSE_LEAST_NS 50000000ull
#define PAUSE_MOST_NS 2000000000ull
#define LOOK_NS 10000000000ull /* how often it is seen whether the descriptor is still ours, when nothing comes */
#define SEND_WAIT_NS 1000000000ull

enum { FD_LEAST = 900 }; /* out of the way of programs that count on low numbers */

static const char closed_by_program[] = "the program has closed the connection to the session's coordinator";

void client_init(struct client *client)
{
	pthread_condattr_t attributes;

	memset(client, 0, sizeof(*client));
	client->socket.fd = -1;
	ranked_lock_init(&client->lock, RANK_CLIENT);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&client->changed, &attributes);
	pthread_condattr_destroy(&attributes);
}

void client_wait(struct client *client, uint64_t deadline_ns)
{
	const struct timespec deadline = {
		.tv_sec = (time_t)(deadline_ns / 1000000000ull), .tv_nsec = (long)(deadline_ns % 1000000000ull)};

	if (deadline_ns == UINT64_MAX)
		pthread_cond_wait(&client->changed, &client->lock.mutex);
	else
		pthread_cond_timedwait(&client->changed, &client->lock.mutex, &deadline);
}

/* ---- the descriptor ---- */

static bool is_ours(const struct client_socket *own)
{
	struct stat status;

	return own->fd >= 0 && fstat(own->fd, &status) == 0 && S_ISSOCK(status.st_mode) && status.st_dev == own->device &&
	       status.st_ino == own->inode;
}

/* What stands at the number now may be the program's: then it is not closed. A child that was forked in the middle may have the
 * socket too, so that closing it here ends nothing. */
static void close_socket(struct client_socket *own)
{
	if (is_ours(own)) {
		shutdown(own->fd, SHUT_RDWR);
		close(own->fd);
	}
	own->fd = -1;
}

/* Caller holds the lock. */
static void disconnect(struct lifecycle *lc)
{
	struct client *client = &lc->client;

	close_socket(&client->socket);
	client->lost = true;
	client_events_drop(lc);
	pthread_cond_broadcast(&client->changed);
}

/* Out of the way, and known again. */
static bool take_over(struct client_socket *own, int fd)
{
	/* by number: glibc's fcntl is called fcntl64, which another C library has not, and its programs load this one too */
	int moved = (int)syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, FD_LEAST);
	struct stat status;

	if (moved >= 0) /* else such numbers are over the limit here */
		close(fd);
	own->fd = moved >= 0 ? moved : fd;
	if (fstat(own->fd, &status))
		return false;
	own->device = status.st_dev;
	own->inode = status.st_ino;
	return true;
}

void client_drop(struct client *client)
{
	if (is_ours(&client->socket))
		shutdown(client->socket.fd, SHUT_RDWR);
}

bool client_send(struct client *client, uint32_t connection, struct protocol_message *message, int pass_fd)
{
	const uint64_t deadline = clock_now_ns() + SEND_WAIT_NS;
	enum endpoint_carried carried = CARRIED_NOT_YET;

	protocol_length(message);
	while (carried == CARRIED_NOT_YET) {
		if (client->socket.fd < 0 || (connection && connection != client->connection))
			return false;
		if (!is_ours(&client->socket))
			break;
		carried = endpoint_send(client->socket.fd, message, pass_fd, NULL);
		if (carried != CARRIED_NOT_YET)
			break;
		if (clock_now_ns() >= deadline)
			break;
		/* it reads nothing: a short pause without the lock, which the reading thread wants */
		client_wait(client, clock_now_ns() + CLOCK_NS_PER_MS);
	}
	if (carried != CARRIED)
		client_drop(client);
	return carried == CARRIED;
}

/* ---- joining ---- */

/* The next message of a connection that is not yet joined. */
static bool receive_by(const struct client_socket *own, uint64_t deadline_ns, struct protocol_message *message, int *ret_fd,
	struct errinfo *reterr)
{
	enum endpoint_carried carried = CARRIED_NOT_YET;

	for (;;) {
		if (!is_ours(own)) {
			errinfo_set(reterr, SUBLET_ERR_SYSTEM, 0, "%s", closed_by_program);
			return false;
		}
		carried = endpoint_receive(own->fd, PROTOCOL_DOWN, message, ret_fd, reterr);
		if (carried != CARRIED_NOT_YET)
			break;
		if (!endpoint_wait(own->fd, false, deadline_ns)) {
			errinfo_set(reterr, SUBLET_ERR_SYSTEM, 0, "the session's coordinator does not answer");
			return false;
		}
	}
	if (carried == CARRIED_END)
		errinfo_set(reterr, SUBLET_ERR_SYSTEM, 0, "the session's coordinator has gone");
	if (carried == CARRIED && message->header.type == PROTOCOL_REFUSED) {
		errinfo_set(reterr, SUBLET_ERR_INVALID, 0, "the session's coordinator refuses: %.120s", message->refused.text);
		carried = CARRIED_WRONG;
	}
	return carried == CARRIED;
}

/* Whether it arrives is seen by the answer: who is turned away is told so even when this finds nobody. Returns the host bytes that
 * were told. */
static uint64_t say_hello(struct lifecycle *lc, const struct client_socket *own)
{
	struct client *client = &lc->client;
	struct protocol_message message;

	ranked_lock(&client->lock);
	protocol_begin(&message, PROTOCOL_HELLO, ++client->serial);
	message.hello.peer = PEER_CLIENT;
	message.hello.pid = (int32_t)getpid();
	message.hello.host_bytes = client->host_bytes;
	message.hello.without_gpu = client->without_gpu;
	ranked_unlock(&client->lock);
	protocol_text(message.hello.role, sizeof(message.hello.role), client->given_role);
	protocol_text(message.hello.command, sizeof(message.hello.command), lc->stats->comm);
	protocol_length(&message);
	endpoint_send(own->fd, &message, -1, NULL);
	return message.hello.host_bytes;
}

/* Welcome, policy, role. On success the connection is the client's. *ret_again: it is not, and the same can be tried at once. */
static bool shake_hands(struct lifecycle *lc, const struct client_socket *own, uint64_t deadline_ns, bool *ret_again,
	struct errinfo *reterr)
{
	struct client *client = &lc->client;
	struct protocol_message message, joined;
	uint64_t told_bytes = say_hello(lc, own);
	int policy_fd;
	bool good;

	if (!receive_by(own, deadline_ns, &message, &policy_fd, reterr))
		return false;
	good = message.header.type == PROTOCOL_WELCOME && (policy_fd >= 0) == (message.welcome.policy_bytes > 0);
	if (!good)
		errinfo_set(reterr, SUBLET_ERR_INVALID, 0, "the session's coordinator gives a wrong answer; use one version of Sublet");
	protocol_begin(&joined, PROTOCOL_JOINED, 0);
	good = good && client_adopt_policy(lc, policy_fd, message.welcome.policy_bytes, joined.joined.role,
			       sizeof(joined.joined.role), reterr);
	if (policy_fd >= 0)
		close(policy_fd);
	if (!good)
		return false;
	ranked_lock(&client->lock);
	/* A move that was under way took or gave host memory meanwhile, with nobody to tell. */
	*ret_again = client->host_bytes != told_bytes;
	if (*ret_again) {
		ranked_unlock(&client->lock);
		errinfo_set(reterr, SUBLET_ERR_SYSTEM, 0, "host memory came and went while it joined");
		return false;
	}
	client->socket = *own;
	client->connection++;
	memset(client->late, 0, sizeof(client->late)); /* their answers are lost with the connection they were asked over */
	client->pool_cap_bytes = message.welcome.pool_bytes;
	client->said_alone = false;
	client_forget_credit(lc);
	client_send(client, 0, &joined, -1);
	ranked_unlock(&client->lock);
	log_say(LOG_SESSION, LOG_INFO, WHOSE_NONE, "joined the session's coordinator (pid %d) as %s, %s%s", (int)message.welcome.pid,
		joined.joined.role[0] ? joined.joined.role : "no role", message.welcome.policy_bytes ? "policy " : "no policy",
		message.welcome.policy_name);
	return true;
}

/* One line for a while without a coordinator, however often it is tried. */
static void say_alone(struct client *client, enum log_level level, const char *why)
{
	if (client->said_alone)
		return;
	client->said_alone = true;
	log_say(LOG_SESSION, level, WHOSE_NONE, "%s; addresses are stable, nothing moves, and it joins when it can", why);
}

static bool join(struct lifecycle *lc, uint64_t deadline_ns)
{
	struct client *client = &lc->client;
	struct client_socket own = {.fd = -1};
	struct errinfo error = {0};
	int folder = endpoint_folder(client->session, &error), fd = -1;
	enum endpoint_state state = ENDPOINT_FAILED;
	bool again = false;

	if (folder >= 0) {
		state = endpoint_connect(folder, &fd, NULL, &error);
		close(folder);
	}
	if (state == ENDPOINT_CONNECTED && take_over(&own, fd) && shake_hands(lc, &own, deadline_ns, &again, &error)) {
		client_tell_devices(lc);
		return true;
	}
	close_socket(&own);
	if (again)
		return false;
	/* a session that was started without one is no fault */
	say_alone(client, state == ENDPOINT_NOBODY ? LOG_INFO : LOG_WARN,
		state == ENDPOINT_NOBODY  ? "the session has no coordinator"
		: state == ENDPOINT_STALE ? "the session's coordinator has ended"
					  : error.text);
	return false;
}

/* ---- the reading thread ---- */

static void handle(struct lifecycle *lc, uint32_t connection, const struct protocol_message *message, int fd)
{
	struct client *client = &lc->client;

	if (message->header.type == PROTOCOL_CREDITED || message->header.type == PROTOCOL_TAKEN) {
		ranked_lock(&client->lock);
		client_answered(client, message, fd);
		ranked_unlock(&client->lock);
		return;
	}
	if (fd >= 0)
		close(fd);
	if (message->header.type == PROTOCOL_LIST)
		client_list(lc, connection, message->header.serial);
	else if (message->header.type == PROTOCOL_DEVICE_CREDITED)
		client_device_credited(lc, message);
	else if (message->header.type == PROTOCOL_DEVICE_SAY)
		client_device_say(lc, message);
	else if (message->header.type == PROTOCOL_TELL)
		client_tell(lc, connection, message->header.serial);
	else if (message->header.type == PROTOCOL_PHASE)
		client_told_phase(lc, message);
	else if (message->header.type == PROTOCOL_STEP && message->step.step == PROTOCOL_STEP_PLAN)
		client_do_step(lc, connection, message->header.serial, &message->step);
	else if (message->header.type == PROTOCOL_STEP && message->step.step == PROTOCOL_STEP_ROOM)
		mover_room(lc, MOVER_ROOM_CAME, 0);
	else if (message->header.type == PROTOCOL_STEP)
		client_queue_step(lc, connection, message);
	else if (message->header.type == PROTOCOL_RECALL)
		client_recall(lc, message);
	else if (message->header.type == PROTOCOL_SERVE)
		client_serve(lc, connection, message);
	else if (message->header.type == PROTOCOL_REFUSED)
		log_limited(LOG_SESSION, LOG_WARN, WHOSE_NONE, "the session's coordinator closes the connection: %s",
			message->refused.text);
}

/* Read until the connection is gone. */
static void read_all(struct lifecycle *lc)
{
	struct client *client = &lc->client;
	struct errinfo error = {.text = "the session's coordinator has gone"};
	enum endpoint_carried carried = CARRIED;
	uint32_t connection;
	bool ended;

	ranked_lock(&client->lock);
	connection = client->connection;
	while (!client->stop && carried != CARRIED_END && carried != CARRIED_WRONG) {
		struct protocol_message message;
		int fd = client->socket.fd, passed = -1;

		if (!is_ours(&client->socket)) {
			errinfo_set(&error, SUBLET_ERR_SYSTEM, 0, "%s", closed_by_program);
			break;
		}
		carried = endpoint_receive(fd, PROTOCOL_DOWN, &message, &passed, &error);
		ranked_unlock(&client->lock);
		if (carried == CARRIED)
			handle(lc, connection, &message, passed);
		else if (carried == CARRIED_NOT_YET)
			endpoint_wait(fd, false, clock_now_ns() + LOOK_NS);
		ranked_lock(&client->lock);
	}
	ended = client->stop;
	disconnect(lc);
	ranked_unlock(&client->lock);
	/* nobody is left to say so */
	mover_room(lc, MOVER_ROOM_CAME, 0);
	if (!ended)
		say_alone(client, LOG_WARN, error.text);
}

static void *reader_main(void *arg)
{
	struct lifecycle *lc = arg;
	struct client *client = &lc->client;
	uint64_t pause_ns = PAUSE_LEAST_NS;

	pthread_setname_np(pthread_self(), "sublet-session");
	if (lc->config.thread_begins)
		lc->config.thread_begins();
	ranked_lock(&client->lock);
	while (!client->stop) {
		bool joined = client->socket.fd >= 0;

		if (!joined) {
			client_wait(client, clock_now_ns() + pause_ns);
			if (client->stop)
				break;
		}
		ranked_unlock(&client->lock);
		if (!joined) {
			joined = join(lc, clock_now_ns() + CLIENT_JOIN_NS);
			if (joined)
				client_look_at_environment(lc);
		}
		pause_ns = joined ? PAUSE_LEAST_NS : pause_ns * 2 > PAUSE_MOST_NS ? PAUSE_MOST_NS : pause_ns * 2;
		if (joined)
			read_all(lc);
		ranked_lock(&client->lock);
	}
	client->reader = CLIENT_STOPPED;
	pthread_cond_broadcast(&client->changed);
	ranked_unlock(&client->lock);
	return NULL;
}

/* ---- the life of it ---- */

static int start_reader(struct lifecycle *lc)
{
	pthread_attr_t attributes;
	sigset_t all, before;
	pthread_t thread;
	int error;

	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(&thread, &attributes, reader_main, lc);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attributes);
	return error;
}

void client_start(struct lifecycle *lc, const char *session, const char *role)
{
	struct client *client = &lc->client;

	if (!session || !*session || strlen(session) >= sizeof(client->session))
		return;
	protocol_text(client->session, sizeof(client->session), session);
	protocol_text(client->given_role, sizeof(client->given_role), role);
	client_set_hooks(lc);
	client_set_ledger(lc);
	client_set_service(lc);
	client_set_phases(lc);
	/* here and now, so that the first allocation falls under its rule */
	if (join(lc, clock_now_ns() + CLIENT_JOIN_NS))
		client_look_at_environment(lc);
	ranked_lock(&client->lock);
	client->reader = CLIENT_RUNNING;
	ranked_unlock(&client->lock);
	if (!start_reader(lc))
		return;
	ranked_lock(&client->lock);
	client->reader = CLIENT_STOPPED;
	disconnect(lc);
	ranked_unlock(&client->lock);
	log_say(LOG_SESSION, LOG_WARN, WHOSE_NONE, "no thread for the session (limit of threads or processes): nothing moves here");
}

void client_stop(struct lifecycle *lc, uint64_t wait_ns)
{
	struct client *client = &lc->client;
	uint64_t deadline = clock_now_ns() + wait_ns;

	if (!client->session[0] || !ranked_lock_within(&client->lock, wait_ns))
		return;
	client->stop = true;
	client_events_drop(lc);
	client_drop(client);
	pthread_cond_broadcast(&client->changed);
	while (client->reader == CLIENT_RUNNING && clock_now_ns() < deadline)
		client_wait(client, deadline);
	ranked_unlock(&client->lock);
}

void client_release(struct lifecycle *lc)
{
	struct client *client = &lc->client;

	client_stop(lc, UINT64_MAX / 4);
	ranked_lock(&client->lock);
	while (client->worker == CLIENT_RUNNING)
		client_wait(client, UINT64_MAX);
	ranked_unlock(&client->lock);
	if (lc->config.triggers)
		triggers_use(lc->config.triggers, NULL);
	client_release_policies(client);
	pthread_cond_destroy(&client->changed);
	ranked_lock_release(&client->lock);
}

void client_forget(struct client *client)
{
	if (is_ours(&client->socket)) /* no shutdown: it is the parent's */
		close(client->socket.fd);
	client->socket.fd = -1;
	client->stop = true;
	client->events_count = 0;
	client->reader = client->worker = CLIENT_STOPPED;
	client->session[0] = '\0';
}
