/* tests/unit/test_callers.c
 * Native stacks as they are met: whose functions stand on them, and what is said of each. */
#include "lifecycle/callers/caller.h"
#include "lifecycle/callers/texts.h"
#include "tests/unit/callers_harness.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static struct stack stack;

static void functions_that_are_not_exported_have_their_names(void **state)
{
	int first;

	read_below(opened_plugin("libplain.so"), "plain_outer", &stack);
	first = assert_frames(&stack, "libplain.so:plain_inner", "libplain.so:plain_middle", "libplain.so:plain_outer", NULL);
	assert_int_equal(first, 1); /* in front of them only the reader */
	assert_frames(&stack, "test_callers:read_stack", "libplain.so:plain_inner", NULL);
	assert_true(frame_at(&stack, "test_callers:main", 4) > 0); /* the program by its own name */
	assert_true(stack.count < NATIVE_FRAMES_MAX);
}

static void a_stripped_library_has_the_names_of_what_it_exports(void **state)
{
	void *plugin = opened_plugin("libstripped.so");
	struct stack again;
	int first;

	read_below(plugin, "stripped_outer", &stack);
	first = frame_at(&stack, "libstripped.so:stripped_outer", 0);
	assert_int_equal(first, 3);
	for (int i = 1; i < 3; i++) {
		unsigned long long offset;

		assert_int_equal(sscanf(stack.texts[i], "libstripped.so:+0x%llx", &offset), 1);
		assert_true(offset > 0 && offset < 1 << 20); /* of its own file, the same in every process */
	}
	read_below(plugin, "stripped_outer", &again);
	for (int i = 1; i < 4; i++)
		assert_ptr_equal(again.texts[i], stack.texts[i]);
}

static void a_realigned_frame_is_left_like_any_other(void **state)
{
	read_below(opened_plugin("libplain.so"), "plain_realigned", &stack);
	assert_frames(&stack, "libplain.so:plain_realigned", "test_callers:a_realigned_frame_is_left_like_any_other", NULL);
	assert_true(frame_at(&stack, "test_callers:main", 0) > 0);
}

static void a_deep_recursion_shows_its_innermost_frames(void **state)
{
	((void (*)(reader, void *, int))function_of(opened_plugin("libplain.so"), "plain_deep"))(read_stack, &stack, 300);
	assert_int_equal(stack.count, NATIVE_FRAMES_MAX);
	for (size_t i = 1; i < stack.count; i++)
		assert_string_equal(stack.texts[i], "libplain.so:plain_deep");
}

static void addresses_and_texts_one_by_one_are_those_of_the_stack(void **state)
{
	uint64_t ips[NATIVE_FRAMES_MAX];
	const char *texts[NATIVE_FRAMES_MAX];
	size_t count = native_frames(ips, NATIVE_FRAMES_MAX);

	assert_true(count > 2);
	assert_int_equal(native_stack(NULL, texts, NATIVE_FRAMES_MAX), count);
	for (size_t i = 0; i < count; i++)
		assert_ptr_equal(native_text(ips[i]), texts[i]);
	assert_string_equal(texts[0], "test_callers:addresses_and_texts_one_by_one_are_those_of_the_stack");
}

static void there_is_no_more_than_there_is_room_for(void **state)
{
	uint64_t ips[3] = {0, 0, 7};

	assert_int_equal(native_frames(ips, 2), 2);
	assert_int_equal(ips[2], 7);
	assert_int_equal(native_frames(ips, 0), 0);
}

/* ---- signals ---- */

static void on_signal(int number)
{
	read_stack(&stack);
	NO_JUMP();
}

static void read_in_handler(int flags)
{
	struct sigaction action = {.sa_handler = on_signal, .sa_flags = flags}, before;

	stack.count = 0;
	sigaction(SIGUSR1, &action, &before);
	((void (*)(int))function_of(opened_plugin("libplain.so"), "plain_interrupted"))(SIGUSR1);
	sigaction(SIGUSR1, &before, NULL);
}

static void assert_interrupted(void)
{
#if defined(__x86_64__)
	int handler = assert_frames(&stack, "test_callers:on_signal", NULL), below = frame_at(&stack, "libplain.so:plain_interrupted", 0);

	if (below < handler + 2)
		print_stack(&stack);
	assert_true(below >= handler + 2); /* the kernel's frame, and libc's on its way to the kernel */
	assert_true(frame_at(&stack, "test_callers:main", below) > 0);
#endif
}

static void a_signal_handler_has_what_it_interrupted_below_it(void **state)
{
	read_in_handler(0);
	assert_interrupted();
}

static void a_handler_on_a_stack_of_its_own_has_what_it_interrupted_below_it(void **state)
{
	stack_t own = {.ss_size = 64 * 1024}, before;

	own.ss_sp = malloc(own.ss_size);
	assert_non_null(own.ss_sp);
	sigaltstack(&own, &before);
	read_in_handler(SA_ONSTACK);
	sigaltstack(&before, NULL);
	free(own.ss_sp);
	assert_interrupted();
}

/* ---- frames that say nothing ---- */

static void code_that_left_no_information_ends_the_stack(void **state)
{
#if defined(__x86_64__)
	/* push rbp; mov rbp, rsp; mov rax, rdi; mov rdi, rsi; call rax; pop rbp; ret */
	static const unsigned char code[] = {0x55, 0x48, 0x89, 0xe5, 0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0xff, 0xd0, 0x5d, 0xc3};
	void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(page, MAP_FAILED);
	memcpy(page, code, sizeof(code));
	assert_int_equal(mprotect(page, 4096, PROT_READ | PROT_EXEC), 0);
	((void (*)(reader, void *))page)(read_stack, &stack);
	munmap(page, 4096);
	assert_int_equal(stack.count, 1);
	assert_string_equal(stack.texts[0], "test_callers:read_stack");
#else
	skip();
#endif
}

static void a_library_without_information_is_named_and_ends_the_stack(void **state)
{
	read_below(opened_plugin("libbare.so"), "bare_outer", &stack);
	assert_frames(&stack, "test_callers:read_stack", "libbare.so:bare_inner", NULL);
	assert_int_equal(stack.count, 2);
}

static void an_address_outside_every_object_has_no_library(void **state)
{
	const uint64_t ips[] = {1, 0, 4096, (uintptr_t)&stack.count | 1ull << 62, UINT64_MAX};

	for (int i = 0; i < 5; i++) {
		assert_string_equal(native_text(ips[i]), "?");
		assert_null(native_library(ips[i]));
	}
}

/* ---- what a caller may count on ---- */

static void errno_and_the_signal_mask_stay(void **state)
{
	sigset_t before, after, some;

	sigemptyset(&some);
	sigaddset(&some, SIGUSR2);
	pthread_sigmask(SIG_BLOCK, &some, NULL);
	pthread_sigmask(SIG_BLOCK, NULL, &before);
	errno = EXDEV;
	read_below(opened_plugin("liberrno.so"), "errno_outer", &stack); /* met for the first time: files are read */
	assert_non_null(native_library(stack.ips[0]));
	assert_int_equal(errno, EXDEV);
	pthread_sigmask(SIG_BLOCK, NULL, &after);
	for (int number = 1; number < NSIG; number++)
		assert_int_equal(sigismember(&before, number), sigismember(&after, number));
	pthread_sigmask(SIG_UNBLOCK, &some, NULL);
}

static void no_descriptor_stays_open(void **state)
{
	int before = dup(0), after;

	read_below(opened_plugin("libdescriptors.so"), "descriptors_outer", &stack);
	after = dup(0);
	assert_int_equal(after, before + 1);
	close(before);
	close(after);
}

static int status_of_child(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void a_forked_child_reads_its_own_stack(void **state)
{
	void *plugin = opened_plugin("libplain.so");
	void *fresh = opened_plugin("libfork.so");
	pid_t pid = fork();

	if (pid == 0) {
		struct stack own = {0};

		((void (*)(reader, void *))dlsym(plugin, "plain_outer"))(read_stack, &own);
		if (frame_at(&own, "libplain.so:plain_middle", 0) < 0)
			_exit(1);
		((void (*)(reader, void *))dlsym(fresh, "fork_outer"))(read_stack, &own);
		_exit(frame_at(&own, "libfork.so:fork_middle", 0) < 0 ? 2 : 0);
	}
	assert_int_equal(status_of_child(pid), 0);
}

enum { QUICK_WAY, EVERY_WAY };

static bool refuse_reading(int what)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, what == EVERY_WAY ? SYS_pipe2 : SYS_process_vm_readv, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof(filter) / sizeof(filter[0]), filter};

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/* The first test: nothing is prepared yet. */
static void where_a_process_may_not_read_itself_the_reason_is_said(void **state)
{
	pid_t pid = fork();

	if (pid == 0) {
		struct errinfo failure = {0};

		if (!refuse_reading(EVERY_WAY))
			_exit(77);
		if (native_prepare(&failure) || failure.code != SUBLET_ERR_UNSUPPORTED || !strstr(failure.text, "process_vm_writev"))
			_exit(1);
		read_stack(&stack);
		_exit(stack.count == 0 && !native_text((uintptr_t)read_stack + 1) ? 0 : 2);
	}
	assert_int_equal(status_of_child(pid), 0);
}

/* Also what rules are told that cannot be had: a library is found by its object, which is read like a stack. */
static void where_a_process_may_not_read_itself_no_library_is_promised(void **state)
{
	pid_t pid = fork();

	if (pid == 0) {
		if (!refuse_reading(EVERY_WAY))
			_exit(77);
		_exit(caller_prepare(CALLER_LIBRARY | CALLER_THREAD) == CALLER_THREAD ? 0 : 1);
	}
	assert_int_equal(status_of_child(pid), 0);
}

static void where_reading_is_refused_later_there_is_no_frame(void **state)
{
	pid_t pid = fork();

	if (pid == 0) {
		if (!refuse_reading(EVERY_WAY))
			_exit(77);
		read_stack(&stack);
		_exit(stack.count == 0 ? 0 : 2);
	}
	assert_int_equal(status_of_child(pid), 0);
}

/* As sandboxes do that know the system call: the same frames, by the way that is left. */
static void where_the_quick_way_of_reading_is_refused_there_are_frames(void **state)
{
	pid_t pid = fork();

	if (pid == 0) {
		void *plugin = opened_plugin("libplain.so");
		struct stack before, after;

		read_below(plugin, "plain_outer", &before);
		if (!refuse_reading(QUICK_WAY))
			_exit(77);
		read_below(plugin, "plain_outer", &after);
		if (frame_at(&after, "libplain.so:plain_middle", 0) < 0 || after.count != before.count)
			_exit(1);
		/* and what is met for the first time; by the handle, as a sanitizer has a qsort of its own */
		_exit(strcmp(native_text((uintptr_t)dlsym(dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD), "qsort") + 1), "libc.so.6:qsort") == 0
			      ? 0
			      : 2);
	}
	assert_int_equal(status_of_child(pid), 0);
}

/* ---- threads ---- */

enum { THREADS = 16, ROUNDS = 50 };

struct many {
	pthread_t thread;
	pthread_barrier_t *start;
	void *plugin;
	const char *wrong;
	const char *texts[3];
};

static void *read_many(void *arg)
{
	struct many *many = arg;
	struct stack own;

	pthread_barrier_wait(many->start);
	for (int i = 0; i < ROUNDS; i++) {
		int at;

		((void (*)(reader, void *))dlsym(many->plugin, "threads_outer"))(read_stack, &own);
		at = frame_at(&own, "libthreads.so:threads_inner", 0);
		if (at < 0 || frame_at(&own, "libthreads.so:threads_middle", at + 1) != at + 1) {
			many->wrong = "a frame is missing";
			return NULL;
		}
		memcpy(many->texts, own.texts + at, sizeof(many->texts));
	}
	return NULL;
}

static void many_threads_that_meet_a_library_at_once_agree(void **state)
{
	void *plugin = opened_plugin("libthreads.so");
	struct many all[THREADS] = {{0}};
	pthread_barrier_t start;

	pthread_barrier_init(&start, NULL, THREADS);
	for (int i = 0; i < THREADS; i++) {
		all[i].start = &start;
		all[i].plugin = plugin;
		assert_int_equal(pthread_create(&all[i].thread, NULL, read_many, &all[i]), 0);
	}
	for (int i = 0; i < THREADS; i++) {
		pthread_join(all[i].thread, NULL);
		if (all[i].wrong)
			fail_msg("%s", all[i].wrong);
		assert_memory_equal(all[i].texts, all[0].texts, sizeof(all[i].texts)); /* the same pointers */
	}
	pthread_barrier_destroy(&start);
}

/* ---- small stacks ---- */

struct asked {
	struct caller caller;
	int error;
};

static void *ask_all(void *arg)
{
	struct asked *asked = arg;

	errno = 4711;
	caller_find(CALLER_EVERYTHING, __builtin_return_address(0), &asked->caller);
	asked->error = errno;
	return NULL;
}

static void ask_on_a_stack_of(size_t bytes, struct asked *ret)
{
	pthread_attr_t attributes;
	pthread_t thread;

	pthread_attr_init(&attributes);
	assert_int_equal(pthread_attr_setstacksize(&attributes, bytes), 0);
	assert_int_equal(pthread_create(&thread, &attributes, ask_all, ret), 0);
	pthread_join(thread, NULL);
	pthread_attr_destroy(&attributes);
}

/* A thread may have 16 KiB, of which the caller has used some, and a fault there would end the process. */
static void a_stack_that_is_too_small_for_the_reader_is_not_read(void **state)
{
	struct asked asked;

#ifndef __SANITIZE_THREAD__ /* which gives every thread a larger one */
	ask_on_a_stack_of((size_t)sysconf(_SC_THREAD_STACK_MIN), &asked);
	assert_int_equal(asked.error, 4711);
	assert_int_equal(asked.caller.stack_count, 0);
	assert_int_equal(asked.caller.python_count, 0);
	assert_non_null(asked.caller.thread);
#endif
	ask_on_a_stack_of(256 * 1024, &asked);
	assert_int_equal(asked.error, 4711);
	assert_true(asked.caller.stack_count > 0);
	assert_non_null(asked.caller.library[0]);
	ask_all(&asked); /* the first thread's grows */
	assert_true(asked.caller.stack_count > 0);
}

/* ---- texts and libraries ---- */

static void sets_of_texts_are_apart_and_know_their_own(void **state)
{
	struct texts set = {0};
	char here[] = "abc";
	const char *one, *common;

	assert_false(texts_hold(&set, here));
	one = texts_intern_in(&set, here, 3);
	common = texts_intern(here, 3);
	assert_string_equal(one, "abc");
	assert_ptr_equal(texts_intern_in(&set, "abcd", 3), one);
	assert_ptr_not_equal(common, one);
	assert_true(texts_hold(&set, one));
	assert_false(texts_hold(&set, common));
	assert_false(texts_hold(&set, here));
	assert_false(texts_hold(&set, NULL));
}

static void names_of_cxx_are_without_parameters(void **state)
{
	void *plugin = opened_plugin("libplain.so");

	read_below(plugin, "_ZN3c104cuda20CUDACachingAllocator9raw_allocEm", &stack);
	assert_frames(&stack, "libplain.so:c10::cuda::CUDACachingAllocator::raw_alloc", NULL);
}

struct callers {
	size_t count;
	const char *paths[2];
};

static void read_callers(void *arg)
{
	struct callers *callers = arg;

	callers->count = native_callers(__builtin_return_address(0), callers->paths);
}

struct through {
	void (*outer)(reader, void *);
	struct callers callers;
};

static void call_runtime(void *arg)
{
	struct through *through = arg;

	through->outer(read_callers, &through->callers);
	NO_JUMP();
}

static void a_caller_is_a_library_and_of_the_runtime_the_one_above_too(void **state)
{
	void (*plain)(reader, void *) = function_of(opened_plugin("libplain.so"), "plain_outer");
	struct through through = {.outer = function_of(opened_plugin("libcudart.so.12"), "runtime_outer")};
	struct callers direct;

	plain(read_callers, &direct);
	assert_int_equal(direct.count, 1);
	assert_non_null(strstr(direct.paths[0], "/libplain.so"));
	assert_int_equal(direct.paths[0][0], '/');

	through.outer(read_callers, &through.callers);
	assert_int_equal(through.callers.count, 2);
	assert_non_null(strstr(through.callers.paths[0], "/libcudart.so.12"));
	assert_non_null(strstr(through.callers.paths[1], "/test_callers"));

	/* the program stands between the two libraries: it is who calls the runtime */
	plain(call_runtime, &through);
	assert_int_equal(through.callers.count, 2);
	assert_non_null(strstr(through.callers.paths[1], "/test_callers"));
}

static void frames_of_the_library_itself_are_left_out(void **state)
{
	native_own_code = (const void *)native_frames;
	read_below(opened_plugin("libplain.so"), "plain_outer", &stack);
	native_own_code = NULL;
	assert_string_equal(stack.texts[0], "libplain.so:plain_inner");
	for (size_t i = 0; i < stack.count; i++)
		assert_null(strstr(stack.texts[i], "test_callers:"));
}

static void without_the_loaders_table_the_stack_is_the_same(void **state)
{
	struct stack other;

	read_below(opened_plugin("libplain.so"), "plain_outer", &stack);
	objects_by_iteration = true;
	read_below(opened_plugin("libplain.so"), "plain_outer", &other);
	objects_by_iteration = false;
	assert_int_equal(other.count, stack.count);
	for (size_t i = 1; i < stack.count; i++) {
		if (strstr(stack.texts[i], "test_callers:without_") == NULL) /* two calls, two places */
			assert_string_equal(other.texts[i], stack.texts[i]);
	}
}

int main(void)
{
	const struct CMUnitTest unprepared[] = {
		cmocka_unit_test(where_a_process_may_not_read_itself_the_reason_is_said),
		cmocka_unit_test(where_a_process_may_not_read_itself_no_library_is_promised),
	};
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(functions_that_are_not_exported_have_their_names),
		cmocka_unit_test(a_stripped_library_has_the_names_of_what_it_exports),
		cmocka_unit_test(a_realigned_frame_is_left_like_any_other),
		cmocka_unit_test(a_deep_recursion_shows_its_innermost_frames),
		cmocka_unit_test(addresses_and_texts_one_by_one_are_those_of_the_stack),
		cmocka_unit_test(there_is_no_more_than_there_is_room_for),
		cmocka_unit_test(a_signal_handler_has_what_it_interrupted_below_it),
		cmocka_unit_test(a_handler_on_a_stack_of_its_own_has_what_it_interrupted_below_it),
		cmocka_unit_test(code_that_left_no_information_ends_the_stack),
		cmocka_unit_test(a_library_without_information_is_named_and_ends_the_stack),
		cmocka_unit_test(an_address_outside_every_object_has_no_library),
		cmocka_unit_test(errno_and_the_signal_mask_stay),
		cmocka_unit_test(no_descriptor_stays_open),
		cmocka_unit_test(a_forked_child_reads_its_own_stack),
		cmocka_unit_test(where_the_quick_way_of_reading_is_refused_there_are_frames),
		cmocka_unit_test(where_reading_is_refused_later_there_is_no_frame),
		cmocka_unit_test(many_threads_that_meet_a_library_at_once_agree),
		cmocka_unit_test(sets_of_texts_are_apart_and_know_their_own),
		cmocka_unit_test(a_stack_that_is_too_small_for_the_reader_is_not_read),
		cmocka_unit_test(names_of_cxx_are_without_parameters),
		cmocka_unit_test(a_caller_is_a_library_and_of_the_runtime_the_one_above_too),
		cmocka_unit_test(frames_of_the_library_itself_are_left_out),
		cmocka_unit_test(without_the_loaders_table_the_stack_is_the_same),
	};

	return cmocka_run_group_tests_name("unprepared", unprepared, NULL, NULL) +
	       cmocka_run_group_tests_name("callers", tests, callers_setup, NULL);
}
