/* tools/doctor/limits.c
 * What the system lets a process of this user have. Programs started from here inherit it. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/size.h"
#include "tools/doctor/doctor.h"

enum {
	FILES_ENOUGH = 4096, /* 80 GiB in extents of 256 MiB are 320; shared weights are cut at every piece */
	CAP_IPC_LOCK_BIT = 14,
};

static const uint64_t memlock_enough_bytes = (uint64_t)1 << 30; /* one communicator's buffers and some */
static const uint64_t arena_bytes = (uint64_t)16 << 40;		/* the default of SUBLET_ARENA, one device */
static const uint64_t shm_enough_bytes = (uint64_t)1 << 30;	/* containers get 64 MiB where nobody asked for more */
static const uint64_t shm_free_enough_bytes = (uint64_t)256 << 20;

/* null in the JSON: no limit */
static void note_limit(struct finding *finding, const char *name, rlim_t value)
{
	if (value == RLIM_INFINITY)
		json_object_set_new(finding->values, name, json_null());
	else
		finding_number(finding, name, value);
}

static struct rlimit limit_of(struct finding *finding, int resource)
{
	struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};

	getrlimit((__rlimit_resource_t)resource, &limit);
	note_limit(finding, "soft", limit.rlim_cur);
	note_limit(finding, "hard", limit.rlim_max);
	return limit;
}

static const char *size_text(rlim_t bytes, char *text)
{
	return bytes == RLIM_INFINITY ? strcpy(text, "unlimited") : size_format(bytes, text, 16);
}

/* Bit @bit of the effective capabilities of this process. */
static bool has_capability(int bit)
{
	unsigned long long bits = 0;
	char line[256];
	FILE *file = fopen("/proc/self/status", "re");

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "CapEff: %llx", &bits) == 1)
			break;
	if (file)
		fclose(file);
	return bits >> bit & 1;
}

void check_memlock(const struct doctor *doctor, struct finding *finding)
{
	struct rlimit limit = limit_of(finding, RLIMIT_MEMLOCK);
	bool exempt = has_capability(CAP_IPC_LOCK_BIT);
	char soft[16], hard[16];
	bool enough = exempt || limit.rlim_cur >= memlock_enough_bytes;

	finding_flag(finding, "exempt", exempt);
	finding_say(finding, enough ? FINDING_OK : FINDING_LIMITED, "%s lockable (hard limit %s)%s",
		size_text(limit.rlim_cur, soft), size_text(limit.rlim_max, hard),
		exempt ? ", this user is exempt" : "");
	if (!enough)
		finding_fix(finding,
			limit.rlim_max == RLIM_INFINITY
				? "'ulimit -l unlimited' before starting programs"
				: "raise memlock in /etc/security/limits.conf or LimitMEMLOCK=infinity of the service; containers: '--ulimit memlock=-1'");
}

static const char *count_text(rlim_t count, char *text)
{
	snprintf(text, 24, count == RLIM_INFINITY ? "unlimited" : "%llu", (unsigned long long)count);
	return text;
}

void check_open_files(const struct doctor *doctor, struct finding *finding)
{
	struct rlimit limit = limit_of(finding, RLIMIT_NOFILE);
	bool enough = limit.rlim_cur >= FILES_ENOUGH;
	char soft[24], hard[24];

	finding_say(finding, enough ? FINDING_OK : FINDING_LIMITED, "%s descriptors (hard limit %s)",
		count_text(limit.rlim_cur, soft), count_text(limit.rlim_max, hard));
	if (enough)
		return;
	if (limit.rlim_max >= FILES_ENOUGH)
		finding_fix(finding, "'ulimit -n %s' before starting programs", hard);
	else
		finding_fix(finding,
			"raise nofile in /etc/security/limits.conf to %d or more, LimitNOFILE of the service, or '--ulimit nofile=%d' of the container",
			FILES_ENOUGH, FILES_ENOUGH);
}

/* The largest power-of-two part of the arena that can be set aside. */
static uint64_t address_room(void)
{
	for (uint64_t bytes = arena_bytes; bytes; bytes >>= 1) {
		void *area = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

		if (area != MAP_FAILED) {
			munmap(area, bytes);
			return bytes;
		}
	}
	return 0;
}

void check_address_space(const struct doctor *doctor, struct finding *finding)
{
	uint64_t room = address_room();
	struct rlimit limit = limit_of(finding, RLIMIT_AS);
	char got[16], wanted[16], soft[16];

	finding_number(finding, "room_bytes", room);
	finding_say(finding, room >= arena_bytes ? FINDING_OK : FINDING_LIMITED,
		"%s of addresses can be set aside at once (limit %s)", size_format(room, got, sizeof(got)),
		size_text(limit.rlim_cur, soft));
	if (room < arena_bytes)
		finding_fix(finding,
			"'ulimit -v unlimited' before starting programs; an arena wants %s for each device (SUBLET_ARENA)",
			size_format(arena_bytes, wanted, sizeof(wanted)));
}

/* A number of /proc/meminfo in bytes, 0 when it is not there. */
static uint64_t meminfo_bytes(const char *field)
{
	FILE *file = fopen("/proc/meminfo", "re");
	char line[128], format[64];
	uint64_t kib = 0;

	snprintf(format, sizeof(format), "%s: %%" SCNu64, field);
	while (file && !kib && fgets(line, sizeof(line), file))
		if (sscanf(line, format, &kib) != 1)
			kib = 0;
	if (file)
		fclose(file);
	return kib << 10;
}

void check_overcommit(const struct doctor *doctor, struct finding *finding)
{
	uint64_t limit = meminfo_bytes("CommitLimit"), used = meminfo_bytes("Committed_AS");
	char line[32], used_text[16], limit_text[16];
	int mode = atoi(read_line_of("/proc/sys/vm/overcommit_memory", line, sizeof(line)));

	finding_number(finding, "mode", (unsigned long long)mode);
	finding_number(finding, "commit_limit_bytes", limit);
	finding_number(finding, "committed_bytes", used);
	if (mode != 2) {
		finding_say(finding, FINDING_OK, "mode %d: memory is counted when it is used", mode);
		return;
	}
	finding_say(finding, FINDING_LIMITED, "mode 2: %s of %s are promised",
		size_format(used, used_text, sizeof(used_text)), size_format(limit, limit_text, sizeof(limit_text)));
	finding_fix(finding, "as root 'sysctl vm.overcommit_memory=0', or a larger vm.overcommit_ratio");
}

void check_shared_memory(const struct doctor *doctor, struct finding *finding)
{
	static const char folder[] = "/dev/shm";
	static const char fix[] =
		"containers: '--shm-size=16g' or '--ipc=host' (Kubernetes: an emptyDir of medium Memory on /dev/shm); else 'mount -o remount,size=50%% /dev/shm'";
	struct statvfs st;
	uint64_t total, left;
	char total_text[16], left_text[16];

	if (statvfs(folder, &st) || access(folder, W_OK | X_OK)) {
		finding_say(finding, FINDING_MISSING, "%s: %s", folder, strerror(errno));
		finding_fix(finding,
			"mount a tmpfs there that all may write ('mount -t tmpfs -o mode=1777 tmpfs /dev/shm')");
		return;
	}
	total = (uint64_t)st.f_blocks * st.f_frsize;
	left = (uint64_t)st.f_bavail * st.f_frsize;
	finding_number(finding, "size_bytes", total);
	finding_number(finding, "free_bytes", left);
	finding_say(finding, total >= shm_enough_bytes && left >= shm_free_enough_bytes ? FINDING_OK : FINDING_LIMITED,
		"%s, %s free", size_format(total, total_text, sizeof(total_text)),
		size_format(left, left_text, sizeof(left_text)));
	if (total < shm_enough_bytes)
		finding_fix(finding, fix);
	else if (left < shm_free_enough_bytes)
		finding_fix(finding, "see what fills it with 'ls -lS /dev/shm', remove what ended programs left");
}
