/* base/text.c
 * Any thread, any lock; allocates nothing. */
#include "base/text.h"

char *text_make_printable(char *text)
{
	for (char *c = text; *c; c++) {
		unsigned char byte = (unsigned char)*c;

		if (byte < ' ' || byte == 127)
			*c = '?';
	}
	return text;
}
