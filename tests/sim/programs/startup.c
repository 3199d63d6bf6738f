/* tests/sim/programs/startup.c [owners]
 * What libcudart 13.0 does before a program's first call: it opens libcuda.so.1, looks up cuGetProcAddress_v2 and nothing else,
 * sends it the batch of startup.def, takes seven export tables, and from then on uses the pointers it was given. With "owners"
 * it prints which library each pointer lies in, and whether it is one that the library exports. */
#include <dlfcn.h>

#include "program.h"

static const struct request {
	const char *base;
	int version;
	cuuint64_t flags;
} requests[] = {
#define REQUEST(base, version, flags) {base, version, flags},
#include "startup.def"
};
#define COUNT (sizeof(requests) / sizeof(requests[0]))

static void *answers[COUNT];

static const CUuuid tables[] = {
	{"\xf8\xcf\xf9\x51\x21\x46\x8b\x4e\xb9\xe2\xfb\x46\x9e\x7c\x0d\xd9"}, /* unnamed */
	{"\x6b\xd5\xfb\x6c\x5b\xf4\xe7\x4a\x89\x87\xd9\x39\x12\xfd\x9d\xf9"}, /* CUDART_INTERFACE */
	{"\xa0\x94\x79\x8c\x2e\x74\x2e\x74\x93\xf2\x08\x00\x20\x0c\x0a\x66"}, /* TOOLS_RUNTIME_CALLBACK_HOOKS */
	{"\x42\xd8\x5a\x81\x23\xf6\xcb\x47\x82\x98\xf6\xe7\x8a\x3a\xec\xdc"}, /* TOOLS_TLS */
	{"\xc6\x93\x33\x6e\x11\x21\xdf\x11\xa8\xc3\x68\xf3\x55\xd8\x95\x93"}, /* CONTEXT_LOCAL_STORAGE */
	{"\x26\x3e\x88\x60\x7c\xd2\x61\x43\x92\xf6\xbb\xd5\x00\x6d\xfa\x7e"}, /* CONTEXT_CHECKS */
	{"\xd4\x08\x20\x55\xbd\xe6\x70\x4b\x8d\x34\xba\x12\x3c\x66\xe1\xf2"}, /* INTEGRITY_CHECK */
};

static void *answer(const char *base, int version, cuuint64_t flags)
{
	for (size_t i = 0; i < COUNT; i++) {
		if (strcmp(requests[i].base, base) == 0 && requests[i].version == version && requests[i].flags == flags)
			return answers[i];
	}
	printf("never asked for %s %d/%d\n", base, version, (int)flags);
	exit(98);
}

#define VIA(base, version, flags, params, args) TRY(((CUresult(*) params)answer(base, version, flags)) args)

static void ask(void *driver, bool owners)
{
	CUresult (*get)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *) =
		(CUresult(*)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *))dlsym(driver,
			"cuGetProcAddress_v2");

	if (!get) {
		printf("no cuGetProcAddress_v2: %s\n", dlerror());
		exit(3);
	}
	for (size_t i = 0; i < COUNT; i++) {
		const struct request *r = &requests[i];
		CUdriverProcAddressQueryResult status = (CUdriverProcAddressQueryResult)77;
		CUresult result = get(r->base, &answers[i], r->version, r->flags, &status);
		Dl_info info = {0};
		bool known;

		/* the runtime goes on with the pointer it was given for the newer form */
		if (i == 2 && result == CUDA_SUCCESS)
			get = (__typeof__(get))answers[i];
		known = answers[i] && dladdr(answers[i], &info);
		if (!owners)
			printf("%s %d/%d -> %d, status %d, %s\n", r->base, r->version, (int)r->flags, (int)result, (int)status,
				answers[i] ? "something" : "nothing");
		else if (answers[i])
			printf("%s %d %d %s %s\n", r->base, r->version, (int)r->flags,
				known ? strrchr(info.dli_fname, '/') + 1 : "nowhere",
				info.dli_saddr == answers[i] ? "export" : "inside");
	}
}

static void use(void)
{
	CUdeviceptr large = 0, small = 0, pool = 0, base = 0;
	unsigned char last = 0;
	CUcontext context = NULL;
	CUdevice device = -1;
	size_t size = 0;
	int version = 0;

	VIA("cuInit", 2000, 0, (unsigned), (0));
	VIA("cuDriverGetVersion", 2020, 0, (int *), (&version));
	VIA("cuDeviceGet", 2000, 0, (CUdevice *, int), (&device, 0));
	VIA("cuDevicePrimaryCtxRetain", 7000, 0, (CUcontext *, CUdevice), (&context, device));
	VIA("cuCtxSetCurrent", 4000, 0, (CUcontext), (context));
	for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
		const void *table = (const void *)1;
		CUresult result = ((CUresult(*)(const void **, const CUuuid *))answer("cuGetExportTable", 3000, 0))(&table, &tables[i]);

		printf("table %zu -> %d, %s\n", i, (int)result,
			table == (const void *)1 ? "untouched" : table ? "something" : "nothing");
	}
	VIA("cuMemAlloc", 3020, 0, (CUdeviceptr *, size_t), (&large, 6 * MIB));
	VIA("cuMemAlloc", 3020, 0, (CUdeviceptr *, size_t), (&small, 1000));
	VIA("cuMemAllocAsync", 11020, 2, (CUdeviceptr *, size_t, CUstream), (&pool, 2 * MIB, NULL));
	VIA("cuMemsetD8Async", 7000, 2, (CUdeviceptr, unsigned char, size_t, CUstream), (large, 0x21, 6 * MIB, NULL));
	VIA("cuStreamSynchronize", 7000, 2, (CUstream), (NULL));
	VIA("cuMemcpyDtoHAsync", 3020, 0, (void *, CUdeviceptr, size_t, CUstream), (&last, large + 6 * MIB - 1, 1, NULL));
	VIA("cuStreamSynchronize", 2000, 0, (CUstream), (NULL));
	printf("last byte %x\n", last);
	VIA("cuMemGetAddressRange", 3020, 0, (CUdeviceptr *, size_t *, CUdeviceptr), (&base, &size, large + 5));
	printf("base %s, size %zu, version %d\n", base == large ? "right" : "wrong", size, version);
	VIA("cuMemFreeAsync", 11020, 2, (CUdeviceptr, CUstream), (pool, NULL));
	VIA("cuMemFree", 3020, 0, (CUdeviceptr), (large));
	VIA("cuMemFree", 3020, 0, (CUdeviceptr), (large));
	VIA("cuMemFree", 3020, 0, (CUdeviceptr), (small));
	VIA("cuDevicePrimaryCtxRelease", 7000, 0, (CUdevice), (device));
}

int main(int argc, char **argv)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);

	program_begin();
	if (!driver) {
		printf("no driver: %s\n", dlerror());
		return 1;
	}
	ask(driver, argc > 1);
	if (argc == 1)
		use();
	return 0;
}
