/* tests/unit/test_frame_rule.c
 * What stacks are read with: memory that is not there, call frame information that is broken, names of C++. */
#include "tests/unit/callers_harness.h"

#include <link.h>
#include <sys/mman.h>

#include "lifecycle/callers/cxx_name.h"
#include "lifecycle/callers/frame_rule.h"
#include "lifecycle/callers/foreign.h"
#include "lifecycle/callers/peek.h"

enum { PAGE = 4096 };

/* A page, and one behind it that is not there. */
static uint8_t *last_page(void)
{
	uint8_t *pages = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(pages, MAP_FAILED);
	munmap(pages + PAGE, PAGE);
	return pages;
}

static void memory_that_is_not_there_is_an_answer(void **state)
{
	uint8_t *page = last_page(), got[64];
	uint64_t end = (uintptr_t)page + PAGE;
	struct peek_window window = {.length = 0};
	struct peek_part parts[3] = {{end - 8, got, 8}, {end - 4, got + 8, 8}, {end - 8, got + 16, 8}};

	memset(page, 0x5a, PAGE);
	assert_true(foreign_read(got, end - 8, 8));
	assert_int_equal(got[7], 0x5a);
	assert_false(foreign_read(got, end - 7, 8));
	assert_false(foreign_read(got, 0, 8));
	assert_false(foreign_read(got, UINT64_MAX - 3, 8));
	assert_int_equal(peek_parts(parts, 3), 1); /* up to the first that is not there in full */
	for (uint64_t at = end - 300; at < end; at += 4) /* the window ends with the page */
		assert_true(peek_through(&window, at, got, 4));
	assert_false(peek_through(&window, end - 2, got, 4));
	assert_true(peek_through(&window, end - 4, got, 4));
	assert_false(peek_through(&window, end, got, 1));
	munmap(page, PAGE);
}

static void a_window_goes_over_the_end_of_a_page(void **state)
{
	uint8_t *pages = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), got[16];
	struct peek_window window = {.length = 0};

	for (int i = 0; i < 2 * PAGE; i++)
		pages[i] = (uint8_t)(i * 7);
	for (int at = PAGE - 100; at < PAGE + 100; at++) {
		assert_true(peek_through(&window, (uintptr_t)pages + (unsigned)at, got, sizeof(got)));
		assert_memory_equal(got, pages + at, sizeof(got));
	}
	munmap(pages, 2 * PAGE);
}

/* ---- call frame information ---- */

struct information {
	uint8_t *at; /* a copy of the table and the entries, in their order in memory */
	uint64_t bytes, hdr, code, code_end, moved; /* moved: from where it lies in the library to the copy */
};

static int find_library(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct information *ret = arg;
	uint64_t hdr = 0, end = 0, start = UINT64_MAX;

	if (!strstr(info->dlpi_name, "/libplain.so"))
		return 0;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *header = &info->dlpi_phdr[i];

		if (header->p_type == PT_GNU_EH_FRAME)
			hdr = info->dlpi_addr + header->p_vaddr;
	}
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *header = &info->dlpi_phdr[i];
		uint64_t from = info->dlpi_addr + header->p_vaddr;

		if (header->p_type != PT_LOAD)
			continue;
		if (hdr >= from && hdr < from + header->p_memsz) {
			start = hdr;
			end = from + header->p_memsz;
		}
		if (header->p_flags & PF_X) {
			ret->code = from;
			ret->code_end = from + header->p_memsz;
		}
	}
	/* the entries stand behind the table in the same segment */
	ret->bytes = end - start;
	ret->at = malloc(ret->bytes);
	memcpy(ret->at, (void *)(uintptr_t)start, ret->bytes);
	ret->moved = (uintptr_t)ret->at - start;
	ret->hdr = (uintptr_t)ret->at;
	return 1;
}

static struct information information(void)
{
	struct information found = {0};

	opened_plugin("libplain.so");
	assert_int_equal(dl_iterate_phdr(find_library, &found), 1);
	assert_true(found.bytes > 200 && found.code_end > found.code);
	return found;
}

/* Everything in the copy is relative to where it stands, code too. */
static int known_rules(const struct information *of, struct registers *registers, bool apply)
{
	int known = 0;

	for (uint64_t pc = of->code; pc < of->code_end; pc += 3) {
		struct peek_window window = {.length = 0};
		struct frame_rule rule;
		struct registers caller = *registers;

		frame_rule_read(&window, of->hdr, pc + of->moved, &rule);
		known += rule.known;
		if (rule.known && apply)
			frame_rule_apply(&window, &rule, &caller);
	}
	return known;
}

static void broken_information_is_no_rule_and_no_fault(void **state)
{
	struct information from = information();
	uint8_t *whole = malloc(from.bytes);
	struct registers registers = {.known = REGISTERS_FOLLOWED, .pc = from.code};
	uint32_t random = 1;
	int plain, fewer = 0;

	for (unsigned i = 0; i < REGISTER_COUNT; i++)
		registers.value[i] = (uintptr_t)&registers + 8 * i;
	plain = known_rules(&from, &registers, true);
	assert_true(plain > 20);
	memcpy(whole, from.at, from.bytes);
	for (int round = 0; round < 1500; round++) {
		for (int i = 0; i < 1 + round % 5; i++) {
			random = random * 1664525u + 1013904223u;
			from.at[(random >> 8) % (from.bytes < 512 ? from.bytes : 512)] = (uint8_t)(random >> 16);
		}
		fewer += known_rules(&from, &registers, true) < plain;
		memcpy(from.at, whole, from.bytes);
	}
	assert_true(fewer > 50); /* it did reach what is read */
	assert_int_equal(known_rules(&from, &registers, false), plain);
	free(whole);
	free(from.at);
}

static void information_that_ends_early_is_no_rule(void **state)
{
	struct information from = information();
	struct registers registers = {.known = 0};

	for (uint64_t left = 0; left < from.bytes && left < 600; left += 5) {
		struct information cut = from;
		uint8_t *page = last_page(), *at = page + PAGE - left;

		memcpy(at, from.at, left);
		cut.hdr = (uintptr_t)at;
		cut.moved = from.moved + (uint64_t)(at - from.at);
		known_rules(&cut, &registers, false); /* a fault would end the test */
		munmap(page, PAGE);
	}
	free(from.at);
}

/* ---- names ---- */

static void names_of_cxx_are_written_as_people_write_them(void **state)
{
	static const char *const names[][2] = {
		{"_Z3foov", "foo"},
		{"_ZN3c104cuda20CUDACachingAllocator9raw_allocEm", "c10::cuda::CUDACachingAllocator::raw_alloc"},
		{"_ZNK2at6Tensor5cloneESt8optionalIN3c1012MemoryFormatEE", "at::Tensor::clone"},
		{"_ZN2at6detail13empty_genericEN3c108ArrayRefIlEEPNS1_9AllocatorENS1_14DispatchKeySetENS1_10ScalarTypeESt8optionalINS1_12MemoryFormatEE",
			"at::detail::empty_generic"},
		{"_ZNSt6vectorIiSaIiEE9push_backERKi", "std::vector::push_back"},
		{"_ZNSt6vectorIiSaIiEEC2Ev", "std::vector::vector"},
		{"_ZN3fooD0Ev", "foo::~foo"},
		{"_ZN3fooclEi", "foo::operator()"},
		{"_ZN12_GLOBAL__N_13barEv", "(anonymous namespace)::bar"},
		{"_ZZN3foo3barEvENKUlvE_clEv", "foo::bar::{lambda}::operator()"},
		{"_ZN1a1bILi5ELb1EEEvv", "a::b"},
		{"_ZN1a1bIXadL_ZNS_1cEiEEEEvv", "a::b"},
		{"_ZN3foo3barEv.cold", "foo::bar.cold"},
		{"_ZNSs6appendEPKc", "std::string::append"},
		{"_ZL5localv", "local"},
	};
	static const char *const raw[] = {"foo", "_Z", "_ZN", "_ZN3foo", "_ZN9fooE", "_ZTV3foo", "", "_", "_Z99999999999999999999x",
		"_ZN3fooC9Ev", "_ZN1aIIIIIIIIIIIIIIIIIIIIIIIIIIIIIIIIIIIIIIIIIIIIIIIIIIIIII", "_ZNPPPP", "_ZN3foo3barEvE"};
	char got[256];

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		assert_true(cxx_name(names[i][0], got, sizeof(got)));
		assert_string_equal(got, names[i][1]);
		/* one byte less than it takes is not enough, and nothing behind it is written */
		memset(got, 'x', sizeof(got));
		assert_false(cxx_name(names[i][0], got, strlen(names[i][1])));
		assert_int_equal(got[strlen(names[i][1])], 'x');
	}
	for (size_t i = 0; i < sizeof(raw) / sizeof(raw[0]); i++)
		assert_false(cxx_name(raw[i], got, sizeof(got)));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(memory_that_is_not_there_is_an_answer),
		cmocka_unit_test(a_window_goes_over_the_end_of_a_page),
		cmocka_unit_test(broken_information_is_no_rule_and_no_fault),
		cmocka_unit_test(information_that_ends_early_is_no_rule),
		cmocka_unit_test(names_of_cxx_are_written_as_people_write_them),
	};

	return cmocka_run_group_tests(tests, callers_setup, NULL);
}
