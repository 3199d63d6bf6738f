/* lifecycle/kernels.h
 * Launches as events that begin phases (`kernel:` of a trigger): the first one since the last phase change of a kernel of that name. While the
 * policy asks for any in a process of this role GATE_KERNELS is set, every launch takes the slow path of its wrapper, and comes here
 * before the gate, so that it waits for what it begins. No launch comes here else.
 *
 * What the driver calls a kernel is asked once per handle and kept in a table that is read without a lock: a handle in the upper 48
 * bits, which phase it begins in the lower 16. Handles are used again, so it is emptied when code is unloaded and when another policy
 * comes. Two handles that meet in it cost a question each time.
 * Neighbours: client_events.c tells the session, policy/roles.h decides. */
#ifndef SUBLET_LIFECYCLE_KERNELS_H
#define SUBLET_LIFECYCLE_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct lifecycle;

enum { KERNELS_SEEN = 4096 };

struct kernels {
	uint64_t seen[KERNELS_SEEN]; /* atomic; 0: free. Written under RANK_KERNELS */
	uint64_t fired;	   /* bit per phase whose kernel was launched since the last change; atomic */
	uint64_t again_ns; /* when those of `fired` may be tried again, as one was refused; 0: at the next change; atomic */
	bool said;	   /* that no name can be had; atomic */
};

/* @kernel (a CUfunction or a CUkernel) is about to be launched. On a thread of the application, no lock held, inside the guard
 * (shim/shim.h). Takes RANK_KERNELS, RANK_CAPTURE, RANK_CLIENT; asks the driver for a name that is not known. Waits for nobody. Keeps errno. */
void kernels_launched(struct lifecycle *lc, const void *kernel);

/* The client has another policy, which is in use already. No lock held. */
void kernels_policy_came(struct lifecycle *lc);
/* The phase has changed, or it is not known any more what was told. Any lock may be held. */
void kernels_phase_changed(struct lifecycle *lc);
/* A phase was refused; what has fired may fire again when @pause_ns are over. Any lock may be held. */
void kernels_phase_refused(struct lifecycle *lc, uint64_t pause_ns);

/* Code is about to be unloaded, or a context to end. Takes RANK_KERNELS. No driver call. */
void kernels_gone(struct lifecycle *lc);

/* What the driver calls @kernel; NULL: nothing. Caller holds RANK_KERNELS, which keeps the code loaded. */
const char *kernel_name(struct lifecycle *lc, const void *kernel);

#endif
