/* tools/sim/sim.h
 * The simulated driver: a libcuda.so.1 whose device memory is host memory and whose kernels are host functions, with the
 * error codes and refusals that hardware showed (VMM by memfd and mmap, so mapping across processes is real). Same code as
 * a shared library for programs and, linked statically, for unit tests.
 *
 * Environment, read at the first call:
 *   SUBLET_SIM_CAPACITY=80GiB      device memory of each device, shared by all processes of one machine
 *   SUBLET_SIM_HOST_CAPACITY=1TiB  host memory that VMM may take
 *   SUBLET_SIM_DEVICES=1           1 to 16
 *   SUBLET_SIM_MACHINE=FOLDER      processes with the same folder are on one machine; unset: one of their own
 *   SUBLET_SIM_DRIVER_VERSION=13000  names newer than it cannot be resolved
 *   SUBLET_SIM_QUEUE=1024          operations that a stream holds; a call that submits one more waits (unset: any number)
 *   SUBLET_SIM_WITHOUT=vmm,ctx_record_event,posix_fd,host_numa,pools  parts that this driver lacks
 *   SUBLET_SIM_FAIL=cuMemCreate:3[+][=CODE],...  the 3rd call fails (+: and all later ones); `*:N` counts every call
 *   SUBLET_SIM_SPEED=h200[,pcie=55GB/s][,duplex=95GB/s][,hbm=3970GB/s][,launch=3.3us][,copy=2us][,slow=1]
 *                                  transfers and kernels take the time they would take on such a device (below)
 *   SUBLET_SIM_LOG=FILE            appends "PID THREAD SYMBOL[ refused CODE]" for each call
 *   SUBLET_SIM_INTERNAL_POINTERS=1  cuGetProcAddress answers with addresses that are no exports (older drivers do)
 */
#ifndef SUBLET_TOOLS_SIM_SIM_H
#define SUBLET_TOOLS_SIM_SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- kernels ----
 * A kernel is a host function with the signature below in a shared object or in the program itself; it runs on a thread of
 * its stream. SIM_KERNEL makes the descriptor the driver reads parameter layouts from. Images: a path of a shared object
 * for cuModuleLoad and cuLibraryLoadFromFile, or data that begins with "sublet-sim:self" (the program), "sublet-sim:builtin"
 * or "sublet-sim:PATH". Parameters lie at their natural alignment: the largest power of two up to 8 that divides the size.
 * Globals are exported variables of the object, and kernels use them as they are. A kernel is inside a call of the driver:
 * it may not call the driver itself. */
struct sim_launch {
	unsigned grid[3], block[3];
	unsigned shared_bytes;
};

typedef void sim_kernel(const struct sim_launch *launch, void **params);

#define SIM_PARAMS_MAX 16

struct sim_kernel_info {
	const char *name;
	sim_kernel *run;
	unsigned param_count;
	size_t param_bytes[SIM_PARAMS_MAX];
	bool brief; /* may run on the launching thread when its stream is idle */
};

#define SIM_KERNEL(kernel, ...)                                                                                        \
	__attribute__((visibility("default"), used)) const struct sim_kernel_info kernel##_sim_info = {                \
		#kernel, kernel, sizeof((size_t[]){__VA_ARGS__}) / sizeof(size_t), {__VA_ARGS__}, false}

/* Built-in kernels ("sublet-sim:builtin"): sim_noop(), sim_fill32(uint32_t *p, size_t words, uint32_t value),
 * sim_add32(uint32_t *p, size_t words, uint32_t addend), sim_busy(uint32_t milliseconds),
 * sim_busy_write(uint32_t *p, size_t words, uint32_t value, uint32_t milliseconds) which writes last,
 * sim_spin(volatile uint32_t *host_flag) until it is not zero. */

#ifdef __cplusplus
extern "C" {
#endif

/* ---- time ----
 * Without SUBLET_SIM_SPEED everything runs as fast as this machine can, and events keep real times. With it an operation is
 * over when the described device would be done, and events keep those times, so that rates and overlaps can be measured as on
 * hardware: one copy engine per direction, both together no faster than `duplex`, shared by the streams and processes of one
 * machine; the device's own memory at `hbm`; `launch` and `copy` for each kernel and copy on top. Real work happens inside
 * these times: give `slow` (10: everything takes ten times as long, and event times are divided by ten again) where this
 * machine copies more slowly than the described one. The bytes a kernel reads and writes are those it tells: */
void sublet_sim_touched(const void *p, size_t read_bytes, size_t written_bytes);
/* Nanoseconds of that clock (without SUBLET_SIM_SPEED: the monotonic clock). */
uint64_t sublet_sim_now_ns(void);

/* ---- control, for tests ---- */

struct sim_counts {
	uint64_t live_handles;      /* cuMemCreate, import and retain not yet released */
	uint64_t live_mappings;
	uint64_t reserved_bytes;
	uint64_t live_blocks;       /* plain device memory */
	uint64_t live_events, live_streams, live_contexts;
	uint64_t device_bytes[16];  /* in use on the whole machine */
	uint64_t calls;
};

void sublet_sim_counts(struct sim_counts *ret_counts);

/* What all processes of the machine have taken, whatever they are: for who looks at it from outside, after cuInit in a process
 * with the same SUBLET_SIM_MACHINE. The peaks are of every moment since the last reset (or the machine's first process), counted
 * where memory is taken, not sampled. */
struct sim_usage {
	uint64_t capacity_bytes;
	uint64_t used_bytes, peak_bytes;
	uint64_t host_bytes, host_peak_bytes; /* host memory that VMM took */
};
/* @reset: the peaks begin anew, from what is in use now. False: no such device, or before cuInit. */
bool sublet_sim_usage(int device, bool reset, struct sim_usage *ret_usage);
/* Calls of one entry point so far. */
uint64_t sublet_sim_calls(const char *symbol);
/* Fail call number @nth (1 is the next one) of @symbol, or of any when "*"; @for_good: and all later ones. @code 0: the
 * natural one. A new rule replaces all earlier ones; NULL clears. */
void sublet_sim_fail(const char *symbol, unsigned nth, bool for_good, int code);
/* One rule more, up to 16 in all; when several hit one call, the first gives the code. False: unknown symbol, or full. */
bool sublet_sim_fail_also(const char *symbol, unsigned nth, bool for_good, int code);
/* Has a rule failed a call since sublet_sim_fail? */
bool sublet_sim_fail_fired(void);
/* Called at the entry of every driver call, NULL: none. */
void sublet_sim_on_call(void (*hook)(const char *symbol));
/* As if the process had just started: everything is dropped. No thread may be inside a call. */
void sublet_sim_reset(void);

#ifdef __cplusplus
}
#endif
#endif
