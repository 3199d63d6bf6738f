/* tests/fuzz/fuzz_inventory.c
 * Any bytes as a list of allocations: refused with a line, or every text and frame it names can be read. */
#include <stdlib.h>
#include <string.h>

#include "lifecycle/inventory.h"
#include "tests/fuzz/fuzz.h"

static size_t touched;

static void use_site(const struct inventory *inventory, uint32_t number)
{
	const struct inventory_site *site = &inventory->sites[number];
	const uint32_t texts[] = {site->library[0], site->library[1], site->thread, site->tag};

	for (int i = 0; i < 4; i++)
		if (inventory_text(inventory, texts[i]))
			touched += strlen(inventory_text(inventory, texts[i]));
	for (uint32_t i = 0; i < site->stack_count + site->python_count; i++)
		touched += strlen(inventory_text(inventory, inventory->frames[site->first_frame + i]));
}

static void look(const void *bytes, size_t size)
{
	struct inventory inventory;
	struct errinfo error = {0};

	if (inventory_open(bytes, size, &inventory, &error) != SUBLET_OK) {
		if (!error.text[0] || strchr(error.text, '\n'))
			abort(); /* a finding, for the fuzzer to keep */
		return;
	}
	for (uint32_t i = 0; i < inventory.header->allocations_count; i++)
		if (inventory.allocations[i].site != INVENTORY_NONE)
			use_site(&inventory, inventory.allocations[i].site);
	for (uint32_t i = 0; i < inventory.header->groups_count; i++)
		if (inventory.groups[i].site != INVENTORY_NONE)
			use_site(&inventory, inventory.groups[i].site);
	for (uint32_t i = 0; i < inventory.header->sites_count && i < 64; i++)
		use_site(&inventory, i);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct inventory_header *header = malloc(bytes ? bytes : 1); /* exactly as large, so that a sanitizer sees the first byte behind */

	if (!header)
		return 0;
	memcpy(header, data, bytes);
	look(header, bytes);
	/* As the header keeps nearly everything out, it is mended for a second look. */
	if (bytes >= sizeof(*header)) {
		uint64_t rest;

		header->magic = INVENTORY_MAGIC;
		header->version = INVENTORY_VERSION;
		header->header_bytes = sizeof(*header);
		header->total_bytes = bytes;
		header->allocations_count %= 16;
		header->groups_count %= 16;
		header->sites_count %= 16;
		header->frames_count %= 64;
		header->texts_bytes = 0;
		rest = inventory_bytes(header);
		if (rest <= bytes) {
			header->texts_bytes = (uint32_t)(bytes - rest);
			look(header, bytes);
		}
	}
	free(header);
	return 0;
}
