/* base/attributes.h
 * Compiler attributes under short names, so that call sites read as C. */
#ifndef SUBLET_BASE_ATTRIBUTES_H
#define SUBLET_BASE_ATTRIBUTES_H

#define SUBLET_PRINTF(fmt, first) __attribute__((format(printf, fmt, first)))
#define SUBLET_EXPORT __attribute__((visibility("default")))
#define SUBLET_HIDDEN __attribute__((visibility("hidden")))
/* Thread-local state of the preloaded library: initial-exec, because the general model may allocate inside a wrapper.
 * The surplus the loader keeps for such libraries is small (glibc: 1,664 bytes for all), so every variable counts. */
#define SUBLET_TLS __thread __attribute__((tls_model("initial-exec")))
#define SUBLET_LIKELY(x) __builtin_expect(!!(x), 1)
#define SUBLET_UNLIKELY(x) __builtin_expect(!!(x), 0)

#endif
