/* tests/sim/programs/reuse.c
 * A training loop's habits: many of one size, freed in another order, taken again, with holes; what is live keeps its bytes.
 * Addresses of live allocations never overlap. */
#include "program.h"

#define SLOTS 40

struct slot {
	CUdeviceptr at;
	size_t bytes;
	uint32_t value;
};

static struct slot slots[SLOTS];
static CUfunction fill;
static uint32_t state = 12345;

static uint32_t next(void)
{
	return state = state * 1664525 + 1013904223;
}

static void take(struct slot *slot, size_t bytes)
{
	slot->bytes = bytes;
	slot->value = next();
	NEED(cuMemAlloc(&slot->at, bytes));
	NEED(program_launch(fill, slot->at, 1024, slot->value, NULL));
	NEED(program_launch(fill, slot->at + bytes - 4096, 1024, slot->value, NULL));
}

static void check(const struct slot *slot)
{
	uint32_t first = 0, last = 0;

	if (!slot->at)
		return;
	NEED(cuMemcpyDtoH(&first, slot->at, 4));
	NEED(cuMemcpyDtoH(&last, slot->at + slot->bytes - 4, 4));
	if (first != slot->value || last != slot->value)
		printf("bytes lost\n");
	for (const struct slot *other = slots; other < slots + SLOTS; other++) {
		if (other != slot && other->at && other->at < slot->at + slot->bytes && slot->at < other->at + other->bytes)
			printf("overlap\n");
	}
}

static void check_all(const char *when)
{
	size_t free_bytes, total;

	for (int i = 0; i < SLOTS; i++)
		check(&slots[i]);
	NEED(cuMemGetInfo(&free_bytes, &total));
	printf("%s: %zu MiB taken\n", when, (total - free_bytes) / MIB);
}

int main(void)
{
	CUdeviceptr same[2];

	program_start();
	fill = program_kernel("sim_fill32");
	for (int i = 0; i < SLOTS; i++)
		take(&slots[i], (size_t)(2 + 2 * (i % 5)) * MIB);
	check_all("all");
	for (int round = 0; round < 6; round++) {
		for (int i = round % 3; i < SLOTS; i += 3) {
			NEED(cuMemFree(slots[i].at));
			slots[i].at = 0;
		}
		check_all("holes");
		for (int i = round % 3; i < SLOTS; i += 3)
			take(&slots[i], (size_t)(2 + 2 * (next() % 5)) * MIB);
		check_all("filled");
	}
	for (int i = SLOTS; i-- > 0;) {
		NEED(cuMemFree(slots[i].at));
		slots[i].at = 0;
	}
	check_all("none");
	/* one in, one out, as a step of inference does it */
	for (int i = 0; i < 200; i++) {
		NEED(cuMemAlloc(&same[i % 2], 6 * MIB));
		NEED(cuMemsetD32(same[i % 2], (unsigned)i, 1024));
		NEED(cuMemFree(same[i % 2]));
	}
	check_all("end");
	return 0;
}
