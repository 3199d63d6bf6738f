/* tools/serve.c
 * A coordinator outlives who starts it, so it starts from nothing: a session of its own, no descriptor but its log, signals as
 * they are by default. Whoever starts it hears through a pipe whether it serves. */
#include "tools/serve.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/size.h"
#include "lifecycle/coordinator.h"
#include "lifecycle/endpoint.h"
#include "tools/command.h"
#include "tools/policy_file.h"
#include "tools/session_link.h"

#define START_LOCK "start.lock"

enum { REPORT_FD = 3, LOG_BYTES_MAX = 1 << 20 };

/* What this process may use: the machine's memory, or its control group's share of it. */
static uint64_t memory_bytes(void)
{
	uint64_t bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
	unsigned long long limit;
	FILE *file = fopen("/sys/fs/cgroup/memory.max", "re");

	if (file) {
		if (fscanf(file, "%llu", &limit) == 1 && limit < bytes)
			bytes = limit;
		fclose(file);
	}
	return bytes;
}

static uint64_t of_memory(double percent)
{
	return (uint64_t)((double)memory_bytes() / 100.0 * percent);
}

bool serve_pool_bytes(const struct policy_block *policy, uint64_t *ret_bytes)
{
	const char *text = getenv("SUBLET_HOST_POOL");
	struct policy_amount amount = {0};
	double percent;
	int end = 0;

	if (text && *text) {
		if (size_parse(text, ret_bytes))
			return true;
		if (sscanf(text, "%lf%%%n", &percent, &end) == 1 && end && !text[end] && percent > 0 && percent <= 100) {
			*ret_bytes = of_memory(percent);
			return true;
		}
		return fail(STATUS_USAGE, "SUBLET_HOST_POOL='%s' is neither a size nor a percentage; write 64GiB or 50%%", text) ==
		       STATUS_GOOD;
	}
	if (policy && policy->bytes)
		amount = ((const struct policy_header *)policy->bytes)->host_pool;
	*ret_bytes = amount.bytes		 ? amount.bytes
		     : amount.percent_hundredths ? of_memory(amount.percent_hundredths / 100.0)
						 : of_memory(50);
	return true;
}

/* The coordinator of @options, or an exit status after one line. */
static int begin(const struct serve_options *options, struct coordinator **ret)
{
	struct coordinator_config config = {
		.session = options->session,
		.policy = options->policy.bytes,
		.policy_bytes = options->policy.size_bytes,
		.policy_name = options->policy_name,
		.pool_bytes = options->pool_bytes,
		.linger_ns = options->linger_ns,
		.trace_folder = getenv("SUBLET_TRACE"),
		.trace_bytes = options->trace_bytes,
	};
	struct errinfo error;
	pid_t other;

	unsetenv("SUBLET_ROLE"); /* it has none, and the log would say so */
	setenv("SUBLET_LOG", "session:info", 0);
	log_init();
	if (coordinator_new(ret, &config, &other, &error) == SUBLET_OK)
		return STATUS_GOOD;
	if (other)
		return fail(STATUS_BAD, "%s; stop it with 'sublet ctl stop --session %s', or choose another with --session DIR", error.text,
			options->session);
	return fail(STATUS_BAD, "cannot serve session '%s': %s", options->session, error.text);
}

static int run(struct coordinator *coordinator)
{
	struct errinfo error;
	enum sublet_err err = coordinator_run(coordinator, &error);

	coordinator_free(coordinator);
	return err ? fail(STATUS_BAD, "the coordinator cannot go on: %s", error.text) : STATUS_GOOD;
}

int serve_here(const struct serve_options *options)
{
	struct coordinator *coordinator;
	char pool[16];
	int status = begin(options, &coordinator);

	if (status)
		return status;
	fprintf(stderr, "sublet: serving session '%s' with %s%s%s and a host pool of %s; stop with Ctrl-C or 'sublet ctl stop'\n",
		options->session, options->policy_name ? "policy '" : "no policy", options->policy_name ? options->policy_name : "",
		options->policy_name ? "'" : "", size_format(options->pool_bytes, pool, sizeof(pool)));
	return run(coordinator);
}

static int open_log(const char *session)
{
	struct stat st;
	char *path;
	int fd;

	if (asprintf(&path, "%s/" ENDPOINT_LOG, session) < 0)
		return -1;
	fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
	free(path);
	/* it is read after something went wrong, not kept for ever */
	if (fd >= 0 && fstat(fd, &st) == 0 && st.st_size > LOG_BYTES_MAX && ftruncate(fd, 0) < 0)
		fprintf(stderr, "sublet: " ENDPOINT_LOG " cannot be cut short\n");
	return fd;
}

static void default_signals(void)
{
	struct sigaction action = {.sa_handler = SIG_DFL};
	sigset_t none;

	for (int number = 1; number < NSIG; number++)
		sigaction(number, &action, NULL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

/* In the process that will serve. @report_fd: where a refusal goes, and "+" when it serves. */
static int serve_detached(const struct serve_options *options, int report_fd)
{
	struct coordinator *coordinator;
	char refusal[4096] = "";
	int log_fd = open_log(options->session), null_fd = open("/dev/null", O_RDWR | O_CLOEXEC), status;

	if (log_fd < 0)
		log_fd = null_fd;
	dup2(null_fd, STDIN_FILENO);
	dup2(log_fd, STDOUT_FILENO);
	dup2(log_fd, STDERR_FILENO);
	if (report_fd != REPORT_FD)
		dup3(report_fd, REPORT_FD, O_CLOEXEC);
	closefrom(REPORT_FD + 1);
	default_signals();
	umask(077);
	if (chdir("/"))
		return STATUS_BAD;
	fail_into(refusal, sizeof(refusal));
	status = begin(options, &coordinator);
	fail_into(NULL, 0);
	if (write(REPORT_FD, status ? refusal : "+", status ? strlen(refusal) : 1) < 0)
		status = STATUS_BAD;
	close(REPORT_FD);
	return status ? status : run(coordinator);
}

/* What the detached process has to say. */
static int hear(int fd)
{
	char text[4096];
	size_t used = 0;
	ssize_t got;

	while (used < sizeof(text) - 1 && ((got = read(fd, text + used, sizeof(text) - 1 - used)) > 0 || (got < 0 && errno == EINTR)))
		used += got > 0 ? (size_t)got : 0;
	close(fd);
	text[used] = '\0';
	if (strcmp(text, "+") == 0)
		return STATUS_GOOD;
	return fail(STATUS_BAD, "%s", used ? text : "the coordinator ended before it served; see " ENDPOINT_LOG " in the session folder");
}

int serve_beside(const struct serve_options *options)
{
	int ends[2];
	pid_t child;

	if (pipe2(ends, O_CLOEXEC))
		return fail(STATUS_BAD, "cannot start the coordinator: pipe: %s", strerror(errno));
	child = fork();
	if (child == 0) {
		/* twice, so that no terminal becomes its own, and nobody has to wait for it */
		setsid();
		child = fork();
		_exit(child == 0 ? serve_detached(options, ends[1]) : child < 0);
	}
	close(ends[1]);
	if (child < 0) {
		close(ends[0]);
		return fail(STATUS_BAD, "cannot start the coordinator: fork: %s", strerror(errno));
	}
	while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
		;
	return hear(ends[0]);
}

/* ---- for sublet run ---- */

/* This program once more, as `sublet serve --background`: the list of processes then says what it is. */
static int spawn(const char *session, const char *policy)
{
	char exe[] = "/proc/self/exe", name[] = "sublet", serve[] = "serve", background[] = "--background", s[] = "--session",
	     p[] = "--policy";
	char *argv[] = {name, serve, background, s, (char *)session, p, (char *)policy, NULL};
	struct sigaction waited_for = {.sa_handler = SIG_DFL}, before;
	int how;
	pid_t child, got;

	/* inherited as ignored, how a child ended would be told to nobody */
	sigaction(SIGCHLD, &waited_for, &before);
	child = fork();
	if (child == 0) {
		dup2(STDERR_FILENO, STDOUT_FILENO);
		unsetenv("LD_PRELOAD"); /* it has no device memory */
		execv(exe, argv);
		_exit(STATUS_NOT_FOUND);
	}
	do
		got = child < 0 ? child : waitpid(child, &how, 0);
	while (child >= 0 && got < 0 && errno == EINTR);
	sigaction(SIGCHLD, &before, NULL);
	if (got < 0)
		return fail(STATUS_BAD, "cannot start the coordinator: %s: %s", child < 0 ? "fork" : "waitpid", strerror(errno));
	if (WIFEXITED(how) && WEXITSTATUS(how) != STATUS_NOT_FOUND)
		return WEXITSTATUS(how);
	return fail(STATUS_BAD, "the coordinator ended while it started; try 'sublet serve'");
}

/* Does @link serve the policy of file @policy? */
static int compare(const struct session_link *link, const char *session, const char *policy)
{
	struct policy_source source;
	bool same;

	if (!policy)
		return STATUS_GOOD;
	if (!policy_file_compile(policy, &source))
		return STATUS_BAD;
	same = link->bytes && link->size_bytes == source.block.size_bytes &&
	       memcmp(link->bytes, source.block.bytes, link->size_bytes) == 0;
	policy_source_release(&source);
	if (same)
		return STATUS_GOOD;
	return fail(STATUS_BAD,
		"session '%s' has another policy ('%s', coordinator pid %d); stop it with 'sublet ctl stop --session %s', or choose another with --session NAME",
		session, link->bytes ? link->policy_name : "none", (int)link->pid, session);
}

/* Two runs that start together start one coordinator. -1 where there are no locks: then one of them is refused. */
static int start_lock(const char *session)
{
	char *path;
	int fd = -1;

	if (asprintf(&path, "%s/" START_LOCK, session) >= 0) {
		fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
		free(path);
	}
	while (fd >= 0 && flock(fd, LOCK_EX) && errno == EINTR)
		;
	return fd;
}

/* Without its role in the policy a process has no objects of its own: a slip is best said before it starts. */
static int check_role(const struct session_link *link, const char *role)
{
	const struct policy *policy = link->bytes ? &link->policy : NULL;
	const char *words[POLICY_ROLES_MAX + 1] = {NULL}, *near;
	char all[512] = "";

	if (!policy || !policy->roles_count || !role || !*role)
		return STATUS_GOOD;
	for (uint32_t i = 0; i < policy->roles_count; i++) {
		words[i] = policy_text(policy, policy->roles[i].name);
		if (strcmp(words[i], role) == 0)
			return STATUS_GOOD;
		snprintf(all + strlen(all), sizeof(all) - strlen(all), "%s%s", i ? ", " : "", words[i]);
	}
	near = nearest_word(role, words);
	if (near)
		return fail(STATUS_USAGE, "unknown role '%s'; did you mean '%s'?", role, near);
	return fail(STATUS_USAGE, "unknown role '%s'; policy '%s' has %s", role, link->policy_name,
		all);
}

int serve_ensure(const char *session, const char *policy, const char *role)
{
	struct session_link link;
	int status = STATUS_GOOD, lock = policy ? start_lock(session) : -1;
	enum link_state state = session_link_open(&link, session);

	if (state == LINK_NOBODY && policy) {
		status = spawn(session, policy);
		if (!status)
			state = session_link_open(&link, session);
		if (!status && state == LINK_NOBODY)
			status = fail(STATUS_BAD, "the coordinator ended as soon as it had started; see " ENDPOINT_LOG " in '%s'", session);
	} else if (state == LINK_OPEN) {
		status = compare(&link, session, policy);
	}
	if (state == LINK_FAILED && policy)
		status = STATUS_BAD; /* without one the program runs as it does in a session that nobody serves */
	if (lock >= 0)
		close(lock);
	if (state != LINK_OPEN)
		return status;
	if (!status)
		status = check_role(&link, role);
	if (!status && !session_link_keep(&link) && policy)
		status = STATUS_BAD;
	session_link_close(&link);
	return status;
}
