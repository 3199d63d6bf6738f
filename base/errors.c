/* base/errors.c
 * Formats into the caller's struct; never allocates. */
#include "base/errors.h"

#include <stdarg.h>
#include <stdio.h>

enum sublet_err errinfo_set(struct errinfo *info, enum sublet_err code, int driver_code, const char *format, ...)
{
	va_list ap;

	if (!info)
		return code;
	info->code = code;
	info->driver_code = driver_code;
	va_start(ap, format);
	vsnprintf(info->text, sizeof(info->text), format, ap);
	va_end(ap);
	return code;
}
