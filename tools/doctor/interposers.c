/* tools/doctor/interposers.c
 * Who else stands between programs and the driver. What is preloaded for programs started from here is preloaded in
 * this process too, so the loader's own list says which file an entry stands for. */
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/doctor/doctor.h"
#include "tools/elf_exports.h"

struct exports {
	bool dlsym, cuda, allocator, sublet;
};

static void note_export(const char *name, void *arg)
{
	struct exports *exports = arg;

	exports->dlsym |= strcmp(name, "dlsym") == 0;
	exports->cuda |= strncmp(name, "cu", 2) == 0 && name[2] >= 'A' && name[2] <= 'Z';
	exports->allocator |= strcmp(name, "malloc") == 0;
}

struct search {
	const char *entry;
	char path[4096]; /* empty: not found */
};

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static int match_object(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct search *search = arg;

	/* an entry may be a bare name, or hold $LIB and the like: the last part decides */
	if (!info->dlpi_name || strcmp(base_name(info->dlpi_name), base_name(search->entry)) != 0)
		return 0;
	snprintf(search->path, sizeof(search->path), "%s", info->dlpi_name);
	return 1;
}

struct report {
	size_t in_the_way;
	char text[1600];
	json_t *list;
};

static void add(struct report *report, const char *where, const char *entry, const char *what, bool in_the_way)
{
	size_t used = strlen(report->text);

	snprintf(report->text + used, sizeof(report->text) - used, "%s%s: %.200s %s", used ? "; " : "", where, entry,
		what);
	report->in_the_way += in_the_way;
	json_array_append_new(report->list,
		json_pack("{ss ss* ss sb}", "where", where, "entry", entry, "what", what, "in_the_way", in_the_way));
}

static void look_at_preload(struct report *report, const char *where, const char *entry)
{
	struct search search = {.entry = entry};
	struct exports exports = {0};
	const char *why;

	if (strcmp(base_name(entry), "libsublet.so") == 0) {
		add(report, where, entry, "is Sublet itself", false);
		return;
	}
	if (!dl_iterate_phdr(match_object, &search)) {
		add(report, where, entry, "is not loaded: the loader cannot use it", true);
		return;
	}
	why = elf_exports_each(search.path, note_export, &exports);
	if (why)
		add(report, where, entry, "cannot be examined", true);
	else if (exports.dlsym && exports.cuda)
		add(report, where, entry, "answers look-ups (dlsym) and driver calls", true);
	else if (exports.dlsym)
		add(report, where, entry, "answers look-ups (dlsym)", true);
	else if (exports.cuda)
		add(report, where, entry, "answers driver calls", true);
	else
		add(report, where, entry,
			exports.allocator ? "is an allocator of host memory" : "answers nothing of Sublet's", false);
}

/* Separated by blanks and colons, as ld.so(8) has it. */
static void look_at_preloads(struct report *report, const char *where, char *entries)
{
	char *entry;

	while ((entry = strsep(&entries, ": \t\n")))
		if (*entry)
			look_at_preload(report, where, entry);
}

static void look_at_preload_file(struct report *report)
{
	static const char path[] = "/etc/ld.so.preload";
	FILE *file = fopen(path, "re");
	char line[4096];

	while (file && fgets(line, sizeof(line), file)) {
		line[strcspn(line, "#")] = '\0';
		look_at_preloads(report, path, line);
	}
	if (file)
		fclose(file);
}

static void look_at_variable(struct report *report, const char *name, const char *what, bool in_the_way)
{
	const char *value = getenv(name);

	if (value && *value)
		add(report, name, value, what, in_the_way);
}

void check_interposers(const struct doctor *doctor, struct finding *finding)
{
	struct report report = {.list = json_array()};
	const char *preload = getenv("LD_PRELOAD");
	char *copy = preload ? strdup(preload) : NULL;

	if (copy)
		look_at_preloads(&report, "LD_PRELOAD", copy);
	free(copy);
	look_at_preload_file(&report);
	look_at_variable(&report, "LD_AUDIT", "sees every look-up, and lives in a link namespace of its own", true);
	look_at_variable(&report, "CUDA_INJECTION64_PATH", "is loaded by the driver (a profiler or debugger)", true);
	look_at_variable(&report, "NVTX_INJECTION64_PATH", "takes the NVTX ranges; 'sublet run' stands in front of it", false);
	json_object_set_new(finding->values, "interposers", report.list);
	finding_say(
		finding, report.in_the_way ? FINDING_LIMITED : FINDING_OK, "%s", *report.text ? report.text : "none");
	if (report.in_the_way)
		finding_fix(finding,
			"unset what is not meant to be there; 'sublet run' puts Sublet first among the others");
}
