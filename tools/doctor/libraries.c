/* tools/doctor/libraries.c
 * Libraries that are opened when first needed. Tried in a child: their constructors are not ours. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/command.h"
#include "tools/doctor/doctor.h"
#include "tools/preload.h"

enum { OPEN_MS = 30000 };

struct opening {
	const char *name;
	bool is_open;
	int version;	 /* of NCCL */
	char text[1024]; /* where it is, or the loader's words */
};

static int open_in_child(void *arg)
{
	struct opening *opening = arg;
	void *handle = dlopen(opening->name, RTLD_NOW | RTLD_LOCAL);
	int (*get_version)(int *);

	if (!handle) {
		snprintf(opening->text, sizeof(opening->text), "%s", dlerror());
		return 0;
	}
	/* ORIGIN is the folder alone */
	if (dlinfo(handle, RTLD_DI_ORIGIN, opening->text))
		opening->text[0] = '\0';
	opening->is_open = true;
	get_version = (int (*)(int *))dlsym(handle, "ncclGetVersion");
	if (get_version && get_version(&opening->version))
		opening->version = 0;
	return 0;
}

/* Says ok or missing; what was found stays in the result, NULL when memory ran out. */
static const struct opening *check_opens(struct finding *finding, const char *name, const char *fix)
{
	struct opening *opening = child_memory(sizeof(*opening));
	struct child_outcome outcome;
	char how[128];

	if (!opening) {
		finding_say(finding, FINDING_MISSING, "out of memory");
		finding_fix(finding, "try again");
		return NULL;
	}
	opening->name = name;
	outcome = child_run(open_in_child, opening, OPEN_MS);
	if (outcome.end != CHILD_RETURNED) {
		opening->is_open = false;
		snprintf(opening->text, sizeof(opening->text), "loading %s %s", name,
			outcome_text(&outcome, OPEN_MS, how, sizeof(how)));
	}
	finding_flag(finding, "found", opening->is_open);
	if (opening->is_open) {
		finding_text(finding, "folder", opening->text);
		finding_say(finding, FINDING_OK, "%s in %s", name, opening->text);
	} else {
		finding_say(finding, FINDING_MISSING, "%s", opening->text);
		finding_fix(finding, "%s", fix);
	}
	return opening;
}

void check_libelf(const struct doctor *doctor, struct finding *finding)
{
	check_opens(finding, "libelf.so.1", "install libelf1 (Ubuntu 24.04: libelf1t64)");
}

void check_nccl(const struct doctor *doctor, struct finding *finding)
{
	const struct opening *opening = check_opens(finding, "libnccl.so.2",
		"install libnccl2, or put the folder of the framework's own (nvidia/nccl/lib beside its Python packages) into LD_LIBRARY_PATH");
	char version[32];
	int number = opening && opening->is_open ? opening->version : 0;

	if (!number)
		return;
	/* from 2.9 on MAJOR*10000 + MINOR*100 + PATCH, before that MAJOR*1000 + ... */
	if (number >= 10000)
		snprintf(version, sizeof(version), "%d.%d.%d", number / 10000, number % 10000 / 100, number % 100);
	else
		snprintf(version, sizeof(version), "%d.%d.%d", number / 1000, number % 1000 / 100, number % 100);
	finding_text(finding, "version", version);
	finding_say(finding, FINDING_OK, "%s in %.1000s", version, opening->text);
}

void check_library(const struct doctor *doctor, struct finding *finding)
{
	char text[1024] = "";
	char *path;

	fail_into(text, sizeof(text));
	path = preload_find_library();
	fail_into(NULL, 0);
	finding_say(finding, path ? FINDING_OK : FINDING_MISSING, "%s", path ? path : text);
	if (path)
		finding_text(finding, "path", path);
	else
		finding_fix(
			finding, "build it with 'tools/bootstrap build', or install Sublet again; unset SUBLET_LIB");
	free(path);
}
