/* tests/sim/nvtx/tool.c
 * A tool as a profiler is one: NVTX loads it by NVTX_INJECTION64_PATH, or Sublet does behind itself. It counts what it is called for;
 * tool_report prints that. By its variable TOOL it may be a bad one:
 *   refuse     takes all the functions and then says that it has failed
 *   other      gives each copy of NVTX other functions, as far as it has them
 *   few        takes push alone */
#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtPayload.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get);
EXPORT int InitializeInjectionNvtxExtension(nvtxExtModuleInfo_t *module);
EXPORT void tool_report(void);

struct domain {
	char name[32];
};

static int copies, extensions, marks, pushes, pops, starts, ends, strings, other[2], depth; /* atomic */
static struct domain domains[4];
static int domain_count;

#define COUNT(what) __atomic_add_fetch(&(what), 1, __ATOMIC_RELAXED)

static void mark_a(const char *message)
{
	COUNT(marks);
}

static int push_a(const char *message)
{
	COUNT(pushes);
	return COUNT(depth) - 1;
}

static int push_w(const wchar_t *message)
{
	COUNT(pushes);
	return COUNT(depth) - 1;
}

static int push_ex(const nvtxEventAttributes_t *attributes)
{
	COUNT(pushes);
	return COUNT(depth) - 1;
}

static int push_other_0(const char *message)
{
	COUNT(other[0]);
	return 100;
}

static int push_other_1(const char *message)
{
	COUNT(other[1]);
	return 101;
}

static int pop(void)
{
	COUNT(pops);
	return __atomic_sub_fetch(&depth, 1, __ATOMIC_RELAXED);
}

static nvtxRangeId_t start_a(const char *message)
{
	return 4000 + (nvtxRangeId_t)COUNT(starts);
}

static nvtxRangeId_t start_w(const wchar_t *message)
{
	return 4000 + (nvtxRangeId_t)COUNT(starts);
}

static nvtxRangeId_t start_ex(const nvtxEventAttributes_t *attributes)
{
	return 4000 + (nvtxRangeId_t)COUNT(starts);
}

static void end(nvtxRangeId_t id)
{
	if (id > 4000)
		COUNT(ends);
}

static nvtxDomainHandle_t create_a(const char *name)
{
	struct domain *domain = &domains[domain_count++];

	snprintf(domain->name, sizeof(domain->name), "%s", name);
	return (nvtxDomainHandle_t)(void *)domain;
}

static int is_mine(nvtxDomainHandle_t domain)
{
	return (struct domain *)(void *)domain >= domains && (struct domain *)(void *)domain < domains + 4;
}

static int domain_push_ex(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *attributes)
{
	COUNT(pushes);
	return is_mine(domain) ? 7 : -7;
}

static int domain_pop(nvtxDomainHandle_t domain)
{
	COUNT(pops);
	return is_mine(domain) ? 7 : -7;
}

static nvtxRangeId_t domain_start_ex(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *attributes)
{
	return is_mine(domain) ? 4000 + (nvtxRangeId_t)COUNT(starts) : 0;
}

static void domain_end(nvtxDomainHandle_t domain, nvtxRangeId_t id)
{
	if (is_mine(domain) && id > 4000)
		COUNT(ends);
}

/* A handle of the tool's own kind: no pointer to the text. */
static nvtxStringHandle_t register_a(nvtxDomainHandle_t domain, const char *string)
{
	return (nvtxStringHandle_t)(size_t)(0x10 + COUNT(strings));
}

static nvtxStringHandle_t register_w(nvtxDomainHandle_t domain, const wchar_t *string)
{
	return (nvtxStringHandle_t)(size_t)(0x10 + COUNT(strings));
}

/* Is this the way the tool is to be? */
static int is(const char *how)
{
	return getenv("TOOL") && strcmp(getenv("TOOL"), how) == 0;
}

static void set(NvtxFunctionTable table, int id, void *function)
{
	*table[id] = (NvtxFunctionPointer)function;
}

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get)
{
	const NvtxExportTableCallbacks *callbacks = get(NVTX_ETID_CALLBACKS);
	NvtxFunctionTable core, core2;
	unsigned size;
	int copy = COUNT(copies);

	if (!callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &core, &size) ||
		!callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &core2, &size))
		return 0;
	set(core, NVTX_CBID_CORE_RangePushA, !is("other") || copy == 1 ? push_a : copy == 2 ? push_other_0 : push_other_1);
	if (is("few"))
		return 1;
	set(core, NVTX_CBID_CORE_MarkA, mark_a);
	set(core, NVTX_CBID_CORE_RangePushW, push_w);
	set(core, NVTX_CBID_CORE_RangePushEx, push_ex);
	set(core, NVTX_CBID_CORE_RangePop, pop);
	set(core, NVTX_CBID_CORE_RangeStartA, start_a);
	set(core, NVTX_CBID_CORE_RangeStartW, start_w);
	set(core, NVTX_CBID_CORE_RangeStartEx, start_ex);
	set(core, NVTX_CBID_CORE_RangeEnd, end);
	set(core2, NVTX_CBID_CORE2_DomainCreateA, create_a);
	set(core2, NVTX_CBID_CORE2_DomainRangePushEx, domain_push_ex);
	set(core2, NVTX_CBID_CORE2_DomainRangePop, domain_pop);
	set(core2, NVTX_CBID_CORE2_DomainRangeStartEx, domain_start_ex);
	set(core2, NVTX_CBID_CORE2_DomainRangeEnd, domain_end);
	set(core2, NVTX_CBID_CORE2_DomainRegisterStringA, register_a);
	set(core2, NVTX_CBID_CORE2_DomainRegisterStringW, register_w);
	return !is("refuse");
}

static uint64_t register_schema(nvtxDomainHandle_t domain, const nvtxPayloadSchemaAttr_t *schema)
{
	return 55;
}

static uint8_t is_enabled(nvtxDomainHandle_t domain)
{
	return 33;
}

int InitializeInjectionNvtxExtension(nvtxExtModuleInfo_t *module)
{
	COUNT(extensions);
	module->segments->functionSlots[NVTX3EXT_CBID_nvtxPayloadSchemaRegister] = (intptr_t)register_schema;
	module->segments->functionSlots[NVTX3EXT_CBID_nvtxDomainIsEnabled] = (intptr_t)is_enabled;
	return !is("refuse");
}

void tool_report(void)
{
	printf("tool: copies %d extensions %d marks %d pushes %d pops %d starts %d ends %d strings %d others %d %d\n", copies,
		extensions, marks, pushes, pops, starts, ends, strings, other[0], other[1]);
}
