/* shim/start.c
 * The state of this process: when Sublet begins to serve, when it keeps out, and what a fork and the end of the process
 * do to it. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/size.h"
#include "base/text.h"
#include "shim/bound.h"
#include "shim/nvtx_abi.h"
#include "shim/nvtx_ranges.h"
#include "shim/shim.h"

/* A process that starts takes milliseconds; one that was forked in the middle never ends. */
#define START_WAIT_YIELDS 200000

#define PATH_SHOWN 240 /* of a path in a line, so that there is room for what to do about it */

#define DRIVER_AT_LEAST 11020 /* stream-ordered memory and all VMM calls; as cuDriverGetVersion counts */

struct shim_hot shim_hot = {.state = SHIM_NEW};
bool shim_init_asked;
SUBLET_TLS int shim_depth, shim_cancel_state;

/* Weak, as in base/text.c: another C library than glibc (Alpine's musl) loads this one all the same into every process of a
 * tree, has it not, and must not refuse to start them. */
extern int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void), void *dso)
	__attribute__((weak));
extern void *__dso_handle SUBLET_HIDDEN;

static struct stats_page *page;
static const char *session; /* its folder, where it can be used; the environment's own text */
static bool keep_page; /* SUBLET_FOLLOW, read at the start: at the end the program may have changed its environment */
static bool atfork_registered; /* atomic; inherited over fork, as the handlers are */

static void set_state(enum shim_state state)
{
	__atomic_store_n(&shim_hot.state, (int)state, __ATOMIC_RELEASE);
}

static bool serving(void)
{
	return __atomic_load_n(&shim_hot.state, __ATOMIC_ACQUIRE) == SHIM_ACTIVE;
}

/* CUDA does not survive a fork, so neither does anything here: a plain process from now on. One that was forked before
 * the start is untouched and starts by itself.
 *
 * No lock is taken before the fork. It may come from a signal handler that interrupted a wrapper of this very thread, and
 * would wait for itself; nothing that a lock guards is used in the child, so a half-made change there harms nobody. The
 * depth stays: such a wrapper is still on this thread's stack and will count itself out. */
static void after_fork_child(void)
{
	if (serving())
		ranked_lock_fork_child();
	else if (__atomic_load_n(&shim_hot.state, __ATOMIC_ACQUIRE) == SHIM_NEW)
		shim_controller_fork_child();
	if (serving()) {
		lifecycle_forget(&shim_hot.lifecycle);
		page = shim_hot.lifecycle.stats = stats_after_fork(page);
	} else if (page) {
		/* of a start that came too early, or is under way and perhaps on this thread's stack */
		stats_after_fork(page);
		if (__atomic_load_n(&shim_hot.state, __ATOMIC_ACQUIRE) == SHIM_NEW)
			page = NULL;
	}
	if (__atomic_load_n(&shim_hot.state, __ATOMIC_ACQUIRE) != SHIM_NEW) {
		set_state(SHIM_OFF);
		triggers_forget(&shim_triggers);
	}
}

static void say_summary(void)
{
	char now[16], peak[16];

	if (!log_wants(LOG_STATS, LOG_INFO))
		return;
	for (uint32_t d = 0; d < page->device_count; d++) {
		const struct stats_device *device = &page->device[d];

		if (device->managed.total_count)
			log_say(LOG_STATS, LOG_INFO, WHOSE_NONE, "device %u: managed %s peak in %llu allocations, %s at the end", d,
				size_format(device->managed.peak_bytes, peak, sizeof(peak)),
				(unsigned long long)device->managed.total_count,
				size_format(device->managed.bytes, now, sizeof(now)));
		for (int kind = 0; kind < STATS_NATIVE_COUNT; kind++) {
			if (device->native[kind].total_count)
				log_say(LOG_STATS, LOG_INFO, WHOSE_NONE, "device %u: native %s %s peak in %llu allocations", d,
					stats_native_name((enum stats_native)kind),
					size_format(device->native[kind].peak_bytes, peak, sizeof(peak)),
					(unsigned long long)device->native[kind].total_count);
		}
	}
	log_say(LOG_STATS, LOG_INFO, WHOSE_NONE, "look-ups: %llu replaced, %llu of them by name, %llu unknown",
		(unsigned long long)(page->lookups_mapped + page->lookups_by_name), (unsigned long long)page->lookups_by_name,
		(unsigned long long)page->lookups_unknown);
}

/* Runs before the driver's own end, since it was registered later. Destructors that come after still free their memory
 * through Sublet; only the helper thread must be out of the driver by then. */
static void at_exit(void)
{
	/* a child of _Fork or clone, in which no handler ran, has everything but the helper thread and the right to the page */
	if (!serving() || page->pid != (int32_t)getpid())
		return;
	lifecycle_stop(&shim_hot.lifecycle);
	bound_report(); /* once more: what was opened since the start, or bound with its first call */
	say_summary();
	stats_close(page, keep_page);
}

static void *find_real(const char *symbol, void *arg)
{
	int id = entry_by_symbol(symbol);

	(void)arg;
	return id < 0 ? NULL : real_address(id);
}

/* A size from the environment; a bad one is said once and the default stays. */
static void read_size(const char *name, uint64_t *value)
{
	const char *text = getenv(name);

	if (text && *text && !size_parse(text, value))
		log_say(LOG_SHIM, LOG_WARN, WHOSE_NONE, "%s='%s' is not a size; write 1MiB, 512MiB, 2GiB (using the default)", name, text);
}

/* SUBLET_VERIFY and SUBLET_POISON: for finding faults, not for everyday use. */
static void read_checks(struct lifecycle_config *config)
{
	const char *verify = getenv("SUBLET_VERIFY"), *poison = getenv("SUBLET_POISON");
	unsigned long value;
	char *end;

	config->verify = verify && strcmp(verify, "1") == 0;
	if (!poison || !*poison)
		return;
	value = strtoul(poison, &end, 0);
	config->poisons = !*end && value <= 255;
	config->poison = (unsigned char)value;
	if (!config->poisons)
		log_say(LOG_SHIM, LOG_WARN, WHOSE_NONE, "SUBLET_POISON='%s' is not a byte; write 255 or 0xff (nothing is filled)", poison);
}

bool shim_in_session(void)
{
	const char *folder = getenv("SUBLET_SESSION");

	return folder && *folder;
}

static struct lifecycle_config read_config(void)
{
	struct lifecycle_config config = lifecycle_config_default();
	const char *free_mode = getenv("SUBLET_FREE"), *gate_fences = getenv("SUBLET_GATE_FENCES");
	const char *callers = getenv("SUBLET_CALLERS");

	read_size("SUBLET_MIN_SIZE", &config.min_size_bytes);
	read_size("SUBLET_CACHE", &config.cache_bytes);
	read_size("SUBLET_ARENA", &config.arena_bytes);
	if (config.arena_bytes < GRANULE_BYTES)
		config.arena_bytes = GRANULE_BYTES;
	if (config.min_size_bytes == 0)
		config.min_size_bytes = 1;
	read_checks(&config);
	if (callers && *callers && !caller_wants_parse(callers, &config.caller_wants))
		log_say(LOG_SHIM, LOG_WARN, WHOSE_NONE,
			"SUBLET_CALLERS='%s' has other words than library, thread, tag, stack, python and all (no callers are kept)", callers);
	config.gate_fences = gate_fences && strcmp(gate_fences, "1") == 0;
	if (free_mode && strcmp(free_mode, "sync") == 0)
		config.free_sync = true;
	else if (free_mode && *free_mode && strcmp(free_mode, "async") != 0)
		log_say(LOG_SHIM, LOG_WARN, WHOSE_NONE, "SUBLET_FREE='%s' is neither sync nor async (using async)", free_mode);
	return config;
}

/* The folder is only a place for counters: without it everything else works. */
static const char *usable_session(const char *dir)
{
	struct stat status;

	if (lstat(dir, &status) != 0) {
		log_say(LOG_SHIM, LOG_WARN, WHOSE_NONE, "session folder '%.*s': %s; counters stay private (start with sublet run)",
			PATH_SHOWN, dir, text_of_errno(errno));
		return NULL;
	}
	if (!S_ISDIR(status.st_mode) || status.st_uid != geteuid() || (status.st_mode & 077)) {
		log_say(LOG_SHIM, LOG_WARN, WHOSE_NONE,
			"session folder '%.*s' is not a folder of this user alone (mode 0700); counters stay private", PATH_SHOWN, dir);
		return NULL;
	}
	return dir;
}

void shim_own_thread_begins(void)
{
	shim_depth++;
}

const char *shim_session(void)
{
	return shim_in_session() ? usable_session(getenv("SUBLET_SESSION")) : NULL;
}

bool shim_register_fork(void)
{
	if (!__atomic_exchange_n(&atfork_registered, true, __ATOMIC_ACQ_REL) && __register_atfork)
		__register_atfork(NULL, NULL, after_fork_child, &__dso_handle);
	return __register_atfork != NULL;
}

/* A policy that waits for ranges which go past Sublet would wait for ever. */
static void say_unseen_ranges(void)
{
	const char *path = getenv(NVTX_PATH_VARIABLE), *name = path ? strrchr(path, '/') : NULL;

	/* an empty one is the program itself, whose names are those of all that is preloaded too */
	if (!triggers_ask(&shim_triggers) || (path && (!*path || strcmp(name ? name + 1 : path, "libsublet.so") == 0)))
		return;
	log_say(LOG_SHIM, LOG_WARN, WHOSE_FRAMEWORK,
		"the policy waits for NVTX ranges, and " NVTX_PATH_VARIABLE " %s%.*s%s, so that none is seen; start with 'sublet run', in front of profilers",
		path ? "is '" : "is not set", PATH_SHOWN, path ? path : "", path ? "'" : "");
}

static enum shim_state start(void)
{
	const char *follow = getenv("SUBLET_FOLLOW");
	uint32_t phases[CLIENT_EVENTS];
	struct lifecycle_config config;
	struct driver driver;
	struct errinfo error;
	size_t phases_count;
	bool shared;
	enum sublet_err err;

	log_init();
	if (!shim_in_session())
		return SHIM_OFF;
	if (!__register_atfork) {
		log_say(LOG_SHIM, LOG_WARN, WHOSE_NONE, "off in this process: its C library is not glibc");
		return SHIM_OFF;
	}
	err = driver_load(&driver, find_real, NULL, &error);
	for (int id = 0; !err && id < ENTRY_COUNT; id++) {
		if (entries[id].required && !real_address(id))
			err = errinfo_set(&error, SUBLET_ERR_UNSUPPORTED, 0, "this libcuda has no %s", entries[id].symbol);
	}
	if (!err && driver.version && driver.version < DRIVER_AT_LEAST)
		err = errinfo_set(&error, SUBLET_ERR_UNSUPPORTED, 0, "the driver is of CUDA %d.%d", driver.version / 1000,
			driver.version % 1000 / 10);
	if (err)
		goto off;
	config = read_config();
	config.thread_begins = shim_own_thread_begins;
	config.triggers = &shim_triggers;
	keep_page = follow && *follow == '1';
	if (!page) {
		session = usable_session(getenv("SUBLET_SESSION"));
		page = stats_create(session, getenv("SUBLET_ROLE"), getenv("SUBLET_RUN"), &shared);
	}
	err = lifecycle_init(&shim_hot.lifecycle, &driver, &config, page, &error);
	if (err == SUBLET_ERR_DRIVER && error.driver_code == CUDA_ERROR_NOT_INITIALIZED)
		return SHIM_NEW; /* a call before cuInit: no proof of anything */
	if (err)
		goto off;
	phases_count = shim_controller_end(phases);
	client_start(&shim_hot.lifecycle, session, getenv("SUBLET_ROLE"));
	for (size_t i = 0; i < phases_count; i++)
		client_note_event(&shim_hot.lifecycle, phases[i]);
	shim_publish_lookups(page);
	__atomic_store_n(&page->active, 1, __ATOMIC_RELAXED);
	atexit(at_exit);
	log_say(LOG_SHIM, LOG_INFO, WHOSE_NONE, "serving allocations from %llu KiB up, driver %d.%d, %d device%s",
		(unsigned long long)(config.min_size_bytes >> 10), driver.version / 1000, driver.version % 1000 / 10,
		shim_hot.lifecycle.device_count, shim_hot.lifecycle.device_count == 1 ? "" : "s");
	if (!__atomic_load_n(&shim_init_asked, __ATOMIC_ACQUIRE))
		log_say(LOG_SHIM, LOG_WARN, WHOSE_FRAMEWORK,
			"cuInit was called past Sublet: who has a pointer from before may free memory past it too");
	bound_report();
	return SHIM_ACTIVE;
off:
	log_say(LOG_SHIM, LOG_WARN, WHOSE_DRIVER, "off in this process: %s (needs a driver of CUDA %d.%d or later)", error.text,
		DRIVER_AT_LEAST / 1000, DRIVER_AT_LEAST % 1000 / 10);
	return SHIM_OFF;
}

void shim_start(void)
{
	int expected = SHIM_NEW;

	if (__atomic_compare_exchange_n(&shim_hot.state, &expected, SHIM_STARTING, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
		enum shim_state started;
		int saved_errno = errno;

		/* First of all, so that a fork in the middle of the start leaves a child that knows it. */
		shim_register_fork();
		shim_enter();
		started = start();
		if (started != SHIM_NEW)
			triggers_settle(&shim_triggers);
		if (started == SHIM_ACTIVE)
			say_unseen_ranges();
		/* Not in a child that was forked meanwhile, by a signal handler: that one is off. */
		expected = SHIM_STARTING;
		__atomic_compare_exchange_n(&shim_hot.state, &expected, (int)started, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
		shim_leave();
		errno = saved_errno;
		return;
	}
	for (int i = 0; expected == SHIM_STARTING && i < START_WAIT_YIELDS; i++) {
		sched_yield();
		expected = __atomic_load_n(&shim_hot.state, __ATOMIC_ACQUIRE);
	}
}
