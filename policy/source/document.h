/* policy/source/document.h
 * A YAML file as a tree in which every key and value knows its line and column. Made by libyaml's parser; what the
 * policy language does without (anchors, tags, several documents) is complained about here. */
#ifndef SUBLET_POLICY_SOURCE_DOCUMENT_H
#define SUBLET_POLICY_SOURCE_DOCUMENT_H

#include "policy/source/diagnostics.h"

enum {
	DOCUMENT_BYTES_MAX = 4 << 20,
	DOCUMENT_DEPTH_MAX = 16,  /* the language needs 6 */
	DOCUMENT_TEXT_MAX = 1024, /* of one scalar */
};

enum node_kind {
	NODE_SCALAR,
	NODE_LIST,
	NODE_MAP,
};

struct node {
	enum node_kind kind;
	struct where where;
	const char *text;	   /* scalar */
	bool is_refused;	   /* complained about already: whatever it was meant to be is not missed again */
	bool is_quoted;		   /* scalar in quotes, or a block: never a number, a truth value or nothing */
	const struct node *key;	   /* of a value in a mapping: its key, a scalar */
	struct node *first, *last; /* list elements, or the values of a mapping */
	size_t count;
	struct node *next; /* in the parent */
};

/* Read @bytes of @source. NULL when there is no tree to go on with; then a complaint says why (memory: the arena has
 * failed). A complaint may have been made though a tree is returned. Nodes live in @diagnostics' arena. */
struct node *document_read(const char *source, size_t bytes, struct diagnostics *diagnostics);

/* The value of @key in mapping @map, NULL when it is not there. */
const struct node *node_get(const struct node *map, const char *key);
/* Nothing was written: `key:` alone, `~` or null. */
bool node_is_null(const struct node *node);

#endif
