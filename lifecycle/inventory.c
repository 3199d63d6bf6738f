/* lifecycle/inventory.c
 * What an inventory must look like. Pure: the fuzz target feeds it any bytes. */
#include "lifecycle/inventory.h"

#include <stdbool.h>

#include "policy/decide.h"

_Static_assert(sizeof(struct inventory_header) % 8 == 0 && sizeof(struct inventory_allocation) % 8 == 0 &&
		       sizeof(struct inventory_group) % 8 == 0 && sizeof(struct inventory_site) % 8 == 0,
	"parts follow each other without holes");

uint64_t inventory_bytes(const struct inventory_header *header)
{
	/* 32-bit counts of rows of less than 128 bytes: no sum of five comes near 64 bits */
	uint64_t bytes = sizeof(*header) + (uint64_t)header->allocations_count * sizeof(struct inventory_allocation) +
			 (uint64_t)header->groups_count * sizeof(struct inventory_group) +
			 (uint64_t)header->sites_count * sizeof(struct inventory_site) +
			 (uint64_t)header->frames_count * sizeof(uint32_t) + header->texts_bytes;

	return bytes <= INVENTORY_BYTES_MAX ? bytes : 0;
}

void inventory_place(const void *bytes, struct inventory *ret)
{
	ret->header = bytes;
	ret->allocations = (const void *)(ret->header + 1);
	ret->groups = (const void *)(ret->allocations + ret->header->allocations_count);
	ret->sites = (const void *)(ret->groups + ret->header->groups_count);
	ret->frames = (const void *)(ret->sites + ret->header->sites_count);
	ret->texts = (const void *)(ret->frames + ret->header->frames_count);
}

static bool text_is_good(const struct inventory *inventory, uint32_t offset)
{
	return offset == INVENTORY_NONE || offset < inventory->header->texts_bytes;
}

static bool site_is_good(const struct inventory *inventory, uint32_t site)
{
	return site == INVENTORY_NONE || site < inventory->header->sites_count;
}

static bool rows_are_good(const struct inventory *inventory)
{
	const struct inventory_header *header = inventory->header;

	for (uint32_t i = 0; i < header->allocations_count; i++)
		if (!site_is_good(inventory, inventory->allocations[i].site) ||
			inventory->allocations[i].residency >= POLICY_RESIDENCY_COUNT)
			return false;
	for (uint32_t i = 0; i < header->groups_count; i++)
		if (!site_is_good(inventory, inventory->groups[i].site))
			return false;
	for (uint32_t i = 0; i < header->sites_count; i++) {
		const struct inventory_site *site = &inventory->sites[i];

		if ((uint64_t)site->first_frame + site->stack_count + site->python_count > header->frames_count ||
			!text_is_good(inventory, site->library[0]) || !text_is_good(inventory, site->library[1]) ||
			!text_is_good(inventory, site->thread) || !text_is_good(inventory, site->tag))
			return false;
	}
	for (uint32_t i = 0; i < header->frames_count; i++)
		if (inventory->frames[i] >= header->texts_bytes)
			return false;
	/* the last text ends, so all do */
	return !header->texts_bytes || !inventory->texts[header->texts_bytes - 1];
}

enum sublet_err inventory_open(const void *bytes, size_t size_bytes, struct inventory *ret, struct errinfo *reterr)
{
	const struct inventory_header *header = bytes;

	if (size_bytes < sizeof(*header) || header->magic != INVENTORY_MAGIC)
		return errinfo_set(reterr, SUBLET_ERR_INVALID, 0, "no list of allocations of Sublet's");
	if (header->version != INVENTORY_VERSION)
		return errinfo_set(reterr, SUBLET_ERR_INVALID, 0,
			"a list of allocations of version %u, and this command reads %u; use one version of Sublet in the session",
			header->version, INVENTORY_VERSION);
	if (header->header_bytes != sizeof(*header) || header->total_bytes != size_bytes || inventory_bytes(header) != size_bytes)
		return errinfo_set(reterr, SUBLET_ERR_INVALID, 0, "the list of allocations is cut off; ask again");
	inventory_place(bytes, ret);
	if (!rows_are_good(ret))
		return errinfo_set(reterr, SUBLET_ERR_INVALID, 0, "the list of allocations is damaged; ask again");
	return SUBLET_OK;
}
