/* tests/cli/struck.c
 * Preloaded: the process is struck by a signal at one of its messages, counted over all that it sends and receives on sockets of the
 * session's kind: SUBLET_TEST_STRIKE_AT=N, before the Nth is sent or after it was received, SUBLET_TEST_STRIKE_WITH=SIGNAL
 * (a number; SIGKILL). The one outside the process that is struck sees it only as it is seen when that happens by itself. */
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static long strike_at;
static int strike_with = SIGKILL;
static long messages;

__attribute__((constructor)) static void read_environment(void)
{
	const char *at = getenv("SUBLET_TEST_STRIKE_AT"), *with = getenv("SUBLET_TEST_STRIKE_WITH");

	strike_at = at ? atol(at) : 0;
	strike_with = with ? atoi(with) : SIGKILL;
}

static void count(int fd)
{
	int type = 0;
	socklen_t bytes = sizeof(type);

	if (!strike_at || syscall(SYS_getsockopt, fd, SOL_SOCKET, SO_TYPE, &type, &bytes) || type != SOCK_SEQPACKET)
		return;
	if (__atomic_add_fetch(&messages, 1, __ATOMIC_SEQ_CST) == strike_at)
		kill(getpid(), strike_with);
}

__attribute__((visibility("default"))) ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
	count(fd);
	return syscall(SYS_sendmsg, fd, message, flags);
}

__attribute__((visibility("default"))) ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
	ssize_t got = syscall(SYS_recvmsg, fd, message, flags);

	if (got > 0)
		count(fd);
	return got;
}
