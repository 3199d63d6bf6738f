/* policy/source/read_priv.h
 * The parts of the reader for each other. */
#ifndef SUBLET_POLICY_SOURCE_READ_PRIV_H
#define SUBLET_POLICY_SOURCE_READ_PRIV_H

#include "policy/source/keys.h"

/* Is @node a mapping of @place? Complains about another shape, unknown, double and missing keys. True when its keys can
 * be read, though some may be wrong or missing. @key names the value in complaints. */
bool read_place(struct reader *reader, const struct node *node, const char *key, enum policy_place place,
	enum policy_type type);

void read_roles(struct reader *reader, const struct node *node);
void read_phases(struct reader *reader, const struct node *node);
void read_triggers(struct reader *reader, const struct node *node);
void read_budget(struct reader *reader, const struct node *node);
void read_pinned(struct reader *reader, const struct node *node);
void read_objects(struct reader *reader, const struct node *node);
/* @node NULL: the built-in default. */
void read_defaults(struct reader *reader, const struct node *node);
void read_share(struct reader *reader, const struct node *node);

#endif
