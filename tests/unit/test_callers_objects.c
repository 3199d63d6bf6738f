/* tests/unit/test_callers_objects.c
 * Libraries that come, go, are replaced and are being loaded while stacks are read. */
#include "tests/unit/callers_harness.h"

#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tests/unit/scratch.h"

static struct stack stack;

static uint64_t base_of(void *handle)
{
	struct link_map *map;

	assert_int_equal(dlinfo(handle, RTLD_DI_LINKMAP, &map), 0);
	return map->l_addr;
}

static void copy_plugin(const char *name, const char *to)
{
	static char bytes[1 << 20];
	char from[4096];
	ssize_t length;
	int fd;

	snprintf(from, sizeof(from), "%s/%s", getenv("SUBLET_TEST_PLUGINS"), name);
	fd = open(from, O_RDONLY);
	length = read(fd, bytes, sizeof(bytes));
	assert_true(length > 0 && (size_t)length < sizeof(bytes));
	close(fd);
	unlink(to); /* another file: what is loaded keeps the old one */
	fd = open(to, O_WRONLY | O_CREAT | O_EXCL, 0700);
	assert_int_equal(write(fd, bytes, (size_t)length), length);
	close(fd);
}

static char folder[] = "/tmp/sublet-callers-XXXXXX";
static char file[64]; /* a library in there */

static int setup(void **state)
{
	if (!mkdtemp(folder))
		return -1;
	snprintf(file, sizeof(file), "%s/liblent.so", folder);
	return callers_setup(state);
}

static int teardown(void **state)
{
	scratch_remove(folder);
	return 0;
}

/* ---- closed and opened again ---- */

/* Reads below @first, closes it, opens @second at the same place, reads below that. */
static void one_after_the_other(const char *first, const char *second, const char *same_file)
{
	char function[64], expected[128];
	const char *const names[] = {first, second};
	uint64_t base = 0;

	for (int i = 0; i < 2; i++) {
		char name[64];
		void *handle;

		snprintf(name, sizeof(name), "lib%s.so", names[i]);
		if (same_file)
			copy_plugin(name, same_file);
		handle = same_file ? opened(same_file) : opened_plugin(name);
		if (i == 1 && base_of(handle) != base) {
			dlclose(handle);
			print_message("the loader has put the second library elsewhere\n");
			skip();
		}
		base = base_of(handle);
		snprintf(function, sizeof(function), "%s_outer", names[i]);
		read_below(handle, function, &stack);
		snprintf(expected, sizeof(expected), "%s:%s_middle", same_file ? "liblent.so" : name, names[i]);
		assert_frames(&stack, expected, NULL);
		dlclose(handle);
	}
}

static int by_list(void **state)
{
	objects_by_iteration = true;
	return 0;
}

static int by_table(void **state)
{
	objects_by_iteration = false;
	return 0;
}

static void another_library_at_the_same_addresses_has_its_own_names(void **state)
{
	one_after_the_other("twin1", "twin2", NULL);
}

static void another_build_under_the_same_name_has_its_own_names(void **state)
{
	one_after_the_other("twin1", "twin2", file);
}

static void without_build_ids_the_name_tells_them_apart(void **state)
{
	one_after_the_other("same1", "same2", NULL);
}

static void without_the_loaders_table_they_are_told_apart_too(void **state)
{
	one_after_the_other("twin1", "twin2", file);
}

static void the_same_library_again_has_the_same_texts(void **state)
{
	const char *before;

	for (int i = 0; i < 3; i++) {
		void *handle = opened_plugin("libtwin1.so");
		int at;

		read_below(handle, "twin1_outer", &stack);
		at = assert_frames(&stack, "libtwin1.so:twin1_inner", NULL);
		assert_true(i == 0 || stack.texts[at] == before);
		before = stack.texts[at];
		dlclose(handle);
	}
}

static void an_address_of_a_closed_library_belongs_to_none(void **state)
{
	void *handle = opened_plugin("libtwin1.so");
	uint64_t address;
	int at;

	read_below(handle, "twin1_outer", &stack);
	at = assert_frames(&stack, "libtwin1.so:twin1_inner", NULL);
	address = stack.ips[at];
	assert_non_null(native_library(address));
	dlclose(handle);
	assert_null(native_library(address));
	assert_string_equal(native_text(address), "?");
}

/* ---- files ---- */

static void a_file_replaced_since_is_not_asked_for_names(void **state)
{
	void *handle;

	copy_plugin("libreplaced.so", file);
	handle = opened(file);
	copy_plugin("libstripped.so", file);
	read_below(handle, "replaced_outer", &stack);
	assert_int_equal(frame_at(&stack, "liblent.so:replaced_outer", 0), 3); /* exported: in memory */
	assert_non_null(strstr(stack.texts[1], "liblent.so:+0x"));
	dlclose(handle);
}

static void a_file_that_is_gone_or_no_file_is_not_waited_for(void **state)
{
	for (int i = 0; i < 2; i++) {
		void *handle;

		copy_plugin("libreplaced.so", file);
		handle = opened(file);
		unlink(file);
		if (i == 1)
			assert_int_equal(mkfifo(file, 0600), 0);
		read_below(handle, "replaced_outer", &stack);
		assert_non_null(strstr(stack.texts[1], "liblent.so:+0x"));
		assert_string_equal(native_library(stack.ips[1]), file);
		dlclose(handle);
		unlink(file);
	}
}

/* The section headers of a file are not loaded, and may say anything. */
static void a_broken_table_of_sections_is_no_table(void **state)
{
	static const size_t fields[] = {offsetof(ElfW(Shdr), sh_size), offsetof(ElfW(Shdr), sh_offset), offsetof(ElfW(Shdr), sh_link),
		offsetof(ElfW(Shdr), sh_entsize)};

	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		ElfW(Ehdr) elf;
		void *handle;
		int fd;

		copy_plugin("libreplaced.so", file);
		fd = open(file, O_RDWR);
		assert_int_equal(pread(fd, &elf, sizeof(elf), 0), (int)sizeof(elf));
		for (unsigned section = 0; section < elf.e_shnum; section++) {
			uint32_t junk = 0xfffffff1u;

			assert_int_equal(pwrite(fd, &junk, sizeof(junk), (off_t)(elf.e_shoff + section * sizeof(ElfW(Shdr)) + fields[i])),
				(int)sizeof(junk));
		}
		close(fd);
		handle = opened(file);
		read_below(handle, "replaced_outer", &stack);
		assert_int_equal(frame_at(&stack, "liblent.so:replaced_outer", 0), 3);
		assert_non_null(strstr(stack.texts[1], "liblent.so:+0x"));
		dlclose(handle);
	}
}

static void read_callers(void *arg)
{
	native_callers(__builtin_return_address(0), arg);
}

/* As wheels do with the libraries that they bring: `libcudart-d0da41ae.so.11.0`. */
static void a_runtime_under_the_name_that_a_wheel_gives_it_is_a_runtime(void **state)
{
	const char *paths[2] = {NULL, NULL};
	char path[128];
	void *handle;

	snprintf(path, sizeof(path), "%s/libcudart-d0da41ae.so.11.0", folder);
	copy_plugin("libcudart.so.12", path);
	handle = opened(path);
	read_below(handle, "runtime_outer", &stack);
	/* its frames are on no stack now, so who called it is not known, but it was looked for */
	assert_int_equal(native_callers((void *)(uintptr_t)stack.ips[1], paths), 1);
	assert_string_equal(paths[0], path);
	((void (*)(reader, void *))function_of(handle, "runtime_outer"))(read_callers, paths);
	assert_string_equal(paths[0], path);
	assert_non_null(paths[1]);
	assert_non_null(strstr(paths[1], "/test_callers_objects"));
	dlclose(handle);
	unlink(path);
}

/* ---- files that take long ---- */

static sem_t file_read, go_on;
static int slow; /* atomic: reading of files waits for go_on */

ssize_t __real_pread64(int fd, void *to, size_t bytes, off_t at);
ssize_t __wrap_pread64(int fd, void *to, size_t bytes, off_t at);
ssize_t __wrap_pread64(int fd, void *to, size_t bytes, off_t at)
{
	if (__atomic_exchange_n(&slow, 0, __ATOMIC_ACQ_REL)) {
		sem_post(&file_read);
		sem_wait(&go_on);
	}
	return __real_pread64(fd, to, bytes, at);
}

static void *read_slowly(void *arg)
{
	static struct stack own;

	((void (*)(reader, void *))arg)(read_stack, &own);
	return NULL;
}

static void a_stack_waits_once_for_another_thread_that_reads_a_file(void **state)
{
	struct timespec begin, end;
	pthread_t thread;
	void *handle, *other;
	char path[128];

	snprintf(path, sizeof(path), "%s/libother.so", folder);
	copy_plugin("libreplaced.so", file);
	copy_plugin("libstripped.so", path);
	handle = opened(file);
	other = opened(path);
	sem_init(&file_read, 0, 0);
	sem_init(&go_on, 0, 0);
	__atomic_store_n(&slow, 1, __ATOMIC_RELEASE);
	assert_int_equal(pthread_create(&thread, NULL, read_slowly, function_of(handle, "replaced_outer")), 0);
	sem_wait(&file_read);
	clock_gettime(CLOCK_MONOTONIC, &begin);
	read_below(other, "stripped_outer", &stack);
	clock_gettime(CLOCK_MONOTONIC, &end);
	sem_post(&go_on);
	pthread_join(thread, NULL);
	assert_non_null(strstr(stack.texts[1], "libother.so:+0x"));
	assert_true((end.tv_sec - begin.tv_sec) * 1000 + (end.tv_nsec - begin.tv_nsec) / 1000000 < 1900);
	/* and is told in full when it asks again */
	read_below(other, "stripped_outer", &stack);
	assert_true(frame_at(&stack, "libother.so:stripped_outer", 0) > 0);
	dlclose(handle);
	dlclose(other);
	unlink(path);
}

/* ---- beside the loader ---- */

enum { BOUND_S = 20 };

static struct beside {
	void *plugin;
	const char *function, *expected;
	sem_t done, end;
	struct stack stack;
	bool read_in_time, loader_was_held;
} beside;

static bool within(sem_t *what, time_t seconds)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += seconds;
	return sem_timedwait(what, &until) == 0;
}

static void *read_beside(void *arg)
{
	void (*below)(reader, void *) = arg;

	below(read_stack, &beside.stack);
	sem_post(&beside.done);
	return NULL;
}

static void *open_beside(void *arg)
{
	void *handle = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);

	sem_post(&beside.end);
	if (handle)
		dlclose(handle);
	return NULL;
}

static void (*below_beside)(reader, void *); /* looked up before: that needs the lock, too */
static pthread_t reading, opening;

/* Runs where the loader's lock is held, and waits for another thread to read its stack, as one would who waits for a mutex of
 * the allocator. Called by libconstructor.so. */
__attribute__((visibility("default"))) void callers_at_load(void);
void callers_at_load(void)
{
	pthread_create(&reading, NULL, read_beside, (void *)below_beside);
	pthread_create(&opening, NULL, open_beside, NULL);
	beside.read_in_time = within(&beside.done, BOUND_S);
	beside.loader_was_held = !within(&beside.end, 1);
}

static void a_thread_reads_its_stack_while_another_holds_the_loaders_lock(void **state)
{
	sem_init(&beside.done, 0, 0);
	sem_init(&beside.end, 0, 0);
	below_beside = (void (*)(reader, void *))function_of(opened_plugin("libloader.so"), "loader_outer");
	opened_plugin("libconstructor.so");
	pthread_join(reading, NULL);
	pthread_join(opening, NULL);
	assert_true(beside.loader_was_held);
	assert_true(beside.read_in_time);
	assert_frames(&beside.stack, "libloader.so:loader_inner", "libloader.so:loader_middle", NULL);
}

static int at_list(struct dl_phdr_info *info, size_t size, void *arg)
{
	pthread_create(&reading, NULL, read_beside, (void *)below_beside);
	beside.read_in_time = within(&beside.done, BOUND_S);
	return 1;
}

static void a_thread_reads_its_stack_while_another_goes_through_the_loaders_list(void **state)
{
	sem_init(&beside.done, 0, 0);
	below_beside = (void (*)(reader, void *))function_of(opened_plugin("liblist.so"), "list_outer");
	dl_iterate_phdr(at_list, NULL);
	pthread_join(reading, NULL);
	assert_true(beside.read_in_time);
	assert_frames(&beside.stack, "liblist.so:list_inner", "liblist.so:list_middle", NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(another_library_at_the_same_addresses_has_its_own_names),
		cmocka_unit_test(another_build_under_the_same_name_has_its_own_names),
		cmocka_unit_test(without_build_ids_the_name_tells_them_apart),
		cmocka_unit_test_setup_teardown(without_the_loaders_table_they_are_told_apart_too, by_list, by_table),
		cmocka_unit_test(the_same_library_again_has_the_same_texts),
		cmocka_unit_test(an_address_of_a_closed_library_belongs_to_none),
		cmocka_unit_test(a_file_replaced_since_is_not_asked_for_names),
		cmocka_unit_test(a_file_that_is_gone_or_no_file_is_not_waited_for),
		cmocka_unit_test(a_broken_table_of_sections_is_no_table),
		cmocka_unit_test(a_runtime_under_the_name_that_a_wheel_gives_it_is_a_runtime),
		cmocka_unit_test(a_stack_waits_once_for_another_thread_that_reads_a_file),
		cmocka_unit_test(a_thread_reads_its_stack_while_another_holds_the_loaders_lock),
		cmocka_unit_test(a_thread_reads_its_stack_while_another_goes_through_the_loaders_list),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
