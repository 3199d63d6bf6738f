/* lifecycle/callers/cxx_name.h
 * The qualified name in a mangled C++ name, as people write it: `c10::cuda::CUDACachingAllocator::raw_alloc`. Without parameters and
 * template arguments, so that a rule outlives a change of theirs.
 * Not by __cxa_demangle: it is there only where libstdc++ is, so that one function had two names, and takes up to 70 KiB of a stack
 * that belongs to somebody else. */
#ifndef SUBLET_LIFECYCLE_CALLERS_CXX_NAME_H
#define SUBLET_LIFECYCLE_CALLERS_CXX_NAME_H

#include <stdbool.h>
#include <stddef.h>

/* False when @mangled is no C++ name, has a form that is not understood here, or is longer than @room: then it is best shown as it
 * is. Allocates nothing; its depth is bounded. Source: Itanium C++ ABI, 5.1. */
bool cxx_name(const char *mangled, char *ret, size_t room);

#endif
