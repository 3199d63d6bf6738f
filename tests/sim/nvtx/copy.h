/* tests/sim/nvtx/copy.h
 * What a shared object with a copy of NVTX of its own offers. */
#ifndef COPY_H
#define COPY_H

int copy_push(const char *name);
int copy_pop(void);

#endif
