/* tests/fuzz/fuzz_coordinator.c
 * Any sequence of what a session's processes and commands can do to their coordinator: connect, say anything, answer or not, stop
 * reading, hang up, end, while time passes. It runs here as it is, on a clock and connections that are made up, so that a
 * sequence is a function of its bytes. After each step its lists and ledgers agree; when all have fallen silent it comes to rest.
 *
 * Input: a byte for what happens and one for who does it, then as many as that takes; what is not there is 0. */
#include "lifecycle/coordinator.c"
#include "lifecycle/coordinator_peers.c"

#include <stddef.h>
#include <sys/eventfd.h>

#include "policy/source/source.h"
#include "tests/fuzz/fuzz.h"

enum { PEERS = 6, STEPS_MAX = 400, REST_ROUNDS = 20000 };
#define MIB (1ull << 20)
#define CAP (64 * MIB)

static const char policy_text[] =
	"version: 1\nroles: [train, rollout]\nphases:\n  - {name: a, roles: [train], idle: [rollout]}\n"
	"  - {name: b, roles: [rollout], idle: [train]}\ntriggers: [{enter: a, command: true}, {enter: b, command: true}]\n"
	"objects:\n  - {name: one, match: {role: train}, class: permanent, resident: [a], otherwise: offload}\n"
	"  - {name: two, match: {role: rollout}, class: regenerable, resident: [b], otherwise: discard, exclusive: true}\n";

/* One at the other end. */
struct double_peer {
	struct peer *peer; /* NULL: the slot is free */
	int fd;
	bool deaf, hung_up;
	uint64_t last_serial[PROTOCOL_TYPE_COUNT]; /* of what it was sent */
	uint32_t last_step, number;
	struct protocol_message next; /* that it says */
	size_t next_bytes;
	unsigned int next_fds;
};

static struct double_peer doubles[PEERS];
static struct coordinator *c;
static uint64_t now_ns;
static const uint8_t *input;
static size_t input_left;
static pid_t accepted_pid;

static void check(int holds)
{
	if (!holds)
		abort(); /* a finding, for the fuzzer to keep */
}

static uint8_t take(void)
{
	if (!input_left)
		return 0;
	input_left--;
	return *input++;
}

/* ---- in the place of the clock and of the sockets ---- */

uint64_t clock_now_ns(void)
{
	return now_ns;
}

void clock_sleep_ns(uint64_t ns)
{
	now_ns += ns;
}

static struct double_peer *double_of(int fd)
{
	for (int i = 0; i < PEERS; i++)
		if (doubles[i].peer && doubles[i].fd == fd)
			return &doubles[i];
	return NULL;
}

bool endpoint_peer(int fd, uid_t *ret_uid, pid_t *ret_pid)
{
	(void)fd;
	*ret_uid = geteuid();
	*ret_pid = accepted_pid;
	return true;
}

enum endpoint_carried endpoint_send(int fd, const struct protocol_message *message, int pass_fd, struct errinfo *reterr)
{
	struct double_peer *to = double_of(fd);
	struct protocol_message seen;
	struct errinfo error;

	(void)reterr;
	/* what a client would refuse is no answer */
	check(protocol_decode(message, message->header.length, pass_fd >= 0, PROTOCOL_DOWN, &seen, &error) == SUBLET_OK);
	if (!to || to->hung_up)
		return CARRIED_END;
	if (to->deaf)
		return CARRIED_NOT_YET;
	to->last_serial[seen.header.type] = seen.header.serial;
	if (seen.header.type == PROTOCOL_STEP && seen.step.step != PROTOCOL_STEP_ROOM)
		to->last_step = seen.step.step;
	return CARRIED;
}

enum endpoint_carried endpoint_receive(int fd, enum protocol_way way, struct protocol_message *ret_message, int *ret_fd,
	struct errinfo *reterr)
{
	struct double_peer *from = double_of(fd);
	size_t bytes = from ? from->next_bytes : 0;

	*ret_fd = -1;
	if (!from || !bytes)
		return from && from->hung_up ? CARRIED_END : CARRIED_NOT_YET;
	from->next_bytes = 0;
	if (protocol_decode(&from->next, bytes, from->next_fds, way, ret_message, reterr) != SUBLET_OK)
		return CARRIED_WRONG;
	*ret_fd = from->next_fds ? open("/dev/null", O_RDONLY | O_CLOEXEC) : -1;
	return CARRIED;
}

/* none of these is called: nobody listens here */
int endpoint_folder(const char *session, struct errinfo *reterr)
{
	(void)session;
	errinfo_set(reterr, SUBLET_ERR_SYSTEM, 0, "no folder");
	return -1;
}

enum endpoint_state endpoint_connect(int folder_fd, int *ret_fd, pid_t *ret_pid, struct errinfo *reterr)
{
	(void)folder_fd, (void)ret_fd, (void)ret_pid, (void)reterr;
	return ENDPOINT_NOBODY;
}

enum sublet_err endpoint_listen(int folder_fd, int *ret_fd, struct errinfo *reterr)
{
	(void)folder_fd, (void)ret_fd;
	return errinfo_set(reterr, SUBLET_ERR_SYSTEM, 0, "no socket");
}

void endpoint_remove(int folder_fd)
{
	(void)folder_fd;
}

bool endpoint_wait(int fd, bool to_write, uint64_t deadline_ns)
{
	(void)fd, (void)to_write, (void)deadline_ns;
	return false;
}

/* ---- what holds at all times ---- */

static bool is_here(const struct peer *wanted)
{
	for (const struct peer *peer = c->peers; peer; peer = peer->next)
		if (peer == wanted)
			return !peer->dropped;
	return false;
}

static void look_at_pool(void)
{
	uint64_t orphans = 0;
	uint32_t count = 0;

	for (const struct extent_fd *extent = c->pool.extents; extent; extent = extent->next) {
		count++;
		check(!extent->owner || is_here(extent->owner));
		orphans += extent->owner ? 0 : extent->bytes;
	}
	check(count == c->pool.count && orphans == c->pool.orphan_bytes);
	/* what nobody uses is never a reason to be above the cap */
	check(!orphans || pool_used_bytes(c) <= c->pool.cap_bytes);
	for (const struct pool_wait *wait = c->pool.waits; wait; wait = wait->next)
		check(is_here(wait->client) && wait->client->fd >= 0);
}

static void look_at_requests(void)
{
	uint32_t count = 0;

	for (const struct asked *asked = c->asked; asked; asked = asked->next) {
		const struct request *request = c->requests;

		while (request && request != asked->request)
			request = request->next;
		check(request != NULL);
		check(!asked->client || is_here(asked->client));
		count++;
	}
	check(count == c->asked_count);
	for (const struct request *request = c->requests; request; request = request->next) {
		uint32_t waiting = 0;

		for (const struct asked *asked = c->asked; asked; asked = asked->next)
			waiting += asked->request == request && !asked->done;
		check(waiting == request->waiting);
		check(!request->control || is_here(request->control));
	}
}

static void look_at_barrier(void)
{
	bool waits = false;

	for (const struct peer *peer = c->peers; peer; peer = peer->next) {
		check(!peer->asked_release || peer->asked_step);
		check(!peer->asked_step || (peer->in_barrier && peer->fd >= 0 && c->barrier.active));
		waits |= peer->asked_step;
	}
	check(!c->barrier.active || waits || c->barrier.step == STEP_PAUSE);
	check(!c->barrier.answering);
	for (const struct arrival *arrival = c->barrier.arrivals; arrival; arrival = arrival->next)
		check(!arrival->peer || is_here(arrival->peer));
}

/* As coordinator_run does between two rounds of events. */
static uint64_t settle(void)
{
	const uint64_t next = keep_time(c);

	for (int i = 0; i < PEERS; i++) {
		const struct peer *peer = doubles[i].peer;

		if (peer && (peer->dropped || peer->fd < 0) && peer->pidfd < 0)
			doubles[i].peer = NULL;
	}
	peers_bury(c);
	look_at_pool();
	look_at_requests();
	look_at_barrier();
	check(next > now_ns); /* else it would be called for ever */
	return next;
}

/* ---- what can happen ---- */

static void happens(struct double_peer *who, enum watch_kind kind, uint32_t events)
{
	struct watch *watch = kind == WATCH_PROCESS ? &who->peer->process_watch : &who->peer->socket_watch;
	const struct epoll_event event = {.events = events, .data.ptr = watch};

	handle_event(c, &event);
}

static void says(struct double_peer *who, unsigned int fds)
{
	if (who->peer->dropped || who->peer->fd < 0)
		return;
	who->next_fds = fds;
	who->next_bytes = who->next.header.length;
	happens(who, WATCH_SOCKET, EPOLLIN);
	who->next_bytes = 0;
}

static void connects(struct double_peer *who)
{
	const int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	struct peer *last = NULL;

	if (fd < 0)
		return;
	*who = (struct double_peer){.fd = fd};
	accepted_pid = 0; /* a number would be looked for among the processes of this machine */
	meet(c, fd);
	for (struct peer *peer = c->peers; peer; peer = peer->next)
		last = peer;
	if (!last || last->fd != fd)
		return; /* turned away */
	who->peer = last;
	last->pid = 1000 + (int)(who - doubles) / 2; /* two of them are one process that came back */
	last->pidfd = eventfd(0, EFD_CLOEXEC);
}

static uint64_t amount(uint8_t byte)
{
	static const uint64_t amounts[] = {2 * MIB, 4 * MIB, 16 * MIB, 32 * MIB, CAP - 2 * MIB, CAP, 2 * CAP, PROTOCOL_AMOUNT_MAX};

	return amounts[byte % 8];
}

static void fill_devices(struct message_devices *devices, uint8_t byte)
{
	devices->count = byte % 3;
	for (uint32_t i = 0; i < devices->count; i++)
		devices->uuid[i][0] = (unsigned char)(1 + (byte / 3 + i) % 3);
}

static void fill_needs(struct message_needs *needs)
{
	fill_devices(&needs->devices, take());
	for (uint32_t i = 0; i < needs->devices.count; i++) {
		const uint8_t byte = take();

		needs->need[i].free_bytes = amount(byte);
		needs->need[i].leaves_bytes = byte & 8 ? amount(byte >> 4) : 0;
		needs->need[i].comes_bytes = byte & 64 ? amount(byte >> 5) : 0;
	}
	needs->host_takes_bytes = amount(take());
	needs->host_gives_bytes = amount(take());
	needs->host_kept_bytes = amount(take());
	needs->largest_bytes = amount(take());
}

static void fill_role(char *role, size_t room, uint8_t byte)
{
	protocol_text(role, room, byte % 3 == 0 ? "train" : byte % 3 == 1 ? "rollout" : "");
}

/* A message as it should be, with what a byte or two choose. Returns the descriptors that go along. */
static unsigned int fill(struct double_peer *who, enum protocol_type type)
{
	/* the question that it may be an answer to */
	static const enum protocol_type questions[PROTOCOL_TYPE_COUNT] = {[PROTOCOL_LISTED] = PROTOCOL_LIST,
		[PROTOCOL_SERVING] = PROTOCOL_SERVE, [PROTOCOL_SERVED] = PROTOCOL_SERVE, [PROTOCOL_TOLD] = PROTOCOL_TELL,
		[PROTOCOL_STEPPED] = PROTOCOL_STEP, [PROTOCOL_STUCK] = PROTOCOL_STEP, [PROTOCOL_RECALLED] = PROTOCOL_RECALL};
	struct protocol_message *m = &who->next;
	const uint8_t byte = take();
	unsigned int fds = 0;

	protocol_begin(m, type, byte & 128 ? byte : questions[type] ? who->last_serial[questions[type]] : ++who->number);
	if (type == PROTOCOL_HELLO) {
		m->hello.peer = byte & 1 ? PEER_CONTROL : PEER_CLIENT;
		m->hello.host_bytes = byte & 2 ? amount(byte >> 2) : 0;
		m->hello.without_gpu = byte >> 6 & 1;
		fill_role(m->hello.role, sizeof(m->hello.role), take());
	} else if (type == PROTOCOL_JOINED) {
		fill_role(m->joined.role, sizeof(m->joined.role), byte);
	} else if (type == PROTOCOL_CREDIT || type == PROTOCOL_GIVE || type == PROTOCOL_TAKE || type == PROTOCOL_MADE || type == PROTOCOL_LEAVE) {
		m->amount.bytes = amount(byte);
		m->amount.extent = type == PROTOCOL_CREDIT ? 0 : 1 + (byte >> 3) % 4;
		fds = type == PROTOCOL_MADE;
	} else if (type == PROTOCOL_LISTED) {
		m->listed.count = byte % 4;
		m->listed.more = byte >> 2 & 1;
	} else if (type == PROTOCOL_SERVED) {
		m->served.error = byte % SUBLET_ERR_COUNT;
		m->served.moved = byte & 1;
	} else if (type == PROTOCOL_ASK_SERVE) {
		m->ask_serve.verb = byte % VERB_COUNT;
		m->ask_serve.count = (byte >> 2) % 3;
		m->ask_serve.rules[1] = (byte >> 4) % 4;
		m->ask_serve.timeout_ns = amount(take());
	} else if (type == PROTOCOL_TOLD) {
		fds = byte & 1;
		m->told.bytes = byte % 5;
	} else if (type == PROTOCOL_ARRIVE || type == PROTOCOL_ASK_PHASE) {
		m->arrive.phase = byte % 3;
		m->arrive.timeout_ns = byte & 8 ? 1000 * amount(byte >> 4) : 0;
		if (type == PROTOCOL_ARRIVE)
			fill_devices(&m->arrive.devices, take());
	} else if (type == PROTOCOL_STEPPED) {
		m->stepped.step = byte & 64 ? (byte & 63) % PROTOCOL_STEP_COUNT : who->last_step;
		/* a move is two steps, of which the second was asked last */
		if (who->last_step == PROTOCOL_STEP_ACQUIRE && byte & 32)
			m->stepped.step = PROTOCOL_STEP_RELEASE;
		m->stepped.served.error = (byte & 31) == 31 ? SUBLET_ERR_NOMEM : SUBLET_OK;
		m->stepped.served.moved = byte & 1;
		fill_needs(&m->stepped.needs);
	} else if (type == PROTOCOL_STUCK) {
		m->stuck.stuck = byte & 1;
	} else if (type == PROTOCOL_DEVICE_CREDIT || type == PROTOCOL_DEVICE_HAVE) {
		m->device_use.uuid[0] = 1 + byte % 3;
		m->device_use.total_bytes = CAP;
		m->device_use.credit_bytes = amount(take());
		m->device_use.wanted_bytes = type == PROTOCOL_DEVICE_CREDIT ? m->device_use.credit_bytes + (byte & 4 ? MIB : 0) : 0;
		m->device_use.keeps = type == PROTOCOL_DEVICE_HAVE && byte & 8;
		m->device_use.answers = type == PROTOCOL_DEVICE_HAVE && byte & 16 ? who->last_serial[PROTOCOL_DEVICE_SAY] : 0;
	}
	protocol_length(m);
	return fds;
}

/* What it would do next if it were well-behaved: so that most sequences get somewhere. */
static void goes_on(struct double_peer *who)
{
	enum protocol_type type = PROTOCOL_JOINED;

	if (!who->peer->kind)
		type = PROTOCOL_HELLO;
	else if (who->peer->kind == PEER_CONTROL)
		type = PROTOCOL_ASK_PHASE;
	else if (who->peer->joined)
		type = who->peer->asked_step ? PROTOCOL_STEPPED : PROTOCOL_ARRIVE;
	says(who, fill(who, type));
}

static void says_anything(struct double_peer *who)
{
	uint8_t *bytes = (uint8_t *)&who->next;
	const size_t places = sizeof(struct message_header) + 64;

	fill(who, (enum protocol_type)(PROTOCOL_NONE + 1 + take() % (PROTOCOL_TYPE_COUNT - 1)));
	for (int i = take() % 8; i > 0; i--) {
		const uint8_t place = take();

		bytes[place % places] = take();
	}
	who->next_bytes = who->next.header.length;
	/* the socket says how much came, whatever the header does */
	if (who->next.header.length > sizeof(who->next))
		who->next.header.length = sizeof(who->next);
	says(who, take() % 3);
}

static void step(uint8_t what, struct double_peer *who)
{
	static const uint64_t pauses_ms[] = {1, 100, 500, 1100, 2100, 5100, 10100, 300100};

	if (what % 16 == 0) {
		now_ns += pauses_ms[take() % 8] * CLOCK_NS_PER_MS;
		return;
	}
	if (!who->peer) {
		connects(who);
		return;
	}
	switch (what % 16) {
	case 1:
		who->hung_up = true;
		if (who->peer->fd >= 0 && !who->peer->dropped)
			happens(who, WATCH_SOCKET, EPOLLIN | EPOLLHUP);
		break;
	case 2:
		if (who->peer->pidfd >= 0 && !who->peer->dropped) {
			check(eventfd_write(who->peer->pidfd, 1) == 0);
			happens(who, WATCH_PROCESS, EPOLLIN);
		}
		break;
	case 3:
		who->deaf = !who->deaf;
		if (!who->deaf && who->peer->fd >= 0 && !who->peer->dropped)
			happens(who, WATCH_SOCKET, EPOLLOUT);
		break;
	case 4:
		says_anything(who);
		break;
	case 5:
	case 6:
	case 7:
	case 8:
	case 9: {
		const unsigned int type = PROTOCOL_NONE + 1 + take() % (PROTOCOL_TYPE_COUNT - 1);

		says(who, fill(who, (enum protocol_type)type));
		break;
	}
	default:
		goes_on(who);
	}
}

/* All are silent now. Whatever waits for them is given up in its time, and nobody's bytes stay taken once they have ended. */
static void comes_to_rest(void)
{
	uint64_t next = settle();
	int rounds = 0;

	while (next != UINT64_MAX) {
		check(++rounds < REST_ROUNDS);
		now_ns = next;
		next = settle();
	}
	check(!c->barrier.active && !c->requests && !c->asked && !c->pool.waits);
	for (int i = 0; i < PEERS; i++) {
		if (!doubles[i].peer || doubles[i].peer->dropped)
			continue;
		if (doubles[i].peer->pidfd >= 0)
			check(eventfd_write(doubles[i].peer->pidfd, 1) == 0);
		happens(&doubles[i], WATCH_PROCESS, EPOLLIN);
	}
	settle();
	check(pool_used_bytes(c) == c->pool.orphan_bytes && c->pool.orphan_bytes <= c->pool.cap_bytes);
	check(!c->peers && !c->peers_count);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	static struct policy_source source;
	struct errinfo error;

	if (!source.block.bytes) {
		setenv("SUBLET_LOG", "off", 1);
		log_init();
		check(policy_source_load(&source, policy_text, sizeof(policy_text) - 1, &error) == SUBLET_OK && source.block.bytes);
	}
	c = calloc(1, sizeof(*c));
	check(c != NULL);
	memset(doubles, 0, sizeof(doubles));
	now_ns = 1000000 * CLOCK_NS_PER_MS;
	c->folder_fd = c->lock_fd = c->listener = c->epoll = c->signals = c->spare_fd = -1;
	c->barrier.phase = c->barrier.to = POLICY_NONE;
	c->session = c->policy_name = "made up";
	c->peers_max = PEERS;
	c->policy_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	check(policy_open(source.block.bytes, source.block.size_bytes, &c->policy, &error) == SUBLET_OK);
	c->policy_size = source.block.size_bytes;
	pool_init(&c->pool, CAP, 8);
	input = data;
	input_left = bytes;
	for (int i = 0; i < STEPS_MAX && input_left && !c->stopping; i++) {
		const uint8_t what = take();

		step(what, &doubles[take() % PEERS]);
		settle();
	}
	comes_to_rest();
	coordinator_free(c);
	return 0;
}
