/* tools/trace_groups.h
 * The allocations of a trace, those of one process, size and caller together. */
#ifndef SUBLET_TOOLS_TRACE_GROUPS_H
#define SUBLET_TOOLS_TRACE_GROUPS_H

#include "tools/inventories.h"
#include "tools/trace_model.h"

struct trace_group {
	const struct trace_process *process;
	uint32_t object; /* the last one's, in the model's `objects` */
	uint32_t site;	 /* number of a text of the process, or TRACE_NO_TEXT */
	uint64_t phases; /* in which they were made: a bit for each of the first 64 */
	struct inventory_group counts;
};

struct trace_groups {
	struct trace_group *groups;
	size_t count, room;
	struct map by_key;
};

/* Read all of @model. False: memory ran out. Release in any case. */
bool trace_groups_take(struct trace_groups *groups, struct trace_model *model);
void trace_groups_release(struct trace_groups *groups);

/* As `sublet ctl objects` gathers them of living processes. False: memory ran out. inventories_release in any case. */
bool trace_groups_as_inventories(const struct trace_groups *groups, const struct trace_model *model, struct inventories *ret);

#endif
