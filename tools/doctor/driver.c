/* tools/doctor/driver.c
 * The driver as a whole: is it there, does it start, how old is it, what does it export. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/doctor/driver.h"
#include "tools/elf_exports.h"
#include "tools/entry_list.h"

enum {
	VERSION_LEAST = 11020,	   /* the VMM calls in the forms Sublet uses */
	VERSION_HOST_NUMA = 12020, /* first header with CU_MEM_LOCATION_TYPE_HOST_NUMA; no call of its own tells */
	NAMES_SHOWN = 6,
};

bool driver_answers(const struct doctor *doctor)
{
	return doctor->probe->init.tried && doctor->probe->init.result == PROBE_SUCCESS;
}

bool driver_examined(const struct doctor *doctor, struct finding *finding, const struct probe_answer *answer)
{
	char how[128];

	if (!driver_answers(doctor)) {
		finding_follows(finding, "driver", "the driver cannot be used");
		return false;
	}
	if (!answer || answer->tried)
		return true;
	if (doctor->outcome.end != CHILD_RETURNED) {
		finding_follows(finding, "driver", "%s %s", probe_step_text(doctor->probe->step),
			outcome_text(&doctor->outcome, doctor->timeout_ms, how, sizeof(how)));
		return false;
	}
	return true;
}

const char *answer_text(const struct probe_answer *answer, char *text, size_t room)
{
	if (*answer->name)
		snprintf(text, room, "%s: %s", answer->call, answer->name);
	else
		snprintf(text, room, "%s: error %d", answer->call, answer->result);
	return text;
}

/* What a refusal of cuInit means to the person at the machine. */
static const struct {
	enum probe_result result;
	const char *fix;
} init_fixes[] = {
	{PROBE_STUB_LIBRARY, "this is the toolkit's stub for linking: take its folder out of LD_LIBRARY_PATH"},
	{PROBE_DEVICE_UNAVAILABLE, "another process has the device for itself: end it, or 'nvidia-smi -c DEFAULT'"},
	{PROBE_NO_DEVICE,
		"no device is visible: check CUDA_VISIBLE_DEVICES, 'nvidia-smi', and '--gpus all' of the container"},
	{PROBE_OPERATING_SYSTEM,
		"the driver's device files cannot be used: check 'ls -l /dev/nvidia*' and the container's device rules"},
	{PROBE_SYSTEM_NOT_READY,
		"the fabric is not ready: start nvidia-fabricmanager ('systemctl start nvidia-fabricmanager')"},
	{PROBE_SYSTEM_DRIVER_MISMATCH,
		"library and kernel module are of two driver versions: reboot after an update, or bring the container's library in line with the host's"},
	{PROBE_COMPAT_NOT_SUPPORTED,
		"this forward-compatibility library does not work with this device: take its folder (compat) out of LD_LIBRARY_PATH"},
	{PROBE_MPS_CONNECTION_FAILED,
		"the MPS control daemon does not answer: start it ('nvidia-cuda-mps-control -d'), or unset CUDA_MPS_PIPE_DIRECTORY"},
	{PROBE_MPS_RPC_FAILURE,
		"the MPS server does not answer: restart it ('echo quit | nvidia-cuda-mps-control', then '-d')"},
	{PROBE_MPS_SERVER_NOT_READY, "the MPS server is starting or recovering from a fault: try again in a moment"},
	{PROBE_MPS_MAX_CLIENTS, "the MPS server takes no more clients: end some"},
	{PROBE_UNKNOWN,
		"the driver gives no reason: load nvidia_uvm ('nvidia-modprobe -u -c=0'), check 'dmesg' for Xid lines"},
};

/* Where distributions, containers and WSL put the library when the loader does not know of it. */
static const char *const usual_places[] = {
	"/usr/lib/x86_64-linux-gnu",
	"/usr/lib/aarch64-linux-gnu",
	"/usr/lib64",
	"/usr/lib64/nvidia",
	"/usr/lib/wsl/lib",
	"/usr/local/nvidia/lib64",
	"/usr/local/cuda/compat",
	"/run/opengl-driver/lib",
};

static void say_not_loaded(const struct doctor *doctor, struct finding *finding)
{
	char path[128];

	finding_say(finding, FINDING_MISSING, "%s", doctor->probe->load_error);
	for (size_t i = 0; i < sizeof(usual_places) / sizeof(usual_places[0]); i++) {
		snprintf(path, sizeof(path), "%s/libcuda.so.1", usual_places[i]);
		if (access(path, F_OK) == 0) {
			finding_fix(finding,
				"'%s' is there: check that it is whole, and put its folder into LD_LIBRARY_PATH or run 'ldconfig'",
				path);
			return;
		}
	}
	if (access("/proc/driver/nvidia/version", F_OK) == 0 || access("/dev/nvidiactl", F_OK) == 0)
		finding_fix(finding,
			"the kernel module is loaded, its library is not here: start the container with '--gpus all' and NVIDIA_DRIVER_CAPABILITIES=compute,utility, or install the driver's libcuda1");
	else
		finding_fix(finding,
			"install NVIDIA's driver (CUDA %d.%d or later); without a GPU use 'sublet run --sim' and 'sublet doctor --sim'",
			VERSION_LEAST / 1000, VERSION_LEAST % 1000 / 10);
}

static void say_refused(const struct doctor *doctor, struct finding *finding)
{
	const struct probe_answer *init = &doctor->probe->init;
	char text[128];

	finding_say(finding, FINDING_MISSING, "%s (%s)", answer_text(init, text, sizeof(text)), doctor->probe->path);
	finding_fix(finding, "see what 'nvidia-smi' says");
	for (size_t i = 0; i < sizeof(init_fixes) / sizeof(init_fixes[0]); i++)
		if ((int)init_fixes[i].result == init->result)
			finding_fix(finding, "%s", init_fixes[i].fix);
}

/* "580.159" out of "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159  ...": the first word that is a version. */
static const char *kernel_module_version(char *line, size_t room)
{
	char *rest = read_line_of("/proc/driver/nvidia/version", line, room), *word;

	while ((word = strsep(&rest, " \t")))
		if (*word >= '0' && *word <= '9' && strchr(word, '.'))
			return word;
	return NULL;
}

/* Appends what this driver is too old for; returns how many things that are. */
static int append_ages(int version, char *text, size_t room)
{
	const struct {
		int since;
		const char *what;
	} ages[] = {
		{VERSION_HOST_NUMA, "parking pages in host memory"},
		{entry_row_find("cuFuncGetParamInfo")->since, "parameter layouts of kernels without libelf"},
		{entry_row_find("cuCtxRecordEvent")->since, "frees that do not wait"},
	};
	size_t used = strlen(text);
	int count = 0;

	for (size_t i = 0; i < sizeof(ages) / sizeof(ages[0]) && used < room; i++) {
		if (version >= ages[i].since)
			continue;
		used += (size_t)snprintf(text + used, room - used, "%s%s (from CUDA %d.%d)",
			count++ ? ", " : "; too old for ", ages[i].what, ages[i].since / 1000,
			ages[i].since % 1000 / 10);
	}
	return count;
}

static void say_there(const struct doctor *doctor, struct finding *finding)
{
	const struct probe *probe = doctor->probe;
	char line[256], text[1024];
	const char *module = doctor->sim ? NULL : kernel_module_version(line, sizeof(line));
	int old;

	snprintf(text, sizeof(text), "CUDA %d.%d%s%s%s, %d device%s (%s), %.600s", probe->version / 1000,
		probe->version % 1000 / 10, module ? " (" : "", module ? module : "", module ? ")" : "",
		probe->device_count, probe->device_count == 1 ? "" : "s", probe->devices[0].name, probe->path);
	if (module)
		finding_text(finding, "kernel_module", module);
	if (probe->version < VERSION_LEAST) {
		finding_say(finding, FINDING_MISSING, "%s; too old: CUDA %d.%d is the first that Sublet works with",
			text, VERSION_LEAST / 1000, VERSION_LEAST % 1000 / 10);
		finding_fix(finding, "update the driver");
		return;
	}
	old = append_ages(probe->version, text, sizeof(text));
	finding_say(finding, old ? FINDING_LIMITED : FINDING_OK, "%s", text);
	if (old)
		finding_fix(finding, "update the driver");
}

void check_driver(const struct doctor *doctor, struct finding *finding)
{
	const struct probe *probe = doctor->probe;
	char how[128];

	if (*probe->path)
		finding_text(finding, "path", probe->path);
	if (probe->version) {
		snprintf(how, sizeof(how), "%d.%d", probe->version / 1000, probe->version % 1000 / 10);
		finding_text(finding, "cuda_version", how);
	}
	finding_number(finding, "devices", (unsigned long long)probe->device_count);
	if (doctor->outcome.end != CHILD_RETURNED) {
		finding_say(finding, FINDING_MISSING, "%s %s%s%s%s", probe_step_text(probe->step),
			outcome_text(&doctor->outcome, doctor->timeout_ms, how, sizeof(how)), *probe->path ? " (" : "",
			probe->path, *probe->path ? ")" : "");
		finding_fix(finding,
			doctor->outcome.end == CHILD_HUNG
				? "check 'nvidia-smi' and 'dmesg' for Xid lines; where the driver is only slow, give '--timeout' more seconds"
				: "check that this is NVIDIA's own library, and 'dmesg' for Xid lines; reinstall the driver");
	} else if (*probe->load_error) {
		say_not_loaded(doctor, finding);
	} else if (!driver_answers(doctor)) {
		say_refused(doctor, finding);
	} else if (!probe->device_count) {
		finding_say(finding, FINDING_MISSING, "no device (%s)", probe->path);
		finding_fix(finding, "check CUDA_VISIBLE_DEVICES and 'nvidia-smi'");
	} else {
		say_there(doctor, finding);
	}
}

void check_entry_points(const struct doctor *doctor, struct finding *finding)
{
	const struct probe *probe = doctor->probe;

	if (!*probe->path) {
		finding_follows(finding, "driver", "there is no driver library");
		return;
	}
	finding_text(finding, "lacking", probe->lacking);
	if (*probe->lacking) {
		finding_say(finding, FINDING_MISSING, "the library lacks %s", probe->lacking);
		finding_fix(finding, "update the driver to CUDA %d.%d or later", VERSION_LEAST / 1000,
			VERSION_LEAST % 1000 / 10);
		return;
	}
	finding_say(finding, FINDING_OK, "every required one is exported");
}

struct unknown_names {
	size_t exports, unknown;
	char text[512]; /* the first few */
	json_t *names;
};

static void note_export(const char *name, void *arg)
{
	struct unknown_names *names = arg;
	size_t used = strlen(names->text);

	/* cuda.h names are cu and a capital; the rest (cudbg...) is for debuggers and never asked for by programs */
	if (strncmp(name, "cu", 2) != 0 || name[2] < 'A' || name[2] > 'Z')
		return;
	names->exports++;
	if (entry_row_find(name))
		return;
	if (names->unknown < NAMES_SHOWN)
		snprintf(names->text + used, sizeof(names->text) - used, "%s%s", used ? " " : "", name);
	names->unknown++;
	json_array_append_new(names->names, json_string(name));
}

void check_unknown_entry_points(const struct doctor *doctor, struct finding *finding)
{
	struct unknown_names names = {.names = json_array()};
	const char *why;

	if (!*doctor->probe->path) {
		finding_follows(finding, "driver", "there is no driver library");
		json_decref(names.names);
		return;
	}
	why = elf_exports_each(doctor->probe->path, note_export, &names);
	if (why) {
		finding_say(finding, FINDING_LIMITED, "not examined: %s", why);
		finding_fix(finding, "install libelf1, and check that '%.600s' can be read", doctor->probe->path);
	} else if (names.unknown) {
		finding_say(finding, FINDING_LIMITED, "%zu of %zu exports: %s%s", names.unknown, names.exports,
			names.text, names.unknown > NAMES_SHOWN ? " ..." : "");
		finding_fix(finding, "update Sublet; until then programs get the driver's own for these");
	} else {
		finding_say(finding, FINDING_OK, "none among %zu exports", names.exports);
	}
	finding_number(finding, "exports", names.exports);
	json_object_set_new(finding->values, "unknown", names.names);
}
