/* lifecycle/driver.c
 * Loads the table; knows nothing of where the symbols come from. */
#include "lifecycle/driver.h"

#include <stddef.h>
#include <string.h>

enum sublet_err driver_load(struct driver *driver, void *(*find)(const char *, void *), void *arg, struct errinfo *reterr)
{
	static const struct {
		const char *symbol;
		size_t offset;
		bool required;
	} calls[] = {
#define REQUIRED true
#define OPTIONAL false
#define DRIVER_CALL(symbol, field, need) {#symbol, offsetof(struct driver, field), need},
#include "lifecycle/driver.def"
#undef REQUIRED
#undef OPTIONAL
	};

	memset(driver, 0, sizeof(*driver));
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		void *address = find(calls[i].symbol, arg);

		if (!address && calls[i].required)
			return errinfo_set(reterr, SUBLET_ERR_UNSUPPORTED, 0, "this libcuda has no %s", calls[i].symbol);
		memcpy((char *)driver + calls[i].offset, &address, sizeof(address));
	}
	if (driver->DriverGetVersion(&driver->version) != CUDA_SUCCESS)
		driver->version = 0;
	return SUBLET_OK;
}

void driver_enter(const struct driver *driver, struct driver_scope *scope)
{
	scope->mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	scope->exchanged = driver->ThreadExchangeStreamCaptureMode(&scope->mode) == CUDA_SUCCESS;
}

void driver_leave(const struct driver *driver, struct driver_scope *scope)
{
	if (scope->exchanged)
		driver->ThreadExchangeStreamCaptureMode(&scope->mode);
}
