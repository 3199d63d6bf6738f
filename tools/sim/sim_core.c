/* tools/sim/sim_core.c
 * What every entry point passes through: is the driver initialised, is this the process that did it, is this call to fail.
 * Also cuInit, versions, devices, errors, and the control interface for tests. */
#include "tools/sim/sim_priv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/size.h"

pthread_mutex_t sim_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t sim_moved = PTHREAD_COND_INITIALIZER;
struct sim_config sim_config = {.capacity = 80ull << 30, .host_capacity = 1ull << 40, .devices = 1, .driver_version = 13000};

static const char *const names[SIM_CALL_COUNT] = {
#define WRAP(symbol, base, since, stream, need, group, params, args) #symbol,
#define PASS(symbol, base, since, stream, need, reason, params, args) #symbol,
#include "shim/entries.def"
};

static int initialised_by; /* pid, 0: not yet */
static uint64_t calls[SIM_CALL_COUNT], all_calls;
static void (*on_call)(const char *);

#define RULES_MAX 16
struct rule {
	int call; /* -1: any */
	unsigned nth;
	bool for_good;
	int code;
	unsigned seen;
};
static struct rule rules[RULES_MAX];
static unsigned rule_count;
static bool fired;

static int call_by_name(const char *name, size_t length)
{
	for (int i = 0; i < SIM_CALL_COUNT; i++) {
		if (strlen(names[i]) == length && memcmp(names[i], name, length) == 0)
			return i;
	}
	return -2;
}

/* What hardware would most likely answer. */
static int natural_code(enum sim_call call)
{
	const char *name = names[call];

	return strstr(name, "Alloc") || strstr(name, "Create") || strstr(name, "Reserve") ? CUDA_ERROR_OUT_OF_MEMORY
											  : CUDA_ERROR_UNKNOWN;
}

static CUresult injected(enum sim_call call)
{
	CUresult result = CUDA_SUCCESS;

	if (!__atomic_load_n(&rule_count, __ATOMIC_ACQUIRE))
		return result;
	pthread_mutex_lock(&sim_lock);
	for (unsigned i = 0; i < rule_count; i++) {
		struct rule *rule = &rules[i];

		if (rule->call >= 0 && rule->call != (int)call)
			continue;
		rule->seen++;
		if (rule->seen == rule->nth || (rule->for_good && rule->seen > rule->nth)) {
			result = rule->code ? (CUresult)rule->code : (CUresult)natural_code(call);
			fired = true;
		}
	}
	pthread_mutex_unlock(&sim_lock);
	return result;
}

CUresult sim_enter(enum sim_call call, bool before_init)
{
	void (*hook)(const char *) = __atomic_load_n(&on_call, __ATOMIC_ACQUIRE);
	int pid = __atomic_load_n(&initialised_by, __ATOMIC_ACQUIRE);

	if (hook)
		hook(names[call]);
	__atomic_fetch_add(&calls[call], 1, __ATOMIC_RELAXED);
	__atomic_fetch_add(&all_calls, 1, __ATOMIC_RELAXED);
	/* CUDA does not survive a fork. */
	if (!before_init && pid != getpid())
		return CUDA_ERROR_NOT_INITIALIZED;
	return injected(call);
}

/* ---- start ---- */

static void read_size(const char *name, uint64_t *value)
{
	const char *text = getenv(name);

	if (text && *text && !size_parse(text, value))
		fprintf(stderr, "simulated driver: %s='%s' is not a size; write 80GiB or 512MiB\n", name, text);
}

static void read_rules(const char *text)
{
	while (text && *text && rule_count < RULES_MAX) {
		size_t length = strcspn(text, ",");
		const char *colon = memchr(text, ':', length);
		struct rule rule = {.call = -2};
		char *end = NULL;

		if (colon) {
			rule.call = colon - text == 1 && *text == '*' ? -1 : call_by_name(text, (size_t)(colon - text));
			rule.nth = (unsigned)strtoul(colon + 1, &end, 10);
			rule.for_good = *end == '+';
			end += rule.for_good;
			if (*end == '=')
				rule.code = (int)strtol(end + 1, &end, 10);
		}
		if (rule.call == -2 || !rule.nth || !end || (*end && *end != ','))
			fprintf(stderr, "simulated driver: SUBLET_SIM_FAIL: '%.*s' is not NAME:N[+][=CODE]\n", (int)length, text);
		else
			rules[rule_count++] = rule;
		text += length + (text[length] == ',');
	}
}

static void read_environment(void)
{
	const char *text = getenv("SUBLET_SIM_DEVICES");
	const char *without = getenv("SUBLET_SIM_WITHOUT");

	read_size("SUBLET_SIM_CAPACITY", &sim_config.capacity);
	read_size("SUBLET_SIM_HOST_CAPACITY", &sim_config.host_capacity);
	if (text && atoi(text) >= 0 && atoi(text) <= SIM_DEVICES_MAX)
		sim_config.devices = atoi(text);
	text = getenv("SUBLET_SIM_DRIVER_VERSION");
	if (text && atoi(text) > 0)
		sim_config.driver_version = atoi(text);
	sim_config.without_vmm = without && strstr(without, "vmm");
	sim_config.without_record = without && strstr(without, "ctx_record_event");
	sim_config.without_fd = without && strstr(without, "posix_fd");
	sim_config.without_host_numa = without && strstr(without, "host_numa");
	sim_config.internal_pointers = getenv("SUBLET_SIM_INTERNAL_POINTERS") != NULL;
	read_rules(getenv("SUBLET_SIM_FAIL"));
}

static void read_environment_once(void)
{
	static bool done;

	pthread_mutex_lock(&sim_lock);
	if (!done)
		read_environment();
	done = true;
	pthread_mutex_unlock(&sim_lock);
}

CUresult CUDAAPI cuInit(unsigned int flags)
{
	struct rlimit files;
	CUresult result;

	if (initialised_by && initialised_by != getpid())
		return CUDA_ERROR_NOT_INITIALIZED;
	read_environment_once();
	result = sim_enter(SIM_cuInit, true);
	if (result != CUDA_SUCCESS)
		return result;
	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (sim_config.devices == 0)
		return CUDA_ERROR_NO_DEVICE;
	/* Every extent is a descriptor here. */
	if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	pthread_mutex_lock(&sim_lock);
	if (!sim_machine_open())
		result = CUDA_ERROR_OPERATING_SYSTEM;
	else
		__atomic_store_n(&initialised_by, (int)getpid(), __ATOMIC_RELEASE);
	pthread_mutex_unlock(&sim_lock);
	return result;
}

CUresult CUDAAPI cuDriverGetVersion(int *version)
{
	CUresult result;

	/* programs ask before cuInit, too */
	read_environment_once();
	result = sim_enter(SIM_cuDriverGetVersion, true);

	if (result == CUDA_SUCCESS && !version)
		return CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		*version = sim_config.driver_version;
	return result;
}

CUresult CUDAAPI cuGetErrorName(CUresult error, const char **text)
{
	static const struct {
		CUresult code;
		const char *name;
	} table[] = {
#define NAME(code) {code, #code}
		NAME(CUDA_SUCCESS), NAME(CUDA_ERROR_INVALID_VALUE), NAME(CUDA_ERROR_OUT_OF_MEMORY),
		NAME(CUDA_ERROR_NOT_INITIALIZED), NAME(CUDA_ERROR_DEINITIALIZED), NAME(CUDA_ERROR_NO_DEVICE),
		NAME(CUDA_ERROR_INVALID_DEVICE), NAME(CUDA_ERROR_INVALID_CONTEXT), NAME(CUDA_ERROR_NOT_FOUND),
		NAME(CUDA_ERROR_NOT_READY), NAME(CUDA_ERROR_ILLEGAL_ADDRESS), NAME(CUDA_ERROR_NOT_SUPPORTED),
		NAME(CUDA_ERROR_NOT_PERMITTED), NAME(CUDA_ERROR_INVALID_HANDLE), NAME(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED),
		NAME(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED), NAME(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED),
		NAME(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED), NAME(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED), NAME(CUDA_ERROR_UNKNOWN),
#undef NAME
	};
	for (size_t i = 0; text && i < sizeof(table) / sizeof(table[0]); i++) {
		if (table[i].code == error) {
			*text = table[i].name;
			return CUDA_SUCCESS;
		}
	}
	if (text)
		*text = NULL;
	return CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuGetErrorString(CUresult error, const char **text)
{
	return cuGetErrorName(error, text);
}

/* ---- devices ---- */

static CUresult device_ok(CUdevice device)
{
	return device >= 0 && device < sim_config.devices ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult CUDAAPI cuDeviceGetCount(int *count)
{
	ENTER(cuDeviceGetCount);
	*count = sim_config.devices;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGet(CUdevice *device, int ordinal)
{
	ENTER(cuDeviceGet);
	*device = ordinal;
	return device_ok(ordinal);
}

CUresult CUDAAPI cuDeviceGetName(char *name, int length, CUdevice device)
{
	ENTER(cuDeviceGetName);
	if (length > 0)
		snprintf(name, (size_t)length, "Sublet simulated device");
	return device_ok(device);
}

CUresult CUDAAPI cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
	ENTER(cuDeviceGetUuid_v2);
	memset(uuid, 0, sizeof(*uuid));
	snprintf(uuid->bytes, sizeof(uuid->bytes), "sublet-sim-%d", device);
	return device_ok(device);
}

CUresult CUDAAPI cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
	ENTER(cuDeviceTotalMem_v2);
	*bytes = sim_config.capacity;
	return device_ok(device);
}

CUresult CUDAAPI cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
	ENTER(cuDeviceGetAttribute);
	if (!value)
		return CUDA_ERROR_INVALID_VALUE;
	if (device_ok(device) != CUDA_SUCCESS)
		return CUDA_ERROR_INVALID_DEVICE;
	switch ((int)attribute) {
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
		*value = 9;
		break;
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
	case CU_DEVICE_ATTRIBUTE_INTEGRATED:
	case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_WIN32_HANDLE_SUPPORTED:
		*value = 0;
		break;
	case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
		*value = 132;
		break;
	case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
		*value = 32;
		break;
	case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
		*value = 1024;
		break;
	case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED:
		*value = !sim_config.without_vmm;
		break;
	case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
		*value = !sim_config.without_vmm && !sim_config.without_fd;
		break;
	case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED: /* advertised and then refused, as without IMEX */
		*value = 1;
		break;
	case CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID:
		*value = 0;
		break;
	case CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
		*value = !sim_config.without_vmm && !sim_config.without_host_numa;
		break;
	case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
	case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
	case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
	case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
	case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
		*value = 1;
		break;
	default:
		if (attribute <= 0 || attribute >= CU_DEVICE_ATTRIBUTE_MAX)
			return CUDA_ERROR_INVALID_VALUE;
		*value = 0;
	}
	return CUDA_SUCCESS;
}

/* ---- control ---- */

SIM_EXPORT void sublet_sim_on_call(void (*hook)(const char *))
{
	__atomic_store_n(&on_call, hook, __ATOMIC_RELEASE);
}

SIM_EXPORT uint64_t sublet_sim_calls(const char *symbol)
{
	int call = call_by_name(symbol, strlen(symbol));

	return call < 0 ? 0 : __atomic_load_n(&calls[call], __ATOMIC_RELAXED);
}

SIM_EXPORT void sublet_sim_fail(const char *symbol, unsigned nth, bool for_good, int code)
{
	pthread_mutex_lock(&sim_lock);
	fired = false;
	__atomic_store_n(&rule_count, symbol ? 1 : 0, __ATOMIC_RELEASE);
	if (symbol)
		rules[0] = (struct rule){strcmp(symbol, "*") == 0 ? -1 : call_by_name(symbol, strlen(symbol)), nth, for_good, code, 0};
	pthread_mutex_unlock(&sim_lock);
}

SIM_EXPORT bool sublet_sim_fail_fired(void)
{
	bool result;

	pthread_mutex_lock(&sim_lock);
	result = fired;
	pthread_mutex_unlock(&sim_lock);
	return result;
}

SIM_EXPORT void sublet_sim_counts(struct sim_counts *counts)
{
	memset(counts, 0, sizeof(*counts));
	pthread_mutex_lock(&sim_lock);
	sim_vmm_counts(counts);
	counts->live_blocks = sim_live_blocks();
	counts->live_streams = sim_live_streams();
	counts->live_events = sim_live_events();
	for (struct sim_context *context = sim_contexts; context; context = context->next)
		counts->live_contexts += context->alive;
	for (int d = 0; initialised_by && d < sim_config.devices; d++)
		counts->device_bytes[d] = sim_machine_used(d);
	counts->calls = __atomic_load_n(&all_calls, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&sim_lock);
}

SIM_EXPORT void sublet_sim_reset(void)
{
	sublet_sim_fail(NULL, 0, false, 0);
	sublet_sim_on_call(NULL);
	sim_streams_drop_all();
	pthread_mutex_lock(&sim_lock);
	sim_memory_drop(NULL);
	sim_vmm_drop_all();
	sim_contexts_drop_all();
	sim_modules_drop_all();
	sim_machine_close();
	memset(calls, 0, sizeof(calls));
	initialised_by = 0;
	pthread_mutex_unlock(&sim_lock);
}
