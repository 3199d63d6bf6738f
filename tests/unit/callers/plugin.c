/* tests/unit/callers/plugin.c
 * A library whose functions lie on a stack that is read. Made several times: PREFIX begins the names, so that two of them have the same
 * code at the same places under other names. */
#include <signal.h>
#include <stddef.h>

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define NAMED(name) JOIN(PREFIX, name)
#define EXPORTED __attribute__((visibility("default"), noinline))
#define ALONE __attribute__((noinline, noclone))

typedef void (*reader)(void *arg);

static volatile int after; /* what is done behind a call keeps it from being a jump */

EXPORTED void NAMED(outer)(reader read, void *arg);
EXPORTED void NAMED(deep)(reader read, void *arg, int depth);
EXPORTED void NAMED(interrupted)(int signal);
EXPORTED void NAMED(realigned)(reader read, void *arg);

static ALONE void NAMED(inner)(reader read, void *arg)
{
	read(arg);
	after++;
}

static ALONE void NAMED(middle)(reader read, void *arg)
{
	NAMED(inner)(read, arg);
	after++;
}

void NAMED(outer)(reader read, void *arg)
{
	NAMED(middle)(read, arg);
	after++;
}

void NAMED(deep)(reader read, void *arg, int depth)
{
	if (depth == 0)
		read(arg);
	else
		NAMED(deep)(read, arg, depth - 1);
	after++;
}

void NAMED(interrupted)(int signal)
{
	raise(signal);
	after++;
}

/* Its frame is found by an expression or by another register than the usual ones. */
void NAMED(realigned)(reader read, void *arg)
{
	char room[64] __attribute__((aligned(64)));

	__asm__ volatile("" : : "r"(room) : "memory");
	read(arg);
	after++;
}

/* As a C++ compiler would name it. */
void NAMED(mangled)(reader read, void *arg) __asm__("_ZN3c104cuda20CUDACachingAllocator9raw_allocEm");
EXPORTED void NAMED(mangled)(reader read, void *arg)
{
	read(arg);
	after++;
}

#ifdef AT_LOAD
extern void callers_at_load(void);

static __attribute__((constructor)) void NAMED(constructor)(void)
{
	callers_at_load();
	after++;
}
#endif
