/* lifecycle/driver.h
 * The one door out: every driver call Sublet makes itself goes through this table. The preloaded library fills it from
 * the process's libcuda, unit tests from the simulated driver; nothing in lifecycle/ names a cu* function directly.
 * Filled once, read-only afterwards. */
#ifndef SUBLET_LIFECYCLE_DRIVER_H
#define SUBLET_LIFECYCLE_DRIVER_H

#include <stdbool.h>

#include <cuda.h>

#include "base/errors.h"

struct driver {
#define DRIVER_CALL(symbol, field, need) __typeof__(&symbol) field; /* NULL: OPTIONAL and not there */
#include "lifecycle/driver.def"
	int version; /* of the driver, as cuDriverGetVersion counts; 0 until asked */
};

/* Fill @driver with what @find returns for each exported symbol name. Calls no driver function but cuDriverGetVersion.
 * UNSUPPORTED names the first missing required call; then @driver is unusable. */
enum sublet_err driver_load(struct driver *driver, void *(*find)(const char *symbol, void *arg), void *arg,
	struct errinfo *reterr);

/* Around Sublet's own calls on a thread of the application: its capture mode is exchanged to RELAXED, so that a capture
 * of another thread is not invalidated, and put back. Nests. Source: cuThreadExchangeStreamCaptureMode. */
struct driver_scope {
	CUstreamCaptureMode mode;
	bool exchanged;
};
void driver_enter(const struct driver *driver, struct driver_scope *scope);
void driver_leave(const struct driver *driver, struct driver_scope *scope);

#endif
