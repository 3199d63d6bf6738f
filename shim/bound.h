/* shim/bound.h
 * Finds objects of this process whose calls go past this library: the loader has put the driver's own address where they
 * call an entry point that is wrapped here, as RTLD_DEEPBIND has it. What such an object frees of Sublet's memory gets the
 * driver's refusal, so it is worth a line; nothing can be done about it. */
#ifndef SUBLET_SHIM_BOUND_H
#define SUBLET_SHIM_BOUND_H

/* Says each such object once, at level warn; returns how many were said so far. Reads the tables of all loaded objects
 * with the loader's lock held, calls nothing: for the start and the end of the process, not for the path of a call. Sees
 * what the loader resolved, not pointers that a program keeps in data of its own. */
unsigned bound_report(void);

#endif
