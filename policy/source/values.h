/* policy/source/values.h
 * From nodes to values: each function reads one type of policy/types.def, complains at its place when it cannot, and
 * says what to write instead. On false the result is untouched, but for lists, which keep their readable elements. */
#ifndef SUBLET_POLICY_SOURCE_VALUES_H
#define SUBLET_POLICY_SOURCE_VALUES_H

#include "policy/source/document.h"
#include "policy/source/tree.h"

#define TYPE(name, written, schema) TYPE_##name,
enum policy_type {
#include "policy/types.def"
	POLICY_TYPE_COUNT
};

struct reader {
	struct policy_tree *tree;
	struct diagnostics *diagnostics;
	struct arena *arena;
};

/* What a person is told to write for @type. */
const char *type_written(enum policy_type type);

/* `'KEY' cannot be ...; write ...` at @node. Returns false. */
bool complain_type(struct reader *reader, const struct node *node, const char *key, enum policy_type type);

bool value_name(struct reader *reader, const struct node *node, const char *key, struct word *ret_name);
/* TYPE_BYTES or TYPE_AMOUNT. */
bool value_amount(struct reader *reader, const struct node *node, const char *key, enum policy_type type,
	struct amount *ret_amount);
bool value_duration(struct reader *reader, const struct node *node, const char *key, uint64_t *ret_ns);
bool value_flag(struct reader *reader, const struct node *node, const char *key, struct flag *ret_flag);
bool value_count(
	struct reader *reader, const struct node *node, const char *key, enum policy_type type, uint32_t *ret_count);
/* One of the NULL-ended @words; its number. */
bool value_word(struct reader *reader, const struct node *node, const char *key, const char *const *words,
	enum policy_type type, uint32_t *ret_number);

/* A scalar, or a list of scalars. */
bool value_references(struct reader *reader, const struct node *node, const char *key, enum policy_type type,
	struct references *ret_references);
/* Exactly one. */
bool value_reference(struct reader *reader, const struct node *node, const char *key, enum policy_type type,
	struct references *ret_reference);
bool value_patterns(struct reader *reader, const struct node *node, const char *key, enum policy_type type,
	struct patterns *ret_patterns);
/* TYPE_SIZE_RANGES, TYPE_COUNT_RANGES or TYPE_DEVICE_RANGES. */
bool value_ranges(struct reader *reader, const struct node *node, const char *key, enum policy_type type,
	struct ranges *ret_ranges);
bool value_variables(struct reader *reader, const struct node *node, const char *key, struct variables *ret_variables);

/* Read one range of text; false when it is none. For facts given by hand too. */
bool range_parse(const char *text, enum policy_type type, struct policy_range *ret_range);
/* A number in digits alone. */
bool number_parse(const char *text, uint64_t *ret_number);

/* The driver call of which @symbol (`cuMemAlloc_v2_ptds`) is a version, NULL when it is none: symbols carry an ABI
 * version, a policy names the call. */
const char *api_without_suffix(const char *symbol);

/* NULL-ended word lists of policy/words.def. */
extern const char *const class_words[],
	*const otherwise_words[], *const api_words[], *const access_words[], *const quorum_words[], *const free_words[];

#endif
