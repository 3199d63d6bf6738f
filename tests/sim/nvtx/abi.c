/* tests/sim/nvtx/abi.c
 * shim/nvtx_abi.h against the headers of NVTX, at compile time; and which functions a copy of NVTX has. */
#include <nvtx3/nvToolsExt.h>
#if __has_include(<nvtx3/nvToolsExtPayload.h>)
#include <nvtx3/nvToolsExtPayload.h>
#define HAS_EXTENSIONS
#endif
#include <stdio.h>

#include "shim/nvtx_abi.h"

#define SAME(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #ours)
#define SAME_FIELD(field, their_field)                                                                                 \
	SAME(offsetof(struct nvtx_attributes, field), offsetof(nvtxEventAttributes_t, their_field));                   \
	SAME(sizeof(((struct nvtx_attributes *)0)->field), sizeof(((nvtxEventAttributes_t *)0)->their_field))

SAME(sizeof(struct nvtx_attributes), sizeof(nvtxEventAttributes_t));
SAME_FIELD(version, version);
SAME_FIELD(size, size);
SAME_FIELD(payload, payload);
SAME_FIELD(message_type, messageType);
SAME_FIELD(message, message);
SAME(NVTX_NEWEST, NVTX_VERSION);
SAME(NVTX_NO_TRACKING, NVTX_NO_PUSH_POP_TRACKING);
SAME(NVTX_MESSAGE_ASCII, NVTX_MESSAGE_TYPE_ASCII);
SAME(NVTX_MESSAGE_UNICODE, NVTX_MESSAGE_TYPE_UNICODE);
SAME(NVTX_MESSAGE_REGISTERED, NVTX_MESSAGE_TYPE_REGISTERED);
SAME(NVTX_TABLE_CALLBACKS, NVTX_ETID_CALLBACKS);
SAME(NVTX_TABLE_VERSION, NVTX_ETID_VERSIONINFO);
SAME(NVTX_MODULE_CORE, NVTX_CB_MODULE_CORE);
SAME(NVTX_MODULE_CORE2, NVTX_CB_MODULE_CORE2);
SAME(sizeof(struct nvtx_callbacks), sizeof(NvtxExportTableCallbacks));
SAME(offsetof(struct nvtx_callbacks, get_module_table), offsetof(NvtxExportTableCallbacks, GetModuleFunctionTable));
SAME(sizeof(struct nvtx_version), sizeof(NvtxExportTableVersionInfo));
SAME(offsetof(struct nvtx_version, set_version_of_tool), offsetof(NvtxExportTableVersionInfo, SetInjectionNvtxVersion));
SAME(sizeof(uint64_t), sizeof(nvtxRangeId_t));
#ifdef HAS_EXTENSIONS
SAME(offsetof(struct nvtx_extension, struct_size), offsetof(nvtxExtModuleInfo_t, structSize));
SAME(offsetof(struct nvtx_extension, segments_count), offsetof(nvtxExtModuleInfo_t, segmentsCount));
SAME(offsetof(struct nvtx_extension, segments), offsetof(nvtxExtModuleInfo_t, segments));
SAME(sizeof(struct nvtx_segment), sizeof(nvtxExtModuleSegment_t));
SAME(offsetof(struct nvtx_segment, count), offsetof(nvtxExtModuleSegment_t, slotCount));
SAME(offsetof(struct nvtx_segment, slots), offsetof(nvtxExtModuleSegment_t, functionSlots));
SAME(NVTX_EXTENSION_FRESH, 0);
#endif
_Static_assert(NVTX_MODULES >= NVTX_CB_MODULE_SIZE - 1, "a module that a refusing tool may leave functions in");

#define FUNCTION(name, module, number, returns, params) SAME(number, NVTX_CBID_##module##_##name);
NVTX_FUNCTIONS(FUNCTION)
#undef FUNCTION

int main(void)
{
	int functions = 0;

#define FUNCTION(name, module, number, returns, params) functions += nvtxGlobals_v3.nvtx##name##_impl_fnptr != NULL;
	NVTX_FUNCTIONS(FUNCTION)
#undef FUNCTION
	printf("%d functions\n", functions);
	return functions != 16;
}
