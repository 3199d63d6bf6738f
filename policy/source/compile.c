/* policy/source/compile.c
 * Sections grow as lists, then are laid one behind the other. Everything is zeroed memory of the arena, so the padding
 * inside rows is zero too and equal policies give equal blocks. */
#include "policy/source/compile.h"

#include <string.h>

#include "policy/source/compile_priv.h"

static const uint32_t element_bytes[POLICY_SECTION_COUNT] = {
#define SECTION(name, field, element) [POLICY_SECTION_##name] = sizeof(element),
	POLICY_SECTIONS(SECTION)
#undef SECTION
};

void *builder_add(struct builder *b, enum policy_section section)
{
	size_t count = b->counts[section];
	void *place;

	if (!arena_room(b->arena, &b->lists[section], count, element_bytes[section]))
		return NULL;
	place = (char *)b->lists[section] + count * element_bytes[section];
	memset(place, 0, element_bytes[section]);
	b->counts[section]++;
	return place;
}

static uint32_t add_text(struct builder *b, const char *text)
{
	uint32_t offset = (uint32_t)b->counts[POLICY_SECTION_TEXT];

	if (!text || !*text)
		return 0; /* the section starts with an empty text */
	do {
		char *place = builder_add(b, POLICY_SECTION_TEXT);

		if (!place)
			return 0;
		*place = *text;
	} while (*text++);
	return offset;
}

static uint32_t hash_of(const char *text)
{
	uint32_t hash = 0x811c9dc5u; /* FNV-1a */

	for (; *text; text++)
		hash = (hash ^ (unsigned char)*text) * 0x01000193u;
	return hash;
}

/* The slot of @text in the table of pattern texts, or the free one where it belongs. */
static uint32_t *pattern_slot(struct builder *b, const char *text)
{
	const char *texts = b->lists[POLICY_SECTION_TEXT];
	uint32_t at = hash_of(text) & (b->slots - 1);

	while (b->pattern_texts[at] && strcmp(texts + b->pattern_texts[at], text) != 0)
		at = (at + 1) & (b->slots - 1);
	return &b->pattern_texts[at];
}

/* At most half full, so that looking up stays short. */
static bool grow_slots(struct builder *b)
{
	uint32_t *old = b->pattern_texts, slots = b->slots;

	if (b->slots_used < b->slots / 2)
		return true;
	b->slots = slots ? slots * 2 : 64;
	b->pattern_texts = arena_new(b->arena, b->slots, sizeof(*old));
	for (uint32_t i = 0; b->pattern_texts && i < slots; i++)
		if (old[i])
			*pattern_slot(b, (const char *)b->lists[POLICY_SECTION_TEXT] + old[i]) = old[i];
	return b->pattern_texts;
}

/* Equal patterns get one text: policy/match.c tells by its place that it has tried one already. */
static uint32_t add_pattern_text(struct builder *b, const char *text)
{
	uint32_t *slot;

	if (b->arena->failed || !grow_slots(b))
		return 0;
	slot = pattern_slot(b, text);
	if (!*slot && (*slot = add_text(b, text)))
		b->slots_used++;
	return *slot;
}

static struct policy_span add_patterns(struct builder *b, const struct patterns *patterns)
{
	struct policy_span span = {(uint32_t)b->counts[POLICY_SECTION_PATTERNS], 0};

	for (size_t i = 0; i < patterns->count; i++) {
		uint32_t text = add_pattern_text(b, patterns->list[i].text);
		uint32_t *place = builder_add(b, POLICY_SECTION_PATTERNS);

		if (!place)
			break;
		*place = text;
		span.count++;
	}
	return span;
}

static struct policy_span add_ranges(struct builder *b, const struct ranges *ranges)
{
	struct policy_span span = {(uint32_t)b->counts[POLICY_SECTION_RANGES], 0};

	for (size_t i = 0; i < ranges->count; i++) {
		struct policy_range *place = builder_add(b, POLICY_SECTION_RANGES);

		if (!place)
			break;
		*place = ranges->list[i];
		span.count++;
	}
	return span;
}

static struct policy_span add_variables(struct builder *b, const struct variables *variables)
{
	struct policy_span span = {(uint32_t)b->counts[POLICY_SECTION_VARIABLES], 0};

	for (size_t i = 0; i < variables->count; i++) {
		struct policy_span patterns = add_patterns(b, &variables->list[i].patterns);
		uint32_t name = add_text(b, variables->list[i].name.text);
		struct policy_variable *place = builder_add(b, POLICY_SECTION_VARIABLES);

		if (!place)
			break;
		place->name = name;
		place->patterns = patterns;
		span.count++;
	}
	return span;
}

/* --- rows --------------------------------------------------------------------------------------------------------- */

static void add_role(struct builder *b, const struct role_tree *role)
{
	struct policy_role row = {.name = add_text(b, role->name.text), .budget = role->budget.value}, *place;

	row.command = add_patterns(b, &role->command);
	row.executable = add_patterns(b, &role->executable);
	row.environment = add_variables(b, &role->environment);
	if ((place = builder_add(b, POLICY_SECTION_ROLES)))
		*place = row;
}

static void add_phase(struct builder *b, const struct phase_tree *phase)
{
	uint32_t name = add_text(b, phase->name.text);
	struct policy_phase *place = builder_add(b, POLICY_SECTION_PHASES);

	if (!place)
		return;
	place->name = name;
	place->line = phase->name.where.line;
	place->roles = phase->roles_set;
	place->idle = phase->idle_set;
}

static void add_trigger(struct builder *b, const struct trigger_tree *trigger)
{
	struct policy_trigger row = {.phase = trigger->enter.list[0].number,
				      .roles = trigger->roles_set,
				      .line = trigger->where.line},
			      *place;

	if (trigger->nvtx_push.count) {
		row.source = POLICY_TRIGGER_NVTX_PUSH;
		row.patterns = add_patterns(b, &trigger->nvtx_push);
	} else if (trigger->nvtx_pop.count) {
		row.source = POLICY_TRIGGER_NVTX_POP;
		row.patterns = add_patterns(b, &trigger->nvtx_pop);
	} else if (trigger->kernel.count) {
		row.source = POLICY_TRIGGER_KERNEL;
		row.patterns = add_patterns(b, &trigger->kernel);
	} else if (trigger->environment.count) {
		row.source = POLICY_TRIGGER_ENVIRONMENT;
		row.environment = add_variables(b, &trigger->environment);
	} else {
		row.source = POLICY_TRIGGER_COMMAND;
	}
	if ((place = builder_add(b, POLICY_SECTION_TRIGGERS)))
		*place = row;
}

static void add_rule(struct builder *b, const struct object_tree *object)
{
	const struct match_tree *match = &object->match;
	bool matches_all = object->kind == POLICY_RULE_DEFAULT;
	struct policy_rule row =
				   {
					   .name = add_text(b, object->name.text),
					   .line = object->name.where.line,
					   .kind = object->kind,
					   .class = object->class,
					   .flags = (object->exclusive.value ? POLICY_RULE_EXCLUSIVE : 0) |
						    (object->prefetch.value ? POLICY_RULE_PREFETCH : 0),
					   .group = object->group,
					   .roles = matches_all ? POLICY_ANY : match->roles_set,
					   .phases = matches_all ? POLICY_ANY : match->phases_set,
					   .devices = matches_all ? POLICY_ANY : match->devices_set,
					   .apis = matches_all ? POLICY_ANY_API : match->apis_set,
					   .wants = (uint32_t)b->counts[POLICY_SECTION_WANTS],
					   .window_bytes = object->window.value.bytes,
					   .expect_bytes = object->expect.value.bytes,
				   },
			   *place;

	for (size_t i = 0; i <= b->tree->phases_count; i++) {
		struct policy_wanted *wanted = builder_add(b, POLICY_SECTION_WANTS);

		if (!wanted)
			return;
		*wanted = object->wants[i];
	}
	row.sizes = add_ranges(b, &match->sizes);
	row.orders = add_ranges(b, &match->orders);
	row.library = add_patterns(b, &match->library);
	row.stack = add_patterns(b, &match->stack);
	row.python = add_patterns(b, &match->python);
	row.thread = add_patterns(b, &match->thread);
	row.tag = add_patterns(b, &match->tag);
	row.scannable = add_patterns(b, &object->scannable);
	if ((place = builder_add(b, POLICY_SECTION_RULES)))
		*place = row;
}

static void add_group(struct builder *b, const struct group_tree *group)
{
	uint32_t name = add_text(b, group->name.text);
	struct policy_group row = {.name = name,
				    .owner = group->owner.list[0].number,
				    .writers = group->writers_set,
				    .access = group->access,
				    .trust = group->trust.value,
				    .members = {(uint32_t)b->counts[POLICY_SECTION_MEMBERS], 0}},
			    *place;

	for (size_t i = 0; i < group->objects.count; i++) {
		uint32_t *member = builder_add(b, POLICY_SECTION_MEMBERS);

		if (!member)
			return;
		*member = group->objects.list[i].number;
		row.members.count++;
	}
	if ((place = builder_add(b, POLICY_SECTION_GROUPS)))
		*place = row;
}

/* --- block -------------------------------------------------------------------------------------------------------- */

static void fill_header(struct builder *b)
{
	const struct policy_tree *tree = b->tree;
	struct policy_header *h = &b->header;

	memcpy(h->magic, POLICY_BLOCK_MAGIC, sizeof(h->magic));
	h->version = POLICY_BLOCK_VERSION;
	h->header_bytes = sizeof(*h);
	h->session = add_text(b, tree->session.text);
	h->devices = tree->devices;
	h->capacity = tree->capacity.value;
	h->reserve = tree->reserve.value;
	h->host_pool = tree->host_pool.value;
	h->min_size_bytes = tree->min_size.value.bytes;
	h->timeout_ns = tree->timeout_ns;
	h->quorum = tree->quorum;
	h->quorum_clients = tree->quorum_clients;
	h->free = tree->free;
	h->manage_async = tree->manage_async.value;
}

static enum sublet_err lay_out(struct builder *b, struct policy_block *ret_block, struct errinfo *reterr)
{
	uint64_t at = sizeof(b->header);
	char *bytes;

	for (int i = 0; i < POLICY_SECTION_COUNT; i++) {
		b->header.sections[i] = (struct policy_section_place){(uint32_t)at, (uint32_t)b->counts[i]};
		at = (at + (uint64_t)b->counts[i] * element_bytes[i] + 7) / 8 * 8;
		if (at > POLICY_BLOCK_BYTES_MAX)
			return errinfo_set(reterr, SUBLET_ERR_INVALID, 0,
				"compiled, this policy is larger than %u MiB; use fewer rules with different sizes",
				POLICY_BLOCK_BYTES_MAX >> 20);
	}
	bytes = arena_new(b->arena, at, 1);
	if (!bytes)
		return errinfo_set(reterr, SUBLET_ERR_NOMEM, 0, "out of memory");
	b->header.total_bytes = at;
	memcpy(bytes, &b->header, sizeof(b->header));
	for (int i = 0; i < POLICY_SECTION_COUNT; i++)
		if (b->counts[i])
			memcpy(bytes + b->header.sections[i].offset, b->lists[i], b->counts[i] * element_bytes[i]);
	((struct policy_header *)(void *)bytes)->checksum = policy_checksum(bytes, at);
	*ret_block = (struct policy_block){bytes, at};
	return SUBLET_OK;
}

enum sublet_err tree_compile(const struct policy_tree *tree, struct policy_block *ret_block, struct errinfo *reterr)
{
	struct builder b = {.tree = tree, .arena = tree->arena};

	builder_add(&b, POLICY_SECTION_TEXT);
	fill_header(&b);
	for (size_t i = 0; i < tree->roles_count; i++)
		add_role(&b, &tree->roles[i]);
	for (size_t i = 0; i < tree->phases_count; i++)
		add_phase(&b, &tree->phases[i]);
	for (size_t i = 0; i < tree->triggers_count; i++)
		add_trigger(&b, &tree->triggers[i]);
	for (size_t i = 0; i < tree->objects_count; i++)
		add_rule(&b, &tree->objects[i]);
	for (size_t i = 0; i < tree->groups_count; i++)
		add_group(&b, &tree->groups[i]);
	if (!b.arena->failed)
		add_index(&b);
	if (b.arena->failed)
		return errinfo_set(reterr, SUBLET_ERR_NOMEM, 0, "out of memory");
	return lay_out(&b, ret_block, reterr);
}
