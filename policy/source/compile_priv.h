/* policy/source/compile_priv.h
 * The parts of the compiler for each other. */
#ifndef SUBLET_POLICY_SOURCE_COMPILE_PRIV_H
#define SUBLET_POLICY_SOURCE_COMPILE_PRIV_H

#include "policy/source/compile.h"

/* One growing list per section. */
struct builder {
	const struct policy_tree *tree;
	struct arena *arena;
	struct policy_header header;
	void *lists[POLICY_SECTION_COUNT];
	size_t counts[POLICY_SECTION_COUNT];
	/* compile.c: offsets of the texts of patterns, by their hash; 0 is free */
	uint32_t *pattern_texts, slots, slots_used;
};

/* A new element at the end of @section, zeroed; NULL when memory ran out (the arena remembers). */
void *builder_add(struct builder *b, enum policy_section section);

/* compile_index.c: after the rules. */
void add_index(struct builder *b);
/* compile_grams.c: the gram table; the rules that are not in it go into the set @always. */
void add_grams(struct builder *b, uint64_t *always);

#endif
