/* base/size.c
 * Own digits loop: strtod follows the locale, and a framework may have set one with a decimal comma. */
#include "base/size.h"

#include <stdio.h>
#include <strings.h>

static bool unit_shift(const char *unit, unsigned *ret_shift)
{
	static const struct {
		const char *name;
		unsigned shift;
	} units[] = {
		{"", 0},    {"b", 0},    {"k", 10},  {"kb", 10},  {"kib", 10}, {"m", 20},   {"mb", 20},
		{"mib", 20}, {"g", 30},  {"gb", 30}, {"gib", 30}, {"t", 40},   {"tb", 40},  {"tib", 40},
	};

	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
		if (strcasecmp(unit, units[i].name) == 0) {
			*ret_shift = units[i].shift;
			return true;
		}
	}
	return false;
}

bool size_parse(const char *text, uint64_t *ret_bytes)
{
	uint64_t whole = 0, fraction = 0, scale = 1;
	unsigned shift;
	const char *p = text;

	if (!p || *p < '0' || *p > '9')
		return false;
	for (; *p >= '0' && *p <= '9'; p++) {
		if (whole > (UINT64_MAX - 9) / 10)
			return false;
		whole = whole * 10 + (uint64_t)(*p - '0');
	}
	if (*p == '.') {
		p++;
		if (*p < '0' || *p > '9')
			return false;
		for (; *p >= '0' && *p <= '9'; p++) {
			if (scale >= 1000000) /* finer than a millionth of a unit is noise */
				continue;
			fraction = fraction * 10 + (uint64_t)(*p - '0');
			scale *= 10;
		}
	}
	while (*p == ' ')
		p++;
	if (!unit_shift(p, &shift))
		return false;
	if (fraction && shift == 0)
		return false; /* half a byte */
	if (shift && whole >> (64 - shift))
		return false;
	whole <<= shift;
	fraction = (fraction << shift) / scale; /* below 10^6 * 2^40: fits */
	if (whole > UINT64_MAX - fraction)
		return false;
	*ret_bytes = whole + fraction;
	return true;
}

char *size_format(uint64_t bytes, char *buffer, size_t buffer_bytes)
{
	static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB"};
	unsigned unit = 0;
	uint64_t hundredths;

	while (unit < 4 && bytes >> (10 * (unit + 1)))
		unit++;
	if (unit == 0) {
		snprintf(buffer, buffer_bytes, "%llu B", (unsigned long long)bytes);
		return buffer;
	}
	hundredths = (bytes >> (10 * (unit - 1))) * 100 / 1024;
	snprintf(buffer, buffer_bytes, "%llu.%02llu %s", (unsigned long long)(hundredths / 100),
		(unsigned long long)(hundredths % 100), names[unit]);
	return buffer;
}
