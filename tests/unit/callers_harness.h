/* tests/unit/callers_harness.h
 * Loads libraries made of callers/plugin.c and reads the stack from within their functions. Threads and children do not assert: cmocka
 * jumps, which only its own thread may; they leave what they read in a struct stack. */
#ifndef SUBLET_TESTS_UNIT_CALLERS_HARNESS_H
#define SUBLET_TESTS_UNIT_CALLERS_HARNESS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "base/errors.h"
#include "lifecycle/callers/native.h"
#include "lifecycle/callers/objects.h"

typedef void (*reader)(void *arg);

struct stack {
	size_t count;
	uint64_t ips[NATIVE_FRAMES_MAX];
	const char *texts[NATIVE_FRAMES_MAX];
};

/* Behind a call, which would else be a jump where it is the last thing a function does. */
#define NO_JUMP() __asm__ volatile("" : : : "memory")

/* A reader: @arg is a struct stack. */
static __attribute__((noinline)) void read_stack(void *arg)
{
	struct stack *stack = arg;

	stack->count = native_stack(stack->ips, stack->texts, NATIVE_FRAMES_MAX);
}

/* Number of the frame whose text is @text, at @from or behind; -1 when there is none. */
static inline int frame_at(const struct stack *stack, const char *text, int from)
{
	for (size_t i = (size_t)from; i < stack->count; i++) {
		if (stack->texts[i] && strcmp(stack->texts[i], text) == 0)
			return (int)i;
	}
	return -1;
}

static inline void print_stack(const struct stack *stack)
{
	for (size_t i = 0; i < stack->count; i++)
		print_error("#%zu %s\n", i, stack->texts[i] ? stack->texts[i] : "(none)");
}

/* The frames @text... (ended by NULL) stand one behind the other. Returns the number of the first. */
static inline int assert_frames(const struct stack *stack, const char *first, ...)
{
	int start = frame_at(stack, first, 0), at = start;
	const char *text = first;
	va_list texts;

	va_start(texts, first);
	for (; text; text = va_arg(texts, const char *), at++) {
		if (start < 0 || frame_at(stack, text, at) != at) {
			print_stack(stack);
			va_end(texts);
			fail_msg("no '%s' as frame %d", text, at);
		}
	}
	va_end(texts);
	return start;
}

static inline void *opened(const char *path)
{
	void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);

	if (!handle)
		fail_msg("%s", dlerror());
	return handle;
}

/* The library @name in the folder of the libraries for these tests. */
static inline void *opened_plugin(const char *name)
{
	const char *folder = getenv("SUBLET_TEST_PLUGINS");
	char path[4096];

	assert_non_null(folder);
	snprintf(path, sizeof(path), "%s/%s", folder, name);
	return opened(path);
}

static inline void *function_of(void *handle, const char *name)
{
	void *function = dlsym(handle, name);

	if (!function)
		fail_msg("%s", dlerror());
	return function;
}

/* Reads the stack below @function of the library, which takes a reader and its argument. */
static inline void read_below(void *handle, const char *function, struct stack *ret)
{
	((void (*)(reader, void *))function_of(handle, function))(read_stack, ret);
}

static inline int callers_setup(void **state)
{
	struct errinfo failure;

	native_own_code = NULL; /* here the library's code and the tests' are one object */
	if (native_prepare(&failure))
		return 0;
	print_error("%s\n", failure.text);
	return -1;
}

#endif
