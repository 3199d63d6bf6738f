/* shim/nvtx_ranges.c
 * Each function asks first whether a range matters, which is one load, and calls what is behind Sublet, whose answer the program
 * gets. Never waits, keeps errno. Inside Sublet's own work ranges are not looked at: they are none of the program's. */
#include "shim/nvtx_ranges.h"

#include <errno.h>
#include <string.h>

#include "base/attributes.h"
#include "shim/nvtx_names.h"
#include "shim/shim.h"

#define INLINE static inline __attribute__((always_inline))

enum { TOOLS_MAX = 3 }; /* sets of functions behind Sublet; one tool has one */

enum tool_state { TOOL_NONE, TOOL_COMES, TOOL_KNOWN };

struct tool {
	int state; /* enum tool_state, atomic */
	struct nvtx_next next; /* written before it is known */
};

struct triggers shim_triggers;

static struct tool tools[TOOLS_MAX];
static const struct nvtx_next nobody;

/* ---- what matters ---- */

/* A process that opens a range has perhaps no GPU, and the policy to ask is the session's. */
static void at_first(void)
{
	if (SUBLET_UNLIKELY(__atomic_load_n(&shim_hot.state, __ATOMIC_RELAXED) == SHIM_NEW))
		shim_controller();
}

static void opened(const void *domain, const char *name)
{
	const int error_before = errno;

	at_first();
	if (shim_depth == 0)
		SHIM_OWN(triggers_nvtx_push(&shim_triggers, domain, name));
	errno = error_before;
}

static void opened_ex(const void *domain, const struct nvtx_attributes *attributes)
{
	char buffer[NVTX_WIDE_BYTES];

	opened(domain, nvtx_name_of(attributes, buffer));
}

static void opened_w(const wchar_t *message)
{
	char buffer[NVTX_WIDE_BYTES];

	opened(NULL, nvtx_narrow(message, buffer));
}

static void closed(const void *domain)
{
	const int error_before = errno;

	if (shim_depth == 0)
		SHIM_OWN(triggers_nvtx_pop(&shim_triggers, domain));
	errno = error_before;
}

/* @from_tool: a tool has started it too, and the program gets the number it has given, be that 0. */
static uint64_t started(bool from_tool, uint64_t number, const char *name)
{
	const int error_before = errno;
	uint64_t ours = from_tool && !number ? UINT64_MAX : number;

	at_first();
	if (shim_depth == 0)
		SHIM_OWN(ours = triggers_range_start(&shim_triggers, ours, name));
	errno = error_before;
	return from_tool ? number : ours;
}

static uint64_t started_ex(bool from_tool, uint64_t number, const struct nvtx_attributes *attributes)
{
	char buffer[NVTX_WIDE_BYTES];

	return started(from_tool, number, nvtx_name_of(attributes, buffer));
}

static uint64_t started_w(bool from_tool, uint64_t number, const wchar_t *message)
{
	char buffer[NVTX_WIDE_BYTES];

	return started(from_tool, number, nvtx_narrow(message, buffer));
}

static void ended(uint64_t number)
{
	const int error_before = errno;

	if (shim_depth == 0)
		SHIM_OWN(triggers_range_end(&shim_triggers, number));
	errno = error_before;
}

static const void *registered(const struct nvtx_next *next, enum nvtx_number function, const void *handle, const char *name)
{
	if (!next->functions[function])
		return nvtx_handle(name);
	nvtx_note_handle(handle, name);
	return handle;
}

/* ---- the functions, for what is behind them ---- */

#define FUNCTION(name, module, number, returns, params) typedef returns name##_function params;
NVTX_FUNCTIONS(FUNCTION)
#undef FUNCTION

#define HAS(name) (next->functions[NVTX_##name] != NULL)
#define PASS_ON(name, otherwise, ...) (HAS(name) ? ((name##_function *)next->functions[NVTX_##name])(__VA_ARGS__) : (otherwise))
#define MATTERS SUBLET_UNLIKELY(triggers_ask(&shim_triggers))

INLINE uint64_t start_ex(const struct nvtx_next *next, const struct nvtx_attributes *attributes)
{
	const uint64_t number = PASS_ON(RangeStartEx, 0, attributes);

	return MATTERS ? started_ex(HAS(RangeStartEx), number, attributes) : number;
}

INLINE uint64_t start_a(const struct nvtx_next *next, const char *message)
{
	const uint64_t number = PASS_ON(RangeStartA, 0, message);

	return MATTERS ? started(HAS(RangeStartA), number, message) : number;
}

INLINE uint64_t start_w(const struct nvtx_next *next, const wchar_t *message)
{
	const uint64_t number = PASS_ON(RangeStartW, 0, message);

	return MATTERS ? started_w(HAS(RangeStartW), number, message) : number;
}

INLINE void end(const struct nvtx_next *next, uint64_t number)
{
	if (MATTERS)
		ended(number);
	PASS_ON(RangeEnd, (void)0, number);
}

INLINE int push_ex(const struct nvtx_next *next, const struct nvtx_attributes *attributes)
{
	if (MATTERS)
		opened_ex(NULL, attributes);
	return PASS_ON(RangePushEx, NVTX_NO_TRACKING, attributes);
}

INLINE int push_a(const struct nvtx_next *next, const char *message)
{
	if (MATTERS)
		opened(NULL, message);
	return PASS_ON(RangePushA, NVTX_NO_TRACKING, message);
}

INLINE int push_w(const struct nvtx_next *next, const wchar_t *message)
{
	if (MATTERS)
		opened_w(message);
	return PASS_ON(RangePushW, NVTX_NO_TRACKING, message);
}

INLINE int pop(const struct nvtx_next *next)
{
	if (MATTERS)
		closed(NULL);
	return PASS_ON(RangePop, NVTX_NO_TRACKING);
}

INLINE uint64_t domain_start_ex(const struct nvtx_next *next, const void *domain, const struct nvtx_attributes *attributes)
{
	const uint64_t number = PASS_ON(DomainRangeStartEx, 0, domain, attributes);

	return MATTERS ? started_ex(HAS(DomainRangeStartEx), number, attributes) : number;
}

INLINE void domain_end(const struct nvtx_next *next, const void *domain, uint64_t number)
{
	if (MATTERS)
		ended(number);
	PASS_ON(DomainRangeEnd, (void)0, domain, number);
}

INLINE int domain_push_ex(const struct nvtx_next *next, const void *domain, const struct nvtx_attributes *attributes)
{
	if (MATTERS)
		opened_ex(domain, attributes);
	return PASS_ON(DomainRangePushEx, NVTX_NO_TRACKING, domain, attributes);
}

INLINE int domain_pop(const struct nvtx_next *next, const void *domain)
{
	if (MATTERS)
		closed(domain);
	return PASS_ON(DomainRangePop, NVTX_NO_TRACKING, domain);
}

INLINE const void *register_a(const struct nvtx_next *next, const void *domain, const char *string)
{
	return registered(next, NVTX_DomainRegisterStringA, PASS_ON(DomainRegisterStringA, NULL, domain, string), string);
}

INLINE const void *register_w(const struct nvtx_next *next, const void *domain, const wchar_t *string)
{
	char buffer[NVTX_WIDE_BYTES];

	return registered(next, NVTX_DomainRegisterStringW, PASS_ON(DomainRegisterStringW, NULL, domain, string),
		nvtx_narrow(string, buffer));
}

/* Domains nest apart from each other, so they must be told apart where no tool does. */
INLINE const void *create_a(const struct nvtx_next *next, const char *name)
{
	return PASS_ON(DomainCreateA, nvtx_handle(name), name);
}

INLINE const void *create_w(const struct nvtx_next *next, const wchar_t *name)
{
	char buffer[NVTX_WIDE_BYTES];

	return PASS_ON(DomainCreateW, nvtx_handle(nvtx_narrow(name, buffer)), name);
}

/* ---- the sets ---- */

#define SET 0
#define NEXT (&nobody)
#include "shim/nvtx_set.def"
#define SET 1
#define NEXT (&tools[0].next)
#include "shim/nvtx_set.def"
#define SET 2
#define NEXT (&tools[1].next)
#include "shim/nvtx_set.def"
#define SET 3
#define NEXT (&tools[2].next)
#include "shim/nvtx_set.def"

static nvtx_function *const *const sets[] = {functions_0, functions_1, functions_2, functions_3};
_Static_assert(sizeof(sets) / sizeof(sets[0]) == TOOLS_MAX + 1, "a set for nobody, and one for each tool");

static bool is_same(const struct nvtx_next *one, const struct nvtx_next *other)
{
	return memcmp(one, other, sizeof(*one)) == 0;
}

nvtx_function *const *nvtx_ranges_for(const struct nvtx_next *next)
{
	if (is_same(next, &nobody))
		return sets[0];
	for (int i = 0; i < TOOLS_MAX; i++)
		if (__atomic_load_n(&tools[i].state, __ATOMIC_ACQUIRE) == TOOL_KNOWN && is_same(next, &tools[i].next))
			return sets[i + 1];
	/* Without a lock, which a forked child might find taken for good. Two threads may give the same functions two sets. */
	for (int i = 0; i < TOOLS_MAX; i++) {
		int none = TOOL_NONE;

		if (__atomic_compare_exchange_n(&tools[i].state, &none, TOOL_COMES, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
			tools[i].next = *next;
			__atomic_store_n(&tools[i].state, TOOL_KNOWN, __ATOMIC_RELEASE);
			return sets[i + 1];
		}
	}
	return NULL;
}

bool nvtx_ranges_has(nvtx_function *function)
{
	for (int set = 0; function && set <= TOOLS_MAX; set++)
		for (int i = 0; i < NVTX_FUNCTION_COUNT; i++)
			if (sets[set][i] == function)
				return true;
	return false;
}
