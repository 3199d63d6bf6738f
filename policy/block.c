/* policy/block.c
 * The one look at a block that makes all later ones safe. Runs inside other people's processes: no heap, no stdio, and
 * nothing it reads is believed before it is compared with the block's size. */
#include "policy/block.h"

#include <string.h>

static enum sublet_err damaged(struct errinfo *reterr, const char *what, uint32_t number)
{
	return errinfo_set(reterr, SUBLET_ERR_INVALID, 0, "policy block is damaged: %s %u", what, number);
}

uint64_t policy_checksum(const void *bytes, size_t size_bytes)
{
	const size_t hole = offsetof(struct policy_header, checksum) / sizeof(uint64_t);
	uint64_t sum = 0xcbf29ce484222325u; /* FNV-1a, a word at a time */

	for (size_t i = 0; i < size_bytes / sizeof(uint64_t); i++) {
		uint64_t word;

		if (i == hole)
			continue;
		memcpy(&word, (const char *)bytes + i * sizeof(word), sizeof(word));
		sum = (sum ^ word) * 0x100000001b3u;
	}
	return sum;
}

static const uint32_t element_bytes[POLICY_SECTION_COUNT] = {
#define SECTION(name, field, element) [POLICY_SECTION_##name] = sizeof(element),
	POLICY_SECTIONS(SECTION)
#undef SECTION
};

static bool sections_fit(const struct policy_header *header)
{
	uint64_t end = sizeof(*header);

	for (int i = 0; i < POLICY_SECTION_COUNT; i++) {
		const struct policy_section_place *place = &header->sections[i];

		if (place->offset % 8 || place->offset < end)
			return false;
		end = place->offset + (uint64_t)place->count * element_bytes[i];
		if (end > header->total_bytes)
			return false;
	}
	return true;
}

static bool text_ok(const struct policy *p, uint32_t offset)
{
	/* the section ends with a NUL, so that every offset inside starts a text that ends */
	return offset < p->text_count;
}

static bool span_ok(struct policy_span span, uint32_t count)
{
	return span.first <= count && span.count <= count - span.first;
}

static bool amount_ok(const struct policy_amount *amount)
{
	return amount->percent_hundredths <= 10000 && !(amount->bytes && amount->percent_hundredths);
}

static bool phase_ok(const struct policy *p, uint32_t phase)
{
	return phase < p->phases_count;
}

static bool role_row_ok(const struct policy *p, const struct policy_role *role)
{
	return text_ok(p, role->name) && span_ok(role->command, p->patterns_count) &&
	       span_ok(role->executable, p->patterns_count) && span_ok(role->environment, p->variables_count) &&
	       amount_ok(&role->budget);
}

static bool trigger_row_ok(const struct policy *p, const struct policy_trigger *trigger)
{
	return phase_ok(p, trigger->phase) && trigger->source < POLICY_TRIGGER_SOURCE_COUNT &&
	       span_ok(trigger->patterns, p->patterns_count) && span_ok(trigger->environment, p->variables_count);
}

static bool rule_row_ok(const struct policy *p, uint32_t number)
{
	const struct policy_rule *rule = &p->rules[number];
	bool is_last = number == p->rules_count - 1;

	return text_ok(p, rule->name) && rule->kind < POLICY_RULE_KIND_COUNT &&
	       is_last == (rule->kind == POLICY_RULE_DEFAULT) && rule->class < POLICY_CLASS_COUNT &&
	       !(rule->flags & ~(uint32_t)POLICY_RULE_FLAGS_ALL) &&
	       (rule->group == POLICY_NONE || rule->group < p->groups_count) &&
	       span_ok((struct policy_span){rule->wants, p->phases_count + 1}, p->wants_count) &&
	       span_ok(rule->sizes, p->ranges_count) && span_ok(rule->orders, p->ranges_count) &&
	       span_ok(rule->library, p->patterns_count) && span_ok(rule->stack, p->patterns_count) &&
	       span_ok(rule->python, p->patterns_count) && span_ok(rule->thread, p->patterns_count) &&
	       span_ok(rule->tag, p->patterns_count) && span_ok(rule->scannable, p->patterns_count);
}

static bool group_row_ok(const struct policy *p, const struct policy_group *group)
{
	return text_ok(p, group->name) && group->owner < p->roles_count && group->access < POLICY_ACCESS_COUNT &&
	       group->trust <= 1 && span_ok(group->members, p->members_count);
}

/* Rows of the index: one per role and for none, per phase and for none, per call and for unknown ones, per device and
 * for higher ones, per size class, per order class, and one for the rules that the gram table does not hold. */
static uint64_t index_rows(const struct policy *p)
{
	return (uint64_t)p->roles_count + 1 + p->phases_count + 1 + POLICY_API_COUNT + 1 + POLICY_DEVICES_MAX + 1 +
	       p->size_bounds_count + 1 + p->order_bounds_count + 1 + 1;
}

/* Sorted, each once. */
static bool bounds_ok(const uint64_t *bounds, uint32_t count)
{
	for (uint32_t i = 1; i < count; i++)
		if (bounds[i - 1] >= bounds[i])
			return false;
	return true;
}

/* The gram table: as many buckets as a power of two says, each from its head to the next. */
static bool grams_ok(struct policy *p)
{
	uint32_t buckets = p->gram_heads_count - 1;

	if (!p->gram_heads_count)
		return !p->grams_count && !p->gram_bits_count;
	if (buckets < 8 || buckets > 1u << 24 || (buckets & (buckets - 1)) ||
		p->gram_bits_count != (1u << POLICY_GRAM_BITS_LOG2) / 64 || p->gram_heads[0] ||
		p->gram_heads[buckets] != p->grams_count)
		return false;
	for (uint32_t i = 0; i < buckets; i++)
		if (p->gram_heads[i] > p->gram_heads[i + 1])
			return false;
	for (uint32_t i = 0; i < p->grams_count; i++)
		if (p->grams[i].rule >= p->rules_count)
			return false;
	p->gram_shift = 32 - (uint32_t)__builtin_ctz(buckets);
	return true;
}

static enum sublet_err check_rows(const struct policy *p, struct errinfo *reterr)
{
	for (uint32_t i = 0; i < p->roles_count; i++)
		if (!role_row_ok(p, &p->roles[i]))
			return damaged(reterr, "role", i);
	for (uint32_t i = 0; i < p->phases_count; i++)
		if (!text_ok(p, p->phases[i].name))
			return damaged(reterr, "phase", i);
	for (uint32_t i = 0; i < p->triggers_count; i++)
		if (!trigger_row_ok(p, &p->triggers[i]))
			return damaged(reterr, "trigger", i);
	for (uint32_t i = 0; i < p->rules_count; i++)
		if (!rule_row_ok(p, i))
			return damaged(reterr, "rule", i);
	for (uint32_t i = 0; i < p->wants_count; i++)
		if (p->wants[i].want >= POLICY_WANT_COUNT || p->wants[i].why >= POLICY_WHY_COUNT)
			return damaged(reterr, "want", i);
	for (uint32_t i = 0; i < p->patterns_count; i++)
		if (!text_ok(p, p->patterns[i]))
			return damaged(reterr, "pattern", i);
	for (uint32_t i = 0; i < p->variables_count; i++)
		if (!text_ok(p, p->variables[i].name) || !span_ok(p->variables[i].patterns, p->patterns_count))
			return damaged(reterr, "variable", i);
	for (uint32_t i = 0; i < p->groups_count; i++)
		if (!group_row_ok(p, &p->groups[i]))
			return damaged(reterr, "share group", i);
	for (uint32_t i = 0; i < p->members_count; i++)
		if (p->members[i] >= p->rules_count)
			return damaged(reterr, "member", i);
	if (!bounds_ok(p->size_bounds, p->size_bounds_count) || !bounds_ok(p->order_bounds, p->order_bounds_count))
		return errinfo_set(reterr, SUBLET_ERR_INVALID, 0, "policy block is damaged: bounds are not in order");
	return SUBLET_OK;
}

static bool settings_ok(const struct policy *p)
{
	const struct policy_header *h = p->header;

	return text_ok(p, h->session) && amount_ok(&h->capacity) && amount_ok(&h->reserve) &&
	       amount_ok(&h->host_pool) && h->quorum < POLICY_QUORUM_COUNT && h->free < POLICY_FREE_COUNT &&
	       h->manage_async <= 1;
}

static enum sublet_err check_header(const void *bytes, size_t size_bytes, struct errinfo *reterr)
{
	const struct policy_header *header = bytes;

	if (!bytes || (uintptr_t)bytes % 8)
		return errinfo_set(reterr, SUBLET_ERR_INVALID, 0, "policy block is not aligned to 8 bytes");
	if (size_bytes < sizeof(*header) || memcmp(header->magic, POLICY_BLOCK_MAGIC, sizeof(header->magic)) != 0)
		return errinfo_set(reterr, SUBLET_ERR_INVALID, 0, "this is no compiled policy");
	if (header->version != POLICY_BLOCK_VERSION || header->header_bytes != sizeof(*header))
		return errinfo_set(reterr, SUBLET_ERR_INVALID, 0,
			"compiled policy has version %u, this library reads %u; start the session and its processes from one "
			"installation",
			header->version, POLICY_BLOCK_VERSION);
	if (header->total_bytes > size_bytes || header->total_bytes > POLICY_BLOCK_BYTES_MAX ||
		header->total_bytes < sizeof(*header) || header->total_bytes % 8)
		return errinfo_set(reterr, SUBLET_ERR_INVALID, 0, "policy block is cut off: %llu bytes here, %llu said",
			(unsigned long long)size_bytes, (unsigned long long)header->total_bytes);
	if (policy_checksum(bytes, header->total_bytes) != header->checksum)
		return errinfo_set(reterr, SUBLET_ERR_INVALID, 0, "policy block is damaged: its checksum does not fit");
	if (!sections_fit(header))
		return errinfo_set(reterr, SUBLET_ERR_INVALID, 0, "policy block is damaged: a section lies outside");
	return SUBLET_OK;
}

enum sublet_err policy_open(const void *bytes, size_t size_bytes, struct policy *ret_policy, struct errinfo *reterr)
{
	const struct policy_header *header = bytes;
	struct policy p = {.header = header};
	enum sublet_err err = check_header(bytes, size_bytes, reterr);

	if (err)
		return err;
#define SECTION(name, field, element)                                                                                  \
	p.field =                                                                                                      \
		(const element *)(const void *)((const char *)bytes + header->sections[POLICY_SECTION_##name].offset); \
	p.field##_count = header->sections[POLICY_SECTION_##name].count;
	POLICY_SECTIONS(SECTION)
#undef SECTION
	if (!p.text_count || p.text[p.text_count - 1] != '\0')
		return errinfo_set(reterr, SUBLET_ERR_INVALID, 0, "policy block is damaged: its texts do not end");
	if (p.roles_count > POLICY_ROLES_MAX || p.phases_count > POLICY_PHASES_MAX || !p.rules_count ||
		p.rules_count > POLICY_RULES_MAX)
		return errinfo_set(reterr, SUBLET_ERR_INVALID, 0, "policy block is damaged: too many rows or none");
	p.index_words = (p.rules_count + 63) / 64;
	if (index_rows(&p) * p.index_words != p.index_count)
		return errinfo_set(
			reterr, SUBLET_ERR_INVALID, 0, "policy block is damaged: its index has another size");
	if (!grams_ok(&p))
		return errinfo_set(
			reterr, SUBLET_ERR_INVALID, 0, "policy block is damaged: its table of texts does not fit");
	if (!settings_ok(&p))
		return errinfo_set(reterr, SUBLET_ERR_INVALID, 0, "policy block is damaged: a setting is out of range");
	err = check_rows(&p, reterr);
	if (err)
		return err;
	*ret_policy = p;
	return SUBLET_OK;
}

uint32_t policy_role_find(const struct policy *policy, const char *name)
{
	for (uint32_t i = 0; name && i < policy->roles_count; i++)
		if (strcmp(policy_text(policy, policy->roles[i].name), name) == 0)
			return i;
	return POLICY_NONE;
}

uint32_t policy_phase_find(const struct policy *policy, const char *name)
{
	for (uint32_t i = 0; name && i < policy->phases_count; i++)
		if (strcmp(policy_text(policy, policy->phases[i].name), name) == 0)
			return i;
	return POLICY_NONE;
}

bool policy_role_runs(const struct policy *policy, uint32_t role, uint32_t phase)
{
	if (role >= policy->roles_count || phase >= policy->phases_count)
		return true;
	return policy->phases[phase].roles >> role & 1;
}
