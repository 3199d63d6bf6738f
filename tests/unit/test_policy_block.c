/* tests/unit/test_policy_block.c
 * policy/block.h: a block is refused when anything about it is wrong, and what is not refused can be used. Every byte
 * is changed once; a fuzzer (tests/fuzz) goes on from there. */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "policy/roles.h"
#include "tests/unit/policy_harness.h"

static const char text[] =
	"version: 1\nsession: s\ncapacity: 80GiB\nroles:\n  a: {command: x, environment: {V: y}}\n  b:\nbudget: {a: 10%}\n"
	"phases: [{name: p, roles: a}, {name: q, roles: [a, b]}]\n"
	"triggers: [{enter: p, environment: {V: z}}, {enter: q, kernel: k}]\n"
	"pinned: [{library: l}]\n"
	"objects:\n  - {name: x, match: {role: a, size: 1GiB..2GiB, python: f}, class: permanent, resident: p}\n"
	"  - {name: y, match: {role: b, order: 3}, class: permanent, resident: p}\n"
	"share: [{name: g, objects: [x, y], owner: a, writers: p}]\n";

static struct policy_source source;
static struct policy policy;

static int setup(void **state)
{
	given_policy(&source, text, &policy);
	return 0;
}

static int teardown(void **state)
{
	policy_source_release(&source);
	return 0;
}

static void mend(void *bytes)
{
	struct policy_header *header = bytes;

	header->checksum = policy_checksum(bytes, header->total_bytes);
}

/* A copy that ends where memory ends, so that a read behind it is seen even without a sanitizer. */
static char *copy_at_the_end(size_t bytes, void **ret_map, size_t *ret_mapped)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), mapped = (bytes + page - 1) / page * page;
	char *map = mmap(NULL, mapped + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_true(map != MAP_FAILED);
	assert_int_equal(mprotect(map + mapped, page, PROT_NONE), 0);
	*ret_map = map;
	*ret_mapped = mapped + page;
	return map + mapped - bytes;
}

static void use(const struct policy *opened)
{
	const char *frames[] = {"f"};
	struct policy_facts facts = {
		.role = 0, .phase = 0, .size_bytes = 3ull << 29, .library = {"l"}, .python = frames, .python_count = 1};
	struct policy_process process = {.command = "x"};

	for (uint32_t role = 0; role < 3; role++) {
		for (uint32_t phase = 0; phase < 3; phase++) {
			struct policy_decision decision;
			struct policy_state now = {.role = role, .phase = phase};

			facts.role = role;
			facts.phase = phase;
			now.rule = policy_match(opened, &facts);
			policy_decide(opened, &now, &decision);
		}
	}
	policy_role_of(opened, &process);
	policy_trigger_of(opened, POLICY_TRIGGER_KERNEL, 0, "k");
}

static void open_of_equal_policies_gives_equal_blocks(void **state)
{
	struct policy_source again;
	struct policy opened;

	given_policy(&again, text, &opened);
	assert_int_equal(again.block.size_bytes, source.block.size_bytes);
	assert_memory_equal(again.block.bytes, source.block.bytes, source.block.size_bytes);
	policy_source_release(&again);
}

static void open_holds_what_the_policy_says(void **state)
{
	assert_string_equal(policy_text(&policy, policy.header->session), "s");
	assert_int_equal(policy.header->capacity.bytes, 80ull << 30);
	assert_int_equal(policy.header->min_size_bytes, 1 << 20);
	assert_int_equal(policy.header->timeout_ns, 60000000000);
	assert_int_equal(policy.roles_count, 2);
	assert_int_equal(policy.roles[0].budget.percent_hundredths, 1000);
	assert_int_equal(policy.phases_count, 2);
	assert_int_equal(policy.triggers_count, 2);
	assert_int_equal(policy.rules_count, 4);
	assert_int_equal(policy.rules[3].kind, POLICY_RULE_DEFAULT);
	assert_int_equal(policy.groups_count, 1);
	assert_int_equal(policy.groups[0].members.count, 2);
	assert_string_equal(
		policy_text(&policy, policy.rules[policy.members[policy.groups[0].members.first]].name), "x");
}

static void open_anywhere_in_memory_reads_the_same(void **state)
{
	void *map;
	size_t mapped;
	char *copy = copy_at_the_end(source.block.size_bytes, &map, &mapped);
	struct policy opened;

	memcpy(copy, source.block.bytes, source.block.size_bytes);
	assert_int_equal(mprotect(map, mapped - (size_t)sysconf(_SC_PAGESIZE), PROT_READ), 0);
	assert_int_equal(policy_open(copy, source.block.size_bytes, &opened, NULL), SUBLET_OK);
	use(&opened);
	munmap(map, mapped);
}

static void open_of_a_block_cut_off_anywhere_fails(void **state)
{
	for (size_t bytes = 0; bytes < source.block.size_bytes; bytes += 8) {
		void *map;
		size_t mapped;
		char *copy = copy_at_the_end(bytes ? bytes : 8, &map, &mapped);
		struct policy opened;
		struct errinfo error = {0};

		memcpy(copy, source.block.bytes, bytes);
		assert_int_equal(policy_open(copy, bytes, &opened, &error), SUBLET_ERR_INVALID);
		assert_true(error.text[0]);
		munmap(map, mapped);
	}
}

static void open_of_a_block_with_any_byte_changed_fails(void **state)
{
	char *copy = malloc(source.block.size_bytes);
	struct policy opened;

	memcpy(copy, source.block.bytes, source.block.size_bytes);
	for (size_t i = 0; i < source.block.size_bytes; i++) {
		copy[i] ^= 0x41;
		assert_int_equal(policy_open(copy, source.block.size_bytes, &opened, NULL), SUBLET_ERR_INVALID);
		copy[i] ^= 0x41;
	}
	assert_int_equal(policy_open(copy, source.block.size_bytes, &opened, NULL), SUBLET_OK);
	free(copy);
}

/* Whoever mends the checksum may get a block through, but never one that reads outside itself. */
static void open_of_a_mended_block_with_any_byte_changed_can_be_used(void **state)
{
	static const unsigned char values[] = {0x00, 0x01, 0x7f, 0x80, 0xff};
	void *map;
	size_t mapped, through = 0, refused = 0;
	char *copy = copy_at_the_end(source.block.size_bytes, &map, &mapped);
	struct policy opened;

	memcpy(copy, source.block.bytes, source.block.size_bytes);
	for (size_t i = 0; i < source.block.size_bytes; i++) {
		char before = copy[i];

		for (size_t k = 0; k < sizeof(values); k++) {
			copy[i] = (char)values[k];
			if (((struct policy_header *)(void *)copy)->total_bytes <= source.block.size_bytes)
				mend(copy);
			if (policy_open(copy, source.block.size_bytes, &opened, NULL)) {
				refused++;
			} else {
				through++;
				use(&opened);
			}
		}
		copy[i] = before;
	}
	assert_true(through > 100 && refused > 100);
	munmap(map, mapped);
}

static void open_names_what_is_wrong(void **state)
{
	char *copy = malloc(source.block.size_bytes);
	struct policy_header *header = (void *)copy;
	struct policy opened;
	struct errinfo error;

	memcpy(copy, source.block.bytes, source.block.size_bytes);
	assert_int_equal(policy_open(NULL, 0, &opened, &error), SUBLET_ERR_INVALID);
	assert_int_equal(policy_open(copy + 4, source.block.size_bytes - 4, &opened, &error), SUBLET_ERR_INVALID);
	assert_non_null(strstr(error.text, "not aligned"));
	header->version = 99;
	assert_int_equal(policy_open(copy, source.block.size_bytes, &opened, &error), SUBLET_ERR_INVALID);
	assert_non_null(strstr(error.text, "version 99"));
	header->version = POLICY_BLOCK_VERSION;
	header->total_bytes += 8;
	assert_int_equal(policy_open(copy, source.block.size_bytes, &opened, &error), SUBLET_ERR_INVALID);
	assert_non_null(strstr(error.text, "cut off"));
	memset(copy, 0, 8);
	assert_int_equal(policy_open(copy, source.block.size_bytes, &opened, &error), SUBLET_ERR_INVALID);
	assert_non_null(strstr(error.text, "no compiled policy"));
	free(copy);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(open_of_equal_policies_gives_equal_blocks),
		cmocka_unit_test(open_holds_what_the_policy_says),
		cmocka_unit_test(open_anywhere_in_memory_reads_the_same),
		cmocka_unit_test(open_of_a_block_cut_off_anywhere_fails),
		cmocka_unit_test(open_of_a_block_with_any_byte_changed_fails),
		cmocka_unit_test(open_of_a_mended_block_with_any_byte_changed_can_be_used),
		cmocka_unit_test(open_names_what_is_wrong),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
