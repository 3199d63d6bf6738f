/* lifecycle/drain.c
 * Takes no lock of its own; see contexts.h and captures.h for theirs. */
#include "lifecycle/drain.h"

#include "lifecycle/lifecycle.h"

CUresult drain_mark(struct lifecycle *lc, struct context_mark *marks, size_t capacity, uint32_t *ret_count)
{
	size_t count = 0;
	CUresult result;

	if (!captures_exclude(&lc->captures))
		return CUDA_ERROR_NOT_READY;
	result = contexts_mark(&lc->contexts, marks, capacity, &count);
	captures_admit(&lc->captures);
	*ret_count = (uint32_t)count;
	return result;
}

CUresult drain_passed(struct lifecycle *lc, struct context_mark *marks, uint32_t *count)
{
	while (*count) {
		struct context_mark *last = &marks[*count - 1];
		CUresult result = context_mark_query(&lc->contexts, last);

		if (result == CUDA_ERROR_NOT_READY)
			return result;
		context_mark_give_back(&lc->contexts, last);
		--*count;
		if (result != CUDA_SUCCESS && !context_says_lost(result)) {
			drain_give_up(lc, marks, count);
			return CUDA_ERROR_NOT_SUPPORTED;
		}
	}
	return CUDA_SUCCESS;
}

void drain_give_up(struct lifecycle *lc, struct context_mark *marks, uint32_t *count)
{
	while (*count)
		context_mark_give_back(&lc->contexts, &marks[--*count]);
}
