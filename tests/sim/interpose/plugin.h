/* tests/sim/interpose/plugin.h
 * What plugin.c has; programs get it by dlsym. */
#ifndef SUBLET_TESTS_INTERPOSE_PLUGIN_H
#define SUBLET_TESTS_INTERPOSE_PLUGIN_H

#include "work.h"

#pragma GCC visibility push(default)
int plugin_symbol(void);
int cu_plugin_symbol(void);
int cudnnCreate(void);
/* 24 when it finds both of its own symbols in the scope that it has by default. */
int plugin_finds_itself(void);
/* dlsym with the plugin as the asker. */
void *plugin_lookup(void *handle, const char *symbol);
void plugin_work(void);
int plugin_init(void);
int plugin_alloc(CUdeviceptr *address, size_t bytes);
int plugin_free(CUdeviceptr address);
int plugin_destroy(CUcontext context);
#pragma GCC visibility pop

#define PLUGIN(handle, name) ((__typeof__(&name))dlsym(handle, #name))

#endif
