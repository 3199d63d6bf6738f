/* lifecycle/callers/wants.c
 * The words for what is looked for. */
#include "lifecycle/callers/wants.h"

#include <string.h>

static const struct {
	const char *word;
	unsigned wants;
} words[] = {{"library", CALLER_LIBRARY}, {"thread", CALLER_THREAD}, {"tag", CALLER_TAG}, {"stack", CALLER_STACK},
	{"python", CALLER_PYTHON}, {"all", CALLER_EVERYTHING}};

bool caller_wants_parse(const char *text, unsigned *ret_wants)
{
	unsigned wants = 0;

	do {
		size_t length = strcspn(text, ","), i = 0, count = sizeof(words) / sizeof(words[0]);

		while (i < count && (strlen(words[i].word) != length || strncmp(words[i].word, text, length) != 0))
			i++;
		if (i == count)
			return false;
		wants |= words[i].wants;
		text += length;
	} while (*text++);
	*ret_wants = wants;
	return true;
}
