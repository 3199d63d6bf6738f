/* lifecycle/callers/native.h
 * Who calls, by the machine's own stack: addresses, texts for the policy's key `stack`, libraries for its key `library`.
 * (Native memory, DESIGN.md 2, is another thing: lifecycle/native.h.)
 * Made for the middle of an allocation, in whatever state the caller is: no lock of the loader is taken (but see objects.h), no
 * signal is blocked, no thread-local memory used, no memory read that might not be there; errno stays. A frame whose function left
 * no call frame information ends the stack. Any thread, signal handlers and forked children too. */
#ifndef SUBLET_LIFECYCLE_CALLERS_NATIVE_H
#define SUBLET_LIFECYCLE_CALLERS_NATIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct errinfo;

enum { NATIVE_FRAMES_MAX = 48 };

/* Before anything else here answers. May wait for the loader: from Sublet's own thread, never in an allocation. Fails with
 * UNSUPPORTED where the kernel does not let a process read itself (a filter of system calls), or with NOMEM; then every stack
 * is empty, and what failed may be asked for again. */
bool native_prepare(struct errinfo *reterr);

/* Return addresses of the calling thread outside libsublet.so, innermost first, into @ret_ips; of an interrupted frame (signal) the
 * address behind the first byte of the instruction, so that one less is always inside the function. Returns their number, @room
 * and NATIVE_FRAMES_MAX at most. Reads headers and allocates for addresses met for the first time; takes no lock. */
size_t native_frames(uint64_t *ret_ips, size_t room);

/* The same with a text for each, interned: `library:function`. library: last part of the path of the object's file; function: the
 * symbol that covers the address, of C++ the qualified name without parameters and template arguments; `+0x...` from the load base
 * where there is none. NULL where texts_intern has no room. For an address met for the first time symbols.h counts.
 * Cheaper than asking for addresses and texts one by one, as all objects are checked once. @ret_ips may be NULL. */
size_t native_stack(uint64_t *ret_ips, const char **ret_texts, size_t room);

/* The text of one address as native_frames gives it; `?` outside every object. */
const char *native_text(uint64_t ip);

/* Path of the object that a return address belongs to, interned; NULL when there is none. */
const char *native_library(uint64_t ip);

/* The libraries that the policy's key `library` speaks of: [0] the one that @return_address belongs to, and, where that is
 * libcudart, [1] the one that called it. Returns how many there are: 0, 1 or 2. Reads the stack only for the second. */
size_t native_callers(void *return_address, const char *ret_paths[2]);

/* Frames of the object that holds this address are left out. Unit tests, which have Sublet's code and theirs in one, set it NULL. */
extern const void *native_own_code;

#endif
