/* shim/sublet.h
 * What a program may ask of Sublet by itself. No program has to: these are for what nothing outside can see. A program that
 * also runs without Sublet finds them with dlsym(RTLD_DEFAULT, ...), and does without where that gives NULL. */
#ifndef SUBLET_SHIM_SUBLET_H
#define SUBLET_SHIM_SUBLET_H

#ifdef __cplusplus
extern "C" {
#endif

/* From now on, allocations that the calling thread makes carry @tag, which policies match with `tag:`. NUL-ended, copied; NULL or
 * empty: none. The tag ends with the thread. Returns 0; 1 when it cannot be kept (out of memory, or more distinct tags than
 * there is room for), and then the tag is as before. Calls no driver, may be called before cuInit. Any thread. */
int sublet_tag(const char *tag);

/* This process has arrived at the phase called @name of the session's policy, which has a trigger `{enter: NAME, command: true}` for
 * its role. Returns when the phase has begun for the whole session: as many of the role have arrived as the policy's quorum asks
 * for, and what the phase needs is on the device. Call it without locks that other threads need, and from Python by ctypes.CDLL,
 * which gives up the GIL. Returns 0, also where the phase was in force already; 1 when it does not begin, and one line in the log
 * says why: no session, no such phase, or the barrier was given up. The old phase is in force then, and nothing is lost. A process that
 * has not called cuInit begins phases as `sublet phase` does: it waits for no other process of its role, and none waits for it. */
int sublet_phase(const char *name);

#ifdef __cplusplus
}
#endif

#endif
