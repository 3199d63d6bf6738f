/* tools/sim/sim_core.c
 * What every entry point passes through: is the driver initialised, is this the process that did it, is this call to fail.
 * Also cuInit, versions, devices, errors, and the control interface for tests. */
#include "tools/sim/sim_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/size.h"
#include "tools/sim/sim_exec.h"
#include "tools/sim/sim_memory.h"

pthread_mutex_t sim_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t sim_moved = PTHREAD_COND_INITIALIZER;
#define DEFAULTS                                                                                                       \
	(struct sim_config)                                                                                            \
	{                                                                                                              \
		.capacity = 80ull << 30, .host_capacity = 1ull << 40, .devices = 1, .driver_version = 13000            \
	}
struct sim_config sim_config = DEFAULTS;

static const char *const names[SIM_CALL_COUNT] = {
#define WRAP(symbol, base, since, stream, need, group, params, args) #symbol,
#define PASS(symbol, base, since, stream, need, reason, params, args) #symbol,
#include "shim/entries.def"
};

static int initialised_by; /* pid, 0: not yet */
static bool environment_read;
static int call_log = -1;
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

	if (strstr(name, "GetProcAddress"))
		return CUDA_ERROR_NOT_FOUND;
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
			if (result == CUDA_SUCCESS)
				result = rule->code ? (CUresult)rule->code : (CUresult)natural_code(call);
			fired = true;
		}
	}
	pthread_mutex_unlock(&sim_lock);
	return result;
}

/* One write per line, so that lines of several threads and processes stay whole. */
static void log_call(enum sim_call call, CUresult result)
{
	char line[160];
	int length = snprintf(line, sizeof(line), "%d %ld %s%s", (int)getpid(), (long)syscall(SYS_gettid), names[call],
		result == CUDA_SUCCESS ? "\n" : "");

	if (result != CUDA_SUCCESS)
		length += snprintf(line + length, sizeof(line) - (size_t)length, " refused %d\n", (int)result);
	if (write(call_log, line, (size_t)length) < 0)
		call_log = -1; /* a full disk must not disturb the run */
}

static void read_environment(void);

CUresult sim_enter(enum sim_call call, bool before_init)
{
	void (*hook)(const char *) = __atomic_load_n(&on_call, __ATOMIC_ACQUIRE);
	int pid = __atomic_load_n(&initialised_by, __ATOMIC_ACQUIRE);
	CUresult result;

	if (!__atomic_load_n(&environment_read, __ATOMIC_ACQUIRE))
		read_environment();
	if (hook)
		hook(names[call]);
	__atomic_fetch_add(&calls[call], 1, __ATOMIC_RELAXED);
	__atomic_fetch_add(&all_calls, 1, __ATOMIC_RELAXED);
	/* CUDA does not survive a fork. */
	result = !before_init && pid != getpid() ? CUDA_ERROR_NOT_INITIALIZED : injected(call);
	if (result == CUDA_SUCCESS && sim_config.without_record && (call == SIM_cuCtxRecordEvent || call == SIM_cuCtxWaitEvent))
		result = CUDA_ERROR_NOT_SUPPORTED;
	if (call_log >= 0)
		log_call(call, result);
	return result;
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

static void read_without(const char *text)
{
	const struct {
		const char *name;
		bool *lacks;
	} parts[] = {{"vmm", &sim_config.without_vmm}, {"ctx_record_event", &sim_config.without_record},
		{"posix_fd", &sim_config.without_fd}, {"host_numa", &sim_config.without_host_numa},
		{"pools", &sim_config.without_pools}};

	while (text && *text) {
		size_t length = strcspn(text, ","), i;

		for (i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
			if (strlen(parts[i].name) == length && memcmp(parts[i].name, text, length) == 0)
				break;
		}
		if (i < sizeof(parts) / sizeof(parts[0]))
			*parts[i].lacks = true;
		else
			fprintf(stderr, "simulated driver: SUBLET_SIM_WITHOUT: unknown part '%.*s'; parts are vmm, "
					"ctx_record_event, posix_fd, host_numa, pools\n", (int)length, text);
		text += length + (text[length] == ',');
	}
}

static void read_number(const char *name, int least, int most, int *value)
{
	const char *text = getenv(name);
	char *end;
	long number;

	if (!text || !*text)
		return;
	number = strtol(text, &end, 10);
	if (*end || number < least || number > most)
		fprintf(stderr, "simulated driver: %s='%s' is not a number from %d to %d\n", name, text, least, most);
	else
		*value = (int)number;
}

/* At the first call of all: resolution comes before cuInit and depends on it. */
static void read_environment(void)
{
	const char *text;

	pthread_mutex_lock(&sim_lock);
	if (!environment_read) {
		read_size("SUBLET_SIM_CAPACITY", &sim_config.capacity);
		read_size("SUBLET_SIM_HOST_CAPACITY", &sim_config.host_capacity);
		read_number("SUBLET_SIM_DEVICES", 0, SIM_DEVICES_MAX, &sim_config.devices);
		read_number("SUBLET_SIM_DRIVER_VERSION", 2000, 99990, &sim_config.driver_version);
		read_number("SUBLET_SIM_QUEUE", 0, 1 << 20, &sim_config.queue);
		read_without(getenv("SUBLET_SIM_WITHOUT"));
		sim_config.internal_pointers = getenv("SUBLET_SIM_INTERNAL_POINTERS") != NULL;
		read_rules(getenv("SUBLET_SIM_FAIL"));
		text = getenv("SUBLET_SIM_LOG");
		if (text && *text) {
			call_log = open(text, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
			if (call_log < 0)
				fprintf(stderr, "simulated driver: SUBLET_SIM_LOG: cannot open '%s': %s\n", text, strerror(errno));
		}
		__atomic_store_n(&environment_read, true, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&sim_lock);
}

CUresult CUDAAPI cuInit(unsigned int flags)
{
	struct rlimit files;
	CUresult result;

	if (initialised_by && initialised_by != getpid())
		return CUDA_ERROR_NOT_INITIALIZED;
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
	sim_clock_open();
	if (!sim_machine_open())
		result = CUDA_ERROR_OPERATING_SYSTEM;
	else
		__atomic_store_n(&initialised_by, (int)getpid(), __ATOMIC_RELEASE);
	pthread_mutex_unlock(&sim_lock);
	return result;
}

CUresult CUDAAPI cuDriverGetVersion(int *version)
{
	CUresult result = sim_enter(SIM_cuDriverGetVersion, true);

	if (result == CUDA_SUCCESS && !version)
		return CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		*version = sim_config.driver_version;
	return result;
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

SIM_EXPORT bool sublet_sim_fail_also(const char *symbol, unsigned nth, bool for_good, int code)
{
	int call = strcmp(symbol, "*") == 0 ? -1 : call_by_name(symbol, strlen(symbol));
	bool added;

	pthread_mutex_lock(&sim_lock);
	added = call >= -1 && nth && rule_count < RULES_MAX;
	if (added) {
		rules[rule_count] = (struct rule){call, nth, for_good, code, 0};
		__atomic_store_n(&rule_count, rule_count + 1, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&sim_lock);
	return added;
}

SIM_EXPORT void sublet_sim_fail(const char *symbol, unsigned nth, bool for_good, int code)
{
	/* Rules of the environment are read at the first call: after that one, so that they do not come back. */
	if (!__atomic_load_n(&environment_read, __ATOMIC_ACQUIRE))
		read_environment();
	pthread_mutex_lock(&sim_lock);
	fired = false;
	__atomic_store_n(&rule_count, 0, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&sim_lock);
	if (symbol)
		sublet_sim_fail_also(symbol, nth, for_good, code);
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

SIM_EXPORT bool sublet_sim_usage(int device, bool reset, struct sim_usage *usage)
{
	bool known;

	pthread_mutex_lock(&sim_lock);
	known = initialised_by == getpid() && device >= 0 && device < sim_config.devices;
	if (known)
		*usage = (struct sim_usage){
			.capacity_bytes = sim_config.capacity,
			.used_bytes = sim_machine_used(device),
			.peak_bytes = sim_machine_peak(device, reset),
			.host_bytes = sim_machine_used(SIM_HOST),
			.host_peak_bytes = sim_machine_peak(SIM_HOST, reset),
		};
	pthread_mutex_unlock(&sim_lock);
	return known;
}

SIM_EXPORT void sublet_sim_reset(void)
{
	sublet_sim_fail(NULL, 0, false, 0);
	sublet_sim_on_call(NULL);
	sim_streams_drop_all();
	pthread_mutex_lock(&sim_lock);
	sim_memory_drop(NULL);
	sim_pools_drop_all();
	sim_vmm_drop_all();
	sim_contexts_drop_all();
	sim_modules_drop_all();
	sim_clock_close();
	sim_machine_close();
	memset(calls, 0, sizeof(calls));
	all_calls = 0;
	initialised_by = 0;
	sim_config = DEFAULTS;
	if (call_log >= 0)
		close(call_log);
	call_log = -1;
	__atomic_store_n(&environment_read, false, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&sim_lock);
}
