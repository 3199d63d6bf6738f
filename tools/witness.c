/* tools/witness.c
 * The witness and its two questions. It touches no file and no terminal, ignores nothing and blocks everything, so it
 * stops only with the whole group, and it is gone when its socket is. */
#include "tools/witness.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

enum {
	ANSWER_MS = 200, /* after that it may be stopped, and is continued */
	LAST_ANSWER_MS = 2000,
	SPREAD_MS = 20,	 /* who signals each process of a group or container by itself needs this long */
	STALE_MS = 1000, /* what this process did not read by then was merged with another, or not sent to it */
	SIGNALS = NSIG + 1,
};

static uint64_t now_ms(void)
{
	return clock_now_ns() / CLOCK_NS_PER_MS;
}

struct seen {
	unsigned int count;
	uint64_t last_ms;
};

static void note(int signal_fd, pid_t asker, struct seen *seen)
{
	struct signalfd_siginfo info;

	while (read(signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
		/* its SIGCONT */
		if (info.ssi_pid == (uint32_t)asker || info.ssi_signo >= SIGNALS)
			continue;
		seen[info.ssi_signo].count++;
		seen[info.ssi_signo].last_ms = now_ms();
	}
}

static void serve(int fd, int signal_fd, pid_t asker)
{
	struct pollfd wait_for[2] = {{.fd = fd, .events = POLLIN}, {.fd = signal_fd, .events = POLLIN}};
	struct seen seen[SIGNALS] = {0};
	uint8_t signo, answer;

	for (;;) {
		poll(wait_for, 2, -1);
		note(signal_fd, asker, seen);
		if (!wait_for[0].revents)
			continue;
		if (recv(fd, &signo, sizeof(signo), 0) != (ssize_t)sizeof(signo))
			return; /* the asker is gone */
		if (signo >= SIGNALS)
			return;
		note(signal_fd, asker, seen);
		if (now_ms() - seen[signo].last_ms > STALE_MS)
			seen[signo].count = 0;
		answer = seen[signo].count > 0;
		seen[signo].count -= answer;
		if (send(fd, &answer, sizeof(answer), MSG_NOSIGNAL) < 0)
			return;
	}
}

/* Leave CMD's words alone of our command line: who looks for those (`pkill -f train.py`) finds us beside the follower
 * and the program, as if it were the group; who looks for sublet means the follower. */
static void take_name(char **words)
{
	char *ours = program_invocation_name, *theirs = words[0], *end = theirs;

	prctl(PR_SET_NAME, "witness");
	for (; *words; words++)
		end = *words + strlen(*words) + 1;
	if (theirs <= ours) /* not as the kernel lays them out */
		return;
	memmove(ours, theirs, (size_t)(end - theirs));
	memset(ours + (end - theirs), 0, (size_t)(theirs - ours));
}

void witness_start(struct witness *witness, int signal_fd, char **words)
{
	pid_t asker = getpid();
	int ends[2];

	*witness = (struct witness){.fd = -1};
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
		return;
	witness->pid = fork();
	if (witness->pid == 0) {
		close(ends[0]);
		take_name(words);
		serve(ends[1], signal_fd, asker);
		_exit(0);
	}
	close(ends[1]);
	if (witness->pid < 0)
		close(ends[0]);
	else
		witness->fd = ends[0];
}

void witness_stop(struct witness *witness)
{
	if (witness->fd < 0)
		return;
	close(witness->fd);
	witness->fd = -1;
	kill(witness->pid, SIGKILL); /* it may be stopped */
	waitpid(witness->pid, NULL, 0);
}

/* False when there is no answer; then there is no witness any more. */
static bool ask(struct witness *witness, uint32_t signo, bool *ret_saw)
{
	struct pollfd wait_for = {.fd = witness->fd, .events = POLLIN};
	uint8_t question = (uint8_t)signo, answer;

	if (witness->fd < 0)
		return false;
	if (send(witness->fd, &question, sizeof(question), MSG_NOSIGNAL) < 0)
		goto lost;
	if (poll(&wait_for, 1, ANSWER_MS) == 0) {
		kill(witness->pid, SIGCONT);
		poll(&wait_for, 1, LAST_ANSWER_MS);
	}
	if (recv(witness->fd, &answer, sizeof(answer), MSG_DONTWAIT) != (ssize_t)sizeof(answer))
		goto lost;
	*ret_saw = answer;
	return true;
lost:
	witness_stop(witness);
	return false;
}

bool witness_saw(struct witness *witness, const struct signalfd_siginfo *info)
{
	bool saw = false, alive = ask(witness, info->ssi_signo, &saw);

	if (alive && !saw) {
		poll(NULL, 0, SPREAD_MS);
		alive = ask(witness, info->ssi_signo, &saw);
	}
	return alive ? saw : info->ssi_code == SI_KERNEL;
}
