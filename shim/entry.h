/* shim/entry.h
 * The rows of entries.def as a table: one id per exported symbol of the driver. */
#ifndef SUBLET_SHIM_ENTRY_H
#define SUBLET_SHIM_ENTRY_H

#include <stdbool.h>
#include <stddef.h>

#include "shim/cuda_abi.h"

/* The newest CUDA the list was read off: names and ABIs up to this version are complete. */
#define ENTRIES_CUDA_VERSION 13000

enum entry_id {
#define WRAP(symbol, base, since, stream, need, group, params, args) ENTRY_##symbol,
#define PASS(symbol, base, since, stream, need, reason, params, args) ENTRY_##symbol,
#include "shim/entries.def"
	ENTRY_COUNT
};

struct entry {
	const char *symbol;
	const char *base;
	int since;
	bool per_thread; /* _ptsz or _ptds twin */
	bool required;
	void *wrapper; /* what programs get instead; NULL: the driver's own */
};

extern const struct entry entries[ENTRY_COUNT];

/* The row of an exported symbol, -1 when it is none. No allocation, usable before anything has started. */
int entry_by_symbol(const char *symbol);

/* The row cuGetProcAddress means: base name, greatest `since` not above @version, the per-thread twin for
 * CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM where there is one. -1 when there is none. */
int entry_by_request(const char *base, int version, cuuint64_t flags);

#endif
