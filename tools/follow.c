/* tools/follow.c
 * The parent of a followed program. It must not be felt: signals reach the program as if it stood alone, stops and
 * continues included, its exit status is passed on, and it lives on if this process is killed.
 *
 * Signals are blocked and read from a descriptor. Those of the terminal go to the whole foreground group, so the
 * program has them already; only those that a process sent to us are passed on. */
#include "tools/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/process.h"
#include "lifecycle/stats.h"
#include "tools/command.h"
#include "tools/members.h"

enum { SCAN_MS = 100 };

static const int forwarded[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH, SIGCONT, SIGTSTP};

struct follower {
	pid_t child;
	int signal_fd;
	sigset_t blocked, before;
	struct sigaction pipe_before, child_before;
	struct members members;
};

static int signals_take(struct follower *follower)
{
	struct sigaction action = {0};

	sigemptyset(&follower->blocked);
	for (size_t i = 0; i < sizeof(forwarded) / sizeof(forwarded[0]); i++)
		sigaddset(&follower->blocked, forwarded[i]);
	sigaddset(&follower->blocked, SIGCHLD);
	sigprocmask(SIG_BLOCK, &follower->blocked, &follower->before);
	/* inherited as ignored, our child would vanish without a status */
	action.sa_handler = SIG_DFL;
	sigaction(SIGCHLD, &action, &follower->child_before);
	/* a reader of our stderr that leaves must not end us: the program may be writing elsewhere */
	action.sa_handler = SIG_IGN;
	sigaction(SIGPIPE, &action, &follower->pipe_before);
	follower->signal_fd = signalfd(-1, &follower->blocked, SFD_CLOEXEC | SFD_NONBLOCK);
	if (follower->signal_fd < 0)
		return fail(STATUS_BAD, "cannot follow: signalfd: %s; run without --follow", strerror(errno));
	return STATUS_GOOD;
}

/* In the child. */
static void signals_give_back(const struct follower *follower)
{
	sigaction(SIGCHLD, &follower->child_before, NULL);
	sigaction(SIGPIPE, &follower->pipe_before, NULL);
	sigprocmask(SIG_SETMASK, &follower->before, NULL);
}

/* Starts the program. A refused exec comes back through a pipe that a successful one closes. */
static int start(struct follower *follower, char **argv)
{
	int ends[2], error = 0;
	ssize_t got;

	if (pipe2(ends, O_CLOEXEC))
		return fail(STATUS_BAD, "cannot follow: pipe: %s; run without --follow", strerror(errno));
	follower->child = fork();
	if (follower->child < 0) {
		error = errno;
		close(ends[0]);
		close(ends[1]);
		return fail(STATUS_BAD, "cannot start '%s': fork: %s; run without --follow", argv[0], strerror(error));
	}
	if (follower->child == 0) {
		signals_give_back(follower);
		execvp(argv[0], argv);
		error = errno;
		if (write(ends[1], &error, sizeof(error)) < 0)
			error = 0; /* the parent is gone, nobody to tell */
		_exit(STATUS_NOT_FOUND);
	}
	close(ends[1]);
	do
		got = read(ends[0], &error, sizeof(error));
	while (got < 0 && errno == EINTR);
	close(ends[0]);
	if (got != (ssize_t)sizeof(error))
		return STATUS_GOOD;
	waitpid(follower->child, NULL, 0);
	return launch_failed(argv[0], error);
}

/* The program stopped for the terminal: stop as well, so that the shell has its prompt back; go on with it. A stop that
 * some other program ordered (SIGSTOP) is not copied: who continues it knows nothing of us. */
static void stop_too(const struct follower *follower, int stop_signal)
{
	sigset_t one;

	if (stop_signal != SIGTSTP && stop_signal != SIGTTIN && stop_signal != SIGTTOU)
		return;
	sigemptyset(&one);
	sigaddset(&one, stop_signal);
	raise(stop_signal);
	sigprocmask(SIG_UNBLOCK, &one, NULL); /* stops here; not at all in a group that no shell looks after */
	sigprocmask(SIG_BLOCK, &follower->blocked, NULL);
	kill(follower->child, SIGCONT);
}

/* True when the program has ended, with *ret_status as a shell gives it. */
static bool reap(const struct follower *follower, int *ret_status)
{
	int how;

	while (waitpid(follower->child, &how, WNOHANG | WUNTRACED) == follower->child) {
		if (WIFSTOPPED(how)) {
			stop_too(follower, WSTOPSIG(how));
			continue;
		}
		*ret_status = WIFSIGNALED(how) ? STATUS_SIGNAL + WTERMSIG(how) : WEXITSTATUS(how);
		return true;
	}
	return false;
}

static void pass_signals(const struct follower *follower)
{
	struct signalfd_siginfo info;

	while (read(follower->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
		if (info.ssi_signo == SIGCHLD || info.ssi_code == SI_KERNEL)
			continue;
		/* what the program sends to its own group reaches it without us */
		if (info.ssi_pid == (uint32_t)follower->child)
			continue;
		kill(follower->child, (int)info.ssi_signo);
	}
}

static void drain(int fd)
{
	char events[4096];

	while (read(fd, events, sizeof(events)) > 0)
		;
}

/* A file that appears wakes us at once: its process can still be asked whose it is. */
static int watch(const char *session)
{
	int fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);

	if (fd >= 0 && inotify_add_watch(fd, session, IN_CREATE | IN_MOVED_TO) < 0) {
		close(fd);
		return -1; /* the clock wakes us as well */
	}
	return fd;
}

int launch_follow(const char *session, char **argv)
{
	struct follower follower = {0};
	struct pollfd wait_for[2];
	char mark[64];
	int status, folder_fd;

	snprintf(mark, sizeof(mark), "SUBLET_RUN=%d.%llu", (int)getpid(),
		(unsigned long long)process_start_ticks(getpid(), NULL));
	if (setenv("SUBLET_FOLLOW", "1", 1) || setenv("SUBLET_RUN", strchr(mark, '=') + 1, 1))
		return fail(STATUS_BAD, "out of memory; try again");
	folder_fd = watch(session);
	status = signals_take(&follower);
	if (!status)
		status = start(&follower, argv);
	if (status)
		return status;
	members_init(&follower.members, session, mark, follower.child);
	wait_for[0] = (struct pollfd){.fd = follower.signal_fd, .events = POLLIN};
	wait_for[1] = (struct pollfd){.fd = folder_fd, .events = POLLIN};
	while (!reap(&follower, &status)) {
		poll(wait_for, 2, SCAN_MS);
		if (folder_fd >= 0)
			drain(folder_fd);
		pass_signals(&follower);
		members_scan(&follower.members);
	}
	members_scan(&follower.members);
	members_report(&follower.members);
	members_release(&follower.members);
	return status;
}
