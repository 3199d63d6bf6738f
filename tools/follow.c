/* tools/follow.c
 * The parent of a followed program. It must not be felt: signals reach the program as if it stood alone, stops and
 * continues included, its exit status is passed on, and it lives on if this process is killed.
 *
 * All signals are blocked and read from a descriptor: one that ended us would leave the program alone. The program is
 * in our process group, as it would be without us, so what the group is sent (by the terminal, by `kill -- -GROUP`) it
 * has already; what only we were sent is passed on. tools/witness.h tells the two apart. */
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
#include "tools/witness.h"

enum { SCAN_MS = 100 };

struct follower {
	pid_t child;
	int signal_fd;
	sigset_t blocked, before;
	struct sigaction child_before;
	struct witness witness;
	struct members members;
};

static int signals_take(struct follower *follower)
{
	struct sigaction action = {0};

	/* SIGSEGV and its like, too: a fault of ours ends us all the same, one that was sent is the program's. SIGPIPE:
	 * a reader of our stderr that leaves must not end us, the program may be writing elsewhere. */
	sigfillset(&follower->blocked);
	sigprocmask(SIG_BLOCK, &follower->blocked, &follower->before);
	/* inherited as ignored, our child would vanish without a status */
	action.sa_handler = SIG_DFL;
	sigaction(SIGCHLD, &action, &follower->child_before);
	follower->signal_fd = signalfd(-1, &follower->blocked, SFD_CLOEXEC | SFD_NONBLOCK);
	if (follower->signal_fd < 0)
		return fail(STATUS_BAD, "cannot follow: signalfd: %s; run without --follow", strerror(errno));
	return STATUS_GOOD;
}

/* In the child. */
static void signals_give_back(const struct follower *follower)
{
	sigaction(SIGCHLD, &follower->child_before, NULL);
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

/* The program stopped for the terminal: stop as well, so that the shell has its prompt back. Who continues us continues
 * the group, or we are sent a SIGCONT to pass on. A stop that some other program ordered (SIGSTOP) is not copied: who
 * continues it knows nothing of us. */
static void stop_too(const struct follower *follower, int stop_signal)
{
	siginfo_t news = {0};
	sigset_t one, pending;

	if (stop_signal != SIGTSTP && stop_signal != SIGTTIN && stop_signal != SIGTTOU)
		return;
	raise(stop_signal);
	/* Continued since then? The raise has thrown away our part of it; to stop now would be for ever. */
	if (waitid(P_PID, (id_t)follower->child, &news, WCONTINUED | WNOHANG) == 0 && news.si_pid == follower->child) {
		kill(getpid(), SIGCONT); /* throws away the stop */
		return;
	}
	sigemptyset(&one);
	sigaddset(&one, stop_signal);
	sigprocmask(SIG_UNBLOCK, &one, NULL); /* stops here; not at all in a group that no shell looks after */
	sigprocmask(SIG_BLOCK, &follower->blocked, NULL);
	sigpending(&pending);
	if (!sigismember(&pending, SIGCONT))
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

static void pass_on(const struct follower *follower, const struct signalfd_siginfo *info)
{
	union sigval value = {.sival_ptr = (void *)(uintptr_t)info->ssi_ptr};

	if (info->ssi_code == SI_QUEUE)
		sigqueue(follower->child, (int)info->ssi_signo, value);
	else
		kill(follower->child, (int)info->ssi_signo);
}

static void pass_signals(struct follower *follower)
{
	struct signalfd_siginfo info;

	while (read(follower->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
		/* our own: of a write nobody reads, of a stop that did not come to pass */
		if (info.ssi_signo == SIGCHLD || (info.ssi_code <= SI_USER && info.ssi_pid == (uint32_t)getpid()))
			continue;
		/* the program knows what it sends, to its parent or to its group */
		if (!witness_saw(&follower->witness, &info) && info.ssi_pid != (uint32_t)follower->child)
			pass_on(follower, &info);
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
	struct follower follower = {.witness = {.fd = -1}};
	struct pollfd wait_for[2];
	char run[24];
	uint64_t run_id = process_new_id();
	int status, folder_fd;

	snprintf(run, sizeof(run), "%016llx", (unsigned long long)run_id);
	if (setenv("SUBLET_FOLLOW", "1", 1) || setenv("SUBLET_RUN", run, 1))
		return fail(STATUS_BAD, "out of memory; try again");
	folder_fd = watch(session);
	status = signals_take(&follower);
	if (status)
		return status;
	witness_start(&follower.witness, follower.signal_fd, argv);
	status = start(&follower, argv);
	if (status) {
		witness_stop(&follower.witness);
		return status;
	}
	members_init(&follower.members, session, run_id, follower.child);
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
	witness_stop(&follower.witness);
	return status;
}
