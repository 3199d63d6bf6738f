/* tools/sim/sim_clock.c
 * The virtual clock: how long transfers and kernels take on the device that SUBLET_SIM_SPEED describes (sim.h). It is the
 * monotonic clock divided by `slow`. An engine (the link in each direction, the device's own memory) is one number: the time
 * at which it is free. A transfer takes it slice by slice, so that streams and processes share an engine; it sees from the
 * other direction's number whether both are busy. The numbers of one machine lie in a shared file, without locks: a process
 * that dies leaves a time that passes. */
#include "tools/sim/sim_exec.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define SLICE_BYTES ((uint64_t)4 << 20)
#define AHEAD_NS 1000000u /* claims may run this far ahead of the clock before they wait */
#define GRACE_NS 2000000u /* a transfer with more to come counts as busy that long between two of its slices */

bool sim_clock_on;

/* FACTS of an H200: 55 GB/s one way, 87 to 101 both, 3.97 TB/s on the device, 3.3 us for a null kernel, 2 us more per copy. */
static struct speed {
	double link, duplex, memory; /* bytes per second */
	double launch_s, copy_s, slow;
} speed = {55e9, 95e9, 3.97e12, 3.3e-6, 2e-6, 1};

struct engines {
	uint64_t free_at[SIM_DEVICES_MAX][SIM_ENGINE_COUNT]; /* nanoseconds << 1 | more to come of the same transfer */
};
static struct engines own, *engines = &own;

/* ---- SUBLET_SIM_SPEED ---- */

static bool parse_value(const char *text, size_t length, double *ret)
{
	static const struct {
		const char *unit;
		double factor;
	} units[] = {{"", 1}, {"B/s", 1}, {"MB/s", 1e6}, {"GB/s", 1e9}, {"TB/s", 1e12}, {"MiB/s", 1 << 20}, {"GiB/s", 1 << 30},
		{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}};
	char copy[64], *end;

	if (length >= sizeof(copy))
		return false;
	memcpy(copy, text, length);
	copy[length] = '\0';
	*ret = strtod(copy, &end);
	for (size_t i = 0; end != copy && *ret >= 0 && i < sizeof(units) / sizeof(units[0]); i++) {
		if (strcmp(end, units[i].unit) == 0) {
			*ret *= units[i].factor;
			return true;
		}
	}
	return false;
}

static void parse(const char *text)
{
	const struct {
		const char *name;
		double *value;
		bool positive;
	} keys[] = {{"pcie", &speed.link, true}, {"duplex", &speed.duplex, true}, {"hbm", &speed.memory, true},
		{"launch", &speed.launch_s, false}, {"copy", &speed.copy_s, false}, {"slow", &speed.slow, true}};

	while (*text) {
		size_t length = strcspn(text, ","), key = strcspn(text, "=,");
		bool known = length == 4 && memcmp(text, "h200", 4) == 0;
		double value;

		for (size_t i = 0; !known && key < length && i < sizeof(keys) / sizeof(keys[0]); i++) {
			if (strlen(keys[i].name) != key || memcmp(keys[i].name, text, key) != 0 ||
				!parse_value(text + key + 1, length - key - 1, &value) || (keys[i].positive && value <= 0))
				continue;
			*keys[i].value = value;
			known = true;
		}
		if (!known)
			fprintf(stderr,
				"simulated driver: SUBLET_SIM_SPEED: '%.*s' is none of h200, pcie=55GB/s, duplex=95GB/s, "
				"hbm=3970GB/s, launch=3.3us, copy=2us, slow=1\n",
				(int)length, text);
		text += length + (text[length] == ',');
	}
}

void sim_clock_open(void)
{
	const char *text = getenv("SUBLET_SIM_SPEED"), *machine = getenv("SUBLET_SIM_MACHINE");
	char path[4096];
	void *area;
	int fd;

	speed = (struct speed){55e9, 95e9, 3.97e12, 3.3e-6, 2e-6, 1};
	sim_clock_on = text && *text;
	if (!sim_clock_on)
		return;
	parse(text);
	if (!machine || !*machine || snprintf(path, sizeof(path), "%s/engines", machine) >= (int)sizeof(path))
		return;
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	area = fd >= 0 && ftruncate(fd, sizeof(*engines)) == 0
		       ? mmap(NULL, sizeof(*engines), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
		       : MAP_FAILED;
	if (area == MAP_FAILED)
		fprintf(stderr, "simulated driver: %s: %s; this process has engines of its own\n", path, strerror(errno));
	else
		engines = area;
	if (fd >= 0)
		close(fd);
}

/* ---- time ---- */

uint64_t sim_clock_now(void)
{
	struct timespec t;
	uint64_t ns;

	clock_gettime(CLOCK_MONOTONIC, &t);
	ns = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
	return sim_clock_on ? (uint64_t)((double)ns / speed.slow) : ns;
}

static void wait_until(uint64_t virtual_ns)
{
	uint64_t ns = (uint64_t)((double)virtual_ns * speed.slow);
	struct timespec until = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};

	while (!__atomic_load_n(&sim_stopping, __ATOMIC_ACQUIRE) &&
	       clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
		;
}

/* ---- engines ---- */

static double rate(int device, enum sim_engine engine, uint64_t start)
{
	enum sim_engine other = engine == SIM_TO_DEVICE ? SIM_TO_HOST : SIM_TO_DEVICE;
	uint64_t free_at;

	if (engine == SIM_DEVICE_MEMORY)
		return speed.memory;
	free_at = __atomic_load_n(&engines->free_at[device][other], __ATOMIC_ACQUIRE);
	free_at = (free_at >> 1) + (free_at & 1 ? GRACE_NS : 0);
	return free_at > start && speed.duplex / 2 < speed.link ? speed.duplex / 2 : speed.link;
}

/* Take @engine for one slice that could begin at @ready; when it is over. */
static uint64_t claim(int device, enum sim_engine engine, uint64_t ready, uint64_t bytes, bool more)
{
	uint64_t *at = &engines->free_at[device][engine], before = __atomic_load_n(at, __ATOMIC_ACQUIRE), start, end;

	do {
		start = ready > before >> 1 ? ready : before >> 1;
		end = start + (uint64_t)((double)bytes * 1e9 / rate(device, engine, start));
	} while (!__atomic_compare_exchange_n(at, &before, end << 1 | more, true, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
	return end;
}

static uint64_t spend(uint64_t ready, const struct sim_cost *cost, bool wait)
{
	uint64_t left[SIM_ENGINE_COUNT], end[SIM_ENGINE_COUNT], last = ready + cost->fixed_ns;
	bool any = true;

	for (int e = 0; e < SIM_ENGINE_COUNT; e++) {
		left[e] = cost->bytes[e];
		end[e] = last;
	}
	while (any) {
		any = false;
		for (int e = 0; e < SIM_ENGINE_COUNT; e++) {
			uint64_t bytes = left[e] < SLICE_BYTES ? left[e] : SLICE_BYTES;

			if (!bytes)
				continue;
			left[e] -= bytes;
			any |= left[e] != 0;
			end[e] = claim(cost->device, (enum sim_engine)e, end[e], bytes, left[e] != 0);
			last = end[e] > last ? end[e] : last;
		}
		if (any && wait && last > AHEAD_NS + sim_clock_now())
			wait_until(last - AHEAD_NS);
	}
	return last;
}

/* ---- work ---- */

static __thread struct sim_cost touched; /* by the kernel that runs on this thread */

SIM_EXPORT void sublet_sim_touched(const void *p, size_t read_bytes, size_t written_bytes)
{
	if (sim_clock_on)
		sim_clock_access(&touched, (uint64_t)(uintptr_t)p, read_bytes, written_bytes);
}

SIM_EXPORT uint64_t sublet_sim_now_ns(void)
{
	return sim_clock_now();
}

void sim_clock_kernel_cost(const void *arg, struct sim_cost *ret)
{
	for (int e = 0; e < SIM_ENGINE_COUNT; e++)
		ret->bytes[e] += touched.bytes[e];
	ret->fixed_ns = (uint64_t)(speed.launch_s * 1e9);
}

void sim_clock_copy_cost(struct sim_cost *ret)
{
	ret->fixed_ns = (uint64_t)(speed.copy_s * 1e9);
}

/* sim_lock held: how many bytes from @address on are of one kind, and are they the host's? */
static uint64_t piece(uint64_t address, uint64_t bytes, bool *ret_host)
{
	struct sim_block *block = sim_block_at(address);
	struct sim_mapping *mapping = block ? NULL : sim_mapping_at(address);
	uint64_t end = address + bytes, here = end;

	if (block) {
		*ret_host = block->kind == SIM_HOST_ALLOC || block->kind == SIM_HOST_REGISTERED;
		here = block->address + block->bytes;
	} else if (mapping) {
		*ret_host = mapping->handle->location == SIM_HOST;
		here = mapping->address + mapping->bytes;
	} else {
		*ret_host = true;
	}
	return (here < end ? here : end) - address;
}

void sim_clock_access(struct sim_cost *ret, uint64_t address, uint64_t read_bytes, uint64_t written_bytes)
{
	uint64_t bytes = read_bytes > written_bytes ? read_bytes : written_bytes;

	pthread_mutex_lock(&sim_lock);
	while (bytes) {
		bool host;
		uint64_t step = piece(address, bytes, &host);
		uint64_t read = step < read_bytes ? step : read_bytes, written = step < written_bytes ? step : written_bytes;

		if (host) {
			ret->bytes[SIM_TO_DEVICE] += read;
			ret->bytes[SIM_TO_HOST] += written;
		} else {
			ret->bytes[SIM_DEVICE_MEMORY] += read + written;
		}
		address += step;
		bytes -= step;
		read_bytes -= read;
		written_bytes -= written;
	}
	pthread_mutex_unlock(&sim_lock);
}

static uint64_t timed(const struct sim_work *work, struct sim_context *ctx, uint64_t ready_ns, bool wait)
{
	struct sim_cost cost = {.device = ctx->device};
	uint64_t end;

	if (work->kind->run_timed)
		return work->kind->run_timed(work->arg, ctx, ready_ns);
	memset(&touched, 0, sizeof(touched));
	sim_guard_run(work, ctx);
	if (!work->kind->cost) {
		/* A mark takes no time; whatever else (a host function, a wait for memory) took the time it took. */
		end = work->brief ? ready_ns : sim_clock_now();
		return end > ready_ns ? end : ready_ns;
	}
	if (!ctx->sticky)
		work->kind->cost(work->arg, &cost);
	return spend(ready_ns, &cost, wait);
}

uint64_t sim_run_claimed(const struct sim_work *work, struct sim_context *ctx, uint64_t ready_ns)
{
	return timed(work, ctx, ready_ns, false);
}

uint64_t sim_run_timed(const struct sim_work *work, struct sim_context *ctx, uint64_t ready_ns)
{
	uint64_t end = timed(work, ctx, ready_ns, true), now = sim_clock_now();

	if (end > now)
		wait_until(end);
	return end;
}
