/* base/errors.h
 * What can go wrong, as a closed list, and the sentence that goes with it. Library code returns these and does not log;
 * shim/ turns them into a CUresult in one function, tools/ into text and exit status in one function. */
#ifndef SUBLET_BASE_ERRORS_H
#define SUBLET_BASE_ERRORS_H

#include "base/attributes.h"

enum sublet_err {
	SUBLET_OK,
	SUBLET_ERR_INVALID, /* the caller's argument */
	SUBLET_ERR_NOMEM,   /* device, host or address space exhausted */
	SUBLET_ERR_DRIVER,  /* the driver refused; errinfo.driver_code says how */
	SUBLET_ERR_UNSUPPORTED,
	SUBLET_ERR_SYSTEM,  /* a system call refused */
	SUBLET_ERR_TIMEOUT, /* what was waited for did not come in time */
	SUBLET_ERR_COUNT
};

/* Filled only on failure. No heap, so it can be filled anywhere. */
struct errinfo {
	enum sublet_err code;
	int driver_code; /* CUresult, 0 when the driver did not refuse */
	char text[256];  /* lower case, no full stop */
};

/* Fill @info (may be NULL) and return @code, so that a failure is one line at its place. */
enum sublet_err errinfo_set(struct errinfo *info, enum sublet_err code, int driver_code, const char *format, ...)
	SUBLET_PRINTF(4, 5);

#endif
