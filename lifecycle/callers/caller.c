/* lifecycle/callers/caller.c
 * What is wanted of a caller, found piece by piece. */
#include "lifecycle/callers/caller.h"

#include <errno.h>
#include <string.h>
#include <sys/prctl.h>

#include "base/errors.h"
#include "base/log.h"
#include "lifecycle/callers/foreign.h"
#include "lifecycle/callers/texts.h"
#include "lifecycle/gate.h"

enum {
	THREAD_NAME_BYTES = 16,
	PAGE = 4096, /* the smallest there is */
	/* What the readers need of the stack, and the allocation behind them: a deep chain of calls and room for two more. */
	NATIVE_STACK_BYTES = 6 * PAGE,
	PYTHON_STACK_BYTES = 8 * PAGE,
};

unsigned caller_prepare(unsigned wants)
{
	struct errinfo error;

	if (wants & CALLER_PYTHON)
		python_prepare();
	/* libraries are known from a stack, too, and by the same means */
	if ((wants & (CALLER_STACK | CALLER_LIBRARY)) && !native_prepare(&error)) {
		log_limited(LOG_SESSION, LOG_WARN, WHOSE_NONE, "%s; rules that ask for 'stack' or 'library' match nothing here", error.text);
		wants &= ~(unsigned)(CALLER_STACK | CALLER_LIBRARY);
	}
	return wants;
}

static const char *thread_name(void)
{
	char name[THREAD_NAME_BYTES + 1] = "";

	return prctl(PR_GET_NAME, name) == 0 && name[0] ? texts_intern(name, strlen(name)) : NULL;
}

/* Without those that there was no room for. */
static size_t known(const char **texts, size_t count)
{
	size_t kept = 0;

	for (size_t i = 0; i < count; i++)
		if (texts[i])
			texts[kept++] = texts[i];
	return kept;
}

/* Has the calling thread @bytes of its stack left? Threads may be made with 16 KiB, and end with a page that faults: a byte of each
 * page tells. The first thread's stack grows when asked so. */
static bool has_stack(size_t bytes)
{
	const uint64_t from = (uintptr_t)__builtin_frame_address(0);
	struct iovec pieces[PYTHON_STACK_BYTES / PAGE];
	char read[PYTHON_STACK_BYTES / PAGE];
	const size_t count = bytes / PAGE;

	for (size_t i = 0; i < count; i++)
		pieces[i] = foreign_piece(from - (i + 1) * PAGE, 1);
	return foreign_gather(read, pieces, count) == count;
}

void caller_find(unsigned wants, void *return_address, struct caller *ret)
{
	const int error_before = errno;

	ret->library[0] = ret->library[1] = ret->thread = ret->tag = NULL;
	ret->stack_count = ret->python_count = 0;
	if ((wants & CALLER_PYTHON) && !has_stack(PYTHON_STACK_BYTES))
		wants &= ~(unsigned)CALLER_PYTHON;
	if ((wants & (CALLER_STACK | CALLER_LIBRARY)) && !(wants & CALLER_PYTHON) && !has_stack(NATIVE_STACK_BYTES))
		wants &= ~(unsigned)(CALLER_STACK | CALLER_LIBRARY);
	if (wants & CALLER_LIBRARY)
		native_callers(return_address, ret->library);
	if (wants & CALLER_THREAD)
		ret->thread = thread_name();
	if (wants & CALLER_TAG)
		ret->tag = gate_tag();
	if (wants & CALLER_STACK)
		ret->stack_count = known(ret->stack, native_stack(NULL, ret->stack, NATIVE_FRAMES_MAX));
	if (wants & CALLER_PYTHON)
		ret->python_count = python_frames(ret->python, PYTHON_FRAMES_MAX);
	errno = error_before;
}

bool caller_set_tag(const char *tag)
{
	const char *text = tag && tag[0] ? texts_intern(tag, strlen(tag)) : NULL;

	if (tag && tag[0] && !text)
		return false;
	return gate_set_tag(text);
}
