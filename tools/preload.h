/* tools/preload.h
 * What a program's environment must say so that the loader brings Sublet in: where the library and the simulated driver
 * are, and the values of LD_PRELOAD and LD_LIBRARY_PATH. Strings returned are the caller's to free. */
#ifndef SUBLET_TOOLS_PRELOAD_H
#define SUBLET_TOOLS_PRELOAD_H

#include <stdbool.h>

/* Path of libsublet.so: SUBLET_LIB (tests), beside this program in the build folder, below its prefix, in the folder
 * meson was given. NULL after one line that says what is missing. */
char *preload_find_library(void);

/* Folder of the simulated driver's private libcuda.so.1, looked for in the same places. NULL after one line. */
char *preload_find_sim_folder(void);

/* LD_PRELOAD with @library in it once: before whatever @old names (may be NULL), but after the runtimes of sanitizers,
 * which refuse to start unless they come first. NULL when memory ran out. */
char *preload_compose(const char *old, const char *library);

/* Is @path that of a libsublet.so, this one or another? */
bool preload_is_library(const char *path);

/* LD_LIBRARY_PATH with @folder first. NULL when memory ran out. */
char *preload_library_path(const char *old, const char *folder);

#endif
