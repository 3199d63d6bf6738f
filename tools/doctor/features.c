/* tools/doctor/features.c
 * What the driver's devices can do. What a driver advertises was tried, since some advertise what they then refuse. */
#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/doctor/driver.h"

static const char full[] = "free device memory and look again";

/* One feature of every device: the flag the driver advertises it with, and what trying it gave. */
struct feature {
	size_t flag, answer; /* offsets in struct probe_device */
	const char *fix;
};

static void check_feature(const struct doctor *doctor, struct finding *finding, const struct feature *feature)
{
	const struct probe *probe = doctor->probe;
	int working = 0, without = 0, is_full = 0;
	char text[1024] = "", how[128];
	size_t used = 0;

	for (int d = 0; d < probe->device_count && used < sizeof(text); d++) {
		const char *device = (const char *)&probe->devices[d];
		bool advertised = *(const bool *)(device + feature->flag);
		const struct probe_answer *answer = (const struct probe_answer *)(device + feature->answer);

		if (!driver_examined(doctor, finding, advertised ? answer : NULL))
			return;
		if (advertised && answer->result == PROBE_SUCCESS) {
			working++;
			continue;
		}
		if (advertised && answer->result == PROBE_OUT_OF_MEMORY)
			is_full++;
		else
			without++;
		used += (size_t)snprintf(text + used, sizeof(text) - used, "%sdevice %d (%s): %s", used ? "; " : "", d,
			probe->devices[d].name, advertised ? answer_text(answer, how, sizeof(how)) : "not there");
	}
	if (!driver_examined(doctor, finding, NULL))
		return;
	finding_number(finding, "devices", (unsigned long long)probe->device_count);
	finding_number(finding, "working", (unsigned long long)working);
	if (working == probe->device_count && working) {
		finding_say(finding, FINDING_OK, working == 1 ? "works" : "works on all %d devices", working);
		return;
	}
	/* a full device says nothing about what it could do */
	finding_say(finding, working || is_full ? FINDING_LIMITED : FINDING_MISSING, "%s", *text ? text : "no device");
	finding_fix(finding, "%s", without ? feature->fix : full);
}

void check_vmm(const struct doctor *doctor, struct finding *finding)
{
	static const struct feature feature = {offsetof(struct probe_device, has_vmm),
		offsetof(struct probe_device, create),
		"update the driver to CUDA 11.2 or later; virtual machines without it (some vGPU profiles) need another profile"};
	const struct probe *probe = doctor->probe;
	const struct probe_answer *failed = probe->context.result ? &probe->context : &probe->map;
	char how[128];

	check_feature(doctor, finding, &feature);
	if (finding->state != FINDING_OK || !driver_examined(doctor, finding, &probe->context) ||
		(!probe->context.result && !driver_examined(doctor, finding, &probe->map)))
		return;
	if (!failed->result) {
		finding_say(finding, FINDING_OK,
			probe->device_count == 1 ? "create, map and access work"
						 : "create works on all %d devices, map and access on the first",
			probe->device_count);
		return;
	}
	if (failed->result == PROBE_OUT_OF_MEMORY || failed == &probe->context) {
		finding_say(finding, FINDING_LIMITED, "create works; mapping was not tried: %s",
			answer_text(failed, how, sizeof(how)));
		finding_fix(finding, "%s",
			failed->result == PROBE_OUT_OF_MEMORY
				? full
				: "let this user make a context: check the compute mode ('nvidia-smi -q -d COMPUTE')");
		return;
	}
	finding_say(finding, FINDING_MISSING, "%s", answer_text(failed, how, sizeof(how)));
	finding_fix(finding, "%s", feature.fix);
}

void check_posix_fd(const struct doctor *doctor, struct finding *finding)
{
	static const struct feature feature = {offsetof(struct probe_device, has_posix_fd),
		offsetof(struct probe_device, export),
		"update the driver; in a virtual machine choose a profile with memory sharing"};

	check_feature(doctor, finding, &feature);
}

void check_rdma(const struct doctor *doctor, struct finding *finding)
{
	static const struct feature feature = {offsetof(struct probe_device, has_rdma),
		offsetof(struct probe_device, rdma),
		"needs a data-centre GPU, and nvidia_peermem or the open kernel module (DMA-BUF)"};

	check_feature(doctor, finding, &feature);
}

/* A thing tried on the first device only. @there: the driver advertises it. */
static void check_first(const struct doctor *doctor, struct finding *finding, bool there,
	const struct probe_answer *answer, const char *fix)
{
	char how[128];

	if (!driver_examined(doctor, finding, there ? answer : NULL))
		return;
	finding_flag(finding, "advertised", there);
	finding_flag(finding, "works", there && answer->tried && !answer->result);
	if (!there) {
		finding_say(finding, FINDING_MISSING, "this driver has none");
		finding_fix(finding, "%s", fix);
	} else if (!answer->tried) {
		finding_say(finding, FINDING_LIMITED, "there; not tried, since %s",
			answer_text(&doctor->probe->context, how, sizeof(how)));
		finding_fix(finding, "mend 'vmm' first");
	} else if (!answer->result) {
		finding_say(finding, FINDING_OK, "works");
	} else {
		finding_say(finding, answer->result == PROBE_OUT_OF_MEMORY ? FINDING_LIMITED : FINDING_MISSING, "%s",
			answer_text(answer, how, sizeof(how)));
		finding_fix(finding, "%s", answer->result == PROBE_OUT_OF_MEMORY ? "free memory and look again" : fix);
	}
}

void check_host_numa(const struct doctor *doctor, struct finding *finding)
{
	check_first(doctor, finding, doctor->probe->devices[0].has_host_numa, &doctor->probe->host_numa,
		"update the driver to CUDA 12.2 or later (R535)");
}

void check_record_event(const struct doctor *doctor, struct finding *finding)
{
	check_first(doctor, finding, doctor->probe->has_record, &doctor->probe->record,
		"update the driver to CUDA 12.5 or later (R555)");
}

/* The process that the file of the control daemon names, 0 when there is none. */
static long daemon_pid(const char *folder)
{
	char path[4200], line[32];
	long pid;

	snprintf(path, sizeof(path), "%s/nvidia-cuda-mps-control.pid", folder);
	pid = strtol(read_line_of(path, line, sizeof(line)), NULL, 10);
	return pid > 0 && (kill((pid_t)pid, 0) == 0 || errno == EPERM) ? pid : 0;
}

void check_mps(const struct doctor *doctor, struct finding *finding)
{
	const char *given = getenv("CUDA_MPS_PIPE_DIRECTORY");
	const char *folder = given && *given ? given : "/tmp/nvidia-mps";
	bool served = false;
	long pid;
	char path[4200];

	for (int d = 0; d < doctor->probe->device_count; d++)
		served |= doctor->probe->devices[d].under_mps;
	pid = daemon_pid(folder);
	snprintf(path, sizeof(path), "%s/control", folder);
	finding_text(finding, "pipe_directory", folder);
	finding_flag(finding, "active", served || pid);
	if (served || pid) {
		finding_say(finding, FINDING_LIMITED, "active (pipe directory '%.1000s'%s)", folder,
			served ? "" : ", its control daemon runs");
		finding_fix(finding,
			"where one process's fault must not end the others, stop MPS: 'echo quit | nvidia-cuda-mps-control'");
		return;
	}
	finding_say(finding, FINDING_OK, "not active (%s '%.1000s')",
		access(path, F_OK) == 0 ? "pipes of a daemon that is gone in" : "no control daemon in", folder);
}
