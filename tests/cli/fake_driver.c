/* tests/cli/fake_driver.c
 * A libcuda.so.1 that goes wrong where FAKE_DRIVER=STEP:WHAT says: STEP load, init or create; WHAT hang, crash, exit,
 * noise (prints, then succeeds) or a number to return. FAKE_PID: a file to write the process id to. It exports one name
 * that no list knows, and lacks most of those that Sublet needs. */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

static int step(const char *name)
{
	const char *wish = getenv("FAKE_DRIVER"), *file = getenv("FAKE_PID");
	size_t length = strlen(name);
	FILE *out = file ? fopen(file, "w") : NULL;

	if (out) {
		fprintf(out, "%d\n", (int)getpid());
		fclose(out);
	}
	if (!wish || strncmp(wish, name, length) != 0 || wish[length] != ':')
		return 0;
	wish += length + 1;
	if (strcmp(wish, "hang") == 0)
		for (;;)
			pause();
	if (strcmp(wish, "crash") == 0)
		raise(SIGSEGV);
	if (strcmp(wish, "exit") == 0)
		exit(3);
	if (strcmp(wish, "noise") == 0) {
		printf("noise of the driver\n");
		fflush(stdout);
		return 0;
	}
	return atoi(wish);
}

__attribute__((constructor)) static void at_load(void)
{
	step("load");
}

EXPORT int cuInit(unsigned int flags);
EXPORT int cuInit(unsigned int flags)
{
	return step("init");
}

EXPORT int cuDriverGetVersion(int *version);
EXPORT int cuDriverGetVersion(int *version)
{
	*version = 13000;
	return 0;
}

EXPORT int cuDeviceGetCount(int *count);
EXPORT int cuDeviceGetCount(int *count)
{
	*count = 1;
	return 0;
}

EXPORT int cuDeviceGetName(char *name, int length, int device);
EXPORT int cuDeviceGetName(char *name, int length, int device)
{
	/* bytes that are no UTF-8 */
	snprintf(name, (size_t)length, "fake \xff\xc3 device");
	return 0;
}

EXPORT int cuDeviceGetAttribute(int *value, int attribute, int device);
EXPORT int cuDeviceGetAttribute(int *value, int attribute, int device)
{
	*value = 1;
	return 0;
}

EXPORT int cuMemCreate(uint64_t *handle, size_t bytes, const void *properties, uint64_t flags);
EXPORT int cuMemCreate(uint64_t *handle, size_t bytes, const void *properties, uint64_t flags)
{
	*handle = 1;
	return step("create");
}

EXPORT int cuMemRelease(uint64_t handle);
EXPORT int cuMemRelease(uint64_t handle)
{
	return 0;
}

EXPORT int cuFancyNewThing(void);
EXPORT int cuFancyNewThing(void)
{
	return 0;
}

/* for debuggers, not for programs */
EXPORT int cudbgFancy(void);
EXPORT int cudbgFancy(void)
{
	return 0;
}
