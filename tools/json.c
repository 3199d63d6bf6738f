/* tools/json.c
 * jansson refuses text that is not UTF-8, rightly; what is to be reported comes from file names all the same. */
#include "tools/json.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/command.h"

/* Bytes of the UTF-8 character at @p, 0 when it is none. Overlong forms and surrogates are left to jansson. */
static size_t character_bytes(const unsigned char *p)
{
	size_t count = *p < 0x80 ? 1 : *p >= 0xf0 ? 4 : *p >= 0xe0 ? 3 : 2;

	if (*p >= 0x80 && *p < 0xc2)
		return 0;
	for (size_t i = 1; i < count; i++)
		if ((p[i] & 0xc0) != 0x80)
			return 0;
	return count;
}

json_t *json_text(const char *text)
{
	json_t *json = json_string(text);
	char *copy;

	if (json)
		return json;
	copy = strdup(text);
	if (!copy)
		return NULL;
	for (char *p = copy; *p;) {
		size_t count = character_bytes((unsigned char *)p);

		if (!count)
			*p = '?';
		p += count ? count : 1;
	}
	json = json_string(copy);
	/* what still is no UTF-8 looks like it: nothing above ASCII is worth a lost report */
	for (char *p = copy; !json && *p; p++)
		if ((unsigned char)*p >= 0x80)
			*p = '?';
	if (!json)
		json = json_string(copy);
	free(copy);
	return json;
}

int json_print(json_t *json)
{
	int failed = !json || json_dumpf(json, stdout, JSON_INDENT(2)) || putchar('\n') == EOF;

	if (!json)
		return fail(STATUS_BAD, "out of memory; try again");
	json_decref(json);
	return failed ? fail(STATUS_BAD, "cannot write the result: %s", strerror(errno)) : STATUS_GOOD;
}
