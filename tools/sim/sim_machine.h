/* tools/sim/sim_machine.h
 * The simulated machine: how much memory its devices have, which pieces of physical memory exist, and which processes hold
 * them. With SUBLET_SIM_MACHINE this is a file that all processes of the machine map; without, memory of this process.
 *
 * A piece lives as long as a live process holds it, or any process of this user has its memfd open (an exported fd in a
 * process that never called cuInit counts). Processes that died are noticed by whoever looks next.
 * Neighbours: sim_phys.c gives pieces their pages. All functions take the machine's own robust mutex; the caller holds sim_lock. */
#ifndef SUBLET_TOOLS_SIM_MACHINE_H
#define SUBLET_TOOLS_SIM_MACHINE_H

#include "tools/sim/sim_priv.h"

#define SIM_HOST_DEVICE (-1) /* device number of host memory */

/* Join the machine the configuration names. Fails with OPERATING_SYSTEM when its folder cannot be used. */
CUresult sim_machine_attach(void);
void sim_machine_detach(void);

int sim_machine_devices(void);
uint64_t sim_machine_capacity(int device);
/* Bytes in use on @device by all processes, after forgetting the dead. */
uint64_t sim_machine_used(int device);
size_t sim_machine_processes(void);
/* Goes into the name of every memfd: pieces of other machines are refused. */
uint64_t sim_machine_tag(void);

/* Charge @bytes on @device and enter a new piece held by this process. OUT_OF_MEMORY when there is no room. */
CUresult sim_machine_create(int device, uint64_t bytes, uint64_t *ret_id);
/* This process now holds piece @id (an import). A piece the table has lost is entered again, over capacity if need be: its
 * pages exist. */
CUresult sim_machine_hold(uint64_t id, int device, uint64_t bytes);
/* This process no longer holds piece @id, and has closed its fd. */
void sim_machine_drop(uint64_t id);

#endif
