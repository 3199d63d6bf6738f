/* tools/doctor/syscalls.c
 * System calls that containers filter and old kernels lack, each done for real in a child: a filter may kill instead of
 * refusing. */
#include <errno.h>
#include <fcntl.h>
#include <linux/membarrier.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/doctor/doctor.h"

enum { TRY_MS = 10000 };

/* Each returns 0 or the errno of the first call that failed. */

static int try_pidfd_open(void *arg)
{
	int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);

	return fd < 0 ? errno : 0;
}

static int try_membarrier(void *arg)
{
	if (syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) ||
		syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0))
		return errno;
	return 0;
}

/* Of itself, as stacks are read: memory that may not be there. */
static int try_process_vm_readv(void *arg)
{
	char from = 1, to = 0;
	struct iovec local = {&to, 1}, remote = {&from, 1};

	return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == 1 ? 0 : errno;
}

static int try_memfd(void *arg)
{
	int fd = memfd_create("sublet-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0 || ftruncate(fd, 4096) ||
		mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED ||
		fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW))
		return errno;
	return 0;
}

/* Between two processes of which neither is the other's parent, as those of a framework are. */
static int try_pidfd_getfd(void *arg)
{
	pid_t other = fork();
	int pidfd, fd, error;

	if (other < 0)
		return errno;
	if (other == 0) {
		pid_t parent = getppid();

		/* the grandchild takes from its parent: the kernel asks the same as among siblings */
		pidfd = (int)syscall(SYS_pidfd_open, parent, 0);
		fd = pidfd < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, pidfd, STDERR_FILENO, 0);
		_exit(fd < 0 ? errno : 0);
	}
	if (waitpid(other, &error, 0) != other)
		return errno;
	/* a filter that kills is to be seen as such */
	if (WIFSIGNALED(error))
		raise(WTERMSIG(error));
	return WIFEXITED(error) ? WEXITSTATUS(error) : EIO;
}

static void check_call(struct finding *finding, int (*function)(void *), const char *fix)
{
	struct child_outcome outcome = child_run(function, NULL, TRY_MS);
	bool works = outcome.end == CHILD_RETURNED && outcome.number == 0;
	char how[128];

	finding_flag(finding, "works", works);
	if (works) {
		finding_say(finding, FINDING_OK, "works");
		return;
	}
	if (outcome.end == CHILD_RETURNED) {
		finding_say(finding, FINDING_MISSING, "%s", strerror(outcome.number));
		finding_text(finding, "error", strerrorname_np(outcome.number));
	} else {
		finding_say(finding, FINDING_MISSING, "%s", outcome_text(&outcome, TRY_MS, how, sizeof(how)));
	}
	finding_fix(finding, "%s", fix);
}

void check_pidfd_open(const struct doctor *doctor, struct finding *finding)
{
	check_call(finding, try_pidfd_open,
		"needs Linux 5.3, and a seccomp profile that allows pidfd_open ('--security-opt seccomp=FILE')");
}

void check_membarrier(const struct doctor *doctor, struct finding *finding)
{
	check_call(finding, try_membarrier,
		"needs Linux 4.14, and a seccomp profile that allows membarrier ('--security-opt seccomp=FILE')");
}

void check_process_vm_readv(const struct doctor *doctor, struct finding *finding)
{
	check_call(finding, try_process_vm_readv,
		"needs a seccomp profile that allows process_vm_readv ('--security-opt seccomp=FILE'); containers on older kernels: '--cap-add SYS_PTRACE'");
}

void check_memfd(const struct doctor *doctor, struct finding *finding)
{
	check_call(finding, try_memfd,
		"needs Linux 3.17, and a seccomp profile that allows memfd_create ('--security-opt seccomp=FILE')");
}

void check_pidfd_getfd(const struct doctor *doctor, struct finding *finding)
{
	char line[16];
	int scope = atoi(read_line_of("/proc/sys/kernel/yama/ptrace_scope", line, sizeof(line)));
	size_t used;

	check_call(finding, try_pidfd_getfd,
		scope ? "as root 'sysctl kernel.yama.ptrace_scope=0'; containers: '--cap-add SYS_PTRACE'"
		      : "needs Linux 5.6, and a seccomp profile that allows pidfd_getfd; containers: '--cap-add SYS_PTRACE'");

	finding_number(finding, "ptrace_scope", (unsigned long long)scope);
	used = strlen(finding->found);
	if (*line)
		snprintf(finding->found + used, sizeof(finding->found) - used, " (yama's ptrace_scope is %d)", scope);
}
