/* tools/trace_dir.c
 * Makes and describes the folder of a trace. */
#include "tools/trace_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "base/size.h"
#include "lifecycle/trace_format.h"
#include "policy/decide.h"
#include "tools/command.h"
#include "tools/json.h"
#include "tools/policy_file.h"

#define MANIFEST "manifest.json"

bool trace_dir_use(const char *folder)
{
	const char *given = folder ? folder : getenv("SUBLET_TRACE");
	char absolute[PATH_MAX];

	if (!given || !*given) {
		if (folder)
			fail(STATUS_USAGE, "the trace needs a folder; write it like '--trace DIR'");
		return !folder;
	}
	if (mkdir(given, 0700) && errno != EEXIST) {
		fail(STATUS_BAD, "cannot make trace folder '%s': %s; name one whose parent is there and yours", given, strerror(errno));
		return false;
	}
	if (!realpath(given, absolute) || access(absolute, R_OK | W_OK | X_OK)) {
		fail(STATUS_BAD, "trace folder '%s': %s; name a folder of your own", given, strerror(errno));
		return false;
	}
	return setenv("SUBLET_TRACE", absolute, 1) == 0;
}

bool trace_dir_ring_bytes(uint64_t *ret_bytes)
{
	const char *text = getenv("SUBLET_TRACE_SIZE");

	*ret_bytes = 0;
	if (!text || !*text || size_parse(text, ret_bytes))
		return true;
	fail(STATUS_USAGE, "SUBLET_TRACE_SIZE='%s' is not a size; write 8MiB, 256MiB", text);
	return false;
}

/* ---- the manifest ---- */

static json_t *unless(int failed, json_t *json)
{
	if (!failed)
		return json;
	json_decref(json);
	return NULL;
}

/* First line of a small file, or null. */
static json_t *first_line(const char *path)
{
	char line[256] = "";
	FILE *file = fopen(path, "re");

	if (file && fgets(line, sizeof(line), file))
		line[strcspn(line, "\n")] = '\0';
	if (file)
		fclose(file);
	return *line ? json_text(line) : json_null();
}

static json_t *machine_json(void)
{
	json_t *object = json_object();
	struct utsname name;
	int failed = uname(&name);

	failed |= json_object_set_new(object, "system", json_text(name.sysname));
	failed |= json_object_set_new(object, "release", json_text(name.release));
	failed |= json_object_set_new(object, "machine", json_text(name.machine));
	failed |= json_object_set_new(object, "cpus", json_integer(sysconf(_SC_NPROCESSORS_ONLN)));
	failed |= json_object_set_new(object, "memory_bytes",
		json_integer((json_int_t)sysconf(_SC_PHYS_PAGES) * (json_int_t)sysconf(_SC_PAGESIZE)));
	failed |= json_object_set_new(object, "driver", first_line("/proc/driver/nvidia/version"));
	return unless(failed, object);
}

static json_t *clock_json(void)
{
	struct timespec real, monotonic;
	json_t *object = json_object();
	char text[32];
	struct tm utc;
	int failed;

	clock_gettime(CLOCK_MONOTONIC, &monotonic);
	clock_gettime(CLOCK_REALTIME, &real);
	gmtime_r(&real.tv_sec, &utc);
	strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &utc);
	failed = json_object_set_new(object, "start", json_string(text));
	failed |= json_object_set_new(object, "source", json_string("CLOCK_MONOTONIC"));
	failed |= json_object_set_new(object, "start_ns", json_integer((json_int_t)monotonic.tv_sec * 1000000000 + monotonic.tv_nsec));
	failed |= json_object_set_new(object, "realtime_minus_monotonic_ns",
		json_integer((json_int_t)(real.tv_sec - monotonic.tv_sec) * 1000000000 + (real.tv_nsec - monotonic.tv_nsec)));
	failed |= json_object_set_new(object, "boot", first_line("/proc/sys/kernel/random/boot_id"));
	return unless(failed, object);
}

static json_t *objects_json(const struct policy *policy)
{
	json_t *array = json_array();
	int failed = 0;

	for (uint32_t i = 0; i < policy->rules_count; i++) {
		json_t *object = json_object();

		failed |= json_object_set_new(object, "name", json_text(policy_text(policy, policy->rules[i].name)));
		failed |= json_object_set_new(object, "class", json_string(policy_class_text((enum policy_class)policy->rules[i].class)));
		failed |= json_array_append_new(array, object);
	}
	return unless(failed, array);
}

static json_t *policy_json(const char *name, const struct policy_block *block)
{
	json_t *object = json_object(), *roles = json_array(), *phases = json_array();
	struct policy policy;
	struct errinfo error;
	char *text = NULL;
	size_t bytes = 0;
	int failed = policy_open(block->bytes, block->size_bytes, &policy, &error) != SUBLET_OK;

	failed |= json_object_set_new(object, "file", json_text(name));
	/* a stream was read already */
	if (strcmp(name, "-") != 0 && policy_file_read(name, &text, &bytes)) {
		json_t *string = json_stringn(text, bytes);

		failed |= json_object_set_new(object, "text", string ? string : json_null());
		free(text);
	}
	for (uint32_t i = 0; !failed && i < policy.roles_count; i++)
		failed |= json_array_append_new(roles, json_text(policy_text(&policy, policy.roles[i].name)));
	for (uint32_t i = 0; !failed && i < policy.phases_count; i++)
		failed |= json_array_append_new(phases, json_text(policy_text(&policy, policy.phases[i].name)));
	failed |= json_object_set_new(object, "roles", roles);
	failed |= json_object_set_new(object, "phases", phases);
	if (!failed)
		failed |= json_object_set_new(object, "objects", objects_json(&policy));
	return unless(failed, object);
}

static json_t *manifest(const char *session, const char *policy_name, const struct policy_block *policy)
{
	json_t *object = json_object();
	int failed = json_object_set_new(object, "sublet_trace", json_integer(TRACE_VERSION));

	failed |= json_object_set_new(object, "sublet", json_string(SUBLET_VERSION));
	failed |= json_object_set_new(object, "session", json_text(session));
	failed |= json_object_set_new(object, "clock", clock_json());
	failed |= json_object_set_new(object, "machine", machine_json());
	failed |= json_object_set_new(object, "policy", policy_name ? policy_json(policy_name, policy) : json_null());
	return unless(failed, object);
}

/* Is the manifest that is there of this session? */
static bool is_of_session(const char *path, const char *folder, const char *session)
{
	json_t *object = json_load_file(path, 0, NULL);
	const char *of = json_string_value(json_object_get(object, "session"));
	const bool same = of && strcmp(of, session) == 0;

	if (!same)
		fail(STATUS_BAD, "trace folder '%s' holds %s%s%s; name another folder", folder, of ? "the trace of session '" : "another manifest",
			of ? of : "", of ? "'" : "");
	json_decref(object);
	return same;
}

bool trace_dir_describe(const char *session, const char *policy_name, const struct policy_block *policy)
{
	const char *folder = getenv("SUBLET_TRACE");
	char *path = NULL, *made = NULL;
	json_t *object = NULL;
	bool good = false;

	if (!folder || !*folder)
		return true;
	if (asprintf(&path, "%s/" MANIFEST, folder) < 0 || asprintf(&made, "%s/.manifest-%d", folder, (int)getpid()) < 0) {
		fail(STATUS_BAD, "out of memory; try again");
		goto free;
	}
	if (access(path, F_OK) == 0) {
		good = is_of_session(path, folder, session);
		goto free;
	}
	object = manifest(session, policy_name, policy);
	/* whole or not at all, and never over one that is there */
	good = object && json_dump_file(object, made, JSON_INDENT(2)) == 0 && (link(made, path) == 0 || errno == EEXIST);
	if (!good)
		fail(STATUS_BAD, "cannot write the manifest in trace folder '%s': %s", folder, strerror(errno));
	unlink(made);
free:
	json_decref(object);
	free(path);
	free(made);
	return good;
}
