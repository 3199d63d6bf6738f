/* tools/sim/sim_config.c
 * The environment of sim.h, read once, and what follows from it: which features this machine has. */
#include "tools/sim/sim_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/sim/sim.h"

static struct sim_config config;
static bool loaded;
static pthread_mutex_t load_lock = PTHREAD_MUTEX_INITIALIZER;

static const char *const feature_names[SIM_FEATURE_COUNT] = {
	[SIM_VMM] = "vmm",
	[SIM_POSIX_FD] = "posix_fd",
	[SIM_HOST_NUMA] = "host_numa",
	[SIM_HOST_VMM] = "host_vmm",
	[SIM_RDMA] = "rdma",
	[SIM_POOLS] = "pools",
	[SIM_MANAGED] = "managed",
	[SIM_CTX_RECORD_EVENT] = "ctx_record_event",
	[SIM_PARAM_INFO] = "param_info",
	[SIM_PEER] = "peer",
	[SIM_DMA_BUF] = "dma_buf",
	[SIM_IPC] = "ipc",
	[SIM_FABRIC] = "fabric",
};

bool sim_parse_size(const char *text, uint64_t *ret_bytes)
{
	static const struct {
		const char *suffix;
		int shift;
	} units[] = {{"", 0}, {"B", 0}, {"K", 10}, {"M", 20}, {"G", 30}, {"T", 40}, {"KiB", 10}, {"MiB", 20},
		{"GiB", 30}, {"TiB", 40}};
	char *end;
	unsigned long long value;

	errno = 0;
	value = strtoull(text, &end, 10);
	if (errno || end == text || *text == '-')
		return false;
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
		if (strcmp(end, units[i].suffix) == 0) {
			if (value > UINT64_MAX >> units[i].shift)
				return false;
			*ret_bytes = (uint64_t)value << units[i].shift;
			return true;
		}
	}
	return false;
}

static void complain(const char *name, const char *text)
{
	fprintf(stderr, "sublet-sim: %s: cannot read '%s', using the default\n", name, text);
}

static void load_size(const char *name, uint64_t *value)
{
	const char *text = getenv(name);

	if (text && !sim_parse_size(text, value))
		complain(name, text);
}

static void load_int(const char *name, int low, int high, int *value)
{
	const char *text = getenv(name);
	char *end;
	long number;

	if (!text)
		return;
	number = strtol(text, &end, 10);
	if (end == text || *end || number < low || number > high)
		complain(name, text);
	else
		*value = (int)number;
}

static void load_without(void)
{
	const char *text = getenv("SUBLET_SIM_WITHOUT");

	while (text && *text) {
		size_t length = strcspn(text, ",");
		int i;

		for (i = 0; i < SIM_FEATURE_COUNT; i++) {
			if (strlen(feature_names[i]) == length && strncmp(text, feature_names[i], length) == 0)
				break;
		}
		if (i < SIM_FEATURE_COUNT)
			config.without |= 1u << i;
		else if (length)
			fprintf(stderr, "sublet-sim: SUBLET_SIM_WITHOUT: unknown feature '%.*s'\n", (int)length, text);
		text += length;
		text += *text == ',';
	}
	/* The real machine refuses fabric handles (no IMEX daemon), so this one always does. */
	config.without |= 1u << SIM_FABRIC;
	if (config.without & (1u << SIM_VMM))
		config.without |= 1u << SIM_HOST_NUMA | 1u << SIM_HOST_VMM | 1u << SIM_POSIX_FD;
}

static void load(void)
{
	const char *text;

	config = (struct sim_config){
		.devices = 1,
		.capacity_bytes = (uint64_t)80 << 30,
		.host_capacity_bytes = UINT64_MAX,
		.driver_version = 13000,
	};
	load_int("SUBLET_SIM_DEVICES", 1, SUBLET_SIM_MAX_DEVICES, &config.devices);
	load_size("SUBLET_SIM_CAPACITY", &config.capacity_bytes);
	load_size("SUBLET_SIM_HOST_CAPACITY", &config.host_capacity_bytes);
	load_int("SUBLET_SIM_DRIVER_VERSION", 2000, 99990, &config.driver_version);
	load_without();
	text = getenv("SUBLET_SIM_SPEED");
	if (text) {
		char *end;

		config.speed = strtod(text, &end);
		if (*end || end == text || !(config.speed >= 0)) {
			complain("SUBLET_SIM_SPEED", text);
			config.speed = 0;
		}
	}
	text = getenv("SUBLET_SIM_VERBOSE");
	config.verbose = text && *text && strcmp(text, "0") != 0;
	text = getenv("SUBLET_SIM_MACHINE");
	if (text && strlen(text) < sizeof(config.machine) - 64)
		strcpy(config.machine, text);
	text = getenv("SUBLET_SIM_FAIL");
	if (text)
		sim_fail_load_environment(text);
}

const struct sim_config *sim_config(void)
{
	if (!__atomic_load_n(&loaded, __ATOMIC_ACQUIRE)) {
		pthread_mutex_lock(&load_lock);
		if (!loaded) {
			load();
			__atomic_store_n(&loaded, true, __ATOMIC_RELEASE);
		}
		pthread_mutex_unlock(&load_lock);
	}
	return &config;
}

void sim_config_forget(void)
{
	__atomic_store_n(&loaded, false, __ATOMIC_RELEASE);
}

/* Which feature an entry is, by the beginning of its name; the first match decides. */
static const struct {
	const char *prefix;
	enum sim_feature feature;
} feature_entries[] = {
	{"cuMemAddress", SIM_VMM},
	{"cuMemCreate", SIM_VMM},
	{"cuMemMap", SIM_VMM},
	{"cuMemUnmap", SIM_VMM},
	{"cuMemSetAccess", SIM_VMM},
	{"cuMemGetAccess", SIM_VMM},
	{"cuMemRelease", SIM_VMM},
	{"cuMemRetainAllocationHandle", SIM_VMM},
	{"cuMemGetAllocation", SIM_VMM},
	{"cuMemExportToShareableHandle", SIM_VMM},
	{"cuMemImportFromShareableHandle", SIM_VMM},
	{"cuCtxRecordEvent", SIM_CTX_RECORD_EVENT},
	{"cuCtxWaitEvent", SIM_CTX_RECORD_EVENT},
	{"cuFuncGetParamInfo", SIM_PARAM_INFO},
	{"cuKernelGetParamInfo", SIM_PARAM_INFO},
	{"cuMemGetHandleForAddressRange", SIM_DMA_BUF},
	{"cuMemAllocAsync", SIM_POOLS},
	{"cuMemAllocFromPoolAsync", SIM_POOLS},
	{"cuMemFreeAsync", SIM_POOLS},
	{"cuMemPool", SIM_POOLS},
	{"cuDeviceGetDefaultMemPool", SIM_POOLS},
	{"cuDeviceGetMemPool", SIM_POOLS},
	{"cuDeviceSetMemPool", SIM_POOLS},
	{"cuIpc", SIM_IPC},
};

bool sim_entry_present(enum sim_entry entry)
{
	uint32_t without = sim_config()->without & ~(1u << SIM_FABRIC);
	const char *name;

	if (!without)
		return true;
	name = sim_entry_name(entry);
	for (size_t i = 0; i < sizeof(feature_entries) / sizeof(feature_entries[0]); i++) {
		if (strncmp(name, feature_entries[i].prefix, strlen(feature_entries[i].prefix)) == 0)
			return (without & (1u << feature_entries[i].feature)) == 0;
	}
	return true;
}
