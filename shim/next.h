/* shim/next.h
 * The definition of a name that comes after this library in load order: what dlsym(RTLD_NEXT) would answer, found without
 * calling dlsym. Needed because this library is itself what `dlsym` and `dlvsym` resolve to, its own calls included, and
 * because the list of glibc's version strings differs between architectures. Other interposers further down are found
 * like any library, so chains of them keep working. */
#ifndef SUBLET_SHIM_NEXT_H
#define SUBLET_SHIM_NEXT_H

/* NULL when no later object defines @name. No allocation, takes only the loader's own lock; usable at any time, also
 * before constructors have run. */
void *next_definition(const char *name);

#endif
