/* base/text.c
 * Any thread, any lock; allocates nothing. */
#include "base/text.h"

#include <string.h>

/* Weak: the library is also loaded into programs of another C library, which has none. */
extern const char *strerrordesc_np(int error) __attribute__((weak));

char *text_make_printable(char *text)
{
	for (char *c = text; *c; c++) {
		unsigned char byte = (unsigned char)*c;

		if (byte < ' ' || byte == 127)
			*c = '?';
		/* U+0080 to U+009F: control characters, too, to terminals that read UTF-8 */
		if (byte == 0xc2 && (unsigned char)c[1] >= 0x80 && (unsigned char)c[1] < 0xa0)
			c[0] = c[1] = '?';
	}
	return text;
}

const char *text_of_errno(int error)
{
	const char *text = strerrordesc_np ? strerrordesc_np(error) : NULL;

	return text ? text : "it cannot be used";
}
