/* tools/sim/sim_resolve.c
 * cuGetProcAddress in both ABIs over the list of entry points. */
#include "tools/sim/sim_priv.h"

#include <string.h>

#define LEGACY false
#define PER_THREAD true
static const struct {
	const char *base;
	int since;
	bool twin;
	void *address;
} rows[] = {
#define WRAP(symbol, base, since, stream, need, group, params, args) {base, since, stream, (void *)symbol},
#define PASS(symbol, base, since, stream, need, reason, params, args) {base, since, stream, (void *)symbol},
#include "shim/entries.def"
};

static CUresult resolve(const char *name, void **pfn, int version, cuuint64_t flags, CUdriverProcAddressQueryResult *status)
{
	bool want_twin = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, known = false;
	size_t count = sizeof(rows) / sizeof(rows[0]), best[2] = {count, count}, chosen;

	if (!name || !pfn)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count; i++) {
		size_t *slot = &best[rows[i].twin];

		if (strcmp(rows[i].base, name) != 0 || rows[i].since > sim_config.driver_version)
			continue;
		known = true;
		if (rows[i].since <= version && (*slot == count || rows[i].since > rows[*slot].since))
			*slot = i;
	}
	chosen = want_twin && best[1] < count ? best[1] : best[0];
	*pfn = chosen < count ? rows[chosen].address : NULL;
	if (status)
		*status = chosen < count ? CU_GET_PROC_ADDRESS_SUCCESS
			  : known	 ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
					 : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	return chosen < count ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult CUDAAPI cuGetProcAddress(const char *name, void **pfn, int version, cuuint64_t flags)
{
	return resolve(name, pfn, version, flags, NULL);
}

CUresult CUDAAPI cuGetProcAddress_v2(const char *name, void **pfn, int version, cuuint64_t flags,
	CUdriverProcAddressQueryResult *status)
{
	return resolve(name, pfn, version, flags, status);
}

CUresult CUDAAPI cuGetExportTable(const void **table, const CUuuid *id)
{
	static const void *const empty[8];

	if (!table || !id)
		return CUDA_ERROR_INVALID_VALUE;
	*table = empty;
	return CUDA_SUCCESS;
}
