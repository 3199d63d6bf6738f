/* tools/doctor/session.c
 * Where processes meet: the session folder, the counters in it, and the walls of a container around it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lifecycle/stats.h"
#include "tools/command.h"
#include "tools/doctor/doctor.h"
#include "tools/session_dir.h"
#include "tools/stats_files.h"

/* The folder, or NULL with what is wrong in @text. */
static char *open_session(const struct doctor *doctor, char *text, size_t room)
{
	int status;
	char *path;

	fail_into(text, room);
	path = session_dir_open(doctor->session, &status);
	fail_into(NULL, 0);
	return path;
}

void check_session(const struct doctor *doctor, struct finding *finding)
{
	char text[1024] = "";
	char *path = open_session(doctor, text, sizeof(text));

	if (path) {
		finding_say(finding, FINDING_OK, "%s, of this user alone", path);
		finding_text(finding, "path", path);
	} else {
		/* the complaint ends in what to do */
		char *fix = strrchr(text, ';');

		finding_fix(finding, "%s", fix ? fix + 1 + (fix[1] == ' ') : "choose another with --session DIR");
		if (fix)
			*fix = '\0';
		finding_say(finding, FINDING_MISSING, "%s", text);
	}
	free(path);
}

struct lookups {
	const char *session;
	unsigned long long processes, unknown;
};

static void add_lookups(int pid, void *arg)
{
	struct lookups *lookups = arg;
	struct stats_page page;
	int fd = stats_open(lookups->session, pid, &page);

	if (fd < 0)
		return;
	close(fd);
	lookups->processes++;
	lookups->unknown += page.lookups_unknown;
}

void check_unknown_lookups(const struct doctor *doctor, struct finding *finding)
{
	struct lookups lookups = {0};
	char text[1024] = "";
	char *path = open_session(doctor, text, sizeof(text));

	if (path) {
		lookups.session = path;
		stats_files_each(path, add_lookups, &lookups);
	}
	free(path);
	finding_number(finding, "processes", lookups.processes);
	finding_number(finding, "unknown", lookups.unknown);
	if (lookups.unknown) {
		finding_say(finding, FINDING_LIMITED, "%llu in %llu process%s of the session", lookups.unknown,
			lookups.processes, lookups.processes == 1 ? "" : "es");
		finding_fix(finding, "update Sublet; 'unknown_entry_points' names what this driver adds");
	} else if (lookups.processes) {
		finding_say(finding, FINDING_OK, "none in %llu process%s of the session", lookups.processes,
			lookups.processes == 1 ? "" : "es");
	} else {
		finding_say(finding, FINDING_OK, "no process of the session to ask");
	}
}

/* Inode numbers of the first namespaces, the same on every kernel: PROC_PID_INIT_INO in include/linux/proc_ns.h. */
static const unsigned long first_pid_namespace = 0xeffffffcUL;

static unsigned long pid_namespace(void)
{
	char link[64];
	unsigned long inode = 0;
	ssize_t length = readlink("/proc/self/ns/pid", link, sizeof(link) - 1);

	link[length < 0 ? 0 : length] = '\0';
	return sscanf(link, "pid:[%lu]", &inode) == 1 ? inode : 0;
}

void check_container(const struct doctor *doctor, struct finding *finding)
{
	const char *runtime = getenv("container");
	unsigned long inode = pid_namespace();
	bool own_pids = inode && inode != first_pid_namespace;
	const char *sign = NULL;

	if (getenv("KUBERNETES_SERVICE_HOST"))
		sign = "Kubernetes";
	else if (access("/.dockerenv", F_OK) == 0)
		sign = "Docker";
	else if (access("/run/.containerenv", F_OK) == 0)
		sign = "Podman";
	else if (runtime && *runtime)
		sign = runtime;
	finding_flag(finding, "own_pid_namespace", own_pids);
	json_object_set_new(finding->values, "sign", sign ? json_string(sign) : json_null());
	if (!sign && !own_pids) {
		finding_say(finding, FINDING_OK, "no signs of one");
		return;
	}
	finding_say(finding, own_pids ? FINDING_LIMITED : FINDING_OK, "%s%s%s", sign ? "signs of " : "",
		sign ? sign : "",
		own_pids ? (sign ? ", process ids of its own" : "process ids of its own")
			 : ", process ids of the host");
	if (own_pids)
		finding_fix(finding,
			"start all processes of a session in this container, or give them one session folder and one set of process ids ('--pid=container:NAME', Kubernetes: shareProcessNamespace)");
}
