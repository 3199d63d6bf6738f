/* lifecycle/stats.c
 * The page is written with relaxed atomics by many threads; peaks may miss a moment between two updates, never a byte. */
#include "lifecycle/stats.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_room.h"
#include "base/log.h"
#include "base/process.h"
#include "base/text.h"

static char file_path[512]; /* of this process's page; empty when it is private */

const char *stats_native_name(enum stats_native kind)
{
	static const char *const names[STATS_NATIVE_COUNT] = {
		[STATS_NATIVE_SMALL] = "small", [STATS_NATIVE_CAPTURE] = "capture", [STATS_NATIVE_REFUSED] = "refused",
		[STATS_NATIVE_PITCHED] = "pitched", [STATS_NATIVE_MANAGED] = "uvm", [STATS_NATIVE_POOL] = "pool",
		[STATS_NATIVE_ARRAY] = "array", [STATS_NATIVE_VMM] = "vmm", [STATS_NATIVE_PINNED] = "pinned",
	};

	return names[kind];
}

_Static_assert(STATS_DIR_BYTES_MAX + sizeof("/proc-2147483647.stats") <= sizeof(file_path), "room for every session folder");

bool stats_path(char *path, size_t room, const char *dir, int pid)
{
	int length = snprintf(path, room, "%s/proc-%d.stats", dir, pid);

	return length > 0 && (size_t)length < room;
}

static void fill_identity(struct stats_page *page, const char *role, const char *run)
{
	int fd;

	page->version = STATS_VERSION;
	page->size_bytes = sizeof(*page);
	page->pid = (int32_t)getpid();
	page->state = STATS_RUNNING;
	page->start_ticks = process_start_ticks(page->pid, NULL);
	page->page_id = process_new_id();
	page->run_id = run ? strtoull(run, NULL, 16) : 0;
	for (size_t i = 0; role && role[i] && i < sizeof(page->role) - 1; i++)
		page->role[i] = role[i];
	fd = open("/proc/self/comm", O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		ssize_t length = read(fd, page->comm, sizeof(page->comm) - 1);

		close(fd);
		if (length > 0 && page->comm[length - 1] == '\n')
			page->comm[length - 1] = '\0';
	}
	/* Last: a reader that sees the magic sees a whole page. */
	__atomic_store_n(&page->magic, STATS_MAGIC, __ATOMIC_RELEASE);
}

static struct stats_page *map_page(int fd)
{
	int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
	void *page = mmap(NULL, sizeof(struct stats_page), PROT_READ | PROT_WRITE, flags, fd, 0);

	return page == MAP_FAILED ? NULL : page;
}

/* Does the mapping keep the lock now that the descriptor is closed? So it does on Linux, but not every file system and not
 * every kernel that passes for one can be asked. */
static bool holds_lock(void)
{
	int fd = open(file_path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	bool held = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;

	if (fd >= 0)
		close(fd);
	return held;
}

/* NULL with errno set. */
static struct stats_page *create_shared(const char *dir)
{
	struct stats_page *page = NULL;
	int fd, error;

	if (strlen(dir) > STATS_DIR_BYTES_MAX || !stats_path(file_path, sizeof(file_path), dir, (int)getpid())) {
		error = ENAMETOOLONG;
		goto none;
	}
	/* An earlier process of this pid may have been killed and left its file. */
	unlink(file_path);
	fd = open(file_path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0400);
	if (fd < 0) {
		error = errno;
		goto none;
	}
	/* Nobody else locks a file without a magic, so this does not wait; where it cannot be had, holds_lock says so. */
	flock(fd, LOCK_EX | LOCK_NB);
	error = file_allocate(fd, sizeof(struct stats_page));
	if (!error) {
		page = map_page(fd);
		error = errno;
	}
	close(fd);
	if (page) {
		page->locked = holds_lock();
		return page;
	}
	unlink(file_path);
none:
	file_path[0] = '\0';
	errno = error;
	return NULL;
}

static void say_private(const char *dir)
{
	if (errno == ENAMETOOLONG)
		log_say(LOG_STATS, LOG_WARN, WHOSE_NONE,
			"counters stay private: the path of the session folder has more than %d bytes; name a shorter one with --session",
			STATS_DIR_BYTES_MAX);
	else
		log_say(LOG_STATS, LOG_WARN, WHOSE_NONE, "counters stay private: %s in session folder '%s'",
			text_of_errno(errno), dir);
}

struct stats_page *stats_create(const char *dir, const char *role, const char *run, bool *ret_shared)
{
	static struct stats_page last_resort;
	struct stats_page *page = NULL;

	if (dir && *dir) {
		page = create_shared(dir);
		if (!page)
			say_private(dir);
	}
	*ret_shared = page != NULL;
	if (!page)
		page = map_page(-1);
	if (!page)
		page = &last_resort;
	fill_identity(page, role, run);
	return page;
}

void stats_close(struct stats_page *page, bool keep_file)
{
	if (!page)
		return;
	__atomic_store_n(&page->state, STATS_ENDED, __ATOMIC_RELEASE);
	if (file_path[0] && !keep_file)
		unlink(file_path);
}

struct stats_page *stats_after_fork(struct stats_page *parent_page)
{
	struct stats_page *page = parent_page;

	/* In place: a wrapper that a signal interrupted before it forked still holds the pointer. */
	if (file_path[0] && mmap(parent_page, sizeof(*page), PROT_READ | PROT_WRITE,
				 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
		return parent_page;
	file_path[0] = '\0';
	memset(page, 0, sizeof(*page));
	page->version = STATS_VERSION;
	page->size_bytes = sizeof(*page);
	return page;
}

bool stats_read(int fd, struct stats_page *ret_page)
{
	const ssize_t head_bytes = offsetof(struct stats_page, size_bytes) + sizeof(ret_page->size_bytes);
	struct stats_page page = {0};
	ssize_t got = 0;

	/* The magic by itself first: it is written last, so what is read after it is whole. */
	if (pread(fd, &page.magic, sizeof(page.magic), 0) == (ssize_t)sizeof(page.magic) && page.magic == STATS_MAGIC)
		got = pread(fd, &page, sizeof(page), 0);
	if (got < head_bytes || page.magic != STATS_MAGIC) {
		errno = EINVAL;
		return false;
	}
	if (page.version != STATS_VERSION || page.size_bytes != sizeof(page)) {
		errno = EPROTO;
		return false;
	}
	if (got != (ssize_t)sizeof(page)) {
		errno = EINVAL;
		return false;
	}
	/* its process ends them; who wrote over the file may not have */
	page.role[sizeof(page.role) - 1] = page.comm[sizeof(page.comm) - 1] = '\0';
	*ret_page = page;
	return true;
}

int stats_open(const char *dir, int pid, struct stats_page *ret_page)
{
	char path[sizeof(file_path)];
	struct stat status;
	int fd, error;

	if (!stats_path(path, sizeof(path), dir, pid)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	/* a FIFO of that name would keep us waiting */
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return -1;
	errno = EINVAL;
	if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && stats_read(fd, ret_page))
		return fd;
	error = errno;
	close(fd);
	errno = error;
	return -1;
}

bool stats_is_over(int fd, const struct stats_page *page)
{
	if (!page->locked)
		return process_start_ticks(page->pid, NULL) != page->start_ticks;
	if (flock(fd, LOCK_SH | LOCK_NB))
		return false;
	flock(fd, LOCK_UN);
	return true;
}

void stats_unsub(struct stats_bytes *counter, uint64_t bytes)
{
	uint64_t now = __atomic_add_fetch(&counter->bytes, bytes, __ATOMIC_RELAXED);
	uint64_t peak = __atomic_load_n(&counter->peak_bytes, __ATOMIC_RELAXED);

	while (now > peak &&
	       !__atomic_compare_exchange_n(&counter->peak_bytes, &peak, now, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
	__atomic_fetch_add(&counter->count, 1, __ATOMIC_RELAXED);
}

void stats_add(struct stats_bytes *counter, uint64_t bytes)
{
	stats_unsub(counter, bytes);
	__atomic_fetch_add(&counter->total_count, 1, __ATOMIC_RELAXED);
}

void stats_sub(struct stats_bytes *counter, uint64_t bytes)
{
	__atomic_fetch_sub(&counter->bytes, bytes, __ATOMIC_RELAXED);
	__atomic_fetch_sub(&counter->count, 1, __ATOMIC_RELAXED);
}

void stats_allocated(struct stats_device *device, uint64_t span_bytes, uint64_t requested_bytes)
{
	stats_add(&device->managed, span_bytes);
	__atomic_fetch_add(&device->residency_bytes[0], span_bytes, __ATOMIC_RELAXED);
	__atomic_fetch_add(&device->requested_bytes, requested_bytes, __ATOMIC_RELAXED);
}

void stats_freed(struct stats_device *device, uint64_t span_bytes, uint64_t requested_bytes, unsigned residency)
{
	stats_sub(&device->managed, span_bytes);
	__atomic_fetch_sub(&device->residency_bytes[residency], span_bytes, __ATOMIC_RELAXED);
	__atomic_fetch_sub(&device->requested_bytes, requested_bytes, __ATOMIC_RELAXED);
}

void stats_moved(struct stats_device *device, uint64_t span_bytes, unsigned from, unsigned to)
{
	__atomic_fetch_sub(&device->residency_bytes[from], span_bytes, __ATOMIC_RELAXED);
	__atomic_fetch_add(&device->residency_bytes[to], span_bytes, __ATOMIC_RELAXED);
	__atomic_fetch_add(&device->moved_to[to].count, 1, __ATOMIC_RELAXED);
	__atomic_fetch_add(&device->moved_to[to].bytes, span_bytes, __ATOMIC_RELAXED);
}
