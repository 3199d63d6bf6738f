/* tests/unit/test_python_reader.c
 * The reader of Python stacks over an interpreter that is none: a `.PyRuntime` section as a program has it that exports
 * no name, with layouts of versions that no package brings (3.14 without GIL), and then damaged in every way. Real
 * interpreters: tests/sim/python. */
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "lifecycle/callers/foreign.h"
#include "lifecycle/callers/python_priv.h"

enum { ARENA_BYTES = 128 * 1024, FRAMES = 40, WORDS = 512 };

__attribute__((section(".PyRuntime"), used, aligned(64))) static uint64_t runtime_words[WORDS];

/* A place in _Py_DebugOffsets per column of python_known.def. */
struct places {
	uint32_t minor, free_threaded, interpreters_head, finalizing, interpreter_next, threads_head, thread_prev,
		thread_next, thread_interpreter, thread_id, native_id, status, frame, frame_back, frame_code,
		frame_owner, code_file, code_name, object_type, type_name, str_length, str_state, str_ascii_bytes;
};

static const struct places rows[] = {
#define PUBLISHED(...) {__VA_ARGS__},
#include "lifecycle/callers/python_known.def"
};
enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

static char *arena; /* behind it: nothing */

static uint64_t at(size_t offset)
{
	return (uintptr_t)arena + offset;
}

static void put(uint64_t address, uint64_t value)
{
	memcpy((void *)(uintptr_t)address, &value, sizeof(value));
}

static void put_str(const struct python_layout *layout, uint64_t address, const char *text)
{
	uint32_t state = 1u << layout->kind_bit | 1u << layout->compact_bit | 1u << layout->ascii_bit;

	put(address + layout->object_type, at(0x900));
	put(address + layout->str_length, strlen(text));
	memcpy((char *)(uintptr_t)address + layout->str_state, &state, sizeof(state));
	strcpy((char *)(uintptr_t)address + layout->str_ascii_bytes, text);
}

/* An interpreter whose one thread is this one, FRAMES functions deep, each third one with an entry from C in front. */
static struct python_layout build(const struct places *row)
{
	const bool free_threaded = row->free_threaded;
	struct python_layout layout;
	uint64_t last = 0;

	memset(arena, 0, ARENA_BYTES);
	memset(runtime_words, 0, sizeof(runtime_words));
	memcpy(runtime_words, "xdebugpy", 8);
	runtime_words[1] = 3u << 24 | row->minor << 16 | 0x05f0;
	runtime_words[2] = free_threaded;
	runtime_words[row->interpreters_head] = 800;
	runtime_words[row->finalizing] = 808;
	runtime_words[row->interpreter_next] = 7000;
	runtime_words[row->threads_head] = 72;
	runtime_words[row->thread_prev] = 0;
	runtime_words[row->thread_next] = 8;
	runtime_words[row->thread_interpreter] = 16;
	runtime_words[row->status] = 36;
	runtime_words[row->frame] = 72;
	runtime_words[row->thread_id] = 152;
	runtime_words[row->native_id] = 160;
	runtime_words[row->frame_code] = 0;
	runtime_words[row->frame_back] = 8;
	runtime_words[row->frame_owner] = free_threaded ? 78 : 74;
	runtime_words[row->object_type] = free_threaded ? 24 : 8;
	runtime_words[row->code_file] = 112;
	runtime_words[row->code_name] = 128;
	runtime_words[row->type_name] = free_threaded ? 40 : 24;
	runtime_words[row->str_length] = free_threaded ? 32 : 16;
	runtime_words[row->str_state] = free_threaded ? 48 : 32;
	runtime_words[row->str_ascii_bytes] = free_threaded ? 56 : 40;
	assert_true(python_layout_published(runtime_words, &layout, NULL));
	runtime_words[layout.interpreters_head / 8] = at(0x100);
	put(at(0x100) + layout.threads_head, at(0x3000));
	put(at(0x3000) + layout.thread_interpreter, at(0x100));
	put(at(0x3000) + layout.thread_id, (uint64_t)pthread_self());
	put(at(0x3000) + layout.native_id, (uint64_t)syscall(SYS_gettid));
	put(at(0x3000) + layout.status, 1u << layout.bound_bit);
	strcpy(arena + 0x700, "code");
	strcpy(arena + 0x710, "str");
	put(at(0x800) + layout.type_name, at(0x700));
	put(at(0x900) + layout.type_name, at(0x710));
	put_str(&layout, at(0x4000), "/lib/model.py");
	for (int i = FRAMES; i-- > 0;) {
		uint64_t frame = at(0x8000) + (uint64_t)i * 0x100, code = at(0x10000) + (uint64_t)i * 0x200;
		char name[16];

		snprintf(name, sizeof(name), "f%d", i);
		put_str(&layout, code + 0x100, name);
		put(code + layout.object_type, at(0x800));
		put(code + layout.code_file, at(0x4000));
		put(code + layout.code_name, code + 0x100);
		put(frame + layout.frame_back, last);
		put(frame + layout.frame_code, row->minor >= 14 ? code | 1 : code);
		last = frame;
		if (i % 3 == 0) {
			put(frame + 0x80 + layout.frame_back, last);
			((char *)(uintptr_t)frame)[0x80 + layout.frame_owner] = (char)layout.entry_owner;
			last = frame + 0x80;
		}
	}
	put(at(0x3000) + layout.frame, last);
	return layout;
}

static size_t read_all(struct python_runtime *runtime, struct python_hint *hint, const char **texts)
{
	uint64_t codes[PYTHON_FRAMES_MAX];
	struct python_thread thread;
	size_t count, told;

	if (!python_thread_find(runtime, hint, &thread))
		return 0;
	python_anchor(runtime, &thread);
	if (!python_codes(runtime, thread.frame, hint, codes, PYTHON_FRAMES_MAX, &count))
		return 0;
	return python_texts(runtime, codes, count, texts, &told) ? told : 0;
}

static void assert_all(const char **texts, size_t count)
{
	char want[40];

	assert_int_equal(count, FRAMES);
	for (size_t i = 0; i < count; i++) {
		snprintf(want, sizeof(want), "/lib/model.py:f%zu", i);
		assert_string_equal(texts[i], want);
	}
}

static void section_of_a_program_that_exports_nothing_is_found(void **state)
{
	const char *texts[PYTHON_FRAMES_MAX];
	char said[64];

	python_describe(said, sizeof(said));
	assert_string_equal(said, "no interpreter");
	build(&rows[ROWS - 1]);
	runtime_words[1] = 0x03100000;
	python_prepare();
	python_describe(said, sizeof(said));
	assert_string_equal(said, "unknown version 3.16");
	assert_int_equal(python_frames(texts, PYTHON_FRAMES_MAX), 0);

	build(&rows[3]);
	python_prepare();
	python_describe(said, sizeof(said)); /* nothing was loaded since, so nothing was looked at */
	assert_string_equal(said, "unknown version 3.16");
	assert_non_null(dlopen("libresolv.so.2", RTLD_NOW));
	python_prepare();
	python_describe(said, sizeof(said));
	assert_string_equal(said, "3.14t");
	assert_all(texts, python_frames(texts, PYTHON_FRAMES_MAX));
	assert_int_equal(python_frames(texts, 7), 7);
	assert_int_equal(python_frames(texts, 0), 0);
}

static void each_published_layout_is_read(void **state)
{
	const char *texts[PYTHON_FRAMES_MAX];
	struct python_hint hint = {0};

	for (size_t i = 0; i < ROWS; i++) {
		struct python_runtime runtime = {.address = (uintptr_t)runtime_words, .layout = build(&rows[i])};

		memset(&hint, 0, sizeof(hint));
		assert_all(texts, read_all(&runtime, NULL, texts));
		assert_all(texts, read_all(&runtime, &hint, texts));
		assert_all(texts, read_all(&runtime, &hint, texts));
	}
}

static void state_that_is_not_this_threads_has_no_frame(void **state)
{
	const char *texts[PYTHON_FRAMES_MAX];
	struct python_runtime runtime = {.address = (uintptr_t)runtime_words};
	struct python_hint hint = {0};

	/* of a thread that had the same handle; not the one last active; another thread ends the interpreter */
	runtime.layout = build(&rows[0]);
	assert_all(texts, read_all(&runtime, &hint, texts));
	put(at(0x3000) + runtime.layout.native_id, 1);
	assert_int_equal(read_all(&runtime, &hint, texts), 0);
	runtime.layout = build(&rows[0]);
	put(at(0x3000) + runtime.layout.status, 0);
	assert_int_equal(read_all(&runtime, &hint, texts), 0);
	runtime.layout = build(&rows[0]);
	runtime_words[runtime.layout.finalizing / 8] = at(0x3400);
	assert_int_equal(read_all(&runtime, &hint, texts), 0);
	runtime_words[runtime.layout.finalizing / 8] = at(0x3000);
	assert_all(texts, read_all(&runtime, &hint, texts));
}

static void chains_in_a_circle_end(void **state)
{
	const char *texts[PYTHON_FRAMES_MAX];
	struct python_runtime runtime = {.address = (uintptr_t)runtime_words, .layout = build(&rows[0])};
	struct python_hint hint = {0};

	/* frames: as deep a recursion as any */
	put(at(0x8000) + 5 * 0x100 + runtime.layout.frame_back, at(0x8000) + 0x80);
	assert_int_equal(read_all(&runtime, &hint, texts), PYTHON_FRAMES_MAX);
	/* entries alone */
	put(at(0x8000) + 0x80 + runtime.layout.frame_back, at(0x8000) + 0x80);
	assert_int_equal(read_all(&runtime, &hint, texts), 0);
	/* states, interpreters */
	runtime.layout = build(&rows[0]);
	put(at(0x3000) + runtime.layout.thread_id, 1);
	put(at(0x3000) + runtime.layout.thread_next, at(0x3000));
	assert_int_equal(read_all(&runtime, &hint, texts), 0);
	put(at(0x3000) + runtime.layout.thread_next, 0);
	put(at(0x100) + runtime.layout.interpreter_next, at(0x100));
	assert_int_equal(read_all(&runtime, &hint, texts), 0);
}

static uint64_t seed = 0x5eed;

static uint64_t random_word(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed;
}

/* Something that may stand where a pointer or a number is expected. */
static uint64_t random_value(void)
{
	switch (random_word() % 8) {
	case 0:
		return 0;
	case 1:
		return at(ARENA_BYTES - random_word() % 256); /* reads run off its end */
	case 2:
		return at(random_word() % ARENA_BYTES);
	case 3:
		return at(random_word() % ARENA_BYTES & ~(uint64_t)0xff);
	case 4:
		return random_word() % 4096;
	case 5:
		return UINT64_MAX - random_word() % 4096;
	case 6:
		return (uintptr_t)&seed;
	default:
		return random_word();
	}
}

static void damaged_interpreters_never_fault(void **state)
{
	const char *texts[PYTHON_FRAMES_MAX];
	struct python_hint hint = {0};
	unsigned whole = 0, none = 0;

	for (int i = 0; i < 20000; i++) {
		struct python_runtime runtime = {
			.address = (uintptr_t)runtime_words, .layout = build(&rows[(size_t)i % ROWS])};
		struct python_layout layout;
		size_t count;

		for (uint64_t left = random_word() % 12; left > 0; left--) {
			static const uint32_t places[][2] = {{0x100, 0x2000}, {0x3000, 0x200}, {0x4000, 0x100},
				{0x800, 0x200}, {0x8000, 0x2800}, {0x10000, 0x5000}};
			const uint32_t *place = places[random_word() % 6];

			put(at(place[0]) + random_word() % place[1] / 8 * 8, random_value());
		}
		/* what a hint says is believed no more than anything else */
		if (i % 3 == 0) {
			hint.frame_count = (uint32_t)(random_word() % PYTHON_REMEMBERED);
			for (size_t k = 0; k < hint.frame_count; k += 1 + random_word() % 5)
				hint.frames[k] = random_value();
			hint.runtime = &runtime;
			hint.state = random_value();
		}
		if (i % 5 == 0) {
			runtime_words[random_word() % PYTHON_PUBLISHED_WORDS] =
				random_word() % (i % 2 ? 512 : 1u << 23);
			if (python_layout_published(runtime_words, &layout, NULL))
				runtime.layout = layout;
		}
		if (i % 7 == 0)
			mprotect(arena + random_word() % 32 * 4096, 4096, PROT_NONE);
		count = read_all(&runtime, i % 2 ? &hint : NULL, texts);
		mprotect(arena, ARENA_BYTES, PROT_READ | PROT_WRITE);
		assert_in_range(count, 0, PYTHON_FRAMES_MAX);
		for (size_t k = 0; k < count; k++)
			assert_in_range(strlen(texts[k]), 1, 8192);
		whole += count == FRAMES;
		none += count == 0;
	}
	/* both outcomes were met, so damage was neither all nor nothing */
	assert_in_range(whole, 1000, 19000);
	assert_in_range(none, 1000, 19000);
}

static void *come_and_go(void *arg)
{
	const bool *stop = arg;
	uint64_t local = 88172645463325252ull;

	while (!__atomic_load_n(stop, __ATOMIC_RELAXED)) {
		local ^= local << 13;
		local ^= local >> 7;
		local ^= local << 17;
		mprotect(arena + local % 32 * 4096, 4096, PROT_NONE);
		mprotect(arena, ARENA_BYTES, PROT_READ | PROT_WRITE);
	}
	return NULL;
}

static void memory_that_goes_meanwhile_is_no_fault(void **state)
{
	const char *texts[PYTHON_FRAMES_MAX];
	struct python_runtime runtime = {.address = (uintptr_t)runtime_words, .layout = build(&rows[2])};
	struct python_hint hint = {0};
	bool stop = false;
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, come_and_go, &stop), 0);
	for (int i = 0; i < 1500; i++) {
		size_t count = read_all(&runtime, &hint, texts);

		if (count)
			assert_all(texts, count);
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	assert_all(texts, read_all(&runtime, &hint, texts));
}

static void versions_without_a_row_are_not_known(void **state)
{
	static const uint32_t known[] = {0x03090000, 0x030912f0, 0x030a0df0, 0x030b02f0, 0x030c01f0},
			      unknown[] = {0, 0x02070000, 0x03080000, 0x030d0000, 0x030e0af0, 0x04090000};
	struct python_layout layout;

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
#if defined(__x86_64__) && defined(__GLIBC__)
		assert_true(python_layout_known(known[i], &layout));
		assert_int_equal(layout.minor, known[i] >> 16 & 0xff);
#else
		assert_false(python_layout_known(known[i], &layout));
#endif
	}
	for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++)
		assert_false(python_layout_known(unknown[i], &layout));
}

static void pieces_are_copied_up_to_the_first_that_is_not_there(void **state)
{
	struct iovec pieces[3] = {
		foreign_piece(at(16), 8), foreign_piece(at(ARENA_BYTES - 4), 8), foreign_piece(at(32), 8)};
	char to[64];

	memset(arena, 'x', ARENA_BYTES);
	memset(to, 'o', sizeof(to));
	assert_in_range(foreign_gather(to, pieces, 3), 8, 12);
	assert_memory_equal(to, "xxxxxxxx", 8);
	assert_int_equal(to[12], 'o');
	assert_false(foreign_read(to, at(ARENA_BYTES), 1));
	assert_false(foreign_read(to, 8, 1));
	assert_true(foreign_read(to, at(ARENA_BYTES - 1), 1));
	assert_true(foreign_works());
	assert_int_equal(foreign_gather(to, pieces, FOREIGN_PIECES_MAX + 1), 0);
	pieces[0].iov_len = FOREIGN_BYTES_MAX + 1;
	assert_int_equal(foreign_gather(to, pieces, 1), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(section_of_a_program_that_exports_nothing_is_found),
		cmocka_unit_test(each_published_layout_is_read),
		cmocka_unit_test(state_that_is_not_this_threads_has_no_frame),
		cmocka_unit_test(chains_in_a_circle_end),
		cmocka_unit_test(versions_without_a_row_are_not_known),
		cmocka_unit_test(pieces_are_copied_up_to_the_first_that_is_not_there),
		cmocka_unit_test(memory_that_goes_meanwhile_is_no_fault),
		/* last: it fills the table of texts */
		cmocka_unit_test(damaged_interpreters_never_fault),
	};

	arena = mmap(NULL, ARENA_BYTES + 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (arena == MAP_FAILED || mprotect(arena, ARENA_BYTES, PROT_READ | PROT_WRITE) != 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
