/* tools/cmd_doctor.c
 * `sublet doctor`: runs the checks of doctor.def and says what each found, as text or as JSON. */
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/command.h"
#include "tools/doctor/doctor.h"
#include "tools/json.h"
#include "tools/preload.h"

enum {
	SCHEMA = 1, /* docs/doctor.schema.json; a new check or value is no change of it, another meaning is */
	TIMEOUT_DEFAULT_S = 60, /* the first cuInit on a machine with eight GPUs takes several seconds */
	TIMEOUT_MAX_S = 3600,
};

enum need {
	USEFUL,
	NEEDED,
};

static const struct check {
	const char *name;
	enum need need;
	void (*function)(const struct doctor *doctor, struct finding *finding);
	const char *lost;
} checks[] = {
#define CHECK(name, need, function, lost) {#name, need, function, lost},
#include "tools/doctor/doctor.def"
};

enum { CHECKS = sizeof(checks) / sizeof(checks[0]) };

static const char *const state_names[] = {"ok", "limited", "missing"};

static const char help[] =
	"usage: sublet doctor [OPTION...]\n"
	"\n"
	"Looks at what Sublet needs on this machine: what is there, what is lost where it is not, and how to mend that.\n"
	"\n"
	"options:\n"
	"      --sim              look at the simulated driver in place of the machine's\n"
	"      --session NAME     the session folder to look at, as for 'sublet run'; made if it is not there\n"
	"      --timeout SECONDS  how long the driver may take to answer (60)\n"
	"      --json             one object; docs/doctor.md describes it\n"
	"  -h, --help             this text\n"
	"\n"
	"The driver is tried in a child process: 2 MiB of device memory and one context, for a moment.\n"
	"Exit status: 0 Sublet works here, 1 something it needs is missing, 2 wrong usage.\n"
	"\n"
	"environment: what programs started from here will see is what is looked at:\n"
	"  LD_LIBRARY_PATH, LD_PRELOAD, LD_AUDIT              how the driver is found, and who stands before it\n"
	"  CUDA_INJECTION64_PATH, NVTX_INJECTION64_PATH       tools that the driver and NVTX bring in\n"
	"  CUDA_MPS_PIPE_DIRECTORY                            where the MPS control daemon is\n"
	"  SUBLET_SESSION, XDG_RUNTIME_DIR                    where the session folder is\n"
	"  SUBLET_LIB                                         another libsublet.so, for tests\n"
	"\n"
	"example:\n"
	"  sublet doctor --json | jq -r '.checks[] | select(.state != \"ok\") | .fix'\n";

/* Returns -1 to go on, else the exit status. */
static int parse(int argc, char **argv, struct doctor *doctor, bool *ret_json)
{
	static const struct option known[] = {
		{"sim", no_argument, NULL, 'm'},
		{"session", required_argument, NULL, 's'},
		{"timeout", required_argument, NULL, 't'},
		{"json", no_argument, NULL, 'j'},
		{"help", no_argument, NULL, 'h'},
		{0},
	};
	unsigned long seconds;
	char *end;
	int got;

	opterr = 0;
	while ((got = getopt_long(argc, argv, ":h", known, NULL)) != -1) {
		switch (got) {
		case 'm':
			doctor->sim = true;
			break;
		case 's':
			doctor->session = optarg;
			break;
		case 't':
			seconds = strtoul(optarg, &end, 10);
			if (*optarg < '0' || *optarg > '9' || *end || seconds < 1 || seconds > TIMEOUT_MAX_S)
				return fail(STATUS_USAGE, "'%s' is no time from 1 to %d seconds; write '--timeout 60'",
					optarg, TIMEOUT_MAX_S);
			doctor->timeout_ms = (unsigned int)seconds * 1000;
			break;
		case 'j':
			*ret_json = true;
			break;
		case 'h':
			fputs(help, stdout);
			return STATUS_GOOD;
		default:
			return fail_option("doctor", got, argv, known);
		}
	}
	if (optind < argc)
		return fail(STATUS_USAGE, "'sublet doctor' takes options only, not '%s'; see 'sublet doctor -h'",
			argv[optind]);
	return -1;
}

/* What the loader would give a program, or the simulated driver. NULL after one line. */
static char *find_driver(bool sim)
{
	char *folder, *path;

	if (!sim) {
		path = strdup("libcuda.so.1");
	} else {
		folder = preload_find_sim_folder();
		if (!folder)
			return NULL;
		if (asprintf(&path, "%s/libcuda.so.1", folder) < 0)
			path = NULL;
		free(folder);
	}
	if (!path)
		fail(STATUS_BAD, "out of memory; try again");
	return path;
}

static void run_checks(const struct doctor *doctor, struct finding *findings)
{
	for (size_t i = 0; i < CHECKS; i++) {
		findings[i].values = json_object();
		checks[i].function(doctor, &findings[i]);
	}
}

static bool is_in_the_way(size_t i, const struct finding *findings)
{
	return checks[i].need == NEEDED && findings[i].state == FINDING_MISSING;
}

static bool is_usable(const struct finding *findings)
{
	for (size_t i = 0; i < CHECKS; i++)
		if (is_in_the_way(i, findings))
			return false;
	return true;
}

static void print_text(const struct finding *findings)
{
	size_t counts[3] = {0};
	const char *before = "";
	int width = 0;

	for (size_t i = 0; i < CHECKS; i++)
		if ((int)strlen(checks[i].name) > width)
			width = (int)strlen(checks[i].name);
	for (size_t i = 0; i < CHECKS; i++) {
		counts[findings[i].state]++;
		printf("%-7s  %-*s  %s\n", state_names[findings[i].state], width, checks[i].name, findings[i].found);
		/* what only follows from another line is said there once */
		if (findings[i].state == FINDING_OK || findings[i].follows)
			continue;
		printf("%*s  lost: %s\n", 7 + 2 + width, "", checks[i].lost);
		printf("%*s  fix:  %s\n", 7 + 2 + width, "", findings[i].fix);
	}
	printf("\n%zu ok, %zu limited, %zu missing; ", counts[FINDING_OK], counts[FINDING_LIMITED],
		counts[FINDING_MISSING]);
	if (is_usable(findings)) {
		printf("Sublet works here\n");
		return;
	}
	printf("Sublet cannot work here: mend ");
	for (size_t i = 0; i < CHECKS; i++) {
		if (!is_in_the_way(i, findings) || findings[i].follows)
			continue;
		printf("%s%s", before, checks[i].name);
		before = ", ";
	}
	printf("\n");
}

static json_t *text_or_null(const char *text)
{
	return text && *text ? json_text(text) : json_null();
}

static int print_json(const struct doctor *doctor, struct finding *findings)
{
	json_t *list = json_array(), *report;
	int failed = !list;

	for (size_t i = 0; i < CHECKS; i++) {
		const struct finding *finding = &findings[i];
		bool good = finding->state == FINDING_OK;

		/* pack takes over what it is given (so), also when it fails */
		failed |= json_array_append_new(
			list, json_pack("{ss ss sb sb so so so so}", "name", checks[i].name, "state",
				      state_names[finding->state], "needed", checks[i].need == NEEDED, "follows",
				      finding->follows, "found", json_text(finding->found), "lost",
				      good ? json_null() : json_text(checks[i].lost), "fix",
				      text_or_null(good ? NULL : finding->fix), "values", finding->values));
		findings[i].values = NULL;
	}
	if (failed) {
		json_decref(list);
		return json_print(NULL);
	}
	report = json_pack("{si ss ss sb so}", "schema", SCHEMA, "version", SUBLET_VERSION, "driver",
		doctor->sim ? "simulated" : "machine", "usable", is_usable(findings), "checks", list);
	return json_print(report);
}

int cmd_doctor(int argc, char **argv)
{
	static struct finding findings[CHECKS];
	struct doctor doctor = {.timeout_ms = TIMEOUT_DEFAULT_S * 1000};
	bool json = false;
	int status = parse(argc, argv, &doctor, &json);

	if (status >= 0)
		return status;
	doctor.library = find_driver(doctor.sim);
	if (!doctor.library)
		return STATUS_BAD;
	signal(SIGCHLD, SIG_DFL); /* ignored, as some parents leave it, children could not be waited for */
	doctor.probe = probe_driver(doctor.library, doctor.timeout_ms, &doctor.outcome);
	if (!doctor.probe)
		return fail(STATUS_BAD, "out of memory; try again");
	run_checks(&doctor, findings);
	status = STATUS_GOOD;
	if (json)
		status = print_json(&doctor, findings);
	else
		print_text(findings);
	if (status == STATUS_GOOD && !is_usable(findings))
		status = STATUS_BAD;
	for (size_t i = 0; i < CHECKS; i++)
		json_decref(findings[i].values);
	free(doctor.library);
	return status;
}
