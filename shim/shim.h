/* shim/shim.h
 * What the files of this folder share: the real driver, the state of this process, the guard around wrappers.
 *
 * Rules in somebody else's process: no stdio, no exit, no abort; no constructor; nothing is done before the first
 * successful cuInit but answering look-ups; a wrapper that cannot do its part forwards the call unchanged. */
#ifndef SUBLET_SHIM_SHIM_H
#define SUBLET_SHIM_SHIM_H

#include "shim/entry.h"

#include <pthread.h>

#include "base/attributes.h"
#include "lifecycle/lifecycle.h"

struct link_map;

/* ---- the real driver (shim/resolve.c) ---- */

/* The driver's own function for a row. Looks the driver up among the loaded libraries on first use. NULL: no libcuda in
 * this process, or one without this symbol. Any thread, no lock; may allocate (dlopen of what is already loaded). */
void *real_address_slow(int id);

/* What every gated call reads, side by side on one line: between two launches a program does enough to push out what is its own. */
struct shim_hot {
	int state;                    /* enum shim_state, atomic */
	void *const *real_addresses;  /* by row, once the driver was found; atomic */
	struct lifecycle lifecycle;   /* which begins with its gate */
} __attribute__((aligned(64)));

extern struct shim_hot shim_hot;

static inline void *real_address(int id)
{
	void *const *known = __atomic_load_n(&shim_hot.real_addresses, __ATOMIC_ACQUIRE);

	return SUBLET_LIKELY(known != NULL) ? known[id] : real_address_slow(id);
}

/* Call the real driver from inside the wrapper of @symbol. */
#define REAL(symbol) ((__typeof__(&symbol))real_address(ENTRY_##symbol))
#define FORWARD(symbol, args) (real_address(ENTRY_##symbol) ? REAL(symbol) args : shim_no_driver())

/* What a wrapper answers when there is no driver to forward to. */
CUresult shim_no_driver(void);

/* What a program gets that asked for @candidate (a row, or -1) and was given @address by the real look-up. @name is only
 * logged. Maps by address, then by row, else returns @address. @ask_again (may be NULL) tells whether the driver gives the
 * same address for a request at the list's own CUDA version: only then is an unknown address known to have a known ABI. */
void *shim_answer(void *address, int candidate, const char *name, bool (*ask_again)(void *arg, void *address), void *arg);

/* A look-up of a driver's name or a call of one found nothing: when a libcuda is loaded that is none (it has no cuInit), say so,
 * once per process and only in a session. True: the loader was asked. Allocates as real_address does. */
bool shim_say_no_driver(void);

/* The driver's own function for a row, whatever other interposers there are. NULL: as above. */
void *own_address(int id);

/* Is this the path of a driver library? */
bool is_libcuda(const char *path);

/* Is a libcuda in this process? Looks for it, and loads the table from it. */
bool shim_driver_loaded(void);

/* Was the object loaded after the driver? False while there is no driver, and for NULL. */
bool shim_comes_after_driver(const struct link_map *map);

/* Copy the counts of look-ups into the page. */
void shim_publish_lookups(struct stats_page *page);

/* ---- dlsym (shim/dlsym.c, the .S files) ---- */

/* The real look-up, as a plain call: for explicit handles only. */
void *shim_real_dlsym(void *handle, const char *name);

/* ---- state of this process (shim/start.c) ---- */

enum shim_state {
	SHIM_NEW,      /* no successful cuInit yet */
	SHIM_STARTING,
	SHIM_ACTIVE,
	SHIM_OFF,      /* not in a session, cannot work here, or a forked child: everything is forwarded */
};

/* Is this process one of a session? Outside one it is a plain process, and nothing is said either. */
bool shim_in_session(void);

/* cuInit has been called by way of this library, if only to fail. Set before the driver is. */
extern bool shim_init_asked; /* atomic */

/* After a cuInit that succeeded, or a call that proves one did. Idempotent; other threads wait for the outcome. */
void shim_start(void);

/* The session's folder, NULL where it cannot be used, which is said. The environment's own text. */
const char *shim_session(void);
/* Have forks handled, once. False: this C library cannot. */
bool shim_register_fork(void);
/* Whatever comes back into this library from a thread of its own (an interposer behind it, a profiler's call-back) is forwarded: locks
 * may be held. First thing on each such thread. */
void shim_own_thread_begins(void);

/* ---- a process without a GPU (shim/controller.c) ---- */

/* What stands for this process in its session while it has no driver, joined on first use; waits up to a second for a coordinator. NULL:
 * no session, or it has a driver by now (shim_hot.lifecycle), or it cannot be. */
struct lifecycle *shim_controller(void);
/* The full start comes: leave. Returns how many of the @phases that events had begun were not answered. */
size_t shim_controller_end(uint32_t phases[CLIENT_EVENTS]);
/* In a forked child: the connection is the parent's. */
void shim_controller_fork_child(void);

/* ---- the guard ---- */

/* Above zero while this thread is inside Sublet's own work, where locks may be held: calls that come back into this library
 * meanwhile (from the driver, a signal handler, another interposer) are forwarded. Not raised around a call of the
 * application that is only passed on: what comes back from there (a profiler's call-back) is served as usual. */
extern SUBLET_TLS int shim_depth;
/* Added while this thread reads the driver's exports: an interposer's dlsym that asks by way of ours finds no driver yet,
 * instead of reading them once more. */
#define SHIM_LOADING (1 << 16)

static inline bool shim_active(void)
{
	if (SUBLET_UNLIKELY(__atomic_load_n(&shim_hot.state, __ATOMIC_ACQUIRE) == SHIM_NEW) && shim_depth == 0)
		shim_start();
	return SUBLET_LIKELY(__atomic_load_n(&shim_hot.state, __ATOMIC_ACQUIRE) == SHIM_ACTIVE) && shim_depth == 0;
}

/* Cancellation is off in between: a thread that ended inside a wait would leave its lock to nobody. */
extern SUBLET_TLS int shim_cancel_state;

static inline void shim_enter(void)
{
	if (shim_depth++ == 0)
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &shim_cancel_state);
}

static inline void shim_leave(void)
{
	if (--shim_depth == 0)
		pthread_setcancelstate(shim_cancel_state, NULL);
}

/* One statement of Sublet's own beside a call that is passed on. */
#define SHIM_OWN(statement)                                                                                            \
	do {                                                                                                           \
		shim_enter();                                                                                          \
		statement;                                                                                             \
		shim_leave();                                                                                          \
	} while (0)

#endif
