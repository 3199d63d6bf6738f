/* tools/policy_file.c
 * Reading, and the one way complaints about a policy look when it is about to be used. */
#include "tools/policy_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "policy/source/document.h"
#include "tools/command.h"

bool policy_file_read(const char *name, char **ret_text, size_t *ret_bytes)
{
	FILE *file = strcmp(name, "-") == 0 ? stdin : fopen(name, "re");
	char *text = malloc(DOCUMENT_BYTES_MAX + 1);
	int error = text ? errno : ENOMEM;

	if (file && text) {
		*ret_bytes = fread(text, 1, DOCUMENT_BYTES_MAX + 1, file);
		error = ferror(file) ? errno : 0;
	}
	if (file && file != stdin)
		fclose(file);
	if (!error) {
		*ret_text = text;
		return true;
	}
	free(text);
	fail(STATUS_BAD, "cannot read policy file '%s': %s; check its name and mode", name, strerror(error));
	return false;
}

bool policy_file_compile(const char *name, struct policy_source *source)
{
	struct output said = {0};
	struct errinfo error;
	char shown[4096], *text;
	size_t bytes;
	bool good;

	if (!policy_file_read(name, &text, &bytes))
		return false;
	snprintf(shown, sizeof(shown), "%s", strcmp(name, "-") == 0 ? "stdin" : name);
	text_make_printable(shown);
	good = policy_source_load(source, text, bytes, &error) == SUBLET_OK;
	if (!good) {
		fail(STATUS_BAD, "cannot check '%s': %s", shown, error.text);
	} else {
		diagnostics_print(&source->diagnostics, shown, text, bytes, &said);
		if (said.failed)
			fail(STATUS_BAD, "out of memory; try again");
		else
			fwrite(output_get(&said), 1, said.length, stderr);
		good = !said.failed && source->block.bytes;
		if (!good && !said.failed)
			fail(STATUS_BAD, "policy '%s' cannot be used: %zu error%s; see 'sublet check %s'", shown,
				source->diagnostics.errors, source->diagnostics.errors == 1 ? "" : "s", shown);
	}
	output_release(&said);
	free(text);
	if (!good)
		policy_source_release(source);
	return good;
}
