/* tools/sim/sim_resolve.c
 * cuGetProcAddress in both ABIs over the list of entry points, and the tables behind cuGetExportTable. */
#include "tools/sim/sim_priv.h"

#include <string.h>

/* SUBLET_SIM_INTERNAL_POINTERS: addresses that no export has, one per row, as some drivers answer. */
#define WRAP(symbol, base, since, stream, need, group, params, args)                                                   \
	static CUresult CUDAAPI inner_##symbol params                                                                  \
	{                                                                                                              \
		return symbol args;                                                                                    \
	}
#define PASS(symbol, base, since, stream, need, reason, params, args)                                                  \
	WRAP(symbol, base, since, stream, need, reason, params, args)
#include "shim/entries.def"

#define LEGACY false
#define PER_THREAD true
static const struct {
	const char *base;
	int since;
	bool twin;
	void *address, *inner;
} rows[] = {
#define WRAP(symbol, base, since, stream, need, group, params, args)                                                   \
	{base, since, stream, (void *)symbol, (void *)inner_##symbol},
#define PASS(symbol, base, since, stream, need, reason, params, args)                                                  \
	WRAP(symbol, base, since, stream, need, reason, params, args)
#include "shim/entries.def"
};

static CUresult resolve(const char *name, void **pfn, int version, cuuint64_t flags, CUdriverProcAddressQueryResult *ret_status)
{
	bool want_twin = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, known = false;
	size_t count = sizeof(rows) / sizeof(rows[0]), best[2] = {count, count}, chosen;

	/* As on hardware, a version that this driver is too old for is refused before the name is looked at. */
	if (!name || !pfn || version > sim_config.driver_version ||
		(flags & ~(cuuint64_t)(CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)))
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count; i++) {
		size_t *slot = &best[rows[i].twin];

		if (strcmp(rows[i].base, name) != 0 || rows[i].since > sim_config.driver_version)
			continue;
		if (sim_config.without_record && (i == SIM_cuCtxRecordEvent || i == SIM_cuCtxWaitEvent))
			continue;
		known = true;
		if (rows[i].since <= version && (*slot == count || rows[i].since > rows[*slot].since))
			*slot = i;
	}
	chosen = want_twin && best[1] < count ? best[1] : best[0];
	*pfn = chosen == count ? NULL : sim_config.internal_pointers ? rows[chosen].inner : rows[chosen].address;
	*ret_status = chosen < count ? CU_GET_PROC_ADDRESS_SUCCESS
		      : known	     ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
				     : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	return CUDA_SUCCESS;
}

/* The two ABIs say "not there" in different ways, seen on driver 580: the first as an error, the second only as a status. */
CUresult CUDAAPI cuGetProcAddress(const char *name, void **pfn, int version, cuuint64_t flags)
{
	CUdriverProcAddressQueryResult status;
	CUresult result = sim_enter(SIM_cuGetProcAddress, true);

	if (result == CUDA_SUCCESS)
		result = resolve(name, pfn, version, flags, &status);
	if (result == CUDA_SUCCESS && status != CU_GET_PROC_ADDRESS_SUCCESS)
		result = CUDA_ERROR_NOT_FOUND;
	return result;
}

CUresult CUDAAPI cuGetProcAddress_v2(const char *name, void **pfn, int version, cuuint64_t flags,
	CUdriverProcAddressQueryResult *ret_status)
{
	CUdriverProcAddressQueryResult status;
	CUresult result = sim_enter(SIM_cuGetProcAddress_v2, true);

	if (result == CUDA_SUCCESS)
		result = resolve(name, pfn, version, flags, &status);
	if (result == CUDA_SUCCESS && ret_status)
		*ret_status = status;
	return result;
}

/* The seven tables that the runtime of CUDA 13 asks for, in its order. They are the driver's own business and not documented,
 * so every function refuses: the runtime then says cudaErrorInitializationError, where an empty place is a jump to nothing. */
static const unsigned char tables[][16] = {
	{0xf8, 0xcf, 0xf9, 0x51, 0x21, 0x46, 0x8b, 0x4e, 0xb9, 0xe2, 0xfb, 0x46, 0x9e, 0x7c, 0x0d, 0xd9},
	{0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a, 0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9},
	{0xa0, 0x94, 0x79, 0x8c, 0x2e, 0x74, 0x2e, 0x74, 0x93, 0xf2, 0x08, 0x00, 0x20, 0x0c, 0x0a, 0x66},
	{0x42, 0xd8, 0x5a, 0x81, 0x23, 0xf6, 0xcb, 0x47, 0x82, 0x98, 0xf6, 0xe7, 0x8a, 0x3a, 0xec, 0xdc},
	{0xc6, 0x93, 0x33, 0x6e, 0x11, 0x21, 0xdf, 0x11, 0xa8, 0xc3, 0x68, 0xf3, 0x55, 0xd8, 0x95, 0x93},
	{0x26, 0x3e, 0x88, 0x60, 0x7c, 0xd2, 0x61, 0x43, 0x92, 0xf6, 0xbb, 0xd5, 0x00, 0x6d, 0xfa, 0x7e},
	{0xd4, 0x08, 0x20, 0x55, 0xbd, 0xe6, 0x70, 0x4b, 0x8d, 0x34, 0xba, 0x12, 0x3c, 0x66, 0xe1, 0xf2},
};

#define PLACES 32 /* more than any of them has; the first is the size in bytes */

static CUresult refuse(void)
{
	return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult CUDAAPI cuGetExportTable(const void **table, const CUuuid *id)
{
	static const void *content[sizeof(tables) / sizeof(tables[0])][PLACES];
	CUresult result = sim_enter(SIM_cuGetExportTable, true);

	if (result != CUDA_SUCCESS)
		return result;
	if (!table || !id)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
		if (memcmp(tables[i], id->bytes, sizeof(tables[i])) == 0) {
			pthread_mutex_lock(&sim_lock);
			for (int place = 1; place < PLACES; place++)
				content[i][place] = (void *)refuse;
			content[i][0] = (void *)sizeof(content[i]);
			pthread_mutex_unlock(&sim_lock);
			*table = content[i];
			return CUDA_SUCCESS;
		}
	}
	return CUDA_ERROR_INVALID_VALUE;
}
