/* tests/sim/lookups.c
 * usage: lookups DRIVER OWNER
 * What dlsym and dlvsym give a program, on any architecture: names of others as ever, and the wrapped entry points of
 * the library DRIVER from the library OWNER (DRIVER itself, or the preloaded one). Not linked with the driver. */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __aarch64__
#define LIBC_VERSION "GLIBC_2.17"
#else
#define LIBC_VERSION "GLIBC_2.2.5"
#endif

static int failed;

static void expect(bool good, const char *what)
{
	if (good)
		return;
	printf("lookups: not so: %s\n", what);
	failed = 1;
}

/* NULL, and dlerror tells why in words that name @name. */
static bool refused(const void *address, const char *name)
{
	const char *said = dlerror();

	return !address && said && strstr(said, name);
}

static bool is_of(const void *address, const char *library)
{
	const char *slash;
	Dl_info info;

	if (!address || !dladdr(address, &info) || !info.dli_fname)
		return false;
	slash = strrchr(info.dli_fname, '/');
	return strcmp(slash ? slash + 1 : info.dli_fname, library) == 0;
}

int main(int argc, char **argv)
{
	const char *driver = argc == 3 ? strrchr(argv[1], '/') : NULL;
	bool preloaded;
	void *handle;

	if (!driver) {
		fprintf(stderr, "usage: lookups FOLDER/DRIVER OWNER\n");
		return 2;
	}
	driver++;
	preloaded = strcmp(driver, argv[2]) != 0;

	expect(is_of(dlsym(RTLD_DEFAULT, "strlen"), "libc.so.6"), "strlen is libc's");
	expect(is_of(dlvsym(RTLD_DEFAULT, "strlen", LIBC_VERSION), "libc.so.6"), "strlen of a version is libc's");
	expect(refused(dlvsym(RTLD_DEFAULT, "strlen", "NONE_1.0"), "strlen"), "strlen of no version is refused");
	/* the one asked last must see who asked first: for another asker the next dlsym would be libc's in both runs */
	expect(is_of(dlsym(RTLD_NEXT, "dlsym"), preloaded ? argv[2] : "libc.so.6"), "dlsym behind this program");
	expect(refused(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"), "cuMemAlloc_v2"),
		"no cuMemAlloc_v2 before the driver is there");
	expect(refused(dlsym(RTLD_NEXT, "cuMemAlloc_v2"), "cuMemAlloc_v2"), "nor behind this program");
	expect(refused(dlsym(RTLD_DEFAULT, "cu"), "cu"), "no name that is 'cu' alone");

	handle = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
	if (!handle) {
		printf("lookups: %s\n", dlerror());
		return 1;
	}
	expect(is_of(dlsym(handle, "cuMemAlloc_v2"), argv[2]), "cuMemAlloc_v2 of the driver");
	expect(is_of(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"), argv[2]), "cuMemAlloc_v2 of the global scope");
	expect(is_of(dlsym(RTLD_NEXT, "cuMemAlloc_v2"), argv[2]), "cuMemAlloc_v2 behind this program");
	expect(is_of(dlsym(handle, "cuDeviceGetName"), driver), "cuDeviceGetName is not wrapped");
	expect(refused(dlsym(handle, "cuMemAlloc_v0"), "cuMemAlloc_v0"), "no name that is nearly one");
	expect(is_of(dlsym(handle, "cuInit"), argv[2]), "cuInit of the driver");
	return failed;
}
