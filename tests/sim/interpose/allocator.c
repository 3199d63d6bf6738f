/* tests/sim/interpose/allocator.c
 * A preloaded allocator that finds the next one with dlsym when it is first asked (jemalloc#329, #443), and counts. What is
 * asked of it meanwhile comes from a small block; no answer at all if dlsym asks it for too much. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void *(*next_malloc)(size_t), *(*next_calloc)(size_t, size_t), *(*next_realloc)(void *, size_t);
static void (*next_free)(void *);
static int starting;
static unsigned long count, early;
static char block[4096] __attribute__((aligned(16)));
static size_t used;

static void start(void)
{
	starting = 1;
	next_calloc = (void *(*)(size_t, size_t))dlsym(RTLD_NEXT, "calloc");
	next_realloc = (void *(*)(void *, size_t))dlsym(RTLD_NEXT, "realloc");
	next_free = (void (*)(void *))dlsym(RTLD_NEXT, "free");
	next_malloc = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");
	starting = 0;
}

static void *from_block(size_t bytes)
{
	void *taken = block + used;

	early++;
	bytes = (bytes + 15) & ~(size_t)15;
	if (bytes > sizeof(block) - used)
		return NULL;
	used += bytes;
	return taken;
}

#pragma GCC visibility push(default)
void *malloc(size_t bytes);
void *calloc(size_t number, size_t bytes);
void *realloc(void *old, size_t bytes);
void free(void *old);

void *malloc(size_t bytes)
{
	count++;
	if (!next_malloc && !starting)
		start();
	return starting ? from_block(bytes) : next_malloc(bytes);
}

void *calloc(size_t number, size_t bytes)
{
	count++;
	if (!next_malloc && !starting)
		start();
	return starting ? from_block(number * bytes) : next_calloc(number, bytes);
}

void *realloc(void *old, size_t bytes)
{
	count++;
	if (!next_malloc && !starting)
		start();
	return next_realloc(old, bytes);
}

void free(void *old)
{
	uintptr_t at = (uintptr_t)old;

	if (at >= (uintptr_t)block && at < (uintptr_t)block + sizeof(block))
		return;
	if (next_free)
		next_free(old);
}
#pragma GCC visibility pop

__attribute__((destructor)) static void tell(void)
{
	char line[64];
	int length = snprintf(line, sizeof(line), "allocator: %s, %lu early\n", count ? "asked" : "never asked", early);

	if (write(STDERR_FILENO, line, (size_t)length) < 0)
		_exit(1);
}
