/* policy/source/tree.h
 * A policy file as types, each value with its place. Made by read.h, completed by check.h (references get their
 * numbers, objects their wants), turned into a block by compile.h. Everything lives in the arena of the source. */
#ifndef SUBLET_POLICY_SOURCE_TREE_H
#define SUBLET_POLICY_SOURCE_TREE_H

#include "policy/block.h"
#include "policy/match.h"
#include "policy/source/diagnostics.h"

/* The mappings of the language; keys.def says which key may stand in which. */
enum policy_place {
	TOP = 1u << 0,
	ROLE = 1u << 1,
	PHASE = 1u << 2,
	TRIGGER = 1u << 3,
	OBJECT = 1u << 4,
	MATCH = 1u << 5,
	SHARE_GROUP = 1u << 6,
	BARRIER = 1u << 7,
	DEFAULTS = 1u << 8,
};
enum { POLICY_PLACE_COUNT = 9 };

struct word {
	const char *text;
	struct where where;
};

/* A name that stands for something defined elsewhere in the file. */
struct reference {
	const char *text;
	struct where where;
	uint32_t number; /* check: what it stands for, POLICY_NONE when unknown */
};

struct references {
	struct reference *list;
	size_t count;
	struct where where; /* line 0: the key is not given */
};

struct patterns {
	struct word *list;
	size_t count;
	struct where where;
};

struct ranges {
	struct policy_range *list;
	size_t count;
	struct where where;
};

struct variables {
	struct {
		struct word name;
		struct patterns patterns;
	} * list;
	size_t count;
	struct where where;
};

struct amount {
	struct policy_amount value;
	struct where where; /* line 0: not given */
};

struct flag {
	bool value;
	struct where where;
};

struct role_tree {
	struct word name;
	struct patterns command, executable;
	struct variables environment;
	struct amount budget;
};

struct phase_tree {
	struct word name;
	struct references roles, idle;
	uint64_t roles_set, idle_set; /* check */
};

struct trigger_tree {
	struct where where;
	struct references enter; /* one */
	struct references roles;
	struct patterns nvtx_push, nvtx_pop, kernel;
	struct variables environment;
	struct flag command;
	uint64_t roles_set; /* check */
};

struct match_tree {
	struct where where;
	struct references roles, phases;
	struct patterns apis;
	struct ranges sizes, orders, devices;
	struct patterns library, stack, python, thread, tag;
	/* check: as the block has them */
	uint64_t roles_set, phases_set, devices_set;
	uint32_t apis_set;
};

/* `resident`: one of the words, or phases with a want each. */
enum resident_form {
	RESIDENT_ALL,
	RESIDENT_NONE,
	RESIDENT_DEMAND,
	RESIDENT_PHASES,
};

struct resident_tree {
	enum resident_form form;
	struct references phases;
	uint8_t *wants; /* enum policy_want, one per phase named */
	struct where where;
	bool is_unreadable; /* said so; what it means is not known */
	bool is_alone;	    /* one value, no list: may have been meant as a word */
};

struct object_tree {
	struct word name;
	enum policy_rule_kind kind;
	struct match_tree match;
	enum policy_class class;
	struct where class_where; /* line 0: not readable, class-dependent checks are left out */
	struct resident_tree resident;
	struct references producer, consumer; /* one each */
	enum policy_otherwise otherwise;
	struct where otherwise_where;
	struct flag exclusive, prefetch;
	struct amount window, expect;
	struct patterns scannable;
	/* check */
	struct policy_wanted wants[POLICY_PHASES_MAX + 1];
	uint32_t group;
	bool has_unknown; /* a phase that is not there, an unreadable `resident`: what the object wants is not known */
};

struct group_tree {
	struct word name;
	struct references objects, owner, writers;
	enum policy_access access;
	struct flag trust;
	uint64_t writers_set; /* check */
};

struct policy_tree {
	struct arena *arena;
	struct word session;
	struct amount capacity, reserve, host_pool, min_size;
	uint32_t devices; /* 0: not given */
	enum policy_free free;
	struct flag manage_async;
	struct role_tree *roles;
	struct phase_tree *phases;
	struct trigger_tree *triggers;
	struct object_tree *objects; /* pinned, then objects, then one default, as the block has its rules */
	struct group_tree *groups;
	size_t roles_count, phases_count, triggers_count, objects_count, groups_count;
	enum policy_quorum quorum;
	uint32_t quorum_clients;
	uint64_t timeout_ns;
};

#endif
