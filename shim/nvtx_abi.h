/* shim/nvtx_abi.h
 * What NVTX (versions 1 to 3) and a library that it is told to load agree on: nvToolsExt.h, nvtxDetail/nvtxTypes.h and
 * nvtxDetail/nvtxInit.h of NVTX 3, written down here so that the build needs no NVTX. tests/sim/nvtx/abi.c holds it to those.
 *
 * Each copy of NVTX in a process, usually one per shared object, calls InitializeInjectionNvtx2 of the library that
 * NVTX_INJECTION64_PATH names, at its first range, and hands over its own table of functions. */
#ifndef SUBLET_SHIM_NVTX_ABI_H
#define SUBLET_SHIM_NVTX_ABI_H

#include <stddef.h>
#include <stdint.h>
#include <wchar.h>

#define NVTX_PATH_VARIABLE "NVTX_INJECTION64_PATH"

enum {
	NVTX_NEWEST = 3,	/* version of the attributes and of the tables, as read here */
	NVTX_NO_TRACKING = -2,	/* what push and pop return where nobody looks */
	NVTX_TABLE_CALLBACKS = 1,
	NVTX_TABLE_VERSION = 3,
	NVTX_MODULE_CORE = 1,
	NVTX_MODULE_CORE2 = 5,
	NVTX_MODULES = 6, /* numbered from one */
	NVTX_MESSAGE_ASCII = 1,
	NVTX_MESSAGE_UNICODE = 2,
	NVTX_MESSAGE_REGISTERED = 3, /* from version 2 on */
};

typedef void nvtx_function(void);
/* By number of function, where its pointer is kept; NULL at 0. */
typedef nvtx_function ***nvtx_table;

struct nvtx_callbacks {
	size_t struct_size;
	int (*get_module_table)(int module, nvtx_table *ret_table, unsigned *ret_count);
};

struct nvtx_version {
	size_t struct_size;
	uint32_t version, reserved;
	void (*set_version_of_tool)(uint32_t version);
};

typedef const void *nvtx_get_table(uint32_t id);
typedef int nvtx_initialize(nvtx_get_table *get);

/* Of an extension (payloads, counters, ...), which a program includes beside the rest; initialised by itself. */
struct nvtx_segment {
	size_t id, count;
	intptr_t *slots; /* functions, 0: none */
};

struct nvtx_extension {
	uint16_t version, struct_size, id, compatible_id;
	size_t segments_count;
	struct nvtx_segment *segments;
	/* more follows */
};

typedef int nvtx_initialize_extension(struct nvtx_extension *extension);

/* The same in all versions so far, but for the kinds of message. */
struct nvtx_attributes {
	uint16_t version, size;
	uint32_t category;
	int32_t color_type;
	uint32_t color;
	int32_t payload_type, reserved;
	uint64_t payload;
	int32_t message_type;
	union {
		const char *ascii;
		const wchar_t *unicode;
		const void *registered;
	} message;
};

/* FUNCTION(name, module, number, returns, params): those of interest here. */
#define NVTX_FUNCTIONS(FUNCTION)                                                                                       \
	FUNCTION(RangeStartEx, CORE, 4, uint64_t, (const struct nvtx_attributes *))                                    \
	FUNCTION(RangeStartA, CORE, 5, uint64_t, (const char *))                                                       \
	FUNCTION(RangeStartW, CORE, 6, uint64_t, (const wchar_t *))                                                    \
	FUNCTION(RangeEnd, CORE, 7, void, (uint64_t))                                                                  \
	FUNCTION(RangePushEx, CORE, 8, int, (const struct nvtx_attributes *))                                          \
	FUNCTION(RangePushA, CORE, 9, int, (const char *))                                                             \
	FUNCTION(RangePushW, CORE, 10, int, (const wchar_t *))                                                         \
	FUNCTION(RangePop, CORE, 11, int, (void))                                                                      \
	FUNCTION(DomainRangeStartEx, CORE2, 2, uint64_t, (const void *, const struct nvtx_attributes *))               \
	FUNCTION(DomainRangeEnd, CORE2, 3, void, (const void *, uint64_t))                                             \
	FUNCTION(DomainRangePushEx, CORE2, 4, int, (const void *, const struct nvtx_attributes *))                     \
	FUNCTION(DomainRangePop, CORE2, 5, int, (const void *))                                                        \
	FUNCTION(DomainRegisterStringA, CORE2, 10, const void *, (const void *, const char *))                         \
	FUNCTION(DomainRegisterStringW, CORE2, 11, const void *, (const void *, const wchar_t *))                      \
	FUNCTION(DomainCreateA, CORE2, 12, const void *, (const char *))                                               \
	FUNCTION(DomainCreateW, CORE2, 13, const void *, (const wchar_t *))

#endif
